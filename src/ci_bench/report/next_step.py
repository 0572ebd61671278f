"""Next step for the reader: a command that measures the worst case again, or a change.

Nothing after a pass.

Text may hold names from the document, so renderers escape it; the command is a line for a shell.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ci_bench.errors import ExitCode
from ci_bench.records.comparison import (
    BaselineMode,
    CaseComparison,
    Comparison,
    Finding,
    RunVerdict,
    Verdict,
)
from ci_bench.records.config import Rule, Severity
from ci_bench.records.graph_breaks import first_break
from ci_bench.records.labels import labels, worst_first
from ci_bench.records.metrics import IMPORTED
from ci_bench.records.results import Environment

MEASURE_BASE = (
    "Run ci-bench on the base branch with the same configuration and pass its results.json as"
    " --baseline."
)
IN_TURNS = (
    "Measure base and head in turns on one machine (baseline: paired) before you act: they were"
    " measured at different times, and the machine may have changed."
)
SAME_PLACE = "Measure base and head on the same machine with the same software, then compare again."
ON_PURPOSE = (
    "If they differ on purpose: ci-bench compare BASE HEAD {}, or list the fields in"
    " policy.compare_across."
)
NO_FAILURE = "The gate does not fail on this."
FAILURE = "The gate fails until they are compared."
NEXT_TIME = (
    "Nothing to do. Once these benchmarks are merged, the next pull request is compared with them."
)
SET_UP = "Fix setup.commands or the build; the full log is in setup/ of the output folder."
MORE_TIME = "Raise the budget (--budget, run.budget_s), or measure fewer cases (--filter)."
_NOT_MEASURED = {(Rule.CASE_FAILED, True): SET_UP, (Rule.UNDECIDED, False): MORE_TIME}
"""Advice by the first finding's rule, and by whether it is of the whole run."""
AGAIN = "Measure both sides again; if the result stays, begin with the first row."
_AGAIN = "Reproduce the worst case:"
_OF_PLANS = frozenset({Rule.CASE_REMOVED, Rule.CASE_REDUCED})
"""Rules of what was planned: measuring again answers nothing."""

_BY_RULE: Mapping[Rule, str] = {
    Rule.CASE_REMOVED: (
        "If the removal is intended, set policy.severities.case_removed: warn on the base branch."
    ),
    Rule.CASE_REDUCED: (
        "If the change is intended, rename the case, or set policy.severities.case_reduced: warn on"
        " the base branch."
    ),
    Rule.BASELINE_FAILED: (
        "Repair base, or compare with a commit that works: nothing was compared with it."
    ),
    Rule.LEARNING_UNKNOWN: (
        "See in the case's row what is missing: base and head need the same data, as many steps,"
        " and a loss that moves."
    ),
    Rule.OUTPUTS_UNKNOWN: "Give base and head the same weights and inputs, then compare again.",
    Rule.CHECK_UNKNOWN: "See why the check has no answer, in its row, then run the gate again.",
    Rule.BASELINE_CRASHED: "Run the gate again; the log of base's process is with the case below.",
    Rule.METRIC_REMOVED: "If the removal is intended, set policy.severities.metric_removed: warn.",
    Rule.METRIC_REPLACED: "Save a new baseline: ci-bench gate --baseline PATH --save-baseline.",
    Rule.EMPTY_RUN: "Look at the configuration's suites, and at why each case was skipped.",
    Rule.PARTIAL_RUN: "The run is incomplete; finish it by the same command with --resume.",
    Rule.NARROWED: (
        "Measure everything in the configuration, or allow less with policy.severities.narrowed."
    ),
    Rule.CASES_UNDECLARED: "Declare the cases: ci-bench list --declare prints what to write.",
    Rule.COMMON_SHIFT: IN_TURNS,
}


