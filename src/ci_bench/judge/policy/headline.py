"""Verdict of a run: its findings, the sentence that a reviewer reads first, and the exit code.

A run passes if everything that gates was decided and is not worse; it fails if the policy says so.
Otherwise it is undecided: the policy is met, but a gating metric or check has no answer. Everything
is derived from the comparison's own rows, so the document can be judged again under another policy.
"""

import re
from collections.abc import Iterator

from ci_bench.errors import ExitCode
from ci_bench.judge.policy.rules import (
    Compared,
    find,
    is_first,
    measured,
    nothing_compared,
    out_of_budget,
)
from ci_bench.judge.policy.sizes import sized
from ci_bench.judge.policy.undecided import few, is_open, open_pairs, undecided, what_it_takes
from ci_bench.judge.wording import change, change_size, count_of, effect_rank
from ci_bench.records.comparison import (
    BaselineMode,
    CaseComparison,
    Finding,
    Judgement,
    Pair,
    RunVerdict,
    Verdict,
    tally,
)
from ci_bench.records.config import UNANSWERED, Policy, Rule, Severity
from ci_bench.records.graph_breaks import first_break, leading
from ci_bench.records.labels import FAILING_WORDS, labels
from ci_bench.records.metrics import GRAPH_BREAKS
from ci_bench.records.results import Status, Unit

_MOST_CLAUSES = 2
"""Of the worst case, and of the run as a whole; a single one of a case if others have findings,
too.
"""
_VALUES = re.compile(r"[\d.,e+-]+( [A-Za-z]+)? to [\d.,e+-]+")
_OF_THE_BASELINE = {Rule.INCOMPARABLE, Rule.BASELINE_MISSING}

_WORSE = {Rule.REGRESSED: "", Rule.SUSPECTED: "suspected: ", Rule.POSSIBLE: ""}
"""The rules of a metric that got worse, and what its change is introduced by."""
_MORE = re.compile(r"\d+ more findings?$")
_ARM = re.compile(r" \([^()]*\)$")
_OF_A_CASE = {
    Rule.CLOCK_DISAGREES: "timings contradict the engine's clock",
    Rule.PARITY_UNDECIDED: "loss parity not shown",
    Rule.LEARNING_UNKNOWN: "training not comparable with base",
    Rule.START_CHANGED: "start weights differ from base",
    Rule.OUTPUTS_UNKNOWN: "outputs not comparable with base",
    Rule.CHECK_UNKNOWN: "a check has no answer",
    Rule.DISTURBED: "the machine was disturbed while measuring",
    Rule.CASE_SKIPPED: "skipped",
    Rule.CASE_NOT_RUN: "not run",
    Rule.CASE_REDUCED: "measures less than base, or does other work",
    Rule.METRIC_REMOVED: "a metric of the baseline is missing",
    Rule.METRIC_MISSING: "a metric is missing",
    Rule.UNDECIDED: "not measured within the budget",
    Rule.INCONCLUSIVE: "a metric is undecided",
    Rule.BASELINE_FAILED: "the baseline failed",
    Rule.BASELINE_CRASHED: "base crashed or timed out, head did not",
}


def headline(
    compared: Compared,
    findings: tuple[Finding, ...],
    *,
    verdict: RunVerdict,
    nothing_measured: bool,
) -> str:
    """Summarise the run in one sentence.

    It says what failed and by how much, what is open, or what passed; then differences of the
    machines that the policy allows.
    """
    sentence = _sentence(compared, findings, verdict=verdict, nothing_measured=nothing_measured)
    fields = few(
        (
            f"{mismatch.field} ({mismatch.base} on base, {mismatch.head} on head)"
            for mismatch in compared.across
        ),
        "field",
    )
    return f"{sentence.removesuffix('.')}; compared across {fields}." if fields else sentence


