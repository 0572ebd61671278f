"""What candidate arms must reach against their reference, whatever the baseline says: floors of speedup and of compression.

Owns which figure stands for an arm and when it is below. The floors are the policy's.
"""

import math
from collections.abc import Iterable, Iterator

from ci_bench.judge.wording import interval_text
from ci_bench.records.case import Status, Unit
from ci_bench.records.comparison import ArmSpeedup, CaseComparison
from ci_bench.records.policy import COMPILATION, Floor, Policy, fits

STEP_TIME = "step_time"
PEAKS = ("peak_allocated", "peak_reserved", "peak_rss")
"""The first of these that a case has is its peak of memory."""


def below_floors(case: CaseComparison, policy: Policy) -> Iterator[tuple[str, float]]:
    """Every arm of a case that ended well and is below a floor, or whose figure is missing: what is said, and how far below.

    An interval must lie below the floor as a whole; a figure without one (a single launch) must not lie below.
    """
    if case.head_status is not Status.OK:
        return
    speedups = {(found.metric, found.arm): found for found in case.speedups}
    for floor in Floor:
        limit = policy.floor(floor, suite=case.suite, case=case.id)
        if limit is None:
            continue
        for arm in case.arms:
            if arm != case.reference:
                yield from _below(floor, limit, arm, [(name, speedups.get((name, arm))) for name in _metrics(case, floor)])


def idle_patterns(cases: Iterable[CaseComparison], policy: Policy) -> Iterator[str]:
    """The patterns of the policy that no case of head's run fits: their floors hold nothing."""
    measured = [case.id for case in cases if case.head_status is not None]
    return (pattern for pattern in policy.cases if not any(fits(pattern, case) for case in measured))


def _below(floor: Floor, limit: float, arm: str, figures: list[tuple[str, ArmSpeedup | None]]) -> Iterator[tuple[str, float]]:
    if not figures:
        yield f"{arm}: no {floor} is known, and it must reach {limit:g}: nothing was measured for it", math.inf
    for metric, found in figures:
        if found is None:
            yield f"{arm}: no {floor} of {metric} is known, and it must reach {limit:g}", math.inf
        elif (found.interval.high if found.interval else found.speedup) < limit:
            seen = interval_text(found.interval) if found.interval else "no interval"
            said = f"{arm}: the {floor} of {metric} is {found.speedup:.3f} ({seen}), below the floor of {limit:g}"
            yield said, math.log(limit / found.speedup)


def _metrics(case: CaseComparison, floor: Floor) -> list[str]:
    """The metrics that stand for a case: its step time, else every time that gates; its first peak of memory."""
    if floor is Floor.COMPRESSION:
        names = {pair.metric for pair in case.pairs if pair.unit is Unit.BYTES}
        return [name for name in PEAKS if name in names][:1]
    times = [pair for pair in case.pairs if pair.unit in {Unit.SECONDS, Unit.PER_SECOND} and not pair.detail]
    names_of_times = list(dict.fromkeys(pair.metric for pair in times if not pair.metric.startswith(COMPILATION)))
    return [STEP_TIME] if STEP_TIME in names_of_times else names_of_times
