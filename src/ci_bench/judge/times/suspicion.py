"""Assessment of an undecided change: suspected, possible, or nothing. Pure.

Owns the prior for how far launches of unchanged code differ on an uncalibrated machine, and the two
bounds beyond which an undecided change for the worse is reported. `sequential` and `screening`
decide changes.

Ratios are natural logarithms of head over base, turned so that above zero head is worse.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ci_bench.judge.times.noise import FEW_EXCURSIONS, Floats, nan_median
from ci_bench.judge.times.sequential import Code, Counts, Ruling, Truths
from ci_bench.judge.times.strays import by_chance
from ci_bench.statistics.special_functions import stdtrit

ALPHA = 0.0025
"""The chance, over all gating metrics of a run of unchanged code, that any is suspected.

It comes on top of `Rule.alpha`: the two bounds add up to 1.25 %. How often unchanged code is called
either in simulated runs, `python -m benchmarks.suspicion_quality` says.
"""

POSSIBLE_ERRORS = 2.0
"""A change for the worse of this many standard errors, beyond the threshold, is reported."""

RECURRENCE = 0.99
"""The level at which a suspicion must hold without the launches that may have strayed."""

DISTANT_LAUNCHES, DISTANT_ALPHA = 3, 0.025
"""Launches that have to be far off by themselves, and the chance that noise of any size moves a
mean so far, over all gating metrics.
"""


SCATTER_LEAST, SCATTER_TIMES = 0.1, 4.0
"""Limits beyond which head scatters widely.

They are a standard deviation as a share of the time, and a multiple of base's.
"""


class NoiseSource(IntEnum):
    """Source of a metric's samples, which decides how far launches of unchanged code differ."""

    TURNS = 0
    """Both sides resident, in turns."""
    RUNS = 1
    """One run of each side after the other in a launch: a command that measures itself, a peak of
    memory.
    """
    COMPILATION = 2
    """One compilation of each side in a launch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """Standard deviation of a launch's log-ratio for unchanged code, worth `freedom` launches."""

    spread: float
    freedom: float


PRIORS = {
    NoiseSource.TURNS: Prior(spread=0.03, freedom=4.0),
    NoiseSource.RUNS: Prior(spread=0.06, freedom=4.0),
    NoiseSource.COMPILATION: Prior(spread=0.06, freedom=6.0),
}
"""Estimates, not measurements: `python -m benchmarks.launch_spread` compares them with a machine.

Few degrees of freedom give the heavy tail that a mixture of machines has.
"""