def _sentence(
    compared: Compared,
    findings: tuple[Finding, ...],
    *,
    verdict: RunVerdict,
    nothing_measured: bool,
) -> str:
    if compared.unready:
        return f"Failed: {'; '.join(compared.unready)}."
    if nothing_measured:
        planned = sum(case.head_status is not None for case in compared.cases)
        return f"Failed: none of {count_of(planned, 'planned case')} could be measured."
    match verdict:
        case RunVerdict.PASSED:
            return f"Passed: {_passed(compared, findings)}."
        case RunVerdict.UNDECIDED if not _unanswered(findings):
            reason = nothing_compared(compared)
            return (
                f"{reason[0].upper()}{reason[1:]}."
                if _is_early(compared)
                else f"Not decided: {reason}."
            )
        case RunVerdict.UNDECIDED:
            return f"Not decided: {'; '.join(_undecided(compared, _unanswered(findings)))}."
        case RunVerdict.FAILED:
            failing = [finding for finding in findings if finding.severity is Severity.FAIL]
            outcome = (
                "Failed"
                if {finding.rule for finding in failing} - _OF_THE_BASELINE
                else "Not compared"
            )
            return f"{outcome}: {'; '.join(_wrong(compared, failing, fails=True))}.".replace(
                "?.", "?"
            )


def _unanswered(findings: tuple[Finding, ...]) -> list[Finding]:
    return [
        finding
        for finding in findings
        if finding.severity is Severity.WARN and finding.rule in UNANSWERED
    ]


def _undecided(compared: Compared, unanswered: list[Finding]) -> Iterator[str]:
    """List possible regressions, other open findings, and the number of open metrics.

    The last clause says what they need to be decided.
    """
    of_metrics = {Rule.POSSIBLE, Rule.UNDECIDED, Rule.INCONCLUSIVE}
    if possible := [finding for finding in unanswered if finding.rule is Rule.POSSIBLE]:
        yield _possible(possible, compared.cases)
    others = [
        finding
        for finding in unanswered
        if finding.rule not in of_metrics or _is_of_budget(finding)
    ]
    yield from _wrong(compared, others, fails=False)
    if any(finding.rule in of_metrics and not _is_of_budget(finding) for finding in unanswered):
        all_named = len(possible) == sum(len(open_pairs(case)) for case in compared.cases)
        yield (what_it_takes if all_named else undecided)(compared.cases, compared.mode)


def _is_of_budget(finding: Finding) -> bool:
    """Return whether the spent budget left a case undecided.

    Open metrics are reported per suite.
    """
    return finding.rule is Rule.UNDECIDED and finding.case is not None


def _wrong(compared: Compared, findings: list[Finding], *, fails: bool) -> Iterator[str]:
    """List faults of the run, then of its worst case, then the count and kinds of the others.

    The findings all fail the run (`fails`), or all are without an answer.
    """
    rules = {finding.rule for finding in findings}
    implied = (
        {Rule.BASELINE_MISSING} if Rule.CASE_REMOVED in rules else set()
    )  # which is why nothing was compared
    of_all = (
        finding for finding in findings if finding.case is None and finding.rule not in implied
    )
    of_run = list(dict.fromkeys(_of_run(finding, compared) for finding in of_all))
    yield from _fewer(of_run, "run-wide failure" if fails else "run-wide question")
    names = list(dict.fromkeys(finding.case for finding in findings if finding.case is not None))
    if names:
        case = next(case for case in compared.cases if case.id == names[0])
        clauses = list(
            dict.fromkeys(
                _clauses(case, [finding for finding in findings if finding.case == case.id])
            )
        )
        shown = _fewer(clauses, "finding", most=_MOST_CLAUSES if len(names) == 1 else 1)
        yield (
            ", ".join(shown)
            if case.head_status is None
            else _of_one_arm(labels(compared.cases)[case.id], shown)
        )
    if len(names) > 1:
        kinds = few(
            (_kind(finding.rule) for finding in findings if finding.case in names[1:]), "kind"
        )
        fail = f"fail{'s' if len(names) == 2 else ''} ({kinds})"  # noqa: PLR2004 - one more
        yield f"{count_of(len(names) - 1, 'more case')} {fail if fails else 'without an answer'}"


def _kind(rule: Rule) -> str:
    """Describe the rule, without the word "case" that the clause has already."""
    return FAILING_WORDS.get(rule, rule.replace("_", " ")).removeprefix("case ")


def _fewer(clauses: list[str], noun: str, *, most: int = _MOST_CLAUSES) -> list[str]:
    """Return the first clauses, and the number of others."""
    more = [count_of(len(clauses) - most, f"more {noun}")] if len(clauses) > most else []
    return [*clauses[:most], *more]


