"""A test that fails is run once more, alone: what fails beside others only is named, and nothing else becomes green."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[1] / "tools/run_tests.py"
WRONG = "def test_wrong():\n    assert False\n"
RIGHT = "def test_right():\n    pass\n"
UNLUCKY = """
import pathlib
def test_unlucky():
    seen = pathlib.Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
DIES = "import os\ndef test_dies():\n    os._exit(3)\n"
SEVERAL = """
import pathlib, pytest
@pytest.mark.parametrize("n", range(6))
def test_unlucky(n):
    seen = pathlib.Path(f"seen{n}")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def go(place: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (place / "test_it.py").write_text(source)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, str(TOOL), *arguments, "test_it.py"]
    return subprocess.run(
        command, cwd=place, env=environ, capture_output=True, text=True, check=False
    )


def test_what_passes_runs_once(tmp_path):
    ended = go(tmp_path, RIGHT)
    assert ended.returncode == 0
    assert "once more" not in ended.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "workers"])
def test_what_fails_once_is_named_and_fails_nothing(tmp_path, workers):
    ended = go(tmp_path, RIGHT + UNLUCKY, *workers)
    assert ended.returncode == 0
    assert ended.stdout.endswith(
        "passes alone (a race or a bound of time, to mend): test_it.py::test_unlucky\n"
    )


def test_what_fails_twice_fails(tmp_path):
    ended = go(tmp_path, UNLUCKY + WRONG)
    assert ended.returncode == 1
    assert "1 failed, 1 passed" in ended.stdout
    assert "passes alone" not in ended.stdout


def test_what_failed_in_an_earlier_run_is_not_taken_for_this_one(tmp_path):
    go(tmp_path, WRONG)
    assert go(tmp_path, UNLUCKY).returncode == 0


def test_more_failures_than_a_busy_machine_explains_fail(tmp_path):
    ended = go(tmp_path, SEVERAL)
    assert ended.returncode == 1
    assert "once more" not in ended.stdout


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        (DIES, ("-n", "1", "--max-worker-restart", "0")),
        ("import nothing_of_this_name\n", ()),
        (RIGHT, ("-k", "none")),
    ],
    ids=["a worker that dies", "what can't be collected", "no test"],
)
def test_what_did_not_run_stays_red(tmp_path, source, arguments):
    assert go(tmp_path, RIGHT + source, *arguments).returncode != 0
