"""Description of texts that no reader knows, and of names that change from run to run.

An address of an object or a temporary folder in a benchmark's name differs in every run, so the same benchmark
would be gone and new each time.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ci_bench.formats.series import Absent, Reading, Series
from ci_bench.records.faults import show

Named = TypeVar("Named", Series, Absent)

_LOOKS = (
    ("the text that `cargo bench` prints; `cargo criterion --message-format=json` is read", r"(?m)^test .+ bench:"),
    (
        "the text that criterion prints; `cargo criterion --message-format=json` is read",
        r"(?m)time:\s+\[[^\]\n]+\]|^Benchmarking ",
    ),
    ("the text that Catch2 prints; neither its text nor its XML is read", r"(?i)benchmark name\s+samples\s+iterations"),
    ("the text that iai or gungraun prints, which is not read", r"(?m)^\s+Instructions:\s"),
    ("the text that Benchmark.js prints, which is not read", r" x [\d,.]+ ops/sec "),
    ("the text of pytest-benchmark; `pytest --benchmark-json=FILE` is read", r"(?m)^-+ benchmark.*: \d+ tests? -+$"),
    ("the CSV of hyperfine; `--export-json FILE` is read", r"\Acommand,mean,stddev,median,user,system,min,max"),
    (
        "PyTorch's table of expected instruction counts, which is not read; its tables of expected accuracies are",
        r"\A\s*[\w.-]+,[\w ]*instruction[ _]count,\d+",
    ),
    (
        "PyTorch's table of expected speedups, which is not read; the runner's own tables of performance are",
        r"\A#?name,.*,perf_speedup_target",
    ),
    ("the CSV of Google Benchmark; `--benchmark_out_format=json` is read", r"(?m)^name,iterations,real_time,cpu_time"),
    ("HTML", r"(?i)\A\s*<(!doctype html|html)"),
    ("XML", r"\A\s*<\?xml"),
    ("a table in CSV", r"\A[^\n,]+(,[^\n,]*){2,}\n"),
    ("YAML, or a text whose first line is a name and a colon", r"\A[\w-]+:(\s|$)"),
)
"""Descriptions of texts, with their patterns."""
_MOST_LOOKED_AT = 100_000
_SHOWN = 5


def appearance(text: str) -> str:
    """Describe the looks of an unknown text: a tool's output, or how it begins."""
    begin = text.lstrip("\ufeff")[:_MOST_LOOKED_AT]
    for words, pattern in _LOOKS:
        if re.search(pattern, begin):
            return f"it looks like {words}"
    if begin.lstrip().startswith("{"):
        names = re.findall(r'"((?:[^"\\]|\\.){1,40})"\s*:', begin[:2000])[:_SHOWN]
        fields = ", ".join(map(show, dict.fromkeys(names)))
        return f"it is JSON, but of no known form (fields: {fields})" if names else "it is JSON, but of no known form"
    if begin.lstrip().startswith("["):
        return "it is JSON, but of no known form: a list"
    try:
        json.loads(begin)
    except (ValueError, RecursionError):
        pass
    else:
        return "it is JSON, but of no known form: a single value"
    first = next((line.strip() for line in begin.splitlines() if line.strip()), "")
    return f"it is neither JSON nor a text that is read; it begins with {show(first[:60])}"


_CHANGING: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b0x[0-9a-fA-F]{5,16}\b"), "0x…"),
    (re.compile(r"(/(?:private/)?(?:tmp|var/folders/[^/\s]+/[^/\s]+/T)/)(?:pytest-of-[^/\s]+/pytest-\d+|tmp[\w]{6,12})"), r"\1…"),
)


def stable(name: str) -> str:
    """A name without what differs from run to run."""
    for pattern, instead in _CHANGING:
        name = pattern.sub(instead, name)
    return name


def with_stable_names(reading: Reading) -> Reading:
    """The same with addresses and temporary folders taken out of names, and a note that names how many.

    Benchmarks that differ in nothing else are numbered in their order.
    """
    known: dict[str, str] = {}
    names = [*(one.benchmark for one in reading.series), *(one.benchmark for one in (*reading.failed, *reading.skipped))]
    plain = {name for name in names if stable(name) == name}
    taken: Counter[str] = Counter()
    for name in dict.fromkeys(names):
        short = stable(name)
        if short != name:
            taken[short] += 1
            repeated = taken[short] > 1 or short in plain
            known[name] = f"{short} #{taken[short]}" if repeated else short
    if not known:
        return reading
    shown = ", ".join(list(known.values())[:_SHOWN])
    count = "1 benchmark" if len(known) == 1 else f"{len(known)} benchmarks"
    note = f"addresses and temporary folders in the names of {count} are not compared: {shown}"
    return replace(renamed(reading, known), notes=(*reading.notes, note))


def with_full_names(readings: Sequence[Reading]) -> list[Reading]:
    """The same with every benchmark called by its full name, if exactly one of the readings' full names belongs to it.

    A model that failed before it had a batch size is then the same benchmark as the model with one.
    If there are several, all of them failed.
    """
    full: dict[str, set[str]] = {}
    for name, shorter in ((name, shorter) for reading in readings for name, shorter in reading.shorter.items()):
        for short in shorter:
            full.setdefault(short, set()).add(name)
    longest = {short: sorted(name for name in names if name not in full) for short, names in full.items()}
    return [_fully_named(reading, longest) for reading in readings]


def _fully_named(reading: Reading, full: Mapping[str, Sequence[str]]) -> Reading:
    missing = {short: names for short, names in full.items() if short in reading.shorter}
    only = {short: names[0] for short, names in missing.items() if len(names) == 1 and names[0] not in reading.shorter}
    several = {
        short: [name for name in names if name not in reading.shorter] for short, names in missing.items() if len(names) > 1
    }
    failed = tuple(
        replace(one, benchmark=name) for one in reading.failed for name in several.get(one.benchmark) or (one.benchmark,)
    )
    return renamed(replace(reading, failed=failed), only)


def renamed(reading: Reading, names: Mapping[str, str]) -> Reading:
    """The same with other names for some benchmarks."""

    def new(name: str) -> str:
        return names.get(name, name)

    def with_new_name(one: Named) -> Named:
        return replace(one, benchmark=new(one.benchmark))

    return replace(
        reading,
        series=tuple(map(with_new_name, reading.series)),
        failed=tuple(map(with_new_name, reading.failed)),
        skipped=tuple(map(with_new_name, reading.skipped)),
        versions={new(name): version for name, version in reading.versions.items()},
        shorter={new(name): shorter for name, shorter in reading.shorter.items()},
    )
