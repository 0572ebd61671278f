"""Ratios of two series of samples, with an interval that respects that launches are what is replicated.

Owns the estimator (ratio of medians) and its interval, for many pairs of series at once. Whether a ratio matters is decided in
`screening`. Everything is deterministic: the same samples give the same interval on every machine.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from scipy.special import stdtrit

from ci_bench.judge.noise import NORMAL_MAD, Floats
from ci_bench.judge.series import Facts, Known, Series, Sizes, describe, sizes
from ci_bench.records.case import Launch
from ci_bench.records.comparison import Interval

LEVEL = 0.95
LEAST_LAUNCHES = 2
LEAST_SAMPLES = 3
_MOST_LAUNCHES, _MOST_SAMPLES = 16, 128
_MOST_AT_ONCE = 500_000
"""Samples of a side in one go: memory stays bounded however many pairs there are."""
_LONGEST_LOG = 700.0
_MEDIAN_ERROR = 1.2533
"""The standard error of a median is that of a mean times the root of pi / 2."""

Bounds = tuple[Floats, Floats]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """A ratio of medians. `interval` is `None` where the samples cannot carry one; `reason` then says why and what to do."""

    value: float | None
    interval: Interval | None = None
    reason: str = ""


_UNKNOWN = Ratio(value=None)


@dataclass(frozen=True, slots=True)
class _Open:
    """A pair whose interval is still to be found; `place` is where its answer goes, `shape` the sizes of both sides' launches."""

    place: int
    centre: float
    one: Series
    two: Series
    shape: tuple[Sizes, Sizes]


def t_quantile(share: float, freedom: float) -> float:
    """The quantile of Student's t at `share` (0..1) with `freedom` degrees of freedom."""
    return float(stdtrit(freedom, share))


def ratio_interval(numerator: Series, denominator: Series, *, paired: bool = False) -> Ratio:
    """`ratios` of a single pair."""
    return ratios([(numerator, denominator)], describe((numerator, denominator)), paired=paired)[0]


def ratios(pairs: Sequence[tuple[Series, Series]], known: Known, *, paired: bool = False) -> list[Ratio]:
    """The ratio of the medians of two series of positive samples, with its interval at `LEVEL`, for each pair of series.

    Series with several samples per launch get the interval of a hierarchical bootstrap (launches are resampled, then the
    samples within) in closed form, see `_median_bounds`; with `paired`, launches of the same number shared a process, and
    what they share cancels. Series of one value per launch get Student's t over the logarithms of the launches. Either needs
    two launches on each side, and the first three samples in each. Swapping the series inverts value and interval.
    """
    answers: list[Ratio] = []
    waiting: dict[tuple[Sizes, Sizes, bool], list[_Open]] = {}
    for place, pair in enumerate(pairs):
        found = _classify(place, pair, (known[id(pair[0])], known[id(pair[1])]))
        answers.append(found if isinstance(found, Ratio) else _UNKNOWN)
        if isinstance(found, _Open):
            together = paired and _numbers(found.one) == _numbers(found.two)
            waiting.setdefault((*found.shape, together), []).append(found)
    for (one, two, together), group in waiting.items():
        for part in _parts(group, max(sum(one), sum(two))):
            for of, ratio in zip(part, _solve(part, (one, two), paired=together), strict=True):
                answers[of.place] = ratio
    return answers


def ratio_of_medians(one: Facts, two: Facts) -> float | None:
    """The value of `ratios` alone; `None` where a series is unusable."""
    if one.fault(zero_allowed=False) or two.fault(zero_allowed=False):
        return None
    return _exp(math.log(one.median) - math.log(two.median))


def _classify(place: int, pair: tuple[Series, Series], facts: tuple[Facts, Facts]) -> Ratio | _Open:
    """A pair that can carry an interval, or the answer for one that cannot."""
    for name, of in zip(("the first series", "the second series"), facts, strict=True):
        if wrong := of.fault(zero_allowed=False):
            return Ratio(value=None, reason=f"{name} {wrong}")
    centre = math.log(facts[0].median) - math.log(facts[1].median)
    least = 1 if facts[0].single and facts[1].single else LEAST_SAMPLES
    one, two = (_kept(series, of, least) for series, of in zip(pair, facts, strict=True))
    if min(len(one), len(two)) < LEAST_LAUNCHES:
        return Ratio(value=_exp(centre), reason=_too_few(min(len(one), len(two)), least))
    shape = facts[0].sizes if one is pair[0] else sizes(one), facts[1].sizes if two is pair[1] else sizes(two)
    return _Open(place, centre, one, two, shape)


