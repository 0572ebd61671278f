"""Checks of one case without base: candidate arms against the reference, and missing results.

Owns speedups and memory compression ratios within a run (arms share their launches, so what a
launch does to both cancels), and what is expected of a case: what it says it owes, what its
reference arm has, and what the baseline's run had. Each gap becomes a row, never a silence. How bad
a gap is, the policy decides.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ci_bench.judge.times import ratios
from ci_bench.judge.times.pairing import Keyed, Match, oriented, times_owed
from ci_bench.judge.times.ratios import Known
from ci_bench.records.comparison import (
    ArmSpeedup,
    Pair,
    Parity,
    ParityFinding,
    SpeedupChange,
    Verdict,
)
from ci_bench.records.config import MetricPolicy
from ci_bench.records.open_cases import SeriesName
from ci_bench.records.results import (
    SURROUNDINGS,
    UNTOUCHED,
    Better,
    CaseResult,
    Check,
    Due,
    Lane,
    Metric,
    Outcome,
    Status,
    Unit,
)

_MOST_AT_ONCE = 1_000
"""Cases in one go: memory stays bounded however many there are."""

Changes = Mapping[str, Mapping[SeriesName, SpeedupChange]]


class _Found(NamedTuple):
    """A metric that an arm shares with the reference arm, on head and, if base has it, on base."""

    case: int
    key: SeriesName
    reference: str
    head: tuple[Metric, Metric]
    base: tuple[Metric, Metric] | None


def arm_speedups(
    matches: Sequence[Match], facts: Known, changes: Changes, *, with_base: bool
) -> list[tuple[ArmSpeedup, ...]]:
    """Compute arm speedups of each case, in the metrics that an arm shares with the reference.

    They are times, rates and peaks of head and, `with_base`, of base too.

    `facts` are those of all series, `changes` whether head changed a speedup, from a paired run.
    """
    parts = (matches[at : at + _MOST_AT_ONCE] for at in range(0, len(matches), _MOST_AT_ONCE))
    return [of for part in parts for of in _arm_speedups(part, facts, changes, with_base=with_base)]


def _arm_speedups(
    matches: Sequence[Match], facts: Known, changes: Changes, *, with_base: bool
) -> Iterator[tuple[ArmSpeedup, ...]]:
    shared_metrics = [
        shared
        for case, match in enumerate(matches)
        for shared in _shared(case, match, with_base=with_base)
    ]
    measured = ratios.ratios(
        [oriented(*shared.head) for shared in shared_metrics], facts, paired=True
    )
    answers: list[list[ArmSpeedup]] = [[] for _ in matches]
    for shared, ratio in zip(shared_metrics, measured, strict=True):
        if ratio.value is not None:
            speedup = ArmSpeedup(
                metric=shared.key[0],
                arm=shared.key[1],
                reference=shared.reference,
                speedup=ratio.value,
                interval=ratio.interval,
                base_speedup=_earlier(shared.base, facts) if shared.base else None,
                change=changes.get(matches[shared.case].head.case.id, {}).get(shared.key),
            )
            answers[shared.case].append(speedup)
    return map(tuple, answers)


def _earlier(arms: tuple[Metric, Metric], facts: Known) -> float | None:
    numerator, denominator = oriented(*arms)
    return ratios.ratio_of_medians(facts[id(numerator)], facts[id(denominator)])


def _shared(case: int, match: Match, *, with_base: bool) -> Iterator[_Found]:
    reference = match.head.case.reference
    for key in match.after:
        if arms := _two_arms(match.after, key, reference):
            earlier = _two_arms(match.before, key, reference) if with_base else None
            yield _Found(case=case, key=key, reference=reference, head=arms, base=earlier)


def _two_arms(metrics: Keyed, key: SeriesName, reference: str) -> tuple[Metric, Metric] | None:
    """Return the metric of the reference arm and of another, if both have it once, and alike.

    Counts have no speedup.
    """
    anchors, candidates = metrics.get((key[0], reference), ()), metrics.get(key, ())
    if (
        key[1] == reference
        or len(anchors) != 1
        or len(candidates) != 1
        or anchors[0].unit is Unit.COUNT
    ):
        return None
    anchor, arm = anchors[0], candidates[0]
    alike = anchor.unit == arm.unit and anchor.better == arm.better and anchor.lane == arm.lane
    return (anchor, arm) if alike else None


def missing_metrics(match: Match, rules: Callable[[str], MetricPolicy]) -> tuple[Pair, ...]:
    """Return a failed pair for every metric that an arm owes and neither side has.

    A metric that base has is `removed` already. `rules` returns the settings of a metric.
    """
    if match.head.status is not Status.OK:
        return ()
    there = {*match.after, *match.before}
    return tuple(
        Pair(
            metric=name,
            arm=arm,
            unit=unit,
            better=better,
            verdict=Verdict.FAILED,
            reason=reason,
            threshold=rules(name).threshold,
            title=rules(name).title,
        )
        for name, arm, unit, better, reason in _owed(match)
        if (name, arm) not in there and rules(name).gates
    )


AFTER_A_CHANGE = frozenset({SURROUNDINGS, UNTOUCHED})
"""Checks that no good run has."""


OF_A_LONE_ARM, OF_ARMS = "fresh", "refereed"
"""A lone arm is checked separately; with other arms it is refereed instead."""


def missing_checks(base: CaseResult | None, head: CaseResult) -> tuple[Check, ...]:
    """Return a failed check for each that is due and was not carried out: unverified must not pass.

    A check that the baseline left unknown is not due: some checks only exist if something was in
    doubt, and then no answer from head is the better one.
    """
    if head.status is not Status.OK:
        return ()
    before = base.checks if base else ()
    answers = [
        check
        for check in before
        if check.outcome is not Outcome.UNKNOWN and check.name not in AFTER_A_CHANGE
    ]
    owed = {(check.name, check.arm): "the baseline's run has one" for check in answers}
    owed |= {
        (name, arm): "every candidate arm owes one"
        for name in _due(base, head).checks
        for arm in _candidates(head)
    }
    answered = {(check.name, check.arm) for check in head.checks}
    if base is not None and len(base.case.arms) == 1 < len(head.case.arms):
        refereed = [
            check.arm
            for check in head.checks
            if check.name == OF_ARMS and check.outcome is not Outcome.UNKNOWN
        ]
        answered |= {(OF_A_LONE_ARM, arm) for arm in refereed}
    return tuple(
        Check(name=name, arm=arm, outcome=Outcome.FAIL, detail=f"the answer is missing, and {why}")
        for (name, arm), why in owed.items()
        if (name, arm) not in answered and arm in head.case.arms
    )


def missing_parity(base: CaseResult | None, head: CaseResult) -> tuple[ParityFinding, ...]:
    """Return a finding without data for each candidate arm if parity is due but lacks evidence."""
    owed = _due(base, head).parity or (base is not None and base.parity is not None)
    if head.status is not Status.OK or head.parity is not None or not owed:
        return ()
    detail = "no evidence on loss parity was gathered"
    verdict = Parity.INSUFFICIENT_DATA
    return tuple(
        ParityFinding(arm=arm, verdict=verdict, tier=None, masks=None, steps=0, detail=detail)
        for arm in _candidates(head)
    )


def _due(base: CaseResult | None, head: CaseResult) -> Due:
    """Return what the case of either side owes: head cannot owe less than its base did."""
    dues = [side.case.due for side in (head, base) if side is not None]
    return Due(
        checks=tuple(dict.fromkeys(name for due in dues for name in due.checks)),
        parity=any(due.parity for due in dues),
    )


def _candidates(head: CaseResult) -> tuple[str, ...]:
    return tuple(arm for arm in head.case.arms if arm != head.case.reference)


def _owed(match: Match) -> Iterator[tuple[str, str, Unit, Better, str]]:
    """Yield every metric that an arm must have.

    Each item holds name, arm, unit, better direction, and the text for a gap.

    Details are not due, nor is the device's clock; nor are metrics that cannot gate.
    """
    head, candidates = match.head, _candidates(match.head)
    times = {arm: times_owed(head, match.usable, arm) for arm in head.case.arms}
    for arm, owed in times.items():
        reason = "not measured, and every arm owes it"
        yield from ((name, arm, Unit.SECONDS, Better.LOWER, reason) for name in owed)
    for (name, owner), (metric, *_) in match.after.items():
        if (
            owner == head.case.reference
            and metric.lane is not Lane.DEVICE
            and name not in head.case.details
        ):
            reason = f"not measured, though {owner} was"
            for arm in candidates:
                if name not in times[arm]:
                    yield name, arm, metric.unit, metric.better, reason
