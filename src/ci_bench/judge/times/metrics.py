"""Conversion of lines to pairs: each metric of an arm, base against head, with verdict and reason.

Owns which rule applies to which metric, the rules for what is counted rather than sampled (numbers
of things, peaks of memory), and what happens to samples taken while the machine was disturbed
(`Block.doubt`): they are left out where enough others remain, and reported. Times are judged in
`screening` and `paired`; what a verdict means for the run is decided in `policy`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from ci_bench.judge import wording
from ci_bench.judge.times.pairing import (
    JudgedTimes,
    Line,
    MetricVerdict,
    is_exact,
    settled,
    undecided,
)
from ci_bench.judge.times.ratios import LARGEST, LEAST_LAUNCHES, Known, samples
from ci_bench.judge.times.suspicion import NoiseSource, Suspicion, suspicion_of_one
from ci_bench.records.comparison import Pair, Summary, Verdict
from ci_bench.records.metrics import LEAST_BYTES
from ci_bench.records.results import (
    Better,
    CaseResult,
    Check,
    Launch,
    Metric,
    Outcome,
    Results,
    Unit,
)

_RANGES = 2.0
REPEATS = 3
"""Launches of each side after which peaks that all lie within what counts as a change are
unchanged.
"""
_AGREES = 0.25
"""The share of what counts as a change by which two peaks may differ that need no second launch:
each repeats the other.
"""


def by_count(base: Metric, head: Metric, threshold: float) -> MetricVerdict:
    """Compare the worst counts of any launch: counts are exact."""
    worst = max if head.better is Better.LOWER else min
    before, after = worst(samples(base.launches)), worst(samples(head.launches))
    if min(*samples(base.launches), *samples(head.launches)) < 0:
        return _by_difference(base, head, threshold)
    speedup = _speedup(before, after, head.better)
    shown = wording.quantity(after, Unit.COUNT)
    reason = f"{wording.quantity(before, Unit.COUNT)} to {shown}"
    if max(before, after) <= min(before, after) * (1 + threshold):
        reason = f"{shown} on both sides" if before == after else f"{reason}, within the threshold"
        return MetricVerdict(
            verdict=Verdict.UNCHANGED, reason=reason, speedup=speedup, estimates=(before, after)
        )
    verdict = _direction(before, after, head.better)
    return MetricVerdict(verdict=verdict, reason=reason, speedup=speedup, estimates=(before, after))


def _by_difference(base: Metric, head: Metric, threshold: float) -> MetricVerdict:
    """Compare signed numbers, which have no ratio, by the difference of their medians.

    It counts beyond `threshold`, a share of the smaller one, and beyond twice the range of a side.
    """
    sides = [samples(metric.launches) for metric in (base, head)]
    before, after = (median(side) for side in sides)
    floor = threshold * min(abs(before), abs(after)) if before * after > 0 else 0.0
    noise = _RANGES * max(max(side) - min(side) for side in sides)
    reason = f"{wording.quantity(before, Unit.COUNT)} to {wording.quantity(after, Unit.COUNT)}"
    if abs(after - before) > max(floor, noise):
        verdict = _direction(before, after, head.better)
    elif noise <= floor:
        verdict, reason = Verdict.UNCHANGED, f"{reason}, within the threshold"
    else:
        verdict = Verdict.INCONCLUSIVE
        reason = f"{reason}; values of one side differ by up to {noise / _RANGES:.6g}"
    return MetricVerdict(verdict=verdict, reason=reason, estimates=(before, after))


def by_memory(
    base: Metric, head: Metric, threshold: float, *, least: float = LEAST_BYTES, gating: int = 0
) -> MetricVerdict:
    """Compare amounts of memory.

    Sides that repeat exactly are compared exactly; otherwise a change has to exceed twice the range
    within a side.

    A change counts beyond `threshold`, a share of the smaller side, and beyond `least` bytes.
    Single launches that agree within a quarter of that are unchanged: they repeat each other. The
    range of others is unknown; suspicion then follows from the prior, if the metric is one of
    `gating`. From `REPEATS` launches of each side on, peaks that all lie within what counts as a
    change are unchanged: an interpreter's arena of 1 MiB stays or goes by chance.
    """
    sides = [samples(metric.launches) for metric in (base, head)]
    before, after = (median(side) for side in sides)
    speedup = _speedup(before, after, head.better)
    floor = memory_floor(base, head, threshold, least)
    if min(map(len, sides)) < LEAST_LAUNCHES and abs(after - before) > _AGREES * floor:
        return _of_one_launch(
            before, after, speedup, threshold, gating if abs(after - before) > least else 0
        )
    noise = _RANGES * max(max(side) - min(side) for side in sides)
    reason = f"{wording.quantity(before, Unit.BYTES)} to {wording.quantity(after, Unit.BYTES)}"
    if abs(after - before) > max(floor, noise):
        share = "" if speedup is None else f", {wording.change(speedup, head.unit, head.better)}"
        return MetricVerdict(
            verdict=_direction(before, after, head.better),
            reason=f"{reason}{share}",
            speedup=speedup,
        )
    if noise <= floor or (min(map(len, sides)) >= REPEATS and lie_within(base, head, floor)):
        reason = f"{reason}, within {wording.quantity(floor, Unit.BYTES)}"
        return MetricVerdict(verdict=Verdict.UNCHANGED, reason=reason, speedup=speedup)
    unclear = (
        f"{reason}; launches of one side differ by up to"
        f" {wording.quantity(noise / _RANGES, Unit.BYTES)}"
    )
    reason = (
        f"{unclear}, so only changes of more than {wording.quantity(noise, Unit.BYTES)} would show"
    )
    return MetricVerdict(verdict=Verdict.INCONCLUSIVE, reason=reason, speedup=speedup)


def memory_floor(base: Metric, head: Metric, threshold: float, least: float) -> float:
    """Return the bytes by which the medians of the sides may differ without a change."""
    return max(least, threshold * min(median(samples(metric.launches)) for metric in (base, head)))


def lie_within(base: Metric, head: Metric, floor: float) -> bool:
    """Return whether all launches of both sides are within `floor` bytes of each other."""
    values = [*samples(base.launches), *samples(head.launches)]
    return max(values) - min(values) <= floor


def _of_one_launch(
    before: float, after: float, speedup: float | None, threshold: float, gating: int
) -> MetricVerdict:
    advice = "a peak of one launch may not repeat: measure at least 2 launches on each side"
    suspicion = Suspicion.NONE
    if gating and speedup is not None:
        suspicion = suspicion_of_one(
            -math.log(speedup), math.log1p(threshold), NoiseSource.RUNS, gating=gating
        )
    change = f"{wording.quantity(before, Unit.BYTES)} to {wording.quantity(after, Unit.BYTES)}"
    return undecided(suspicion, change=change, advice=advice, speedup=speedup)


def _speedup(before: float, after: float, better: Better) -> float | None:
    """Return the ratio, or `None` if one side is zero."""
    if before <= 0 or after <= 0:
        return None
    ratio = before / after if better is Better.LOWER else after / before
    return ratio if 0 < ratio < LARGEST else None


def _direction(before: float, after: float, better: Better) -> Verdict:
    improved = after < before if better is Better.LOWER else after > before
    return Verdict.IMPROVED if improved else Verdict.REGRESSED


CHECK = "undisturbed"
LEAST_SHARE = 0.5
"""If fewer of a launch's samples are undisturbed, all count: a machine may always be throttled."""

