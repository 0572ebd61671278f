"""Drive one worker from the parent: send orders, read answers, enforce limits, interpret its end.

Owns one child of a launch from its start to its end. A worker can neither send unbounded output nor
keep the parent busy for ever, and its end becomes a typed status and a sentence for the user. The
launch itself (the server that forks) belongs to `launch`.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from ci_bench.errors import LauncherFailed
from ci_bench.processes.protocol import Answer, Order, decode_answer, encode_order
from ci_bench.records.results import Status

MAX_BYTES = 64 << 20
MAX_GARBLED = 1000


class Answers:
    """The answers of one worker: `kept` without progress, which is only passed on.

    `garbled` counts invalid lines.
    """

    def __init__(self, on_answer: Callable[[Answer], None]) -> None:
        """Call `on_answer` with each answer, progress included."""
        self.kept: list[Answer] = []
        self.garbled = 0
        self._on_answer = on_answer
        self._pieces: list[bytes] = []
        self._seen = 0

    @property
    def flooded(self) -> bool:
        """Return whether the worker sent more than a correct one ever would."""
        return self._seen > MAX_BYTES or self.garbled > MAX_GARBLED

    def drain(self, reader: int) -> bool:
        """Read the available output; False at the end of the stream, or when flooded."""
        while not self.flooded:
            try:
                data = os.read(reader, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.feed(data)
        return False

    def feed(self, data: bytes) -> None:
        """Take some bytes, wherever they were cut."""
        self._seen += len(data)
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._take(b"".join([*self._pieces, line]))
            self._pieces.clear()
        if rest:
            self._pieces.append(rest)

    def finish(self) -> None:
        """Count an unfinished last line as garbled."""
        self.garbled += bool(self._pieces)
        self._pieces.clear()

    def _take(self, line: bytes) -> None:
        try:
            answer = decode_answer(line)
        except (ValueError, msgspec.ValidationError, RecursionError, OverflowError):
            self.garbled += 1
            return
        if answer.progress is None:
            self.kept.append(answer)
        self._on_answer(answer)


LOG_TAIL_BYTES = 4000
MAX_LOG_BYTES = 256 << 20
"""The limit of a worker's output; its log is on a disk that others need."""
LOOK_S = 0.25
"""The polling interval of the log's size.

A poll takes some microseconds, outside the measured process. Memory that disks are written through
takes 3 GB in a second.
"""
GRACE_S = 5.0


class Server(Protocol):
    """The source of a worker's exit: the process that forked it, which reports when it is gone."""

    def fileno(self) -> int:
        """Return the descriptor to wait for a message of the server."""

    def has_spoken(self) -> bool:
        """Return whether a message of the server waits to be read: the worker ended."""

    def expect(self, key: str, deadline: float, *, value: str | None = None) -> int:
        """Return the next message of the server, which must have `key`."""

    def broken(self, what: str) -> LauncherFailed:
        """Return the error for a server that no longer does its work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The end of a worker."""

    code: int
    """Exit code, negative for a signal."""
    timed_out: bool
    """True if it was ended at its time limit."""
    answers: tuple[Answer, ...]
    """Its answers, except progress and executed orders."""
    garbled: int = 0
    """Number of invalid lines."""
    flooded: bool = False
    """True if it was ended because it sent too much."""
    overfull: bool = False
    """True if it was ended because its log grew too large."""
    log_tail: str = ""
    """Last bytes of its log."""
    duration_s: float = 0.0
    """Time that the parent waited for it (s)."""


