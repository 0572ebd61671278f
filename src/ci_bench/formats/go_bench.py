"""The text that ``go test -bench`` prints, read.

A line holds the benchmark, how often it ran, and pairs of a number and its unit. With ``-count`` a
benchmark has several lines, which are samples of one process. Output of the benchmark itself stands
between its name and its numbers. https://pkg.go.dev/golang.org/x/perf/benchfmt
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ci_bench.formats.importing import known_facts
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Absent, Reading, Series, Unreadable, one_run
from ci_bench.formats.units import direction
from ci_bench.records.results import Better

_RESULT = re.compile(r"(Benchmark\S*)(?<!:)\s+(\d+)\s+(\S.*)")
_BEGUN, _NUMBERS = (
    re.compile(r"(Benchmark[^a-z\s]\S*)(?:\s.*)?"),
    re.compile(r"\d+\s+(\S+ ns/op.*)"),
)
_PACKAGE_FAILED = re.compile(r"FAIL\s+(\S+)\s+(?:\[.*|\d.*)")
_FAILED = re.compile(r"--- FAIL: (Benchmark\S+)")
_SKIPPED = re.compile(r"--- SKIP: (Benchmark\S+)")
_HEAD = re.compile(r"(goos|goarch|pkg|cpu): (.+)")
_LOOKS = re.compile(
    r"Benchmark\S*(?<!:)\s+\d+\s+(?:[-+.]?\d|(?i:nan|inf)).*|(?:goos|goarch|pkg): .+"
)
"""A result, or a line of the header that other tools do not print: several print ``cpu: …``."""
_BENCHSTAT = re.compile(r".*│.*|,.*\b(?:CI|vs base)\b.*")
_MAIN = "ns/op"
_LOWER = {"allocs/op": Better.LOWER, "B/op": Better.LOWER}


def matches(text: str) -> bool:
    """Return whether a line is a result, a failure, or of the header before the results.

    The tables of benchstat, which have bars or columns of intervals, do not match.
    """
    lines = [line.strip() for line in text[:10_000].splitlines()]
    is_output = any(
        pattern.fullmatch(line) for line in lines for pattern in (_LOOKS, _PACKAGE_FAILED)
    )
    return is_output and not any(map(_BENCHSTAT.fullmatch, lines))


def read(text: str) -> Reading:
    """Read every unit of every benchmark, with the samples of all its lines.

    Packages are part of the names, and may fail as a whole.

    Raises:
        Unreadable: a line that begins as a result has no number with a unit.
    """
    lines = _Lines()
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        lines.add(number, line)
    return Reading(
        series=tuple(
            _series(name, unit, tuple(samples)) for (name, unit), samples in lines.values.items()
        ),
        failed=(*lines.failed, *lines.without_numbers()),
        skipped=tuple(lines.skipped),
        tool="go test -bench",
        machine=known_facts((name, lines.head.get(name)) for name in ("goos", "goarch", "cpu")),
    )


@dataclass(kw_only=True, slots=True)
class _Lines:
    """Contents of the lines so far."""

    head: dict[str, str] = field(default_factory=dict)
    """Values of the header by name: ``goos``, ``goarch``, ``pkg``, ``cpu``."""
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """Samples by benchmark and unit."""
    failed: list[Absent] = field(default_factory=list)
    """Benchmarks and packages that failed."""
    skipped: list[Absent] = field(default_factory=list)
    """Benchmarks that were skipped."""
    begun: dict[str, None] = field(default_factory=dict)
    """Benchmarks whose name was printed on a separate line."""
    last: str = ""
    """The newest of `begun`; empty before the first one."""

    def add(self, number: int, line: str) -> None:
        """Read one line."""
        if header := _HEAD.fullmatch(line):
            self.head[header[1]] = header[2]
        elif result := _RESULT.fullmatch(line):
            self._add_numbers(self._full(result[1]), result[3], number)
        elif begun := _BEGUN.fullmatch(line):
            self.last = self._full(begun[1])
            self.begun[self.last] = None
        elif self.last and (rest := _NUMBERS.fullmatch(line)):
            self._add_numbers(self.last, rest[1], number)
        elif broken := _PACKAGE_FAILED.fullmatch(line):
            self.failed.append(Absent(benchmark=broken[1], reason="go test failed in this package"))
        for absent, pattern in ((self.failed, _FAILED), (self.skipped, _SKIPPED)):
            if gone := pattern.match(line):
                absent.append(Absent(benchmark=self._full(gone[1]), reason="go test says so"))

    def _add_numbers(self, name: str, words: str, number: int) -> None:
        for unit, value in _pairs(words.split(), number):
            if math.isnan(value):
                self.failed.append(Absent(benchmark=name, reason=f"a result of it is NaN {unit}"))
            else:
                self.values.setdefault((name, unit), []).append(value)

    def _full(self, name: str) -> str:
        package = self.head.get("pkg", "")
        return f"{package}.{name}" if package else name

    def without_numbers(self) -> Iterator[Absent]:
        """Yield benchmarks that began and have no result, if a package failed.

        Without a failure, other lines may begin with such a name.
        """
        others = {name for name, _ in self.values} | {
            absent.benchmark for absent in (*self.failed, *self.skipped)
        }
        for name in self.begun if self.failed else ():
            if not any(
                other == name or other.startswith((f"{name}-", f"{name}/")) for other in others
            ):
                yield Absent(benchmark=name, reason="it began and has no result")


def _pairs(words: list[str], number: int) -> Iterator[tuple[str, float]]:
    if len(words) % 2:
        raise Unreadable(f"line {number}: a number without a unit")
    for value, unit in zip(words[::2], words[1::2], strict=True):
        try:
            figure = float(value)
            yield unit, figure if math.isnan(figure) else Node(figure, f"line {number}").number()
        except ValueError as error:
            raise Unreadable(f"line {number}: {value[:40]!r} is not a number") from error


def _series(name: str, unit: str, values: tuple[float, ...]) -> Series:
    better = _LOWER.get(unit) or direction(unit)
    return Series(
        benchmark=name,
        measure="" if unit == _MAIN else unit,
        runs=one_run(*values),
        unit=unit,
        better=better,
    )
