"""Aggregates of a run as dashboards show them: by configuration, over the cases that both sides have. Pure, no torch.

A case passes that ended well and whose accuracy did. Speedup, compile time and compression are means over cases that pass on
every side and have the figure, so a model that is missing on one side cannot shift the mean of the other. A figure that is not
there is left out and not counted; never a zero in its place.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ci_bench.records.case import CaseResult, Outcome, Status

SUITE = "torchbench"
PEAKS = ("peak_allocated", "peak_rss")


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregate:
    """One figure and the number of cases in it; `None` where there is none."""

    value: float | None
    cases: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """One configuration (backend, mode, precision) of one side.

    `pass_rate` is a share in 0..1 of the shared cases, `speedup` and `compression` are geometric means of reference / candidate,
    `compile_cold_s` is an arithmetic mean in seconds. `only_here` counts cases that the other side does not have.
    """

    configuration: str
    pass_rate: Aggregate
    speedup: Aggregate
    compile_cold_s: Aggregate
    compression: Aggregate
    only_here: int


def summarise(rows: Iterable[CaseResult], other: Iterable[CaseResult] | None = None) -> tuple[Summary, ...]:
    """Summaries of one side by configuration, in their order; with an `other` side, over what both have."""
    mine = {row.case.id: row for row in rows if row.case.suite == SUITE}
    theirs = mine if other is None else {row.case.id: row for row in other if row.case.suite == SUITE}
    groups: dict[str, list[CaseResult]] = {}
    for row in mine.values():
        groups.setdefault(_configuration(row), []).append(row)
    return tuple(_summary(name, group, theirs) for name, group in groups.items())


def _summary(configuration: str, group: list[CaseResult], theirs: Mapping[str, CaseResult]) -> Summary:
    shared = [row for row in group if row.case.id in theirs]
    sound = [row for row in shared if passes(row) and passes(theirs[row.case.id])]

    def mean(figure: Callable[[CaseResult], float | None], combine: Callable[[list[float]], float]) -> Aggregate:
        values = [value for row in sound if (value := figure(row)) is not None and figure(theirs[row.case.id]) is not None]
        return Aggregate(value=combine(values) if values else None, cases=len(values))

    rate = sum(map(passes, shared)) / len(shared) if shared else None
    return Summary(
        configuration=configuration,
        pass_rate=Aggregate(value=rate, cases=len(shared)),
        speedup=mean(speedup, _geometric),
        compile_cold_s=mean(compile_cold_s, statistics.fmean),
        compression=mean(compression, _geometric),
        only_here=len(group) - len(shared),
    )


def passes(row: CaseResult) -> bool:
    """Whether a case ended well, and no check that counts failed."""
    return row.status is Status.OK and not any(one.outcome is Outcome.FAIL and not one.informative for one in row.checks)


def speedup(row: CaseResult) -> float | None:
    """Median step time of the reference over the candidate's."""
    return _ratio(row, "step_time")


def compression(row: CaseResult) -> float | None:
    """Peak memory of the reference over the candidate's, each alone in its process."""
    return next((ratio for peak in PEAKS if (ratio := _ratio(row, peak)) is not None), None)


def compile_cold_s(row: CaseResult) -> float | None:
    """Median compile latency of the candidate from a cold cache, in seconds."""
    return _median(row, "compile_cold", _candidate(row))


def _ratio(row: CaseResult, metric: str) -> float | None:
    reference, candidate = _median(row, metric, row.case.reference), _median(row, metric, _candidate(row))
    return reference / candidate if reference and candidate else None


def _median(row: CaseResult, metric: str, arm: str) -> float | None:
    found = [one for one in row.metrics if (one.name, one.arm) == (metric, arm)]
    values = [value for one in found for launch in one.launches for value in launch.values]
    return statistics.median(values) if values else None


def _candidate(row: CaseResult) -> str:
    return next((arm for arm in row.case.arms if arm != row.case.reference), row.case.reference)


def _geometric(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _configuration(row: CaseResult) -> str:
    return ", ".join(str(row.case.params.get(name)) for name in ("backend", "mode", "precision"))
