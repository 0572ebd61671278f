"""Fork the ranks of a stage with several processes, watch them, and report which failed, and how.

The worker that the parent knows becomes their supervisor. It computes nothing and waits in the
kernel, so a collective never blocks it. Rank 0 answers the parent and takes its orders; the others
take theirs from rank 0, as lines of JSON on pipes. All are in the worker's session and end with the
supervisor. They rendezvous through a file in the case's folder and on loopback, where the kernel
chooses the ports, so sides, launches and runs never meet each other.

When a rank ends unexpectedly, the others follow soon: a collective fails if a peer is gone. They
get `GRACE_S` for it. A rank that is still there then, after all others gave up waiting, is the one
that hangs.
"""

import contextlib
import faulthandler
import json
import math
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from ci_bench.processes.descendants import PR_SET_PDEATHSIG, ended_of, prctl
from ci_bench.processes.protocol import WorkerFault
from ci_bench.processes.resident import tail
from ci_bench.records.results import Status

GRACE_S = 4.0
PATIENCE = 0.25
"""The share of `run.stage_timeout_s` that a rank waits for the others before it gives up."""
TAIL_CHARACTERS = 1200
"""Of each rank's log, in the log of the case."""
MAX_LINE = 1 << 20
DONE = "done"
_GAVE_UP = re.compile(
    r"gloo|nccl|collective|connection (closed|reset)|timed out|timeout|(tcp|file)store|process"
    r" ?group",
    re.IGNORECASE,
)
"""Words in errors that a peer causes: of gloo, NCCL, torch's stores, and our own pipes."""


class PeerLost(ConnectionError):  # noqa: N818 - it names the event
    """Another rank is gone, or did not answer in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """One rank, its end of the pipes, and the place where the ranks meet."""

    rank: int
    """Number of this rank."""
    count: int
    """Number of all ranks."""
    folder: Path
    """Folder where the ranks meet and log."""
    readers: Mapping[int, int]
    """Descriptors to read from, by rank: for rank 0 all others, for another rank only 0."""
    writers: Mapping[int, int]
    """Descriptors to write to, by rank: for rank 0 all others, for another rank only 0."""
    patience_s: float
    """Time to wait for another rank's answer (s)."""
    buffers: dict[int, bytes] = field(default_factory=dict)
    """Bytes read from each rank that are not a complete line yet."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Send to all others as rank 0, or to rank 0 as another. Raises `PeerLost`."""
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
        for rank, writer in self.writers.items():
            try:
                os.write(writer, line)
            except OSError as error:
                message_ = f"rank {rank} is gone"
                raise PeerLost(message_) from error

    def receive(self, rank: int, *, limit_s: float | None = None) -> dict[str, Any] | None:
        """Return the next message of another rank; `None` after its last.

        Raises `PeerLost` if none comes in `limit_s`.
        """
        deadline = None if limit_s is None else time.monotonic() + limit_s
        rest = self.buffers.pop(rank, b"")
        while b"\n" not in rest:
            if len(rest) > MAX_LINE:
                message = f"rank {rank} is gone: it sent more than {MAX_LINE} bytes in a line"
                raise PeerLost(message)
            wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self.readers[rank]], [], [], wait_s)[0]:
                message = f"timed out waiting for rank {rank}: no answer within {limit_s:g} s"
                raise PeerLost(message)
            if not (data := os.read(self.readers[rank], 1 << 16)):
                return None
            rest += data
        line, _, self.buffers[rank] = rest.partition(b"\n")
        message_of: dict[str, Any] = json.loads(line)
        return message_of

    def orders(self) -> Iterator[dict[str, Any]]:
        """Yield rank 0's orders, until it gives no more."""
        while (order := self.receive(0)) is not None:
            yield order

    def answers(self) -> list[dict[str, Any]]:
        """Return one answer of every other rank, in their order. Raises `PeerLost`."""
        answers = []
        for rank in self.readers:
            answer = self.receive(rank, limit_s=self.patience_s)
            if answer is None:
                message = f"rank {rank} is gone"
                raise PeerLost(message)
            answers.append(answer)
        return answers


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEnd:
    """The end of one rank."""

    rank: int
    """Number of the rank."""
    code: int | None = None
    """Exit code, negative for a signal; `None` while it runs."""
    order: int = 0
    """Number of ranks that had ended before."""
    word: str = ""
    """The rank's own report of its end: `DONE` or a `Status` value; empty without one."""
    message: str = ""
    """The rank's own message; empty if it left none."""
    waited: bool = False
    """True if it gave up waiting for others."""

    @property
    def is_well(self) -> bool:
        """Return whether the rank completed its work."""
        return self.code == 0 and self.word == DONE


