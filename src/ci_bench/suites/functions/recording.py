"""Numbers that a benchmark itself reports: their names, units and directions. Needs no torch.

The name of a number shows if it is shown only (`records.metrics.RECORDED`); no separate field does.
So head cannot take a number out of the gate that base has in it: the number would be missing.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ci_bench.formats.units import interpret
from ci_bench.records.metrics import RECORDED
from ci_bench.records.results import Better, Lane, Launch, Metric, Unit
from ci_bench.suites.contract import NotMeasured

NAME = re.compile(r"[a-z0-9_]{1,50}")
USUAL = {
    Unit.SECONDS: Better.LOWER,
    Unit.BYTES: Better.LOWER,
    Unit.JOULES: Better.LOWER,
    Unit.PER_SECOND: Better.HIGHER,
}
"""The better direction by unit, if the unit shows it."""


class BadRecord(NotMeasured, ValueError):  # noqa: N818 - it names an outcome
    """The recorded number cannot be judged. The message explains what to change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """One number that a benchmark recorded."""

    name: str
    """Name of its metric; a prefix marks numbers that are only shown."""
    title: str
    """Name that it was recorded under."""
    value: float
    """Value in the unit below."""
    unit: Unit
    """Unit of the value, converted from the tool's."""
    better: Better
    """Better direction; `LOWER` if unknown, which only a shown number may be."""

    def metric(self, arm: str, launch: int) -> Metric:
        """Convert to a metric of one arm."""
        sample = Launch(launch=launch, values=(self.value,))
        return Metric(
            name=self.name,
            arm=arm,
            unit=self.unit,
            better=self.better,
            lane=Lane.COUNTERS,
            launches=(sample,),
            title=self.title,
        )


def recorded(name: str, value: float, *, unit: str, better: str | None, gate: bool) -> Recorded:
    """Check a recorded number. Raises `BadRecord`."""
    if not NAME.fullmatch(name) or name.startswith(RECORDED):
        raise BadRecord(
            f"record({name!r}): a name is of up to 50 lower-case letters, digits and _, and does"
            f" not start with {RECORDED}"
        )
    if better not in {None, *Better}:
        raise BadRecord(f"record({name!r}): better={better!r} is neither 'lower' nor 'higher'")
    meaning = interpret(unit)
    number = float(value) * meaning.scale
    if not math.isfinite(number):
        raise BadRecord(f"record({name!r}): {value} is not a finite number")
    direction = Better(better) if better else USUAL.get(meaning.unit)
    if direction is None and gate:
        raise BadRecord(
            f"record({name!r}): add better='lower' or better='higher', since it gates and the unit"
            " does not say it"
        )
    return Recorded(
        name=name if gate else f"{RECORDED}{name}",
        title=name,
        value=number,
        unit=meaning.unit,
        better=direction or Better.LOWER,
    )


def metrics_of(records: Mapping[str, Iterable[Recorded]], launch: int) -> tuple[Metric, ...]:
    """Return all that the arms recorded in one launch."""
    return tuple(
        number.metric(arm, launch) for arm, numbers in records.items() for number in numbers
    )