Doubts = dict[tuple[int, int], str]
"""Reasons, by launch and block."""


def in_turns(base: Results, head: Results) -> tuple[Results, Results]:
    """Return both sides of a paired run without the blocks that are doubtful on either."""
    doubts_by_case: dict[str, Doubts] = {}
    for row in (*base.cases, *head.cases):
        doubts_by_case.setdefault(row.case.id, {}).update(_doubts(row))
    return _settled(base, doubts_by_case), _settled(head, doubts_by_case)


def alone(results: Results) -> Results:
    """Return the metrics of a run without a base."""
    return _settled(results, {row.case.id: _doubts(row) for row in results.cases})


def _settled(results: Results, doubts_by_case: Mapping[str, Doubts]) -> Results:
    if not any(doubts_by_case.values()):
        return results
    rows = ((row, doubts_by_case[row.case.id]) for row in results.cases)
    return replace(
        results,
        cases=tuple(
            _report_doubts(_without(row, doubts), row, doubts) if doubts else row
            for row, doubts in rows
        ),
    )


def _doubts(row: CaseResult) -> Doubts:
    return {(block.launch, block.block): block.doubt for block in row.blocks if block.doubt}


def _without(row: CaseResult, doubts: Doubts) -> CaseResult:
    metrics = (
        replace(metric, launches=tuple(_cleared(launch, doubts) for launch in metric.launches))
        for metric in row.metrics
    )
    return replace(row, metrics=tuple(metrics))


