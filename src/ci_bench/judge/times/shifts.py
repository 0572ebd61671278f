"""Shifts that most cases of a launch share: of the launch, or of the code. Pure.

A launch may be slow as a whole on one side. That is one event, and every case shows it. Two such
launches in a row look like fifty certain changes. A change of the code differs: its shift repeats.
So the shifts of all launches are tested like the launches of one more case.

Arrays are [..., cases, launches]; NaN stands for a launch that wasn't run.
"""

import numpy as np
from numpy.typing import NDArray

from ci_bench.judge.times.noise import LEAST_SPREAD, Floats, nan_median
from ci_bench.statistics.special_functions import stdtrit

Truths = NDArray[np.bool_]

LEAST_CASES = 10
"""The fewest cases of a launch in which a common shift is looked for."""

LEAST_SHARE = 0.5
"""And the least share of all cases: the few that take more launches may be those that changed."""

MATERIAL = 0.5
"""A common shift below this share of a case's threshold is left in."""


def common_shifts(d: Floats) -> Floats:
    """Return the median over cases of each launch, [..., launches]; NaN if too few cases ran."""
    there = np.isfinite(d)
    least = np.maximum(LEAST_CASES, LEAST_SHARE * there.any(axis=-1).sum(axis=-1))
    return np.where(there.sum(axis=-2) >= least[..., None], nan_median(d, axis=-2), np.nan)


def is_repeated(shifts: Floats, chance: float) -> Truths:
    """Return whether launches [..., launches] agree on a shift.

    It is a t test, which noise passes with `chance`. Only the launches show how much a common shift
    varies; one launch shows nothing.
    """
    there = np.isfinite(shifts)
    count = there.sum(axis=-1)
    divisor = np.maximum(count, 1)
    mean = np.sum(shifts, axis=-1, where=there) / divisor
    squares = np.sum((shifts - mean[..., None]) ** 2, axis=-1, where=there)
    freedom = np.maximum(count - 1, 1)
    error = np.maximum(np.sqrt(squares / freedom / divisor), LEAST_SPREAD)
    return np.asarray(
        (count > 1) & (np.abs(mean) > stdtrit(freedom.astype(np.float64), 1 - chance) * error),
        dtype=np.bool_,
    )


def without_shifts(d: Floats, tau: Floats | float, chance: float) -> Floats | None:
    """Return `d` without shifts that most cases of a launch share; `None` without such shifts.

    A shift is taken off a case if it is beyond `MATERIAL` of its threshold `tau` ([..., cases], or
    one for all) and does not repeat from launch to launch.
    """
    shifts = common_shifts(d)
    least = MATERIAL * np.broadcast_to(np.asarray(tau, dtype=np.float64), d.shape[:-1])
    of_launch = np.where(is_repeated(shifts, chance)[..., None], np.nan, shifts)[..., None, :]
    material = np.abs(of_launch) > least[..., None]
    return np.where(material, d - of_launch, d) if material.any() else None
