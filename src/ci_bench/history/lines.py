"""Conversion of a history to lines. Pure.

A line is one metric on one kind of hardware over its runs, searched for changes.

A line continues when the software changes: a trend has to show the effect of a new driver or a new
torch. Each change of the software is shown next to the move that it may explain. Other hardware, or
another way of measuring, is another line.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ci_bench.judge.times.trend import RECENT, Move, Trend, look
from ci_bench.records.forms import Fact
from ci_bench.records.history import Entry, History, Points
from ci_bench.records.metrics import title_of
from ci_bench.report.text import bytes_

HARDWARE = (
    *(
        "device",
        "gpu",
        "gpu_memory_bytes",
        "gpu_multiprocessors",
        "gpu_capability",
        "cpu",
        "cpu_cores",
    ),
    *(
        "threads",
        "deterministic",
        "rotate",
        "flush_l2",
        "cuda_graph",
        "timing_contract",
        "memory_contract",
        "imported_from",
    ),
)
"""The fields of an identity that a line keeps to: the machine, and how it is measured."""
_NAMES = ("gpu", "cpu", "imported_from", "device")

Least = Callable[[Points], float]
"""The smallest relative change of a series that matters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentChange:
    """Difference of the software at `place` from the previous run's.

    Each field has its old and new value, in words.
    """

    place: int
    differences: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryLine:
    """One metric of one arm of one case on one kind of hardware.

    Partial runs, and runs of changed files, are left out.
    """

    hardware: str
    """Description of the hardware for people."""
    machine: str
    """Description that distinguishes machines to the byte."""
    points: Points
    """The series in the history, on all hardware."""
    runs: tuple[Entry, ...]
    """Runs on this hardware, oldest first."""
    values: tuple[float, ...]
    """Value of each run, in the metric's unit."""
    errors: tuple[float | None, ...]
    """Relative standard error of each value; `None` if unknown."""
    changes: tuple[EnvironmentChange, ...]
    """Changes of the software between these runs."""
    least: float
    """Smallest relative change that matters."""
    trend: Trend
    """Moves and levels of the values."""
    title: str
    """Name of the metric for people."""

    @property
    def name(self) -> str:
        """Return the line's name in documents and keys: ``fake/one step_time (eager)``."""
        return f"{self.points.case} {self.points.metric} ({self.points.arm})"

    @property
    def called(self) -> str:
        """Return the line's name for people: ``fake/one step time (eager)``."""
        return f"{self.points.case} {self.title} ({self.points.arm})"

    def between(self, move: Move) -> tuple[Entry, Entry]:
        """Return the last run before a move, and the first with the new level."""
        return self.runs[move.place - 1], self.runs[move.end]

    def environment_of(self, move: Move) -> tuple[str, ...]:
        """Return the changes of the software at a move, or within two runs of it."""
        near = (
            change
            for change in self.changes
            if move.place - _NEAR <= change.place <= move.end + _NEAR
        )
        return tuple(difference for change in near for difference in change.differences)


_NEAR = 2


def lines_of(
    history: History, *, least: Least, recent: int = RECENT, title: Callable[[str], str] = title_of
) -> tuple[HistoryLine, ...]:
    """Return every line of a history with its trend, by case, metric, arm and hardware.

    `title` returns the name of a metric for people.
    """
    machines = [_hardware(machine.identity) for machine in history.machines]
    words = {
        name: _titled(machine.identity)
        for name, machine in zip(machines, history.machines, strict=True)
    }
    hardware = [None if run.partial or run.dirty else machines[run.machine] for run in history.runs]
    differences = _Differences(history)
    lines = []
    for series in history.series:
        groups: dict[str, list[int]] = {}
        for place, run in enumerate(series.runs):
            if (name := hardware[run]) is not None:
                groups.setdefault(name, []).append(place)
        smallest = least(series)
        for name in sorted(groups):
            runs = tuple(history.runs[series.runs[place]] for place in groups[name])
            values = tuple(series.values[place] for place in groups[name])
            lines.append(
                HistoryLine(
                    hardware=words[name],
                    machine=name,
                    points=series,
                    runs=runs,
                    values=values,
                    errors=tuple(series.errors[place] for place in groups[name]),
                    changes=tuple(differences.along(runs)),
                    least=smallest,
                    trend=look(values, better=series.better, least=smallest, recent=recent),
                    title=title(series.metric),
                )
            )
    return tuple(lines)


def _hardware(identity: Mapping[str, Fact]) -> str:
    """Return the name of the hardware, then its other fields, as in documents."""
    return _join_facts(identity, lambda field, value: f"{field}={value}")


def _titled(identity: Mapping[str, Fact]) -> str:
    """Return the same for people: ``gpu memory 140 GiB``."""
    return _join_facts(identity, _describe_fact)


def _join_facts(identity: Mapping[str, Fact], describe: Callable[[str, Fact], str]) -> str:
    name = next((str(identity[field]) for field in _NAMES if identity.get(field)), "unknown")
    rest = [
        describe(field, identity[field])
        for field in HARDWARE
        if identity.get(field) not in {None, False} and str(identity[field]) != name
    ]
    return f"{name} ({', '.join(rest)})" if rest else name


def _describe_fact(field: str, value: Fact) -> str:
    title = field.removesuffix("_bytes").replace("_", " ")
    if value is True:
        return title
    if field.endswith("_bytes") and isinstance(value, int | float):
        return f"{title} {bytes_(value)}"
    return f"{title} {value}"


class _Differences:
    """The differences between machines' software, each pair computed once."""

    def __init__(self, history: History) -> None:
        self._machines = history.machines
        self._known: dict[tuple[int, int], tuple[str, ...]] = {}

    def along(self, runs: Sequence[Entry]) -> Iterator[EnvironmentChange]:
        for place in range(1, len(runs)):
            pair = runs[place - 1].machine, runs[place].machine
            if pair[0] != pair[1]:
                if pair not in self._known:
                    self._known[pair] = self._between(*pair)
                yield EnvironmentChange(place=place, differences=self._known[pair])

    def _between(self, before: int, after: int) -> tuple[str, ...]:
        old, new = (self._machines[machine].identity for machine in (before, after))
        fields = [
            field
            for field in sorted({*old, *new})
            if old.get(field) != new.get(field) and field not in HARDWARE
        ]
        return tuple(
            f"{field}: {' → '.join(_parted(old.get(field), new.get(field)))}" for field in fields
        )


_LONGEST = 60
_CONTEXT = 8


def _parted(before: Fact, after: Fact) -> tuple[str, str]:
    """Return both values in words, each at most `_LONGEST` long.

    Of a long pair, the common beginning is cut first.
    """
    texts = ["unknown" if fact is None else str(fact) for fact in (before, after)]
    common = (
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
        - _CONTEXT
    )
    if max(map(len, texts)) > _LONGEST and common > 0:
        texts = [f"…{text[common:]}" for text in texts]
    old, new = (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in texts)
    return old, new
