"""The parameters of the sequential rule and its answers.

Owns the values; how answers are found is in `sequential`.
"""

import math
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ci_bench.judge.statistics.noise import Floats

Codes = NDArray[np.int8]
Counts = NDArray[np.intp]
Truths = NDArray[np.bool_]

POWER = 0.9
"""The chance with which an effect of the size `Ruling.resolvable` would be found."""

TAU, MARGIN = math.log(1.01), math.log(1.02)
"""The smallest change that is flagged, and the smallest that must not be called unchanged, unless a case has its own."""

COLD_LAUNCHES = 5
"""Launches from which on a case without a history is decided."""


class Code(IntEnum):
    """The decision on one case; one that is still `OPEN` when no look is left to it is inconclusive."""

    IMPROVED = -1
    OPEN = 0
    REGRESSED = 1
    UNCHANGED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """The parameters of the decision; changes are natural logarithms of ratios.

    `alpha` bounds the chance that any of the `gating` cases (all, if `None`) of a run without change is called regressed; it
    is shared out over `looks` by `alpha_shares`, most of it late: regressions are rare, so that waiting with them costs
    little, and late looks find more for the same share. `beta` bounds the chance of calling a change of `margin` unchanged,
    in equal shares. `tau` is the smallest change that is flagged; both are one figure, or one for each case (arrays that
    broadcast to [..., cases]). `recurrence` is the level at which a change must show without its most extreme launch. Cases
    without a history are decided from `cold_launches` on.

    From `patience` launches on, a case goes on only while unchanged can still be reached by `regular` launches, or while its
    mean is `suspect` standard errors from zero; beyond `regular` only if it is `suspect_late`. Giving up early can only lower
    the chance of a false alarm, and what it saves pays for looks beyond `regular` at the few that look changed.

    Raises:
        ValueError: shares that don't fit the looks, looks out of order, a verdict from one launch of an unknown machine.
    """

    alpha: float = 0.01
    beta: float = 0.05
    looks: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)
    alpha_shares: tuple[float, ...] = (0.0, 0.01, 0.02, 0.04, 0.08, 0.2, 0.25, 0.4)
    tau: Floats | float = TAU
    margin: Floats | float = MARGIN
    gating: int | None = None
    recurrence: float = 0.99
    level: float = 0.95
    cold_launches: int = COLD_LAUNCHES
    patience: int = 4
    regular: int = 8
    suspect: float = 1.5
    suspect_late: float = 2.5

    def __post_init__(self) -> None:
        """Refuses parameters under which `alpha` would not bound the false alarms."""
        if len(self.alpha_shares) != len(self.looks) or min(self.alpha_shares) < 0 or sum(self.alpha_shares) > 1 + 1e-9:
            raise ValueError("alpha_shares needs a share of at least 0 for each look, and a sum of at most 1")
        if sorted(set(self.looks)) != list(self.looks) or self.looks[0] < 1:
            raise ValueError("looks must be launch counts in rising order")
        if self.cold_launches <= 1:
            raise ValueError("cold_launches must be at least 2: one launch says nothing of noise")


def fixed(launches: int) -> Rule:
    """The rule for a fixed number of launches: one look, which has all of alpha and beta."""
    return Rule(looks=(launches,), alpha_shares=(1.0,), cold_launches=_cold(launches))


def adaptive(most: int) -> Rule:
    """The rule for as many launches as are needed, `most` at most: its looks up to there, the last with the alpha left over."""
    whole = Rule()
    if most >= whole.looks[-1]:
        return whole
    early = [(look, share) for look, share in zip(whole.looks, whole.alpha_shares, strict=True) if look < most]
    looks, shares = (*(look for look, _ in early), most), tuple(share for _, share in early)
    return replace(whole, looks=looks, alpha_shares=(*shares, 1.0 - sum(shares)), cold_launches=_cold(most))


def _cold(most: int) -> int:
    """Two launches at least: one says nothing of noise."""
    return max(2, min(most, COLD_LAUNCHES))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruling:
    """What is known of each case at its decision, or by now: all [..., cases], NaN where nothing is.

    `mean` with its interval `low` to `high` (nominal `Rule.level` at the look where the case stopped), `error` and `freedom`
    (its standard error and degrees of freedom), `resolvable` (the change that would be found with `POWER`), `needed` (launches
    in all to find a change of `Rule.margin` with `POWER`; infinite where
    none would do), `launches` (used), `next_look` (launches to have before asking
    again, 0 where decided or given up), `inflation` (the noise guard's factor), `calibrated` (a history was there).
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