class Suspicion(IntEnum):
    """Level of suspicion of an undecided change for the worse."""

    NONE = 0
    POSSIBLE = 1
    """Beyond the threshold and two standard errors: a warning."""
    SUSPECTED = 2
    """Beyond what noise explains at `ALPHA`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Undecided:
    """Launches of cases whose changes may be undecided; [..., cases] if nothing else is given."""

    d: Floats
    """Log-ratio of each launch, NaN if it did not run: [..., cases, launches]."""
    within: Floats
    """Spread inside each launch, NaN if unknown: [..., cases, launches]."""
    tau: Floats
    """Smallest change that counts."""
    source: Counts
    """`NoiseSource` of each case."""
    gating: Truths
    """True if the case can fail the run."""
    excursions: Floats | float = FEW_EXCURSIONS
    """Learned share of outlier launches; a larger share today (`Ruling.excursions`) counts."""


def suspicions(cases: Undecided, ruling: Ruling) -> Counts:
    """Return a `Suspicion` for each case; `NONE` if it is decided, not gating, or not worse.

    The error is that of `sequential` where it has one. If too few launches show how noisy a case
    is, the prior of its kind replaces a history: ``s^2 = (nu0 s0^2 + S) / (nu0 + r - 1)``, as in
    `sequential.replay`; and a single launch, which may have strayed, is trusted no more than the
    prior is. Suspected: ``m > max(tau, t(1 - ALPHA / N, nu) s / sqrt(r))`` over N gating cases, and
    of two or more launches the others still say so without as many as may have strayed by chance,
    as in `sequential`, or each of them is beyond what the prior explains. A single compilation is
    never suspected: no prior describes well enough how far two compilations of the same code
    differ.

    Without a history of a case's noise, a few launches of a large change that scatter widely leave
    hardly any degrees of freedom: five that are 20 to 90 times as long do not pass that limit. Such
    a change is suspected if all launches but one, and three at least, are each beyond what the
    prior explains, and ``m > t(1 - DISTANT_ALPHA / N, nu) s / sqrt(r)``.
    """
    evidence = _evidence(cases, ruling)
    _, mean, error, freedom = evidence
    candidates = cases.gating & (ruling.code == Code.OPEN) & (mean > cases.tau)
    chance = ALPHA / np.maximum(cases.gating.sum(axis=-1, keepdims=True), 1)
    limit = quantile(1 - chance, freedom) * error
    recurs = _recurs(cases, np.fmax(cases.excursions, ruling.excursions), evidence, chance)
    repeated = (cases.source != NoiseSource.COMPILATION) | (evidence[0] > 1)
    suspected = (
        candidates
        & repeated
        & (((mean > limit) & recurs) | (~ruling.calibrated & _are_distant(cases, evidence, chance)))
    )
    possible = candidates & (mean > POSSIBLE_ERRORS * error)
    return np.where(
        suspected, Suspicion.SUSPECTED, np.where(possible, Suspicion.POSSIBLE, Suspicion.NONE)
    ).astype(np.intp)


def wider_scatter(base: Floats, head: Floats, gating: Truths) -> Floats:
    """Return how many times as widely as base's the launches of head scatter; NaN if not certain.

    `base` and `head` are logarithms of what launches took [cases, launches], NaN for none. Pitman's
    and Morgan's test of two variances of paired values (Biometrika 31, 1939): ``h + b`` and ``h -
    b`` correlate where head's is the larger one. It has to hold at `ALPHA` over all gating cases
    without head's launch that is furthest out, which may have strayed.
    """
    there = np.isfinite(base) & np.isfinite(head)
    b, h = np.where(there, base, np.nan), np.where(there, head, np.nan)
    used = there & ~_furthest(h)
    count = used.sum(axis=-1)
    chance = ALPHA / max(int(gating.sum()), 1)
    with np.errstate(all="ignore"):
        head_spread, base_spread = _spread(h, used), np.fmax(_spread(b, used), _spread(b, there))
        both = np.where(used, h + b, np.nan), np.where(used, h - b, np.nan)
        r = _correlation(*both, count)
        t = r * np.sqrt((count - 2) / np.maximum(1 - r**2, np.finfo(np.float64).tiny))
        sure = gating & (count > 2) & (t > quantile(np.full(count.shape, 1 - chance), count - 2.0))  # noqa: PLR2004 - of a correlation
        return np.where(
            sure & (head_spread > np.maximum(SCATTER_LEAST, SCATTER_TIMES * base_spread)),
            head_spread / base_spread,
            np.nan,
        )


def _furthest(values: Floats) -> Truths:
    """Mark the value of each row that is furthest from its median; none in a row without values."""
    distance = np.where(
        np.isfinite(values), np.abs(values - nan_median(values, axis=-1)[..., None]), -1.0
    )
    return np.asarray(
        (np.arange(values.shape[-1]) == distance.argmax(axis=-1)[..., None]) & (distance >= 0),
        dtype=np.bool_,
    )


def _spread(values: Floats, used: Truths) -> Floats:
    """Return the standard deviation of the `used` values of each row."""
    count = used.sum(axis=-1)
    mean = np.sum(values, axis=-1, where=used) / count
    return np.asarray(
        np.sqrt(np.sum((values - mean[..., None]) ** 2, axis=-1, where=used) / (count - 1)),
        dtype=np.float64,
    )


def _correlation(first: Floats, second: Floats, count: Counts) -> Floats:
    used = np.isfinite(first)
    x, y = (
        values - (np.sum(values, axis=-1, where=used) / count)[..., None]
        for values in (first, second)
    )
    product, squares = (
        np.sum(x * y, axis=-1, where=used),
        np.sum(x**2, axis=-1, where=used) * np.sum(y**2, axis=-1, where=used),
    )
    return np.asarray(product / np.sqrt(squares), dtype=np.float64)


def suspicion_of_one(
    log_ratio: float, tau: float, source: NoiseSource, *, gating: int
) -> Suspicion:
    """Return the same for one launch on either side of two runs, from only their prior."""
    prior = PRIORS[source]
    error = prior.spread * np.sqrt(2.0)
    limit = float(quantile(1 - ALPHA / max(1, gating), np.asarray(prior.freedom)) * error)
    if log_ratio > tau + limit and source is not NoiseSource.COMPILATION:
        return Suspicion.SUSPECTED
    return Suspicion.POSSIBLE if log_ratio > tau + POSSIBLE_ERRORS * error else Suspicion.NONE


def quantile(level: Floats | float, freedom: Floats) -> Floats:
    """Return Student's t quantile; NaN if the degrees of freedom are unknown."""
    return np.asarray(stdtrit(np.maximum(freedom, 1.0), level), dtype=np.float64)


