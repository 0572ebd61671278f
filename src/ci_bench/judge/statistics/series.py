"""What a series of samples is: usable or not, its median, how many. For many series at once, each looked at once.

Owns what makes a series unusable. Ratios of series are in `stats`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ci_bench.judge.statistics.noise import Floats
from ci_bench.judge.statistics.ruling import Counts
from ci_bench.records.case import Launch
from ci_bench.records.comparison import Summary

LARGEST = 1e300
"""Beyond this a sample is a fault of the document, and arithmetic on it would overflow."""

_MOST_AT_ONCE = 1_000_000
"""Samples in one go: memory stays bounded however many series there are."""

Series = tuple[Launch, ...]
Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a series: how many samples each launch has, their median (NaN without any), the least of them.

    `odd` says that one is no finite number, `sound` that all are finite and above zero. A count or a peak may be zero, a time
    may not.
    """

    sizes: Sizes
    median: float
    least: float
    odd: bool
    sound: bool

    @property
    def single(self) -> bool:
        """Whether no launch has more than one value."""
        return max(self.sizes, default=0) <= 1

    def fault(self, *, zero_allowed: bool) -> str | None:
        """What makes the series unusable, or `None`: no samples, one that is no number, or one below (or at) zero."""
        if self.sound:
            return None
        if not any(self.sizes):
            return "has no samples"
        if self.odd:
            return "holds a sample that is not a finite number"
        if self.least < 0 or (self.least == 0 and not zero_allowed):
            return f"holds the impossible sample {self.least:g}"
        return None

    @property
    def summary(self) -> Summary | None:
        """The median and the counts; `None` where the series is unusable."""
        if self.fault(zero_allowed=True):
            return None
        return Summary(median=self.median, samples=sum(self.sizes), launches=len(self.sizes) - self.sizes.count(0))


Known = Mapping[int, Facts]
"""The facts of series by `id`: they are looked at many times, and comparing them takes longer than all else."""


def describe(every: Iterable[Series]) -> Known:
    """The facts of all series."""
    distinct = list({id(series): series for series in every}.values())
    same: dict[Sizes, Sizes] = {}
    lengths = [same.setdefault(of, of) for of in map(sizes, distinct)]
    facts = chain.from_iterable(_describe(distinct[part], lengths[part]) for part in _parts(lengths))
    return dict(zip(map(id, distinct), facts, strict=True))


def samples(series: Series) -> tuple[float, ...]:
    """All samples of all launches, in order."""
    return tuple(chain.from_iterable(launch.values for launch in series))


def sizes(series: Series) -> Sizes:
    """How many samples each launch has."""
    return tuple([len(launch.values) for launch in series])


def _parts(lengths: Sequence[Sizes]) -> Iterator[slice]:
    start = held = 0
    for place, of in enumerate(lengths):
        held += sum(of)
        if held >= _MOST_AT_ONCE:
            yield slice(start, place + 1)
            start, held = place + 1, 0
    yield slice(start, None)


def _describe(every: Sequence[Series], lengths: Sequence[Sizes]) -> Iterator[Facts]:
    counts = np.fromiter(map(sum, lengths), dtype=np.intp, count=len(lengths))
    rows = chain.from_iterable([launch.values for launch in series] for series in every)
    values = np.fromiter(chain.from_iterable(rows), dtype=np.float64, count=int(counts.sum()))
    starts = np.cumsum(counts) - counts
    least, odd = np.full(len(counts), np.nan), np.zeros(len(counts), dtype=np.bool_)
    there = counts > 0
    if there.any():
        least[there] = np.minimum.reduceat(values, starts[there])
        odd[there] = np.logical_or.reduceat(~(np.abs(values) < LARGEST), starts[there])
    sound = ~odd & (least > 0)
    columns = (_medians(values, starts, counts), least, odd, sound)
    return map(Facts, lengths, *(column.tolist() for column in columns))


def _medians(values: Floats, starts: Counts, counts: Counts) -> Floats:
    """The median of each run of values."""
    answer = np.full(len(counts), np.nan)
    for count in np.unique(counts[counts > 0]).tolist():
        rows = np.flatnonzero(counts == count)
        with np.errstate(all="ignore"):  # what is no number is said to be odd
            answer[rows] = np.median(values[starts[rows][:, None] + np.arange(count)], axis=1)
    return answer
