"""Takes one sample of a program: so many calls in one fence, by the host's clock, and its parts.

Inside the fence are the calls and the marks at the ends of their parts (one reading of the clock each), nothing else. The device
is synchronised at both ends.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ci_bench.engine.device import synchronizer
from ci_bench.suites.base import Part, Program, no_mark


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """One sample: seconds per call by the host's clock, by the device's (where it has one), and of each part."""

    wall_s: float
    device_s: float | None = None
    parts_s: tuple[float, ...] = ()


class Clock(Protocol):
    """Whatever takes samples on one device."""

    def take(self, program: Program, *, calls: int) -> Taken:
        """Time so many calls in one fence."""


class HostClock:
    """`time.perf_counter`, for a device that has no clock of its own."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        """`synchronize` waits for the device."""
        self._synchronize = synchronize

    def take(self, program: Program, *, calls: int) -> Taken:
        """Time so many calls in one fence; parts by the marks between them."""
        parts = program.parts
        if not parts:
            return Taken(wall_s=self._whole(program, calls))
        ends: list[float] = []
        now = time.perf_counter

        def mark() -> None:
            ends.append(now())

        self._synchronize()
        start = now()
        for _ in range(calls):
            mark()
            program.step(mark)
        self._synchronize()
        wall_s = (now() - start) / calls
        return Taken(wall_s=wall_s, parts_s=split(ends, parts, calls))

    def _whole(self, program: Program, calls: int) -> float:
        step = program.step
        self._synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            step(no_mark)
        self._synchronize()
        return (time.perf_counter() - start) / calls


def split(readings: list[float], parts: tuple[Part, ...], calls: int) -> tuple[float, ...]:
    """The mean seconds of each part, from a reading at the start of each call and at each mark.

    Raises:
        ValueError: a call made more or fewer marks than it has parts.
    """
    width = len(parts) + 1
    if len(readings) != width * calls:
        names = ", ".join(part.metric for part in parts)
        marks = len(readings) / calls - 1
        message = f"a step has to mark the end of each of its {len(parts)} parts ({names}), and made {marks:g} marks per call"
        raise ValueError(message)
    return tuple(
        sum(readings[call * width + index + 1] - readings[call * width + index] for call in range(calls)) / calls / part.per
        for index, part in enumerate(parts)
    )


def make_clock(device: str) -> Clock:
    """The clock of a device string."""
    return HostClock(synchronizer(device))
