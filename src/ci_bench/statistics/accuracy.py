"""Bound on how far rounding may move a candidate's accuracy, and when the verdict is certain.

Runs of the reference that differ by rounding (or by dropout masks) alone are the candidate's peers.
Of n peers with mean m and standard deviation s a candidate may be off by ``max(1 point, t(0.995, n
- 1) s sqrt(1 + 1/n))``. Peers are whole trainings, most of what verifying costs. So they are
trained one by one, and no more of them once the rule holds whatever the others would show
(`certain_limit`): the verdict is that of all of them, not a guess at it. Judging and training both
ask here. Pure.
"""

import math
import statistics
from collections.abc import Sequence

from ci_bench.statistics.special_functions import stdtrit

LEVEL = 0.995
MARGIN = 0.01
"""A difference up to this share never counts."""
ROUNDING = 1e-9
"""The last bits of a difference of two shares: 0.61 - 0.60 is more than 0.01."""


def freedom_of(groups: Sequence[Sequence[float]]) -> int:
    """Return the degrees of freedom of `spread_of`."""
    return sum(len(peers) - 1 for peers in groups)


def spread_of(groups: Sequence[Sequence[float]]) -> float | None:
    """Return the pooled standard deviation within groups of peers; `None` if no group has two.

    There is one group for each seed. https://en.wikipedia.org/wiki/Pooled_variance.
    """
    freedom = freedom_of(groups)
    return math.sqrt(sum(map(_squares, groups)) / freedom) if freedom else None


def limit_of(groups: Sequence[Sequence[float]]) -> float:
    """Return the largest allowed distance of a candidate's mean accuracy from its peers'.

    There is one accuracy for each group.
    """
    spread = spread_of(groups)
    if spread is None:
        return MARGIN
    scale = math.sqrt(sum(1 + 1 / len(peers) for peers in groups)) / len(groups)
    return min(1.0, max(MARGIN, float(stdtrit(freedom_of(groups), LEVEL)) * spread * scale))


def certain_limit(peers: Sequence[float], *, missing: int) -> float:
    """Return the largest distance from the mean of `peers` at which a candidate certainly holds.

    It holds for any accuracy of the `missing` further peers; `peers` has one or more.

    With k peers of mean a and sum of squares S about it, m missing ones and n = k + m: for a given
    sum of the missing ones s is smallest if they are all equal, for example ``a + y``. The mean is
    then ``m y / n`` further, and ``s^2 = (S + k m y^2 / n) / (n - 1)``. So what is left to the
    candidate is the smallest, over y, of ``max(1 point, q sqrt(S + k m y^2 / n)) - m |y| / n`` with
    ``q = t(0.995, n - 1) sqrt((1 + 1/n) / (n - 1))``. Its minimum is at the point where the second
    term of the maximum exceeds the first, or at the minimum of the second term. It is below 0 if
    nothing is certain: with one peer, many others far from it move the mean by more than they
    allow.
    """
    if not missing:
        return limit_of([peers])
    count = len(peers) + missing
    share, squares = missing / count, _squares(peers)
    growth = len(peers) * share
    slope = float(stdtrit(count - 1, LEVEL)) * math.sqrt((1 + 1 / count) / (count - 1))
    if slope**2 * growth <= share**2:
        return -1.0
    lowest = share * math.sqrt(squares / (growth * (slope**2 * growth - share**2)))
    takes_over = math.sqrt(max(0.0, (MARGIN / slope) ** 2 - squares) / growth)
    if takes_over >= lowest:
        return MARGIN - share * takes_over
    return math.sqrt(squares * (slope**2 - share**2 / growth))


def is_certain(accuracy: float, peers: Sequence[float], *, missing: int) -> bool:
    """Return whether a candidate of this accuracy holds for any `missing` further peers."""
    return (
        abs(accuracy - statistics.fmean(peers)) <= certain_limit(peers, missing=missing) + ROUNDING
    )


def _squares(peers: Sequence[float]) -> float:
    mean = statistics.fmean(peers)
    return sum((value - mean) ** 2 for value in peers)
