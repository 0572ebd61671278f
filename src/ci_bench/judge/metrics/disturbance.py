"""Samples that were taken while the machine was disturbed: left out where enough others remain, else told of.

Owns what a doubtful block of turns (`records.case.Block.doubt`) means for the samples taken in it. Comes before all else that
looks at samples, so that measuring, judging and learning see the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ci_bench.records.case import CaseResult, Check, Launch, Outcome
from ci_bench.records.results import Results

CHECK = "undisturbed"
LEAST_SHARE = 0.5
"""Where fewer of a launch's samples are above doubt, all count: a machine that is always throttled is measured all the same."""

Doubts = dict[tuple[int, int], str]
"""Why, by launch and block."""


def in_turns(base: Results, head: Results) -> tuple[Results, Results]:
    """Both sides of a paired run: a block that was doubtful on either is left out of both."""
    found: dict[str, Doubts] = {}
    for row in (*base.cases, *head.cases):
        found.setdefault(row.case.id, {}).update(_doubts(row))
    return _settled(base, found), _settled(head, found)


def alone(results: Results) -> Results:
    """A run by itself."""
    return _settled(results, {row.case.id: _doubts(row) for row in results.cases})


def _settled(results: Results, found: Mapping[str, Doubts]) -> Results:
    if not any(found.values()):
        return results
    rows = ((row, found[row.case.id]) for row in results.cases)
    return replace(results, cases=tuple(_told(_without(row, doubts), row, doubts) if doubts else row for row, doubts in rows))


def _doubts(row: CaseResult) -> Doubts:
    return {(block.launch, block.block): block.doubt for block in row.blocks if block.doubt}


def _without(row: CaseResult, doubts: Doubts) -> CaseResult:
    metrics = (replace(one, launches=tuple(_cleared(launch, doubts) for launch in one.launches)) for one in row.metrics)
    return replace(row, metrics=tuple(metrics))


def _cleared(launch: Launch, doubts: Doubts) -> Launch:
    kept = [place for place, block in enumerate(launch.blocks) if (launch.launch, block) not in doubts]
    if len(launch.blocks) != len(launch.values) or len(kept) < LEAST_SHARE * len(launch.values):
        return launch
    return replace(
        launch, values=tuple(launch.values[place] for place in kept), blocks=tuple(launch.blocks[place] for place in kept)
    )


def _told(cleared: CaseResult, row: CaseResult, doubts: Doubts) -> CaseResult:
    """The row with a check, where samples count although they are doubtful."""
    counted = sorted({*_counted(cleared, row, doubts)})
    if not counted:
        return cleared
    reasons = sorted({reason for (launch, _), reason in doubts.items() if launch in counted})
    launches = ", ".join(map(str, counted))
    detail = f"most of launch {launches} was taken in doubt, and counts all the same: {'; '.join(reasons)}"
    check = Check(name=CHECK, arm=row.case.reference, outcome=Outcome.UNKNOWN, detail=detail)
    return replace(cleared, checks=(*cleared.checks, check))


def _counted(cleared: CaseResult, row: CaseResult, doubts: Doubts) -> Iterable[int]:
    """The launches with a doubtful block whose samples were all kept."""
    for metric, before in zip(cleared.metrics, row.metrics, strict=True):
        for launch, whole in zip(metric.launches, before.launches, strict=True):
            if launch is whole and any((whole.launch, block) in doubts for block in whole.blocks):
                yield whole.launch
