"""A history-pooled t test at planned looks, which decides launch by launch which cases got slower.

Owns the rule's parameters, its decision and its answers. How many launches may have strayed comes
from `strays`; ratios, spreads and what was learned come from `noise`. Pure: `replay` sees all
launches run so far and gives the same answer whenever it is asked, live after each round or later
from the document.

Arrays are [..., cases, launches]; NaN stands for a launch that wasn't run. Ratios are natural
logarithms of head over base, in seconds: above zero head is slower.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ci_bench.judge.times.devices import DeviceLayout, Slots, between, layout, least_without_one
from ci_bench.judge.times.noise import (
    LEAST_HISTORY,
    LEAST_SPREAD,
    MOST_BOUND,
    MOST_HISTORY,
    Floats,
    Learned,
    inflation,
    moderated,
    nan_median,
    worth_today,
)
from ci_bench.judge.times.shifts import without_shifts
from ci_bench.judge.times.strays import by_chance, least_launches, today
from ci_bench.records.config import DEFAULT_THRESHOLD, RunOptions, Sampling
from ci_bench.statistics.special_functions import ndtri, stdtrit

Codes = NDArray[np.int8]
Counts = NDArray[np.intp]
Truths = NDArray[np.bool_]

POWER = 0.9
"""The chance with which an effect of the size `Ruling.resolvable` would be found."""

TAU, MARGIN = math.log1p(DEFAULT_THRESHOLD), math.log1p(2 * DEFAULT_THRESHOLD)
"""The smallest change that is flagged, and the smallest that must not be called unchanged, unless a
case has its own.
"""

COLD_LAUNCHES = 5
"""Launches from which on a case without a history may be called changed."""

COLD_UNCHANGED = 2
"""Launches from which on it may be called unchanged."""

COLD_SPREAD, COLD_FREEDOM = 0.007, 2
"""Usual spread of unchanged code, and its weight: it only helps to call a case unchanged early."""

COLD_SHARE = 0.5
"""The same as a share of the spread inside a launch, if that is more.