class Worker:
    """One child. While no caller asks it or waits for it, it is idle and its time limit pauses.

    Not for use from several threads.
    """

    def __init__(
        self,
        server: Server,
        pid: int,
        *,
        answers: int,
        orders: int,
        log: Path,
        begun_s: float,
        timeout_s: float,
        on_answer: Callable[[Answer], None],
    ) -> None:
        """Take over a child; `answers` and `orders` are this end of its pipes.

        `close` closes them.

        The child was requested at `begun_s`.
        """
        self._server, self._pid = server, pid
        self._reader = answers
        self._writer: int | None = orders
        self._log, self._left_s = log, timeout_s
        self._answers = Answers(on_answer)
        self._spent_s, self._timed_out, self._overfull = 0.0, False, False
        self._code: int | None = None
        self._read, self._given_up = 0, False
        self._looked_s = time.monotonic()
        self._left_at: float | None = begun_s
        self._words = select.poll()
        self._words.register(answers, select.POLLIN)
        self._words.register(server, select.POLLIN)
        os.set_blocking(answers, False)

    def tell(self, order: Order) -> None:
        """Send an order without waiting: the worker executes it meanwhile."""
        self._left_at = time.monotonic()
        if self._writer is not None:
            with contextlib.suppress(OSError):  # it is gone, and its end is reported
                os.write(self._writer, encode_order(order))

    def ask(self, order: Order | None) -> Answer | None:
        """Send an order, if any, and wait for the next answer.

        Returns `None` if the worker ended instead or had to be ended, or if its line was not an
        answer: nothing more can be trusted then.
        """
        if order is not None:
            self.tell(order)
        answers = self._answers
        self._wait(lambda: len(answers.kept) > self._read or answers.garbled > 0)
        if len(answers.kept) <= self._read or answers.garbled:
            return None
        self._read += 1
        return self._answers.kept[self._read - 1]

    def end(self) -> Ended:
        """Give no more orders, and wait for the worker's own end, up to its time limit.

        Raises:
            LauncherFailed: the server died, or the worker could not be ended.
        """
        self._let_go()
        self._wait(lambda: False)
        self._answers.drain(self._reader)
        self._answers.finish()
        assert self._code is not None, "waiting for nothing ends with the worker"  # noqa: S101 - our own bug if not
        return Ended(
            code=self._code,
            timed_out=self._timed_out,
            answers=tuple(answer for answer in self._answers.kept if answer.done is None),
            garbled=self._answers.garbled,
            flooded=self._answers.flooded,
            overfull=self._overfull,
            log_tail=tail(self._log),
            duration_s=self._spent_s,
        )

    def answers_within(self, seconds: float) -> bool:
        """Wait this long for the answer to a sent order. Returns whether `ask` won't have to wait.

        Raises:
            LauncherFailed: the server died, or the worker could not be ended.
        """
        answers, begun = self._answers, time.monotonic()

        def answered() -> bool:
            return len(answers.kept) > self._read or answers.garbled > 0

        self._wait(lambda: answered() or time.monotonic() >= begun + seconds, look_s=seconds)
        self._left_at = time.monotonic()
        return answered() or self._code is not None

    def ends_within(self, seconds: float) -> bool:
        """Give no more orders, and wait this long for the worker's own end.

        Returns whether it has ended, so `end` won't wait. It works between two such calls as well,
        so this time counts too.

        Raises:
            LauncherFailed: the server died, or the worker could not be ended.
        """
        self._let_go()
        begun = time.monotonic()
        self._wait(lambda: time.monotonic() >= begun + seconds, look_s=seconds)
        self._left_at = time.monotonic()
        return self._code is not None

    def stop(self) -> None:
        """End the worker now, if it still runs."""
        if self._code is None:
            kill(self._pid)
        if self._code is None and not self._given_up:
            with contextlib.suppress(LauncherFailed):
                self._code = self._server.expect("ended", time.monotonic() + GRACE_S, value="code")

    def close(self) -> None:
        """End the worker if it still runs, and close the pipes."""
        self.stop()
        os.close(self._reader)
        self._let_go()

    def _let_go(self) -> None:
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def _wait(self, enough: Callable[[], bool], *, look_s: float = LOOK_S) -> None:
        """Read until there is enough or the worker has ended.

        Time while it works counts against its limit.
        """
        started = (
            time.monotonic() if self._left_at is None or self._code is not None else self._left_at
        )
        self._left_at = None
        try:
            if self._code is None and self._await_word(enough, started + self._left_s, look_s):
                self._code = self._server.expect("ended", time.monotonic() + GRACE_S, value="code")
                self._answers.drain(self._reader)
        except LauncherFailed:
            self._given_up = True
            raise
        finally:
            spent_s = time.monotonic() - started
            self._spent_s += spent_s
            self._left_s -= spent_s

    def _await_word(self, enough: Callable[[], bool], deadline: float, look_s: float) -> bool:
        """Wait for an answer or the server's message, and kill the child's session at the deadline.

        Returns whether the server reported. The pipe's end does not show the child's: the child may
        close the pipe early, and a process it started may hold it open. A quick end arrives
        together with the message that the child started, so it may be there already.
        """
        killed = False
        while not enough() or killed:
            if self._server.has_spoken():
                return True
            ready = {
                number
                for number, _ in self._words.poll(
                    1e3 * min(look_s, max(0.0, deadline - time.monotonic()))
                )
            }
            if self._reader in ready and not self._answers.drain(self._reader):
                self._words.unregister(self._reader)
            if self._server.fileno() in ready:
                return True
            late = time.monotonic() >= deadline
            if late and killed:
                raise self._server.broken(
                    f"worker {self._pid} was killed, but no word came that it ended"
                )
            full = not killed and self._is_overfull()
            if not killed and (late or full or self._answers.flooded):
                self._timed_out, self._overfull = late, full
                killed, deadline = True, time.monotonic() + GRACE_S
                kill(self._pid)
        return False

    def _is_overfull(self) -> bool:
        """Check the log's size, if the last check is long enough ago."""
        now = time.monotonic()
        if now - self._looked_s < LOOK_S:
            return False
        self._looked_s = now
        return is_overfull(self._log)


