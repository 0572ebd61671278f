"""Ratios of two series of samples, with an interval that treats launches as the replicates.

Owns what makes a series usable, its median and its ratio to another (ratio of medians), for many
series together. `screening` decides whether a ratio matters. Deterministic: the same samples give
the same interval on every machine.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice, pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from ci_bench.judge.times.noise import NORMAL_MAD, Floats, nan_median
from ci_bench.judge.times.sequential import Counts
from ci_bench.records.comparison import Interval, Summary
from ci_bench.records.results import Launch, samples_of
from ci_bench.records.samples import FLOAT_BYTES
from ci_bench.statistics.special_functions import stdtrit

LARGEST = 1e300
"""Beyond this a sample is a fault of the document, and arithmetic on it would overflow."""

_MOST_SAMPLES_AT_ONCE = 200_000
"""Samples in one go: memory stays bounded however many series there are."""

Series = tuple[Launch, ...]
Sizes = tuple[int, ...]


class RatioFacts(NamedTuple):
    """Facts of a series: samples per launch, their median (NaN without any), the smallest sample.

    `odd` says that one is not a finite number, `sound` that all are finite and above zero. A count
    or a peak may be zero, a time may not.
    """

    sizes: Sizes
    median: float
    least: float
    odd: bool
    sound: bool

    @property
    def single(self) -> bool:
        """Return whether no launch has more than one value."""
        return _is_single(self.sizes)

    def fault(self, *, zero_allowed: bool, signed: bool = False) -> str | None:
        """Return the fault that makes the series unusable, or `None`.

        Faults are missing samples, a sample that is not a number, or one below (or at) zero.

        A `signed` series may have any finite numbers.
        """
        if self.sound:
            return None
        if not any(self.sizes):
            return "has no samples"
        if self.odd:
            return "holds a sample that is not a finite number"
        if not signed and (self.least < 0 or (self.least == 0 and not zero_allowed)):
            return f"holds the impossible sample {self.least:g}"
        return None

    @property
    def summary(self) -> Summary | None:
        """Return the median and the counts; `None` if the series is unusable."""
        return self.summarised(None)

    def summarised(self, estimate: float | None, *, signed: bool = False) -> Summary | None:
        """Return the summary, with the judged figure if that is not the median."""
        if not self.sound and self.fault(zero_allowed=True, signed=signed):
            return None
        samples, launches = _counts(self.sizes)
        return Summary(median=self.median, samples=samples, launches=launches, estimate=estimate)


@lru_cache(maxsize=1000)
def _is_single(lengths: Sizes) -> bool:
    return max(lengths, default=0) <= 1


@lru_cache(maxsize=1000)
def _counts(lengths: Sizes) -> tuple[int, int]:
    """Return the number of samples, and the number of launches that have some."""
    return sum(lengths), len(lengths) - lengths.count(0)


Known = Mapping[int, RatioFacts]
"""The facts of series by `id`: they are looked at many times, and comparing them takes longer than
all else.
"""


def describe(every: Iterable[Series]) -> Known:
    """Return the facts of all series."""
    distinct = {id(series): series for series in every}
    buffers = samples_of(chain.from_iterable(distinct.values()))
    sizes_of_all = iter(_sizes(buffers))
    same: dict[Sizes, Sizes] = {}
    lengths = [
        same.setdefault(of, of)
        for of in (tuple(islice(sizes_of_all, len(series))) for series in distinct.values())
    ]
    launches = iter(buffers)
    facts = chain.from_iterable(_describe(launches, lengths[part]) for part in _slices(lengths))
    return dict(zip(distinct, facts, strict=True))


def samples(series: Series) -> tuple[float, ...]:
    """Return all samples of all launches, in order."""
    return tuple(chain.from_iterable(launch.values for launch in series))


def sizes(series: Series) -> Sizes:
    """Return the number of samples of each launch."""
    return _sizes(samples_of(series))


def _sizes(buffers: list[bytes]) -> Sizes:
    return tuple([len(launch) // FLOAT_BYTES for launch in buffers])


def _slices(lengths: Sequence[Sizes]) -> Iterator[slice]:
    start = total = 0
    for place, of in enumerate(lengths):
        total += sum(of)
        if total >= _MOST_SAMPLES_AT_ONCE:
            yield slice(start, place + 1)
            start, total = place + 1, 0
    yield slice(start, None)


def _describe(launches: Iterator[bytes], lengths: Sequence[Sizes]) -> Iterator[RatioFacts]:
    """Return the facts of one series for each of `lengths`, from the next launches."""
    counts = np.fromiter(map(sum, lengths), dtype=np.intp, count=len(lengths))
    values = np.frombuffer(b"".join(islice(launches, sum(map(len, lengths)))))
    starts = np.cumsum(counts) - counts
    least, not_finite = np.full(len(counts), np.nan), np.zeros(len(counts), dtype=np.bool_)
    there = counts > 0
    if there.any():
        least[there] = np.minimum.reduceat(values, starts[there])
        not_finite[there] = np.logical_or.reduceat(~(np.abs(values) < LARGEST), starts[there])
    sound = ~not_finite & (least > 0)
    columns = (_medians(values, starts, counts), least, not_finite, sound)
    return map(RatioFacts, lengths, *(column.tolist() for column in columns))


def _medians(values: Floats, starts: Counts, counts: Counts) -> Floats:
    """Return the median of each run of values."""
    answer = np.full(len(counts), np.nan)
    for count in {*counts.tolist()} - {0}:
        rows = np.flatnonzero(counts == count)
        with np.errstate(all="ignore"):  # not-a-number values are odd
            answer[rows] = _middle(
                np.sort(values[starts[rows][:, None] + np.arange(count)], axis=1)
            )
    return answer


def _middle(ordered: Floats) -> Floats:
    """Return the median of each row of sorted values.

    `numpy.median` and `numpy.unique` would load numpy's masked arrays.
    """
    size = ordered.shape[1]
    low, high = ordered[:, (size - 1) // 2], ordered[:, size // 2]
    middle = high if size % 2 else (low + high) / 2.0
    return np.where(np.isnan(ordered[:, -1]), np.nan, middle)


LEVEL = 0.95
LEAST_LAUNCHES = 2
LEAST_SAMPLES = 3
_MOST_LAUNCHES, _MOST_SAMPLES = 16, 128
_MOST_AT_ONCE = 25_000
"""Samples of a side in one go: memory stays bounded however many pairs there are, and what is
worked on stays in the cache.
"""
_LONGEST_LOG = 700.0
_TINY = float(np.finfo(np.float64).tiny)
_MEDIAN_ERROR = 1.2533
"""The standard error of a median is that of a mean times the root of pi / 2."""

Bounds = tuple[Floats, Floats]


class Ratio(NamedTuple):
    """A ratio of medians.

    `interval` is `None` if the samples cannot carry one; `reason` then says why and what to do.
    """

    value: float | None
    interval: Interval | None = None
    reason: str = ""


_UNKNOWN = Ratio(value=None)


class _Open(NamedTuple):
    """A pair without an interval yet.

    `place` is the index of its answer, `shape` the sizes of both sides' launches.
    """

    place: int
    centre: float
    one: Series
    two: Series
    shape: tuple[Sizes, Sizes]


def t_quantile(share: float, freedom: float) -> float:
    """Return the quantile of Student's t at `share` (0..1) with `freedom` degrees of freedom."""
    return float(stdtrit(freedom, share))


