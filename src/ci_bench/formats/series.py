"""Common form of every format: named series of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from ci_bench.records.forms import Fact
from ci_bench.records.results import Better

Runs = tuple[tuple[float, ...], ...]


class Unreadable(Exception):  # noqa: N818 - it describes the text, and the edge converts it to another error
    """A text is not in the format that it should be in.

    The message names the place and what is wrong there.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Measurements of one kind from one benchmark."""

    benchmark: str
    """Name of the benchmark in the tool's own words."""
    runs: Runs
    """Numbers by fresh process, as far as the format separates them, in `unit`."""
    unit: str
    """Unit as the tool wrote it, which may be any text."""
    better: Better | None
    """Direction of better numbers; `None` if the format has none."""
    measure: str = ""
    """Name that distinguishes the series of a benchmark; empty for the main one."""
    warmups: Runs = ()
    """Warm-ups by process, in `unit`; empty if the format has none."""
    derived: bool = False
    """True if the series follows from others or has less; it is used only on request."""
    peak: bool = False
    """Marks a process's peak of memory, which moves by some pages from run to run."""

    @property
    def label(self) -> str:
        """Benchmark and measure, as a user names them."""
        return f"{self.benchmark} {self.measure}".strip()

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers of all runs."""
        return tuple(value for run in self.runs for value in run)

    @property
    def typical(self) -> float:
        """The median of the runs' medians: one number for formats that hold no more."""
        return median(median(run) for run in self.runs if run)


@dataclass(frozen=True, kw_only=True, slots=True)
class Absent:
    """A benchmark that a text names without a number of it, and why."""

    benchmark: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Content of a text."""

    series: tuple[Series, ...]
    """All series with numbers."""
    failed: tuple[Absent, ...] = ()
    """Benchmarks that went wrong."""
    skipped: tuple[Absent, ...] = ()
    """Benchmarks that were left out on purpose."""
    tool: str = ""
    """Name and version of the tool; empty if unknown."""
    machine: Mapping[str, Fact] = field(default_factory=dict)
    """Facts about the measuring machine by name, in which other machines would differ."""
    form: str = ""
    """Name of the format that the text was read in; empty until the format is known."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions by benchmark, which change with its own code, if the tool records them."""
    notes: tuple[str, ...] = ()
    """Differences between the text and its reading, for people."""
    shorter: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names by benchmark that files with less about it use: a model without its batch size."""


def one_run(*values: float) -> Runs:
    """Return numbers of a single process as runs."""
    return (values,)
