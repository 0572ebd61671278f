"""One run of a command: started, waited for, ended with all that it started, its output in files.

This process ends all processes that a command starts, in any session or group. The kernel hands
orphans to it (PR_SET_CHILD_SUBREAPER, prctl(2)) during a run.

The clock is elsewhere, but this code runs while it ticks. So the kernel does the waiting, without
polling. A second thread checks twice a second if the command takes too long or prints too much.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ci_bench.records.results import Status
from ci_bench.suites.command.leftovers import EndedProcesses, printable, watch
from ci_bench.suites.command.options import Command
from ci_bench.suites.contract import NotMeasured

MOST_OUTPUT_BYTES = 1 << 28
TAIL_BYTES = 2000
CAUSE_BYTES = 1 << 16
"""Bytes of the end that are searched for the cause.

A launcher's report on its workers is longer than a tail.
"""
LOOK_S = 0.5
LEFTOVERS_S = 10.0
"""Seconds that leftovers of a command may take to end after they were killed."""
PAUSE_S = 0.001
CHUNK_BYTES = 1 << 16
PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)
LINE = 200
METER = Path(__file__).with_name("meter.py")
_METERED = (sys.executable, "-I", "-S", str(METER))
RANK = re.compile(r"^\[[^\]\s]{1,40}\]: ?")
"""The prefix of torchrun and torch.distributed for each line of a worker: ``[rank1]: ``."""
LAUNCHER = re.compile(r"[\w.]*\b(ChildFailedError|CalledProcessError)\b")
"""Errors that a launcher raises because a worker failed; they do not show the cause."""
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
ENDING = re.compile(r"\b(error|failed|signal|exitcode)\b", re.IGNORECASE)
SHELL = ("bash", "-euo", "pipefail", "-c")


class CommandFailed(NotMeasured):
    """A run of the command failed. The message has its end and its last output."""


class CommandLate(CommandFailed):
    """A run of the command took longer than it may."""

    status = Status.TIMEOUT


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandPlace:
    """Folders for a command and its output: `folder` is private to the case."""

    cwd: Path
    environ: Mapping[str, str]
    folder: Path

    @property
    def stdout(self) -> Path:
        """The standard output of the last run."""
        return self.folder / "stdout"

    @property
    def stderr(self) -> Path:
        """The standard error of the last run."""
        return self.folder / "stderr"


def arguments(command: Command) -> tuple[str, ...]:
    """Return the program that a command is, and its arguments; a script is bash's."""
    return (*SHELL, command) if isinstance(command, str) else command


def run(
    argv: Sequence[str],
    place: CommandPlace,
    *,
    timeout_s: float,
    exit_codes: Sequence[int],
    stamps: list[float] | None = None,
    watch_s: float = 0.0,
) -> EndedProcesses:
    """Run a program to its end. Standard input is empty.

    `stamps` is filled with when each newline or carriage return of standard output came, in seconds
    of the monotonic clock. Processes that the program leaves running are watched for `watch_s` at
    most, to see if they work, and ended.

    Raises:
        CommandLate: it takes longer than `timeout_s`.
        CommandFailed: it cannot be started, prints too much, ends with another exit code, or leaves
            processes that cannot be ended.
    """
    others = frozenset(_children())
    _adopt(1)
    begun = time.monotonic()
    process = _start(argv, place, piped=stamps is not None)
    stamper = None if stamps is None else _Stamper(process, place.stdout, stamps)
    guard = _Guard(
        pid=process.pid, deadline=time.monotonic() + timeout_s, files=(place.stdout, place.stderr)
    )
    guard.start()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    seconds = time.monotonic() - begun
    guard.stop()
    watched = watch(others | {process.pid}, 0.0 if guard.why(timeout_s) else watch_s)
    # It is not reaped yet, so its number cannot be another group's.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    killed, gone = _end_leftovers(others)
    if stamper is not None:
        stamper.finish()
    stays = "" if gone else "left processes running that cannot be ended"
    why = guard.why(timeout_s) or ("" if code in exit_codes else _ending(code)) or stays
    if why:
        show_tail(place)
        cause = find_cause(_end_of(place.stderr, CAUSE_BYTES))[-LINE:]
        kind = CommandLate if guard.late else CommandFailed
        raise kind(f"{_shown(argv)} {why}" + (f": {cause}" if cause else ""))
    names = tuple(dict.fromkeys((*watched.names, *killed)))
    return EndedProcesses(
        seconds=seconds, left=names, worked_s=watched.worked_s, watched_s=watched.watched_s
    )


