"""How noisy a case is: one figure per launch from its samples, what the history of A/A launches taught, and today's guard.

Owns the estimators that the sequential rule stands on. What they decide is in `sequential`. All arrays may have leading
axes (of runs); the last axes are [cases, launches] or [cases, launches, samples]; NaN stands for what wasn't measured.
Samples and ratios are natural logarithms, so that doubling every time changes nothing but their level.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma, psi

Floats = NDArray[np.float64]

TRIMMED = 0.2
"""The share of samples cut at each end: within 11 % of the best of six estimators on five noise models."""

NORMAL_MAD = 1.4826
"""Makes the median absolute deviation of normal values their standard deviation: 1 / Phi^-1(3/4)."""

LEAST_SPREAD = 1e-5
"""No case is believed quieter than this (0.001 %): a clock's own resolution would pass for a change."""

LEAST_HISTORY = 4.0
"""Below this many effective launches a history counts as none."""

LEAST_CASES = 10
"""With fewer cases their common noise cannot be told from a change of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """What past A/A launches say of each case, all [..., cases].

    `spread` is the sd of the log-ratio of one launch (NaN if never measured), `freedom` the effective number of launches it
    rests on, and `within` the usual spread inside a launch (NaN if unknown).
    """

    spread: Floats
    freedom: Floats
    within: Floats


def trimmed_mean(samples: Floats, share: float = TRIMMED) -> Floats:
    """The mean over the last axis without the lowest and highest `share` of the values; NaN where there are none.

    ``floor(share n)`` values go at each end, as in `scipy.stats.trim_mean`; NaN are no values.
    """
    ordered = np.sort(samples, axis=-1)
    count = np.sum(np.isfinite(ordered), axis=-1, keepdims=True)
    cut = np.floor(share * count)
    rank = np.arange(ordered.shape[-1])
    kept = (rank >= cut) & (rank < count - cut)
    total = np.sum(ordered, axis=-1, where=kept)
    number = np.sum(kept, axis=-1)
    return np.asarray(np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0), dtype=np.float64)


def launch_ratio(base: Floats, head: Floats) -> Floats:
    """``d = TM(head) - TM(base)`` of each launch from log samples [..., samples]; above zero head is slower."""
    return trimmed_mean(head) - trimmed_mean(base)


def within_spread(base: Floats, head: Floats, *, per_block: int = 2) -> Floats:
    """``w = 1.4826 MAD`` of the differences between head and base, block by block, inside each launch.

    `per_block` samples of an arm in a row belong to one ABBA block. NaN where a launch has fewer than two blocks.
    """
    blocks = base.shape[-1] // per_block
    shape = (*base.shape[:-1], blocks, per_block)
    used = slice(0, blocks * per_block)
    differences = np.mean(head[..., used].reshape(shape) - base[..., used].reshape(shape), axis=-1)
    enough = np.sum(np.isfinite(differences), axis=-1) > 1
    centre = nan_median(differences, axis=-1)
    spread = NORMAL_MAD * nan_median(np.abs(differences - centre[..., None]), axis=-1)
    return np.where(enough, spread, np.nan)


def learn(past: Floats, within: Floats, weights: Floats) -> Learned:
    """What A/A launches taught: `past` holds their log-ratios, `within` their spreads, both [..., cases, launches].

    ``s0^2 = sum w h^2 / sum w`` (the true mean of an A/A ratio is zero) and ``nu0 = (sum w)^2 / sum w^2``, Kish's effective
    sample size (https://en.wikipedia.org/wiki/Effective_sample_size#Weighted_samples); see `forgetting` for `weights`.
    """
    share = np.where(np.isfinite(past), weights, 0.0)
    total, squares = share.sum(axis=-1), np.sum(share**2, axis=-1)
    energy = np.sum(share * np.nan_to_num(past, nan=0.0, posinf=0.0, neginf=0.0) ** 2, axis=-1)
    spread = np.sqrt(np.divide(energy, total, out=np.full(total.shape, np.nan), where=total > 0))
    freedom = np.divide(total**2, squares, out=np.zeros(total.shape), where=squares > 0)
    return Learned(spread=np.maximum(spread, LEAST_SPREAD), freedom=freedom, within=nan_median(within, axis=-1))


def forgetting(age_days: Floats, half_life_days: float = 30.0) -> Floats:
    """The weight of a launch by its age: ``2^(-age / half-life)``."""
    return np.asarray(np.exp2(-age_days / half_life_days), dtype=np.float64)


def moderated(variances: Floats, freedom: float) -> tuple[Floats, Floats]:
    """The prior that variances of many cases give each other: (sd, degrees of freedom), without the axis of cases.

    Empirical Bayes of limma (Smyth 2004, https://doi.org/10.2202/1544-6115.1027, section 6.2): with
    ``e = ln s^2 - psi(f/2) + ln(f/2)``: ``psi'(d0/2) = var(e) - psi'(f/2)`` and
    ``ln s0^2 = mean(e) + psi(d0/2) - ln(d0/2)``. Infinite d0 (no spread beyond chance) is cut at 1e6; without two cases: 0.
    """
    half = freedom / 2.0
    usable = np.isfinite(variances) & (variances > 0)
    logs = np.log(np.where(usable, variances, 1.0)) - psi(half) + np.log(half)
    count = usable.sum(axis=-1)
    mean = np.sum(logs, axis=-1, where=usable) / np.maximum(count, 1)
    squares = np.sum((logs - mean[..., None]) ** 2, axis=-1, where=usable)
    excess = squares / np.maximum(count - 1, 1) - polygamma(1, half)
    prior = np.where(excess > 0, 2.0 * trigamma_inverse(np.maximum(excess, 1e-6)), 1e6)
    prior = np.clip(prior, 1e-3, 1e6)
    spread = np.exp((mean + psi(prior / 2.0) - np.log(prior / 2.0)) / 2.0)
    return np.where(count > 1, spread, np.nan), np.where(count > 1, prior, 0.0)


def trigamma_inverse(value: Floats) -> Floats:
    """The x > 0 with ``psi'(x) = value`` (> 0), by Newton's method on ``1 / psi'`` (Smyth 2004, appendix)."""
    x = 0.5 + 1.0 / value
    for _ in range(30):
        slope = polygamma(1, x)
        x += slope * (1.0 - slope / value) / polygamma(2, x)
    return np.asarray(x, dtype=np.float64)


def inflation(d: Floats, within: Floats, learned: Learned) -> Floats:
    """How much noisier today is than what was learned: ``phi >= 1``, one for all cases [..., 1].

    The larger of two factors. First, how much samples scatter inside launches: ``median_c(median_i w_ci / w0_c)``. Second,
    from `LEAST_CASES` cases on, how much launches do, as the least of three robust scales: of first launches around zero, of
    first launches around their median, and of successive launches of one case around each other (`_launch_scale`).
    """
    launches = _launch_scale(d, learned.spread) if d.shape[-2] >= LEAST_CASES else np.ones(d.shape[:-2])
    samples = nan_median(nan_median(within, axis=-1) / learned.within, axis=-1)
    return np.fmax(np.fmax(launches, samples), 1.0)[..., None]


def _launch_scale(d: Floats, spread: Floats) -> Floats:
    """The scale of launches against the learned spread, [...]; NaN where nothing was learned or measured.

    Only the last of the three is blind to true changes, and only the first two to which cases went on; a change common to
    all cases must not pass for noise, or no gate would ever see it. So the least counts.
    """
    first = d[..., 0]
    around_zero = nan_median(np.abs(first) / spread, axis=-1)
    around_common = nan_median(np.abs(first - nan_median(first, axis=-1)[..., None]) / spread, axis=-1)
    steps = np.abs(np.diff(d, axis=-1)) / (np.sqrt(2.0) * spread[..., None])
    steps = steps.reshape(*d.shape[:-2], -1)
    enough = np.sum(np.isfinite(steps), axis=-1) >= LEAST_CASES
    around_each_other = np.where(enough, nan_median(steps, axis=-1), np.inf)
    return np.asarray(NORMAL_MAD * np.fmin(np.fmin(around_zero, around_common), around_each_other), dtype=np.float64)


def nan_median(values: Floats, axis: int) -> Floats:
    """`numpy.nanmedian` without its warning, and several times as fast: NaN sort to the end; NaN where there is nothing."""
    ordered = np.sort(np.moveaxis(values, axis, -1), axis=-1)
    if not ordered.shape[-1]:
        return np.full(ordered.shape[:-1], np.nan)
    count = np.sum(~np.isnan(ordered), axis=-1, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=-1)
    high = np.take_along_axis(ordered, np.minimum(count // 2, ordered.shape[-1] - 1), axis=-1)
    return np.asarray(((low + high) / 2.0)[..., 0], dtype=np.float64)