def _kept(series: Series, facts: Facts, least: int) -> Series:
    """The launches that have enough samples, thinned to a bounded number of them."""
    usual = min(facts.sizes) >= least and len(series) <= _MOST_LAUNCHES and max(facts.sizes) <= _MOST_SAMPLES
    return series if usual else _thinned(tuple(launch for launch in series if len(launch.values) >= least))


def _numbers(series: Series) -> tuple[int, ...]:
    return tuple(launch.launch for launch in series)


def _thinned(series: Series) -> Series:
    """At most so many launches and samples, evenly picked: a document cannot make the judge run out of memory."""
    kept = series[:: max(1, -(-len(series) // _MOST_LAUNCHES))]
    return tuple(Launch(launch=one.launch, values=one.values[:: -(-len(one.values) // _MOST_SAMPLES)]) for one in kept)


def _too_few(seen: int, least: int) -> str:
    of = f" of {least} samples" if least > 1 else ""
    have = f"{seen} launch{'' if seen == 1 else 'es'}{of}"
    return f"{have} is too little to tell noise from change: measure at least {LEAST_LAUNCHES} launches{of} on each side"


def _exp(value: float) -> float:
    return math.exp(max(-_LONGEST_LOG, min(_LONGEST_LOG, value)))


def _parts(group: list[_Open], width: int) -> Iterator[list[_Open]]:
    step = max(1, _MOST_AT_ONCE // width)
    yield from (group[at : at + step] for at in range(0, len(group), step))


def _solve(group: list[_Open], shape: tuple[Sizes, Sizes], *, paired: bool) -> list[Ratio]:
    """The ratios of pairs of one shape."""
    one, two = (_logs(group, side) for side in ("one", "two"))
    centre = np.array([of.centre for of in group])
    if max(*shape[0], *shape[1]) == 1:
        down, up = _student(one, two, paired=paired)
    elif paired:
        down, up = _together(one, two, shape, centre)
    else:
        down, up = _apart(one, two, shape)
    low, high = (np.exp(np.clip(bound, -_LONGEST_LOG, _LONGEST_LOG)) for bound in (centre - down, centre + up))
    return [
        Ratio(value=_exp(of.centre), interval=Interval(low=min(at, _exp(of.centre)), high=max(to, _exp(of.centre)), level=LEVEL))
        for of, at, to in zip(group, low.tolist(), high.tolist(), strict=True)
    ]


def _logs(group: list[_Open], side: str) -> Floats:
    """The logarithms of all samples [pairs, samples], launch after launch."""
    rows = (launch.values for of in group for launch in getattr(of, side))
    return np.log(np.fromiter(chain.from_iterable(rows), dtype=np.float64)).reshape(len(group), -1)


def _student(one: Floats, two: Floats, *, paired: bool) -> Bounds:
    """How far Student's t interval of a difference of means reaches down and up: Welch's, or that of paired differences.

    https://en.wikipedia.org/wiki/Welch%27s_t-test
    """
    if paired:
        differences = one - two
        error2 = differences.var(axis=1, ddof=1) / differences.shape[1]
        freedom = np.full(len(one), differences.shape[1] - 1.0)
    else:
        parts = [(side.var(axis=1, ddof=1) / side.shape[1], side.shape[1] - 1) for side in (one, two)]
        error2 = parts[0][0] + parts[1][0]
        known = np.where(error2 > 0, error2, 1.0)
        spread = np.sum([(np.where(error2 > 0, part, known) / known) ** 2 / freedom for part, freedom in parts], axis=0)
        freedom = 1.0 / spread
    half = stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(error2)
    return half, half


def _apart(one: Floats, two: Floats, shape: tuple[Sizes, Sizes]) -> Bounds:
    """How far the interval of a difference of two medians reaches: each median's own, put together.

    The square-and-add rule keeps their skewness (MOVER: Zou & Donner 2008, https://doi.org/10.1002/sim.3095).
    """
    reach = t_quantile((1 + LEVEL) / 2, len(shape[0]) + len(shape[1]))
    (down, up), (other_down, other_up) = _median_bounds(one, shape[0], reach), _median_bounds(two, shape[1], reach)
    return np.hypot(down, other_up), np.hypot(up, other_down)


def _median_bounds(logs: Floats, lengths: Sizes, reach: float) -> Bounds:
    """How far down and up the median of each row [pairs, samples] may be, by a hierarchical bootstrap in closed form.

    A resample draws as many launches as there are, then as many samples of each. Its median lies above v where fewer than half
    of them are below: a sum of independent draws, whose mean and variance follow from how many samples x_i of each launch of
    n_i lie below v. With ``c_i = x_i - n_i / 2``: mean ``sum c_i``, variance ``sum x_i (1 - x_i / n_i) + sum c_i^2 - (sum c_i)^2
    / launches``. So v is a bound where mean / sd is ``-+ reach``. No draws, and twenty times as fast; `reach` is Student's with
    as many degrees of freedom as there are launches, since the bootstrap's own interval is too narrow for a few.
    """
    edges = np.cumsum((0, *lengths))
    within = np.concatenate([np.sort(logs[:, at:to], axis=1) for at, to in pairwise(edges)], axis=1)
    order = np.argsort(within, axis=1, kind="stable")
    ranked = np.take_along_axis(within, order, axis=1)
    rank = np.concatenate([np.arange(size) for size in lengths]).astype(np.float64)[order]
    size = np.repeat(np.asarray(lengths, dtype=np.float64), lengths)[order]
    below = np.arange(edges[-1]) + 0.5  # the sample itself counts half
    squares = _running(2 * rank + 1) + rank + 0.25
    shares = _running((2 * rank + 1) / size) + (rank + 0.25) / size
    crossed = _running(size) + size / 2
    mean = below - edges[-1] / 2
    centred = squares - crossed + np.sum(np.square(lengths)) / 4
    variance = below - shares + centred - mean**2 / len(lengths)
    z = np.maximum.accumulate(mean / np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny)), axis=1)
    middle = np.median(logs, axis=1)
    return np.maximum(middle - _where(z, ranked, -reach), 0.0), np.maximum(_where(z, ranked, reach) - middle, 0.0)


def _running(values: Floats) -> Floats:
    """The sum of what came before, along each row."""
    return np.asarray(np.cumsum(values, axis=1) - values, dtype=np.float64)


def _where(z: Floats, ranked: Floats, target: float) -> Floats:
    """The value at which z reaches the target, between its neighbours; the outermost where it never does."""
    after = np.sum(z < target, axis=1)
    ends = [np.clip(place, 0, z.shape[1] - 1)[:, None] for place in (after - 1, after)]
    (z0, z1), (low, high) = ([np.take_along_axis(table, end, axis=1)[:, 0] for end in ends] for table in (z, ranked))
    share = np.divide(target - z0, z1 - z0, out=np.ones(len(z)), where=z1 > z0)
    return np.asarray(low + np.clip(share, 0.0, 1.0) * (high - low), dtype=np.float64)


def _together(one: Floats, two: Floats, shape: tuple[Sizes, Sizes], centre: Floats) -> Bounds:
    """How far around `centre` the interval reaches where launches were shared: around the mean of the launches' differences.

    As in the bootstrap, what launches scatter and what the samples within them do add up. Student's t with one degree of
    freedom more than there are launches covers the truth as often as the bootstrap did or more, in the noise of simulated GPUs.
    """
    differences = _by_launch(one, shape[0], _median) - _by_launch(two, shape[1], _median)
    inside = _by_launch(one, shape[0], _error) ** 2 + _by_launch(two, shape[1], _error) ** 2
    launches = len(shape[0])
    half = t_quantile((1 + LEVEL) / 2, launches + 1) * np.sqrt((differences.var(axis=1) + inside.mean(axis=1)) / launches)
    off = differences.mean(axis=1) - centre
    return half - off, half + off


def _by_launch(logs: Floats, lengths: Sizes, figure: Callable[[Floats], Floats]) -> Floats:
    """A figure of each launch: [pairs, launches]."""
    edges = np.cumsum((0, *lengths))
    return np.stack([figure(logs[:, at:to]) for at, to in pairwise(edges)], axis=1)


def _median(logs: Floats) -> Floats:
    return np.asarray(np.median(logs, axis=1), dtype=np.float64)


def _error(logs: Floats) -> Floats:
    """The standard error of the median of each row, from its median absolute deviation."""
    spread = NORMAL_MAD * np.median(np.abs(logs - np.median(logs, axis=1)[:, None]), axis=1)
    return np.asarray(_MEDIAN_ERROR * spread / math.sqrt(logs.shape[1]), dtype=np.float64)
