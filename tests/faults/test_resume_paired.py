"""A paired gate that was killed is gone on with on both sides, and refused where either side is not what it was."""

import re
import shutil
import signal
import subprocess
import time

import pytest
import yaml

from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode, Verdict
from ci_bench.records.results import RunState, SideName, Status
from ci_bench.runner.resuming import PROGRESS

FIRST, SECOND = "fake/first", "fake/hangs_once"
CASES = (
    {"name": "first", "stages": ["prepare", "verify", "time"]},
    {"name": "hangs_once", "fault": "hang_once", "stages": ["prepare", "time"]},
)
GATE = ("gate", "--baseline", "paired", "--base", "HEAD~1")
FILES = {SideName.BASE: "base/results.json", SideName.HEAD: "results.json"}


def two_commits(place):
    """Head's step takes four times as long as base's."""
    place.configure(*CASES, blocks=3, max_launches=6)
    for step_s in ("0.002", "0.008"):
        (place.folder / "fake_step_s").write_text(step_s)
        subprocess.run(["git", "add", "fake_step_s"], cwd=place.folder, check=True)
        place.commit()


def killed(place):
    """A gate that was killed while it measured the second side of its second case, the first time."""
    notes = place.folder.parent / "notes"
    gate = place.start(*GATE, "--output", place.output)
    deadline = time.monotonic() + 90
    while not notes.exists() and gate.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    gate.send_signal(signal.SIGKILL)
    gate.communicate(timeout=60)
    assert notes.exists()


def read(folder):
    return {side: documents.read_results(folder / name) for side, name in FILES.items()}


def samples(results, case, launches=range(99)):
    """Every value of a case on each side, with where it belongs."""
    return {
        (side, metric.name, metric.arm, one.launch): one.values
        for side, document in results.items()
        for row in document.cases
        if row.case.id == case
        for metric in row.metrics
        for one in metric.launches
        if one.launch in launches
    }


@pytest.fixture(scope="module")
def cut(make_place):
    """One gate that was killed, for all, to be copied."""
    place = make_place()
    two_commits(place)
    killed(place)
    return place


@pytest.fixture
def begun(cut, place):
    shutil.copytree(cut.folder, place.folder, dirs_exist_ok=True)
    for name in ("notes", "begun"):
        shutil.copy(cut.folder.parent / name, place.folder.parent / name)
    return place


def test_the_finished_case_is_kept_on_both_sides_and_the_verdict_is_that_of_a_whole_gate(begun):
    before = read(begun.output)
    assert {side: document.run.state for side, document in before.items()} == dict.fromkeys(
        FILES, RunState.PARTIAL
    )
    kept = samples(before, FIRST)
    assert {side for side, *_ in kept} == {*FILES}
    assert {launch for *_, launch in kept} == {0}

    code, _, err = begun.run(*GATE, "--resume", "--output", begun.output)
    after, comparison = (
        read(begun.output),
        documents.read_comparison(begun.output / "comparison.json"),
    )
    assert "1 of 2 case(s) are measured already" in err
    assert samples(after, FIRST, {0}) == kept, "measured again"
    assert not re.search(rf"\[1/\d+\].*{FIRST}", err), err
    for document in after.values():
        assert (document.run.state, document.run.id) == (
            RunState.COMPLETE,
            before[SideName.HEAD].run.id,
        )
        assert [row.status for row in document.cases] == [Status.OK, Status.OK]

    whole_code, _, said = begun.run(*GATE, "--output", begun.folder / "whole")
    whole = documents.read_comparison(begun.folder / "whole" / "comparison.json")
    assert (code, whole_code) == (ExitCode.POLICY_NOT_MET, ExitCode.POLICY_NOT_MET), err + said
    assert comparison.mode is BaselineMode.PAIRED
    assert (
        [case.verdict for case in comparison.cases]
        == [case.verdict for case in whole.cases]
        == [Verdict.REGRESSED] * 2
    )
    first, second = (samples(after, case) for case in (FIRST, SECOND))
    for found in (first, second):
        launches = {side: {launch for one, *_, launch in found if one is side} for side in FILES}
        assert launches[SideName.BASE] == launches[SideName.HEAD] >= {0}, (
            "both sides have the same launches"
        )


def another_configuration(place):
    path = place.folder / "ci-bench.yml"
    config = yaml.safe_load(path.read_text())
    config["run"]["blocks"] = 4
    path.write_text(yaml.safe_dump(config))
    return (), "the configuration has changed"


def another_head(place):
    subprocess.run(["git", "checkout", "--quiet", "--detach"], cwd=place.folder, check=True)
    subprocess.run(["git", "checkout", "--quiet", "HEAD~1"], cwd=place.folder, check=True)
    return ("--base", "HEAD"), "head was commit [0-9a-f]{10}, now it is [0-9a-f]{10}"


def another_base(place):
    return ("--base", "HEAD~2"), "base was commit [0-9a-f]{10}, now it is [0-9a-f]{10}"


def changed_head(place):
    (place.folder / "fake_step_s").write_text("0.004")
    return (), "head had or has uncommitted changes, which cannot be compared"


def machine_of(side):
    def another(place):
        path = place.output / FILES[side]
        path.write_text(re.sub(r'"cpu": "[^"]*"', '"cpu": "Another CPU"', path.read_text()))
        return (), "another machine or with other software: cpu was Another CPU, now"

    another.__name__ = f"another_machine_of_{side}"
    return another


def another_run(place):
    path = place.output / FILES[SideName.BASE]
    path.write_text(re.sub(r'"id": "[0-9a-f]{32}"', f'"id": "{"0" * 32}"', path.read_text()))
    return (), "base and head are of different runs"


def a_side_is_missing(place):
    (place.output / FILES[SideName.BASE]).unlink()
    return (), r"base/results\.json"


def a_lost_note_of_base(place):
    (place.output / "base" / PROGRESS).unlink()
    return (), r"base/progress\.json: cannot be read"


CHANGES = (
    *(
        another_configuration,
        another_head,
        another_base,
        changed_head,
        machine_of(SideName.BASE),
        machine_of(SideName.HEAD),
    ),
    *(another_run, a_side_is_missing, a_lost_note_of_base),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_differs_on_either_side_is_refused_and_nothing_is_touched(begun, change):
    flags, words = change(begun)
    kept = {path: path.read_bytes() for path in begun.output.rglob("*.json")}
    code, _, err = begun.run(*GATE, "--resume", "--output", begun.output, *flags)
    assert (code, bool(re.search(words, err)), "Traceback" in err) == (
        ExitCode.BAD_INPUT,
        True,
        False,
    ), err
    assert {path: path.read_bytes() for path in begun.output.rglob("*.json")} == kept
