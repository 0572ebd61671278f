"""What a command leaves running: named, watched whether it works, and judged."""

import os
import sys

import pytest
from command_builders import measure_here

from ci_bench.records.results import Outcome, Status
from ci_bench.suites.command.leftovers import EndedProcesses, leftovers_check
from ci_bench.suites.command.process import CommandPlace, arguments, run

BUSY = "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: pass\n    os._exit(0)\n"
"""Leaves a process of another session that computes."""
SOON_DONE = BUSY.replace("while True: pass", "sum(i * i for i in range(6_000_000))")
"""Its work ends by itself while it is watched."""
IDLE = BUSY.replace("while True: pass", "import time; time.sleep(600)")
WAITED_FOR = "import subprocess; subprocess.run(['sleep', '0.05'])"
ENDED_BEFORE = "import os, time\nif os.fork() == 0:\n    if os.fork():\n        os._exit(0)\n    os._exit(0)\ntime.sleep(0.1)\n"
"""Its orphan had ended long before, and was only not waited for."""


@pytest.fixture
def place(tmp_path):
    return CommandPlace(cwd=tmp_path, environ=dict(os.environ), folder=tmp_path)


def watched(place, code, watch_s=0.3):
    return run((sys.executable, "-c", code), place, timeout_s=30, exit_codes=(0,), watch_s=watch_s)


@pytest.mark.parametrize("code", [BUSY, SOON_DONE], ids=["busy", "soon_done"])
def test_work_that_goes_on_is_seen(place, code) -> None:
    ended = watched(place, code, watch_s=1.0)
    assert len(ended.left) == 1
    assert ended.worked_s > 0.04
    assert 0 < ended.watched_s < 3


def test_a_server_that_waits_is_idle(place) -> None:
    ended = watched(place, IDLE)
    assert len(ended.left) == 1
    assert ended.worked_s <= 0.02


@pytest.mark.parametrize(
    "code", ["pass", ENDED_BEFORE, WAITED_FOR], ids=["nothing", "ended_before", "waited_for"]
)
def test_nothing_is_left(place, code) -> None:
    ended = watched(place, code)
    assert (ended.left, ended.worked_s, ended.watched_s) == ((), 0.0, 0.0)


def test_leftovers_are_named_without_a_watch(place) -> None:
    command = 'sleep 600 & disown; until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done'  # a shell's fork has its name at first
    ended = run(arguments(command), place, timeout_s=30, exit_codes=(0,))
    assert ended.left == ("sleep",)


@pytest.mark.parametrize(
    ("seconds", "worked_s", "outcome"),
    [
        (0.5, 0.0, Outcome.PASS),
        (0.5, 0.05, Outcome.PASS),
        (0.5, 0.12, Outcome.UNKNOWN),
        (0.5, 0.2, Outcome.FAIL),
        (60.0, 0.4, Outcome.PASS),
        (60.0, 0.9, Outcome.FAIL),
        (0.05, 0.9, Outcome.FAIL),
    ],
)
def test_left_work_is_judged_by_size(seconds, worked_s, outcome) -> None:
    """Work that lasts as long as it was watched may last for any time."""
    check = leftovers_check(
        "work",
        [EndedProcesses(seconds=seconds, left=("python3",), worked_s=worked_s, watched_s=1.0)],
    )
    assert check is not None
    assert check.outcome is outcome
    assert "python3" in check.detail


def test_no_leftovers_need_no_check() -> None:
    assert leftovers_check("work", [EndedProcesses(seconds=1.0)]) is None


@pytest.mark.parametrize(
    ("code", "outcome"), [(BUSY, Outcome.FAIL), (IDLE, Outcome.PASS), ("pass", None)]
)
def test_a_row_says_what_was_left(tmp_path, code, outcome) -> None:
    (row,) = measure_here(tmp_path, {"name": "work", "command": [sys.executable, "-c", code]})
    assert row.status is Status.OK, row.failure
    assert {check.outcome for check in row.checks if check.name == "leftovers"} == (
        {outcome} if outcome else set()
    )


def test_leftovers_of_a_reading_command_are_seen(tmp_path) -> None:
    """Its own clock stops before the work is done as well."""
    output = '{"kind": "measurements", "schema_version": 1, "series": [{"name": "a", "unit": "ms", "better": "lower", "values": [1]}]}'
    code = f"import os\nopen(os.environ['CI_BENCH_OUTPUT'], 'w').write({output!r})\n{BUSY}"
    entry = {"name": "work", "command": [sys.executable, "-c", code], "format": "measurements"}
    (row,) = measure_here(tmp_path, entry)
    assert [check.outcome for check in row.checks if check.name == "leftovers"] == [Outcome.FAIL]
