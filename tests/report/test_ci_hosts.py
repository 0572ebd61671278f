"""Reports for CI hosts: their published formats, and a failure in them exactly if the policy is not met."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from endings import BUILDERS, compared
from report_builders import case, comparison

from ci_bench.cli import main
from ci_bench.records import documents
from ci_bench.records.causes import Cause, CausePart
from ci_bench.records.comparison import Finding, Judgement, RunVerdict, Verdict
from ci_bench.records.config import Rule, Severity
from ci_bench.records.profiles import RowKind
from ci_bench.records.results import Status
from ci_bench.report.ci_hosts import render_code_quality, render_junit

PROBLEM = ({"type", "message"}, set())
JUNIT = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {
            "name",
            "tests",
            "failures",
            "errors",
            "group",
            "time",
            "skipped",
            "timestamp",
            "hostname",
            "id",
            "package",
            "file",
        },
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": (
        {"name", "time", "classname", "group"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "failure": PROBLEM,
    "error": PROBLEM,
    "skipped": PROBLEM,
    "system-out": (set(), set()),
}
"""Attributes and children of each element, by junit-10.xsd of Jenkins' xUnit plugin; its required
attributes are checked below.
"""
REQUIRED = {"testsuite": {"name", "tests", "failures", "errors"}, "testcase": {"name"}}
SEVERITIES = {"info", "minor", "major", "critical", "blocker"}
"""GitLab's, https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format."""


def junit(made):
    """The document of a comparison, which keeps to the schema."""
    root = ET.fromstring(render_junit(made))  # noqa: S314 - our own document
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = JUNIT[element.tag]
        assert {*element.attrib} <= attributes
        assert REQUIRED.get(element.tag, set()) <= {*element.attrib}
        assert {child.tag for child in element} <= children
    for counted in [root, *root]:
        tests = list(counted.iter("testcase"))
        assert int(counted.get("tests")) == len(tests)
        assert int(counted.get("failures")) == sum(
            test.find("failure") is not None for test in tests
        )
        assert int(counted.get("errors")) == sum(test.find("error") is not None for test in tests)
    return root


def quality(made):
    """The entries of a comparison, which have what GitLab requires."""
    entries = json.loads(render_code_quality(made))
    for entry in entries:
        assert entry.keys() == {"description", "check_name", "fingerprint", "severity", "location"}
        assert all(
            isinstance(entry[name], str) and entry[name]
            for name in ("description", "check_name", "fingerprint")
        )
        assert entry["severity"] in SEVERITIES
        path, lines = entry["location"]["path"], entry["location"]["lines"]
        assert not path.startswith(("/", "./"))
        assert ".." not in path
        assert lines["begin"] >= 1
    assert len({entry["fingerprint"] for entry in entries}) == len(entries)
    return entries


@pytest.mark.parametrize("ending", BUILDERS)
def test_failures_agree_with_the_verdict(ending) -> None:
    made = compared(ending)
    root = junit(made)
    assert (int(root.get("failures")) + int(root.get("errors")) == 0) is made.judgement.met
    assert len(list(root.iter("testcase"))) == len(made.cases) + 1
    assert any(entry["severity"] == "critical" for entry in quality(made)) == any(
        one.severity is Severity.FAIL for one in made.judgement.findings
    )


def judged(*findings, run=RunVerdict.FAILED, exit_code=1, **fields):
    judgement = Judgement(verdict=run, exit_code=exit_code, headline="headline", findings=findings)
    return replace(comparison(case("s/a", **fields), headline=""), judgement=judgement)


def finding(message="slower", severity=Severity.FAIL, rule=Rule.REGRESSED, where="s/a"):
    return Finding(rule=rule, severity=severity, message=message, case=where)


