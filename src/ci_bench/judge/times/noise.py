"""Noise of a case: one figure per launch, the history of A/A launches, and today's inflation.

Owns the estimators that the sequential rule uses; `sequential` decides with them. All arrays may
have leading axes (of runs); the last axes are [cases, launches] or [cases, launches, samples]; NaN
marks missing measurements. Samples and ratios are natural logarithms, so doubling every time only
changes their level.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ci_bench.statistics.special_functions import polygamma, psi

Floats = NDArray[np.float64]

TRIMMED = 0.2
"""The share of samples cut at each end: within 11 % of the best of six estimators on five noise
models.
"""

NORMAL_MAD = 1.4826
"""Factor from the median absolute deviation of normal values to their sd: 1 / Phi^-1(3/4)."""

LEAST_SPREAD = 1e-5
"""No case is believed quieter than this (0.001 %): a clock's own resolution would pass for a
change.
"""

LEAST_HISTORY = 4.0
"""Below this many effective launches a history counts as none."""

MOST_HISTORY = 6.0
"""Degrees of freedom that a history is worth at most, however long: a few cases may be three times
as noisy today, and only their own launches can say so (docs/internals/adr/0007)."""

TIMES_FOR_UNCHANGED = 2.0
"""How many times as much a history counts where a case is called unchanged.

That errs by metric, and not once in a run of many.
"""

CONFLICT = 3.0
"""Launches that scatter this many times as widely as a case's history contradict it."""

LEAST_LAUNCHES = 10
"""The fewest standardised launches from which their common scale is estimated."""

FAR = 5.0
"""Launches beyond this many spreads are outliers.

They are one in 2,000 of those simulated without slower modes.
"""

FEW_EXCURSIONS = 0.002
"""The share of launches that are taken to stray where none was looked at."""

_EXCURSION_LAUNCHES = 250.0
"""The weight of `FEW_EXCURSIONS` in launches: it equals half an excursion in this many."""

MOST_BOUND = 0.9
"""The largest share of the variance that a case's launches showed which is believed to be bound to
a run.
"""

_LIKE = 12
"""The fewest cases that are pooled to find what launches of a run have in common."""

_CUT = 3.0
"""Ratios are clipped at this many spreads before products of them are taken."""

_DIGITS, _DIGITS_TELL = 3, 8
"""Figures of this many significant digits are coarse; of few values even if each is another."""

_STEP_OF_TWO, _MORE_THAN_TWO = 0.025, 3
"""The largest step, relative to a value, that two different values can show: a printed figure of
two digits or more.
"""

_ROUNDING, _OFF_GRID = 1e-12, 0.1
"""Tolerances: of a figure against its digits, and of a distance against a multiple of the step."""

