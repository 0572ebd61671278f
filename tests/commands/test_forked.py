"""A call beside others, in a copy of this process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ci_bench.commands import output as module
from ci_bench.commands.output import forked

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*use of fork:DeprecationWarning"
)  # runners of tests have threads


def writes_who_it_is(file: Path) -> Callable[[], None]:
    """A call that adds the number of its process to a file."""

    def call() -> None:
        with file.open("a") as opened:
            opened.write(f"{os.getpid()}\n")

    return call


def who(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.fixture(autouse=True)
def may_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run in a process that may have threads, on machines that may have one core."""
    monkeypatch.setattr(module, "_may_fork", lambda: True)


def test_the_call_is_made_once_by_another_process_and_has_ended_with_the_block(
    tmp_path: Path,
) -> None:
    with forked(writes_who_it_is(tmp_path / "who")):
        pass
    (one,) = who(tmp_path / "who")
    assert one != os.getpid()
    with pytest.raises(ChildProcessError):
        os.waitpid(one, os.WNOHANG)


def test_the_block_does_not_wait_for_the_call(tmp_path: Path) -> None:
    """The call waits for what the block does last: in one process neither would ever end."""
    reading, writing = os.pipe()

    def call() -> None:
        os.close(writing)
        (tmp_path / "told").write_bytes(os.read(reading, 10))

    with forked(call):
        assert not (tmp_path / "told").exists()
        os.write(writing, b"by then")
        os.close(writing)
    os.close(reading)
    assert (tmp_path / "told").read_text() == "by then"


@pytest.mark.parametrize(
    "end", [lambda: sys.exit(3), lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0]
)
def test_what_a_copy_did_not_do_is_made_up_for(end: Callable[[], object], tmp_path: Path) -> None:
    own, note = os.getpid(), writes_who_it_is(tmp_path / "who")

    def call() -> None:
        if os.getpid() != own:
            end()
        note()

    with forked(call):
        pass
    assert who(tmp_path / "who") == [own]


def test_what_is_wrong_is_raised_where_it_is_seen() -> None:
    with pytest.raises(ZeroDivisionError), forked(lambda: 1 / 0):
        pass


def test_a_block_that_raises_waits_and_makes_nothing_up(tmp_path: Path) -> None:
    def call() -> None:
        writes_who_it_is(tmp_path / "who")()
        os._exit(1)

    with pytest.raises(KeyboardInterrupt), forked(call):
        raise KeyboardInterrupt
    (one,) = who(tmp_path / "who")
    assert one != os.getpid()
    with pytest.raises(ChildProcessError):
        os.waitpid(one, os.WNOHANG)


def test_where_it_may_not_fork_the_call_is_made_here_after_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_may_fork", lambda: False)
    with forked(writes_who_it_is(tmp_path / "who")):
        assert not (tmp_path / "who").exists()
    assert who(tmp_path / "who") == [os.getpid()]


def test_what_was_said_is_not_said_twice(tmp_path: Path) -> None:
    """Text that waits in the buffer of a stream belongs to the first process alone."""
    program = "from ci_bench.commands.output import forked\nprint('said', end='')\nwith forked(lambda: None): pass\n"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert found.stdout == "said"


def test_a_process_with_threads_or_one_core_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    assert not module._may_fork()
    stop.set()
    thread.join()
    program = "import os\nfrom ci_bench.commands import output\nfor cores in ({0, 1}, {0}):\n"
    program += "    os.sched_getaffinity = lambda _: cores\n    print(output._may_fork())\n"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["True", "False"]
