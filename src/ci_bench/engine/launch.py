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

from ci_bench.engine.answers import Answers
from ci_bench.engine.task import Answer, Task, encode
from ci_bench.errors import LauncherFailed

SERVER = "ci_bench.engine.forkserver"
LOG_TAIL_BYTES = 4000
START_TIMEOUT_S = 180.0
GRACE_S = 5.0
LAST_WORDS_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a worker ended. `code` is its exit code, negative for a signal.

    `answers` are the lines it sent, progress left out; `garbled` counts those that were not answers. `flooded` says that it was
    ended because it sent too much.
    """

    code: int
    timed_out: bool
    answers: tuple[Answer, ...]
    garbled: int = 0
    flooded: bool = False
    log_tail: str = ""
    duration_s: float = 0.0


class Launcher:
    """One launch: a context manager around one forkserver. Not for use from several threads."""

    def __init__(self, *, preload: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        """Start the server; `preload` are the modules to import in it, `folder` takes logs and tasks.

        Raises:
            LauncherFailed: no process can be started.
        """
        self._folder = folder
        self._count = 0
        self._buffer = b""
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "server.log"
        self._connection, theirs = socket.socketpair()
        try:
            with theirs, self._log.open("ab") as log:
                self._server = _start_server(theirs.fileno(), preload, _launch_environment(environ), log.fileno())
        except OSError as error:
            self._connection.close()
            raise _failure(str(error), self._log) from error

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
            _kill(self._server.pid)
            self._server.wait()

    def run(self, task: Task, *, timeout_s: float, on_answer: Callable[[Answer], None]) -> Ended:
        """Run one task in a fresh child and wait for its end, at most `timeout_s` seconds.

        Raises:
            LauncherFailed: the server died, or a worker could not be ended.
        """
        self._count += 1
        log = self._folder / f"{self._count:03d}.log"
        path = self._folder / f"{self._count:03d}.task.json"
        path.write_bytes(encode(task))
        answers = Answers(on_answer)
        started = time.monotonic()
        reader, writer = os.pipe()
        try:
            pid = self._start_worker({"task": str(path), "log": str(log)}, writer)
            code, timed_out = self._watch(pid, reader, answers, started + timeout_s)
        finally:
            os.close(reader)
        return Ended(
            code=code,
            timed_out=timed_out,
            answers=tuple(answers.kept),
            garbled=answers.garbled,
            flooded=answers.flooded,
            log_tail=_tail(log),
            duration_s=time.monotonic() - started,
        )

    def _start_worker(self, request: Mapping[str, str], writer: int) -> int:
        """Ask for a child that answers on `writer`, which is closed here. Returns the child's process id."""
        try:
            socket.send_fds(self._connection, [json.dumps(request).encode()], [writer])
        except OSError as error:
            raise self._broken(str(error)) from error
        finally:
            os.close(writer)
        return self._expect("started", time.monotonic() + START_TIMEOUT_S)

    def _watch(self, pid: int, reader: int, answers: Answers, deadline: float) -> tuple[int, bool]:
        """Read answers until the server reports the child's end. Returns its exit code and whether it ran out of time."""
        os.set_blocking(reader, False)
        try:
            timed_out = self._await_end(pid, reader, answers, deadline)
            code = self._expect("ended", time.monotonic() + GRACE_S, value="code")
        except BaseException:
            _kill(pid)
            raise
        answers.drain(reader)
        answers.finish()
        return code, timed_out

    def _await_end(self, pid: int, reader: int, answers: Answers, deadline: float) -> bool:
        """Wait for the server's word, and kill the child's session at the deadline. Returns whether it came to that.

        The pipe's end is no sign of the child's: it may close the pipe early, and something it started may hold it open. A quick
        end comes together with the word that the child started, so that it is in the buffer already.
        """
        timed_out = killed = False
        with selectors.DefaultSelector() as selector:
            selector.register(reader, selectors.EVENT_READ)
            selector.register(self._connection, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                ready = {key.fileobj for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}
                if reader in ready and not answers.drain(reader):
                    selector.unregister(reader)
                if self._connection in ready:
                    break
                late = time.monotonic() >= deadline
                if late and killed:
                    raise self._broken(f"worker {pid} was killed, but no word came that it ended")
                if not killed and (late or answers.flooded):
                    timed_out, killed, deadline = late, True, time.monotonic() + GRACE_S
                    _kill(pid)
        return timed_out

    def _expect(self, key: str, deadline: float, *, value: str | None = None) -> int:
        """The next message of the server, which must have `key`."""
        for line in self._lines(deadline):
            message = json.loads(line)
            if key in message:
                return int(message[value or key])
        raise self._broken(f"no {key!r} message came")

    def _lines(self, deadline: float) -> Iterator[bytes]:
        """The server's messages; ends with the deadline or with the server."""
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                yield line
                continue
            self._connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self._connection.recv(65536)
            except OSError:
                return
            finally:
                self._connection.settimeout(None)
            if not data:
                return
            self._buffer += data

    def _broken(self, what: str) -> LauncherFailed:
        """Give a dying server the time to say why."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(LAST_WORDS_S)
        return _failure(what, self._log)


def _failure(what: str, log: Path) -> LauncherFailed:
    return LauncherFailed(
        f"the process that starts the workers stopped answering ({what}). Its last words:\n{_tail(log) or '(none)'}\n"
        "Run `ci-bench doctor` to see whether torch can be imported here."
    )


def _start_server(connection: int, preload: Sequence[str], environ: Mapping[str, str], log: int) -> subprocess.Popen[bytes]:
    """Unbuffered (-u), so that what a worker printed before it crashed is in its log."""
    return subprocess.Popen(
        [sys.executable, "-u", "-m", SERVER, str(connection), *preload],
        pass_fds=[connection],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environ,
        start_new_session=True,
    )


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


def _kill(pid: int) -> None:
    """End a process and its session; the process alone where it has not had the time to open one."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """A private folder for a run's tasks, logs and caches, removed with the context."""
    return tempfile.TemporaryDirectory(prefix="ci-bench-", ignore_cleanup_errors=True)
