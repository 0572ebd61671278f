"""Measure memory that timed calls keep: a leak over hundreds of calls.

A peak is watched for a few only. Both sides make the same number of timed calls, after a warm-up in
which caches fill. Free memory goes back to the kernel before either reading, so holes in the heap
do not count as a leak.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ci_bench.worker.held import read_held
from ci_bench.worker.memory import return_free_memory

_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(kw_only=True, slots=True)
class Kept:
    """The memory of this process on a device between two readings, by arm."""

    device: str
    _before: float | None = field(default=None, init=False)
    _risen: dict[str, float] = field(default_factory=dict, init=False)

    def begin(self) -> None:
        """Read the present memory."""
        self._before = _live_bytes(self.device)

    @contextmanager
    def calls_of(self, arm: str) -> Iterator[None]:
        """Attribute the growth of memory in this block to one arm."""
        before = _quick_bytes(self.device)
        yield
        self._risen[arm] = self._risen.get(arm, 0.0) + _quick_bytes(self.device) - before

    def by_arm(self) -> dict[str, float]:
        """Return the bytes kept since `begin`.

        They are shared out to the arms by their own calls' growth of memory.
        """
        now = _live_bytes(self.device)
        if self._before is None or now is None:
            return {}
        kept_bytes, risen = (
            max(0.0, now - self._before),
            {arm: max(0.0, bytes_) for arm, bytes_ in self._risen.items()},
        )
        total = sum(risen.values())
        return {
            arm: kept_bytes * (rise / total if total else 1 / len(risen))
            for arm, rise in risen.items()
        }


def _live_bytes(device: str) -> float | None:
    """Return the held bytes without garbage and free memory.

    `None` if the kernel does not report them.
    """
    return_free_memory()
    if device.startswith("cuda"):
        return _quick_bytes(device)
    memory = read_held()
    return None if memory is None else memory.own


def _quick_bytes(device: str) -> float:
    """Return the held bytes by a counter, in microseconds: close enough to distinguish arms."""
    if device.startswith("cuda"):
        return float(sys.modules["torch"].cuda.memory_allocated(device))
    try:
        return float(_PAGE * int(_STATM.read_text().split()[1]))
    except OSError:
        return 0.0