def peak_bytes(
    argv: Sequence[str],
    place: CommandPlace,
    *,
    timeout_s: float,
    exit_codes: Sequence[int],
    stamps: list[float] | None = None,
    watch_s: float = 0.0,
) -> tuple[int, EndedProcesses]:
    """Run a program, and return the peak of resident memory of its largest process.

    The peak is ru_maxrss of wait4(2).

    A child starts with the peak of the process that forked it. So a small interpreter runs in
    between, and its size (about 10 MB) is the smallest peak that can be measured. `stamps` and
    errors are those of `run`.
    """
    peak_file = place.folder / "peak"
    peak_file.unlink(missing_ok=True)
    metered = (*_METERED, str(peak_file), *argv)
    ended = run(
        metered, place, timeout_s=timeout_s, exit_codes=exit_codes, stamps=stamps, watch_s=watch_s
    )
    if not peak_file.exists():
        raise CommandFailed(f"{_shown(argv)} cannot be started")
    return int(peak_file.read_text()), ended


def _start(argv: Sequence[str], place: CommandPlace, *, piped: bool) -> subprocess.Popen[bytes]:
    if not place.cwd.is_dir():
        raise CommandFailed(f"the folder {place.cwd} of its `cwd` does not exist on this side")
    try:
        with place.stdout.open("wb") as stdout, place.stderr.open("wb") as stderr:
            return subprocess.Popen(
                argv,
                cwd=place.cwd,
                env=place.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else stdout,
                stderr=stderr,
                process_group=0,
            )
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{_shown(argv)} cannot be started: {error}") from error


def _adopt(value: int) -> None:
    """Become the parent of orphans among this process's descendants, or (0) no longer."""
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, value, 0, 0, 0)


def _end_leftovers(others: frozenset[int]) -> tuple[tuple[str, ...], bool]:
    """End processes that the command left running, until only `others` are this process's children.

    Returns the names of the ended processes, and whether all are gone. Usually none is left, which
    takes two calls of the kernel: they are within the time of a sample.
    """
    deadline = time.monotonic() + LEFTOVERS_S
    names: dict[int, str] = {}
    ended: list[str] = []
    while remaining := set(_children()).difference(others):
        names |= {pid: _name(pid) for pid in remaining.difference(names)}
        for pid in remaining:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return tuple(ended), False
        reaped = {pid: status for pid in remaining if (status := _reaped(pid)) is not None}
        # Processes that had already ended were not left running.
        ended += [names[pid] for pid, status in reaped.items() if os.WIFSIGNALED(status)]
        if not reaped:
            time.sleep(PAUSE_S)
    _adopt(0)
    return tuple(ended), True


def _reaped(pid: int) -> int | None:
    """Return the status with which a child ended, 0 if it is unknown; `None` while it lives."""
    with suppress(ChildProcessError):
        done, status = os.waitpid(pid, os.WNOHANG)
        return status if done == pid else None
    return 0


def _name(pid: int) -> str:
    """Return the kernel's name of a process, also of a dead one, as far as it can be printed."""
    try:
        name = Path("/proc", str(pid), "comm").read_text(errors="replace").strip()
    except OSError:
        return "a process"
    return printable(name)


