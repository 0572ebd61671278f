"""Ratios of two series of samples, with an interval that respects that launches are what is replicated.

Owns the estimator (ratio of medians) and its interval. Whether a ratio matters is decided in `pairs`.
Everything is deterministic: the same samples give the same interval on every machine.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from ci_bench.records.case import Launch
from ci_bench.records.comparison import Interval, Summary

LEVEL = 0.95
RESAMPLES = 2000
LEAST_LAUNCHES = 2
LEAST_SAMPLES = 3
LARGEST = 1e300
"""Beyond this a sample is a fault of the document, and arithmetic on it would overflow."""

_MOST_LAUNCHES, _MOST_SAMPLES = 16, 128
_LONGEST_LOG = 700.0
_HALF = RESAMPLES // 2
_BYTE = 255

Series = tuple[Launch, ...]
Floats = NDArray[np.float64]
Counts = NDArray[np.int16]
Seeds = tuple[int, int]
"""What the launches of a resample are drawn with, and the samples within."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """A ratio of medians. `interval` is `None` where the samples cannot carry one; `reason` then says why and what to do."""

    value: float | None
    interval: Interval | None = None
    reason: str = ""


def t_quantile(share: float, freedom: float) -> float:
    """The quantile of Student's t at `share` (0..1) with `freedom` degrees of freedom."""
    return float(stdtrit(freedom, share))


def samples(series: Series) -> tuple[float, ...]:
    """All samples of all launches, in order."""
    return tuple(chain.from_iterable(launch.values for launch in series))


def fault(series: Series, *, zero_allowed: bool) -> str | None:
    """What makes a series unusable, or `None`: no samples, a sample that is no number, or one below (or at) zero."""
    values = samples(series)
    if not values:
        return "has no samples"
    least, largest = min(values), max(values)
    if not (math.isfinite(sum(values)) and -LARGEST < least <= largest < LARGEST):  # the sum, for nan hides from min and max
        return "holds a sample that is not a finite number"
    if least < 0 or (least == 0 and not zero_allowed):
        return f"holds the impossible sample {least:g}"
    return None


def summary(series: Series) -> Summary | None:
    """The median over all samples and how many there are; `None` where the series is unusable."""
    if fault(series, zero_allowed=True):
        return None
    values = samples(series)
    return Summary(median=statistics.median(values), samples=len(values), launches=sum(bool(one.values) for one in series))


def ratio_interval(numerator: Series, denominator: Series, *, paired: bool = False) -> Ratio:
    """The ratio of the medians of two series of positive samples, with its interval at `LEVEL`.

    Series with several samples per launch get a hierarchical bootstrap (launches are resampled, then the samples within);
    series of one value per launch get Student's t over the logarithms of the launches, because so few values, resampled,
    would separate by chance far more often than the level says. Either needs two launches on each side, and the bootstrap
    three samples in each. With `paired`, launches of the same number shared a process: what they share cancels.
    Swapping the series inverts value and interval.
    """
    for name, series in (("the first series", numerator), ("the second series", denominator)):
        if wrong := fault(series, zero_allowed=False):
            return Ratio(value=None, reason=f"{name} {wrong}")
    least = 1 if _single(numerator) and _single(denominator) else LEAST_SAMPLES
    one, two = (tuple(launch for launch in side if len(launch.values) >= least) for side in (numerator, denominator))
    centre = _log_ratio(numerator, denominator)
    if min(len(one), len(two)) < LEAST_LAUNCHES:
        return Ratio(value=_exp(centre), reason=_too_few(min(len(one), len(two)), least))
    paired = paired and _numbers(one) == _numbers(two)
    low, high = _t_bounds(one, two, centre, paired=paired) if least == 1 else _bootstrap_bounds(one, two, paired=paired)
    return Ratio(value=_exp(centre), interval=Interval(low=_exp(min(low, centre)), high=_exp(max(high, centre)), level=LEVEL))


def ratio_of_medians(numerator: Series, denominator: Series) -> float | None:
    """The value of `ratio_interval` alone."""
    if fault(numerator, zero_allowed=False) or fault(denominator, zero_allowed=False):
        return None
    return _exp(_log_ratio(numerator, denominator))


def _single(series: Series) -> bool:
    return all(len(launch.values) <= 1 for launch in series)


def _numbers(series: Series) -> tuple[int, ...]:
    return tuple(launch.launch for launch in series)


def _too_few(seen: int, least: int) -> str:
    of = f" of {least} samples" if least > 1 else ""
    have = f"{seen} launch{'' if seen == 1 else 'es'}{of}"
    return f"{have} is too little to tell noise from change: measure at least {LEAST_LAUNCHES} launches{of} on each side"


def _log_ratio(first: Series, second: Series) -> float:
    return math.log(statistics.median(samples(first))) - math.log(statistics.median(samples(second)))


