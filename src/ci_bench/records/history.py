"""The history document: what runs of one branch measured, one number for each metric and run.

Owns the values and the checks that a schema cannot express. One run's record and a pack of many
runs are documents of the same kind. `ci_bench.history` stores records, `judge.times.trend` analyses
them.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ci_bench.records.faults import Fault, not_moments, twice
from ci_bench.records.results import Better, Fact, Lane, Unit
from ci_bench.records.units import TIMES

LARGEST = 1e300
"""A value beyond this was never measured, and arithmetic on it would overflow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryMachine:
    """A machine that runs took place on. `fingerprint` is the digest of its `identity`."""

    fingerprint: str
    identity: Mapping[str, Fact]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One run: its id, when it began (ISO 8601, UTC), the commit, and the place of its machine in `History.machines`.

    `url` is the page of the run and `report` that of its report; `failed` are the cases that did
    not end well. `partial` says that the run is incomplete, `dirty` that the tree was not the
    commit's. `None` means unknown.
    """

    id: str
    at: str
    machine: int
    tool_version: str
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    partial: bool = False
    failed: int = 0
    url: str | None = None
    report: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Points:
    """One metric of one arm of one case: its value in each run; the three lists belong together.

    `runs` are places in `History.runs`, ascending. A value is the mean of the run's launches (for
    times: of their logarithms), in `unit`; `errors` are its relative standard errors, `None` if
    there was one launch only.
    """

    case: str
    suite: str
    metric: str
    arm: str
    unit: Unit
    better: Better
    lane: Lane
    runs: tuple[int, ...]
    values: tuple[float, ...]
    errors: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """Runs and what they measured, oldest first."""

    kind: Literal["history"] = "history"
    schema_version: Literal[1] = 1
    tool_version: str
    machines: tuple[HistoryMachine, ...]
    runs: tuple[Entry, ...]
    series: tuple[Points, ...]


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
    yield from twice("$.series", [_kind_of(one) for one in history.series])
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
