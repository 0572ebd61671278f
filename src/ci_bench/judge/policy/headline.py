"""The one sentence that a reviewer reads first. Owns its words; it decides nothing."""

from ci_bench.judge.policy.findings import Compared, measured
from ci_bench.judge.wording import change, change_size, count_of, place
from ci_bench.records.case import Status, Unit
from ci_bench.records.comparison import CaseComparison, Pair, Verdict
from ci_bench.records.judgement import Finding
from ci_bench.records.policy import Rule, Severity

_MOST_CLAUSES = 3
_ONE_AND_MANY = {
    Rule.BELOW_FLOOR: "{} below a floor",
    Rule.PARITY_BROKEN: "loss parity broken in {}",
    Rule.PARITY_UNDECIDED: "loss parity undecided in {}",
    Rule.ACCURACY_BROKEN: "accuracy changed in {}",
    Rule.LEARNING_CHANGED: "{} no longer learns what base learns",
    Rule.LEARNING_UNKNOWN: "whether base and head learn the same unknown in {}",
    Rule.CHECK_FAILED: "a check failed in {}",
    Rule.CHECK_UNKNOWN: "a check has no answer in {}",
    Rule.CASE_FAILED: "{} could not be measured",
    Rule.CASE_SKIPPED: "{} skipped",
    Rule.CASE_NOT_RUN: "{} not run",
    Rule.CASE_REMOVED: "{} of the baseline missing",
    Rule.METRIC_REMOVED: "a metric of the baseline missing in {}",
    Rule.METRIC_MISSING: "a metric missing in {}",
    Rule.CASE_NEW: "{} not in the baseline",
    Rule.INCONCLUSIVE: "{} inconclusive",
    Rule.BASELINE_FAILED: "the baseline failed in {}",
}


def headline(compared: Compared, findings: tuple[Finding, ...], *, passed: bool, nothing_measured: bool) -> str:
    """What happened, in one sentence: what failed and by how much, or what was found to be in order."""
    if nothing_measured:
        planned = sum(case.head_status is not None for case in compared.cases)
        return f"Failed: none of {count_of(planned, 'planned case')} could be measured."
    if passed:
        return f"Passed: {_passed(compared, findings)}."
    failing = [finding for finding in findings if finding.severity is Severity.FAIL]
    clauses = [_clause(rule, failing, compared) for rule in dict.fromkeys(finding.rule for finding in failing)]
    if len(clauses) > _MOST_CLAUSES:
        clauses[_MOST_CLAUSES - 1 :] = [f"{len(clauses) - _MOST_CLAUSES + 1} more kinds of failure"]
    return f"Failed: {'; '.join(clauses)}."


def _clause(rule: Rule, findings: list[Finding], compared: Compared) -> str:
    own = [finding for finding in findings if finding.rule is rule]
    if rule is Rule.REGRESSED:
        return _regression(own, compared.cases)
    if rule is Rule.INCOMPARABLE and compared.mismatches:
        return f"the runs cannot be compared, they differ in {', '.join(one.field for one in compared.mismatches)}"
    cases = {finding.case for finding in own if finding.case is not None}
    if not cases or rule not in _ONE_AND_MANY:
        return own[0].message
    return _ONE_AND_MANY[rule].format(count_of(len(cases), "case"))


def _regression(own: list[Finding], cases: tuple[CaseComparison, ...]) -> str:
    """The largest regression with its size, and how many more there are."""
    named = {finding.case for finding in own}
    found = [(case, pair) for case in cases if case.id in named for pair in case.pairs if _fails(pair)]
    case, pair = max(found, key=lambda one: change_size(one[1]))
    more = f", and {count_of(len(own) - 1, 'more regression')}" if len(own) > 1 else ""
    return f"{_short(case.id)} {_effect(pair)}{more}"


def _fails(pair: Pair) -> bool:
    return pair.verdict is Verdict.REGRESSED and not pair.detail


def _effect(pair: Pair) -> str:
    """``is 12.3 % slower (eager step_time)``; counts, and what came from zero, by their values."""
    if pair.unit is Unit.COUNT or pair.speedup is None:
        return f"went from {pair.reason} ({place(pair)})"
    verb = "takes" if pair.unit is Unit.BYTES else "is"
    return f"{verb} {change(pair.speedup, pair.unit, pair.better)} ({place(pair)})"


def _short(case_id: str) -> str:
    """The id without its parameters: they are in the table below the headline."""
    return case_id.partition("[")[0]


def _passed(compared: Compared, findings: tuple[Finding, ...]) -> str:
    count = sum(measured(case) for case in compared.cases if case.head_status is Status.OK)
    clauses = [f"{count_of(count, 'case')} measured, {_movement(compared)}"]
    verdicts = [finding.verdict for case in compared.cases for finding in case.parity]
    if verdicts and all(verdict.holds for verdict in verdicts):
        clauses.append("loss parity holds")
    elif verdicts:
        clauses.append("loss parity does not hold everywhere, which the policy lets pass")
    warnings = sum(finding.severity is Severity.WARN for finding in findings)
    if warnings:
        clauses.append(count_of(warnings, "warning"))
    return "; ".join(clauses)


def _movement(compared: Compared) -> str:
    verdicts = [pair.verdict for case in compared.cases for pair in case.pairs if not pair.detail]
    if compared.base is None:
        return "no baseline to compare with"
    if not {Verdict.UNCHANGED, Verdict.IMPROVED, Verdict.REGRESSED, Verdict.INCONCLUSIVE} & set(verdicts):
        return "nothing compared"
    regressed, improved = verdicts.count(Verdict.REGRESSED), verdicts.count(Verdict.IMPROVED)
    words = f"{count_of(regressed, 'metric')} worse, which the policy lets pass" if regressed else "nothing regressed"
    better = f"{count_of(improved, 'metric')} improved, " if improved else ""
    unclear = verdicts.count(Verdict.INCONCLUSIVE)
    return f"{better}{words}" + (f", {unclear} inconclusive" if unclear else "")