def ratios(
    pairs: Sequence[tuple[Series, Series]], facts: Known, *, paired: bool = False
) -> list[Ratio]:
    """Return the ratio of the medians of each pair of series, with its interval at `LEVEL`.

    Samples are positive.
    Series with several samples per launch get the interval of a hierarchical bootstrap (launches
    are resampled, then the samples within) in closed form, see `_median_bounds`; with `paired`,
    launches of the same number shared a process, and what they share cancels. Series of one value
    per launch get Student's t over the logarithms of the launches, and so do series with too few
    samples in most launches, by their medians. Either needs two launches on each side. Swapping the
    series inverts value and interval.
    """
    answers: list[Ratio] = []
    waiting: dict[tuple[Sizes, Sizes, bool], list[_Open]] = {}
    for place, pair in enumerate(pairs):
        outcome = _classify(place, pair, (facts[id(pair[0])], facts[id(pair[1])]))
        if isinstance(outcome, Ratio):
            answers.append(outcome)
            continue
        answers.append(_UNKNOWN)
        together = paired and _numbers(outcome.one) == _numbers(outcome.two)
        waiting.setdefault((*outcome.shape, together), []).append(outcome)
    for (first, second, together), group in waiting.items():
        for part in _parts(group, max(sum(first), sum(second))):
            for of, ratio in zip(part, _solve(part, (first, second), paired=together), strict=True):
                answers[of.place] = ratio
    return answers