The median of six workloads on a CPU (0.3 to 2; 0.2 to 0.4 if both sides use the same addresses).
"""


LIKE_ONE_LOOK = 0.22
"""Looks at a growing mean are much alike: of up to eight between 1 and 16 launches, each may have
this share of a level (Pocock 1977, https://doi.org/10.1093/biomet/64.2.191, with looks at 1, 2, 3,
4, 6, 8, 12 and 16).
"""


class Code(IntEnum):
    """Decision on one case; a case that is still `OPEN` after its last look is inconclusive."""

    IMPROVED = -1
    OPEN = 0
    REGRESSED = 1
    UNCHANGED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class SequentialRule:
    """Parameters of the decision; changes are natural logarithms of ratios.

    Most of `alpha` is spent late: regressions are rare, so waiting costs little, and late looks
    find more for the same share.

    From `patience` launches on, a case continues only while unchanged can still be reached by
    `regular` launches, or while its mean is `suspect` standard errors from zero; beyond `regular`
    only if it is `suspect_late`. Giving up early can only lower the chance of a false alarm, and
    the launches that it saves pay for looks beyond `regular` at the few cases that look changed.

    Raises:
        ValueError: shares that don't fit the looks, looks out of order, or a verdict from one
            launch of an unknown machine.
    """

    alpha: float = 0.01
    """Largest chance that any gating case of a run without change is called regressed."""
    beta: float = 0.05
    """Largest chance that a change of `margin` is called unchanged, in equal shares over looks."""
    looks: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)
    """Numbers of launches after which cases are judged."""
    alpha_shares: tuple[float, ...] = (0.0, 0.01, 0.02, 0.04, 0.08, 0.2, 0.25, 0.4)
    """Share of `alpha` that each look spends."""
    tau: Floats | float = TAU
    """Smallest change that is flagged: one figure, or one for each case [..., cases]."""
    margin: Floats | float = MARGIN
    """Smallest change that must not be called unchanged: one figure, or one for each case."""
    gating: int | None = None
    """Number of cases that share `alpha`; `None` if it is all of them."""
    recurrence: float = 0.9995
    """Level at which a change must show without its most extreme launch."""
    confirmation: float = 0.99
    """Level at which it must show without as many launches as may be outliers by chance."""
    level: float = 0.95
    """Nominal level of the intervals of `Ruling`."""
    cold_launches: int = COLD_LAUNCHES
    """Launches from which on a case without a history may be called changed."""
    cold_unchanged: int = COLD_UNCHANGED
    """Launches from which on a case without a history may be called unchanged."""
    patience: int = 4
    """Launches from which on an open case may be given up."""
    regular: int = 8
    """Launches from which on only cases that look changed continue."""
    suspect: float = 1.5
    """Standard errors from zero beyond which a case continues up to `regular` launches."""
    suspect_late: float = 2.5
    """Standard errors from zero beyond which a case continues after them."""

    def __post_init__(self) -> None:
        """Refuse parameters under which `alpha` would not bound the false alarms."""
        if (
            len(self.alpha_shares) != len(self.looks)
            or min(self.alpha_shares) < 0
            or sum(self.alpha_shares) > 1 + 1e-9
        ):
            raise ValueError(
                "alpha_shares needs a share of at least 0 for each look, and a sum of at most 1"
            )
        if sorted(set(self.looks)) != list(self.looks) or self.looks[0] < 1:
            raise ValueError("looks must be launch counts in rising order")
        if min(self.cold_launches, self.cold_unchanged) <= 1:
            raise ValueError(
                "cold_launches and cold_unchanged must be at least 2: one launch says nothing of"
                " noise"
            )

    @property
    def beta_of_a_look(self) -> float:
        """Return the share of `beta` that each look has, the same for all: see `LIKE_ONE_LOOK`."""
        return self.beta * max(1 / len(self.looks), LIKE_ONE_LOOK)


def fixed(launches: int) -> SequentialRule:
    """Return the rule for a fixed number of launches: one look, which has all of alpha and beta."""
    return SequentialRule(looks=(launches,), alpha_shares=(1.0,), cold_launches=_cold(launches))


def adaptive(most: int) -> SequentialRule:
    """Return the rule for as many launches as needed, up to `most`.

    It has the looks up to there; the last one spends the remaining alpha.
    """
    full = SequentialRule()
    if most >= full.looks[-1]:
        return full
    early = [
        (look, share)
        for look, share in zip(full.looks, full.alpha_shares, strict=True)
        if look < most
    ]
    looks, shares = (*(look for look, _ in early), most), tuple(share for _, share in early)
    return replace(
        full, looks=looks, alpha_shares=(*shares, 1.0 - sum(shares)), cold_launches=_cold(most)
    )


def _cold(most: int) -> int:
    """Return the launches for a verdict without a history: at least 2, as one shows no noise."""
    return max(2, min(most, COLD_LAUNCHES))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruling:
    """Estimates of each case at its decision, or so far: all [..., cases], NaN if unknown."""

    code: Codes
    """Decision (`Code`)."""
    mean: Floats
    """Mean log-ratio."""
    error: Floats
    """Standard error of the mean."""
    freedom: Floats
    """Degrees of freedom of the error."""
    low: Floats
    """Lower end of the mean's interval, of nominal level at the look where the case stopped."""
    high: Floats
    """Upper end of that interval."""
    resolvable: Floats
    """Change that would be found with `POWER`."""
    needed: Floats
    """Total launches to find a change of `margin` with `POWER`; infinite if no number would do."""
    launches: Counts
    """Launches that were used."""
    next_look: Counts
    """Launches to have before asking again; 0 if the case is decided or given up."""
    excursions: Floats
    """Share of outlier launches, learned or of today."""
    inflation: Floats
    """Today's noise relative to the history (`noise.inflation`)."""
    calibrated: Truths
    """True if the case has a history."""


