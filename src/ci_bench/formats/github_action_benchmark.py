"""Custom JSON of github-action-benchmark, read and written; and its store ``data.js``, read.

Of the store, the newest entries are read, or a history.

A custom file has one direction, which is not in it but in the action's ``tool``: that is why the
formats here have its names. https://github.com/benchmark-action/github-action-benchmark#examples

As a history, every entry of every suite counts. One number is kept for each benchmark and entry, as
the action keeps it; its direction is that of the tool. The machine is not in the file, so an
imported history is a separate line.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from ci_bench.formats import FORMAT
from ci_bench.formats.exporting import Export, Written
from ci_bench.formats.importing import ARM, MAIN, SUITE, VALUE, plain_name
from ci_bench.formats.parsing import Node, is_missing, is_number, parse_json
from ci_bench.formats.series import Absent, Reading, Series, one_run
from ci_bench.formats.units import interpret
from ci_bench.records.forms import Fact
from ci_bench.records.history import LARGEST, Entry, History, HistoryMachine, Points
from ci_bench.records.results import Better, Lane, Unit
from ci_bench.records.units import TIMES

PREFIX = "window.BENCHMARK_DATA ="
TOOLS = {
    "benchmarkjs": Better.HIGHER,
    "pytest": Better.HIGHER,
    "customBiggerIsBetter": Better.HIGHER,
    "cargo": Better.LOWER,
    "go": Better.LOWER,
    "benchmarkluau": Better.LOWER,
    "googlecpp": Better.LOWER,
    "catch2": Better.LOWER,
    "julia": Better.LOWER,
    "jmh": Better.LOWER,
    "benchmarkdotnet": Better.LOWER,
    "customSmallerIsBetter": Better.LOWER,
}
"""The direction of each tool that the action knows (`biggerIsBetter` in its ``src/write.ts``)."""


def matches_custom(root: Node) -> bool:
    """Return whether it looks like a custom file."""
    return (
        isinstance(root.value, list)
        and bool(root.value)
        and all(record.has("name", "value", "unit") for record in root.items())
    )


def matches_store(root: Node) -> bool:
    """Return whether it looks like the store, without its prefix."""
    return root.has("entries", "lastUpdate")


def better_of(tool: str, unit: str) -> Better:
    """Return the better direction of a tool's numbers with this unit.

    JMH, Go and others write rates as well as times, so a rate or a time has its own direction. A
    custom tool's name is its user's word, which counts: there may be errors per second.
    """
    measured = interpret(unit).unit
    if tool.startswith("custom") or measured not in {Unit.PER_SECOND, Unit.SECONDS}:
        return TOOLS[tool]
    return Better.HIGHER if measured is Unit.PER_SECOND else Better.LOWER


def read_custom(root: Node, *, better: Better | None) -> Reading:
    """Read one number for each name; a record without one failed."""
    records = list(root.items())
    return Reading(
        series=tuple(_series(record, better) for record in records if not _is_without(record)),
        failed=tuple(map(_failed, filter(_is_without, records))),
        tool="github-action-benchmark",
    )


def _is_without(record: Node) -> bool:
    return is_missing(record.field("value").value)


def _failed(record: Node, prefix: str = "") -> Absent:
    return Absent(benchmark=prefix + record.field("name").text(), reason="it has no number")


read_bigger = partial(read_custom, better=Better.HIGHER)
read_smaller = partial(read_custom, better=Better.LOWER)


def parse_store(text: str) -> Node:
    """Parse the JSON behind the assignment that ``data.js`` is.

    Raises `Unreadable`.
    """
    return parse_json(text.strip().removeprefix(PREFIX).strip().removesuffix(";"))


def read_store(root: Node) -> Reading:
    """Read the newest entry of each suite of the store; names are those of suite and benchmark."""
    series: list[Series] = []
    failed: list[Absent] = []
    for suite, entries in root.field("entries").fields():
        entry_list = list(entries.items())
        if entry_list:
            tool = entry_list[-1].field("tool")
            name = _read_tool(tool)
            for bench in entry_list[-1].field("benches").items():
                if _is_without(bench):
                    failed.append(_failed(bench, f"{suite}/"))
                else:
                    better = better_of(name, str(bench.field("unit").value))
                    series.append(_series(bench, better, f"{suite}/"))
    return Reading(series=tuple(series), failed=tuple(failed), tool="github-action-benchmark")


def _read_tool(tool: Node) -> str:
    return (
        tool.text()
        if tool.text() in TOOLS
        else tool.wrong(f"{tool.text()!r} is not a tool of github-action-benchmark")
    )


def _series(record: Node, better: Better | None, prefix: str = "") -> Series:
    unit = record.field("unit")
    value = one_run(coerced(record.field("value")))
    return Series(
        benchmark=prefix + record.field("name").text(),
        runs=value,
        unit=str(unit.value),
        better=better,
    )


def coerced(node: Node) -> float:
    """Return the number of a node.

    Like the action, it takes a number in quotation marks for a number.
    """
    if isinstance(node.value, str):
        try:
            value = float(node.value)
        except ValueError:
            return node.number()
        return value if is_number(value) else node.number()
    return node.number()


def write(export: Export, *, better: Better) -> Written:
    """Write the typical value of every series of one direction.

    The other one needs a separate file.
    """
    records, left_out = [], []
    for series in export.series:
        if series.better is better and series.values:
            extra = f"median of {len(series.values)} samples in {len(series.runs)} launches"
            records.append(
                {"name": series.label, "unit": series.unit, "value": series.typical, "extra": extra}
            )
        else:
            left_out.append(series.label)
    return Written(text=json.dumps(records, indent=2) + "\n", left_out=tuple(left_out))


write_bigger = partial(write, better=Better.HIGHER)
write_smaller = partial(write, better=Better.LOWER)


_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_URL = re.compile(r"https?://[!-~]{1,480}")
MOST_RUNS = 5_000

Key = tuple[str, Unit, Better]


@dataclass(slots=True)
class _Collected:
    """Data read so far: runs by id, and for each series the value in each run."""

    runs: dict[str, Entry] = field(default_factory=dict)
    cells: dict[Key, dict[str, float]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def read_action_history(
    text: str, *, tool_version: str, fingerprint: Callable[[Mapping[str, Fact]], str]
) -> tuple[History, tuple[str, ...]]:
    """Read a store's text as a history; return it and, in words, the parts that cannot be one.

    Raises:
        Unreadable: it is not a store of github-action-benchmark.
    """
    collected = _Collected()
    for suite, entries in parse_store(text).field("entries").fields():
        for entry in entries.items():
            _read_entry(suite, entry, collected, tool_version)
    identity: dict[str, Fact] = {FORMAT: "github-action-benchmark"}
    order = sorted(collected.runs.values(), key=lambda run: (run.at, run.id))[-MOST_RUNS:]
    place = {run.id: index for index, run in enumerate(order)}
    rows = (_points(key, collected.cells[key], place) for key in sorted(collected.cells))
    series = tuple(row for row in rows if row is not None)
    machine = HistoryMachine(fingerprint=fingerprint(identity), identity=identity)
    history = History(
        tool_version=tool_version, machines=(machine,), runs=tuple(order), series=series
    )
    return history, tuple(collected.left_out)


def _read_entry(suite: str, entry: Node, collected: _Collected, tool_version: str) -> None:
    tool = entry.field("tool")
    kind = _read_tool(tool)
    run = _entry(entry, tool_version)
    collected.runs.setdefault(run.id, run)
    for bench in entry.field("benches").items():
        name = f"{suite}/{bench.field('name').text()}"
        unit = str(bench.field("unit").value)
        if _is_without(bench):
            collected.left_out.append(f"{bench.path}: {name} has no number")
            continue
        measured, better = interpret(unit), better_of(kind, unit)
        value = coerced(bench.field("value")) * measured.scale
        if (measured.unit in TIMES and value <= 0) or abs(value) > LARGEST:
            fault = "too large for a measurement" if abs(value) > LARGEST else "not a valid time"
            collected.left_out.append(f"{bench.path}: {name} is {value:g}, which is {fault}")
            continue
        collected.cells.setdefault((case_id(name), measured.unit, better), {}).setdefault(
            run.id, float(f"{value:.6g}")
        )


def _entry(entry: Node, tool_version: str) -> Entry:
    """Read a run, which is a commit's id and a moment: one commit may have several runs."""
    moment = entry.field("date").number() / 1000.0
    try:
        at = datetime.fromtimestamp(moment, tz=UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        entry.field("date").wrong("it is not a timestamp in milliseconds")
    commit = entry.field("commit")
    commit_id = commit.field("id").text()
    url = commit.get("url")
    valid_url = (
        url.value
        if url is not None and isinstance(url.value, str) and _URL.fullmatch(url.value)
        else None
    )
    valid_commit = commit_id if _COMMIT.fullmatch(commit_id) else None
    short = re.sub(r"[^A-Za-z0-9_.]", "-", commit_id)[:64]
    return Entry(
        id=f"gab/{short}/{int(moment)}",
        at=at,
        machine=0,
        tool_version=tool_version,
        commit=valid_commit,
        url=valid_url,
    )


def case_id(name: str) -> str:
    """Return a benchmark's name as a case id of the suite ``imported``.

    Characters that have no place in an id become ``_``.
    """
    return f"{SUITE}/benchmark[name={plain_name(name)[:440]}]"


def _points(key: Key, cells: Mapping[str, float], place: Mapping[str, int]) -> Points | None:
    case, unit, better = key
    points = sorted((place[run], value) for run, value in cells.items() if run in place)
    if not points:
        return None
    runs, values = zip(*points, strict=True)
    return Points(
        case=case,
        suite=SUITE,
        metric=MAIN.get(unit, VALUE),
        arm=ARM,
        unit=unit,
        better=better,
        lane=Lane.WALL,
        runs=tuple(runs),
        values=tuple(values),
        errors=(None,) * len(runs),
    )
