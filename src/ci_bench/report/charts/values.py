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
    """Return the size and the name of the unit in which the largest value is at least 1."""
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
    """

    head: Mapping[str, CaseResult] = field(default_factory=dict)
    """Head's results by the case's id."""
    base: Mapping[str, CaseResult] = field(default_factory=dict)
    """Base's results by the case's id; empty without its document."""
    closeness: Mapping[str, tuple[Closeness, ...]] = field(default_factory=dict)
    """How close head's training runs stayed to their references, by the case's id."""
    spent: TimeSpent | None = None
    """Where the time of the run went; `None` if unknown."""
    timed: tuple[str, ...] = ()
    """The sides that `spent` has seconds of, such as ``base`` and ``head``."""


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
    """The samples of one arm on one side, in the order taken."""

    label: str
    """The side and the arm, or only the arm if there is one side."""
    colour: int
    """The number of its colour in the renderer's palette."""
    places: int
    """Index of the chart's places that `values` were taken at, one by one."""
    values: tuple[float, ...]
    """The drawn samples, in the chart's unit."""
    median: float
    """The median of all samples, in the chart's unit."""
    doubtful: tuple[int, ...] = ()
    """Indices of samples taken while the machine was throttled or disturbed."""
    doubts: tuple[str, ...] = ()
    """The reason for each of `doubtful`."""
    interval: tuple[float, float] | None = None
    """The judged interval around the compared median, in the chart's unit; or `None`."""
    left_out: int = 0
    """Number of samples that are not drawn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleChart:
    """One metric of one case: every side and arm.

    Arms and sides that are measured in turns share their `places`.
    """

    metric: str
    """The metric's name in documents."""
    title: str
    """The metric's title for readers."""
    unit: str
    """The unit of all values, as the axis shows it."""
    better: str
    """The better direction, ``lower`` or ``higher``."""
    series: tuple[SampleSeries, ...]
    """The lines, by arm."""
    places: tuple[Places, ...]
    """The places that the series refer to by index, each once."""
    starts: tuple[float, ...]
    """The place where each launch but the first begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DotRow:
    """One metric of one arm: a dot for each side that has it.

    `mood` is the lower-case name of the verdict's `Mood`, which colours the row.
    """

    label: str
    base: float | None
    head: float | None
    mood: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DotChart:
    """Medians side by side, of metrics of one unit.

    `arm` is the arm of all rows, which their labels then needn't name; empty for several arms.
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
    """A signal of training over its steps, all runs of one seed above each other."""

    signal: str
    """The signal, ``loss`` or ``grad_norm``."""
    seed: int
    """The seed of all runs."""
    steps: tuple[int, ...]
    """The drawn steps; value `i` of each curve is that of step ``steps[i]``."""
    curves: tuple[Curve, ...]
    """The runs, the reference of head first."""
    low: tuple[float, ...] = ()
    """Lower bound of the noise envelope; shorter than the curves or empty if unknown."""
    high: tuple[float, ...] = ()
    """Upper bound of the noise envelope, as long as `low`."""
    first_step: int | None = None
    """The first step that left the envelope; `None` if none did."""
    total: int = 0
    """Number of steps of the longest run, drawn or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreChart:
    """Distance of each candidate from its reference in rounding envelopes, step by step."""

    signal: str
    """The signal, ``loss`` or ``grad_norm``."""
    seed: int
    """The seed of all runs."""
    steps: tuple[int, ...]
    """The drawn steps; value `i` of each curve is that of step ``steps[i]``."""
    curves: tuple[Curve, ...]
    """The scores of each candidate arm, in envelopes."""
    limit: float
    """The score above which parity is broken."""
    first_step: int | None = None
    """The first step beyond the limit; `None` if none is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeRow:
    """One judged metric: its change with the interval, and the threshold."""

    label: str
    """The case, the arm and the metric, for readers."""
    case: str
    """The case's id."""
    change: float
    """The change in per cent; positive is worse."""
    low: float
    """Lower end of the interval, in per cent."""
    high: float
    """Upper end of the interval, in per cent."""
    threshold: float
    """The least change that counts, in per cent."""
    verdict: str
    """The verdict in words."""
    mood: str
    """Name of the verdict's `Mood` in lower case, which colours the row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeChart:
    """The changes of the whole run, the worst first; `left_out` more are not drawn."""

    rows: tuple[ChangeRow, ...]
    left_out: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepChart:
    """Head's step time of each arm over one parameter."""

    name: str
    """The name that the cases share, without their brackets."""
    parameter: str
    """The parameter on the axis."""
    unit: str
    """The unit of all values, as the axis shows it."""
    places: tuple[str, ...]
    """Values of the parameter as ids have them; value `i` of a curve is at ``places[i]``."""
    cases: int
    """Number of cases at each place, whose geometric mean is drawn."""
    curves: tuple[Curve, ...]
    """The times of each arm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseCharts:
    """All charts of one case."""

    id: str
    """The case's id."""
    samples: tuple[SampleChart, ...] = ()
    """Charts of raw samples; empty without the results documents."""
    dots: tuple[DotChart, ...] = ()
    """Charts of medians."""
    curves: tuple[CurveChart, ...] = ()
    """Charts of training signals; empty without recorded training runs."""
    scores: tuple[ScoreChart, ...] = ()
    """Charts of distances in envelopes; empty without compared training runs."""