def ratio_of_medians(numerator: RatioFacts, denominator: RatioFacts) -> float | None:
    """Return only the value of `ratios`; `None` if a series is unusable."""
    if numerator.fault(zero_allowed=False) or denominator.fault(zero_allowed=False):
        return None
    return _exp(math.log(numerator.median) - math.log(denominator.median))


def _classify(
    place: int, pair: tuple[Series, Series], facts: tuple[RatioFacts, RatioFacts]
) -> Ratio | _Open:
    """Return a pair that can carry an interval, or the answer for one that cannot."""
    numerator, denominator = facts
    if (
        numerator.sound
        and denominator.sound
        and _is_usual(numerator.sizes)
        and _is_usual(denominator.sizes)
    ):  # as nearly always
        return _Open(
            place,
            math.log(numerator.median) - math.log(denominator.median),
            *pair,
            (numerator.sizes, denominator.sizes),
        )
    return _classify_odd(place, pair, facts)


@lru_cache(maxsize=1000)
def _is_usual(lengths: Sizes) -> bool:
    """Return whether all launches of a series count, and none has to be thinned."""
    enough = len(lengths) >= LEAST_LAUNCHES and min(lengths) >= LEAST_SAMPLES
    return enough and len(lengths) <= _MOST_LAUNCHES and max(lengths) <= _MOST_SAMPLES


def _classify_odd(
    place: int, pair: tuple[Series, Series], facts: tuple[RatioFacts, RatioFacts]
) -> Ratio | _Open:
    for name, of in zip(("the first series", "the second series"), facts, strict=True):
        if wrong := of.fault(zero_allowed=False):
            return Ratio(value=None, reason=f"{name} {wrong}")
    centre = math.log(facts[0].median) - math.log(facts[1].median)
    least = 1 if facts[0].single and facts[1].single else LEAST_SAMPLES
    numerator, denominator = (
        _thinned(tuple(launch for launch in series if len(launch.values) >= least))
        for series in pair
    )
    if min(len(numerator), len(denominator)) < LEAST_LAUNCHES < min(map(_filled, pair)) + 1:
        numerator, denominator = (_thinned(_medians_of(series)) for series in pair)
    if min(len(numerator), len(denominator)) < LEAST_LAUNCHES:
        usable, filled = min(len(numerator), len(denominator)), min(map(_filled, pair))
        return Ratio(value=_exp(centre), reason=_too_few(filled, least if usable == filled else 1))
    return _Open(place, centre, numerator, denominator, (sizes(numerator), sizes(denominator)))


def _filled(series: Series) -> int:
    return sum(bool(launch.values) for launch in series)


def _medians_of(series: Series) -> Series:
    """Return one value for each launch, whose few samples do not show its spread."""
    return tuple(
        Launch(launch=launch.launch, values=(median(launch.values),))
        for launch in series
        if launch.values
    )


def _numbers(series: Series) -> tuple[int, ...]:
    return tuple(launch.launch for launch in series)


