"""The values that charts are drawn from, and the material that they are made of.

Numbers are already in the unit that the axis names: one for a whole axis, and figures no longer
than a reader or a file needs. A colour is a number: the renderer owns the palette.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ci_bench.records.comparison import Closeness
from ci_bench.records.results import CaseResult, Unit
from ci_bench.records.units import UNITS
from ci_bench.report.time_spent import TimeSpent


def axis(values: Iterable[float], unit: Unit) -> tuple[float, str]:
    """The size and the name of the unit in which the largest value is at least 1."""
    largest = max(map(abs, filter(math.isfinite, values)), default=0.0)
    choices = UNITS[unit].sizes
    return next(
        ((size, name) for size, name in choices if largest >= size),
        choices[-1] if largest else choices[0],
    )


def short(value: float, *, digits: int = 6) -> float:
    """Return the value with `digits` significant digits."""
    return float(f"{value:.{digits}g}")


def decimals(typical: float, *, digits: int) -> int:
    """Return the decimals to which many values are rounded.

    A typical one should keep `digits` significant digits.
    """
    return (
        digits - 1 - math.floor(math.log10(abs(typical)))
        if typical and math.isfinite(typical)
        else digits
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Material:
    """Sources of a comparison that are at hand: raw samples and training runs.

    Without them, only medians are drawn.

    `head` and `base` have the rows of the results by the case's id; `closeness` how close head's
    training runs stayed to theirs; `spent` where the time of the run went, for the sides `timed`.
    """

    head: Mapping[str, CaseResult] = field(default_factory=dict)
    base: Mapping[str, CaseResult] = field(default_factory=dict)
    closeness: Mapping[str, tuple[Closeness, ...]] = field(default_factory=dict)
    spent: TimeSpent | None = None
    timed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Density:
    """Maximum density of one series: samples, and steps of training.

    Values that are left out are counted, and the count is shown.
    """

    samples: int = 600
    steps: int = 400


def density(cases: int) -> Density:
    """Return the density that keeps a page of `cases` cases small.

    Fifty cases or fewer have no limit.
    """
    full = Density()
    return Density(
        samples=max(30, min(full.samples, 30_000 // max(1, cases))),
        steps=max(40, min(full.steps, 20_000 // max(1, cases))),
    )


class Places(NamedTuple):
    """Places of samples in the run: launch and block as one number, and the launch."""

    at: tuple[float, ...]
    launches: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleSeries:
    """The samples of one arm on one side, in the order taken.

    `places` is which of the chart's places `values` were taken at, one by one. `doubtful` are the
    indices of samples that were taken while the machine was throttled or disturbed, `doubts` the
    reasons. `interval` is the judged interval of the change, laid around the other side's (or the
    reference arm's) median. `left_out` samples are not drawn.
    """

    label: str
    colour: int
    places: int
    values: tuple[float, ...]
    median: float
    doubtful: tuple[int, ...] = ()
    doubts: tuple[str, ...] = ()
    interval: tuple[float, float] | None = None
    left_out: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleChart:
    """One metric of one case: every side and arm.

    `starts` is where each launch but the first begins.

    Arms and sides that are measured in turns share their `places`.
    """

    metric: str
    title: str
    unit: str
    better: str
    series: tuple[SampleSeries, ...]
    places: tuple[Places, ...]
    starts: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DotRow:
    """One metric of one arm: a dot for each side that has it.

    `changed` says that the judge calls it better or worse.
    """

    label: str
    base: float | None
    head: float | None
    mood: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DotChart:
    """Medians side by side, of metrics of one unit.

    `arm` is the one that all are of, which labels then needn't say.
    """

    title: str
    unit: str
    rows: tuple[DotRow, ...]
    arm: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One training run, or one arm.

    `None` is a step whose value is not a number, or a place without one.
    """

    label: str
    colour: int
    values: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveChart:
    """A signal of training over its steps, all runs of one seed above each other.

    Value `i` of each series is that of step ``steps[i]``. `low` and `high` bound the noise envelope
    around the reference, where that is known, and may be shorter than the curves. `first_step` is
    the first step that left it.
    """

    signal: str
    seed: int
    steps: tuple[int, ...]
    curves: tuple[Curve, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    first_step: int | None = None
    total: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreChart:
    """Distance of each candidate in rounding envelopes, step by step; parity ends at `limit`."""

    signal: str
    seed: int
    steps: tuple[int, ...]
    curves: tuple[Curve, ...]
    limit: float
    first_step: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeRow:
    """One judged metric: its change in per cent with the interval, and the threshold.

    Positive is worse.
    """

    label: str
    case: str
    change: float
    low: float
    high: float
    threshold: float
    verdict: str
    mood: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeChart:
    """The changes of the whole run, the worst first; `left_out` more are not drawn."""

    rows: tuple[ChangeRow, ...]
    left_out: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepChart:
    """Head's step time of each arm over one parameter: value `i` of a curve is at ``places[i]``, as ids have the parameter.

    If other parameters vary too, a value is the geometric mean over `cases` of them.
    """

    name: str
    parameter: str
    unit: str
    places: tuple[str, ...]
    cases: int
    curves: tuple[Curve, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseCharts:
    """All charts of one case."""

    id: str
    samples: tuple[SampleChart, ...] = ()
    dots: tuple[DotChart, ...] = ()
    curves: tuple[CurveChart, ...] = ()
    scores: tuple[ScoreChart, ...] = ()
