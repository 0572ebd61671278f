"""The answer for programs: keep a change or discard it, and why.

One JSON document, made only from a comparison.

A loop that tries changes reads `decision` (what the exit code says, too) and `verdict` (whether
anything got better), and shows `reasons` to the author of the next change.
"""

import json
from typing import Any

from ci_bench.records.comparison import (
    ArmSpeedup,
    CaseComparison,
    Comparison,
    Finding,
    Pair,
    RunVerdict,
    Verdict,
)
from ci_bench.records.config import Severity
from ci_bench.records.results import Outcome

KEEP, DISCARD = "keep", "discard"
SCHEMA_VERSION = 1


def render_decision(comparison: Comparison) -> str:
    """Return the document as text, with a line break at its end.

    Infinity and NaN cannot be in it.
    """
    return json.dumps(decision(comparison), allow_nan=False, indent=2, ensure_ascii=False) + "\n"


def decision(comparison: Comparison) -> dict[str, Any]:
    """Return the document: what meets the policy is kept.

    `verdict` is the run's: failed, undecided, improved, or unchanged if nothing got better.
    """
    judgement = comparison.judgement
    return {
        "kind": "decision",
        "schema_version": SCHEMA_VERSION,
        "tool_version": comparison.tool_version,
        "decision": KEEP if judgement.met else DISCARD,
        "verdict": _verdict(comparison),
        "exit_code": judgement.exit_code,
        "headline": judgement.headline,
        "baseline": None if comparison.base is None else str(comparison.mode),
        "reasons": [
            _reason(finding)
            for finding in judgement.findings
            if finding.severity is not Severity.NOTE
        ],
        "cases": [_case(case, judgement.findings) for case in comparison.cases],
    }


def _verdict(comparison: Comparison) -> str:
    if comparison.judgement.verdict is not RunVerdict.PASSED:
        return str(comparison.judgement.verdict)
    improved = any(
        pair.verdict is Verdict.IMPROVED
        for case in comparison.cases
        for pair in case.pairs
        if not pair.detail
    )
    return str(Verdict.IMPROVED if improved else Verdict.UNCHANGED)


def _reason(finding: Finding) -> dict[str, Any]:
    about = {} if finding.case is None else {"case": finding.case}
    return {
        "rule": str(finding.rule),
        "severity": str(finding.severity),
        **about,
        "message": finding.message,
    }


def _case(case: CaseComparison, findings: tuple[Finding, ...]) -> dict[str, Any]:
    failing = any(
        finding.case == case.id and finding.severity is Severity.FAIL for finding in findings
    )
    return {
        "id": case.id,
        "decision": DISCARD if failing else KEEP,
        "verdict": str(case.verdict),
        "reason": case.reason,
        "metrics": [_metric(pair) for pair in case.pairs if not pair.detail],
        "arms": [_arm(speedup) for speedup in case.speedups],
        "failed_checks": [
            {"name": check.name, "arm": check.arm, "detail": check.detail}
            for check in case.checks
            if check.outcome is Outcome.FAIL and not check.informative
        ],
    }


def _metric(pair: Pair) -> dict[str, Any]:
    """Return head over base; `speedup` above 1 is better, and null if it is missing."""
    between = None if pair.interval is None else [pair.interval.low, pair.interval.high]
    return {
        "metric": pair.metric,
        "arm": pair.arm,
        "verdict": str(pair.verdict),
        "speedup": pair.speedup,
        "interval": between,
        "reason": pair.reason,
    }


def _arm(speedup: ArmSpeedup) -> dict[str, Any]:
    """Return a candidate arm over its reference."""
    return {
        "metric": speedup.metric,
        "arm": speedup.arm,
        "reference": speedup.reference,
        "speedup": speedup.speedup,
    }
