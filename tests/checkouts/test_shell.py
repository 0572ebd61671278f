"""One shell command: its end, its time limit, its output, and what it leaves running."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from repositories import has_ended, is_running, wait_for

from ci_bench.checkouts import shell
from ci_bench.checkouts.shell import HEAD_BYTES, TAIL_BYTES, Finished, run_command


def run(tmp_path: Path, command: str, *, timeout_s: float = 30, **environ: str) -> Finished:
    visible = {"PATH": os.environ["PATH"], **environ}
    return run_command(
        command, folder=tmp_path, environ=visible, timeout_s=timeout_s, log=tmp_path / "log"
    )


def test_output_and_end_of_a_command(tmp_path: Path) -> None:
    ended = run(tmp_path, 'echo "$WHO"; echo two >&2; exit 3', WHO="one")
    assert (ended.code, ended.timed_out, ended.tail) == (3, False, "one\ntwo")
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("command", ["false; true", "false | true", "echo $UNSET_NAME"])
def test_what_goes_wrong_within_a_command_is_not_passed_over(tmp_path: Path, command: str) -> None:
    assert run(tmp_path, command).code != 0


def test_a_command_that_waits_for_input_gets_none(tmp_path: Path) -> None:
    assert run(tmp_path, "read -r answer").code == 1


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        "sleep 600 & echo $! >child; (trap '' TERM INT; echo ready; sleep 600)",
        timeout_s=1,
    )
    assert ended.timed_out
    assert ended.code == -signal.SIGKILL
    assert ended.tail == "ready"
    assert has_ended(int((tmp_path / "child").read_text()))


def test_the_end_of_a_command_that_closed_its_output_is_not_slept_for(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(shell.time, "sleep", lambda _: pytest.fail("looked for again and again"))
    assert run(tmp_path, "exec >&- 2>&-; sleep 0.05; exit 3").code == 3


_WRITTEN = "until [ -s child ]; do sleep 0.01; done"
LEFT = {
    "without an environment": "env -i sleep 600 & echo $! >child; sleep 0.3",
    "in the background": "sleep 600 & echo $! >child",
    "in a session of its own": f"setsid bash -c 'echo $$ >child; exec sleep 600' & {_WRITTEN}",
    "without its environment": f"setsid env -i bash -c 'echo $$ >child; exec sleep 600' & {_WRITTEN}",
    "twice away": f"(setsid bash -c 'sleep 600 & echo $! >child' &); {_WRITTEN}",
}


@pytest.mark.parametrize("command", LEFT.values(), ids=LEFT.keys())
def test_what_a_command_leaves_running_is_ended(tmp_path: Path, command: str) -> None:
    ended = run(tmp_path, command)
    assert ended.code == 0
    child = int(wait_for(tmp_path / "child"))
    assert has_ended(child)


@pytest.mark.parametrize("left", ["twice away", "without its environment"])
def test_without_adoption_and_mark_a_process_in_another_session_would_stay(
    tmp_path: Path, monkeypatch, left: str
) -> None:
    monkeypatch.setattr(shell, "_marked", lambda _: [])
    monkeypatch.setattr(shell, "end_children", lambda _: ())
    run(tmp_path, LEFT[left])
    child = int(wait_for(tmp_path / "child"))
    assert is_running(child)
    os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("left", ["twice away", "without its environment"])
def test_adoption_needs_no_mark(tmp_path: Path, monkeypatch, left: str) -> None:
    monkeypatch.setattr(shell, "_marked", lambda _: [])
    run(tmp_path, LEFT[left])
    assert has_ended(int(wait_for(tmp_path / "child")))


def test_processes_of_others_are_let_be(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], env={shell.MARK: "another"}) as other:
        run(tmp_path, "true")
        assert other.poll() is None
        other.kill()


def test_of_a_hundred_megabytes_start_and_end_are_kept(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        "echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last",
        timeout_s=60,
    )
    assert ended.code == 0
    text = (tmp_path / "log").read_text()
    assert HEAD_BYTES + TAIL_BYTES <= len(text) < 2 * (HEAD_BYTES + TAIL_BYTES)
    assert text.startswith("first\nxxx")
    assert text.endswith("\nlast\n")
    assert "bytes left out" in text
    assert ended.tail.endswith("last")
    assert len(ended.tail) <= shell.TAIL_CHARACTERS


@pytest.mark.parametrize(
    "size",
    [
        HEAD_BYTES - 1,
        HEAD_BYTES,
        HEAD_BYTES + 1,
        HEAD_BYTES + TAIL_BYTES,
        HEAD_BYTES + TAIL_BYTES + 1,
    ],
)
def test_nothing_is_lost_or_doubled_where_the_log_is_not_cut(tmp_path: Path, size: int) -> None:
    run(tmp_path, f"seq 1 1000000 | head -c {size}")
    expected = "".join(f"{number}\n" for number in range(1, 300_000)).encode()[:size]
    assert (tmp_path / "log").read_bytes() == expected


def test_a_command_that_floods_and_never_ends_is_ended_in_time(tmp_path: Path) -> None:
    started = time.monotonic()
    assert run(tmp_path, "yes", timeout_s=1).timed_out
    assert time.monotonic() - started < 10


def test_a_command_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    assert run(tmp_path, "exec >/dev/null 2>&1; sleep 0.5; echo done >file").code == 0
    assert (tmp_path / "file").exists()


def test_the_tail_is_plain_text(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        r"""printf '\033[31mred\033[0m \033]0;title\007ok\a\n10%%\r50%%\r100%%\r\n\200bad\r\n'""",
    )
    assert ended.tail == "red ok\n100%\n\ufffdbad"


def test_an_interrupt_ends_the_command(tmp_path: Path, monkeypatch) -> None:
    def interrupt(*_: object) -> bool:
        wait_for(tmp_path / "child")
        raise KeyboardInterrupt

    monkeypatch.setattr(shell, "_follow", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "echo $$ >child; sleep 600")
    assert has_ended(int((tmp_path / "child").read_text()))


def test_without_bash_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="bash"):
        run(tmp_path, "true", PATH=str(tmp_path))


def test_an_interrupt_while_the_command_is_being_started_ends_it(
    tmp_path: Path, monkeypatch
) -> None:
    """It may come when bash runs already and `Popen` has not returned."""
    original, started = subprocess.Popen, []

    def interrupted(*arguments, **options):
        started.append(original(*arguments, **options))
        wait_for(tmp_path / "child")
        raise KeyboardInterrupt

    monkeypatch.setattr("ci_bench.checkouts.shell.subprocess.Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_command(
            f"echo $$ >{tmp_path}/child; sleep 600",
            folder=tmp_path,
            environ=os.environ,
            timeout_s=60,
            log=tmp_path / "log",
        )
    assert has_ended(int((tmp_path / "child").read_text()))
    started[0].stdout.close()
    assert started[0].wait() == -signal.SIGKILL
