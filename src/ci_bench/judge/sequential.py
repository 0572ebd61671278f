"""Which cases got slower, decided launch by launch: a history-pooled t test at planned looks.

Owns the decision rule and what it says of each case. The figures it starts from (ratios and spreads of launches, what was
learned) come from `noise`. Pure: `replay` sees all launches run so far and gives the same answer whenever it is asked, live
after each round or later from the document.

Arrays are [..., cases, launches]; NaN stands for a launch that wasn't run. Ratios are natural logarithms of head over base,
in seconds: above zero head is slower.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from ci_bench.judge.noise import LEAST_HISTORY, LEAST_SPREAD, Floats, Learned, inflation, moderated

Codes = NDArray[np.int8]
Counts = NDArray[np.intp]
Truths = NDArray[np.bool_]

POWER = 0.9
"""The chance with which an effect of the size `Ruling.resolvable` would be found."""

_MOST_FREEDOM = 2000.0
_GRAIN = 8.0


class Code(IntEnum):
    """The decision on one case; a case that is still `OPEN` after its last launch is inconclusive."""

    IMPROVED = -1
    OPEN = 0
    REGRESSED = 1
    UNCHANGED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """The parameters of the decision.

    `alpha` bounds the chance that any of the `gating` cases (all, if `None`) of a run without change is called regressed; it
    is shared out over `looks` by `alpha_shares`, most of it late: regressions are rare, so that waiting with them costs
    little, and late looks find more for the same share. `beta` bounds the chance of calling a change of `margin` unchanged,
    in equal shares: the looks have most launches in common, so that far less than the bound is realised. `tau` is the
    smallest change that is flagged; `recurrence` the level at which a change must show without its most extreme launch.
    Cases without a history are decided from `cold_launches` on. Changes are natural logarithms of ratios.

    Raises:
        ValueError: shares that don't fit the looks, or looks out of order.
    """

    alpha: float = 0.01
    beta: float = 0.1
    looks: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    alpha_shares: tuple[float, ...] = (0.0, 0.01, 0.03, 0.06, 0.2, 0.7)
    tau: float = math.log(1.01)
    margin: float = math.log(1.02)
    gating: int | None = None
    recurrence: float = 0.99
    level: float = 0.95
    cold_launches: int = 5

    def __post_init__(self) -> None:
        """Refuses parameters under which `alpha` would not bound the false alarms."""
        if len(self.alpha_shares) != len(self.looks) or min(self.alpha_shares) < 0 or sum(self.alpha_shares) > 1 + 1e-9:
            raise ValueError("alpha_shares needs a share of at least 0 for each look, and a sum of at most 1")
        if sorted(set(self.looks)) != list(self.looks) or self.looks[0] < 1:
            raise ValueError("looks must be launch counts in rising order")


def fixed(launches: int) -> Rule:
    """The rule for a fixed number of launches: one look, which has all of alpha and beta = 5 %."""
    return Rule(looks=(launches,), alpha_shares=(1.0,), beta=0.05)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruling:
    """What is known of each case at its decision, or by now: all [..., cases], NaN where nothing is.

    `mean` with its interval `low` to `high` (nominal `Rule.level` at the look where the case stopped), `error` and `freedom`
    (its standard error and degrees of freedom), `resolvable` (the change that would be found with `POWER`), `needed` (launches
    in all to find a change of `Rule.margin` with `POWER`), `launches` (used), `next_look` (launches to have before asking
    again, 0 where decided or out of looks), `inflation` (the noise guard's factor), `calibrated` (a history was there).
    """

    code: Codes
    mean: Floats
    error: Floats
    freedom: Floats
    low: Floats
    high: Floats
    resolvable: Floats
    needed: Floats
    launches: Counts
    next_look: Counts
    inflation: Floats
    calibrated: Truths


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    """The arrays that looks write into, [..., cases]; `stop` is the number of columns in use."""

    code: Codes
    stop: Counts
    mean: Floats
    spread: Floats
    freedom: Floats
    count: Counts
    inflation: Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class _Evidence:
    """The figures of cases at one look, each [cases]: mean, spread of a launch, its degrees of freedom, launches."""

    mean: Floats
    spread: Floats
    freedom: Floats
    count: Counts


def replay(d: Floats, within: Floats, learned: Learned, rule: Rule) -> Ruling:
    """Decides each case at the first look at which it can be, from launches [..., cases, launches] run so far.

    Steps (`m` mean and `S` squared deviations of the r launches so far, `phi` from `noise.inflation`):
    ``s^2 = (nu0 s0^2 phi^2 + S) / (nu0 + r - 1)``, ``nu = nu0 + r - 1``, ``se = s / sqrt(r)``.
    Suspicious: ``|m| > max(tau, t(1 - alpha share / N, nu) se)``. Regressed (or improved): suspicious, r >= 2, and the other
    launches still say so without the most extreme: ``m' > t(recurrence, nu) s / sqrt(r - 1)``. Unchanged: not suspicious and
    ``|m| + t(1 - beta / looks, nu) se < margin``. Else open. Pooling is Welch's and Smyth's idea of a prior that counts as
    nu0 observations; the shares of alpha are Bonferroni over looks and cases, valid under any dependence between them.
    """
    usable = np.where(np.isfinite(d), d, np.nan)
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
        state.code[going] = _decide(masked[going], evidence, rule, number, rule.gating or usable.shape[-2])
    return _ruling(state, usable, learned, rule)


def repeated_interval(ruling: Ruling, rule: Rule) -> tuple[Floats, Floats]:
    """The interval that holds at every look at once: ``m +- t(1 - (1 - level) / (2 looks), nu) se``.

    Wider than `Ruling.low` to `high`, and true whatever made the measuring stop (Jennison & Turnbull, repeated confidence
    intervals, https://doi.org/10.1111/j.2517-6161.1989.tb01433.x).
    """
    half = _quantile(1 - (1 - rule.level) / (2 * len(rule.looks)), ruling.freedom) * ruling.error
    return ruling.mean - half, ruling.mean + half


def _start(shape: tuple[int, ...]) -> _State:
    def unknown() -> Floats:
        return np.full(shape, np.nan)

    return _State(
        code=np.zeros(shape, dtype=np.int8),
        stop=np.zeros(shape, dtype=np.intp),
        mean=unknown(),
        spread=unknown(),
        freedom=unknown(),
        count=np.zeros(shape, dtype=np.intp),
        inflation=unknown(),
    )


def _going(d: Floats, state: _State, looks: tuple[int, ...], number: int) -> Truths:
    """The open cases with a launch since the look before."""
    before = looks[number - 1] if number else 0
    fresh = np.isfinite(d[..., before : looks[number]]).any(axis=-1)
    return np.asarray(fresh & (state.code == Code.OPEN), dtype=np.bool_)


def _weigh(d: Floats, going: Truths, factor: Floats, learned: Learned, rule: Rule) -> _Evidence:
    """Mean and pooled spread of the cases that go on; cases without a history take the prior of all such cases today."""
    count, mean, squares = _moments(d)
    known = _known(learned)
    prior = np.where(known, learned.spread * factor, np.nan)
    freedom = np.where(known, learned.freedom, np.nan)
    cold = ~known & (count >= rule.cold_launches)
    if cold.any():
        variances = np.where(cold, squares / np.maximum(count - 1, 1), np.nan)
        spread, equivalent = moderated(variances, float(np.median(count[cold])) - 1)
        prior = np.where(cold, spread[..., None], prior)
        freedom = np.where(cold, equivalent[..., None], freedom)
    total = freedom + np.maximum(count - 1, 0)
    pooled = np.sqrt(np.divide(freedom * prior**2 + squares, total, out=np.full(total.shape, np.nan), where=total > 0))
    return _Evidence(
        mean=mean[going], spread=np.maximum(pooled, LEAST_SPREAD)[going], freedom=total[going], count=count[going]
    )


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
    state.inflation[going] = factor


def _decide(d: Floats, evidence: _Evidence, rule: Rule, number: int, gating: int) -> Codes:
    """The codes of cases [cases] at look `number`; a figure that isn't a number leaves its case open."""
    size, error = np.abs(evidence.mean), evidence.spread / np.sqrt(evidence.count)
    strict = _quantile(1 - rule.alpha * rule.alpha_shares[number] / gating, evidence.freedom)
    lenient = _quantile(1 - rule.beta / len(rule.looks), evidence.freedom)
    suspicious = (size > strict * error) & (size > rule.tau)
    changed = suspicious.copy()
    changed[suspicious] = _recurs(d[suspicious], _taken(evidence, suspicious), rule.recurrence)
    unchanged = ~suspicious & (size + lenient * error < rule.margin)
    return np.where(changed, np.sign(evidence.mean), np.where(unchanged, Code.UNCHANGED, Code.OPEN)).astype(np.int8)


def _taken(evidence: _Evidence, which: Truths) -> _Evidence:
    return _Evidence(
        mean=evidence.mean[which],
        spread=evidence.spread[which],
        freedom=evidence.freedom[which],
        count=evidence.count[which],
    )


def _recurs(d: Floats, evidence: _Evidence, level: float) -> Truths:
    """Whether the launches without the most extreme one still show the change: a change recurs, an accident doesn't."""
    size, others = np.abs(evidence.mean), evidence.count - 1
    extreme = np.max(d * np.sign(evidence.mean)[:, None], axis=-1, where=np.isfinite(d), initial=-np.inf)
    divisor = np.maximum(others, 1)
    rest = (size * evidence.count - extreme) / divisor
    limit = _quantile(level, evidence.freedom) * evidence.spread / np.sqrt(divisor)
    return np.asarray((others > 0) & (rest > limit), dtype=np.bool_)


def _quantile(level: float, freedom: Floats) -> Floats:
    """Student's t quantile; degrees of freedom are rounded down to eighths, so that many cases share a few quantiles."""
    grid = np.floor(np.minimum(freedom, _MOST_FREEDOM) * _GRAIN)
    distinct, place = np.unique(grid, return_inverse=True)
    return np.asarray(stdtrit(np.maximum(distinct / _GRAIN, 1.0), level)[place].reshape(freedom.shape), dtype=np.float64)


def _ruling(state: _State, d: Floats, learned: Learned, rule: Rule) -> Ruling:
    error = state.spread / np.sqrt(np.maximum(state.count, 1))
    half = _quantile((1 + rule.level) / 2, state.freedom) * error
    worst = _quantile(1 - rule.alpha * max(rule.alpha_shares) / (rule.gating or d.shape[-2]), state.freedom)
    reach = (worst + ndtri(POWER)) * state.spread
    return Ruling(
        code=state.code,
        mean=state.mean,
        error=error,
        freedom=state.freedom,
        low=state.mean - half,
        high=state.mean + half,
        resolvable=np.maximum(reach / np.sqrt(np.maximum(state.count, 1)), rule.tau),
        needed=np.maximum(np.ceil((reach / rule.margin) ** 2), 2.0),
        launches=state.count,
        next_look=_next_look(state, rule.looks),
        inflation=state.inflation,
        calibrated=_known(learned),
    )


def _next_look(state: _State, looks: tuple[int, ...]) -> Counts:
    following = dict(_steps(looks))
    due = np.vectorize(following.__getitem__, otypes=[np.intp])(state.stop) if state.stop.size else state.stop
    return np.where(state.code == Code.OPEN, due, 0)


def _steps(looks: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Each number of launches with the look after it; 0 after the last."""
    yield from zip((0, *looks), (*looks, 0), strict=True)
