"""Detection of drift: a level, a line over some runs and another level, compared with steps.

Pure numpy.

Owns the fit of a ramp and of two steps, both by trying every pair of places, and how clearly one
model has to win. `trend` finds steps and estimates the autocorrelation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ci_bench.judge.times.noise import Floats

LEAST_RUNS = 8
"""The runs that a drift takes at least; what is faster is a step."""
EVIDENCE = 10.0
"""The difference of two BICs that is "very strong" evidence (Kass and Raftery 1995,
doi:10.1080/01621459.1995.10476572).
"""
MOST_PLACES = 200
"""Places tried as begin and end of a drift: a longer stretch gets this many, equally spaced."""
LEAST_STRETCH = 3
"""The values of each level of two steps."""

_RAMP = 4
"""Its parameters: two levels and two places. Steps have a level more than places."""
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Ramp:
    """Ramp from the last place on one level (`start`) to the first on the next (`stop`).

    `before` and `after` are the levels.
    """

    start: int
    stop: int
    before: float
    after: float

    def along(self, points: int) -> Floats:
        """Return its value at each of `points` places."""
        share = np.clip((np.arange(points) - self.start) / (self.stop - self.start), 0.0, 1.0)
        return np.asarray(self.before + (self.after - self.before) * share, dtype=np.float64)


def fit_ramp(values: Floats) -> Ramp | None:
    """Return the ramp of least squares over `LEAST_RUNS` or more; `None` for too few values."""
    points = len(values)
    if points <= LEAST_RUNS:
        return None
    places = np.unique(np.linspace(0, points - 1, min(points, MOST_PLACES)).astype(np.intp))
    starts, stops = (places[index] for index in np.triu_indices(len(places), k=1))
    long_enough = stops - starts >= LEAST_RUNS
    starts, stops = starts[long_enough], stops[long_enough]
    length = (stops - starts).astype(np.float64)
    centred = values - values.mean()
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    moments = np.concatenate([[0.0], np.cumsum(np.arange(points) * centred)])
    beyond = points - 1.0 - stops
    weight = (length + 1) / 2 + beyond
    square = (length + 1) * (2 * length + 1) / (6 * length) + beyond - weight**2 / points
    inside = moments[stops + 1] - moments[starts] - starts * (sums[stops + 1] - sums[starts])
    product = inside / length + sums[points] - sums[stops + 1]
    best = int(np.argmax(product**2 / square))
    rise = float(product[best] / square[best])
    before = float(values.mean()) - rise * float(weight[best]) / points
    return Ramp(start=int(starts[best]), stop=int(stops[best]), before=before, after=before + rise)


def evidence_for(ramp: Ramp, values: Floats, places: Sequence[int], *, independent: float) -> float:
    """Return the advantage of a ramp's BIC over that of steps, the lesser of two.

    The steps are those at `places` and, beyond `EVIDENCE`, the two that fit best.

    ``BIC = n ln(squares / n) + parameters ln(n)`` of normal noise, with as many values n as are
    `independent`.
    """
    rounding = len(values) * (_ROUNDING * float(np.abs(values).max(initial=1.0))) ** 2
    residual = max(float(np.sum((values - ramp.along(len(values))) ** 2)), rounding)

    def over(places: Sequence[int]) -> float:
        squares, more = max(_around(values, places), rounding), 2 * len(places) + 1 - _RAMP
        return independent * math.log(squares / residual) + more * math.log(independent)

    evidence = over(places)
    return min(evidence, over(_two_places(values))) if evidence > EVIDENCE else evidence


def _around(values: Floats, places: Sequence[int]) -> float:
    """Return the sum of squares around the levels between places."""
    return sum(float(np.sum((part - part.mean()) ** 2)) for part in np.split(values, places))


def _two_places(values: Floats) -> tuple[int, int]:
    """Return the places of the two steps of least squares.

    A series that is long enough for a ramp is long enough for them.
    """
    points = len(values)
    first, second = np.triu_indices(points, k=LEAST_STRETCH)
    inside = (first >= LEAST_STRETCH) & (second <= points - LEAST_STRETCH)
    first, second = first[inside], second[inside]
    sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    explained = sums[first] ** 2 / first + (sums[second] - sums[first]) ** 2 / (second - first)
    explained += (sums[points] - sums[second]) ** 2 / (points - second)
    best = int(np.argmax(explained))
    return int(first[best]), int(second[best])
