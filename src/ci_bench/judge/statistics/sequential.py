"""Which cases got slower, decided launch by launch: a history-pooled t test at planned looks.

Owns the decision rule and what it says of each case. The figures it starts from (ratios and spreads of launches, what was
learned) come from `noise`. Pure: `replay` sees all launches run so far and gives the same answer whenever it is asked, live
after each round or later from the document.

Arrays are [..., cases, launches]; NaN stands for a launch that wasn't run. Ratios are natural logarithms of head over base,
in seconds: above zero head is slower.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import ndtri, stdtrit

from ci_bench.judge.statistics.noise import LEAST_HISTORY, LEAST_SPREAD, Floats, Learned, inflation, moderated, nan_median
from ci_bench.judge.statistics.ruling import POWER, Code, Codes, Counts, Rule, Ruling, Truths

_MOST_FREEDOM = 2000.0
_GRAIN = 8.0
_MOST_BOUND = 0.9
_LARGEST = 20.0
"""A log-ratio beyond this (a factor of 5e8) is a fault of the document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    """The arrays that looks write into, [..., cases]; `stop` is the number of columns in use, `active` who goes on."""

    code: Codes
    active: Truths
    stop: Counts
    mean: Floats
    spread: Floats
    freedom: Floats
    count: Counts
    bound: Floats
    inflation: Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class _Evidence:
    """The figures of cases at one look, each [cases]: mean, spread of a launch, its degrees of freedom, launches.

    `bound` is the share of the variance of one launch that the others of the run share (`Learned.bound`).
    """

    mean: Floats
    spread: Floats
    freedom: Floats
    count: Counts
    bound: Floats

    def error(self, launches: Counts | int) -> Floats:
        """The standard error of a mean of so many launches: ``s sqrt((1 - bound) / r + bound)``."""
        return np.asarray(self.spread * np.sqrt((1 - self.bound) / launches + self.bound), dtype=np.float64)

    def only(self, which: Truths) -> "_Evidence":
        """The figures of some of the cases."""
        return _Evidence(**{field.name: getattr(self, field.name)[which] for field in fields(self)})


def replay(d: Floats, within: Floats, learned: Learned, rule: Rule) -> Ruling:
    """Decides each case at the first look at which it can be, from launches [..., cases, launches] run so far.

    Steps (`m` mean and `S` squared deviations of the r launches so far, `phi` from `noise.inflation`):
    ``s^2 = (nu0 s0^2 phi^2 + S / (1 - b)) / (nu0 + r - 1)``, ``nu = nu0 + r - 1``, ``se = s sqrt((1 - b) / r + b)``, where b
    is the share that launches of one run have in common (mostly 0).
    Suspicious: ``|m| > max(tau, t(1 - alpha share / N, nu) se)``. Regressed (or improved): suspicious, r >= 2, and the other
    launches still say so without the most extreme: ``m' > t(recurrence, nu) se'``. Unchanged: not suspicious and
    ``|m| + t(1 - beta / looks, nu) se < margin``. Else open. The history counts as nu0 more observations of the spread (Smyth
    2004, https://doi.org/10.2202/1544-6115.1027); the shares of alpha are Bonferroni over looks and cases, valid under any
    dependence between them. Ask when a look is complete, or when nothing more will run; a case without a usable launch stays
    open, and so does one whose spread nobody knows.
    """
    usable, within, learned = _plausible(d), _plausible(within), _floored(learned)
    state = _start(usable.shape[:-1])
    for number, look in enumerate(rule.looks):
        going = _going(usable, state, rule.looks, number)
        if not going.any():
            continue
        state.stop[going] = look
        seen = np.arange(usable.shape[-1]) < state.stop[..., None]
        masked = np.where(seen, usable, np.nan)
        factor = inflation(masked, np.where(seen, within, np.nan), learned)
        evidence = _weigh(masked, going, factor, learned, rule)
        _record(state, going, evidence, np.broadcast_to(factor, going.shape)[going])
        own = replace(rule, tau=_of(rule.tau, going), margin=_of(rule.margin, going))
        state.code[going] = _decide(masked[going], evidence, own, number, rule.gating or usable.shape[-2])
        state.active[going] = (state.code[going] == Code.OPEN) & _worthwhile(evidence, own, look)
    return _ruling(state, usable, learned, rule)


