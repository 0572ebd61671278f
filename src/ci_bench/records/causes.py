"""Causes of a difference, arm by arm: changes of a step, of compiling, of memory.

They are derived from two profiles.
"""

from dataclasses import dataclass

from ci_bench.records.profiles import Bundle, GraphBreak, RowKind


@dataclass(frozen=True, kw_only=True, slots=True)
class CausePart:
    """A part of a step that takes a different time on head than on base (s a step).

    It is one row of both profiles, or several related rows.

    `before` and `after` are its names on base and on head; one of the two is empty if it is new, or
    gone. `places` and `codes` are the lines of head, of base's where it is gone; the first of them
    is where a layout was made that base doesn't have, if `by_layout`: all that reads it belongs
    together. `share` is its part of the change of the step, `None` if the step did not change under
    the profiler in the direction that was measured.
    """

    kind: RowKind
    before: tuple[str, ...]
    after: tuple[str, ...]
    places: tuple[str, ...]
    codes: tuple[str, ...]
    base_s: float
    head_s: float
    base_calls: float
    head_calls: float
    share: float | None = None
    by_layout: bool = False

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
    """A holder of memory at the peak of a step that differs between head and base, in bytes."""

    name: str
    places: tuple[str, ...]
    base_bytes: float
    head_bytes: float

    @property
    def change_bytes(self) -> float:
        """Above 0 is more."""
        return self.head_bytes - self.base_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelChange:
    """A kernel that a compiler generates otherwise than on base: its names, one empty if it is new or gone, and what changed.

    `diff` is a unified one, of a bounded number of lines, without what is of one compilation.
    """

    before: str
    after: str
    diff: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Changes of one arm, largest first.

    `slower` says that a time of its steps was judged to be worse, `larger` that its memory was:
    only then is a part blamed. `base_s` and `head_s` are steps under the profiler. `attributed` is
    the share of their difference that `parts` explain, `None` without a difference. Breaks, reasons
    for compiling again and kernels are those that only head has (`new`), or only base (`gone`);
    `kernels` is how their sources differ. `unknown` says why no cause is known; it is empty
    otherwise. `bundle` is head's graph that fails in isolation.
    """

    arm: str
    slower: bool = False
    larger: bool = False
    base_s: float | None = None
    head_s: float | None = None
    attributed: float | None = None
    parts: tuple[CausePart, ...] = ()
    memory: tuple[MemoryPart, ...] = ()
    new_breaks: tuple[GraphBreak, ...] = ()
    gone_breaks: tuple[GraphBreak, ...] = ()
    new_recompiles: tuple[str, ...] = ()
    new_kernels: tuple[str, ...] = ()
    gone_kernels: tuple[str, ...] = ()
    unknown: str = ""
    bundle: Bundle | None = None
    kernels: tuple[KernelChange, ...] = ()