def _children() -> Iterator[int]:
    """Yield the processes whose parent is this one, by /proc/PID/stat (proc(5)).

    A name in that file may hold spaces and parentheses.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                yield int(stat.parent.name)


class _Guard(threading.Thread):
    """Ends a process group that takes too long or prints too much."""

    def __init__(self, *, pid: int, deadline: float, files: Sequence[Path]) -> None:
        super().__init__(daemon=True)
        self._pid, self._deadline, self._files = pid, deadline, files
        self._done = threading.Event()
        self.late = self._loud = False

    def run(self) -> None:
        """Look until the process has ended."""
        while not self._done.wait(max(0.0, min(LOOK_S, self._deadline - time.monotonic()))):
            self.late = time.monotonic() >= self._deadline
            self._loud = sum(file.stat().st_size for file in self._files) > MOST_OUTPUT_BYTES
            if self.late or self._loud:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, signal.SIGKILL)
                return

    def stop(self) -> None:
        """End the thread. The process has ended, but is not reaped yet."""
        self._done.set()
        self.join()

    def why(self, timeout_s: float) -> str:
        """Return the reason why the process was ended; empty if it was not."""
        if self._loud:
            return f"printed more than {MOST_OUTPUT_BYTES >> 20} MiB and was ended"
        return f"was ended after {timeout_s:g} s (its timeout_s)" if self.late else ""


class _Stamper(threading.Thread):
    """Copies standard output to its file, and notes when each line or redraw of a bar ended."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path, stamps: list[float]) -> None:
        super().__init__(daemon=True)
        assert process.stdout is not None, "started with a pipe"  # noqa: S101
        self._pipe, self._file, self._stamps = process.stdout, file, stamps
        self.start()

    def run(self) -> None:
        """Copy until all writers have closed the pipe."""
        with self._file.open("ab") as copy:
            while chunk := os.read(self._pipe.fileno(), CHUNK_BYTES):
                now = time.monotonic()
                copy.write(chunk)
                copy.flush()
                self._stamps.extend([now] * (chunk.count(b"\n") + chunk.count(b"\r")))

    def finish(self) -> None:
        """Close the pipe once the copy is complete.

        All that could write has ended, or cannot be ended, which is reported elsewhere.
        """
        self.join(LEFTOVERS_S)
        if not self.is_alive():
            self._pipe.close()


def show_tail(place: CommandPlace) -> None:
    """Write the end of the last run's output to the worker's log."""
    for name, file in (("stdout", place.stdout), ("stderr", place.stderr)):
        if text := _end_of(file):
            sys.stderr.write(f"--- end of the command's {name} ---\n{text}\n")
    sys.stderr.flush()


def find_cause(text: str) -> str:
    """Return the line of a command's last output that gives the cause; empty without output.

    Usually this is the last line. Launchers of several processes end with a report between rulers
    instead: then it is the error of the first worker to fail, or how it ended.
    """
    lines = [RANK.sub("", line).rstrip() for line in text.splitlines()]
    worded = [line for line in lines if any(map(str.isalnum, line))]
    last = next((line for line in reversed(lines) if line), "")
    if not worded or (last == worded[-1] and not LAUNCHER.match(last)):
        return last.strip() if worded else ""
    raised = (error for error in _raised(lines) if not LAUNCHER.match(error))
    endings = (line for line in reversed(worded) if ENDING.search(line))
    return next(raised, None) or next(endings, worded[-1]).strip()


def _raised(lines: Sequence[str]) -> Iterator[str]:
    """Yield the last line of each traceback; of a chain of them, that of the last."""
    error, inside, chained = "", False, False
    for line in lines:
        if line == "Traceback (most recent call last):":
            if error and not chained:
                yield error
            inside, chained = True, False
        elif inside and line and not line[0].isspace():
            error, inside = line, False
        elif not inside and line.startswith(CHAINED):
            chained = True
    if error:
        yield error


def _end_of(file: Path, most_bytes: int = TAIL_BYTES) -> str:
    with suppress(OSError), file.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - most_bytes))
        return stream.read().decode("utf-8", "replace").strip()
    return ""


def _shown(argv: Sequence[str]) -> str:
    """Return the command as the user wrote it, shortened."""
    user_argv = argv[len(_METERED) + 1 :] if tuple(argv[: len(_METERED)]) == _METERED else argv
    text = user_argv[-1] if tuple(user_argv[:-1]) == SHELL else " ".join(user_argv)
    line = " ".join(text.split())
    return f"`{line if len(line) <= LINE else line[: LINE - 1] + '…'}`"


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    if -code == signal.SIGKILL:
        return "was ended by SIGKILL, often the kernel's when memory runs out"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