def resolvable(learned: Learned, launches: int, rule: Rule) -> Floats:
    """The change that so many launches would find with `POWER`, as noise was learned: [..., cases]; NaN where it wasn't.

    With the largest share of alpha that any look has.
    """
    freedom = np.where(_known(learned), learned.freedom + launches - 1, np.nan)
    reach = _reach(freedom, rule, rule.gating or freedom.shape[-1]) * learned.spread
    shrinking = np.asarray(np.sqrt((1 - learned.bound) / launches + learned.bound), dtype=np.float64)
    return np.asarray(np.maximum(reach * shrinking, rule.tau), dtype=np.float64)


def _reach(freedom: Floats, rule: Rule, gating: int) -> Floats:
    """How many standard errors a change must have to be found with `POWER`, at the look that has the largest share of alpha."""
    return _quantile(1 - rule.alpha * max(rule.alpha_shares) / gating, freedom) + float(ndtri(POWER))


def _plausible(values: Floats) -> Floats:
    """NaN in place of what no measurement gives."""
    return np.where(np.abs(values) < _LARGEST, values, np.nan)


def _floored(learned: Learned) -> Learned:
    """No spread below what a clock resolves, and no history that outweighs everything."""
    return Learned(
        spread=np.maximum(_plausible(learned.spread), LEAST_SPREAD),
        freedom=np.minimum(learned.freedom, _MOST_FREEDOM),
        within=np.maximum(_plausible(learned.within), LEAST_SPREAD),
        bound=np.clip(learned.bound, 0.0, _MOST_BOUND),
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
        inflation=unknown(),
    )


def _of(figure: Floats | float, going: Truths) -> Floats:
    """The figure of each case that goes on, where every case may have its own."""
    return np.asarray(np.broadcast_to(figure, going.shape)[going], dtype=np.float64)


def _going(d: Floats, state: _State, looks: tuple[int, ...], number: int) -> Truths:
    """The cases still in play with a launch since the look before."""
    before = looks[number - 1] if number else 0
    fresh = np.isfinite(d[..., before : looks[number]]).any(axis=-1)
    return np.asarray(fresh & state.active, dtype=np.bool_)


def _weigh(d: Floats, going: Truths, factor: Floats, learned: Learned, rule: Rule) -> _Evidence:
    """Mean and pooled spread of the cases that go on; cases without a history take the prior of all such cases today."""
    count, mean, squares = _moments(d)
    bound = np.broadcast_to(learned.bound, count.shape)
    squares = squares / (1 - bound)
    known = _known(learned)
    prior = np.where(known, learned.spread * factor, np.nan)
    freedom = np.where(known, learned.freedom, np.nan)
    cold = ~known & (count >= rule.cold_launches)
    if cold.any():
        variances = np.where(cold, squares / np.maximum(count - 1, 1), np.nan)
        spread, equivalent = moderated(variances, nan_median(np.where(cold, count, np.nan), axis=-1) - 1)
        prior = np.where(cold, spread[..., None], prior)
        freedom = np.where(cold, equivalent[..., None], freedom)
    total = freedom + np.maximum(count - 1, 0)
    energy = np.where(freedom == 0, 0.0, freedom * prior**2) + squares
    pooled = np.maximum(np.sqrt(energy / total), LEAST_SPREAD)
    return _Evidence(mean=mean, spread=pooled, freedom=total, count=count, bound=bound).only(going)


def _moments(d: Floats) -> tuple[Counts, Floats, Floats]:
    """Number, mean and sum of squared deviations of the launches."""
    there = np.isfinite(d)
    count = there.sum(axis=-1)
    mean = np.divide(np.sum(d, axis=-1, where=there), count, out=np.full(count.shape, np.nan), where=count > 0)
    return count, mean, np.sum((d - mean[..., None]) ** 2, axis=-1, where=there)


def _known(learned: Learned) -> Truths:
    return np.isfinite(learned.spread) & (learned.freedom >= LEAST_HISTORY)


def _record(state: _State, going: Truths, evidence: _Evidence, factor: Floats) -> None:
    state.mean[going] = evidence.mean
    state.spread[going] = evidence.spread
    state.freedom[going] = evidence.freedom
    state.count[going] = evidence.count
    state.bound[going] = evidence.bound
    state.inflation[going] = factor


