"""What the policy makes of a comparison: findings, each under a rule with a severity, and the exit code that follows."""

from dataclasses import dataclass

from ci_bench.records.policy import Rule, Severity


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing the policy has a word on, with its coded rule. `case` is `None` for the run as a whole."""

    rule: Rule
    severity: Severity
    message: str
    case: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What the policy makes of a comparison: worst findings first, and the exit code that follows."""

    passed: bool
    exit_code: int
    headline: str
    findings: tuple[Finding, ...]