def _thinned(series: Series) -> Series:
    """Thin launches and samples evenly: a document cannot exhaust the judge's memory."""
    launches = series[:: max(1, -(-len(series) // _MOST_LAUNCHES))]
    return tuple(
        Launch(
            launch=launch.launch, values=launch.values[:: -(-len(launch.values) // _MOST_SAMPLES)]
        )
        for launch in launches
    )


def _too_few(launches: int, least: int) -> str:
    of = f" of {least} samples" if least > 1 else ""
    have = f"{launches} launch{'' if launches == 1 else 'es'}{of}"
    return (
        f"{have} is too little to tell noise from change: measure at least {LEAST_LAUNCHES}"
        f" launches{of} on each side"
    )


def _exp(value: float) -> float:
    return math.exp(max(-_LONGEST_LOG, min(_LONGEST_LOG, value)))


def _parts(group: list[_Open], width: int) -> Iterator[list[_Open]]:
    step = max(1, _MOST_AT_ONCE // width)
    yield from (group[at : at + step] for at in range(0, len(group), step))


def _solve(group: list[_Open], shape: tuple[Sizes, Sizes], *, paired: bool) -> list[Ratio]:
    """Return the ratios of pairs of one shape."""
    numerator, denominator = (_logs(group, side) for side in ("one", "two"))
    centre = np.array([of.centre for of in group])
    if max(shape[0]) == 1:  # then so are the launches of the other side, see `_classify_odd`
        down, up = _student(numerator, denominator, paired=paired)
    elif paired:
        down, up = _bound_together(numerator, denominator, shape, centre)
    else:
        down, up = _bound_separately(numerator, denominator, shape)
    value, low, high = (
        np.exp(np.clip(log, -_LONGEST_LOG, _LONGEST_LOG))
        for log in (centre, centre - down, centre + up)
    )
    columns = value.tolist(), np.minimum(low, value).tolist(), np.maximum(high, value).tolist()
    return [
        Ratio(of, Interval(low=at, high=to, level=LEVEL))
        for of, at, to in zip(*columns, strict=True)
    ]


def _logs(group: list[_Open], side: str) -> Floats:
    """Return the logarithms of all samples [pairs, samples], launch after launch."""
    rows = samples_of(chain.from_iterable(getattr(of, side) for of in group))
    return np.log(np.frombuffer(b"".join(rows))).reshape(len(group), -1)


def _student(numerator: Floats, denominator: Floats, *, paired: bool) -> Bounds:
    """Return the reach of Student's t interval of a difference of means, down and up.

    It is Welch's, or that of paired differences.

    https://en.wikipedia.org/wiki/Welch%27s_t-test
    """
    if paired:
        differences = numerator - denominator
        error2 = differences.var(axis=1, ddof=1) / differences.shape[1]
        freedom = np.full(len(numerator), differences.shape[1] - 1.0)
    else:
        parts = [
            (side.var(axis=1, ddof=1) / side.shape[1], side.shape[1] - 1)
            for side in (numerator, denominator)
        ]
        error2 = parts[0][0] + parts[1][0]
        divisor = np.where(error2 > 0, error2, 1.0)
        spread = np.sum(
            [
                (np.where(error2 > 0, part, divisor) / divisor) ** 2 / freedom
                for part, freedom in parts
            ],
            axis=0,
        )
        freedom = 1.0 / spread
    half = stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(error2)
    return half, half


def _bound_separately(numerator: Floats, denominator: Floats, shape: tuple[Sizes, Sizes]) -> Bounds:
    """Return the reach of the interval of a difference of medians: each median's own, combined.

    The square-and-add rule keeps their skewness (MOVER: Zou & Donner 2008,
    https://doi.org/10.1002/sim.3095).
    """
    reach = t_quantile((1 + LEVEL) / 2, len(shape[0]) + len(shape[1]))
    (down, up), (other_down, other_up) = (
        _median_bounds(numerator, shape[0], reach),
        _median_bounds(denominator, shape[1], reach),
    )
    return np.hypot(down, other_up), np.hypot(up, other_down)


def _median_bounds(logs: Floats, lengths: Sizes, reach: float) -> Bounds:
    """Return the reach of the median of each row [pairs, samples], down and up.

    It is a hierarchical bootstrap in closed form.

    A resample draws as many launches as there are, then as many samples of each. Its median lies
    above v where fewer than half of them are below: a sum of independent draws, whose mean and
    variance follow from how many samples x_i of each launch of n_i lie below v. With ``c_i = x_i -
    n_i / 2``: mean ``sum c_i``, variance ``sum x_i (1 - x_i / n_i) + sum c_i^2 - (sum c_i)^2 /
    launches``. So v is a bound where mean / sd is ``-+ reach``. No draws, and twenty times as fast;
    `reach` is Student's with as many degrees of freedom as there are launches, since the
    bootstrap's own interval is too narrow for a few.
    """
    edges = np.cumsum((0, *lengths))
    within = np.concatenate([np.sort(logs[:, at:to], axis=1) for at, to in pairwise(edges)], axis=1)
    order, ranked = _in_order(within)
    rank = np.concatenate([np.arange(size) for size in lengths]).astype(np.float64)[order]
    size = np.repeat(np.asarray(lengths, dtype=np.float64), lengths)
    if len({*lengths}) > 1:  # else every place is of a launch of one size
        size = size[order]
    below = np.arange(edges[-1]) + 0.5  # the sample itself counts half
    squares = _running(2 * rank + 1)
    squares += rank
    squares += 0.25
    shares = _running((2 * rank + 1) / size)
    shares += (rank + 0.25) / size
    mean = below - edges[-1] / 2
    squares -= _running(size) + size / 2
    squares += np.sum(np.square(lengths)) / 4
    variance = np.subtract(below, shares, out=shares)
    variance += squares
    variance -= mean**2 / len(lengths)
    deviation = np.sqrt(np.maximum(variance, _TINY, out=variance), out=variance)
    z = np.maximum.accumulate(np.divide(mean, deviation, out=deviation), axis=1)
    middle = (ranked[:, (edges[-1] - 1) // 2] + ranked[:, edges[-1] // 2]) / 2
    return np.maximum(middle - _where(z, ranked, -reach), 0.0), np.maximum(
        _where(z, ranked, reach) - middle, 0.0
    )


def _in_order(values: Floats) -> tuple[Counts, Floats]:
    """Return the indices that sort each row, and the sorted values; equal ones keep their order.

    If all values differ there is only one order, and the quicker sort finds it as well.
    """
    order = np.argsort(values, axis=1)
    ranked: Floats = np.take_along_axis(values, order, axis=1)
    if (ranked[:, 1:] == ranked[:, :-1]).any():
        order = np.argsort(values, axis=1, kind="stable")
    return order, ranked


def _running(values: Floats) -> Floats:
    """Return the exclusive cumulative sum along the last axis."""
    sums = np.cumsum(values, axis=-1)
    sums -= values
    return sums


def _where(z: Floats, ranked: Floats, target: float) -> Floats:
    """Return the value at which z reaches the target, interpolated; the outermost if never."""
    after = np.sum(z < target, axis=1)
    ends = [np.clip(place, 0, z.shape[1] - 1)[:, None] for place in (after - 1, after)]
    (z0, z1), (low, high) = (
        [np.take_along_axis(table, end, axis=1)[:, 0] for end in ends] for table in (z, ranked)
    )
    share = np.divide(target - z0, z1 - z0, out=np.ones(len(z)), where=z1 > z0)
    return np.asarray(low + share * (high - low), dtype=np.float64)


def _bound_together(
    numerator: Floats, denominator: Floats, shape: tuple[Sizes, Sizes], centre: Floats
) -> Bounds:
    """Return the reach of the interval around `centre` if launches were shared.

    It is centred on the mean of the launches' differences.

    As in the bootstrap, what launches scatter and what the samples within them do add up. Student's
    t with one degree of freedom more than there are launches covers the truth as often as the
    bootstrap did or more, in the noise of simulated GPUs.
    """
    (middle, error), (other, other_error) = (
        _by_launch(numerator, shape[0]),
        _by_launch(denominator, shape[1]),
    )
    differences, inside = middle - other, error**2 + other_error**2
    launches = len(shape[0])
    half = t_quantile((1 + LEVEL) / 2, launches + 1) * np.sqrt(
        (differences.var(axis=1) + inside.mean(axis=1)) / launches
    )
    off = differences.mean(axis=1) - centre
    return half - off, half + off


def _by_launch(logs: Floats, lengths: Sizes) -> Bounds:
    """Return median and standard error of each launch, by the MAD: both [pairs, launches]."""
    if len(set(lengths)) == 1:
        parts = [_median_and_error(logs.reshape(len(logs), len(lengths), -1))]
    else:
        edges = np.cumsum((0, *lengths))
        parts = [_median_and_error(logs[:, None, at:to]) for at, to in pairwise(edges)]
    middle, error = (np.concatenate(figure, axis=1) for figure in zip(*parts, strict=True))
    return middle, error


def _median_and_error(samples: Floats) -> Bounds:
    """Return median and standard error over the last axis."""
    middle = nan_median(samples, axis=-1)
    spread = NORMAL_MAD * nan_median(np.abs(samples - middle[..., None]), axis=-1)
    return middle, np.asarray(
        _MEDIAN_ERROR * spread / math.sqrt(samples.shape[-1]), dtype=np.float64
    )
