"""The parent's half of a launch: starts a forkserver, which forks one worker per task.

Owns the server's process and its socket. `resident` owns a worker's life; the runner interprets its
end.
"""

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from ci_bench.errors import LauncherFailed
from ci_bench.processes.addresses import Addresses, drawn, started_alike
from ci_bench.processes.descendants import ends_within
from ci_bench.processes.protocol import Answer, Task, encode
from ci_bench.processes.resident import GRACE_S, Ended, Worker, kill, tail
from ci_bench.processes.scratch import FOLDER, run_folder, scratch_failure
from ci_bench.processes.startup import without_tree
from ci_bench.processes.users import end_all, give, let_pass, started_as

SERVER = "ci_bench.processes.forkserver"
START_TIMEOUT_S = 180.0
LAST_WORDS_S = 1.0
UNTOUCHED = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Makes `torch.cuda.is_available` ask NVML.

If the server asked CUDA, the children that it forks would have no GPU.
"""


class Launcher:
    """One launch: a context manager around one forkserver, which has one worker at a time.

    Not for use from several threads.

    Its end leaves the server of its `successor`, another launch of the same side, alone.
    """

    def __init__(
        self,
        *,
        preload: Sequence[str],
        environ: Mapping[str, str],
        folder: Path,
        python: Path = Path(sys.executable),
        cwd: Path | None = None,
        user: int | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        """Start the server, which imports the modules `preload`.

        `folder` takes logs and tasks; `user` owns the server's processes.

        `addresses` places the server's memory; without it the server has its own layout.

        Raises:
            LauncherFailed: no process can be started.
        """
        self._folder, self._user = folder, user
        self.successor: Launcher | None = None
        self._count = 0
        self._heard: set[str] = set()
        self._is_paused, self._is_closed = False, False
        self._buffer = b""
        self._log = folder / "server.log"
        self._connection, theirs = socket.socketpair()
        command = [str(python), "-u", "-P", "-m", SERVER, str(theirs.fileno()), *preload]
        visible = {UNTOUCHED: "1", **environ, FOLDER: str(folder)}
        place = addresses or drawn(secrets.token_hex(8))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if user is not None:
                let_pass(folder)
            visible = without_tree(folder, visible, cwd)
            with theirs, self._log.open("ab") as log, started_alike() as usual:
                placed_environ = place.environ(command, visible, usual=usual)
                self._server = _start_server(
                    command, theirs.fileno(), placed_environ, log.fileno(), cwd=cwd, user=user
                )
        except OSError as error:
            self._connection.close()
            theirs.close()
            raise _failure(str(error), self._log) from error

    def __enter__(self) -> Self:
        """Wait until the server has imported its modules."""
        self.wait_until_ready()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server and every worker."""
        self.close()

    def wait_until_ready(self) -> None:
        """Wait until the server has imported its modules, paused or not; if it fails, it is ended.

        Raises:
            LauncherFailed: it failed to start, or was ended.
        """
        if "ready" in self._heard:
            return
        try:
            self.go_on()
            self.expect("ready", time.monotonic() + START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    @property
    def has_touched_gpu(self) -> bool:
        """Return whether an import of the server made a context on a GPU.

        The server then restarted without it. Known once it is ready.
        """
        return "touched" in self._heard

    @property
    def sessions(self) -> tuple[int, ...]:
        """Return the sessions of the server's processes except workers; none once it has ended."""
        return () if self._is_closed or self._server.returncode is not None else (self._server.pid,)

    def is_loading(self) -> bool:
        """Return whether the server still imports, paused or not; a dead one does not."""
        return (
            "ready" not in self._heard
            and "loading" in self._heard
            and not self.has_spoken()
            and not self._has_word()
        )

    def pause(self) -> None:
        """Stop a server that has no worker yet, wherever it is.

        It has to be one that the kernel ends with this process: stopped, it would not notice.

        Raises:
            LauncherFailed: it is gone.
        """
        if not self._heard:
            self.expect("loading", time.monotonic() + START_TIMEOUT_S)
        self._signal(signal.SIGSTOP)
        self._is_paused = True

    def go_on(self) -> None:
        """Resume a paused server."""
        if self._is_paused:
            self._signal(signal.SIGCONT)
            self._is_paused = False

    def resident_bytes(self) -> int:
        """Return the memory of the server's pages, including shared ones; 0 if it has ended."""
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self._server.pid}/statm").read_text().split()[1]) * os.sysconf(
                "SC_PAGE_SIZE"
            )
        return 0

    def let_go(self) -> None:
        """Make the server end with every worker, without waiting.

        A server without any worker so far ends nothing else.
        """
        self._connection.close()
        if not self._count and self._server.returncode is None:
            kill(self._server.pid)

    def close(self) -> None:
        """End the server and every worker; safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self.let_go()
        if not ends_within(self._server, GRACE_S):
            kill(self._server.pid)
            self._server.wait()
        end_all(self._user, self.successor.sessions if self.successor is not None else ())

    def _signal(self, number: signal.Signals) -> None:
        """Signal the server and the processes that its imports have started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, number)

    def _has_word(self) -> bool:
        """Return whether the server has unread output, or has ended."""
        return bool(select.select([self._connection], [], [], 0)[0])

    def run(self, task: Task, *, timeout_s: float, on_answer: Callable[[Answer], None]) -> Ended:
        """Run one task in a new child and wait for its end, at most `timeout_s` seconds.

        Raises:
            LauncherFailed: the server died, or a worker could not be ended.
        """
        with self.begin(task, timeout_s=timeout_s, on_answer=on_answer) as worker:
            return worker.end()

    @contextmanager
    def begin(
        self, task: Task, *, timeout_s: float, on_answer: Callable[[Answer], None]
    ) -> Iterator[Worker]:
        """Open a new child for one task, which ends with the block.

        Raises `LauncherFailed` as `run` does.
        """
        self._count += 1
        log = self._folder / f"{self._count:03d}.log"
        path = self._folder / f"{self._count:03d}.task.json"
        try:
            path.write_bytes(encode(task))
            if self._user is not None:
                log.touch()
                give(log, self._user)
        except OSError as error:
            raise scratch_failure(error) from error
        answers, theirs_out = os.pipe()
        theirs_in, orders = os.pipe()
        begun_s = time.monotonic()
        try:
            pid = self._fork({"task": str(path), "log": str(log)}, (theirs_out, theirs_in))
        except BaseException:
            os.close(answers)
            os.close(orders)
            raise
        worker = Worker(
            self,
            pid,
            answers=answers,
            orders=orders,
            log=log,
            begun_s=begun_s,
            timeout_s=timeout_s,
            on_answer=on_answer,
        )
        try:
            yield worker
        finally:
            worker.close()

    def fileno(self) -> int:
        """Return the descriptor to wait for a message of the server."""
        return self._connection.fileno()

    def has_spoken(self) -> bool:
        """Return whether a message of the server has been read but not taken."""
        return b"\n" in self._buffer

    def expect(self, key: str, deadline: float, *, value: str | None = None) -> int:
        """Return the next message of the server, which must have `key`.

        Raises `LauncherFailed` if none comes in time.
        """
        for line in self._lines(deadline):
            message = json.loads(line)
            self._heard.update(message)
            if key in message:
                return int(message[value or key])
        raise self.broken(f"no {key!r} message came")

    def broken(self, what: str) -> LauncherFailed:
        """Return the error for a server that no longer works.

        Gives a dying one the time to report why.
        """
        ends_within(self._server, LAST_WORDS_S)
        return _failure(what, self._log)

    def _fork(self, request: Mapping[str, str], pipes: tuple[int, int]) -> int:
        """Ask for a child with these pipes, which are closed here.

        Returns the child's process id.
        """
        try:
            socket.send_fds(self._connection, [json.dumps(request).encode()], pipes)
        except OSError as error:
            raise self.broken(str(error)) from error
        finally:
            for pipe in pipes:
                os.close(pipe)
        return self.expect("started", time.monotonic() + START_TIMEOUT_S)

    def _lines(self, deadline: float) -> Iterator[bytes]:
        """Yield the server's messages; ends with the deadline or with the server."""
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


def _failure(what: str, log: Path) -> LauncherFailed:
    return LauncherFailed(
        f"the process that starts the workers stopped answering ({what}). Its last"
        f" words:\n{tail(log) or '(none)'}\nRun `ci-bench doctor` to see whether torch can be"
        " imported here."
    )


def _start_server(
    command: Sequence[str],
    connection: int,
    environ: Mapping[str, str],
    log: int,
    *,
    cwd: Path | None,
    user: int | None,
) -> subprocess.Popen[bytes]:
    """Start Python unbuffered (-u), so the log has everything that a worker printed before a crash.

    The working folder is not put first on the path (-P): a side's environment decides that.
    """
    return subprocess.Popen(
        command,
        pass_fds=[connection],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environ,
        cwd=cwd,
        start_new_session=True,
        **started_as(user),
    )


def make_folder() -> AbstractContextManager[str]:
    """Make a private folder for a run's tasks, logs and caches; it ends with the context."""
    return run_folder()
