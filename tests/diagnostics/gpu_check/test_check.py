"""Sections run alone, in processes of their own: what fails, hangs, dies or is missing costs the others nothing."""

import json
import sys
import time
from dataclasses import replace

import jsonschema
import pytest
from gpu_check_figures import GOOD, OTHERS, SCHEMA
from rich.console import Console

from ci_bench.diagnostics.gpu_check.check import GpuCheck, document, passed, render
from ci_bench.diagnostics.gpu_check.sections import NAMES, SECTIONS
from ci_bench.records.results import Outcome

SERVED = """\
import json, os, sys, time
good, faults = json.load(open({file!r}))
if "start" in faults:
    time.sleep(60) if faults["start"] == "hang" else sys.exit("no module named torch")
print(json.dumps({{"ready": True}}), flush=True)
for line in sys.stdin:
    name = line.split()[0]
    fault = faults.get(name)
    if fault == "hang":
        time.sleep(60)
    if fault == "die":
        sys.exit("its last words")
    if fault == "nonsense":
        print("no JSON", flush=True)
    elif fault == "fail":
        print(json.dumps({{"name": name, "seconds": 0.1, "error": "RuntimeError: no"}}), flush=True)
    elif fault == "incomplete":
        print(json.dumps({{"name": name, "seconds": 0.1, "figures": {{}}}}), flush=True)
    else:
        print(json.dumps({{"name": name, "seconds": 0.1, "figures": good[name]}}), flush=True)
"""
FAULTS = {
    "hang": "it sent no answer",
    "die": "it sent no answer: its last words",
    "nonsense": "it sent no answer",
    "fail": "RuntimeError: no",
    "incomplete": "",
}


def checked(
    tmp_path,
    faults=(),
    *,
    wanted=SECTIONS,
    unchanged=lambda: GOOD["unchanged"],
    heard=None,
    **patience,
):
    file = tmp_path / "told.json"
    told = {
        **GOOD,
        "device": {key: value for key, value in GOOD["device"].items() if key != "uuid"},
    }
    file.write_text(json.dumps([told, dict(faults)]))
    checking = GpuCheck(
        device="cuda",
        environ={},
        lock_s=1.0,
        measure_unchanged=unchanged,
        observe=lambda section: None if heard is None else heard.append(section.name),
        serve=(sys.executable, "-c", SERVED.format(file=str(file))),
        **patience,
    )
    return tuple(checking.rows(wanted))


def outcomes(rows):
    return {row.section.name: row.found.outcome for row in rows}


def test_all_sections_in_their_order(tmp_path):
    heard = []
    rows = checked(tmp_path, heard=heard)
    assert [row.section.name for row in rows] == heard == list(NAMES)
    assert {*outcomes(rows).values()} == {Outcome.PASS}
    assert passed(rows)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "unchanged"])
def test_one_that_goes_wrong_is_told_and_the_others_run(tmp_path, name, fault):
    wanted = [
        replace(one, limit_s=0.5)
        for one in SECTIONS
        if one.name in {"device", name, "peaks", "unchanged"}
    ]
    rows = checked(tmp_path, {name: fault}, wanted=wanted, start_s=2.0, grace_s=0.2)
    found = outcomes(rows)
    assert found.pop(name) is Outcome.FAIL
    assert {*found.values()} == {Outcome.PASS}
    assert FAULTS[fault] in next(row.found.found for row in rows if row.section.name == name)
    assert not passed(rows)


def test_the_whole_engines_section_goes_wrong_alone(tmp_path):
    def fail():
        raise RuntimeError("no canary")

    rows = checked(tmp_path, unchanged=fail)
    assert [row.found.found for row in rows if row.found.outcome is not Outcome.PASS] == [
        "RuntimeError: no canary"
    ]


def test_sections_run_alone(tmp_path):
    wanted = tuple(section for section in SECTIONS if section.name in {"peaks", "fence"})
    assert list(outcomes(checked(tmp_path, wanted=wanted))) == ["fence", "peaks"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("hang", "torch was not imported within 0.5 s: a cold or slow disk?"),
        ("die", "torch could not be imported: no module"),
    ],
)
def test_a_start_that_fails_is_told_from_a_section_that_hangs(tmp_path, fault, words):
    begun = []
    rows = checked(
        tmp_path,
        {"start": fault},
        wanted=SECTIONS[:1],
        start_s=0.5 if fault == "hang" else 20.0,
        starting=begun.append,
    )
    assert words in rows[0].found.found
    assert begun


def test_what_serves_is_ended(tmp_path):
    begun = time.monotonic()
    checked(tmp_path, wanted=SECTIONS[:1])
    assert time.monotonic() < begun + 10


@pytest.mark.parametrize(
    ("name", "changed", "outcome"),
    [(name, changed, outcome) for name, changed, outcome, _ in OTHERS],
)
def test_every_finding_is_in_the_document_and_fits_its_schema(
    tmp_path, monkeypatch, name, changed, outcome
):
    monkeypatch.setitem(GOOD, name, {**GOOD[name], **changed})
    wanted = tuple(section for section in SECTIONS if section.name in {"device", name})
    rows = checked(tmp_path, wanted=wanted, unchanged=lambda: GOOD["unchanged"])
    whole = document(
        rows, device="cuda:1", tool_version="1.0", started_at="2026-01-01T00:00:00+00:00"
    )
    jsonschema.Draft202012Validator(SCHEMA).validate(whole)
    assert whole["passed"] is (outcome is not Outcome.FAIL)
    told = {one["name"]: one for one in whole["sections"]}
    assert told[name]["outcome"] == outcome


def test_the_table_says_what_is_wrong(tmp_path, capsys):
    rows = checked(tmp_path, {"peaks": "fail"})
    render(rows, Console(width=200))
    said = capsys.readouterr().out
    assert "✗  peaks" in said
    assert "RuntimeError: no" in said
    assert "Wrong on this card: peaks." in said
