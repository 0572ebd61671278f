"""Profile of one arm's step: operators, kernels and Python, with the user's lines.

Owns the bounded table that travels from the worker into the results document, and how much of it
there may be. No verdict depends on any of it, and no sample is in it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from ci_bench.records.forms import ArmName, Bounds, FileName, Label, Remark

MOST_ROWS = 150
MOST_LINES = 8
MOST_BREAKS = 20
MOST_NOTES = 10
MOST_KERNELS, MOST_SOURCE = 24, 4000
MOST_NAME, MOST_PLACE, MOST_CODE, MOST_REASON = 200, 200, 160, 300


class RowKind(StrEnum):
    """Kind of a row of a profile."""

    OPERATOR = "operator"
    """A framework call on the host: ``aten::copy_``."""
    KERNEL = "kernel"
    """Code that was compiled or runs on a device: ``cpp_fused_add_mul``."""
    PYTHON = "python"
    """The interpreter's own time, by the user's function or by what it calls: ``forward``,
    ``sleep``.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceLine:
    """A line of source."""

    place: Label
    """File and line, relative to the tree: ``model.py:42``."""
    code: Annotated[str, Bounds(max_length=160)] = ""
    """Its text; empty if unreadable."""

    @property
    def file(self) -> str:
        """The file's part of the place."""
        return self.place.rpartition(":")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileRow:
    """One operator, kernel or function at one place, in one step.

    A fused kernel has the lines of all that was fused.
    """

    name: Annotated[str, Bounds(min_length=1, max_length=200)]
    """Name of the operator, kernel or function."""
    kind: RowKind
    """Who calls it: the framework by name, a compiled kernel, or the interpreter."""
    lines: Annotated[tuple[SourceLine, ...], Bounds(max_items=8)] = ()
    """The user's lines."""
    calls: Annotated[float, Bounds(ge=0, le=1_000_000_000)] = 0.0
    """Number of calls in a step."""
    seconds: Annotated[float, Bounds(ge=0, le=1_000_000)] = 0.0
    """Seconds of a step without those of its callees; the mean over quiet steps."""
    error_s: Annotated[float, Bounds(ge=0, le=1_000_000)] = 0.0
    """Standard error of `seconds`."""
    alive_bytes: Annotated[float, Bounds(ge=0, le=1_000_000_000_000_000)] = 0.0
    """Bytes allocated in the step that were still allocated at the step's peak."""
    laid_out: Annotated[tuple[SourceLine, ...], Bounds(max_items=8)] = ()
    """The lines of the step that made the layout of its inputs, if that is not contiguous."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphBreak:
    """A break of the compiler's graph."""

    reason: Remark
    """The compiler's reason."""
    place: Label = ""
    """The user's line; empty if unknown."""
    times: Annotated[int, Bounds(ge=1, le=1_000_000)] = 1
    """Number of times that the graph broke there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratedKernel:
    """A kernel as the compiler wrote it; its source is cut at `MOST_SOURCE` characters."""

    name: Annotated[str, Bounds(min_length=1, max_length=200)]
    """Name, with the number of this compilation."""
    source: Annotated[str, Bounds(max_length=4000)]
    """Its source, or the beginning of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """A captured graph that also fails in a fresh process."""

    file: FileName
    """Name of the file."""
    says: Remark
    """The observed fault."""
    path: Remark = ""
    """Path relative to the folder of the results; empty if the file was not kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Profile of one arm on one side, taken once in a separate process after the last launch."""

    arm: ArmName
    """The profiled arm."""
    step_s: Annotated[float, Bounds(ge=0, le=1_000_000)] | None
    """Mean time of the quickest quarter of profiled steps, in seconds; `None` without a profile."""
    steps: Annotated[int, Bounds(ge=0, le=1000)] = 0
    """Number of profiled steps."""
    rows: Annotated[tuple[ProfileRow, ...], Bounds(max_items=150)] = ()
    """Operators, kernels and Python of a step: the rows with the most seconds or bytes."""
    left_out: Annotated[int, Bounds(ge=0, le=10_000_000)] = 0
    """Number of rows left out."""
    left_out_s: Annotated[float, Bounds(ge=0, le=1_000_000)] = 0.0
    """Seconds of these rows together."""
    breaks: Annotated[tuple[GraphBreak, ...], Bounds(max_items=20)] = ()
    """Where the compiler gave up on one graph."""
    recompiles: Annotated[tuple[Remark, ...], Bounds(max_items=20)] = ()
    """The guards that failed, by function."""
    notes: Annotated[tuple[Remark, ...], Bounds(max_items=10)] = ()
    """Information that could not be obtained."""
    unknown: Remark = ""
    """Why the profile is missing; empty if it is present."""
    bundle: Bundle | None = None
    """A compiled graph of the arm that is wrong in isolation."""
    kernels: Annotated[tuple[GeneratedKernel, ...], Bounds(max_items=24)] = ()
    """The kernels that a compiler generated, in order."""