def _of_one_arm(label: str, clauses: list[str]) -> str:
    """Join the clauses on a case; if all are of one arm, name it once, after the label.

    ``a (inductor): step time 8 % slower, peak memory 12 % more``
    """
    arms = [
        match[0] if (match := _ARM.search(clause)) else ""
        for clause in clauses
        if not _MORE.match(clause)
    ]
    if len(arms) == 1 or len({*arms}) > 1 or "" in arms:
        return f"{label}: {', '.join(clauses)}"
    return f"{label}{arms[0]}: {', '.join(_ARM.sub('', clause) for clause in clauses)}"


def _of_run(finding: Finding, compared: Compared) -> str:
    if finding.rule is Rule.INCOMPARABLE and compared.mismatches:
        fields = ", ".join(mismatch.field for mismatch in compared.mismatches)
        return f"base and head differ in {fields}"
    return finding.message


def _clauses(case: CaseComparison, findings: list[Finding]) -> Iterator[str]:
    """List a case's faults: regressed metrics by size, then the rest in order of the findings."""
    for rule in dict.fromkeys(finding.rule for finding in findings):
        if rule not in _WORSE:
            yield (
                _OF_A_CASE[rule]
                if rule in _OF_A_CASE
                else sized(case, next(finding for finding in findings if finding.rule is rule))
            )
            continue
        pairs = leading(pair for pair in case.pairs if _rule_of(pair) is rule)
        yield from (
            _WORSE[rule] + _effect(pair, case)
            for pair in sorted(pairs, key=lambda pair: (effect_rank(pair), -change_size(pair)))
        )


def _rule_of(pair: Pair) -> Rule | None:
    """Return the rule under which a pair is worse; `None` if it cannot fail the run."""
    if pair.detail:
        return None
    by_verdict = {Verdict.REGRESSED: Rule.REGRESSED, Verdict.SUSPECTED: Rule.SUSPECTED}
    return Rule.POSSIBLE if pair.possible else by_verdict.get(pair.verdict)


def _effect(pair: Pair, case: CaseComparison) -> str:
    """Return ``step time 12.3 % slower (eager)``, or that it may be.

    Counts, and changes from zero, are described by their values.
    A case's only arm is not named.
    """
    by_value = pair.unit is Unit.COUNT or pair.speedup is None
    by_words = f"from {pair.reason}" if _VALUES.match(pair.reason) else pair.reason
    effect = by_words if by_value else change(pair.speedup or 1.0, pair.unit, pair.better)
    compared = (*(other.arm for other in case.pairs), *(finding.arm for finding in case.parity))
    arms = {*case.arms, *compared}
    text = (
        _new_breaks(pair)
        or f"{pair.title or pair.metric}{' may be' if pair.possible else ''} {effect}"
    )
    place = first_break(case, pair)
    return (
        f"{text}{f', first at {place}' if place else ''}{f' ({pair.arm})' if len(arms) > 1 else ''}"
    )


def _new_breaks(pair: Pair) -> str:
    """Return ``4 graph breaks`` if base has none; else empty."""
    is_first = pair.metric == GRAPH_BREAKS.name and pair.base is not None and not pair.base.figure
    return (
        count_of(int(pair.head.figure), "graph break") if is_first and pair.head is not None else ""
    )


def _passed(compared: Compared, findings: tuple[Finding, ...]) -> str:
    count = sum(measured(case) for case in compared.cases if case.head_status is Status.OK)
    accepted = sum(finding.rule is Rule.ACCEPTED for finding in findings)
    movement = _movement(compared, allowed="" if accepted else ", which the policy allows")
    clauses = [f"{count_of(count, 'case')}, {movement}"]
    clauses += [f"{count_of(accepted, 'change')} accepted"] if accepted else []
    verdicts = [finding.verdict for case in compared.cases for finding in case.parity]
    if verdicts and all(verdict.holds for verdict in verdicts):
        clauses.append(f"losses match {_references(compared)}")
    elif verdicts:
        clauses.append(f"losses do not match {_references(compared)}, which the policy allows")
    learned = [case.learning.verdict for case in compared.cases if case.learning is not None]
    if learned and all(verdict.holds for verdict in learned):
        elsewhere = any(
            case.learning is not None and case.learning.from_another_start
            for case in compared.cases
        )
        clauses.append(
            "training from another start ends as well as base's"
            if elsewhere
            else "training matches base"
        )
    clauses += [finding.message for finding in findings if finding.rule is Rule.CASE_NEW]
    warnings = sum(finding.severity is Severity.WARN for finding in findings)
    if warnings:
        clauses.append(count_of(warnings, "warning"))
    return "; ".join(clauses)


