"""The text that ``go test -bench`` prints, read.

A line holds the benchmark, how often it ran, and pairs of a number and its unit. With ``-count`` a benchmark has several lines,
which are samples of one process. https://pkg.go.dev/golang.org/x/perf/benchfmt
"""

import re
from collections.abc import Iterator

from ci_bench.formats.importing import known_facts
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Absent, Reading, Series, Unreadable, one_run
from ci_bench.formats.units import direction
from ci_bench.records.results import Better

_RESULT = re.compile(r"(Benchmark\S*)\s+(\d+)\s+(\S.*)")
_FAILED = re.compile(r"--- FAIL: (Benchmark\S+)")
_SKIPPED = re.compile(r"--- SKIP: (Benchmark\S+)")
_HEAD = re.compile(r"(goos|goarch|pkg|cpu): (.+)")
_MAIN = "ns/op"
_LOWER = {"allocs/op": Better.LOWER, "B/op": Better.LOWER}


def matches(text: str) -> bool:
    """Return whether a line is a result, or part of the header before the results."""
    return any(_RESULT.fullmatch(line.strip()) or _HEAD.fullmatch(line.strip()) for line in text[:10_000].splitlines())


def read(text: str) -> Reading:
    """Every unit of every benchmark, the samples of all its lines. Packages are part of the names.

    Raises:
        Unreadable: a line that begins as a result has no number with a unit.
    """
    head: dict[str, str] = {}
    values: dict[tuple[str, str], list[float]] = {}
    absent: dict[str, list[Absent]] = {"failed": [], "skipped": []}
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if named := _HEAD.fullmatch(line):
            head[named[1]] = named[2]
        elif result := _RESULT.fullmatch(line):
            name = _full(head.get("pkg", ""), result[1])
            for unit, value in _pairs(result[3].split(), number):
                values.setdefault((name, unit), []).append(value)
        for kind, pattern in (("failed", _FAILED), ("skipped", _SKIPPED)):
            if gone := pattern.match(line):
                absent[kind].append(Absent(benchmark=_full(head.get("pkg", ""), gone[1]), reason="go test says so"))
    return Reading(
        series=tuple(_series(name, unit, tuple(samples)) for (name, unit), samples in values.items()),
        failed=tuple(absent["failed"]),
        skipped=tuple(absent["skipped"]),
        tool="go test -bench",
        machine=known_facts((name, head.get(name)) for name in ("goos", "goarch", "cpu")),
    )


def _full(package: str, name: str) -> str:
    return f"{package}.{name}" if package else name


def _pairs(words: list[str], number: int) -> Iterator[tuple[str, float]]:
    if len(words) % 2:
        raise Unreadable(f"line {number}: a number without a unit")
    for value, unit in zip(words[::2], words[1::2], strict=True):
        try:
            yield unit, Node(float(value), f"line {number}").number()
        except ValueError as error:
            raise Unreadable(f"line {number}: {value[:40]!r} is not a number") from error


def _series(name: str, unit: str, values: tuple[float, ...]) -> Series:
    better = _LOWER.get(unit) or direction(unit)
    return Series(benchmark=name, measure="" if unit == _MAIN else unit, runs=one_run(*values), unit=unit, better=better)