_SHARE_PAIRS = 100.0
"""Weight, in pairs of launches, of the assumption that a run's launches have nothing in common."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """Noise of each case as learned from past A/A launches, all [..., cases]."""

    spread: Floats
    """Standard deviation of the log-ratio of one launch; NaN if never measured."""
    freedom: Floats
    """Effective number of launches behind `spread`; 0 if never measured."""
    within: Floats
    """Usual spread inside a launch; NaN if unknown."""
    bound: Floats | float = 0.0
    """Standard deviation that all launches of one run share, which more launches do not reduce."""
    grid: Floats | float = 0.0
    """Step of a coarse clock or of printed figures relative to a value (`grid_step`); 0 if none."""
    excursions: Floats | float = FEW_EXCURSIONS
    """Share of launches far beyond the usual spread of their case: one figure, or [..., 1]."""

    def only(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> "Learned":
        """Select some of the cases; `excursions` stays that of all."""
        bound, grid = (
            np.broadcast_to(figure, self.spread.shape)[which] for figure in (self.bound, self.grid)
        )
        rest = {name: getattr(self, name)[which] for name in ("spread", "freedom", "within")}
        return replace(self, bound=bound, grid=grid, **rest)


def nothing_learned(cases: int) -> Learned:
    """Return a history of cases without any past launch."""
    unknown = np.full(cases, np.nan)
    return Learned(spread=unknown, freedom=np.zeros(cases), within=unknown)


def grid_step(*sides: Floats) -> float:
    """Return the step of a coarse clock or of printed figures, relative to the values' median.

    It is 0 if the values are not on such a grid.

    Positive values of at most `_DIGITS` digits have the last of them as their step; a whole number
    has a step of 1 at most. Values of which most repeat have the least distance of two, if all
    distances are multiples of it, as ticks of a clock are. Of two values the distance may be the
    change: if no side has both of them, it shows no step over `_STEP_OF_TWO`.
    """
    values = np.concatenate([np.ravel(side) for side in sides]) if sides else np.empty(0)
    distinct = np.asarray(sorted({*values.ravel().tolist()}))  # `np.unique` would load `numpy.ma`
    if distinct.size < 2 or distinct[0] <= 0 or 2 * distinct.size > max(values.size, _DIGITS_TELL):  # noqa: PLR2004 - one has no distance
        return 0.0
    middle, integer_digits = (
        float(distinct[(distinct.size - 1) // 2]),
        math.floor(math.log10(float(distinct[-1]))) + 1,
    )
    for decimals in range(max(0, 1 - integer_digits), max(0, _DIGITS - integer_digits) + 1):
        if integer_digits + decimals <= _DIGITS and np.allclose(
            distinct, np.round(distinct, decimals), rtol=_ROUNDING, atol=0
        ):
            step = float(10.0**-decimals) / middle
            return step if distinct.size > 2 or step <= _STEP_OF_TWO else 0.0  # noqa: PLR2004 - as said
    gaps = np.diff(distinct)
    if 2 * distinct.size > values.size:
        return 0.0
    step = float(gaps.min())
    within_a_side = distinct.size >= _MORE_THAN_TWO or (
        len(sides) > 1 and any(len({*np.ravel(side).tolist()}) > 1 for side in sides)
    )
    on_grid = np.all(np.abs(gaps / step - np.round(gaps / step)) < _OFF_GRID)
    return step / middle if on_grid and (within_a_side or step / middle <= _STEP_OF_TWO) else 0.0


def trimmed_mean(samples: Floats, share: float = TRIMMED) -> Floats:
    """Return the mean over the last axis without the lowest and highest `share`; NaN if empty.

    ``floor(share n)`` values go at each end, as in `scipy.stats.trim_mean`; NaN are ignored.
    """
    there = np.isfinite(samples)
    size = samples.shape[-1]
    if size and there.all():  # nothing missing, as nearly always: several times as fast
        cut = int(share * size)
        kept_only = np.sort(samples, axis=-1)[..., cut : size - cut]
        return np.asarray(np.einsum("...i->...", kept_only) / (size - 2 * cut), dtype=np.float64)
    ordered = np.sort(np.where(there, samples, np.nan), axis=-1)
    count = there.sum(axis=-1, keepdims=True)
    margin = np.floor(share * count)
    inside = (np.arange(size) >= margin) & (np.arange(size) < count - margin)
    total, number = np.sum(ordered, axis=-1, where=inside), np.sum(inside, axis=-1)
    return np.asarray(
        np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0),
        dtype=np.float64,
    )


def launch_ratio(base: Floats, head: Floats) -> Floats:
    """Return ``d = TM(head) - TM(base)`` of each launch from log samples [..., samples].

    Above zero head is slower.
    """
    return trimmed_mean(head) - trimmed_mean(base)


def within_spread(base: Floats, head: Floats, *, per_block: int = 2) -> Floats:
    """Return ``w = 1.4826 MAD`` of the blocks' differences between sides, inside each launch.

    `per_block` samples of an arm in a row belong to one ABBA block. NaN if a launch has fewer than
    two blocks.
    """
    blocks = base.shape[-1] // per_block
    there = np.isfinite(base) & np.isfinite(head)
    pairs = np.subtract(head, base, out=np.full(there.shape, np.nan), where=there)
    used = pairs[..., : blocks * per_block].reshape(*base.shape[:-1], blocks, per_block)
    differences = np.einsum("...i->...", used) / per_block
    centre = nan_median(differences, axis=-1)
    spread = NORMAL_MAD * nan_median(np.abs(differences - centre[..., None]), axis=-1)
    enough = np.sum(np.isfinite(differences), axis=-1) > 1
    return np.where(enough, spread, np.nan)


def learn(past: Floats, within: Floats, weights: Floats) -> Learned:
    """Estimate noise from the log-ratios `past` and spreads `within`, both [..., cases, launches].

    ``s0^2 = sum w h^2 / sum w`` (the true mean of an A/A ratio is zero) and ``nu0 = (sum w)^2 / sum
    w^2``, Kish's effective sample size
    (https://en.wikipedia.org/wiki/Effective_sample_size#Weighted_samples); see `forgetting` for
    `weights`.
    """
    there = np.isfinite(past)
    share = np.where(there, weights, 0.0)
    total, squares = share.sum(axis=-1), np.sum(share**2, axis=-1)
    energy = np.sum(weights * past**2, axis=-1, where=there)
    spread = np.sqrt(np.divide(energy, total, out=np.full(total.shape, np.nan), where=total > 0))
    freedom = np.divide(total**2, squares, out=np.zeros(total.shape), where=squares > 0)
    return Learned(
        spread=np.maximum(spread, LEAST_SPREAD),
        freedom=freedom,
        within=nan_median(within, axis=-1),
        excursions=excursion_share(past, weights),
    )


def excursion_share(past: Floats, weights: Floats) -> Floats:
    """Return the share of outlier launches, for `Learned.excursions`: [..., 1].

    Launches beyond `FAR` times ``1.4826 median |h|`` of their case, over all cases: modes that an
    autotuner can choose show in some of the cases, and a case whose own launches have not met one
    yet must not be trusted more than the others. Cases with fewer than `LEAST_HISTORY` launches
    don't count; `FEW_EXCURSIONS` weighs as much as 250 launches.
    """
    there = np.isfinite(past)
    scale = np.maximum(NORMAL_MAD * nan_median(np.abs(past), axis=-1), LEAST_SPREAD)[..., None]
    weight = np.where(there & (there.sum(axis=-1, keepdims=True) >= LEAST_HISTORY), weights, 0.0)
    strayed = np.sum(weight, axis=(-2, -1), where=np.abs(past) > FAR * scale)
    expected = FEW_EXCURSIONS * _EXCURSION_LAUNCHES
    share = (strayed + expected) / (np.sum(weight, axis=(-2, -1)) + _EXCURSION_LAUNCHES)
    return np.asarray(share, dtype=np.float64)[..., None]


def with_runs(learned: Learned, past: Floats, run: NDArray[np.intp]) -> Learned:
    """Add to `learned` the variance that launches of one run share.

    `past` holds A/A launches [..., cases, launches], `run` a small number for each launch
    ([launches], or one for each launch of each case). The size of an offset that is bound to a
    build does not depend on the noise of a case. So each case's covariance of launches of one run,
    the mean of ``h_i h_j`` over its pairs, is pooled by the median over cases that are about as
    noisy (`_LIKE`), and shrunk as if a hundred pairs more had shown none.
    """
    if not past.size:
        return learned
    return replace(learned, bound=np.sqrt(_common_variance(past, learned.spread, run)))


def _common_variance(past: Floats, spread: Floats, run: NDArray[np.intp]) -> Floats:
    """Return the variance that launches of one run share: [..., cases], at least 0."""
    cut = np.clip(past, -_CUT * spread[..., None], _CUT * spread[..., None])
    there = np.isfinite(cut)
    label = np.broadcast_to(run, cut.shape).reshape(-1, cut.shape[-1])
    rows, runs = len(label), int(label.max(initial=0)) + 1
    place = (np.arange(rows)[:, None] * runs + label).ravel()

    def by_run(values: Floats | NDArray[np.bool_]) -> Floats:
        totals = np.bincount(place, weights=values.ravel(), minlength=rows * runs)
        return np.asarray(totals, dtype=np.float64).reshape(*cut.shape[:-1], runs)

    filled = np.where(there, cut, 0.0)
    count = by_run(there)
    pairs = np.sum(count * (count - 1), axis=-1) / 2
    total = np.sum(by_run(filled) ** 2 - by_run(filled**2), axis=-1) / 2
    pooled = _among_like(
        np.divide(total, pairs, out=np.full(pairs.shape, np.nan), where=pairs > 0), spread
    )
    every = pairs.sum(axis=-1, keepdims=True)
    return np.asarray(
        np.maximum(np.nan_to_num(pooled), 0.0) * every / (every + _SHARE_PAIRS), dtype=np.float64
    )


def _among_like(figures: Floats, spread: Floats) -> Floats:
    """Return the median of each figure over the cases that are about as noisy.

    They are half of all cases, but at least `_LIKE` and at most twice that.
    """
    cases = figures.shape[-1]
    order = np.argsort(np.where(np.isfinite(figures), spread, np.inf), axis=-1, kind="stable")
    width = min(cases, max(_LIKE, min(cases // 2, 2 * _LIKE)))
    ranked = np.take_along_axis(figures, order, axis=-1)
    medians = nan_median(np.lib.stride_tricks.sliding_window_view(ranked, width, axis=-1), axis=-1)
    nearest = np.clip(np.arange(cases) - width // 2, 0, medians.shape[-1] - 1)
    answer = np.empty_like(figures)
    np.put_along_axis(answer, order, medians[..., nearest], axis=-1)
    middle = nan_median(figures, axis=-1)[..., None]
    return np.where(np.isfinite(spread) & np.isfinite(answer), answer, middle)


def forgetting(age_days: Floats, half_life_days: float = 30.0) -> Floats:
    """Return the weight of a launch by its age: ``2^(-age / half-life)``."""
    return np.asarray(np.exp2(-age_days / half_life_days), dtype=np.float64)


def fading(later: Floats, half_life: float = 8.0) -> Floats:
    """Return the weight of a gate's launches by the number of `later` gates.

    It is ``2^(-later / half-life)``, so all gates together weigh as much as a dozen at most.

    A machine that became noisier has to be noticed on days without calibration.
    """
    return np.asarray(np.exp2(-later / half_life), dtype=np.float64)


def moderated(variances: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Return the prior of many cases' variances, (sd, degrees of freedom), without the cases' axis.

    `freedom` is that of each variance, as many. Empirical Bayes of limma (Smyth 2004,
    https://doi.org/10.2202/1544-6115.1027, section 6.2): with ``e = ln s^2 - psi(f/2) + ln(f/2)``:
    ``psi'(d0/2) = var(e) - mean psi'(f/2)`` and ``ln s0^2 = mean(e) + psi(d0/2) - ln(d0/2)``. It is
    believed no more than what the other cases showed, ``sum f - mean f``: two that happen to agree
    don't prove that all are alike. Without two cases: 0.
    """
    usable = np.isfinite(variances) & (variances > 0) & (freedom > 0)
    half = np.where(usable, freedom, 1.0) / 2.0
    logs = np.log(np.where(usable, variances, 1.0)) - psi(half) + np.log(half)
    count = usable.sum(axis=-1)
    cases = np.maximum(count, 1)
    mean = np.sum(logs, axis=-1, where=usable) / cases
    squares = np.sum((logs - mean[..., None]) ** 2, axis=-1, where=usable)
    excess = (
        squares / np.maximum(count - 1, 1)
        - np.sum(polygamma(1, half), axis=-1, where=usable) / cases
    )
    others = np.sum(freedom, axis=-1, where=usable) * (count - 1) / cases
    prior = np.clip(2.0 * trigamma_inverse(np.maximum(excess, 1e-6)), 1e-3, 1e6)
    spread = np.exp((mean + psi(prior / 2.0) - np.log(prior / 2.0)) / 2.0)
    return np.where(count > 1, spread, np.nan), np.where(count > 1, np.minimum(prior, others), 0.0)


def trigamma_inverse(value: Floats) -> Floats:
    """Return the x > 0 with ``psi'(x) = value`` (> 0).

    By Newton's method on ``1 / psi'`` (Smyth 2004, appendix).
    """
    x = 0.5 + 1.0 / value
    for _ in range(30):
        slope = polygamma(1, x)
        x += slope * (1.0 - slope / value) / polygamma(2, x)
    return np.asarray(x, dtype=np.float64)


def worth_today(
    squares: Floats, count: NDArray[np.intp], usually: Floats, freedom: Floats
) -> tuple[Floats, Floats]:
    """Return the degrees of freedom of each history today, and the surplus for unchanged.

    `squares` are the squared deviations of `count` launches, `usually` the variance that the
    history says and `freedom` its own degrees of freedom (NaN without one): all [..., cases]. A
    case contradicts its history if its launches scatter more than `CONFLICT` times as widely;
    unchanged code does so in one case of 300. If more cases than that do, the histories of the
    others get less weight as well, for both words: they may be next.
    """
    conflict = squares > CONFLICT**2 * usually * np.maximum(count - 1, 1)
    judged = np.sum((count > 1) & np.isfinite(usually), axis=-1, keepdims=True)
    several = np.maximum(np.sum(conflict, axis=-1, keepdims=True) - 1 - judged // 100, 0)
    most = np.where(conflict, 1.0, np.maximum(MOST_HISTORY - 2.0 * several, 1.0))
    worth = np.minimum(freedom, most)
    more = np.where(conflict, 0.0, np.minimum(freedom, TIMES_FOR_UNCHANGED * most) - worth)
    return worth, np.nan_to_num(more)


def inflation(d: Floats, within: Floats, learned: Learned) -> Floats:
    """Return today's noise relative to the history: ``phi >= 1``, one for all cases [..., 1].

    The larger of two factors: how much samples scatter inside launches,
    ``median_c(median_i w_ci / w0_c)``, and how much launches do (`_launch_scale`), if that can be
    estimated. Only cases with a history count.
    """
    samples = nan_median(nan_median(within, axis=-1) / learned.within, axis=-1)
    return np.fmax(np.fmax(_launch_scale(d, learned.spread), samples), 1.0)[..., None]


def _launch_scale(d: Floats, spread: Floats) -> Floats:
    """Return the scale of launches relative to the learned spread, [...]: the least of three.

    Of first launches around zero, of first launches around their common median, and of successive
    launches of each case around each other. Only the last is blind to true changes, and only the
    first two to which cases went on; a change common to many cases must not pass for noise, or no
    gate would ever see it.
    """
    first = d[..., 0]
    around_zero = _scale(first / spread)
    around_common = _scale((first - nan_median(first, axis=-1)[..., None]) / spread)
    steps = np.diff(d, axis=-1) / (np.sqrt(2.0) * spread[..., None])
    around_each_other = _scale(steps.reshape(*d.shape[:-2], -1))
    return np.asarray(
        np.fmin(np.fmin(around_zero, around_common), around_each_other), dtype=np.float64
    )


def _scale(standardised: Floats) -> Floats:
    """Return ``1.4826 median |z|`` over the last axis; NaN if fewer than `LEAST_LAUNCHES`."""
    enough = np.sum(~np.isnan(standardised), axis=-1) >= LEAST_LAUNCHES
    return np.where(enough, NORMAL_MAD * nan_median(np.abs(standardised), axis=-1), np.nan)


def nan_median(values: Floats, axis: int) -> Floats:
    """Return the median without NaN; NaN if there is nothing else.

    `numpy.nanmedian` warns then, and is several times as slow. NaN sort to the end.
    """
    ordered = np.sort(np.moveaxis(values, axis, -1), axis=-1)
    size = ordered.shape[-1]
    if not size:
        return np.full(ordered.shape[:-1], np.nan)
    if not np.isnan(ordered[..., -1]).any():
        return np.asarray(
            (ordered[..., (size - 1) // 2] + ordered[..., size // 2]) / 2.0, dtype=np.float64
        )
    count = np.sum(~np.isnan(ordered), axis=-1, keepdims=True)
    low = np.take_along_axis(ordered, (count - 1) // 2, axis=-1)
    high = np.take_along_axis(ordered, count // 2, axis=-1)
    return np.asarray(((low + high) / 2.0)[..., 0], dtype=np.float64)
