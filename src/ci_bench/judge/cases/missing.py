"""What a case that ended well should have brought and did not: each gap becomes a row, never a silence.

Owns what is expected of a case: what it says it owes, what its reference arm has, and what the baseline's run had.
How bad a gap is, the policy decides.
"""

from collections.abc import Callable, Iterator

from ci_bench.judge.cases.matching import Match
from ci_bench.records.case import Better, CaseResult, Check, Due, Lane, Outcome, Status, Unit
from ci_bench.records.comparison import Pair, Parity, ParityFinding, Verdict


def missing_metrics(match: Match, threshold: Callable[[str], float]) -> tuple[Pair, ...]:
    """A failed pair for every metric that an arm owes and neither side has; one that base has is `removed` already.

    `threshold` gives that of a metric.
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
            threshold=threshold(name),
        )
        for name, arm, unit, better, reason in _owed(match)
        if (name, arm) not in there
    )


def missing_checks(base: CaseResult | None, head: CaseResult) -> tuple[Check, ...]:
    """A failed check for every one that is owed and has no answer: what nobody looked at must not pass."""
    if head.status is not Status.OK:
        return ()
    owed = {(check.name, check.arm): "the baseline's run has one" for check in (base.checks if base else ())}
    owed |= {(name, arm): "every candidate arm owes one" for name in _due(base, head).checks for arm in _candidates(head)}
    answered = {(check.name, check.arm) for check in head.checks}
    return tuple(
        Check(name=name, arm=arm, outcome=Outcome.FAIL, detail=f"there is no answer, and {why}")
        for (name, arm), why in owed.items()
        if (name, arm) not in answered and arm in head.case.arms
    )


def missing_parity(base: CaseResult | None, head: CaseResult) -> tuple[ParityFinding, ...]:
    """A finding without data for every candidate arm, where parity is owed and there is no evidence at all."""
    owed = _due(base, head).parity or (base is not None and base.parity is not None)
    if head.status is not Status.OK or head.parity is not None or not owed:
        return ()
    detail = "no evidence on loss parity was gathered"
    verdict = Parity.INSUFFICIENT_DATA
    return tuple(
        ParityFinding(arm=arm, verdict=verdict, tier=None, masks=None, steps=0, detail=detail) for arm in _candidates(head)
    )


def _due(base: CaseResult | None, head: CaseResult) -> Due:
    """What either side's case says it owes: head cannot owe less than its base did."""
    dues = [side.case.due for side in (head, base) if side is not None]
    return Due(
        checks=tuple(dict.fromkeys(name for due in dues for name in due.checks)),
        times=tuple(dict.fromkeys(name for due in dues for name in due.times)),
        parity=any(due.parity for due in dues),
    )


def _candidates(head: CaseResult) -> tuple[str, ...]:
    return tuple(arm for arm in head.case.arms if arm != head.case.reference)


def _owed(match: Match) -> Iterator[tuple[str, str, Unit, Better, str]]:
    """Every metric that an arm of the case has to have: name, arm, unit, which way is better, and what is said of a gap.

    Details are owed by nobody, nor is the device's clock.
    """
    head = match.head
    times = _due(match.usable, head).times
    for name in times:
        reason = "not measured, and every arm owes it"
        yield from ((name, arm, Unit.SECONDS, Better.LOWER, reason) for arm in head.case.arms)
    for (name, owner), (metric, *_) in match.after.items():
        if owner == head.case.reference and metric.lane is not Lane.DEVICE and name not in {*times, *head.case.details}:
            reason = f"not measured, though {owner} was"
            yield from ((name, arm, metric.unit, metric.better, reason) for arm in _candidates(head))
