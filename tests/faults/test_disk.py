"""A disk that is full at any write, files that may not grow, and an output folder that cannot be written."""

import resource
import subprocess
import sys

import pytest
from fake_suite import FIXTURES
from fault_cli import NEVER, stem_of

from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.results import Status
from processes import carrying

MOST_WRITES = 60


def full_at(place, number):
    """A gate whose n-th file cannot be opened, or with `n:name` the n-th of that name."""
    script = "import sys, fault_cli; sys.exit(fault_cli.main(sys.argv[1:]))"
    return place.run(
        number, "gate", "--output", place.output, command=(sys.executable, "-c", script)
    )


def is_told_and_loses_nothing(place, code, err):
    """Holds after a gate that met a full disk; returns the file that met it."""
    assert "Traceback" not in err, err
    assert (
        code in {ExitCode.BAD_INPUT, ExitCode.MEASURING_FAILED} and "No space left" in err
    ) or code == 0, (code, err)
    for path in (place.output / "results.json", place.output / "comparison.json"):
        if path.exists():
            assert documents.document_kind(path)
    assert not list(place.output.glob(".*.tmp"))
    assert place.leftovers() == []
    return err.partition("FULL ")[2].partition("\n")[0]


@pytest.mark.slow
def test_full_disk_is_reported_without_loss(place):
    place.configure({"name": "one"}, {"name": "two"})
    told = []
    for number in range(1, MOST_WRITES):
        code, _, err = full_at(place, number)
        if code == NEVER:
            break
        told.append(is_told_and_loses_nothing(place, code, err))
    assert len(told) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["results", "comparison", "report", "server"])
def test_a_disk_that_is_full_at_a_file_is_told_and_loses_nothing(place, name):
    """By name: how many files are written before it hangs on the machine's pace."""
    place.configure({"name": "one"}, {"name": "two"})
    code, _, err = full_at(place, f"1:{name}")
    assert code != NEVER, "no such file was written"
    assert stem_of(is_told_and_loses_nothing(place, code, err)) == name


def test_file_size_limit_keeps_old_file(place):
    """The limit of the process in the place of a disk: it strikes in the middle of a file."""
    place.configure({"name": "one"}, {"name": "two"})
    assert place.run("run", "--output", place.output)[0] == 0
    before = (place.output / "results.json").read_bytes()
    limited = place.start(
        "run",
        "--output",
        place.output,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)),
    )
    _, err = limited.communicate(timeout=60)
    assert limited.returncode in {ExitCode.BAD_INPUT, ExitCode.MEASURING_FAILED}
    assert ("File too large" in err, "Traceback" in err) == (True, False), err
    assert (place.output / "results.json").read_bytes() == before
    assert place.leftovers() == []


def test_unwritable_output_fails_before_measuring(place):
    place.configure({"name": "one"})
    code, _, err = place.run(
        "run", "--output", "/sys/kernel/ci-bench", FAKE_ROOM="read-only-output"
    )
    assert (code, "cannot be written" in err, "Traceback" in err) == (
        ExitCode.BAD_INPUT,
        True,
        False,
    ), err
    assert carrying("read-only-output") == []


def test_deleted_output_folder_is_restored(place):
    place.configure(
        {"name": "before"}, {"name": "deletes", "fault": "delete_results"}, {"name": "after"}
    )
    code, _, err = place.run("gate", "--output", place.output, FAKE_RESULTS=str(place.output))
    assert code == 0, err
    rows = documents.read_results(place.output / "results.json").cases
    assert [(row.case.name, row.status, bool(row.metrics)) for row in rows] == [
        ("before", Status.OK, True), ("deletes", Status.OK, True), ("after", Status.OK, True),
    ]  # fmt: skip
    assert (place.output / "report.md").exists()


def test_the_fault_is_seen_where_it_strikes(tmp_path):
    """The planted disk is full once, and only for what is written."""
    script = (
        "import sys, fault_cli; sys.addaudithook(fault_cli.Full(2)); open(sys.argv[1]).close()\n"
        "for name in 'abc':\n"
        "    try: open(sys.argv[1] + name, 'w').close(); print('made')\n"
        "    except OSError as error: print(error.strerror)\n"
    )
    (tmp_path / "x").touch()
    command = [sys.executable, "-c", script, str(tmp_path / "x")]
    told = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(FIXTURES)}
    )
    assert told.stdout.split("\n")[:3] == ["made", "No space left on device", "made"]
