"""What a reader can do next: the command that measures the worst case again, or what to change. Nothing after a pass.

Text may hold names from the document, so renderers escape it; the command is a line for a shell.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from ci_bench.records.comparison import BaselineMode, CaseComparison, Comparison, RunVerdict
from ci_bench.records.config import Rule, Severity
from ci_bench.report.rows import labels, worst_first

MEASURE_BASE = "Measure the base branch with the same configuration, and give its results document as the baseline."
IN_TURNS = "Measure base and head in turns (baseline: paired): two moments of one machine differ."
SAME_PLACE = "Measure base and head in the same place, then compare again."
_AGAIN = "Measure the worst case again"

_BY_RULE: Mapping[Rule, str] = {
    Rule.CASE_REMOVED: "Where it is gone on purpose, policy.severities.case_removed: warn lets this run pass.",
    Rule.METRIC_REMOVED: "Where it is gone on purpose, policy.severities.metric_removed: warn lets this run pass.",
    Rule.METRIC_REPLACED: "Save a new baseline: ci-bench gate --baseline PATH --save-baseline.",
    Rule.EMPTY_RUN: "Look at the configuration's suites, and at why each case was skipped.",
    Rule.PARTIAL_RUN: "Let the run come to its end: ci-bench run --resume measures what is missing.",
    Rule.NARROWED: "Measure all that the configuration says, or allow it there: policy.severities.narrowed.",
    Rule.CASES_UNDECLARED: "Declare the cases: ci-bench list --declare prints what to write.",
    Rule.COMMON_SHIFT: IN_TURNS,
    Rule.POSSIBLE: "Take more launches (run.launches), or quiet the machine.",
    Rule.UNDECIDED: "Take more launches (run.launches), or quiet the machine; policy.severities.undecided says what it does.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class NextStep:
    """A sentence, and the command that it speaks of; empty where there is none."""

    text: str
    command: str = ""


def next_step(comparison: Comparison) -> NextStep | None:
    """By what stands in the way, then by the worst finding; `None` after a pass."""
    judgement = comparison.judgement
    if judgement.verdict is RunVerdict.PASSED:
        return None
    loud = [found for found in judgement.findings if found.severity is not Severity.NOTE]
    if comparison.base is None and any(found.rule is Rule.BASELINE_MISSING for found in loud):
        return NextStep(text=MEASURE_BASE)
    if comparison.mismatches:
        return NextStep(text=SAME_PLACE)
    if loud and loud[0].rule in {Rule.POSSIBLE, Rule.UNDECIDED} and comparison.mode is not BaselineMode.PAIRED:
        return NextStep(text=IN_TURNS)
    worst = _worst_reproducible(comparison) if any(found.case is not None for found in loud[:1]) else None
    if worst is not None and judgement.verdict is RunVerdict.FAILED:
        return NextStep(text=f"{_AGAIN}, {labels(comparison)[worst.id]}:", command=worst.reproduce or "")
    return next((NextStep(text=_BY_RULE[found.rule]) for found in loud if found.rule in _BY_RULE), None) or NextStep(
        text="The findings below say what to do."
    )


def _worst_reproducible(comparison: Comparison) -> CaseComparison | None:
    """The case of the first finding that has a command, else the worst case that has one."""
    ranked = [case for case in worst_first(comparison.cases) if case.reproduce]
    by_id = {case.id: case for case in reversed(ranked)}
    named = (by_id[finding.case] for finding in comparison.judgement.findings if finding.case in by_id)
    return next(chain(named, ranked), None)
