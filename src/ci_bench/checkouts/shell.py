"""Run one shell command to its end, with a time limit and bounded output.

No process of it is left behind. Standard input is empty. stdout and stderr come together, as a
terminal would show them.
"""

import os
import re
import secrets
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ci_bench.processes.descendants import adopting, end_children, ends_within
from ci_bench.processes.users import end_all, started_as

HEAD_BYTES, TAIL_BYTES = 1 << 20, 1 << 18
TAIL_CHARACTERS = 1500
CHUNK_BYTES = 1 << 16
POLL_S = 0.1
MOST_ROUNDS = 200
"""The limit of rounds: processes that a leftover starts before its end must be ended in turn."""
MARK = "CI_BENCH_COMMAND"
ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """The end of a command.

    Its exit code, negative for a signal; whether it ran out of time; the end of its output.
    """

    code: int
    timed_out: bool
    tail: str
    duration_s: float


def run_command(
    command: str,
    *,
    folder: Path,
    environ: Mapping[str, str],
    timeout_s: float,
    log: Path,
    user: int | None = None,
) -> Finished:
    """Run a command with ``bash -euo pipefail`` in `folder`.

    Its output goes to `log`, of long output the start and the end. It runs as `user`, or as the
    caller. When it ends, on time or not, its processes end too: a server left running would disturb
    the next measurement.

    Raises:
        OSError: bash is not installed, or the log cannot be written.
    """
    started = time.monotonic()
    mark = secrets.token_hex(16)
    with log.open("wb") as stream, adopting() as others:
        output = _Output(stream=stream)
        process = _start(command, folder, {**environ, MARK: mark}, mark, user)
        assert process.stdout is not None, "stdout was asked for"  # noqa: S101 - for our own bugs
        with process.stdout as pipe:
            os.set_blocking(pipe.fileno(), False)
            try:
                timed_out = _follow(process, pipe.fileno(), output, started + timeout_s)
            finally:
                _end(process, mark, others)
                end_all(user)
            while output.take(pipe.fileno()):
                pass
        output.close()
    return Finished(
        code=process.returncode,
        timed_out=timed_out,
        tail=output.tail(),
        duration_s=time.monotonic() - started,
    )


@dataclass(kw_only=True, slots=True)
class _Output:
    """Keeps the start and the end of the output."""

    stream: BinaryIO
    """Log of the command."""
    taken: int = 0
    """Bytes that were read."""
    last: deque[bytes] = field(default_factory=deque)
    """Last chunks of the output."""
    held: int = 0
    """Bytes in `last`."""
    ended: bool = False
    """True after the end of the output."""

    def take(self, descriptor: int) -> bool:
        """Read some output; return whether there may be more."""
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return False
        self.ended = not data
        self.stream.write(data[: max(HEAD_BYTES - self.taken, 0)])
        self.taken += len(data)
        self.last.append(data)
        self.held += len(data)
        while self.held - len(self.last[0]) >= TAIL_BYTES:
            self.held -= len(self.last.popleft())
        return not self.ended

    def close(self) -> None:
        """Write the end behind the start."""
        dropped = self.taken - HEAD_BYTES - self.held
        if dropped > 0:
            self.stream.write(f"\n… {dropped:,} bytes left out …\n".encode())
        if self.taken > HEAD_BYTES:
            self.stream.write(b"".join(self.last)[-(self.taken - HEAD_BYTES) :])

    def tail(self) -> str:
        """Return the end as text, without colours and control characters.

        Of a line that was overwritten, only the last state is left.
        """
        text = ESCAPE.sub("", b"".join(self.last).decode("utf-8", "replace"))
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        return CONTROL.sub("", "\n".join(lines)).strip()[-TAIL_CHARACTERS:]


def _follow(
    process: subprocess.Popen[bytes], descriptor: int, output: _Output, deadline: float
) -> bool:
    """Read until the command ends; return whether it ran out of time.

    Its leftovers may keep the pipe open.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while process.poll() is None:
            if time.monotonic() >= deadline:
                return True
            if output.ended:
                ends_within(process, POLL_S)
            elif selector.select(POLL_S):
                output.take(descriptor)
    return False


def _start(
    command: str, folder: Path, environ: Mapping[str, str], mark: str, user: int | None
) -> subprocess.Popen[bytes]:
    """Start bash.

    An interrupt may come after the start and before the caller has the process: its mark identifies
    it then.
    """
    try:
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **started_as(user),
        )
    except BaseException:
        time.sleep(POLL_S)  # it may not have its environment yet
        _end_strays(mark)
        raise


def _end(process: subprocess.Popen[bytes], mark: str, others: frozenset[int]) -> None:
    """End the command's process group, and processes that left it.

    The latter are this process's new children, and those with the mark.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    end_children(others)
    _end_strays(mark)


def _end_strays(mark: str) -> None:
    """End all processes with the mark in their environment."""
    for _ in range(MOST_ROUNDS):
        strays = _marked(f"{MARK}={mark}".encode())
        if not strays:
            return
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S / 10)


def _marked(mark: bytes) -> list[int]:
    """Return the living processes of this user with the mark.

    A process that has ended shows no environment.
    """
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    return pids
