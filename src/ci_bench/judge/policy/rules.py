"""Findings of a comparison under the policy's rules: rule, severity and a sentence for each.

Owns which observation falls under which rule, and the order of findings. Floors and implausible
figures are in `plausibility`; `headline` decides the consequences for the run.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ci_bench.judge.owed import OTHER_WORK
from ci_bench.judge.policy.accepting import settle_learning, settle_metric, settle_outputs, unused
from ci_bench.judge.policy.plausibility import below_floors, beyond_belief, implausible
from ci_bench.judge.policy.sizes import training_distance
from ci_bench.judge.policy.undecided import few, short, undecided
from ci_bench.judge.times.pairing import OTHER_BODY
from ci_bench.judge.wording import change_size, count_of, effect_rank, place
from ci_bench.records.acceptance import Acceptance
from ci_bench.records.comparison import (
    BaselineMode,
    CaseComparison,
    CommonShift,
    ComparedSide,
    Finding,
    Mismatch,
    Pair,
    Parity,
    ParityFinding,
    Verdict,
    tally,
)
from ci_bench.records.config import Policy, Rule, Severity, fits
from ci_bench.records.metrics import ENGINE, IMPORTED, REPLACED
from ci_bench.records.outputs import OutputsFinding, Sameness
from ci_bench.records.results import WITHIN_BUDGET, Check, Outcome, RunState, Status


def idle_patterns(cases: Iterable[CaseComparison], policy: Policy) -> Iterator[str]:
    """Return the patterns of the policy that no case of head's run fits."""
    measured = [case.id for case in cases if case.head_status is not None]
    return (
        pattern for pattern in policy.cases if not any(fits(pattern, case) for case in measured)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """Differences between measured and requested cases, a sentence for each, from `binding`.

    `narrowed` is what a workflow's flags narrow or move, `undeclared` the suites whose cases are
    not declared.
    """

    narrowed: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A comparison that has not been judged yet."""

    mode: BaselineMode
    """Source of the baseline."""
    head: ComparedSide
    """Run, machine and version of head."""
    base: ComparedSide | None
    """The same of base; `None` without a baseline."""
    absence: str | None
    """Reason why the baseline is missing; `None` if it is not."""
    mismatches: tuple[Mismatch, ...]
    """Differences of the machines that prevent a comparison."""
    across: tuple[Mismatch, ...] = ()
    """Differences of the machines that the policy allows."""
    cases: tuple[CaseComparison, ...]
    """Rows of all cases, removed ones last."""
    shifts: tuple[CommonShift, ...] = ()
    """Common shift of the times of each suite."""
    scope: Scope = Scope()
    """Differences between measured and requested cases."""
    unready: tuple[str, ...] = ()
    """A sentence for each side that could not be set up, so nothing was measured."""
    accepted: tuple[Acceptance, ...] = ()
    """Entries for intended changes that count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """A finding without severity."""

    rule: Rule
    """Rule that sets the severity."""
    message: str
    """Sentence for the report."""
    case: str | None = None
    """Id of the case; `None` for a finding on the run or a suite."""
    suite: str | None = None
    """Suite whose policy applies; `None` for a finding on the run."""
    size: float = 0.0
    """Size of the effect, largest first, to order observations of equal rank."""
    rank: int = 0
    """Order within a rule: times come before memory, memory before counts."""


_PAIR_RULES = {
    Verdict.REGRESSED: Rule.REGRESSED,
    Verdict.SUSPECTED: Rule.SUSPECTED,
    Verdict.INCONCLUSIVE: Rule.INCONCLUSIVE,
    Verdict.INCOMPARABLE: Rule.INCOMPARABLE,
    Verdict.REMOVED: Rule.METRIC_REMOVED,
    Verdict.FAILED: Rule.METRIC_MISSING,
}
_SHIFT_RULES = {Verdict.REGRESSED: Rule.COMMON_SHIFT, Verdict.INCONCLUSIVE: Rule.INCONCLUSIVE}
_CHECK_RULES = {Outcome.FAIL: Rule.CHECK_FAILED, Outcome.UNKNOWN: Rule.CHECK_UNKNOWN}
_OWN_RULES = {"witnessed": Rule.CLOCK_DISAGREES}
"""Names of failures of checks that have their own name."""
_STEADY = "steady"
_OF_THE_MACHINE = frozenset({_STEADY, "undisturbed"})
"""Checks for a quiet machine; the metrics report what noise leaves undecided."""
_DECIDED = frozenset({Verdict.IMPROVED, Verdict.UNCHANGED, Verdict.REGRESSED})
_STATUS_RULES = {Status.SKIPPED: Rule.CASE_SKIPPED, Status.NOT_RUN: Rule.CASE_NOT_RUN}


def find(compared: Compared, policy: Policy) -> tuple[Finding, ...]:
    """Return all findings: failing ones first, then by rule, the largest effect of a rule first."""
    severities, rules = list(Severity), list(Rule)
    observations = [
        (observation, policy.severity(observation.rule, suite=observation.suite))
        for observation in _observations(compared, policy)
    ]
    observations.sort(
        key=lambda pair: (
            severities.index(pair[1]),
            rules.index(pair[0].rule),
            pair[0].rank,
            -pair[0].size,
        )
    )
    return tuple(
        Finding(
            rule=observation.rule,
            severity=severity,
            message=observation.message,
            case=observation.case,
        )
        for observation, severity in observations
    )


def measured(case: CaseComparison) -> bool:
    """Return whether head has any usable measurement of the case: a metric, or training steps."""
    return any(pair.head for pair in case.pairs) or any(finding.steps for finding in case.parity)


def out_of_budget(case: CaseComparison) -> bool:
    """Return whether the budget ran out before the case's first launch was complete.

    That is not a fault of the code, and gives no answer.
    """
    return case.head_status is Status.NOT_RUN and any(
        check.name == WITHIN_BUDGET for check in case.checks
    )


def _observations(compared: Compared, policy: Policy) -> Iterator[Observation]:
    if compared.unready:
        for message in compared.unready:
            yield Observation(rule=Rule.CASE_FAILED, message=message)
        return
    yield from _of_run(compared)
    yield from _of_undecided(compared)
    for case in compared.cases:
        yield from _of_case(case, compared)
        for message, size in below_floors(case, policy):
            yield Observation(
                rule=Rule.BELOW_FLOOR, message=message, case=case.id, suite=case.suite, size=size
            )
        for message, size in implausible(case, policy):
            yield Observation(
                rule=Rule.IMPLAUSIBLE, message=message, case=case.id, suite=case.suite, size=size
            )
        for message, size in beyond_belief(case, policy):
            yield Observation(
                rule=Rule.CHECK_UNKNOWN, message=message, case=case.id, suite=case.suite, size=size
            )
    for message in unused(compared.accepted, compared.cases):
        yield Observation(rule=Rule.ACCEPTANCE_UNUSED, message=message)
    for pattern in idle_patterns(compared.cases, policy):
        message = (
            f"policy.cases: no case of this run fits {pattern!r}, so it sets nothing apart; correct"
            " it, or take it out"
        )
        yield Observation(rule=Rule.CHECK_UNKNOWN, message=message)


def _of_run(compared: Compared) -> Iterator[Observation]:
    planned = [case for case in compared.cases if case.head_status is not None]
    if not planned:
        yield Observation(
            rule=Rule.EMPTY_RUN, message="no case was planned, so nothing was measured"
        )
    elif all(case.head_status is Status.SKIPPED for case in planned):
        message = (
            f"nothing was measured: {count_of(len(planned), 'case')} planned, and all were skipped"
        )
        yield Observation(rule=Rule.EMPTY_RUN, message=message)
    if compared.head.run.state is RunState.PARTIAL:
        yield Observation(
            rule=Rule.PARTIAL_RUN,
            message="the run did not come to its end: what follows is only a part of it",
        )
    for message in compared.scope.narrowed:
        yield Observation(rule=Rule.NARROWED, message=message)
    for message in compared.scope.undeclared:
        yield Observation(rule=Rule.CASES_UNDECLARED, message=message)
    yield from _of_baseline(compared)
    yield from _of_new(compared)
    yield from _of_machines(compared)
    yield from _of_replaced(compared.cases)
    for shift in compared.shifts:
        if rule := _SHIFT_RULES.get(shift.verdict):
            yield Observation(
                rule=rule,
                message=shift.reason,
                suite=shift.suite,
                size=abs(math.log(shift.speedup)),
            )


def _of_baseline(compared: Compared) -> Iterator[Observation]:
    """Yield a requested baseline that is missing, or that shares no case with head."""
    if compared.base is not None and compared.base.run.state is RunState.PARTIAL:
        yield Observation(
            rule=Rule.BASELINE_FAILED, message="the baseline's run did not come to its end"
        )
    if compared.base is None and compared.mode is not BaselineMode.NONE:
        yield Observation(
            rule=Rule.BASELINE_MISSING, message=f"there is no baseline: {compared.absence}"
        )
    elif compared.mode is BaselineMode.NONE or any(map(out_of_budget, compared.cases)):
        return
    elif (
        _ended_well(compared.cases)
        and (message := nothing_compared(compared))
        and not _is_barred(compared.cases)
    ):
        yield Observation(rule=Rule.BASELINE_MISSING, message=message)


def nothing_compared(compared: Compared) -> str:
    """Explain why nothing was compared; empty if something was.

    Such a run never passes.

    Without a baseline, arms of a case that are compared with each other, and checks, are enough
    where none was asked for.
    """
    ended_well = _ended_well(compared.cases)
    alone = compared.base is None and compared.mode is BaselineMode.NONE
    if any(map(_is_judged_alone, ended_well)) if alone else any(map(_is_compared, compared.cases)):
        return ""
    if not ended_well:
        return "nothing was measured, so nothing was compared"
    if alone:
        return (
            "nothing was compared: no baseline was asked for, and no case has a check or a"
            " second arm"
        )
    return _why_not_compared(compared, ended_well)


def _why_not_compared(compared: Compared, ended_well: Sequence[CaseComparison]) -> str:
    if compared.base is None:
        return "there is no baseline, so nothing was compared"
    if is_first(compared):
        names = few((short(case) for case in ended_well), "case")
        return (
            f"nothing to compare with yet: {count_of(len(ended_well), 'new benchmark')} ({names})"
        )
    if not any(case.base_status is not None for case in compared.cases):
        return "the baseline has no cases, so nothing was compared"
    if not any(
        case.base_status is not None and case.head_status is not None for case in compared.cases
    ):
        return "the baseline has no case of this run, so nothing was compared"
    return "the baseline has no metric of this run that can fail it, so nothing was compared"


def _ended_well(cases: Iterable[CaseComparison]) -> list[CaseComparison]:
    return [case for case in cases if case.head_status is Status.OK and measured(case)]


def _is_barred(cases: Iterable[CaseComparison]) -> bool:
    """Return whether figures of both sides exist but cannot be compared, which has its own rule."""
    return any(pair.verdict is Verdict.INCOMPARABLE for case in cases for pair in case.pairs)


def is_first(compared: Compared) -> bool:
    """Return whether all of head's cases are new: base was planned in the same run, without any."""
    planned = [case for case in compared.cases if case.head_status is not None]
    return (
        compared.base is not None
        and compared.mode is BaselineMode.PAIRED
        and all(case.base_status is None for case in planned)
    )


def _is_compared(case: CaseComparison) -> bool:
    """Return whether a metric, training or output that can fail the run was compared with base."""
    outputs_compared = case.outputs is not None and case.outputs.verdict is not Sameness.UNKNOWN
    return tally((case,)).all > 0 or case.learning is not None or outputs_compared


def _is_judged_alone(case: CaseComparison) -> bool:
    """Return whether a case has an answer without a baseline.

    Either one arm is compared with another, or a check has an answer.
    """
    answered = any(
        check.outcome is not Outcome.UNKNOWN and not check.informative for check in case.checks
    )
    return bool(case.speedups or case.parity) or answered


def _of_new(compared: Compared) -> Iterator[Observation]:
    """Yield one observation on new cases for each suite, because each may have its own policy."""
    new = [
        case
        for case in compared.cases
        if case.base_status is None and case.head_status is Status.OK
    ]
    for suite in dict.fromkeys(case.suite for case in new) if compared.base is not None else ():
        of_suite = [case for case in new if case.suite == suite]
        message = (
            f"{count_of(len(of_suite), 'new benchmark')}: nothing to compare with yet"
            f" ({few(map(short, of_suite), 'case')})"
        )
        yield Observation(rule=Rule.CASE_NEW, message=message, suite=suite)


def _of_undecided(compared: Compared) -> Iterator[Observation]:
    """Yield one observation on open metrics for each suite that has some."""
    for suite in dict.fromkeys(case.suite for case in compared.cases):
        if message := undecided(
            [case for case in compared.cases if case.suite == suite], compared.mode
        ):
            yield Observation(rule=Rule.UNDECIDED, message=message, suite=suite)


def _of_machines(compared: Compared) -> Iterator[Observation]:
    """Yield one observation per suite: one for each case would hide everything else."""
    if not compared.mismatches:
        return
    fields = ", ".join(mismatch.field for mismatch in compared.mismatches)
    hit = [
        case.suite
        for case in compared.cases
        if any(pair.verdict is Verdict.INCOMPARABLE for pair in case.pairs)
    ]
    for suite in dict.fromkeys(hit):
        cases = count_of(hit.count(suite), "case")
        message = f"{cases} of {suite} cannot be compared: the runs differ in {fields}"
        yield Observation(rule=Rule.INCOMPARABLE, message=message, suite=suite)


def _of_replaced(cases: tuple[CaseComparison, ...]) -> Iterator[Observation]:
    """Yield one observation for each metric that earlier versions measured in another way."""
    for name, kind in REPLACED.items():
        hit = [
            case
            for case in cases
            if any(
                pair.metric == name and pair.detail and pair.verdict is Verdict.REMOVED
                for pair in case.pairs
            )
        ]
        if hit:
            measured_then, now = ENGINE[name].title if name in ENGINE else name, kind.title
            of = f"of {count_of(len(hit), 'case')}"
            message = (
                f"the baseline has the {measured_then} {of}, from before {now} was measured in its"
                " place; save a new baseline"
            )
            yield Observation(rule=Rule.METRIC_REPLACED, message=f"{message} to compare it")


def _of_case(case: CaseComparison, compared: Compared) -> Iterator[Observation]:
    for rule, message, size in (
        *((rule, message, 0.0) for rule, message in _of_status(case, compared.mode)),
        *((Rule.CASE_REDUCED, _reduction(clause), 0.0) for clause in case.reduced),
        *chain.from_iterable(map(_of_parity, case.parity)),
        *(
            (*settle_learning(compared.accepted, case, rule, text), size)
            for rule, text, size in _of_learning(case.learning)
        ),
        *(
            (*settle_outputs(compared.accepted, case, rule, text), size)
            for rule, text, size in _of_outputs(case.outputs)
        ),
    ):
        yield Observation(rule=rule, message=message, case=case.id, suite=case.suite, size=size)
    for pair in case.pairs:
        if pair.verdict in _PAIR_RULES and (ruling := _of_pair(pair, case, compared)):
            rule, message, size = ruling
            rule, message = settle_metric(compared.accepted, case, pair, rule, message)
            rank = effect_rank(pair)
            yield Observation(
                rule=rule, message=message, case=case.id, suite=case.suite, size=size, rank=rank
            )
    for check in case.checks:
        if check.informative or _says_nothing_more(check, case):
            continue
        rule_of_check = _CHECK_RULES.get(check.outcome)
        if rule_of_check is Rule.CHECK_FAILED:
            rule_of_check = _OWN_RULES.get(check.name, Rule.CHECK_FAILED)
        elif rule_of_check is Rule.CHECK_UNKNOWN and check.name in _OF_THE_MACHINE:
            rule_of_check = Rule.DISTURBED
        elif rule_of_check is Rule.CHECK_UNKNOWN and check.name == WITHIN_BUDGET:
            rule_of_check = Rule.UNDECIDED
        if rule_of_check:
            message = f"{check.name} ({check.arm}): {check.detail}"
            yield Observation(rule=rule_of_check, message=message, case=case.id, suite=case.suite)


def _says_nothing_more(check: Check, case: CaseComparison) -> bool:
    """Return whether other findings say it, or noise kept no metric of the arm undecided."""
    if check.name == WITHIN_BUDGET:
        return out_of_budget(case)
    verdicts = {pair.verdict for pair in case.pairs if pair.arm == check.arm}
    return check.name == _STEADY and bool(verdicts) and verdicts <= _DECIDED


def _reduction(clause: str) -> str:
    if clause.startswith(OTHER_WORK):
        return (
            f"head does {clause}, so times and results cannot be compared; case_reduced in base's"
            " policy can accept it"
        )
    return f"head owes less than base: {clause}"


CRASHED = frozenset({Status.CRASHED, Status.TIMEOUT})
"""Statuses of a side whose process was killed from outside, or hung."""


def _of_status(case: CaseComparison, mode: BaselineMode) -> Iterator[tuple[Rule, str]]:
    if case.head_status is None:
        yield Rule.CASE_REMOVED, case.reason
    elif case.head_status is Status.SKIPPED and case.base_status is Status.OK:
        yield Rule.CASE_REMOVED, f"measured in the baseline, and {case.reason}"
    elif out_of_budget(case):
        yield Rule.UNDECIDED, case.reason
    elif case.head_status is not Status.OK:
        if case.suite == IMPORTED and case.base_status is case.head_status:
            yield Rule.BASELINE_FAILED, f"it failed on both sides: {case.reason}"
            return
        also = (
            ""
            if case.base_status in {None, Status.OK}
            else f" (in the baseline it ended {case.base_status})"
        )
        yield _STATUS_RULES.get(case.head_status, Rule.CASE_FAILED), case.reason + also
    elif case.base_status in CRASHED and mode is BaselineMode.PAIRED:
        yield (
            Rule.BASELINE_CRASHED,
            f"head ended well, and was compared with nothing: {case.reason}",
        )
    elif case.base_status not in {None, Status.OK} and not case.reduced:
        yield _of_failed_base(case)
    if case.head_status is Status.OK and not case.pairs and not measured(case):
        yield Rule.METRIC_MISSING, case.reason
    for fault in case.base_faults:
        yield Rule.BASELINE_FAILED, f"the baseline's own run is in doubt: {fault}"


def _of_failed_base(case: CaseComparison) -> tuple[Rule, str]:
    """Return the rule and message of a case that failed on base and works on head.

    In files of other tools, head has fixed it.
    """
    if case.suite == IMPORTED:
        return Rule.CASE_NEW, f"it works on head, so nothing is compared: {case.reason}"
    return Rule.BASELINE_FAILED, case.reason


def _of_pair(
    pair: Pair, case: CaseComparison, compared: Compared
) -> tuple[Rule, str, float] | None:
    """Return rule, message and size of a pair; `None` if its case or the run has a finding."""
    rule = Rule.POSSIBLE if pair.possible else _PAIR_RULES[pair.verdict]
    if pair.verdict is Verdict.INCOMPARABLE and pair.reason == OTHER_BODY:
        rule = Rule.METRIC_REPLACED
    if (
        pair.detail
        or case.head_status is None
        or (rule is Rule.INCOMPARABLE and compared.mismatches)
    ):
        return None
    if rule is Rule.METRIC_MISSING and case.head_status is not Status.OK:
        return None
    return rule, f"{place(pair)}: {pair.reason}", change_size(pair)


def _of_learning(finding: ParityFinding | None) -> Iterator[tuple[Rule, str, float]]:
    if finding is None or (finding.verdict.holds and not finding.from_another_start):
        return
    undecided_or_held = Rule.START_CHANGED if finding.verdict.holds else Rule.LEARNING_UNKNOWN
    rule = Rule.LEARNING_CHANGED if finding.verdict.broken else undecided_or_held
    if finding.verdict is Parity.INSUFFICIENT_SENSITIVITY:
        rule = Rule.PARITY_UNDECIDED
    yield rule, f"{finding.arm}: {finding.detail}", training_distance(finding)


def _of_outputs(finding: OutputsFinding | None) -> Iterator[tuple[Rule, str, float]]:
    if finding is None or finding.verdict.holds:
        return
    rule = Rule.OUTPUTS_CHANGED if finding.verdict is Sameness.CHANGED else Rule.OUTPUTS_UNKNOWN
    yield rule, f"{finding.arm}: {finding.detail}", _excess(finding)


def _excess(finding: OutputsFinding) -> float:
    """Return the worst tensor's error relative to rounding; infinite without figures."""
    worst = next(iter(finding.worst), None)
    if worst is None or worst.error is None or not worst.allowed:
        return math.inf
    return worst.error / worst.allowed


def _of_parity(finding: ParityFinding) -> Iterator[tuple[Rule, str, float]]:
    size = training_distance(finding)
    message = f"{finding.arm}: {finding.verdict.value.replace('_', ' ')}: {finding.detail}"
    if finding.verdict.broken:
        yield Rule.PARITY_BROKEN, message, size
    elif not finding.verdict.holds:
        yield Rule.PARITY_UNDECIDED, message, size
    if finding.accuracy and not finding.accuracy.holds:
        gap = abs(finding.accuracy.candidate - finding.accuracy.reference)
        yield Rule.ACCURACY_BROKEN, f"{finding.arm}: accuracy {finding.accuracy.detail}", gap
