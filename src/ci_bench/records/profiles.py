"""Profile of one arm's step: operators, kernels and Python, with the user's lines.

Owns the bounded table that travels from the worker into the results document, and how much of it
there may be. No verdict depends on any of it, and no sample is in it.
"""

from dataclasses import dataclass
from enum import StrEnum

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
    """A line of source.

    `place` is ``model.py:42``, relative to the tree; `code` its text, empty if it can't be read.
    """

    place: str
    code: str = ""

    @property
    def file(self) -> str:
        """The file's part of the place."""
        return self.place.rpartition(":")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileRow:
    """One operator, kernel or function at one place, in one step.

    `seconds` are its own, without what it calls; the mean over quiet steps, whose standard error is
    `error_s`. `calls` is how often it ran. A fused kernel has the lines of all that was fused.
    `alive_bytes` is what it allocated in the step that was there at the step's peak. `laid_out` are
    the lines of the step that made the layout of what it reads, where that is not contiguous.
    """

    name: str
    kind: RowKind
    lines: tuple[SourceLine, ...] = ()
    calls: float = 0.0
    seconds: float = 0.0
    error_s: float = 0.0
    alive_bytes: float = 0.0
    laid_out: tuple[SourceLine, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphBreak:
    """A break of the compiler's graph: reason, user's line (empty if unknown), and count."""

    reason: str
    place: str = ""
    times: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratedKernel:
    """A kernel as the compiler wrote it, by its name; the source is cut at `MOST_SOURCE` characters."""

    name: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """A captured graph that also fails in a fresh process: file name, message and path.

    `path` is relative to the results' folder, empty if the file was not kept.
    """

    file: str
    says: str
    path: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Profile of one arm on one side, taken once, in a separate process after the last launch.

    `step_s` is the mean time of the quickest quarter of `steps` under the profiler; `None` without
    a profile: `unknown` says why. Rows are those with the most seconds or bytes; `left_out` are
    more, of `left_out_s` seconds together. `notes` list gaps. `bundle` is set if a compiled graph
    of the arm fails in isolation. `kernels` are the generated ones, in order.
    """

    arm: str
    step_s: float | None
    steps: int = 0
    rows: tuple[ProfileRow, ...] = ()
    left_out: int = 0
    left_out_s: float = 0.0
    breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: str = ""
    bundle: Bundle | None = None
    kernels: tuple[GeneratedKernel, ...] = ()
