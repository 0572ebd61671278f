"""The parent's half of a launch: starts a forkserver, hands it tasks, reads answers, enforces time limits.

Owns processes and pipes. What a task means is the worker's business, what its end means is the runner's.
"""

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ci_bench.engine.task import Answer, Task, decode_answer, encode
from ci_bench.errors import LauncherFailed

LOG_TAIL_BYTES = 4000
MAX_ANSWER_BYTES = 256 << 20
START_TIMEOUT_S = 180.0
GRACE_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a worker ended. `code` is its exit code, negative for a signal, `None` if the whole launch died.

    `answers` are the lines it sent; `garbled` counts those that were not answers.
    """

    code: int | None
    timed_out: bool
    answers: tuple[Answer, ...]
    garbled: int
    log_tail: str
    duration_s: float


class Launcher:
    """One launch: a context manager around one forkserver. Not for use from several threads."""

    def __init__(self, *, preload: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        """Start the server; `preload` are the modules to import in it, `folder` takes logs and tasks."""
        self._folder = folder
        self._count = 0
        self._buffer = b""
        folder.mkdir(parents=True, exist_ok=True)
        self._connection, theirs = socket.socketpair()
        self._log = folder / "server.log"
        with theirs, self._log.open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "ci_bench.engine.forkserver", str(theirs.fileno()), *preload],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_launch_environment(environ),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        """Wait until the server has imported what it preloads."""
        try:
            self._expect("ready", time.monotonic() + START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """End the server and every worker."""
        self.close()

    def close(self) -> None:
        """End the server and every worker; safe to call twice."""
        self._connection.close()
        try:
            self._server.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            _kill_group(self._server.pid)
            self._server.wait()

    def run(self, task: Task, *, timeout_s: float, on_answer: Callable[[Answer], None]) -> Ended:
        """Run one task in a fresh child and wait for its end, at most `timeout_s` seconds."""
        self._count += 1
        log = self._folder / f"{self._count:03d}.log"
        path = self._folder / f"{self._count:03d}.task.json"
        path.write_bytes(encode(task))
        started = time.monotonic()
        reader, writer = os.pipe()
        try:
            request = json.dumps({"task": str(path), "log": str(log)}).encode()
            try:
                socket.send_fds(self._connection, [request], [writer])
            finally:
                os.close(writer)
            pid = self._expect("started", started + START_TIMEOUT_S)
            answers = _Answers(on_answer)
            code, timed_out = self._watch(pid, reader, answers, started + timeout_s)
        except OSError as error:
            raise self._broken(str(error)) from error
        finally:
            os.close(reader)
        return Ended(
            code=code,
            timed_out=timed_out,
            answers=tuple(answers.kept),
            garbled=answers.garbled,
            log_tail=_tail(log),
            duration_s=time.monotonic() - started,
        )

    def _watch(self, pid: int, reader: int, answers: "_Answers", deadline: float) -> tuple[int | None, bool]:
        """Read answers until the server reports the child's end; kill its session at the deadline."""
        os.set_blocking(reader, False)
        timed_out = False
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(reader, selectors.EVENT_READ)
                selector.register(self._connection, selectors.EVENT_READ)
                while True:
                    ready = {key.fileobj for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}
                    if reader in ready and not _drain(reader, answers):
                        selector.unregister(reader)
                    if self._connection in ready:
                        break
                    if answers.too_many or (not timed_out and time.monotonic() >= deadline):
                        timed_out, deadline = True, time.monotonic() + GRACE_S
                        _kill_group(pid)
            code = self._expect("ended", time.monotonic() + GRACE_S, value="code")
            _drain(reader, answers)
        finally:
            _kill_group(pid)
        return code, timed_out

    def _expect(self, key: str, deadline: float, *, value: str | None = None) -> int:
        """The next message of the server, which must have `key`."""
        for line in self._lines(deadline):
            message = json.loads(line)
            if key in message:
                return int(message[value or key])
        raise self._broken(f"no {key!r} message came")

    def _lines(self, deadline: float) -> Iterator[bytes]:
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                yield line
                continue
            self._connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self._connection.recv(65536)
            except TimeoutError:
                return
            finally:
                self._connection.settimeout(None)
            if not data:
                return
            self._buffer += data

    def _broken(self, what: str) -> LauncherFailed:
        return LauncherFailed(
            f"the process that starts the workers stopped answering ({what}). Its last words:\n{_tail(self._log) or '(none)'}\n"
            "Run `ci-bench doctor` to see whether torch can be imported here."
        )


class _Answers:
    """Collects the answers of one worker; a worker cannot make it grow without bound."""

    def __init__(self, on_answer: Callable[[Answer], None]) -> None:
        self.kept: list[Answer] = []
        self.garbled = 0
        self.too_many = False
        self._on_answer = on_answer
        self._buffer = bytearray()
        self._seen = 0

    def feed(self, data: bytes) -> None:
        self._seen += len(data)
        self.too_many = self._seen > MAX_ANSWER_BYTES
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            self._take(bytes(line))

    def _take(self, line: bytes) -> None:
        try:
            answer = decode_answer(line)
        except (ValueError, msgspec.ValidationError, RecursionError):
            self.garbled += 1
            return
        if answer.progress is None:
            self.kept.append(answer)
        self._on_answer(answer)


def _drain(reader: int, answers: _Answers) -> bool:
    """Take what is there; False at the end of the stream."""
    while not answers.too_many:
        try:
            data = os.read(reader, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        answers.feed(data)
    return False


def _launch_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """A fresh hash seed and a random environment size per launch, so that layout luck is not taken for a difference.

    Environment size alone can flip a conclusion: Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously
    Wrong!", ASPLOS 2009.
    """
    padding = "x" * secrets.randbelow(4096)
    return {**environ, "PYTHONHASHSEED": str(secrets.randbelow(1 << 32)), "CI_BENCH_PADDING": padding}


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError), log.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - LOG_TAIL_BYTES))
        return stream.read().decode("utf-8", "replace").strip()
    return ""


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """A private folder for a run's tasks, logs and caches, removed with the context."""
    return tempfile.TemporaryDirectory(prefix="ci-bench-", ignore_cleanup_errors=True)
