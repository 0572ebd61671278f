"""Reports that CI hosts read: JUnit's XML, and GitLab's code quality.

JUnit follows the schema of Jenkins' xUnit plugin (junit-10.xsd), which GitLab, Buildkite and others
read as well: https://github.com/jenkinsci/xunit-plugin. Code quality follows
https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format.

A failing element exists exactly if the policy is not met, so a host that only reads the report agrees
with the exit code.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ci_bench.records.comparison import CaseComparison, Comparison, Finding, Verdict
from ci_bench.records.config import Severity
from ci_bench.records.results import Status
from ci_bench.report.text import clean

RUN = "policy"
"""The test of findings that belong to no case."""
CONFIGURATION = "ci-bench.yml"
"""The file of a finding without a line of code."""
SEVERITIES = {Severity.FAIL: "critical", Severity.WARN: "minor"}
"""GitLab's word for each severity; notes are not reported."""
_CAP = 1000
_LOG_LINES = 40
_PLACE = re.compile(r"(?!/|.*\.\.)([^:<>\s][^:<>]*):([1-9][0-9]{0,6})")
_NO_ANSWER = frozenset({Status.SKIPPED, Status.NOT_RUN})
_ENDED = frozenset({Status.FAILED, Status.TIMEOUT, Status.CRASHED, Status.OUT_OF_MEMORY})


def render_junit(comparison: Comparison) -> str:
    """Return the comparison as JUnit XML: a suite of tests for each suite, a test for each case, and one for the run.

    A case that fails the run is a failure, or an error if it ended early. Cases without an answer are
    skipped. Warnings are the output of their test.
    """
    findings = comparison.judgement.findings
    suites: dict[str, list[str]] = {}
    for case in comparison.cases:
        own = [one for one in findings if one.case == case.id]
        suites.setdefault(case.suite, []).append(_test(case, own))
    known = {case.id for case in comparison.cases}
    suites["ci-bench"] = [_run_test(comparison, [one for one in findings if one.case not in known])]
    body = [line for name, tests in suites.items() for line in _suite(name, tests)]
    every = [test for tests in suites.values() for test in tests]
    lines = [f"<testsuites{_attributes(name='ci-bench', **_counts(every))}>", *body, "</testsuites>"]
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', *lines]) + "\n"


def _suite(name: str, tests: Sequence[str]) -> list[str]:
    counts = {**_counts(tests), "skipped": sum("<skipped" in test for test in tests)}
    return [f"<testsuite{_attributes(name=name, **counts)}>", *tests, "</testsuite>"]


def _counts(tests: Sequence[str]) -> dict[str, object]:
    """The counts of all tests, by the element that each holds; texts are escaped, so they hold none."""
    return {
        "tests": len(tests),
        "failures": sum("<failure" in test for test in tests),
        "errors": sum("<error" in test for test in tests),
    }


def _test(case: CaseComparison, findings: Sequence[Finding]) -> str:
    failed = [one for one in findings if one.severity is Severity.FAIL]
    element = "error" if case.head_status in _ENDED else "failure"
    parts = [_problem(element, one, case) for one in failed]
    if not failed and (case.head_status in _NO_ANSWER or case.verdict is Verdict.INCONCLUSIVE):
        word = "skipped" if case.head_status is Status.SKIPPED else "not decided"
        parts = [f"<skipped{_attributes(message=f'{word}: {clean(case.reason, cap=_CAP)}')}/>"]
    parts += _output(findings)
    took = {} if case.launch_s is None else {"time": f"{case.launch_s:.3f}"}
    return _element("testcase", {"name": clean(case.called, cap=_CAP), "classname": case.suite, **took}, parts)


def _run_test(comparison: Comparison, findings: Sequence[Finding]) -> str:
    """The test of everything that no case stands for; it fails if the policy is not met and no case says so."""
    failed = [one for one in findings if one.severity is Severity.FAIL]
    parts = [_problem("failure", one) for one in failed]
    cases = any(one.severity is Severity.FAIL for one in comparison.judgement.findings)
    if not comparison.judgement.met and not cases:
        parts = [f"<failure{_attributes(message=clean(comparison.judgement.headline, cap=_CAP), type='policy')}/>"]
    return _element("testcase", {"name": RUN, "classname": "ci-bench"}, [*parts, *_output(findings)])


def _problem(element: str, finding: Finding, case: CaseComparison | None = None) -> str:
    message = clean(finding.message, cap=_CAP)
    more = [message]
    if case is not None and case.reproduce:
        more.append(f"measure again: {clean(case.reproduce, cap=_CAP)}")
    if case is not None and element == "error" and case.log_tail:
        more += [clean(line, cap=_CAP) for line in case.log_tail.splitlines()[-_LOG_LINES:]]
    text = escape("\n".join(more), quote=False)
    return f"<{element}{_attributes(message=message, type=str(finding.rule))}>{text}</{element}>"


def _output(findings: Iterable[Finding]) -> list[str]:
    """The warnings of a test."""
    warned = [clean(one.message, cap=_CAP) for one in findings if one.severity is Severity.WARN]
    return [f"<system-out>{escape(chr(10).join(warned), quote=False)}</system-out>"] if warned else []


def _element(name: str, attributes: dict[str, object], parts: Sequence[str]) -> str:
    start = f"<{name}{_attributes(**attributes)}"
    return f"{start}/>" if not parts else "\n".join([f"{start}>", *parts, f"</{name}>"])


def _attributes(**values: object) -> str:
    return "".join(f' {name}="{escape(str(value))}"' for name, value in values.items())


def render_code_quality(comparison: Comparison) -> str:
    """Return failing and warning findings as GitLab's code quality report: a JSON array, worst first.

    The fingerprint depends on rule and case only, so GitLab knows a finding again whose figures moved.
    """
    seen: Counter[str] = Counter()
    cases = {case.id: case for case in comparison.cases}
    entries = []
    for finding in comparison.judgement.findings:
        if finding.severity not in SEVERITIES:
            continue
        key = f"{finding.rule} {finding.case or ''}"
        seen[key] += 1
        entries.append(_entry(finding, cases.get(finding.case or ""), f"{key} {seen[key]}"))
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def _entry(finding: Finding, case: CaseComparison | None, key: str) -> dict[str, Any]:
    path, line = _place(case)
    return {
        "description": clean(finding.message, cap=_CAP),
        "check_name": f"ci-bench/{finding.rule}",
        "fingerprint": hashlib.sha256(key.encode("utf-8", "replace")).hexdigest(),
        "severity": SEVERITIES[finding.severity],
        "location": {"path": path, "lines": {"begin": line}},
    }


def _place(case: CaseComparison | None) -> tuple[str, int]:
    """Return the file and line of the first cause inside the repository; without one, the configuration's first line."""
    causes = case.causes if case is not None else ()
    for place in (place for cause in causes for part in cause.parts for place in part.places):
        if found := _PLACE.fullmatch(place):
            return found[1], int(found[2])
    return CONFIGURATION, 1
