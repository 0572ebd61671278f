"""Common form of every format: named series of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from ci_bench.records.results import Better, Fact

Runs = tuple[tuple[float, ...], ...]


class Unreadable(Exception):  # noqa: N818 - it describes the text, and the edge converts it to another error
    """A text is not in the format that it should be in.

    The message names the place and what is wrong there.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Measurements of one kind from one benchmark.

    `benchmark` is the tool's own name, `measure` tells several series of a benchmark apart and is
    empty for the main one. The numbers of `runs` (one entry for each fresh process, as far as the
    format tells) and `warmups` are as the tool wrote them, in `unit`, which may be any text.
    `better` is `None` if the format does not say. A `derived` series follows from others or says
    less than they do, so it is not used unless somebody asks for it.
    """

    benchmark: str
    runs: Runs
    unit: str
    better: Better | None
    measure: str = ""
    warmups: Runs = ()
    derived: bool = False
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
    """All that a text says.

    `failed` are benchmarks that went wrong, `skipped` those that were left out on purpose.

    `machine` holds the facts about the measuring machine in which other machines would differ;
    `form` the name of the format that it was read in.
    """

    series: tuple[Series, ...]
    failed: tuple[Absent, ...] = ()
    skipped: tuple[Absent, ...] = ()
    tool: str = ""
    machine: Mapping[str, Fact] = field(default_factory=dict)
    form: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions by benchmark, which change with its own code, if the tool records them."""
    notes: tuple[str, ...] = ()
    """Differences between the text and its reading, for people."""
    shorter: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names by benchmark that files with less about it use: a model without its batch size."""


def one_run(*values: float) -> Runs:
    """Numbers of a single process."""
    return (values,)
