"""The cores that this process computes on: whether it needs more than one at a time, and keeping it to one.

What uses one core loses nothing on a single one, and two sides on the same one share what strikes it. What uses more, by threads
or by processes of its own, would be slowed down, and a change that brings them would show no gain.
"""

import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ci_bench.engine.process.descendants import own_children

MOST_OF_ONE = 1.05
"""Seconds of the processor per second of the clock that one core explains, with what ends and begins at the edges."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(kw_only=True, slots=True)
class Cores:
    """What was used between `begin` and `end`, and the cores that the calling thread had before it was kept to one."""

    one: bool = False
    _begun: tuple[float, float] = (0.0, 0.0)
    _allowed: set[int] = field(default_factory=lambda: os.sched_getaffinity(0))

    def begin(self) -> None:
        """Count from now."""
        self._begun = time.perf_counter(), _processor_s()

    def end(self) -> None:
        """Tell whether all that was done since then was done on one core at a time, wherever the kernel had it.

        What has chosen its cores itself keeps them.
        """
        elapsed_s, used_s = (now - then for now, then in zip((time.perf_counter(), _processor_s()), self._begun, strict=True))
        self.one = used_s <= MOST_OF_ONE * elapsed_s and os.sched_getaffinity(0) == self._allowed

    def keep_to(self, core: int) -> None:
        """Compute on one core from now on; not where this process may not use it."""
        with suppress(OSError):
            os.sched_setaffinity(0, {core} & self._allowed)

    def release(self) -> None:
        """Compute wherever the kernel likes."""
        with suppress(OSError):
            os.sched_setaffinity(0, self._allowed)


def _processor_s() -> float:
    """Seconds of the processor of this process and all its threads, and of its children, gone or not."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    of_children = gone.ru_utime + gone.ru_stime + sum(map(_of_child_s, own_children()))
    return time.process_time() + of_children


def _of_child_s(pid: int) -> float:
    """User and system time of a child, and of what it has waited for (fields 14 to 17 of proc(5)'s stat); 0 once it is gone."""
    with suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return _TICK_S * sum(map(int, told[11:15]))
    return 0.0
