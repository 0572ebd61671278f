"""Causes of a difference, arm by arm: changes of a step, of compiling, of memory.

They are derived from two profiles.
"""

from dataclasses import dataclass
from typing import Annotated

from ci_bench.records.forms import ArmName, Bounds, Label, NonNegative, PartNames, Remark, Share
from ci_bench.records.profiles import Bundle, GraphBreak, RowKind


@dataclass(frozen=True, kw_only=True, slots=True)
class CausePart:
    """A part of a step that takes a different time on head than on base.

    It is one row of both profiles, or several related rows. Lines are head's, or base's if the part
    was removed.
    """

    kind: RowKind
    """The kind of part."""
    before: PartNames
    """Its names on base; empty if the part is new."""
    after: PartNames
    """Its names on head; empty if the part was removed."""
    places: Annotated[tuple[Label, ...], Bounds(max_items=4)]
    """Files and lines, the line that made a new layout first."""
    codes: Annotated[tuple[Annotated[str, Bounds(max_length=160)], ...], Bounds(max_items=4)]
    """Source text of these lines."""
    base_s: NonNegative
    """Base's seconds a step."""
    head_s: NonNegative
    """Head's seconds a step."""
    base_calls: NonNegative
    """Base's calls a step."""
    head_calls: NonNegative
    """Head's calls a step."""
    share: float | None = None
    """Its share of the change of the step; `None` if the step did not change."""
    by_layout: bool = False
    """Whether it reads a layout that base does not have, made at the first place."""

    @property
    def change_s(self) -> float:
        """Above 0 is slower."""
        return self.head_s - self.base_s

    @property
    def calls(self) -> float:
        """On the side that calls it more often."""
        return max(self.base_calls, self.head_calls)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPart:
    """A holder of memory at the peak of a step that differs between head and base."""

    name: Label
    """The allocating operation."""
    places: Annotated[tuple[Label, ...], Bounds(max_items=4)]
    """Files and lines."""
    base_bytes: NonNegative
    """Base's bytes."""
    head_bytes: NonNegative
    """Head's bytes."""

    @property
    def change_bytes(self) -> float:
        """Above 0 is more."""
        return self.head_bytes - self.base_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelChange:
    """A kernel that a compiler generates otherwise than on base.

    The diff leaves out what belongs to one compilation.
    """

    before: Label
    """Base's name; empty if the kernel is new."""
    after: Label
    """Head's name; empty if the kernel was removed."""
    diff: Annotated[str, Bounds(max_length=9000)]
    """A unified diff, or the beginning of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Changes of one arm, largest first.

    A part is blamed only if a time of the steps was judged to be worse (`slower`), or their memory
    (`larger`). Base's and head's steps are those under the profiler.
    """

    arm: ArmName
    """The explained arm."""
    slower: bool = False
    """Whether a time of the arm was judged to be worse."""
    larger: bool = False
    """Whether the arm's memory was judged to be worse."""
    base_s: NonNegative | None = None
    """Base's step, in seconds; `None` if unknown."""
    head_s: NonNegative | None = None
    """Head's step, in seconds; `None` if unknown."""
    attributed: Share | None = None
    """The share of the difference that the parts explain; `None` if there was no difference."""
    parts: Annotated[tuple[CausePart, ...], Bounds(max_items=60)] = ()
    """The parts whose times differ."""
    memory: Annotated[tuple[MemoryPart, ...], Bounds(max_items=60)] = ()
    """The allocations that differ at the peak."""
    new_breaks: Annotated[tuple[GraphBreak, ...], Bounds(max_items=20)] = ()
    """Graph breaks that only head has."""
    gone_breaks: Annotated[tuple[GraphBreak, ...], Bounds(max_items=20)] = ()
    """Graph breaks that only base has."""
    new_recompiles: Annotated[tuple[Remark, ...], Bounds(max_items=20)] = ()
    """Guards that only head fails."""
    new_kernels: Annotated[tuple[Label, ...], Bounds(max_items=60)] = ()
    """Kernels that only head has."""
    gone_kernels: Annotated[tuple[Label, ...], Bounds(max_items=60)] = ()
    """Kernels that only base has."""
    unknown: Annotated[str, Bounds(max_length=400)] = ""
    """Why the cause is unknown; empty if it is known."""
    bundle: Bundle | None = None
    """Head's compiled graph that is wrong in isolation, if there is one."""
    kernels: Annotated[tuple[KernelChange, ...], Bounds(max_items=12)] = ()
    """Differences in the sources of generated kernels."""