def is_of_a_peer(error: BaseException) -> bool:
    """Return whether another rank's end or silence caused an error.

    Knows errors by their words, and so needs no torch.
    """
    if isinstance(error, PeerLost) or type(error).__name__ in {
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
    }:
        return True
    return isinstance(error, RuntimeError) and bool(_GAVE_UP.search(str(error)))


def supervise(
    count: int,
    *,
    scratch: Path,
    patience_s: float,
    perform: Callable[[Seat], WorkerFault | None],
    keep: Sequence[int],
) -> WorkerFault | None:
    """Fork `count` ranks that each `perform` theirs, and wait for all.

    Returns the fault; `None` if there was none. `keep` are the descriptors to the parent, which
    only rank 0 uses from then on.
    """
    folder = Path(tempfile.mkdtemp(prefix="ranks-", dir=scratch))
    seats = _seats(count, folder, patience_s)
    pids = {_fork(seat, seats, perform, keep): seat.rank for seat in seats}
    _close(seats)
    ends = _watch(pids, folder)
    fault = None if all(end.is_well for end in ends) else blame(ends)
    if fault is not None:
        sys.stderr.write(
            "".join(f"--- rank {end.rank} ---\n{_log_tail(folder, end.rank)}\n" for end in ends)
        )
        sys.stderr.flush()
    shutil.rmtree(folder, ignore_errors=True)
    return fault


def blame(ends: Sequence[RankEnd]) -> WorkerFault:
    """Return the one fault that explains how the ranks ended, with the rank's name in it.

    A rank's own failure (a signal, an error, an early exit) comes before failures that missing
    peers cause.
    """
    count = len(ends)
    by_order = sorted(
        (end for end in ends if end.code is not None and not end.is_well), key=lambda end: end.order
    )
    by_itself = [end for end in by_order if not end.waited]
    if by_itself:
        first = by_itself[0]
        alike = [
            end
            for end in by_itself
            if (end.word, end.message) == (first.word, first.message) and end.message
        ]
        who = "all ranks" if len(alike) == count > 1 else f"rank {first.rank} of {count}"
        return WorkerFault(kind=_kind(first), message=f"{who} {_sentence(first)}")
    silent = [end for end in ends if end.code is None]
    waiting = next((end.message for end in by_order if end.message), "")
    if silent and by_order:
        names = " and ".join(str(end.rank) for end in silent)
        verb, rank = ("hang", "ranks") if len(silent) > 1 else ("hangs", "rank")
        return WorkerFault(
            kind=Status.TIMEOUT,
            message=f"{rank} {names} of {count} {verb}: the others gave up waiting ({waiting})",
        )
    if any(end.is_well for end in ends):
        leavers = ", ".join(str(end.rank) for end in ends if end.is_well)
        return WorkerFault(
            kind=Status.FAILED,
            message=f"rank {leavers} of {count} left early: the others still waited ({waiting})",
        )
    return WorkerFault(
        kind=Status.TIMEOUT, message=f"all {count} ranks gave up waiting for each other ({waiting})"
    )


def _kind(end: RankEnd) -> str:
    if end.code is not None and end.code < 0:
        return Status.CRASHED
    return end.word if end.word in set(Status) else Status.FAILED


