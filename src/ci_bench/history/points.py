"""Conversion of a run's results to its record, and of many records to one history. Pure.

Owns what a run's number is: for times, the mean over the launches of the trimmed mean of the
logarithms within each; for anything else the plain mean. A launch is what is replicated, so the
error is that of a mean of launches.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ci_bench.judge.times.calibration import fingerprint, instant
from ci_bench.judge.times.noise import Floats, trimmed_mean
from ci_bench.records.history import LARGEST, Entry, History, HistoryMachine, Points
from ci_bench.records.results import CaseResult, Metric, Results, RunState, Status
from ci_bench.records.units import TIMES

_AT_REST = {Status.OK, Status.SKIPPED}

Key = tuple[str, str, str, str, str, str]
"""Key of a series: case, metric, arm, unit, direction, lane."""


def record_of(results: Results, *, url: str | None = None, report: str | None = None) -> History:
    """Convert results to the record of one run; `url` and `report` are the addresses of both."""
    run, identity = results.run, dict(results.environment.identity)
    entry = Entry(
        id=run.id,
        at=run.started_at,
        machine=0,
        tool_version=results.tool_version,
        commit=results.source.commit,
        branch=results.source.branch,
        dirty=results.source.dirty,
        partial=run.state is RunState.PARTIAL,
        failed=sum(row.status not in _AT_REST for row in results.cases),
        url=url,
        report=report,
    )
    points = (
        _points(row, metric)
        for row in results.cases
        if row.status is Status.OK
        for metric in row.metrics
    )
    return History(
        tool_version=results.tool_version,
        machines=(HistoryMachine(fingerprint=fingerprint(identity), identity=identity),),
        runs=(entry,),
        series=tuple(series for series in points if series is not None),
    )


def _points(row: CaseResult, metric: Metric) -> Points | None:
    """Convert one metric of the run to a series of one value.

    `None` if its samples cannot be averaged.
    """
    launches = [
        np.asarray(launch.values, dtype=np.float64) for launch in metric.launches if launch.values
    ]
    timed = metric.unit in TIMES
    if not launches or not all(_usable(values, timed=timed) for values in launches):
        return None
    if timed:
        means = np.array([float(trimmed_mean(np.log(values))) for values in launches])
        value, spread = (
            math.exp(float(means.mean())),
            (float(means.std(ddof=1)) if len(means) > 1 else None),
        )
    else:
        means = np.array([values.mean() for values in launches])
        value = float(means.mean())
        spread = float(means.std(ddof=1)) / abs(value) if len(means) > 1 and value else None
    error = None if spread is None else float(f"{spread / math.sqrt(len(means)):.2g}")
    return Points(
        case=row.case.id,
        suite=row.case.suite,
        metric=metric.name,
        arm=metric.arm,
        unit=metric.unit,
        better=metric.better,
        lane=metric.lane,
        runs=(0,),
        values=(float(f"{value:.6g}"),),
        errors=(error,),
    )


def _usable(values: Floats, *, timed: bool) -> bool:
    return bool(np.all(np.abs(values) < LARGEST)) and not (timed and bool(np.any(values <= 0)))


def joined(parts: Iterable[History], *, tool_version: str) -> History:
    """Merge all runs of all parts, oldest first, each run once, from the first part that holds it.

    A run is the same if its id and its machine are the same.
    """
    machines: dict[str, HistoryMachine] = {}
    entries: dict[tuple[str, str], Entry] = {}
    cells: dict[Key, list[tuple[tuple[str, str], float, float | None]]] = {}
    shape: dict[Key, Points] = {}
    for part in parts:
        names = [(part.machines[run.machine].fingerprint, run.id) for run in part.runs]
        new = {name for name in names if name not in entries}
        for name, run in zip(names, part.runs, strict=True):
            if name in new:
                entries[name] = run
                machines.setdefault(name[0], part.machines[run.machine])
        for series in part.series:
            key = key_of(series)
            shape.setdefault(key, series)
            row = cells.setdefault(key, [])
            row += [
                (names[run], value, error)
                for run, value, error in zip(series.runs, series.values, series.errors, strict=True)
                if names[run] in new
            ]
    order = sorted(entries, key=lambda name: (instant(entries[name].at), name))
    place = {name: index for index, name in enumerate(order)}
    ranks = {digest: index for index, digest in enumerate(machines)}
    rows = (
        _row(shape[key], [(place[name], value, error) for name, value, error in cells[key]])
        for key in sorted(cells)
    )
    return History(
        tool_version=tool_version,
        machines=tuple(machines.values()),
        runs=tuple(replace(entries[name], machine=ranks[name[0]]) for name in order),
        series=tuple(row for row in rows if row.runs),
    )


def key_of(series: Points) -> Key:
    """Return the key of this series."""
    return series.case, series.metric, series.arm, series.unit, series.better, series.lane


def _row(shape: Points, cells: Sequence[tuple[int, float, float | None]]) -> Points:
    columns = tuple(zip(*sorted(cells, key=lambda cell: cell[0]), strict=True)) or ((), (), ())
    return replace(shape, runs=columns[0], values=columns[1], errors=columns[2])


def chosen(history: History, runs: Sequence[int]) -> History:
    """Select some of a history's runs (places, ascending), with their machines and series."""
    place = {run: index for index, run in enumerate(runs)}
    used = sorted({history.runs[run].machine for run in runs})
    rank = {machine: index for index, machine in enumerate(used)}
    rows = [
        _row(
            series,
            [(place[run], value, error) for run, value, error in _cells(series) if run in place],
        )
        for series in history.series
    ]
    return replace(
        history,
        machines=tuple(history.machines[machine] for machine in used),
        runs=tuple(
            replace(history.runs[run], machine=rank[history.runs[run].machine]) for run in runs
        ),
        series=tuple(row for row in rows if row.runs),
    )


def _cells(series: Points) -> Iterable[tuple[int, float, float | None]]:
    return zip(series.runs, series.values, series.errors, strict=True)