def _exp(value: float) -> float:
    return math.exp(max(-_LONGEST_LOG, min(_LONGEST_LOG, value)))


def _t_bounds(first: Series, second: Series, centre: float, *, paired: bool) -> tuple[float, float]:
    one, two = ([math.log(value) for value in samples(side)] for side in (first, second))
    if paired:
        variance = statistics.variance([a - b for a, b in zip(one, two, strict=True)]) / len(one)
        freedom = len(one) - 1.0
    else:
        variance, freedom = _welch(one, two)
    half = t_quantile((1 + LEVEL) / 2, freedom) * math.sqrt(variance)
    return centre - half, centre + half


def _welch(one: Sequence[float], two: Sequence[float]) -> tuple[float, float]:
    """The variance of a difference of means and its degrees of freedom: https://en.wikipedia.org/wiki/Welch%27s_t-test."""
    parts = [(statistics.variance(side) / len(side), len(side) - 1) for side in (one, two)]
    total = sum(part for part, _ in parts)
    spread = sum((part / total) ** 2 / freedom for part, freedom in parts) if total else 1.0
    return total, 1 / spread


def _bootstrap_bounds(first: Series, second: Series, *, paired: bool) -> tuple[float, float]:
    """The percentile bounds of the log ratio. Paired sides draw the same launches; samples are always drawn apart.

    In the second half of the resamples the sides change their draws, so that swapping them mirrors the bounds exactly.
    """
    one, two = _thinned(first), _thinned(second)
    mine, other = ((1, 2), (1, 4)) if paired else ((1, 2), (3, 4))
    ratios = np.log(_medians(one, (mine, other))) - np.log(_medians(two, (other, mine)))
    cut = int(RESAMPLES * (1 - LEVEL) / 2)
    ordered = np.partition(ratios, (cut, RESAMPLES - 1 - cut))
    return float(ordered[cut]), float(ordered[RESAMPLES - 1 - cut])


def _thinned(series: Series) -> tuple[tuple[float, ...], ...]:
    """At most so many launches and samples, evenly picked: a document cannot make the judge run out of memory."""
    kept = series[:: -(-len(series) // _MOST_LAUNCHES)]
    return tuple(one.values[:: -(-len(one.values) // _MOST_SAMPLES)] for one in kept)


def _medians(launches: tuple[tuple[float, ...], ...], seeds: tuple[Seeds, Seeds]) -> Floats:
    """The medians of all resamples: sorted once, each resample only says how often it drew each sample."""
    values = np.concatenate([np.asarray(one, dtype=np.float64) for one in launches])
    order = np.argsort(values, kind="stable")
    drawn = _draws(tuple(map(len, launches)), seeds)[order]
    above = drawn[0]
    for row in drawn[1:]:  # several times as fast as cumsum along the first axis
        np.add(row, above, out=row)
        above = row
    totals, ranked = drawn[-1], values[order]
    lower, upper = _rows_where(drawn < (totals + 1) // 2), _rows_where(drawn < totals // 2 + 1)
    middle: Floats = (ranked[lower] + ranked[upper]) / 2
    return middle


def _rows_where(holds: NDArray[np.bool_]) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """In how many rows each column holds, added up in the smallest type that can count them: several times as fast."""
    kind = np.uint8 if len(holds) <= _BYTE else np.uint16
    counted: NDArray[np.uint8] | NDArray[np.uint16] = np.add.reduce(holds.view(np.uint8), axis=0, dtype=kind)
    return counted


@lru_cache(maxsize=16)
def _draws(sizes: tuple[int, ...], seeds: tuple[Seeds, Seeds]) -> Counts:
    """How often each sample (row) is drawn in each resample (column); depends on the shape only, so series share it."""
    return np.hstack([_half_of_draws(sizes, *pair) for pair in seeds])


def _half_of_draws(sizes: tuple[int, ...], launch_seed: int, sample_seed: int) -> Counts:
    widths = np.asarray(sizes)
    starts = np.concatenate(([0], widths.cumsum()[:-1]))
    launches = (_uniform(launch_seed, (_HALF, len(sizes), 1)) * len(sizes)).astype(np.intp)
    within = (_uniform(sample_seed, (_HALF, len(sizes), max(sizes))) * widths[launches]).astype(np.intp)
    cells = (starts[launches] + within) * _HALF + np.arange(_HALF)[:, None, None]
    taken = np.broadcast_to(np.arange(max(sizes)) < widths[launches], cells.shape)
    counts = np.bincount(cells[taken], minlength=sum(sizes) * _HALF)
    return counts.reshape(sum(sizes), _HALF).astype(np.int16)


def _uniform(seed: int, shape: tuple[int, ...]) -> Floats:
    """Uniform draws of a named generator: `default_rng` may change its own between numpy versions."""
    return np.random.Generator(np.random.PCG64(seed)).random(shape)
