"""Properties of units: names of changes, display sizes, whether it is a time. One table.

How numbers are written is each renderer's business (`report.text`, `judge.wording`); units as other
tools write them are in `formats.units`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ci_bench.records.results import Better, Unit


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The facts of one unit.

    `grown` and `shrunk` call a change of the figure; `sizes` are what it is shown in, largest
    first, each with its size in the unit itself; `is_time` holds of times, and of what is noisy and
    positive as they are.
    """

    grown: str
    shrunk: str
    sizes: tuple[tuple[float, str], ...]
    is_time: bool = False


UNITS: Mapping[Unit, Facts] = {
    Unit.SECONDS: Facts(
        grown="slower",
        shrunk="faster",
        sizes=((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
        is_time=True,
    ),
    Unit.BYTES: Facts(
        grown="more",
        shrunk="less",
        sizes=((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    ),
    Unit.COUNT: Facts(grown="more", shrunk="fewer", sizes=((1.0, "count"),)),
    Unit.PER_SECOND: Facts(
        grown="faster", shrunk="slower", sizes=((1.0, "per second"),), is_time=True
    ),
    Unit.HERTZ: Facts(
        grown="higher",
        shrunk="lower",
        sizes=((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz")),
        is_time=True,
    ),
    Unit.JOULES: Facts(
        grown="more", shrunk="less", sizes=((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ")), is_time=True
    ),
}
TIMES = frozenset(unit for unit, facts in UNITS.items() if facts.is_time)


def worse_and_better(unit: Unit, better: Better) -> tuple[str, str]:
    """Return the words for a change for the worse and for the better, by the metric's direction."""
    if better is Better.HIGHER:
        return "lower", "higher"
    return (
        ("higher", "lower") if unit is Unit.PER_SECOND else (UNITS[unit].grown, UNITS[unit].shrunk)
    )


_DURATION = re.compile(r"(?=.)(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
"""Hours, minutes and seconds, in this order, any of them left out."""


def seconds(text: str) -> float:
    """Read a duration, in seconds: ``5m``, ``90s``, ``1h30m``; a bare number is seconds.

    Raises:
        ValueError: the text has another form.
    """
    try:
        return float(text)
    except ValueError:
        parts = _DURATION.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text!r} is not a duration; use 300, 90s, 5m or 1h30m")
    return sum(
        float(part) * size
        for part, size in zip(parts.groups(), (3600.0, 60.0, 1.0), strict=True)
        if part
    )


_ONE_PERCENT, _TEN_PERCENT, _MOST_PLAIN = 0.01, 0.0995, 1e4


def relative_change(share: float) -> str:
    """Format the size of a change, everywhere alike: ``0.54 %``, ``8.2 %``, ``36 %``."""
    size = abs(share)
    if size < _ONE_PERCENT:
        return f"{100 * size:.2g} %"
    if size < _TEN_PERCENT:
        return f"{100 * size:.1f} %"
    return f"{100 * size:,.0f} %" if size < _MOST_PLAIN else f"{100 * size:.3g} %"
