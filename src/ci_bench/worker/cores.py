"""The cores that this process computes on: detects the use of several, and keeps it to one.

A program that uses one core loses nothing on a single one, and two sides on the same core share its
disturbances. A program that uses more would be slowed down, and a change that adds threads would
show no gain. Programs that start processes are not restricted either: these would find one core
where they had found all of them before.
"""

import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ci_bench.processes.descendants import own_children

MOST_OF_ONE, MOST_OF_CHILDREN = 1.05, 0.05
"""Seconds of the processor per second of the clock.

The first is for one core, with work that ends and starts at the edges; the second is for its
children, such as waiting servers of a compiler.
"""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(kw_only=True, slots=True)
class Cores:
    """The cores used between `begin` and `end`, and the calling thread's previous cores."""

    one: bool = False
    _begun: tuple[float, float, float] = (0.0, 0.0, 0.0)
    _allowed: set[int] = field(default_factory=lambda: os.sched_getaffinity(0))

    def begin(self) -> None:
        """Count from now."""
        self._begun = time.perf_counter(), time.process_time(), _of_children_s()

    def end(self) -> None:
        """Set whether all work since then was done here on one core at a time.

        The kernel may have moved it between cores. A thread that has chosen its cores itself keeps
        them.
        """
        ended = time.perf_counter(), time.process_time(), _of_children_s()
        elapsed_s, own_s, of_children_s = (
            now - then for now, then in zip(ended, self._begun, strict=True)
        )
        fits = own_s <= MOST_OF_ONE * elapsed_s and of_children_s <= MOST_OF_CHILDREN * elapsed_s
        self.one = fits and os.sched_getaffinity(0) == self._allowed

    def keep_to(self, core: int) -> None:
        """Compute on one core from now on; no effect if this process may not use it."""
        with suppress(OSError):
            os.sched_setaffinity(0, {core} & self._allowed)

    def release(self) -> None:
        """Compute wherever the kernel likes; no effect without an earlier restriction."""
        if self.one:
            with suppress(OSError):
                os.sched_setaffinity(0, self._allowed)


def _of_children_s() -> float:
    """Return the processor seconds of this process's children, gone or not."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    return gone.ru_utime + gone.ru_stime + sum(map(_of_child_s, own_children()))


def _of_child_s(pid: int) -> float:
    """Return user and system time of a child and its waited-for children; 0 once it is gone.

    From fields 14 to 17 of proc(5)'s stat.
    """
    with suppress(OSError):
        stat_fields = (
            Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        )
        return _TICK_S * sum(map(int, stat_fields[11:15]))
    return 0.0
