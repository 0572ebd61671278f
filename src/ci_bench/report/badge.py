"""The badge of a run, in the form that shields.io reads from an endpoint. Owns its words and its colours.

The form: https://shields.io/badges/endpoint-badge
"""

from ci_bench.records.comparison import Comparison, Verdict
from ci_bench.records.policy import Severity
from ci_bench.report.rows import outcome_mood
from ci_bench.report.words import Mood

_COLOURS = {Mood.BAD: "red", Mood.UNSURE: "yellow", Mood.GOOD: "brightgreen"}


def badge(comparison: Comparison) -> dict[str, str | int | bool]:
    """``{"schemaVersion": 1, "label": "ci-bench", "message": "passing", "color": "brightgreen"}``; red is also an error."""
    mood = outcome_mood(comparison)
    failed = mood is Mood.BAD
    return {"schemaVersion": 1, "label": "ci-bench", "message": _message(comparison), "color": _COLOURS[mood], "isError": failed}


def _message(comparison: Comparison) -> str:
    """``2 regressed``, where cases are why it failed; else ``failing`` or ``passing``, with what is worth knowing."""
    findings = comparison.judgement.findings
    if not comparison.judgement.passed:
        cases = {found.case for found in findings if found.severity is Severity.FAIL and found.case is not None}
        regressed = [case for case in comparison.cases if case.id in cases and case.verdict is Verdict.REGRESSED]
        if len(regressed) == len(cases) > 0:
            return f"{len(regressed):,} regressed"
        return f"{len(cases):,} failing" if cases else "failing"
    warned = sum(found.severity is Severity.WARN for found in findings)
    improved = sum(case.verdict is Verdict.IMPROVED for case in comparison.cases)
    if warned:
        return f"passing, {warned:,} warning{'' if warned == 1 else 's'}"
    return f"passing, {improved:,} improved" if improved else "passing"
