"""Head against base, case by case: pairs, arm speedups, parity and checks, each with a reason.

Owns when nothing can be compared, which rule judges times, and what makes a case's row. Which case
stands against which is in `pairing`, the verdict of one metric from `metrics`, the policy's from
`headline`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain, islice

from ci_bench.judge.owed import OTHER_WORK, PLACES, is_edited, other_work, reductions, successor
from ci_bench.judge.parity.verdict import learning_of, outputs_of, parity_findings
from ci_bench.judge.policy.causes import causes
from ci_bench.judge.policy.headline import judge
from ci_bench.judge.policy.rules import Compared, Scope
from ci_bench.judge.times.calibration import describe, learned
from ci_bench.judge.times.cases import arm_speedups, missing_checks, missing_metrics, missing_parity
from ci_bench.judge.times.devices import slots_of
from ci_bench.judge.times.metrics import SampledRule, alone, in_turns, judge_lines
from ci_bench.judge.times.paired import SlotsOfCases, judge_turns, turns_of
from ci_bench.judge.times.pairing import JudgedTimes, Line, Match, Matching, case_verdict, known_of
from ci_bench.judge.times.ratios import Known
from ci_bench.judge.times.screening import screen
from ci_bench.judge.times.sequential import SequentialRule
from ci_bench.records.acceptance import Acceptance
from ci_bench.records.calibration import Calibration
from ci_bench.records.comparison import (
    ArmSpeedup,
    BaselineMode,
    CaseComparison,
    ComparedSide,
    Comparison,
    Mismatch,
    Pair,
    Pairing,
    Parity,
    ParityFinding,
    Verdict,
)
from ci_bench.records.config import Policy
from ci_bench.records.metrics import IMPORTED
from ci_bench.records.outputs import OutputsFinding, Sameness
from ci_bench.records.results import (
    SETUP,
    SURROUNDINGS,
    Case,
    CaseResult,
    Check,
    Environment,
    Outcome,
    ParityEvidence,
    Results,
    Role,
    Status,
)

NOT_RECORDED = "not recorded"


def compare(
    *,
    base: Results | None,
    head: Results,
    policy: Policy,
    mode: BaselineMode,
    absence: str | None,
    tool_version: str,
    calibration: Calibration | None = None,
    now: datetime | str | None = None,
    rule: SequentialRule | None = None,
    scope: Scope = Scope(),  # noqa: B008 - frozen
    accepted: tuple[Acceptance, ...] = (),
) -> Comparison:
    """Compare two runs under `policy`, or judge only head if base is missing (`absence` says why).

    Of a paired run, `calibration` holds past runs of unchanged code, `now` is when they are old
    (else head's start), `rule` decided on the launches. `scope` is by `binding`; `accepted` changes
    count.

    Raises:
        BadInput: `now` is not a moment of time.
    """
    unready = tuple(_unready(base, head))
    mismatches, across = _differences(base, head, policy) if base and not unready else ((), ())
    paired = mode is BaselineMode.PAIRED
    base, head = in_turns(base, head) if base and paired else (base and alone(base), alone(head))
    same_rules = paired or (base is not None and base.tool_version == head.tool_version)
    has_base, barrier = base is not None, _barrier(mismatches)
    matching = Matching(
        policy=policy, paired=paired, has_base=has_base, barrier=barrier, same_rules=same_rules
    )
    identity, since = head.environment.identity, now or head.run.started_at
    sampled: SampledRule = partial(screen, drift=policy.drift_of(identity.get("device")))
    if paired:
        sampled = _in_turns(
            *describe(calibration, identity), since, rule or SequentialRule(), slots_of(head)
        )
    cases, judged = _cases(
        matching, base.cases if base else (), head.cases, sampled, with_base=not mismatches
    )
    compared = Compared(
        mode=mode,
        head=_side(head),
        base=_side(base) if base else None,
        absence=None if base else (absence or "no baseline was given"),
        mismatches=mismatches,
        across=across,
        cases=cases,
        shifts=judged.shifts,
        scope=scope,
        unready=unready,
        accepted=accepted,
    )
    pairing = judged.pairing and replace(judged.pairing, lost=len(head.losses))
    return _judged(compared, policy, tool_version=tool_version, pairing=pairing)


def _judged(
    compared: Compared, policy: Policy, *, tool_version: str, pairing: Pairing | None
) -> Comparison:
    return Comparison(
        tool_version=tool_version,
        mode=compared.mode,
        head=compared.head,
        base=compared.base,
        absence=compared.absence,
        mismatches=compared.mismatches,
        across=compared.across,
        cases=compared.cases,
        shifts=compared.shifts,
        pairing=pairing,
        judgement=judge(compared, policy),
    )


def _differences(
    base: Results, head: Results, policy: Policy
) -> tuple[tuple[Mismatch, ...], tuple[Mismatch, ...]]:
    """Return differences of identity that prevent a comparison, and those that `policy` accepts."""
    different = find_mismatches(base.environment, head.environment)
    mismatches = tuple(
        mismatch for mismatch in different if mismatch.field not in policy.compare_across
    )
    return mismatches, tuple(
        mismatch for mismatch in different if mismatch.field in policy.compare_across
    )


def _unready(base: Results | None, head: Results) -> Iterator[str]:
    """Yield the reason for each side that could not be set up; one for both if it is the same."""
    reasons = {}
    for name, side in (("base", base), ("head", head)):
        failures = (
            [row.failure for row in side.cases if row.status is Status.FAILED] if side else []
        )
        setup_reasons = [
            failure.reason for failure in failures if failure is not None and failure.stage == SETUP
        ]
        if side and side.cases and len(setup_reasons) == len(side.cases):
            reasons[name] = setup_reasons[0]
    if len(reasons) > 1 and len({*reasons.values()}) == 1:
        yield f"neither base nor head could be set up: {reasons['base']}"
        return
    yield from (f"{name} could not be set up: {reason}" for name, reason in reasons.items())


def find_mismatches(base: Environment, head: Environment) -> tuple[Mismatch, ...]:
    """Return the fields of the identities that differ, or that only one side recorded, by name.

    Two machines of which nothing is known are not the same machine.
    """
    sides = (base.identity, head.identity)
    if not sides[0] and not sides[1]:
        return (Mismatch(field="identity", base=NOT_RECORDED, head=NOT_RECORDED),)
    facts = {
        field: [side.get(field, NOT_RECORDED) for side in sides]
        for field in sorted({*sides[0], *sides[1]})
    }
    return tuple(
        Mismatch(field=field, base=of_base, head=of_head)
        for field, (of_base, of_head) in facts.items()
        if of_base != of_head
    )


def _barrier(mismatches: tuple[Mismatch, ...]) -> str | None:
    return (
        f"the runs differ in {', '.join(mismatch.field for mismatch in mismatches)}"
        if mismatches
        else None
    )


def _in_turns(
    calibration: Calibration | None,
    words: str,
    now: datetime | str,
    rule: SequentialRule,
    slots: SlotsOfCases,
) -> SampledRule:
    """Return the rule for a paired run: launch by launch, with the calibrated noise."""

    def judged(lines: Sequence[Line], _: Known) -> JudgedTimes:
        history = learned(calibration, [line.key for line in lines], now=now)
        return judge_turns(turns_of(lines, history, rule, slots), calibration=words)

    return judged


def _side(results: Results) -> ComparedSide:
    return ComparedSide(
        run=results.run,
        source=results.source,
        environment=results.environment,
        tool_version=results.tool_version,
    )


def _cases(
    matching: Matching,
    before: Sequence[CaseResult],
    after: Sequence[CaseResult],
    sampled: SampledRule,
    *,
    with_base: bool,
) -> tuple[tuple[CaseComparison, ...], JudgedTimes]:
    """Return a row for each case of either side, and the verdicts over all metrics.

    Lines of many metrics are large, and so are their facts: each is released after its last use.
    """
    matched, removed = matching.matches(before, after), matching.removed(before, after)
    matches, gone = [match for match, _ in matched], [result for result, _ in removed]
    of_cases = [case_lines for _, case_lines in (*matched, *removed)]
    lines, numbers = list(chain.from_iterable(of_cases)), list(map(len, of_cases))
    del matched, removed, of_cases
    facts = known_of(lines)
    pairs, judged = judge_lines(lines, facts, sampled)
    del lines
    speedups = arm_speedups(matches, facts, judged.changes, with_base=with_base)
    del facts
    remaining = iter(pairs)
    by_case = [tuple(islice(remaining, number)) for number in numbers]
    rows = [
        _case(matching, *parts)
        for parts in zip(matches, by_case[: len(matches)], speedups, strict=True)
    ]
    planned = {result.case.id for result in before}
    added = [result.case for result in after if result.case.id not in planned]
    return (
        *rows,
        *(_removed(*parts, added) for parts in zip(gone, by_case[len(matches) :], strict=True)),
    ), judged


def _case(
    matching: Matching,
    match: Match,
    judged_pairs: tuple[Pair, ...],
    speedups: tuple[ArmSpeedup, ...],
) -> CaseComparison:
    head, usable = match.head, match.usable
    gaps = missing_metrics(
        match, lambda metric: matching.policy.of_metric(suite=head.case.suite, metric=metric)
    )
    pairs = (*judged_pairs, *gaps)
    verdict, reason = case_verdict(match.base, head, pairs, match.new_reason)
    learning = learning_of(usable, head)
    outputs = (
        None
        if matching.barrier
        else (outputs_of(match.base, head) or _of_other_code(match.base, head))
    )
    sure = partial(_is_sure, head)
    return CaseComparison(
        id=head.case.id,
        suite=head.case.suite,
        verdict=verdict,
        reason=reason,
        base_status=match.base.status if match.base else None,
        head_status=head.status,
        reproduce=head.reproduce,
        log_tail=head.failure.log_tail if head.failure else "",
        pairs=pairs,
        speedups=speedups,
        checks=(
            *(_counted(check, match.base, head) for check in head.checks),
            *missing_checks(usable, head),
        ),
        parity=(*filter(sure, _parity(head)), *missing_parity(usable, head)),
        learning=learning if learning and sure(learning) else None,
        outputs=outputs if outputs and sure(outputs) else None,
        base_faults=_own_faults(usable, head) if usable else (),
        reduced=_reduced(matching, match.base, head),
        facts=head.facts,
        arms=head.case.arms,
        reference=head.case.reference,
        launch_s=_launch_s(head, match.base if matching.paired else None),
        title=head.case.title,
        causes=causes(usable, head, pairs),
        edited=match.base is not None
        and head.case.suite != IMPORTED
        and is_edited(match.base.case, head.case),
    )


def _reduced(matching: Matching, base: CaseResult | None, head: CaseResult) -> tuple[str, ...]:
    """List what head owes less than base, and in a paired run different work under the same id.

    A saved baseline is of an earlier commit, whose change of work was accepted since.
    """
    if base is None or not matching.same_rules:
        return ()
    work = other_work(base, head) if matching.paired and not matching.barrier else ()
    return (*reductions(base, head.case), *(f"{OTHER_WORK}: {clause}" for clause in work))


_BEFORE_SURE = ("prepare", "size", "verify", "seeds", "rounding")
"""The stages after which a training or an output that differs is known to differ: more of rounding
may be measured in them.
"""


def _is_sure(head: CaseResult, finding: ParityFinding | OutputsFinding) -> bool:
    """Return whether a finding is final.

    If the budget cut a case short, it is final if parity holds, or if it is broken and everything
    was verified.
    """
    if not head.out_of_budget:
        return True
    verified = head.failure is not None and head.failure.stage not in _BEFORE_SURE
    broken = (
        finding.verdict is Sameness.CHANGED
        if isinstance(finding, OutputsFinding)
        else finding.verdict.broken
    )
    return finding.verdict.holds or (verified and broken)


def _of_other_code(base: CaseResult | None, head: CaseResult) -> OutputsFinding | None:
    """Return a finding that two benchmarks of different code may do different work.

    `None` if the code is the same, or unknown.
    """
    if base is None or head.case.suite not in PLACES or not is_edited(base.case, head.case):
        return None
    detail = (
        "the benchmark's own code differs from base's, and it returns nothing to compare: it may do"
        " other work"
    )
    return OutputsFinding(
        arm=head.case.reference, verdict=Sameness.UNKNOWN, detail=detail, tensors=0
    )


def _launch_s(head: CaseResult, base: CaseResult | None) -> float | None:
    """Return the seconds per launch on the sides measured in this run; `None` if unknown."""
    launches = max((len(metric.launches) for metric in head.metrics), default=0)
    spent = [side.duration_s for side in (head, base) if side is not None]
    durations = [seconds for seconds in spent if seconds is not None]
    return (
        sum(durations) / launches
        if launches and durations and len(durations) == len(spent)
        else None
    )


def _counted(check: Check, base: CaseResult | None, head: CaseResult) -> Check:
    """Make a check count that the case owes or that counts in the baseline.

    A change that both sides' code makes to all arms alike is only informative.
    """
    if base is not None and _is_of_both(check, base):
        return replace(check, informative=True)
    if not check.informative:
        return check
    before = (
        {
            (base_check.name, base_check.arm)
            for base_check in base.checks
            if not base_check.informative
        }
        if base
        else set()
    )
    owed = check.name in head.case.due.checks or (check.name, check.arm) in before
    return replace(check, informative=False) if owed else check


def _is_of_both(check: Check, other: CaseResult) -> bool:
    """Return whether the other side's code changes all arms alike, which was accepted there."""
    return check.name == SURROUNDINGS and any(
        (other_check.name, other_check.arm, other_check.detail)
        == (check.name, check.arm, check.detail)
        for other_check in other.checks
    )


def _removed(base: CaseResult, pairs: tuple[Pair, ...], added: Sequence[Case]) -> CaseComparison:
    """Return the row of a case that only base has.

    One of the cases that head has `added` may be its new name.
    """
    renamed = successor(base.case, added)
    offer = f"; renamed to {_short(renamed)}?" if renamed else ""
    return CaseComparison(
        id=base.case.id,
        suite=base.case.suite,
        verdict=Verdict.REMOVED,
        reason=f"{_short(base.case)} is gone: base has it, and head does not{offer}",
        base_status=base.status,
        head_status=None,
        reproduce=base.reproduce,
        pairs=pairs,
        facts=base.facts,
        arms=base.case.arms,
        reference=base.case.reference,
        title=base.case.title,
    )


def _short(case: Case) -> str:
    """Return the case's id without its suite, or an imported case's title."""
    return (case.title if case.suite == IMPORTED else "") or case.id.partition("/")[2] or case.id


def _parity(result: CaseResult) -> tuple[ParityFinding, ...]:
    """Judge the loss parity of every candidate arm.

    A run of another arm does not count as a reference.
    """
    if result.parity is None:
        return ()
    reference = result.case.reference
    candidates = tuple(arm for arm in result.case.arms if arm != reference)
    return parity_findings(_of_arms(result.parity, reference), arms=candidates)


def _of_arms(evidence: ParityEvidence, reference: str) -> ParityEvidence:
    candidates = {Role.CANDIDATE, Role.RESUMED}
    traces = tuple(
        trace for trace in evidence.traces if trace.role in candidates or trace.arm == reference
    )
    return replace(
        evidence,
        traces=traces,
        twin=None if evidence.twin is None else _of_arms(evidence.twin, reference),
        without_dropout=(
            None
            if evidence.without_dropout is None
            else _of_arms(evidence.without_dropout, reference)
        ),
    )


def _own_faults(base: CaseResult, head: CaseResult) -> tuple[str, ...]:
    """List faults of the baseline's own run: its figures may be those of another computation."""
    counting = (
        check for check in base.checks if not check.informative and not _is_of_both(check, head)
    )
    failed = (check for check in counting if check.outcome is Outcome.FAIL)
    weak = Parity.INSUFFICIENT_SENSITIVITY  # earlier versions trained no control
    deviating = (
        finding
        for finding in _parity(base)
        if not (finding.verdict.holds or finding.verdict is weak or base.out_of_budget)
    )
    return (
        *(f"{check.name} ({check.arm}) failed: {check.detail}" for check in failed),
        *(
            f"{finding.arm}: loss parity {finding.verdict.value.replace('_', ' ')}:"
            f" {finding.detail}"
            for finding in deviating
        ),
    )
