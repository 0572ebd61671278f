"""The decision for programs: it says what the exit code says, names each case and each reason, and is JSON for any reader."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from report_builders import (
    check,
    common_shift,
    failed_cases,
    incomparable,
    no_baseline,
    paired_run,
    parity_broken,
    passed,
    regressed,
)

from ci_bench.records.comparison import BaselineMode, RunVerdict, Verdict
from ci_bench.records.results import Outcome
from ci_bench.report.decision import decision, render_decision

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "decision.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)


def undecided():
    """Nothing fails, and nothing is known."""
    return replace(passed(), judgement=replace(passed().judgement, verdict=RunVerdict.UNDECIDED))


EVERY = [
    undecided,
    passed,
    regressed,
    no_baseline,
    incomparable,
    parity_broken,
    failed_cases,
    paired_run,
    common_shift,
]


@pytest.mark.parametrize("made", EVERY)
def test_keep_is_exit_code_0_and_every_case_is_there_once(made):
    comparison = made()
    told = json.loads(render_decision(comparison))
    assert (told["kind"], told["schema_version"]) == ("decision", 1)
    assert (told["decision"] == "keep") is (told["exit_code"] == 0) is comparison.judgement.met
    assert [case["id"] for case in told["cases"]] == [case.id for case in comparison.cases]
    assert told["headline"] == comparison.judgement.headline
    assert {"keep", "discard"} >= {case["decision"] for case in told["cases"]}


def test_what_is_undecided_is_kept_and_called_so():
    told = decision(undecided())
    assert (told["decision"], told["verdict"], told["exit_code"]) == ("keep", "undecided", 0)


def test_a_regression_is_discarded_with_its_reason_and_its_case():
    comparison = regressed()
    told = decision(comparison)
    assert (told["decision"], told["verdict"]) == ("discard", "failed")
    failing = [finding for finding in comparison.judgement.findings if finding.case]
    assert {reason.get("case") for reason in told["reasons"]} >= {failing[0].case}
    worse = next(case for case in told["cases"] if case["id"] == failing[0].case)
    assert worse["decision"] == "discard"
    assert any(
        metric["verdict"] == "regressed" and metric["speedup"] < 1 for metric in worse["metrics"]
    )


def test_notes_are_no_reasons_and_checks_that_failed_are_named():
    comparison = failed_cases()
    told = decision(comparison)
    assert all(reason["severity"] in {"fail", "warn"} for reason in told["reasons"])
    named = {one["name"] for case in told["cases"] for one in case["failed_checks"]}
    owed = {
        one.name
        for case in comparison.cases
        for one in case.checks
        if one.outcome is Outcome.FAIL and not one.informative
    }
    assert named == owed
    assert check().outcome is Outcome.PASS


@pytest.mark.parametrize("made", EVERY)
def test_every_decision_is_as_the_schema_has_it(made):
    assert [
        error.message for error in VALIDATOR.iter_errors(json.loads(render_decision(made())))
    ] == []


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.pop("headline"),
        lambda told: told.update(decision="maybe"),
        lambda told: told["cases"][0].update(verdict="slower"),
        lambda told: told["cases"][0]["metrics"][0].update(speedup="2"),
        lambda told: told["reasons"][0].update(severity="note"),
        lambda told: told.update(more=1),
    ],
)
def test_another_form_is_not(change):
    told = decision(regressed())
    change(told)
    assert [*VALIDATOR.iter_errors(told)]


def test_the_schema_names_every_verdict_and_baseline():
    assert {*SCHEMA["$defs"]["verdict"]["enum"]} == {*map(str, Verdict)}
    assert {*SCHEMA["properties"]["baseline"]["enum"]} == {*map(str, BaselineMode), None}
