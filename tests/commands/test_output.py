"""Where output cannot go: closed pipes and streams, full disks, and a folder that was removed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci_bench.errors import ExitCode

RESULTS = Path(__file__).parents[2] / "schemas" / "examples" / "valid" / "results.json"
COMPARE = [sys.executable, "-m", "ci_bench.cli", "compare", RESULTS, RESULTS]


@pytest.mark.parametrize("form", ["terminal", "comment"])
def test_a_closed_pipe_is_no_verdict(form) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    told = subprocess.run(
        [*COMPARE, "--format", form], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (told.returncode, b"Traceback" in told.stderr) == (ExitCode.BROKEN_PIPE, False)


@pytest.mark.parametrize("form", ["terminal", "comment"])
def test_a_full_disk_is_no_verdict(form) -> None:
    with Path("/dev/full").open("w") as full:
        told = subprocess.run(
            [*COMPARE, "--format", form],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
        )
    assert told.returncode == ExitCode.BAD_INPUT
    assert told.stderr.endswith(
        "standard output cannot be written: No space left on device; check its disk\n"
    )


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-"])
def test_a_closed_stream_changes_no_exit_code(closed) -> None:
    command = ["bash", "-c", f'"$@" {closed}', "bash", *map(str, COMPARE)]
    told = subprocess.run(command, capture_output=True, check=False)
    assert (told.returncode, b"Traceback" in told.stderr) == (ExitCode.POLICY_NOT_MET, False)


def test_a_removed_folder_is_named(tmp_path) -> None:
    command = [
        "bash",
        "-c",
        'mkdir gone && cd gone && rmdir ../gone && "$@"',
        "bash",
        *map(str, COMPARE),
    ]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert told.returncode == ExitCode.BAD_INPUT
    assert "the current folder was removed" in told.stderr


def test_a_pipe_is_read_once() -> None:
    piped = subprocess.run(
        ["bash", "-c", '"$@" <(cat "$0") <(cat "$0")', RESULTS, *COMPARE[:4]],
        capture_output=True,
        check=False,
    )
    named = subprocess.run(
        [*COMPARE[:4], "-", RESULTS], input=RESULTS.read_bytes(), capture_output=True, check=False
    )
    whole = subprocess.run(COMPARE, capture_output=True, check=False)
    assert (
        (piped.stdout, piped.returncode)
        == (named.stdout, named.returncode)
        == (whole.stdout, whole.returncode)
    )
