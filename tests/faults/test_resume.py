"""A run that was interrupted is gone on with after its last finished case, and only where nothing that matters has changed."""

import json
import re
import shutil
import signal
import time

import pytest
import yaml

from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.results import RunState, Status

CASES = (
    {"name": "first", "stages": ["prepare", "verify", "memory", "time"]},
    {"name": "hangs_once", "fault": "hang_once", "stages": ["prepare", "verify", "time"]},
    {"name": "last", "stages": ["prepare", "time"]},
)


def read(place):
    return documents.read_results(place.output / "results.json")


def interrupted(place, *more, launches=2):
    """A run that was killed, without any chance to tidy, while its second case was being measured in its second launch."""
    place.configure(*CASES, launches=launches)
    notes = place.folder.parent / "notes"
    notes.unlink(missing_ok=True)
    run = place.start("run", "--output", place.output, *more)
    deadline = time.monotonic() + 60
    while not notes.exists() and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=60)
    return read(place)


def sample_ids(results):
    """Every value with where it belongs: a sample that is kept must be the very same one, and none may be there twice."""
    return {
        (row.case.name, metric.name, metric.arm, launch.launch): launch.values
        for row in results.cases
        for metric in row.metrics
        for launch in metric.launches
    }


def test_resume_continues_after_last_case(place):
    before = interrupted(place)
    assert before.run.state is RunState.PARTIAL
    done = json.loads((place.output / "progress.json").read_text())["launches"]
    assert (done["fake/hangs_once"], sum(done.values()) < 6) == (1, True)
    code, _, err = place.run("run", "--resume", "--output", place.output)
    after = read(place)
    assert (code, "resuming the run" in err) == (0, True), err
    assert (after.run.state, after.run.id, after.run.started_at) == (
        RunState.COMPLETE,
        before.run.id,
        before.run.started_at,
    )
    assert {row.status for row in after.cases} == {Status.OK}
    kept, whole = sample_ids(before), sample_ids(after)
    assert {key: whole[key] for key in kept if key[3] < done[f"fake/{key[0]}"]} == {
        key: value for key, value in kept.items() if key[3] < done[f"fake/{key[0]}"]
    }
    for name in ("first", "hangs_once", "last"):
        assert {key[3] for key in whole if key[:2] == (name, "step_time")} == {0, 1}


def test_resume_of_nothing_starts_run(place):
    place.configure({"name": "one"})
    code, _, err = place.run("run", "--resume", "--output", place.output)
    assert (code, "starting a new one" in err, read(place).run.state) == (
        0,
        True,
        RunState.COMPLETE,
    )


def test_resumed_gate_is_judged(place):
    interrupted(place)
    code, out, err = place.run("gate", "--resume", "--output", place.output, "--format", "comment")
    assert (code, read(place).run.state) == (0, RunState.COMPLETE), out + err
    assert (place.output / "report.md").exists()


def another_configuration(place):
    path = place.folder / "ci-bench.yml"
    config = yaml.safe_load(path.read_text())
    config["run"]["blocks"] = 3
    path.write_text(yaml.safe_dump(config))
    place.commit()
    return (), "the configuration has changed"


def another_commit(place):
    place.commit()
    return (), "head was commit [0-9a-f]{10}, now it is [0-9a-f]{10}"


def uncommitted_changes(place):
    with (place.folder / "ci-bench.yml").open("a") as stream:
        stream.write("# a remark\n")
    return (), "uncommitted changes, which cannot be compared"


def no_checkout(place):
    (place.folder / ".git").rename(place.folder / "gone")
    return (), "without a git checkout, it is unknown"


def other_cases(place):
    return ("--filter", "last"), "the cases differ"


def another_machine(place):
    (place.output / "progress.json").write_text(
        '{"kind": "progress", "schema_version": 1, "launches": {"fake/one": 1}}'
    )
    path = place.output / "results.json"
    path.write_text(re.sub(r'"cpu": "[^"]*"', '"cpu": "Another CPU"', path.read_text()))
    return (), "another machine or with other software: cpu was Another CPU, now"


def another_version(place):
    path = place.output / "results.json"
    path.write_text(re.sub(r'"tool_version": "[^"]*"', '"tool_version": "0.0.1"', path.read_text()))
    return (), "started by ci-bench 0.0.1"


def a_lost_note(place):
    (place.output / "progress.json").unlink()
    return (), "progress.json: cannot be read"


def a_forged_note(place):
    (place.output / "progress.json").write_text(
        '{"kind": "progress", "schema_version": 1, "launches": {"fake/first": -1}}'
    )
    return (), "counts of launches are whole numbers"


def broken_results(place):
    (place.output / "results.json").write_text("{")
    return (), "not JSON"


CHANGES = (
    *(
        another_configuration,
        another_commit,
        uncommitted_changes,
        no_checkout,
        other_cases,
        another_machine,
    ),
    *(another_version, a_lost_note, a_forged_note, broken_results),
)


@pytest.fixture(scope="module")
def measured(make_place):
    """One run for all, to be copied."""
    place = make_place()
    place.configure({"name": "one"}, {"name": "last"})
    code, _, err = place.run("run", "--output", place.output)
    assert code == 0, err
    return place


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_differs_is_refused_and_nothing_is_touched(measured, place, change):
    shutil.copytree(measured.folder, place.folder, dirs_exist_ok=True)
    flags, words = change(place)
    kept = {path.name: path.read_bytes() for path in place.output.iterdir()}
    code, _, err = place.run("run", "--resume", "--output", place.output, *flags)
    assert (code, bool(re.search(words, err)), "Traceback" in err) == (
        ExitCode.BAD_INPUT,
        True,
        False,
    ), err
    assert {path.name: path.read_bytes() for path in place.output.iterdir()} == kept


def test_a_run_that_is_whole_is_left_as_it_is(measured, place):
    shutil.copytree(measured.folder, place.folder, dirs_exist_ok=True)
    code, _, err = place.run("run", "--resume", "--output", place.output)
    assert (code, sample_ids(read(place))) == (0, sample_ids(read(measured))), err
    assert read(place).environment.identity["device"] == "cpu"