@pytest.mark.parametrize(
    ("status", "tag"),
    [(Status.OK, "failure"), (Status.CRASHED, "error"), (Status.TIMEOUT, "error")],
)
def test_cases_that_ended_early_are_errors(status, tag) -> None:
    root = junit(judged(finding(), head_status=status, log_tail="last words"))
    (problem,) = root.iter(tag)
    assert (problem.get("message"), problem.get("type")) == ("slower", "regressed")
    assert ("last words" in problem.text) == (tag == "error")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"head_status": Status.SKIPPED, "reason": "no GPU"}, "skipped: no GPU"),
        ({"head_status": Status.NOT_RUN, "reason": "no budget"}, "not decided: no budget"),
        ({"verdict": Verdict.INCONCLUSIVE, "reason": "too noisy"}, "not decided: too noisy"),
    ],
)
def test_cases_without_an_answer_are_skipped(fields, message) -> None:
    root = junit(judged(run=RunVerdict.UNDECIDED, exit_code=0, **fields))
    assert [one.get("message") for one in root.iter("skipped")] == [message]
    assert [one.get("skipped") for one in root] == ["1", "0"]
    failing = junit(judged(finding(), **fields))
    assert not list(failing.iter("skipped")), "a case that fails is not skipped"


def test_warnings_are_output() -> None:
    root = junit(
        judged(
            finding("noisy", Severity.WARN),
            finding("seen", Severity.NOTE),
            run=RunVerdict.PASSED,
            exit_code=0,
        )
    )
    assert [one.text for one in root.iter("system-out")] == ["noisy"]


def test_a_failure_without_a_finding_is_the_headline() -> None:
    root = junit(judged(exit_code=4))
    assert [one.get("message") for one in root.iter("failure")] == ["headline"]


def test_strangers_words_stay_text() -> None:
    hostile = "]]>\x00\x1b[31m</failure><skipped/>\"' & \u202e\ud800"
    root = junit(
        judged(
            finding(hostile),
            reproduce=hostile,
            head_status=Status.CRASHED,
            log_tail=f"{hostile}\n{hostile}",
        )
    )
    assert not list(root.iter("skipped"))
    (problem,) = root.iter("error")
    assert problem.get("message").startswith("]]></failure><skipped/>")
    (entry,) = quality(judged(finding(hostile)))
    assert "\x1b" not in entry["description"]


def test_fingerprints_outlive_figures() -> None:
    before = quality(judged(finding("3 % slower"), finding("2 % more memory")))
    after = quality(judged(finding("4 % slower"), finding("5 % more memory")))
    assert [entry["fingerprint"] for entry in before] == [entry["fingerprint"] for entry in after]
    assert re.fullmatch("[0-9a-f]{64}", before[0]["fingerprint"])


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("models/decoder.py:42", ("models/decoder.py", 42)),
        ("/usr/lib/x.py:3", ("ci-bench.yml", 1)),
        ("../x.py:3", ("ci-bench.yml", 1)),
        ("", ("ci-bench.yml", 1)),
    ],
)
def test_findings_lie_at_their_cause(place, found) -> None:
    part = CausePart(
        kind=RowKind.OPERATOR, before=(), after=("aten::pow",), places=(place,), codes=("",), base_s=0.0, head_s=1e-3,
        base_calls=0.0, head_calls=1.0,
    )  # fmt: skip
    made = judged(finding(), causes=(Cause(arm="eager", slower=True, parts=(part,)),))
    (entry,) = quality(made)
    assert (entry["location"]["path"], entry["location"]["lines"]["begin"]) == found


@pytest.mark.parametrize(("form", "start"), [("junit", "<?xml"), ("code-quality", "[\n")])
def test_the_command_writes_them(tmp_path, capsys, form, start) -> None:
    documents.write(compared("regressed"), tmp_path / "comparison.json")
    assert main(["show", str(tmp_path), "--format", form, "--output", str(tmp_path / "made")]) == 0
    assert (tmp_path / "made").read_text().startswith(start)
    assert "wrote" in capsys.readouterr().err