def is_overfull(log: Path) -> bool:
    """Return whether a log is larger than anyone would read, so it might fill the disk."""
    with contextlib.suppress(OSError):
        return log.stat().st_size > MAX_LOG_BYTES
    return False


def kill(pid: int) -> None:
    """Kill a process and its session, or only the process if it has not opened one yet."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def tail(log: Path) -> str:
    """Return the last bytes of a log as text."""
    with contextlib.suppress(OSError), log.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - LOG_TAIL_BYTES))
        return stream.read().decode("utf-8", "replace").strip()
    return ""


SIGNAL_HINTS = {
    signal.SIGKILL: (
        "; often the kernel ending a process because the machine ran out of memory (see `dmesg`)"
    ),
    signal.SIGSEGV: "; a bug in native code (a kernel, an extension, or the compiler's output)",
    signal.SIGBUS: "; often a full disk or a full /dev/shm",
    signal.SIGABRT: "; native code gave up, its message is in the log",
}
FOREIGN = "something other than ci-bench wrote into its pipe"


def explain(ended: Ended, *, limit_s: float) -> tuple[Status, str]:  # noqa: PLR0911 - one line per ending, in order
    """Return the status of a stage and its reason.

    `ok` only if the worker reported its results, exited cleanly and sent nothing garbled. A time
    limit counts first, then a signal, then the worker's own report (a typed fault), then its exit
    code.
    """
    if ended.timed_out:
        return (
            Status.TIMEOUT,
            f"ended after {limit_s:g} s (run.stage_timeout_s) with all its processes",
        )
    if ended.flooded:
        return (
            Status.FAILED,
            (
                f"the worker sent more than {MAX_BYTES >> 20} MiB, or too much that is not an"
                f" answer: {FOREIGN}"
            ),
        )
    if ended.overfull:
        return (
            Status.FAILED,
            f"it printed more than {MAX_LOG_BYTES >> 20} MiB and was ended; have it print less",
        )
    if ended.code < 0:
        return Status.CRASHED, _signal_sentence(ended.code)
    fault = next((answer.fault for answer in ended.answers if answer.fault), None)
    if fault is not None:
        return _status(fault.kind), fault.message
    if ended.garbled:
        return (
            Status.FAILED,
            f"the worker sent {ended.garbled} line(s) that are not answers: {FOREIGN}",
        )
    if ended.code != 0 or not ended.answers:
        return Status.CRASHED, f"the worker exited with code {ended.code} and without an answer"
    return Status.OK, ""


def signal_name(ended: Ended) -> str | None:
    """Return the signal that ended the worker, such as ``SIGSEGV``.

    `None` without one, or if intended.
    """
    if ended.code >= 0 or ended.timed_out or ended.flooded or ended.overfull:
        return None
    try:
        return signal.Signals(-ended.code).name
    except ValueError:
        return str(-ended.code)


def _status(kind: str) -> Status:
    reportable = {Status.SKIPPED, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.CRASHED}
    return Status(kind) if kind in reportable else Status.FAILED


def _signal_sentence(code: int) -> str:
    try:
        cause = signal.Signals(-code)
    except ValueError:
        return f"ended by signal {-code}"
    return f"ended by {cause.name}{SIGNAL_HINTS.get(cause, '')}"
