"""One unit for a whole axis, and figures no longer than a reader or a file needs."""

import math
from collections.abc import Iterable

from ci_bench.records.case import Unit

_UNITS: dict[Unit, tuple[tuple[float, str], ...]] = {
    Unit.SECONDS: ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    Unit.BYTES: ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    Unit.COUNT: ((1.0, "count"),),
    Unit.PER_SECOND: ((1.0, "per second"),),
}


def axis(values: Iterable[float], unit: Unit) -> tuple[float, str]:
    """The size and the name of the unit in which the largest value is at least 1."""
    largest = max(map(abs, filter(math.isfinite, values)), default=0.0)
    choices = _UNITS[unit]
    return next(((size, name) for size, name in choices if largest >= size), choices[-1] if largest else choices[0])


def short(value: float, *, digits: int = 6) -> float:
    """The value with so many significant digits."""
    return float(f"{value:.{digits}g}")
