"""Figures over many cases: false discovery rates, and the geometric mean.

Owns no decision on a case; those come from `sequential`. Ratios are natural logarithms of head over
base in seconds: above zero head is slower.
"""

import math
from dataclasses import dataclass

import numpy as np

from ci_bench.judge.times.noise import LEAST_SPREAD, Floats, Learned
from ci_bench.judge.times.sequential import Ruling
from ci_bench.statistics.special_functions import stdtr, stdtrit


@dataclass(frozen=True, kw_only=True, slots=True)
class Mean:
    """Geometric mean over the measured cases, as a logarithm, with its interval."""

    value: float
    """Mean log-ratio; NaN if no launch ran every case."""
    low: float
    """Lower end of the interval; NaN without one."""
    high: float
    """Upper end of the interval; NaN without one."""
    cases: int
    """Cases with at least one launch."""
    launches: int
    """Launches in which every case ran."""


def p_values(ruling: Ruling) -> Floats:
    """Return the two-sided p of each case at the look where it stopped; NaN if not measured."""
    return np.asarray(
        2.0 * stdtr(ruling.freedom, -np.abs(ruling.mean) / ruling.error), dtype=np.float64
    )


def false_discovery(p: Floats) -> Floats:
    """Return Benjamini-Hochberg q values of p values [cases]; NaN stay NaN.

    ``q_(i) = min over j >= i of p_(j) n / j``

    https://en.wikipedia.org/wiki/False_discovery_rate#Benjamini%E2%80%93Hochberg_procedure; for the
    report, never the gate.
    """
    finite = np.flatnonzero(np.isfinite(p))
    order = finite[np.argsort(p[finite], kind="stable")]
    scaled = p[order] * len(order) / np.arange(1, len(order) + 1)
    q = np.full(p.shape, np.nan)
    q[order] = np.minimum.accumulate(scaled[::-1])[::-1]
    return q


def geometric_mean(d: Floats, learned: Learned, *, level: float = 0.95) -> Mean:
    """Return the mean log-ratio over cases [cases, launches]; launches are its replicates.

    ``g_i`` is the mean over cases of launch i, and G the mean of the g_i, over launches in which
    every case ran (cases that never ran are left out). Its spread is pooled with the history,
    however short, as a case's is (`sequential.replay`): ``s0_G^2 = sum s0_c^2 / C^2`` with
    Satterthwaite's degrees of freedom
    (https://en.wikipedia.org/wiki/Welch%E2%80%93Satterthwaite_equation). It speaks of the cases
    measured, not of others.
    """
    there = np.isfinite(d).any(axis=-1)
    complete = np.isfinite(d[there]).all(axis=0)
    g = d[there][:, complete].mean(axis=0) if there.any() else np.empty(0)
    value = float(g.mean()) if g.size else float("nan")
    half = _half_width(g, learned.spread[there], learned.freedom[there], level)
    return Mean(
        value=value, low=value - half, high=value + half, cases=int(there.sum()), launches=g.size
    )


def _half_width(g: Floats, spread: Floats, freedom: Floats, level: float) -> float:
    if not g.size:
        return float("nan")
    parts = (spread / len(spread)) ** 2
    calibrated = bool(np.isfinite(parts).all())
    prior = float(parts.sum()) if calibrated else 0.0
    equivalent = prior**2 / float(np.sum(parts**2 / freedom)) if calibrated else 0.0
    total = equivalent + g.size - 1
    if total <= 0:
        return float("nan")
    variance = (equivalent * prior + float(np.sum((g - g.mean()) ** 2))) / total
    return (
        float(stdtrit(total, (1 + level) / 2))
        * max(math.sqrt(variance), LEAST_SPREAD)
        / math.sqrt(g.size)
    )
