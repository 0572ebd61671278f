"""One run of a command: started, waited for, ended with all that it started, its output in files.

The clock is not here; but what is here happens while it runs, so waiting is the kernel's business and not done by looking again
and again. A second thread looks, twice a second, whether the command takes too long or prints too much.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ci_bench.records.case import Status
from ci_bench.suites.base import NotMeasured
from ci_bench.suites.command.options import Command

MOST_OUTPUT_BYTES = 1 << 28
TAIL_BYTES = 2000
LOOK_S = 0.5
LINE = 200
METER = Path(__file__).with_name("meter.py")
_METERED = (sys.executable, "-I", "-S", str(METER))
SHELL = ("bash", "-euo", "pipefail", "-c")


class CommandFailed(NotMeasured):
    """A run of the command did not go well. The message says how it ended and what it said last."""


class CommandLate(CommandFailed):
    """A run of the command took longer than it may."""

    status = Status.TIMEOUT


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a command runs, and where its output goes: `folder` is private to the case."""

    cwd: Path
    environ: Mapping[str, str]
    folder: Path

    @property
    def stdout(self) -> Path:
        """What the last run wrote to standard output."""
        return self.folder / "stdout"

    @property
    def stderr(self) -> Path:
        """What the last run wrote to standard error."""
        return self.folder / "stderr"


def arguments(command: Command) -> tuple[str, ...]:
    """The program that a command is, and its arguments; a script is bash's."""
    return (*SHELL, command) if isinstance(command, str) else command


def run(argv: Sequence[str], place: Place, *, timeout_s: float, exit_codes: Sequence[int]) -> None:
    """Run a program to its end. Standard input is empty.

    Raises:
        CommandLate: it takes longer than `timeout_s`.
        CommandFailed: it cannot be started, prints too much, or ends with another exit code.
    """
    process = _start(argv, place)
    guard = _Guard(pid=process.pid, deadline=time.monotonic() + timeout_s, files=(place.stdout, place.stderr))
    guard.start()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    # It is not reaped yet, so its number cannot be another group's.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    guard.stop()
    code = process.wait()
    why = guard.why(timeout_s) or ("" if code in exit_codes else _ending(code))
    if why:
        show_tail(place)
        last = _end_of(place.stderr).rpartition("\n")[2][-LINE:]
        kind = CommandLate if guard.late else CommandFailed
        raise kind(f"{_shown(argv)} {why}" + (f": {last}" if last else ""))


def peak_bytes(argv: Sequence[str], place: Place, *, timeout_s: float, exit_codes: Sequence[int]) -> int:
    """Run a program, and return the peak of resident memory of its largest process (wait4(2), ru_maxrss).

    A child starts with the peak of the process that forked it. So a small interpreter stands between: what uses less than that
    (about 10 MB) cannot be told. Raises `CommandFailed` as `run` does.
    """
    told = place.folder / "peak"
    told.unlink(missing_ok=True)
    run((*_METERED, str(told), *argv), place, timeout_s=timeout_s, exit_codes=exit_codes)
    if not told.exists():
        raise CommandFailed(f"{_shown(argv)} cannot be started")
    return int(told.read_text())


def _start(argv: Sequence[str], place: Place) -> subprocess.Popen[bytes]:
    if not place.cwd.is_dir():
        raise CommandFailed(f"the folder {place.cwd} of its `cwd` does not exist on this side")
    try:
        with place.stdout.open("wb") as stdout, place.stderr.open("wb") as stderr:
            return subprocess.Popen(
                argv, cwd=place.cwd, env=place.environ, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, process_group=0
            )
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{_shown(argv)} cannot be started: {error}") from error


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
        """The process has ended, but is not reaped yet."""
        self._done.set()
        self.join()

    def why(self, timeout_s: float) -> str:
        """Why it was ended; empty where it was not."""
        if self._loud:
            return f"printed more than {MOST_OUTPUT_BYTES >> 20} MiB and was ended"
        return f"was ended after {timeout_s:g} s (its timeout_s)" if self.late else ""


def show_tail(place: Place) -> None:
    """Write the end of what the last run printed to the worker's log."""
    for name, file in (("stdout", place.stdout), ("stderr", place.stderr)):
        if text := _end_of(file):
            sys.stderr.write(f"--- end of the command's {name} ---\n{text}\n")
    sys.stderr.flush()


def _end_of(file: Path) -> str:
    with suppress(OSError), file.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - TAIL_BYTES))
        return stream.read().decode("utf-8", "replace").strip()
    return ""


def _shown(argv: Sequence[str]) -> str:
    """The command as the user wrote it, shortened."""
    own = argv[len(_METERED) + 1 :] if tuple(argv[: len(_METERED)]) == _METERED else argv
    text = own[-1] if tuple(own[:-1]) == SHELL else " ".join(own)
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
