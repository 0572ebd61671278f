"""One run of a command: how it ends, what it leaves behind, what it used."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ci_bench.suites.command import process
from ci_bench.suites.command.process import (
    CommandFailed,
    CommandPlace,
    arguments,
    find_cause,
    peak_bytes,
    run,
)
from processes import is_alive

PYTHON = sys.executable


@pytest.fixture
def place(tmp_path):
    return CommandPlace(cwd=tmp_path, environ={**os.environ, "GREETING": "hello"}, folder=tmp_path)


def go(place, command, *, timeout_s=30.0, exit_codes=(0,)):
    run(arguments(command), place, timeout_s=timeout_s, exit_codes=exit_codes)


def test_a_script_is_bashs_and_stops_at_its_first_error(place) -> None:
    go(place, 'echo "$GREETING" | tr a-z A-Z\npwd; echo aside >&2')
    assert place.stdout.read_text() == f"HELLO\n{place.cwd}\n"
    assert place.stderr.read_text() == "aside\n"
    with pytest.raises(CommandFailed, match="ended with exit code 1"):
        go(place, "false | cat; echo still here")
    assert place.stdout.read_text() == ""


def test_a_list_is_a_program_and_no_shell_sees_it(place) -> None:
    go(place, ("printf", "%s", "$GREETING; exit 3"))
    assert place.stdout.read_text() == "$GREETING; exit 3"


def test_standard_input_is_empty(place) -> None:
    go(place, "cat")


ENDINGS = [
    ("exit 3", "`exit 3` ended with exit code 3"),
    ("echo first >&2; echo 'the reason' >&2; exit 4", "ended with exit code 4: the reason"),
    ("kill -SEGV $$", "`kill -SEGV $$` was ended by SIGSEGV"),
    ("kill -KILL $$", "was ended by SIGKILL, often the kernel's when memory runs out"),
    (("no-such-program-here",), "`no-such-program-here` cannot be started: [Errno 2]"),
    (("a\0b",), "cannot be started: embedded null byte"),
    (("sh", "-c", "x" * 300 + "; exit 1"), "…` ended with exit code"),
]


@pytest.mark.parametrize(("command", "message"), ENDINGS, ids=[message for _, message in ENDINGS])
def test_every_bad_end_has_its_words(place, command, message) -> None:
    with pytest.raises(CommandFailed) as error:
        go(place, command)
    assert message in str(error.value)
    assert len(str(error.value)) < 600


def test_other_exit_codes_can_be_good(place) -> None:
    go(place, "exit 1", exit_codes=(0, 1))
    with pytest.raises(CommandFailed):
        go(place, "exit 2", exit_codes=(0, 1))


def test_a_missing_folder_is_named(place, tmp_path) -> None:
    with pytest.raises(CommandFailed, match="nowhere of its `cwd` does not exist on this side"):
        go(CommandPlace(cwd=tmp_path / "nowhere", environ=place.environ, folder=tmp_path), "true")


def test_a_command_that_hangs_is_ended_with_all_that_it_started(place) -> None:
    started = time.monotonic()
    with pytest.raises(CommandFailed, match=r"was ended after 0.5 s \(its timeout_s\)"):
        go(place, "sleep 600 & echo $!; wait", timeout_s=0.5)
    assert time.monotonic() - started < 10
    assert not is_alive(int(place.stdout.read_text()), within_s=5)


def test_what_a_command_leaves_running_ends_with_it(place) -> None:
    """It would take part in the next sample."""
    go(place, "sleep 600 > /dev/null 2>&1 & echo $!")
    assert not is_alive(int(place.stdout.read_text()), within_s=5)


DAEMON = """
import os, sys, time
if os.fork():
    sys.exit()
os.setsid()
if os.fork():
    os._exit(0)
for name in list(os.environ):
    del os.environ[name]
os.closerange(0, 3)
more = os.fork()
with open(sys.argv[1], "a") as told:
    told.write(f"{os.getpid()}\\n")
