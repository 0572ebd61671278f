"""Take one sample of a program: calls in one fence, by host's and device's clock, and its parts.

Defines a clock, the host's clock, and a series of samples. The GPU's clock is in `cuda_clock`. Only
the calls and the marks at the ends of their parts are inside the fence. The device is synchronised
at both ends; the caller holds the garbage collector off. `rotation` rotates inputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ci_bench.records.results import Check, Lane, Outcome
from ci_bench.suites.contract import Part, Program, no_mark
from ci_bench.worker.fence import Reader, reader

_Reading = TypeVar("_Reading")


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """One sample: seconds per call by the host's clock, by the device's, and of each part.

    `None` is a time that the device's clock cannot resolve, or that does not exist. `parts_s` is
    empty if parts are not timed, and otherwise has an entry for each part.
    """

    wall_s: float
    device_s: float | None = None
    parts_s: tuple[float | None, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Write:
    """A write into inputs in a sample, without a pause: `behind` of its calls follow it."""

    write: Callable[[], object]
    behind: int


class Clock(Protocol):
    """Takes samples on one device, for any number of programs."""

    parts_lane: Lane
    """The clock that parts are read from."""

    def prepare(self, program: Program) -> None:
        """Do one-time preparations of a program, at the latest at its first sample.

        If several programs take turns, all of them are prepared before the first is warmed up:
        preparing one may empty the allocator's cache under the others.
        """

    def call(self, program: Program) -> None:
        """Make one call as samples make it, untimed, without waiting for it."""

    def take(self, program: Program, *, calls: int, write: Write | None = None) -> Taken:
        """Time this many calls; a `write` goes between two of them.

        A sample that counts has no write.
        """

    def least_sample_s(self) -> float:
        """Return the shortest sample (s) compared with which the fence is negligible."""

    def replays(self, program: Program) -> bool:
        """Return whether a call of this program replays a captured one.

        A replay reads inputs at their old addresses.
        """

    def checks(self, program: Program, *, arm: str) -> tuple[Check, ...]:
        """Return remarks for the reader on how this program was timed."""

    def retries(self) -> int:
        """Return how often device memory was freed for an allocation, since the process began."""

    def flushes(self) -> int:
        """Return the number of cache overwrites before a call.

        Follows the needs of calls so far; 0 for none.
        """

    def settle_flushes(self, count: int) -> None:
        """Set the number of cache overwrites before every call, whatever a call needs."""


class HostClock:
    """`time.perf_counter`, for a device that has no clock."""

    __slots__ = ("_now", "_synchronize", "_unmet")
    parts_lane = Lane.WALL

    def __init__(
        self,
        synchronize: Callable[[], None],
        *,
        unmet: tuple[str, ...] = (),
        now: Reader = reader(),
    ) -> None:
        """Read time with `now`; `synchronize` waits for the device.

        `unmet` names the options that this device cannot follow.
        """
        self._synchronize, self._unmet, self._now = synchronize, unmet, now

    def prepare(self, program: Program) -> None:
        """Do nothing: the host's clock needs no preparation."""

    def call(self, program: Program) -> None:
        """Make one call, untimed."""
        program.step(no_mark)

    def take(self, program: Program, *, calls: int, write: Write | None = None) -> Taken:
        """Time this many calls in one fence; parts by the marks between them.

        Raises:
            ValueError: a call made more or fewer marks than it has parts.
        """
        if not program.parts:
            return Taken(wall_s=self._time_without_parts(program, calls, write))
        ends: list[float] = []
        now = self._now
        behind = calls if write is None else write.behind

        def mark() -> None:
            ends.append(now())

        self._synchronize()
        start = now()
        for count, then in ((calls - behind, write), (behind, None)):
            for _ in range(count):
                mark()
                program.step(mark)
            if then is not None:
                then.write()
        self._synchronize()
        wall_s = (now() - start) / calls
        expect_marks(len(ends), program.parts, calls)
        spans_s = split(ends, program.parts, between=lambda earlier, later: later - earlier)
        parts_s = tuple(
            span_s / calls / part.per for span_s, part in zip(spans_s, program.parts, strict=True)
        )
        return Taken(wall_s=wall_s, parts_s=parts_s)

    def least_sample_s(self) -> float:
        """Return 0: the CPU needs no waiting for, so any sample will do."""
        return 0.0

    def replays(self, program: Program) -> bool:  # noqa: ARG002 - no program
        """Return false: nothing is captured here."""
        return False

    def checks(self, program: Program, *, arm: str) -> tuple[Check, ...]:  # noqa: ARG002 - the same for every program
        """Return a remark for each option that has no meaning on this device."""
        return tuple(
            Check(
                name=name,
                arm=arm,
                outcome=Outcome.UNKNOWN,
                detail=f"run.{name} is for GPUs: not done here",
                informative=True,
            )
            for name in self._unmet
        )

    def retries(self) -> int:
        """Return 0: the host's memory has no separate limit."""
        return 0

    def flushes(self) -> int:
        """Return 0: this clock never flushes."""
        return 0

    def settle_flushes(self, count: int) -> None:
        """Do nothing: this clock has no flushes."""

    def _time_without_parts(self, program: Program, calls: int, write: Write | None) -> float:
        now, behind = self._now, calls if write is None else write.behind
        step = program.step
        self._synchronize()
        begun = now()
        for count, then in ((calls - behind, write), (behind, None)):
            for _ in range(count):
                step(no_mark)
            if then is not None:
                then.write()
        self._synchronize()
        return (now() - begun) / calls


def expect_marks(marks: int, parts: tuple[Part, ...], calls: int) -> None:
    """Raise if calls made more or fewer marks than they have parts.

    The start of each call counts as one, too.

    Raises:
        ValueError: with the number of parts, their metrics, and the marks.
    """
    if marks != (len(parts) + 1) * calls:
        names = ", ".join(part.metric for part in parts)
        marks_per_call = marks / calls - 1
        message = (
            f"a step has to mark the end of each of its {len(parts)} parts ({names}), and made"
            f" {marks_per_call:g} marks per call"
        )
        raise ValueError(message)


def split(
    readings: Sequence[_Reading],
    parts: tuple[Part, ...],
    *,
    between: Callable[[_Reading, _Reading], float],
) -> tuple[float, ...]:
    """Return the seconds that each part took over all calls.

    `readings` has one at the start of each call and one at each mark.

    `between` gives the seconds from one reading to a later one.
    """
    width = len(parts) + 1
    starts = range(0, len(readings), width)
    return tuple(
        sum(between(readings[start + index], readings[start + index + 1]) for start in starts)
        for index in range(len(parts))
    )


def device_series(samples: Sequence[Taken]) -> tuple[float, ...]:
    """Return the device's seconds of every sample, or nothing if one is unknown.

    A series has no holes.
    """
    return _without_holes([sample.device_s for sample in samples])


def part_series(samples: Sequence[Taken], index: int) -> tuple[float, ...]:
    """Return the seconds of one part in every sample, or nothing if one is unknown."""
    return _without_holes(
        [sample.parts_s[index] if index < len(sample.parts_s) else None for sample in samples]
    )


def _without_holes(values: Sequence[float | None]) -> tuple[float, ...]:
    resolved = tuple(value for value in values if value is not None)
    return resolved if len(resolved) == len(values) else ()