def _sentence(end: RankEnd) -> str:
    if end.code is not None and end.code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-end.code).name}"
        return f"was ended by signal {-end.code}"
    if not end.word:
        return f"left early, with exit code {end.code} and without a word"
    return f"failed: {end.message}" if end.word != Status.SKIPPED else end.message


def _seats(count: int, folder: Path, patience_s: float) -> tuple[Seat, ...]:
    """Return the ranks, with pipes both ways between rank 0 and each of the others."""
    orders = {rank: os.pipe() for rank in range(1, count)}
    answers = {rank: os.pipe() for rank in range(1, count)}
    first = Seat(
        rank=0,
        count=count,
        folder=folder,
        readers={rank: reader for rank, (reader, _) in answers.items()},
        writers={rank: writer for rank, (_, writer) in orders.items()},
        patience_s=patience_s,
    )
    others = (
        replace(
            first,
            rank=rank,
            readers={0: orders[rank][0]},
            writers={0: answers[rank][1]},
            buffers={},
        )
        for rank in range(1, count)
    )
    return (first, *others)


def _close(seats: Sequence[Seat]) -> None:
    for seat in seats:
        for descriptor in (*seat.readers.values(), *seat.writers.values()):
            os.close(descriptor)


def _fork(
    seat: Seat,
    seats: Sequence[Seat],
    perform: Callable[[Seat], WorkerFault | None],
    keep: Sequence[int],
) -> int:
    """Fork one rank. Returns its process id."""
    supervisor = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become_rank(
            seat, [other for other in seats if other is not seat], perform, keep, supervisor
        )
    return pid


def _become_rank(
    seat: Seat,
    others: Sequence[Seat],
    perform: Callable[[Seat], WorkerFault | None],
    keep: Sequence[int],
    supervisor: int,
) -> NoReturn:
    """Live a rank's whole life. Never returns."""
    code = 70
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(code)
        _close(others)
        if seat.rank:
            for descriptor in keep:
                os.close(descriptor)
        log = os.open(_log(seat.folder, seat.rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.enable(2)
        os.environ.update(
            RANK=str(seat.rank), LOCAL_RANK=str(seat.rank), WORLD_SIZE=str(seat.count)
        )
        fault = perform(seat)
        _leave_word(seat, fault)
        code = 0 if fault is None else 1
    except BaseException:  # noqa: BLE001 - the last line of defence of a forked child: log, then leave by _exit
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _leave_word(seat: Seat, fault: WorkerFault | None) -> None:
    word = (
        {"word": DONE}
        if fault is None
        else {"word": fault.kind, "message": fault.message, "waited": fault.waited}
    )
    _word(seat.folder, seat.rank).write_text(json.dumps(word))


def _watch(pids: Mapping[int, int], folder: Path) -> list[RankEnd]:
    """Wait for all ranks; once one failed, for the others no longer than `GRACE_S`."""
    ends = {rank: RankEnd(rank=rank) for rank in pids.values()}
    watched, deadline = dict(pids), math.inf
    while watched and (ended := ended_of(watched, deadline - time.monotonic())):
        for pid in ended:
            rank, order = watched.pop(pid), sum(end.code is not None for end in ends.values())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            ends[rank] = _read_end(folder, rank, code, order)
            if not ends[rank].is_well:
                deadline = min(deadline, time.monotonic() + GRACE_S)
    for pid in watched:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return [ends[rank] for rank in sorted(ends)]


def _read_end(folder: Path, rank: int, code: int, order: int) -> RankEnd:
    end = RankEnd(rank=rank, code=code, order=order)
    with contextlib.suppress(OSError, ValueError):
        report = json.loads(_word(folder, rank).read_text())
        return replace(
            end,
            word=str(report["word"]),
            message=str(report.get("message", "")),
            waited=bool(report.get("waited")),
        )
    return end


def _log(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.log"


def _word(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.json"


def _log_tail(folder: Path, rank: int) -> str:
    return tail(_log(folder, rank))[-TAIL_CHARACTERS:] or "(printed nothing)"