time.sleep(600)
"""
"""Twice away from its parent, in a session of its own, without a name in its environment, with a
child.
"""


def test_a_daemon_ends_with_the_command_that_started_it(place, tmp_path) -> None:
    daemon, told = tmp_path / "daemon.py", tmp_path / "pids"
    daemon.write_text(DAEMON)
    for _ in range(2):
        go(
            place,
            f"{PYTHON} {daemon} {told}; until [ $(wc -l <{told}) -ge 2 ]; do sleep 0.01; done",
        )
        assert not [pid for pid in map(int, told.read_text().split()) if is_alive(pid)]
        told.unlink()


def test_what_starts_others_as_fast_as_it_ends_is_ended(place, tmp_path) -> None:
    """Each lives for a moment, and has started the next one before it ends."""
    told = tmp_path / "pids"
    told.touch()
    hop = f"hop() {{ echo $BASHPID >>{told}; sleep 0.005; hop & }}; export -f hop; setsid bash -c 'hop'"
    go(place, f"{hop} & until [ $(wc -l <{told}) -ge 5 ]; do sleep 0.01; done")
    seen = told.read_text()
    time.sleep(0.2)
    assert told.read_text() == seen


def test_what_cannot_be_ended_fails_the_run(place, tmp_path, monkeypatch) -> None:
    """As what became another user's cannot."""
    monkeypatch.setattr(process, "LEFTOVERS_S", 0.1)
    monkeypatch.setattr("ci_bench.suites.command.process.os.kill", lambda *_: None)
    with pytest.raises(CommandFailed, match="left processes running that cannot be ended"):
        go(
            place,
            f"setsid bash -c 'echo $$ >{tmp_path}/pid; exec sleep 600' & until [ -s {tmp_path}/pid ]; do sleep 0.01; done",
        )
    monkeypatch.undo()
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_other_children_of_the_process_that_runs_commands_are_let_be(place) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        go(place, "true")
        assert other.poll() is None
        other.kill()


def test_a_command_that_prints_without_end_is_ended(place, monkeypatch) -> None:
    monkeypatch.setattr(process, "MOST_OUTPUT_BYTES", 1 << 20)
    with pytest.raises(CommandFailed, match="printed more than 1 MiB and was ended"):
        go(place, ("yes",))


def test_the_end_of_what_it_said_is_in_the_log(place, capsys) -> None:
    with pytest.raises(CommandFailed):
        go(place, "seq 10000; echo sorry >&2; exit 1")
    log = capsys.readouterr().err
    assert "--- end of the command's stdout ---" in log
    assert "\n10000\n--- end of the command's stderr ---\nsorry\n" in log
    assert len(log) < 5000


@pytest.mark.alone
def test_waiting_does_not_blur_the_time(place) -> None:
    """Looking every so often, as `Popen.wait` with a limit does, would add up to 50 ms, and not to both sides alike."""
    go(place, "true")
    taken = []
    for _ in range(15):
        started = time.perf_counter()
        go(place, ("sleep", "0.07"))
        taken.append(time.perf_counter() - started)
    assert min(taken) < 0.07 + 0.03


HOLD = "import sys; held = bytearray(int(sys.argv[1]) << 20)"


def test_the_peak_is_that_of_the_command(place) -> None:
    peaks = [
        peak_bytes((PYTHON, "-c", HOLD, size), place, timeout_s=30, exit_codes=(0,))[0]
        for size in ("10", "60")
    ]
    assert peaks[1] - peaks[0] == pytest.approx(50 << 20, rel=0.1)
    assert (
        peak_bytes(
            arguments(f"{PYTHON} -c '{HOLD}' 60; true"), place, timeout_s=30, exit_codes=(0,)
        )[0]
        > 60 << 20
    )


def test_the_peak_of_a_small_command_is_not_that_of_the_process_that_runs_it(place) -> None:
    """A child of this process would start with this process's own peak."""
    held = bytearray(100 << 20)
    peak, _ = peak_bytes(("true",), place, timeout_s=30, exit_codes=(0,))
    assert len(held) > 5 * peak
    assert peak < 20 << 20


