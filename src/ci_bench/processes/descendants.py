"""Wait for a process's descendants, adopt them when their parents end, and kill them all.

A process that leaves its session, its group and its parent (a daemon) keeps one tie: the kernel
hands an orphan to its nearest ancestor that requested it (PR_SET_CHILD_SUBREAPER), whatever its
environment or name.
"""

import ctypes
import math
import os
import select
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""From linux/prctl.h: prctl(2)."""
PATIENCE_S = 5.0
"""The time that a killed process may take to end: the kernel frees its memory meanwhile."""
PAUSE_S = 0.002
LOOK_S = 0.02
"""The polling interval for processes whose end the kernel does not report.

Measured processes may run meanwhile.
"""


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process (prctl(2))."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def ends_within(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Wait this long for the end of a process that this one started.

    Returns whether it has ended; its return code is then set. `Popen.wait` polls after pauses that
    double up to 50 ms: an end after 32 ms is noticed after 63.
    """
    if process.poll() is None:
        ended_of([process.pid], seconds)
    return process.poll() is not None


def ended_of(children: Collection[int], seconds: float) -> list[int]:
    """Return which of these children have ended, once one has, or the time is over.

    They must still be waited for. Their descriptors report it immediately (pidfd_open(2), from
    Linux 5.3); elsewhere they are polled every `LOOK_S`.
    """
    with ExitStack() as stack:
        try:
            descriptors = {_descriptor(pid, stack): pid for pid in children}
        except OSError:
            return _ended_by_looking(children, seconds)
        waiting = select.poll()
        for descriptor in descriptors:
            waiting.register(descriptor, select.POLLIN)
        ready = waiting.poll(None if math.isinf(seconds) else max(0.0, seconds) * 1e3)
        return [descriptors[descriptor] for descriptor, _ in ready]


def _descriptor(pid: int, stack: ExitStack) -> int:
    descriptor = os.pidfd_open(pid)
    stack.callback(os.close, descriptor)
    return descriptor


def _ended_by_looking(children: Collection[int], seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while True:
        ended = [
            pid
            for pid in children
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        ]
        if ended or time.monotonic() >= deadline:
            return ended
        time.sleep(LOOK_S)


@contextmanager
def ending_with(starter: str | None) -> Iterator[None]:
    """Make this process end by SIGTERM when its parent ends in the block.

    Also if the parent, `starter`, has ended before.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if starter and starter.isdecimal() and not Path("/proc", starter).exists():
        os.kill(os.getpid(), signal.SIGTERM)
    try:
        yield
    finally:
        prctl(PR_SET_PDEATHSIG, 0)


@contextmanager
def adopting() -> Iterator[frozenset[int]]:
    """Become the parent of orphans in the block; yields the children that were there before."""
    before = frozenset(own_children())
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield before
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0)


def end_children(spared: Iterable[int], patience_s: float = PATIENCE_S) -> tuple[int, ...]:
    """End all children but the `spared` ones.

    Repeats until none is left, since the end of a child orphans its own children. Returns those
    that would not end in time.
    """
    spared_pids, deadline = frozenset(spared), time.monotonic() + patience_s
    while children := set(own_children()).difference(spared_pids):
        for pid in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        gone = [pid for pid in children if _is_reaped(pid)]
        if time.monotonic() > deadline:
            return tuple(sorted(children.difference(gone)))
        if not gone:
            time.sleep(PAUSE_S)
    return ()


def own_children() -> Iterator[int]:
    """Yield the processes whose parent is this one, by /proc/PID/stat (proc(5)).

    Usually this process has no children, and the kernel reports that in one call: inspecting all
    processes of the machine takes milliseconds.
    """
    if not has_children():
        return
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if _parent_in(stat.read_text(errors="replace")) == os.getpid():
                yield int(stat.parent.name)


def has_children() -> bool:
    """Return whether this process has a child, dead or alive."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _parent_in(stat: str) -> int:
    return int(stat.rpartition(")")[2].split()[1])


def below() -> frozenset[int]:
    """Return all descendants of this process.

    Without a child it returns an empty set and does not inspect the machine.
    """
    if not has_children():
        return frozenset()
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = _parent_in(stat.read_text(errors="replace"))
    descendants, edge = set[int](), {os.getpid()}
    while edge:
        edge = {
            child
            for child, parent in parents.items()
            if parent in edge and child not in descendants
        }
        descendants |= edge
    return frozenset(descendants)


def _is_reaped(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True