_MOST_FREEDOM = 2000.0
_GRAIN = 8.0
_LEAST_EXCURSIONS = 1e-6
_LARGEST = 20.0
"""A log-ratio beyond this (a factor of 5e8) is a fault of the document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    """Arrays that the looks fill in, [..., cases]; unknown figures are NaN."""

    code: Codes
    """Decision so far."""
    active: Truths
    """True while the case continues."""
    stop: Counts
    """Columns of launches up to the last look at the case."""
    mean: Floats
    """Mean log-ratio at that look."""
    spread: Floats
    """Standard deviation of one launch."""
    freedom: Floats
    """Degrees of freedom of the spread."""
    count: Counts
    """Launches that ran."""
    bound: Floats
    """Share of a launch's variance that all launches of the run share."""
    apart: Floats
    """Variance of the mean due to devices, relative to that of a launch."""
    excursions: Floats
    """Share of outlier launches."""
    inflation: Floats
    """Today's noise relative to the history."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Evidence:
    """Figures of cases at one look, each [cases]."""

    mean: Floats
    """Mean log-ratio of the launches."""
    spread: Floats
    """Standard deviation of one launch, pooled with the history."""
    freedom: Floats
    """Degrees of freedom of the spread."""
    count: Counts
    """Launches that ran."""
    bound: Floats
    """Share of a launch's variance that all launches of the run share (`Learned.bound`)."""
    apart: Floats
    """Variance of the mean due to devices, relative to that of a launch; 0 with one device."""
    excursions: Floats
    """Share of outlier launches, the larger of the learned one and today's."""
    early: Truths
    """True if too little is known to call the case changed."""
    left: Floats
    """Mean, in its own direction, without the device that shows most of it; NaN with one device."""
    others: Floats
    """Launches on the other devices; 0 with one device."""
    more: Floats
    """Degrees of freedom that a history is worth in addition for calling the case unchanged."""
    grid: Floats
    """Largest effect on a mean of rounding to the grid of a clock; 0 without one."""

    def error(self, launches: Counts | Floats | int) -> Floats:
        """Return the standard error of a mean: ``s sqrt((1 - bound) / r + bound + apart)``."""
        return np.asarray(
            self.spread * np.sqrt((1 - self.bound) / launches + self.bound + self.apart),
            dtype=np.float64,
        )

    def only(self, which: Truths) -> "_Evidence":
        """Return the figures of some of the cases."""
        return _Evidence(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def without_spread(self, which: Truths) -> "_Evidence":
        """Return the same evidence, with the spread of some of the cases unknown."""
        spread, freedom = (
            np.where(which, np.nan, self.spread),
            np.where(which, np.nan, self.freedom),
        )
        return replace(self, spread=spread, freedom=freedom)


def replay(
    d: Floats, within: Floats, learned: Learned, rule: SequentialRule, *, slots: Slots | None = None
) -> Ruling:
    """Decide each case at the first possible look, from the launches [..., cases, launches] so far.

    Steps (`m` mean and `S` squared deviations of the r launches so far, `phi` from
    `noise.inflation`): ``v = (nu0 (s0^2 - b^2) phi^2 + S) / (nu0 + r - 1)``, ``nu = nu0 + r - 1``,
    ``se^2 = v / r + b^2``, where b is the sd of what launches of one run have in common (mostly 0).
    Suspicious: ``|m| > max(tau, t(a, nu) se)`` at the level ``a = 1 - alpha share / N``. Regressed
    (or improved): suspicious, and the other launches still say so without the most extreme,
    ``m' > t(recurrence, nu) se'``, and without the k most extreme,
    ``m' > t(confirmation, nu) se'``. k is how many of r launches may have strayed to one side by
    chance: the least k >= 1 with ``P(Bin(r, pi / 2) > k) <= 1 - a``, and pi the share that strays
    (the larger of `Learned.excursions` and `today`). Unchanged: not suspicious and
    ``|m| + t(1 - beta / looks, nu) se < margin``. Else open. The history counts as nu0 more
    observations of the spread (Smyth 2004, https://doi.org/10.2202/1544-6115.1027), `MOST_HISTORY`
    at most; the shares of alpha are Bonferroni over looks and cases, valid under any dependence
    between them. If launches were taken on several devices (`slots`, a small number for each
    launch), the variance of the mean is larger by ``k s^2 sum n_j^2 / r^2`` (`devices.between`),
    and what is called changed must show without any single device, at the level `confirmation`. If
    a launch shifted most cases (`shifts`), both words must hold without that shift as well. Ask
    when a look is complete, or when nothing more will run; a case without a usable launch stays
    open, and so does one whose spread is unknown.
    """
    usable, within, learned = _plausible(d), _plausible(within), _floored(learned)
    state, gating = _start(usable.shape[:-1]), rule.gating or usable.shape[-2]
    for number, look in enumerate(rule.looks):
        going = _going(usable, state, rule.looks, number)
        if not going.any():
            continue
        state.stop[going] = look
        visible = np.arange(usable.shape[-1])[:look] < state.stop[..., None]
        masked = np.where(visible, usable[..., :look], np.nan)
        inside = np.where(visible, within[..., :look], np.nan)
        factor = inflation(masked, inside, learned)
        usual = np.fmax(COLD_SHARE * nan_median(inside, axis=-1), COLD_SPREAD)
        evidence = _weigh(
            masked, going, factor, learned, rule, usual=usual, lying=_laid(masked, slots, look)
        )
        active_rule = replace(rule, tau=_of(rule.tau, going), margin=_of(rule.margin, going))
        codes = _decide(masked[going], evidence, active_rule, number, gating)
        rest = without_shifts(masked, rule.tau, rule.alpha * rule.alpha_shares[number])
        if rest is not None:
            alone = replace(evidence, mean=_moments(rest)[1][going])
            codes = np.where(
                codes == _decide(rest[going], alone, active_rule, number, gating), codes, Code.OPEN
            ).astype(np.int8)
        state.code[going] = codes
        evidence = evidence.without_spread(evidence.early & (codes == Code.OPEN))
        _record(state, going, evidence, np.broadcast_to(factor, going.shape)[going])
        state.active[going] = (state.code[going] == Code.OPEN) & _worthwhile(
            evidence, active_rule, look
        )
    return _ruling(state, usable, learned, rule)


def _laid(d: Floats, slots: Slots | None, look: int) -> DeviceLayout | None:
    return None if slots is None else layout(d, slots[..., :look])


def resolvable(learned: Learned, launches: int, rule: SequentialRule) -> Floats:
    """Return the change that `launches` launches detect with `POWER`: [..., cases].

    NaN if uncalibrated.

    With the largest share of alpha that any look has.
    """
    learned = _floored(learned)
    freedom = np.where(
        _is_calibrated(learned), np.minimum(learned.freedom, MOST_HISTORY) + launches - 1, np.nan
    )
    reach = _reach(freedom, rule, rule.gating or freedom.shape[-1]) * learned.spread
    share = (learned.bound / learned.spread) ** 2
    share = np.minimum(share, MOST_BOUND)
    shrinking = np.asarray(np.sqrt((1 - share) / launches + share), dtype=np.float64)
    return np.asarray(np.maximum(reach * shrinking, rule.tau), dtype=np.float64)


def _reach(freedom: Floats, rule: SequentialRule, gating: int) -> Floats:
    """Return the change, in standard errors, found with `POWER` at the look with most of alpha."""
    return _quantile(1 - rule.alpha * max(rule.alpha_shares) / gating, freedom) + float(
        ndtri(POWER)
    )


def _plausible(values: Floats) -> Floats:
    """Replace values that no measurement gives by NaN."""
    return np.where(np.abs(values) < _LARGEST, values, np.nan)


def _floored(learned: Learned) -> Learned:
    """Limit spreads to what a clock resolves, and histories to `_MOST_FREEDOM`."""
    return Learned(
        spread=np.maximum(_plausible(learned.spread), LEAST_SPREAD),
        freedom=np.minimum(learned.freedom, _MOST_FREEDOM),
        within=np.maximum(_plausible(learned.within), LEAST_SPREAD),
        bound=np.maximum(_plausible(np.asarray(learned.bound, dtype=np.float64)), 0.0),
        grid=learned.grid,
        excursions=np.clip(learned.excursions, _LEAST_EXCURSIONS, 1.0),
    )


def _start(shape: tuple[int, ...]) -> _State:
    def unknown() -> Floats:
        return np.full(shape, np.nan)

    return _State(
        code=np.zeros(shape, dtype=np.int8),
        active=np.ones(shape, dtype=np.bool_),
        stop=np.zeros(shape, dtype=np.intp),
        mean=unknown(),
        spread=unknown(),
        freedom=unknown(),
        count=np.zeros(shape, dtype=np.intp),
        bound=np.zeros(shape),
        apart=np.zeros(shape),
        excursions=unknown(),
        inflation=unknown(),
    )


def _of(figure: Floats | float, going: Truths) -> Floats:
    """Select the figure of each continuing case, if every case may have its own."""
    return np.asarray(np.broadcast_to(figure, going.shape)[going], dtype=np.float64)


def _going(d: Floats, state: _State, looks: tuple[int, ...], number: int) -> Truths:
    """Return the active cases with a launch since the previous look."""
    before = looks[number - 1] if number else 0
    fresh = np.isfinite(d[..., before : looks[number]]).any(axis=-1)
    return np.asarray(fresh & state.active, dtype=np.bool_)


def _weigh(
    d: Floats,
    going: Truths,
    factor: Floats,
    learned: Learned,
    rule: SequentialRule,
    *,
    usual: Floats,
    lying: DeviceLayout | None,
) -> _Evidence:
    """Return mean and pooled spread of continuing cases; those without a history share a prior.

    To call one of these unchanged early, `usual` is taken for what its launches differ by as well.
    """
    count, mean, squares = _moments(d)
    common = np.broadcast_to(np.asarray(learned.bound, dtype=np.float64) ** 2, count.shape)
    calibrated = _is_calibrated(learned)
    usually = (
        np.maximum(learned.spread**2 - common, (1 - MOST_BOUND) * learned.spread**2) * factor**2
    )
    freedom, more = worth_today(
        squares,
        count,
        np.where(calibrated, usually, np.nan),
        np.where(calibrated, learned.freedom, np.nan),
    )
    energy = np.where(calibrated, freedom * usually, np.nan)
    cold = ~calibrated & (count >= rule.cold_launches)
    early = ~calibrated & (count >= rule.cold_unchanged) & (count < rule.cold_launches)
    for which, worth in ((cold, 0.0), (early, COLD_FREEDOM)):
        if which.any():
            spread, equivalent = moderated(
                np.where(which, squares / np.maximum(count - 1, 1), np.nan), np.subtract(count, 1.0)
            )
            shared = np.where(equivalent > 0, equivalent * spread**2, 0.0)
            freedom = np.where(which, equivalent[..., None] + worth, freedom)
            energy = np.where(which, shared[..., None] + worth * usual**2, energy)
    total = freedom + np.maximum(count - 1, 0)
    energy = energy + squares
    within_run = np.maximum(energy / total, LEAST_SPREAD**2)
    pooled, bound = np.sqrt(within_run + common), common / (within_run + common)
    strayed = np.maximum(learned.excursions, today(d, learned.spread * factor))
    strayed = np.broadcast_to(strayed, count.shape)
    between_devices, reduced_mean, others = _device_effects(lying, pooled, count)
    every = _Evidence(
        mean=mean,
        spread=pooled,
        freedom=total,
        count=count,
        bound=bound,
        apart=between_devices,
        excursions=strayed,
        early=early,
        left=reduced_mean,
        others=others,
        grid=np.broadcast_to(np.asarray(learned.grid, dtype=np.float64), count.shape),
        more=more,
    )
    return every.only(going)


def _device_effects(
    lying: DeviceLayout | None, spread: Floats, count: Counts
) -> tuple[Floats, Floats, Floats]:
    """Return `apart`, `left` and `others` of `_Evidence`; `lying` is `None` with one device."""
    if lying is None:
        return np.zeros(count.shape), np.full(count.shape, np.nan), np.zeros(count.shape)
    return between(lying, spread) * lying.concentration, *least_without_one(lying)


def _moments(d: Floats) -> tuple[Counts, Floats, Floats]:
    """Return number, mean and sum of squared deviations of the launches."""
    there = np.isfinite(d)
    count = there.sum(axis=-1)
    mean = np.divide(
        np.sum(d, axis=-1, where=there), count, out=np.full(count.shape, np.nan), where=count > 0
    )
    return count, mean, np.sum((d - mean[..., None]) ** 2, axis=-1, where=there)


def _is_calibrated(learned: Learned) -> Truths:
    return np.isfinite(learned.spread) & (learned.freedom >= LEAST_HISTORY)


def _record(state: _State, going: Truths, evidence: _Evidence, factor: Floats) -> None:
    state.mean[going] = evidence.mean
    state.spread[going] = evidence.spread
    state.freedom[going] = evidence.freedom
    state.count[going] = evidence.count
    state.bound[going] = evidence.bound
    state.apart[going] = evidence.apart
    state.excursions[going] = evidence.excursions
    state.inflation[going] = factor


def _decide(
    d: Floats, evidence: _Evidence, rule: SequentialRule, number: int, gating: int
) -> Codes:
    """Return the codes of cases [cases] at look `number`; NaN leaves its case open."""
    size, error = np.abs(evidence.mean), evidence.error(evidence.count)
    chance = rule.alpha * rule.alpha_shares[number] / gating
    strict = _quantile(1 - chance, evidence.freedom)
    lenient = _quantile(1 - rule.beta_of_a_look, evidence.freedom + evidence.more)
    suspicious = (size - evidence.grid > strict * error) & (size > rule.tau)
    changed = suspicious & ~evidence.early
    changed[changed] = _recurs(d[changed], evidence.only(changed), rule, chance)
    unchanged = ~suspicious & (size + evidence.grid + lenient * error < rule.margin)
    return np.where(
        changed, np.sign(evidence.mean), np.where(unchanged, Code.UNCHANGED, Code.OPEN)
    ).astype(np.int8)


def _worthwhile(evidence: _Evidence, rule: SequentialRule, look: int) -> Truths:
    """Return whether more launches may decide an open case; always true without a spread."""
    if look < rule.patience:
        return np.ones(evidence.mean.shape, dtype=np.bool_)
    error = evidence.error(evidence.count)
    distance = rule.suspect if look < rule.regular else rule.suspect_late
    suspect = np.abs(evidence.mean) > distance * error
    lenient = _quantile(1 - rule.beta_of_a_look, evidence.freedom + evidence.more)
    reachable = (look < rule.regular) & (lenient * evidence.error(rule.regular) < rule.margin)
    return np.asarray(suspect | reachable | ~np.isfinite(error), dtype=np.bool_)


def _recurs(d: Floats, evidence: _Evidence, rule: SequentialRule, chance: float) -> Truths:
    """Return whether launches show the change without the most extreme one: a change recurs.

    Without one of them, without as many as may have strayed by chance, and without any single
    device where there are several.
    """
    ordered = np.sort(
        np.where(np.isfinite(d), d * np.sign(evidence.mean)[:, None], np.inf), axis=-1
    )
    strayed = by_chance(evidence.count, evidence.excursions, chance)
    elsewhere = evidence.left > _quantile(rule.confirmation, evidence.freedom) * evidence.error(
        np.maximum(evidence.others, 1.0)
    )
    return (
        _without(ordered, evidence, np.ones_like(strayed), rule.recurrence)
        & _without(ordered, evidence, strayed, rule.confirmation)
        & (elsewhere | np.isnan(evidence.left))
    )


def _without(ordered: Floats, evidence: _Evidence, dropped: Counts, level: float) -> Truths:
    """Return whether rising launches, without the last `dropped`, exceed their error at `level`."""
    others = evidence.count - dropped
    divisor = np.maximum(others, 1)
    rest = np.sum(ordered, axis=-1, where=np.arange(ordered.shape[-1]) < others[:, None]) / divisor
    limit = _quantile(level, evidence.freedom) * evidence.error(divisor)
    return np.asarray((others > 0) & (rest - evidence.grid > limit), dtype=np.bool_)


def _quantile(level: float, freedom: Floats) -> Floats:
    """Return Student's t quantile, with freedom rounded down to eighths to share it among cases."""
    grid = np.floor(np.minimum(freedom, _MOST_FREEDOM) * _GRAIN)
    distinct, place = np.unique(grid, return_inverse=True)
    return np.asarray(
        stdtrit(np.maximum(distinct / _GRAIN, 1.0), level)[place].reshape(freedom.shape),
        dtype=np.float64,
    )


def _ruling(state: _State, d: Floats, learned: Learned, rule: SequentialRule) -> Ruling:
    common = state.bound + state.apart
    shrinking = (1 - state.bound) / np.maximum(state.count, 1) + common
    error = np.hypot(state.spread * np.sqrt(shrinking), learned.grid / math.sqrt(6))
    half = _quantile((1 + rule.level) / 2, state.freedom) * error
    gating = rule.gating or d.shape[-2]
    reach = _reach(state.freedom, rule, gating) * state.spread
    least = least_launches(state.excursions, rule.alpha * max(rule.alpha_shares) / gating)
    return Ruling(
        code=state.code,
        mean=state.mean,
        error=error,
        freedom=state.freedom,
        low=state.mean - half,
        high=state.mean + half,
        resolvable=np.maximum(reach * np.sqrt(shrinking), rule.tau),
        needed=_needed(reach, state.bound, common, rule.margin, least),
        launches=state.count,
        next_look=_next_look(state, rule.looks),
        excursions=state.excursions,
        inflation=state.inflation,
        calibrated=_is_calibrated(learned),
    )


def _needed(
    reach: Floats, bound: Floats, common: Floats, margin: Floats | float, least: Floats
) -> Floats:
    """Return the least r >= `least` with ``reach sqrt((1 - b) / r + c) <= margin``, or infinity.

    `common` is what more launches on the same devices don't average away: b, and what devices add.
    """
    allowance = (margin / reach) ** 2 - common
    launches = np.divide(
        1 - bound, allowance, out=np.full(allowance.shape, np.inf), where=allowance > 0
    )
    return np.where(np.isnan(reach), np.nan, np.maximum(np.ceil(launches), least))


def _next_look(state: _State, looks: tuple[int, ...]) -> Counts:
    following = dict(_steps(looks))
    due = (
        np.vectorize(following.__getitem__, otypes=[np.intp])(state.stop)
        if state.stop.size
        else state.stop
    )
    return np.where(state.active, due, 0)


def _steps(looks: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield each number of launches with the look after it; 0 after the last."""
    yield from zip((0, *looks), (*looks, 0), strict=True)


def rule_of(options: RunOptions) -> SequentialRule:
    """Return the rule for a paired run with these options."""
    return (
        fixed(options.launches)
        if options.sampling is Sampling.FIXED
        else adaptive(options.max_launches)
    )
