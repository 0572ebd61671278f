"""The history document: what runs of one branch measured, one number for each metric and run.

Owns the values and the checks that a schema cannot express. One run's record and a pack of many
runs are documents of the same kind. `ci_bench.history` stores records, `judge.times.trend` analyses
them.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from ci_bench.records.faults import Fault, not_moments, twice
from ci_bench.records.forms import (
    ArmName,
    Bounds,
    Branch,
    CaseId,
    Commit,
    Count,
    Facts,
    Fingerprint,
    MetricName,
    Moment,
    NonNegative,
    RunId,
    SuiteName,
    ToolVersion,
    Url,
)
from ci_bench.records.results import Better, Lane, Unit
from ci_bench.records.units import TIMES

LARGEST = 1e300
"""A value beyond this was never measured, and arithmetic on it would overflow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryMachine:
    """A machine that runs took place on."""

    fingerprint: Fingerprint
    """The digest of the identity."""
    identity: Facts
    """Hardware and software."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One run; `None` means unknown."""

    id: RunId
    """Identifies the run."""
    at: Moment
    """Start of the run: ISO 8601, in UTC."""
    machine: Count
    """The index of the run's machine in the list of machines."""
    tool_version: ToolVersion
    """The version of ci-bench that measured."""
    commit: Commit | None = None
    """The commit, in hexadecimal."""
    branch: Branch | None = None
    """The branch."""
    dirty: bool | None = None
    """Whether there were uncommitted changes."""
    partial: bool = False
    """Whether the run is incomplete."""
    failed: Count = 0
    """Number of cases that did not succeed."""
    url: Url | None = None
    """URL of the run."""
    report: Url | None = None
    """URL of the run's report."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Points:
    """One metric of one arm of one case: its value in each run.

    The three lists belong together. A value is the mean of the run's launches; for times it is the
    mean of their logarithms.
    """

    case: CaseId
    """Stable text: cases of two runs are the same case if their ids are equal."""
    suite: SuiteName
    """The suite that plans the case."""
    metric: MetricName
    """The name of a series of samples."""
    arm: ArmName
    """The measured arm."""
    unit: Unit
    """The unit of the values."""
    better: Better
    """Which direction is an improvement."""
    lane: Lane
    """The clock a metric was read from."""
    runs: Annotated[tuple[Count, ...], Bounds(max_items=5000)]
    """The index of each value's run in the list of runs, ascending."""
    values: Annotated[tuple[float, ...], Bounds(max_items=5000)]
    """The mean of the run's launches, in the unit."""
    errors: Annotated[tuple[NonNegative | None, ...], Bounds(max_items=5000)]
    """Relative standard errors of the values; `None` if a run had one launch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """Runs and their measurements, oldest first."""

    kind: Literal["history"] = "history"
    """The kind of document."""
    schema_version: Literal[1] = 1
    """The version of this schema."""
    tool_version: ToolVersion
    """The version of ci-bench that wrote the document."""
    machines: Annotated[tuple[HistoryMachine, ...], Bounds(max_items=1000)]
    """The machines that runs took place on."""
    runs: Annotated[tuple[Entry, ...], Bounds(max_items=5000)]
    """The runs, oldest first."""
    series: Annotated[tuple[Points, ...], Bounds(max_items=20_000)]
    """The values of each metric, by run."""


def history_faults(history: History) -> Iterator[Fault]:
    """Yield faults beyond the schema.

    They are duplicate names, missing places, lists of unequal length, and invalid moments.
    """
    yield from twice("$.machines", [machine.fingerprint for machine in history.machines])
    yield from twice("$.runs", [(run.id, run.machine) for run in history.runs])
    yield from not_moments("$.runs", [run.at for run in history.runs])
    for index, run in enumerate(history.runs):
        if run.machine >= len(history.machines):
            yield Fault(
                f"$.runs[{index}].machine",
                f"{run.machine} is not one of the {len(history.machines)} in $.machines",
            )
    yield from twice("$.series", [_kind_of(points) for points in history.series])
    for index, series in enumerate(history.series):
        yield from _series_faults(f"$.series[{index}]", series, len(history.runs))


def _kind_of(series: Points) -> Hashable:
    return series.case, series.metric, series.arm, series.unit, series.better, series.lane


def _series_faults(path: str, series: Points, runs: int) -> Iterator[Fault]:
    sizes = (len(series.runs), len(series.values), len(series.errors))
    if len(set(sizes)) > 1:
        yield Fault(
            path,
            f"{sizes[0]} runs, {sizes[1]} values and {sizes[2]} errors: the lists belong together",
        )
    if any(run >= runs for run in series.runs):
        yield Fault(f"{path}.runs", f"names a run that is not one of the {runs} in $.runs")
    if any(later <= earlier for earlier, later in zip(series.runs, series.runs[1:], strict=False)):
        yield Fault(f"{path}.runs", "is not in the order of $.runs, or names a run twice")
    if any(abs(value) > LARGEST for value in series.values):
        yield Fault(
            f"{path}.values", f"holds a value beyond {LARGEST:g}, too large for a measurement"
        )
    if series.unit in TIMES and any(value <= 0 for value in series.values):
        yield Fault(f"{path}.values", "holds a time or a rate that is not above 0")
