"""Weight of a case's history today, in degrees of freedom. Pure.

A history says how noisy a case was. Only today's launches say how noisy it is, so a history counts
for a few launches at most, and for less if launches contradict it (docs/adr/0087).
"""

import numpy as np
from numpy.typing import NDArray

from ci_bench.judge.noise import Floats

Counts = NDArray[np.intp]

MOST_HISTORY = 6.0
"""Degrees of freedom that a history is worth at most, however long: a few cases may be three times
as noisy today, and only their own launches can say so (docs/adr/0087)."""

TIMES_FOR_UNCHANGED = 2.0
"""How many times as much a history counts where a case is called unchanged.

That errs by metric, and not once in a run of many.
"""

CONFLICT = 3.0
"""Launches that scatter this many times as widely as a case's history contradict it."""


def worth_today(squares: Floats, count: Counts, usually: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Return the degrees of freedom of each history today, and by how many more it counts for unchanged.

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
    own = np.minimum(freedom, most)
    more = np.where(conflict, 0.0, np.minimum(freedom, TIMES_FOR_UNCHANGED * most) - own)
    return own, np.nan_to_num(more)