def _decide(d: Floats, evidence: _Evidence, rule: Rule, number: int, gating: int) -> Codes:
    """The codes of cases [cases] at look `number`; a figure that isn't a number leaves its case open."""
    size, error = np.abs(evidence.mean), evidence.error(evidence.count)
    strict = _quantile(1 - rule.alpha * rule.alpha_shares[number] / gating, evidence.freedom)
    lenient = _quantile(1 - rule.beta / len(rule.looks), evidence.freedom)
    suspicious = (size > strict * error) & (size > rule.tau)
    changed = suspicious.copy()
    changed[suspicious] = _recurs(d[suspicious], evidence.only(suspicious), rule.recurrence)
    unchanged = ~suspicious & (size + lenient * error < rule.margin)
    return np.where(changed, np.sign(evidence.mean), np.where(unchanged, Code.UNCHANGED, Code.OPEN)).astype(np.int8)


def _worthwhile(evidence: _Evidence, rule: Rule, look: int) -> Truths:
    """Whether more launches may still decide an open case (see `Rule`); always where its spread isn't known yet."""
    if look < rule.patience:
        return np.ones(evidence.mean.shape, dtype=np.bool_)
    error = evidence.error(evidence.count)
    distance = rule.suspect if look < rule.regular else rule.suspect_late
    suspect = np.abs(evidence.mean) > distance * error
    lenient = _quantile(1 - rule.beta / len(rule.looks), evidence.freedom)
    reachable = (look < rule.regular) & (lenient * evidence.error(rule.regular) < rule.margin)
    return np.asarray(suspect | reachable | ~np.isfinite(error), dtype=np.bool_)


def _recurs(d: Floats, evidence: _Evidence, level: float) -> Truths:
    """Whether the launches without the most extreme one still show the change: a change recurs, an accident doesn't."""
    size, others = np.abs(evidence.mean), evidence.count - 1
    extreme = np.max(d * np.sign(evidence.mean)[:, None], axis=-1, where=np.isfinite(d), initial=-np.inf)
    divisor = np.maximum(others, 1)
    rest = (size * evidence.count - extreme) / divisor
    limit = _quantile(level, evidence.freedom) * evidence.error(divisor)
    return np.asarray((others > 0) & (rest > limit), dtype=np.bool_)


def _quantile(level: float, freedom: Floats) -> Floats:
    """Student's t quantile; degrees of freedom are rounded down to eighths, so that many cases share a few quantiles."""
    grid = np.floor(np.minimum(freedom, _MOST_FREEDOM) * _GRAIN)
    distinct, place = np.unique(grid, return_inverse=True)
    return np.asarray(stdtrit(np.maximum(distinct / _GRAIN, 1.0), level)[place].reshape(freedom.shape), dtype=np.float64)


def _ruling(state: _State, d: Floats, learned: Learned, rule: Rule) -> Ruling:
    shrinking = (1 - state.bound) / np.maximum(state.count, 1) + state.bound
    error = state.spread * np.sqrt(shrinking)
    half = _quantile((1 + rule.level) / 2, state.freedom) * error
    reach = _reach(state.freedom, rule, rule.gating or d.shape[-2]) * state.spread
    return Ruling(
        code=state.code,
        mean=state.mean,
        error=error,
        freedom=state.freedom,
        low=state.mean - half,
        high=state.mean + half,
        resolvable=np.maximum(reach * np.sqrt(shrinking), rule.tau),
        needed=_needed(reach, state.bound, rule.margin),
        launches=state.count,
        next_look=_next_look(state, rule.looks),
        inflation=state.inflation,
        calibrated=_known(learned),
    )


def _needed(reach: Floats, bound: Floats, margin: Floats | float) -> Floats:
    """The least r with ``reach sqrt((1 - b) / r + b) <= margin``, at least 2; infinite where there is none."""
    left = (margin / reach) ** 2 - bound
    launches = np.divide(1 - bound, left, out=np.full(left.shape, np.inf), where=left > 0)
    return np.where(np.isnan(reach), np.nan, np.maximum(np.ceil(launches), 2.0))


def _next_look(state: _State, looks: tuple[int, ...]) -> Counts:
    following = dict(_steps(looks))
    due = np.vectorize(following.__getitem__, otypes=[np.intp])(state.stop) if state.stop.size else state.stop
    return np.where(state.active, due, 0)


def _steps(looks: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Each number of launches with the look after it; 0 after the last."""
    yield from zip((0, *looks), (*looks, 0), strict=True)
