"""A results document as series, for formats that other tools read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ci_bench.formats.importing import MAINS, SUITE
from ci_bench.formats.series import Absent, Reading, Runs, Series
from ci_bench.formats.units import interpret
from ci_bench.records.forms import Fact
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import CaseResult, Metric, Results, Status, Unit

MAIN = STEP_TIME.name
"""The metric that is a case's main series."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """Input of a writer."""

    series: tuple[Series, ...]
    """Every measured series."""
    failed: tuple[Absent, ...] = ()
    """Benchmarks that ended without a result."""
    skipped: tuple[Absent, ...] = ()
    """Benchmarks that did not run."""
    tool_version: str = ""
    """Version of ci-bench; empty for the reading of another tool's file."""
    started_at: str = ""
    """Start of the run in ISO 8601; empty if unknown."""
    commit: str | None = None
    """Commit of the measured tree; `None` if unknown."""
    branch: str | None = None
    """Branch of the measured tree; `None` if unknown."""
    dirty: bool | None = None
    """True if the tree had uncommitted changes; `None` if unknown."""
    machine: Mapping[str, Fact] = field(default_factory=dict)
    """Facts that identify the machine, by name; empty if unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A text in some format, and the labels of the series that it cannot hold."""

    text: str
    left_out: tuple[str, ...] = ()


Files = Mapping[str, Written]
"""Output of a writer, by file name; the name is empty if there is one file."""

Exporter = Callable[[Results], Files]
"""Writes a results document in a form of a suite's own, which only such documents can be written
in.
"""


def one_file(written: Written) -> Files:
    """Return the files of an exporter that writes one."""
    return {"": written}


def from_results(results: Results) -> Export:
    """Convert all metrics of all cases.

    A benchmark is a case, with its arm if it has several; its main series is the step time.
    """
    never_ran = {Status.SKIPPED, Status.NOT_RUN}
    return Export(
        series=tuple(_series(row, metric) for row in results.cases for metric in row.metrics),
        failed=tuple(
            _absent(row) for row in results.cases if row.status not in {Status.OK, *never_ran}
        ),
        skipped=tuple(_absent(row) for row in results.cases if row.status in never_ran),
        tool_version=results.tool_version,
        started_at=results.run.started_at,
        commit=results.source.commit,
        branch=results.source.branch,
        dirty=results.source.dirty,
        machine=results.environment.identity,
    )


LARGEST = 1e290
"""Larger numbers of seconds overflow in nanoseconds; nothing measures them."""


def from_reading(reading: Reading) -> Export:
    """Convert the reading of another tool's file.

    A series with a number beyond `LARGEST` counts as failed.
    """
    huge = [
        series for series in reading.series if any(abs(value) > LARGEST for value in series.values)
    ]
    failed = [
        Absent(benchmark=series.label, reason=f"it holds a number beyond {LARGEST:g}")
        for series in huge
    ]
    writable = (
        tuple(series for series in reading.series if series not in huge) if huge else reading.series
    )
    return Export(series=writable, failed=(*reading.failed, *failed), skipped=reading.skipped)


def _absent(row: CaseResult) -> Absent:
    return Absent(
        benchmark=_name(row), reason=row.failure.reason if row.failure else row.status.value
    )


def _name(row: CaseResult) -> str:
    """Return the id of a case of ours, or another tool's name of its benchmark."""
    return row.case.title if row.case.suite == SUITE and row.case.title else row.case.id


def _main(row: CaseResult) -> set[str]:
    """Return the names of the main series.

    Of another tool's benchmark it is the first one, if that has such a name.
    """
    imported = (
        {metric.name for metric in row.metrics[:1]} & {*MAINS} if row.case.suite == SUITE else set()
    )
    return {MAIN, *imported}


def _series(row: CaseResult, metric: Metric) -> Series:
    name, several = _name(row), len(row.case.arms) > 1
    measure = metric.title if row.case.suite == SUITE and metric.title else metric.name
    return Series(
        benchmark=f"{name} ({metric.arm})" if several else name,
        measure="" if metric.name in _main(row) else measure,
        unit=metric.unit.value,
        better=metric.better,
        runs=tuple(launch.values for launch in metric.launches),
        warmups=tuple(launch.warmup for launch in metric.launches),
    )


def split_times(export: Export) -> tuple[tuple[tuple[str, Runs], ...], tuple[str, ...]]:
    """Return the times, by label and in seconds, and the labels of all other series."""
    times, rest = [], []
    for series in export.series:
        measured = interpret(series.unit)
        if measured.unit is Unit.SECONDS and series.values:
            times.append(
                (
                    series.label,
                    tuple(
                        tuple(value * measured.scale for value in run) for run in series.runs if run
                    ),
                )
            )
        else:
            rest.append(series.label)
    return tuple(times), tuple(rest)