def _evidence(cases: Undecided, ruling: Ruling) -> tuple[Counts, Floats, Floats, Floats]:
    """Return launches, mean, standard error and degrees of freedom of the ruling, or the prior."""
    there = np.isfinite(cases.d)
    count = there.sum(axis=-1)
    mean = np.divide(
        np.sum(cases.d, axis=-1, where=there),
        count,
        out=np.full(count.shape, np.nan),
        where=count > 0,
    )
    squares = np.sum((cases.d - mean[..., None]) ** 2, axis=-1, where=there)
    spread, freedom = _prior(cases)
    total = freedom + np.maximum(count - 1, 0)
    assumed = np.sqrt((freedom * spread**2 + squares) / total) / np.sqrt(np.maximum(count, 1))
    estimated = np.isfinite(ruling.error) & ((count > 1) | (ruling.error > assumed))
    return (
        count,
        np.where(estimated, ruling.mean, mean),
        np.where(estimated, ruling.error, assumed),
        np.where(estimated, ruling.freedom, total),
    )


def _prior(cases: Undecided) -> tuple[Floats, Floats]:
    """Return the prior of each case.

    A case that scatters more than that inside its launches is assumed to do so between them.
    """
    kinds = [PRIORS[source] for source in NoiseSource]
    spread = np.array([prior.spread for prior in kinds])[cases.source]
    inside = np.nanmax(np.where(np.isfinite(cases.within), cases.within, 0.0), axis=-1, initial=0.0)
    return np.maximum(spread, inside), np.array([prior.freedom for prior in kinds])[cases.source]


def _recurs(
    cases: Undecided, share: Floats, evidence: tuple[Counts, Floats, Floats, Floats], chance: Floats
) -> Truths:
    """Return whether the change shows without likely outliers, or each launch exceeds any outlier.

    How far that is, the prior says. One launch has no other to ask.
    """
    count, _, error, freedom = evidence
    strayed = by_chance(count, share, np.broadcast_to(chance, count.shape))
    others = count - strayed
    ordered = np.sort(np.where(np.isfinite(cases.d), cases.d, np.inf), axis=-1)
    remaining = np.arange(cases.d.shape[-1]) < others[..., None]
    rest = np.sum(ordered, axis=-1, where=remaining) / np.maximum(others, 1)
    wider = error * np.sqrt(np.maximum(count, 1) / np.maximum(others, 1))
    is_far = ordered[..., 0] > _far(cases, chance)
    return np.asarray(
        (count == 1) | is_far | (rest > quantile(RECURRENCE, freedom) * wider), dtype=np.bool_
    )


def _far(cases: Undecided, chance: Floats) -> Floats:
    """Return the largest deviation of one launch of unchanged code, by the prior."""
    spread, freedom = _prior(cases)
    return quantile(1 - chance, freedom) * spread


def _are_distant(
    cases: Undecided, evidence: tuple[Counts, Floats, Floats, Floats], chance: Floats
) -> Truths:
    """Return whether all launches but one exceed any outlier, and their mean certainly changed."""
    count, mean, error, freedom = evidence
    far = np.sum(np.isfinite(cases.d) & (cases.d > _far(cases, chance)[..., None]), axis=-1)
    certain = mean > quantile(1 - chance * (DISTANT_ALPHA / ALPHA), freedom) * error
    return np.asarray((far >= np.maximum(count - 1, DISTANT_LAUNCHES)) & certain, dtype=np.bool_)
