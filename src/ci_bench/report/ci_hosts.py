"""Reports that CI hosts read: JUnit's XML, and GitLab's code quality.

JUnit follows the schema of Jenkins' xUnit plugin (junit-10.xsd), which GitLab, Buildkite and others
read as well: https://github.com/jenkinsci/xunit-plugin. Code quality follows
https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format.

A failing element exists exactly if the policy is not met, so a host that only reads the report
agrees with the exit code.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

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
    """Return the comparison as JUnit XML.

    It has a suite of tests for each suite, a test for each case, and one for the run. A case that
    fails the run is a failure, or an error if it ended early. Cases without an answer are skipped.
    Warnings are the output of their test.
    """
    findings = comparison.judgement.findings
    root = Element("testsuites", name="ci-bench")
    for suite, cases in groupby(sorted(comparison.cases, key=_suite_of), key=_suite_of):
        tests = SubElement(root, "testsuite", name=suite)
        tests.extend(
            _test(case, [finding for finding in findings if finding.case == case.id])
            for case in cases
        )
    case_ids = {case.id for case in comparison.cases}
    run = _run_test(comparison, [finding for finding in findings if finding.case not in case_ids])
    SubElement(root, "testsuite", name="ci-bench").append(run)
    for counted in (root, *root):
        counted.set("tests", str(len([*counted.iter("testcase")])))
        for name, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            if counted is not root or name != "skipped":
                counted.set(plural, str(len(counted.findall(f".//testcase[{name}]"))))
    indent(root, "")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite_of(case: CaseComparison) -> str:
    return case.suite


def _test(case: CaseComparison, findings: Sequence[Finding]) -> Element:
    test = Element("testcase", name=clean(case.called, cap=_CAP), classname=case.suite)
    if case.launch_s is not None:
        test.set("time", f"{case.launch_s:.3f}")
    failed = [finding for finding in findings if finding.severity is Severity.FAIL]
    for finding in failed:
        _add_problem(test, "error" if case.head_status in _ENDED else "failure", finding, case)
    if not failed and (case.head_status in _NO_ANSWER or case.verdict is Verdict.INCONCLUSIVE):
        word = "skipped" if case.head_status is Status.SKIPPED else "not decided"
        SubElement(test, "skipped", message=f"{word}: {clean(case.reason, cap=_CAP)}")
    _add_warnings(test, findings)
    return test


def _run_test(comparison: Comparison, findings: Sequence[Finding]) -> Element:
    """Return the test of all findings that belong to no case.

    It fails if the policy is not met and no case says so.
    """
    test = Element("testcase", name=RUN, classname="ci-bench")
    for finding in findings:
        if finding.severity is Severity.FAIL:
            _add_problem(test, "failure", finding)
    if not comparison.judgement.met and not any(
        finding.severity is Severity.FAIL for finding in comparison.judgement.findings
    ):
        SubElement(
            test, "failure", message=clean(comparison.judgement.headline, cap=_CAP), type="policy"
        )
    _add_warnings(test, findings)
    return test


def _add_problem(
    test: Element, tag: str, finding: Finding, case: CaseComparison | None = None
) -> None:
    message = clean(finding.message, cap=_CAP)
    lines = [message]
    if case is not None and case.reproduce:
        lines.append(f"measure again: {clean(case.reproduce, cap=_CAP)}")
    if case is not None and tag == "error" and case.log_tail:
        lines += [clean(line, cap=_CAP) for line in case.log_tail.splitlines()[-_LOG_LINES:]]
    SubElement(test, tag, message=message, type=str(finding.rule)).text = "\n".join(lines)


def _add_warnings(test: Element, findings: Iterable[Finding]) -> None:
    if warned := [
        clean(finding.message, cap=_CAP)
        for finding in findings
        if finding.severity is Severity.WARN
    ]:
        SubElement(test, "system-out").text = "\n".join(warned)


def render_code_quality(comparison: Comparison) -> str:
    """Return failing and warning findings as a JSON array of GitLab's code quality report.

    The fingerprint depends on rule and case only, so GitLab knows a finding again whose figures
    moved.
    """
    counts: Counter[str] = Counter()
    cases = {case.id: case for case in comparison.cases}
    entries = []
    for finding in comparison.judgement.findings:
        if finding.severity not in SEVERITIES:
            continue
        key = f"{finding.rule} {finding.case or ''}"
        counts[key] += 1
        entries.append(_entry(finding, cases.get(finding.case or ""), f"{key} {counts[key]}"))
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
    """Return the file and line of the first cause inside the repository.

    Without one, it is the configuration's first line.
    """
    causes = case.causes if case is not None else ()
    for place in (place for cause in causes for part in cause.parts for place in part.places):
        if match := _PLACE.fullmatch(place):
            return match[1], int(match[2])
    return CONFIGURATION, 1