def test_the_meter_ends_as_the_command_does(place) -> None:
    for command, message in ENDINGS[:4]:
        with pytest.raises(CommandFailed) as error:
            peak_bytes(arguments(command), place, timeout_s=30, exit_codes=(0,))
        assert message in str(error.value)
    with pytest.raises(
        CommandFailed,
        match="ended with exit code 127: no-such-program-here: No such file or directory",
    ):
        peak_bytes(("no-such-program-here",), place, timeout_s=30, exit_codes=(0,))


def test_where_the_code_of_a_missing_program_counts_as_good_it_is_missing_all_the_same(
    place,
) -> None:
    with pytest.raises(CommandFailed, match="cannot be started"):
        peak_bytes(("no-such-program-here",), place, timeout_s=30, exit_codes=(127,))


def test_a_metered_command_that_hangs_is_ended(place) -> None:
    with pytest.raises(CommandFailed, match="was ended after"):
        peak_bytes(("sleep", "600"), place, timeout_s=0.3, exit_codes=(0,))


def test_signals_reach_this_process_as_before(place) -> None:
    before = signal.getsignal(signal.SIGTERM)
    go(place, "true")
    assert signal.getsignal(signal.SIGTERM) is before


TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise {error}
    ^^^^^^^^^^^^
{error}
"""
TORCHRUN = """\
E1122 13:42:51.527000 20041 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 20084)
Traceback (most recent call last):
  File "/env/bin/torchrun", line 6, in <module>
    sys.exit(main())
             ^^^^^^
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : {code} (pid: 20084)
  error_file: <N/A>
  traceback : {told}
============================================================
"""
SEE = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def ranked(text: str, rank: int) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def raised(error: str) -> str:
    return TRACEBACK.format(error=error)


CAUSES = {
    "": "",
    "====\n": "",
    "a warning\ndeep trouble\n\n": "deep trouble",
    raised("ValueError: boom"): "ValueError: boom",
    raised("KeyError: 'a'") + "\nDuring handling of the above exception, another exception occurred:\n\n"
    + raised("RuntimeError: no a"): "RuntimeError: no a",
    raised("ValueError: tolerated") + "out of disk\n": "out of disk",
    ranked(raised("ValueError: first"), 1) + ranked(raised("ValueError: second"), 0)
    + TORCHRUN.format(code=1, told=SEE): "ValueError: first",
    ranked(raised("KeyError: 'a'") + "\nThe above exception was the direct cause of the following exception:\n\n"
    + raised("RuntimeError: no a"), 0) + TORCHRUN.format(code=1, told=SEE): "RuntimeError: no a",
    TORCHRUN.format(code=3, told=SEE): "exitcode  : 3 (pid: 20084)",
    TORCHRUN.format(code=-11, told="Signal 11 (SIGSEGV) received by PID 20084"):
    "traceback : Signal 11 (SIGSEGV) received by PID 20084",
    raised("ValueError: boom") + raised("subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1."):
    "ValueError: boom",
    raised("subprocess.CalledProcessError: Command '['nvcc']' returned non-zero exit status 1."):
    "subprocess.CalledProcessError: Command '['nvcc']' returned non-zero exit status 1.",
    "x.c:3:1: error: expected ';'\n    3 | int a\n      | ^~~\n": "x.c:3:1: error: expected ';'",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "cause"), CAUSES.items(), ids=[f"{number}" for number in range(len(CAUSES))]
)
def test_the_cause_is_the_line_that_says_why(text, cause) -> None:
    assert find_cause(text) == cause


def test_what_a_launcher_of_many_workers_says_is_read_to_its_cause(place) -> None:
    """The report alone is longer than the tail that is shown."""
    (place.cwd / "report").write_text(
        ranked(raised("ValueError: boom"), 0) + TORCHRUN.format(code=1, told=SEE) * 4
    )
    with pytest.raises(CommandFailed, match=r"ended with exit code 1: ValueError: boom$"):
        go(place, "cat report >&2; exit 1")
