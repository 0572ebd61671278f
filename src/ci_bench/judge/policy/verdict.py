"""What the policy makes of a comparison: findings, the headline, and the exit code that follows.

Everything is derived from the comparison's own rows, so that it can be judged again from the document, under another policy.
"""

from ci_bench.errors import ExitCode
from ci_bench.judge.policy.findings import Compared, find, measured
from ci_bench.judge.policy.headline import headline
from ci_bench.records.case import Status
from ci_bench.records.comparison import CaseComparison
from ci_bench.records.judgement import Finding, Judgement
from ci_bench.records.policy import Policy, Rule, Severity


def judge(compared: Compared, policy: Policy) -> Judgement:
    """Judges a comparison. It passes exactly when its exit code is 0."""
    findings = find(compared, policy)
    nothing_measured = _nothing_measured(compared.cases)
    code = _exit_code(findings, nothing_measured=nothing_measured)
    passed = code is ExitCode.OK
    return Judgement(
        passed=passed,
        exit_code=int(code),
        headline=headline(compared, findings, passed=passed, nothing_measured=nothing_measured),
        findings=findings,
    )


def _nothing_measured(cases: tuple[CaseComparison, ...]) -> bool:
    """Whether measuring was tried and gave nothing: no policy can allow that. A run of skipped cases only was not tried."""
    planned = [case for case in cases if case.head_status is not None]
    tried = any(case.head_status is not Status.SKIPPED for case in planned)
    return tried and not any(measured(case) for case in planned)


def _exit_code(findings: tuple[Finding, ...], *, nothing_measured: bool) -> ExitCode:
    failing = {finding.rule for finding in findings if finding.severity is Severity.FAIL}
    if nothing_measured:
        return ExitCode.MEASURING_FAILED
    if failing == {Rule.INCOMPARABLE}:
        return ExitCode.INCOMPARABLE
    return ExitCode.POLICY_NOT_MET if failing else ExitCode.OK