STOP_OTHERS = (
    "Stop other work on the machine, or raise the threshold: more launches would not decide it."
)
MORE_FILES = (
    "Measure each side five times, in turns, and compare all files: ci-bench compare --base"
    " base1.json … --head head1.json …"
)
_OF_FILES: Mapping[str, str] = {
    IN_TURNS: MORE_FILES,
    STOP_OTHERS: MORE_FILES,
    _BY_RULE[Rule.METRIC_REPLACED]: "Measure base again with head's benchmarks, then compare.",
}
"""Advice on other tools' files, which ci-bench does not measure, by the advice on its own runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NextStep:
    """A sentence, and its command, or an empty text."""

    text: str
    command: str = ""


def next_step(comparison: Comparison) -> NextStep | None:
    """Choose by the obstacle to a comparison, then by the worst finding; `None` after a pass."""
    step = _step(comparison)
    if step is None:
        return None
    foreign = {case.suite for case in comparison.cases} == {IMPORTED}
    text = _OF_FILES.get(step.text, step.text) if foreign else step.text
    judgement = comparison.judgement
    passes = judgement.verdict is RunVerdict.UNDECIDED and judgement.exit_code == ExitCode.OK
    return replace(step, text=f"{NO_FAILURE} {text}" if passes and not step.command else text)


def _step(comparison: Comparison) -> NextStep | None:
    judgement = comparison.judgement
    if judgement.verdict is RunVerdict.PASSED:
        return None
    loud = [finding for finding in judgement.findings if finding.severity is not Severity.NOTE]
    if in_the_way := _in_the_way(comparison, loud):
        return NextStep(
            text=(
                f"{in_the_way} {FAILURE}"
                if comparison.mismatches and _fails(comparison)
                else in_the_way
            )
        )
    is_about_case = any(
        finding.case is not None and finding.rule not in _OF_PLANS for finding in loud[:1]
    )
    failing = _reproducible(comparison) if is_about_case and _fails(comparison) else []
    if failing:
        return _reproduce(failing, labels(comparison.cases))
    if any(finding.rule in {Rule.POSSIBLE, Rule.UNDECIDED} for finding in loud):
        return NextStep(text=_more_launches(comparison))
    return next(
        (NextStep(text=_BY_RULE[finding.rule]) for finding in loud if finding.rule in _BY_RULE),
        NextStep(text=AGAIN),
    )


def _fails(comparison: Comparison) -> bool:
    return comparison.judgement.verdict is RunVerdict.FAILED


def _reproduce(failing: Sequence[CaseComparison], names: Mapping[str, str]) -> NextStep:
    """Name the line to look at and the command of its case, else that of the first case."""
    for case in failing:
        if place := _place(case):
            words = f"Look at {place}, then reproduce the case:"
            if case is not failing[0]:
                words = f"Begin with {names[case.id]}: look at {place}, then reproduce it:"
            return NextStep(text=words, command=case.reproduce or "")
    return NextStep(text=_AGAIN, command=failing[0].reproduce or "")


def _place(case: CaseComparison) -> str:
    """Return the line of head's code behind the largest part of a regression, or a graph break.

    It is empty if unknown.
    """
    blamed = (
        cause for cause in case.causes if (cause.slower or cause.larger) and not cause.unknown
    )
    parts = sorted(
        (part for cause in blamed for part in cause.parts if part.change_s > 0),
        key=lambda part: -part.change_s,
    )
    broken = (
        first_break(case, pair) for pair in case.pairs if pair.verdict.worse and not pair.detail
    )
    return next(
        filter(None, chain((place for part in parts[:1] for place in part.places), broken)), ""
    )


def _more_launches(comparison: Comparison) -> str:
    """Name the number of launches that decides the open metrics, if any number does."""
    pairs = [
        pair
        for case in comparison.cases
        for pair in case.pairs
        if pair.verdict is Verdict.INCONCLUSIVE and not pair.detail
    ]
    needed = [pair.needed for pair in pairs if pair.needed is not None]
    machine = f"the machine{_load(comparison.head.environment)}"
    if pairs and not needed:
        return STOP_OTHERS.replace("the machine", machine)
    launches = math.ceil(max(needed, default=0))
    if launches and "budget_s" in comparison.head.run.asked:
        return (
            f"Raise the budget (--budget, run.budget_s), for {launches:,} launches, or stop other"
            f" work on {machine}."
        )
    allow = f"run.max_launches to {launches:,}" if needed else "run.max_launches"
    return f"Raise {allow} (run.launches if sampling is fixed), or stop other work on {machine}."


def _load(environment: Environment) -> str:
    """Name the load before measuring if other work had half of the cores or more."""
    load, cores = environment.condition.get("load_1min"), environment.identity.get("cpu_cores")
    if not isinstance(load, int | float) or not isinstance(cores, int) or 2 * load < cores:
        return ""
    return f" (load {load:.1f} on {cores} core{'' if cores == 1 else 's'})"


def _in_the_way(comparison: Comparison, loud: Sequence[Finding]) -> str:
    """Return the obstacle to comparing the run; empty without one."""
    missing = [finding for finding in loud if finding.rule is Rule.BASELINE_MISSING]
    if missing and (comparison.base is None or len(missing) == len(loud)):
        return MEASURE_BASE if comparison.base is None else NEXT_TIME
    if comparison.mismatches:
        flags = " ".join(f"--across {mismatch.field}" for mismatch in comparison.mismatches)
        return f"{SAME_PLACE} {ON_PURPOSE.format(flags)}"
    if loud and (text := _NOT_MEASURED.get((loud[0].rule, loud[0].case is None))):
        return text
    if (
        loud
        and loud[0].rule in {Rule.POSSIBLE, Rule.UNDECIDED}
        and comparison.mode is not BaselineMode.PAIRED
    ):
        return IN_TURNS
    return ""


def _reproducible(comparison: Comparison) -> list[CaseComparison]:
    """Return the failing cases that have a command, in the order of the findings.

    Without any, it is the worst case that has one.
    """
    ranked = [case for case in worst_first(comparison.cases) if case.reproduce]
    by_id = {case.id: case for case in ranked}
    failing = [
        finding.case
        for finding in comparison.judgement.findings
        if finding.severity is Severity.FAIL
    ]
    return [by_id[case] for case in dict.fromkeys(failing) if case in by_id] or ranked[:1]