def _references(compared: Compared) -> str:
    """Return the reference arm of the trainings, if they have the same one."""
    references = {case.reference for case in compared.cases if case.parity}
    return (references.pop() or "the reference") if len(references) == 1 else "the reference"


def _possible(findings: list[Finding], cases: tuple[CaseComparison, ...]) -> str:
    """Describe the largest possible regression, and the number of others."""
    case_ids = {finding.case for finding in findings}
    candidates = [
        (case, pair)
        for case in cases
        if case.id in case_ids
        for pair in case.pairs
        if _rule_of(pair) is Rule.POSSIBLE
    ]
    case, pair = max(candidates, key=lambda item: change_size(item[1]))
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    return f"{labels(cases)[case.id]}: {_WORSE[Rule.POSSIBLE]}{_effect(pair, case)}{more}"


def _movement(compared: Compared, *, allowed: str) -> str:
    """Summarise the metrics that gate, and why worse ones are `allowed`.

    "Nothing regressed" refers only to decided ones.
    """
    if compared.base is None:
        return "no baseline to compare with"
    verdicts = [pair.verdict for case in compared.cases for pair in case.pairs if not pair.detail]
    worse, improved = sum(verdict.worse for verdict in verdicts), verdicts.count(Verdict.IMPROVED)
    counted = tally(compared.cases)
    if not counted.all:
        return "nothing compared"
    better = f", {count_of(improved, 'metric')} improved" if improved else ""
    if worse:
        words = f"{count_of(worse, 'metric')} worse{allowed}"
    elif counted.decided:
        of = f" of {count_of(counted.decided, 'decided metric')}" if counted.undecided else ""
        words = f"nothing regressed{of}"
    else:
        words = "nothing decided"
    return f"{words}{better}" + (
        f", {counted.undecided} undecided ({_open_cases(compared.cases)})"
        if counted.undecided
        else ""
    )


def _open_cases(cases: tuple[CaseComparison, ...]) -> str:
    """Name the cases with an undecided metric that gates; of many only the first few."""
    names = labels(cases)
    return few((names[case.id] for case in cases if any(map(is_open, case.pairs))), "case")


def judge(compared: Compared, policy: Policy) -> Judgement:
    """Judge a comparison.

    Its exit code is 0 unless it failed, or compared nothing although the policy needs a baseline.
    """
    findings = find(compared, policy)
    nothing_measured = _nothing_measured(compared.cases)
    code = _exit_code(findings, nothing_measured=nothing_measured)
    is_open = bool(_unanswered(findings)) or bool(nothing_compared(compared))
    open_or_passed = RunVerdict.UNDECIDED if is_open else RunVerdict.PASSED
    verdict = (
        open_or_passed
        if code is ExitCode.OK or _has_no_baseline_yet(compared, findings)
        else RunVerdict.FAILED
    )
    return Judgement(
        verdict=verdict,
        exit_code=int(code),
        headline=headline(compared, findings, verdict=verdict, nothing_measured=nothing_measured),
        findings=findings,
    )


def _has_no_baseline_yet(compared: Compared, findings: tuple[Finding, ...]) -> bool:
    """Return whether the only failure is the missing baseline."""
    failing = {finding.rule for finding in findings if finding.severity is Severity.FAIL}
    return failing == {Rule.BASELINE_MISSING} and _is_early(compared)


def _is_early(compared: Compared) -> bool:
    """Return whether no baseline can be expected: all benchmarks are new, or none was requested."""
    return compared.mode is BaselineMode.NONE or is_first(compared)


def _nothing_measured(cases: tuple[CaseComparison, ...]) -> bool:
    """Return whether measuring was tried and gave nothing, which no policy can allow.

    A run of skipped cases only was not tried.

    Nor were cases that no budget was left for.
    """
    planned = [case for case in cases if case.head_status is not None]
    tried = any(
        case.head_status is not Status.SKIPPED and not out_of_budget(case) for case in planned
    )
    return tried and not any(measured(case) for case in planned)


def _exit_code(findings: tuple[Finding, ...], *, nothing_measured: bool) -> ExitCode:
    failing = {finding.rule for finding in findings if finding.severity is Severity.FAIL}
    if nothing_measured:
        return ExitCode.MEASURING_FAILED
    if failing == {Rule.INCOMPARABLE}:
        return ExitCode.INCOMPARABLE
    return ExitCode.POLICY_NOT_MET if failing else ExitCode.OK