def _cleared(launch: Launch, doubts: Doubts) -> Launch:
    clean = [
        place for place, block in enumerate(launch.blocks) if (launch.launch, block) not in doubts
    ]
    if len(launch.blocks) != len(launch.values) or len(clean) < LEAST_SHARE * len(launch.values):
        return launch
    return replace(
        launch,
        values=tuple(launch.values[place] for place in clean),
        blocks=tuple(launch.blocks[place] for place in clean),
    )


def _report_doubts(cleared: CaseResult, row: CaseResult, doubts: Doubts) -> CaseResult:
    """Add a check to the row if doubtful samples count."""
    counted = sorted({*_counted(cleared, row, doubts)})
    if not counted:
        return cleared
    reasons = sorted({reason for (launch, _), reason in doubts.items() if launch in counted})
    launches = ", ".join(map(str, counted))
    detail = f"most of launch {launches} was taken in doubt, and still counts: {'; '.join(reasons)}"
    check = Check(name=CHECK, arm=row.case.reference, outcome=Outcome.UNKNOWN, detail=detail)
    return replace(cleared, checks=(*cleared.checks, check))


def _counted(cleared: CaseResult, row: CaseResult, doubts: Doubts) -> Iterable[int]:
    """Yield the launches with a doubtful block whose samples were all kept."""
    for metric, before in zip(cleared.metrics, row.metrics, strict=True):
        for launch, original in zip(metric.launches, before.launches, strict=True):
            if launch is original and any(
                (original.launch, block) in doubts for block in original.blocks
            ):
                yield original.launch


SampledRule = Callable[[Sequence[Line], Known], JudgedTimes]
"""Judges all sampled metrics of a run together, in order; it receives the facts of all series."""


def judge_lines(
    lines: Sequence[Line], facts: Known, sampled: SampledRule
) -> tuple[list[Pair], JudgedTimes]:
    """Return the pair of each line, in order, and the findings of `sampled` over all its lines."""
    gating = sum(not line.detail for line in lines)
    settled_ones = [_without_statistics(line, facts, gating) for line in lines]
    judged = sampled(
        [line for line, outcome in zip(lines, settled_ones, strict=True) if outcome is None], facts
    )
    others = iter(judged.outcomes)
    pairs = [
        _pair(line, outcome or next(others), facts)
        for line, outcome in zip(lines, settled_ones, strict=True)
    ]
    assert next(others, None) is None  # noqa: S101 - only a bug of ours breaks it
    return pairs, replace(judged, outcomes=())


def _without_statistics(line: Line, facts: Known, gating: int) -> MetricVerdict | None:
    """Return the verdict of a line with nothing to compare, or with exact values."""
    if word := settled(line, facts):
        return MetricVerdict(verdict=word[0], reason=word[1])
    if not is_exact(line, facts):
        return None
    base, head = line.base[0], line.head[0]
    if head.unit is Unit.COUNT:
        return by_count(base, head, line.threshold)
    return by_memory(
        base, head, line.threshold, least=line.least, gating=0 if line.detail else gating
    )


def _pair(line: Line, outcome: MetricVerdict, facts: Known) -> Pair:
    metric = line.metric
    base_estimate, head_estimate = outcome.estimates or (None, None)
    return Pair(
        metric=metric.name,
        arm=metric.arm,
        unit=metric.unit,
        better=metric.better,
        verdict=outcome.verdict,
        reason=outcome.reason,
        threshold=max(0.0, line.threshold),
        base=_summary(line.base, facts, base_estimate),
        head=_summary(line.head, facts, head_estimate),
        speedup=outcome.speedup,
        interval=outcome.interval,
        items=metric.items,
        detail=line.detail,
        calibrated=outcome.calibrated,
        noise=outcome.noise,
        resolvable=outcome.resolvable,
        q=outcome.q,
        possible=outcome.possible,
        needed=outcome.needed,
        title=line.title,
    )


def _summary(metrics: tuple[Metric, ...], facts: Known, estimate: float | None) -> Summary | None:
    """Return the summary of a side that has its metric once; else `None`."""
    if len(metrics) != 1:
        return None
    return facts[id(metrics[0].launches)].summarised(estimate, signed=metrics[0].unit is Unit.COUNT)
