"""Waiting for the end of a process, and for that of what it left: by the kernel's word, without looking again and again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ci_bench.processes import descendants
from ci_bench.processes.descendants import ends_within, own_children


@pytest.fixture
def child():
    """A process that goes on until its standard input is closed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process
        process.kill()


@pytest.mark.usefixtures("way")
def test_a_process_is_waited_for_to_its_end_and_no_longer_than_asked(child) -> None:
    before, begun = _open_descriptors(), time.monotonic()
    assert not ends_within(child, 0.05)
    assert time.monotonic() - begun >= 0.05
    assert child.returncode is None
    child.stdin.close()
    assert ends_within(child, 20)
    assert child.returncode == 0
    assert ends_within(child, 0), "an end that was seen before"
    assert _open_descriptors() == before - 1, (
        "its standard input is closed, and nothing else is left open"
    )


def test_the_end_of_a_process_is_not_slept_for(child, monkeypatch) -> None:
    monkeypatch.setattr(
        descendants.time, "sleep", lambda _: pytest.fail("looked for again and again")
    )
    os.kill(child.pid, signal.SIGKILL)
    assert ends_within(child, 20)
    assert child.returncode == -signal.SIGKILL


CHILDLESS = """
from pathlib import Path
from ci_bench.processes.descendants import end_children
Path.glob = None  # what looks at all processes of the machine fails
print(end_children(()))
"""


def test_without_a_child_no_other_process_is_looked_at() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILDLESS], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("()\n", "")


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_children_that_live_or_wait_to_be_reaped_are_found(child) -> None:
    assert child.pid in set(own_children())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid in set(own_children())
