"""The whole store of github-action-benchmark (``data.js``) as a history: every entry of every suite, not the newest alone.

One number is kept for each benchmark and entry, as the action keeps it; its direction is that of the tool. The machine is not in
the file, so that an imported history is a line of its own.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ci_bench.formats.github_action_benchmark import TOOLS, coerced, parse_store
from ci_bench.formats.parsing import Node
from ci_bench.formats.units import interpret
from ci_bench.records.case import Better, Fact, Lane, Unit
from ci_bench.records.history import Entry, History, Machine, Points

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_URL = re.compile(r"https?://[!-~]{1,480}")
MOST_RUNS = 5_000
_ARM = "imported"

Key = tuple[str, Unit, Better]


@dataclass(slots=True)
class _Collected:
    """What was read so far: runs by id, and for each series the value in each run."""

    runs: dict[str, Entry] = field(default_factory=dict)
    cells: dict[Key, dict[str, float]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def read_action_history(
    text: str, *, tool_version: str, fingerprint: Callable[[Mapping[str, Fact]], str]
) -> tuple[History, tuple[str, ...]]:
    """A store's text as a history, and what of it cannot be one, in words.

    Raises:
        Unreadable: it is no store of github-action-benchmark.
    """
    collected = _Collected()
    for suite, entries in parse_store(text).field("entries").fields():
        for entry in entries.items():
            _read_entry(suite, entry, collected, tool_version)
    identity: dict[str, Fact] = {"imported_from": "github-action-benchmark"}
    order = sorted(collected.runs.values(), key=lambda run: (run.at, run.id))[-MOST_RUNS:]
    place = {run.id: index for index, run in enumerate(order)}
    rows = (_points(key, collected.cells[key], place) for key in sorted(collected.cells))
    series = tuple(row for row in rows if row is not None)
    machine = Machine(fingerprint=fingerprint(identity), identity=identity)
    history = History(tool_version=tool_version, machines=(machine,), runs=tuple(order), series=series)
    return history, tuple(collected.left_out)


def _read_entry(suite: str, entry: Node, collected: _Collected, tool_version: str) -> None:
    tool = entry.field("tool")
    better = TOOLS.get(tool.text()) or tool.wrong(f"{tool.text()!r} is no tool of github-action-benchmark")
    run = _entry(entry, tool_version)
    collected.runs.setdefault(run.id, run)
    for bench in entry.field("benches").items():
        name = f"{suite}/{bench.field('name').text()}"
        measured = interpret(str(bench.field("unit").value))
        value = coerced(bench.field("value")) * measured.scale
        if measured.unit in {Unit.SECONDS, Unit.PER_SECOND} and value <= 0:
            collected.left_out.append(f"{bench.path}: {name} is {value:g}, which is no time")
            continue
        collected.cells.setdefault((case_id(name), measured.unit, better), {}).setdefault(run.id, float(f"{value:.6g}"))


def _entry(entry: Node, tool_version: str) -> Entry:
    """The commit's id and the moment of the run make a run: one commit may have been measured several times."""
    moment = entry.field("date").number() / 1000.0
    try:
        at = datetime.fromtimestamp(moment, tz=UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        entry.field("date").wrong("it is no moment of time, in milliseconds")
    commit = entry.field("commit")
    named = commit.field("id").text()
    url = commit.get("url")
    seen = url.value if url is not None and isinstance(url.value, str) and _URL.fullmatch(url.value) else None
    known = named if _COMMIT.fullmatch(named) else None
    short = re.sub(r"[^A-Za-z0-9_.]", "-", named)[:64]
    return Entry(id=f"gab/{short}/{int(moment)}", at=at, machine=0, tool_version=tool_version, commit=known, url=seen)


def case_id(name: str) -> str:
    """A benchmark's name as a case id of the suite ``imported``: what has no place in an id becomes ``_``."""
    plain = re.sub(r"[^A-Za-z0-9_.,=+:/-]", "_", name)[:440]
    return f"imported/benchmark[name={plain}]"


def _points(key: Key, cells: Mapping[str, float], place: Mapping[str, int]) -> Points | None:
    case, unit, better = key
    known = sorted((place[run], value) for run, value in cells.items() if run in place)
    if not known:
        return None
    runs, values = zip(*known, strict=True)
    return Points(
        case=case,
        suite="imported",
        metric={Unit.SECONDS: "time", Unit.BYTES: "memory", Unit.PER_SECOND: "rate"}.get(unit, "value"),
        arm=_ARM,
        unit=unit,
        better=better,
        lane=Lane.WALL,
        runs=tuple(runs),
        values=tuple(values),
        errors=(None,) * len(runs),
    )
