"""Growth of memory over steps, from readings between them. Pure."""

from collections.abc import Sequence
from itertools import combinations
from statistics import median

MOST_READINGS = 400
"""Half of them have 20,000 pairs: milliseconds. The half of 20,000 steps has 50 million."""


def growth(readings: Sequence[float]) -> float:
    """Return memory's growth in bytes a step, from readings between steps.

    It is 0 if memory shrinks, or no longer grows. The slope of either half, by the median over all
    pairs of readings (Sen, 1968); the smaller counts. Memory that fills up in the first half, or
    jumps once, is not a leak. Of more than `MOST_READINGS`, evenly spaced ones are taken, since the
    pairs grow with the square of their number.
    """
    stride = -(-len(readings) // MOST_READINGS) or 1
    spaced = readings[::stride]
    middle = len(spaced) // 2
    return max(0.0, min(_slope(spaced[: middle + 1]), _slope(spaced[middle:]))) / stride


def _slope(readings: Sequence[float]) -> float:
    pairs = combinations(enumerate(readings), 2)
    return median(
        (after - before) / (later - earlier) for (earlier, before), (later, after) in pairs
    )
