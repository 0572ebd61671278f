"""Names that change from run to run, and names that only some files have in full.

An address of an object or a temporary folder in a benchmark's name differs in every run, so the
same benchmark would be gone and new each time.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ci_bench.formats.series import Absent, Reading, Series

Named = TypeVar("Named", Series, Absent)

_SHOWN = 5

_CHANGING: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b0x[0-9a-fA-F]{5,16}\b"), "0x…"),
    (
        re.compile(
            r"(/(?:private/)?(?:tmp|var/folders/[^/\s]+/[^/\s]+/T)/)(?:pytest-of-[^/\s]+/pytest-\d+|tmp\.?\w{6,12})"
        ),
        r"\1…",
    ),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b"), "…"),
    (re.compile(r"(?<=[\w$])@(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,8}\b"), "@…"),
    (re.compile(r"\b(pid[ =:])\d+\b"), r"\1…"),
)


def stable(name: str) -> str:
    """Remove from a name all that differs from run to run."""
    for pattern, instead in _CHANGING:
        name = pattern.sub(instead, name)
    return name


def with_stable_names(reading: Reading) -> Reading:
    """Remove addresses and temporary folders from names, and note the number of such names.

    Benchmarks that differ in nothing else are numbered in their order.
    """
    renames: dict[str, str] = {}
    names = [
        *(entry.benchmark for entry in reading.series),
        *(entry.benchmark for entry in (*reading.failed, *reading.skipped)),
    ]
    unchanged = {name for name in names if stable(name) == name}
    counts: Counter[str] = Counter()
    for name in dict.fromkeys(names):
        short = stable(name)
        if short != name:
            counts[short] += 1
            repeated = counts[short] > 1 or short in unchanged
            renames[name] = f"{short} #{counts[short]}" if repeated else short
    if not renames:
        return reading
    shown = ", ".join(list(renames.values())[:_SHOWN])
    count = "1 benchmark" if len(renames) == 1 else f"{len(renames)} benchmarks"
    note = (
        f"addresses, temporary folders and the like in the names of {count} are not compared:"
        f" {shown}"
    )
    return replace(renamed(reading, renames), notes=(*reading.notes, note))


def with_full_names(readings: Sequence[Reading]) -> list[Reading]:
    """Give every benchmark its full name, if exactly one of the readings' full names belongs to it.

    A model that failed before it had a batch size is then the same benchmark as the model with one.
    If there are several, all of them failed.
    """
    full: dict[str, set[str]] = {}
    for name, shorter in (
        (name, shorter) for reading in readings for name, shorter in reading.shorter.items()
    ):
        for short in shorter:
            full.setdefault(short, set()).add(name)
    longest = {
        short: sorted(name for name in names if name not in full) for short, names in full.items()
    }
    return [_fully_named(reading, longest) for reading in readings]


def _fully_named(reading: Reading, full: Mapping[str, Sequence[str]]) -> Reading:
    missing = {short: names for short, names in full.items() if short in reading.shorter}
    only = {
        short: names[0]
        for short, names in missing.items()
        if len(names) == 1 and names[0] not in reading.shorter
    }
    several = {
        short: [name for name in names if name not in reading.shorter]
        for short, names in missing.items()
        if len(names) > 1
    }
    failed = tuple(
        replace(absent, benchmark=name)
        for absent in reading.failed
        for name in several.get(absent.benchmark) or (absent.benchmark,)
    )
    return renamed(replace(reading, failed=failed), only)


def renamed(reading: Reading, names: Mapping[str, str]) -> Reading:
    """Return the same reading with other names for some benchmarks."""

    def new(name: str) -> str:
        return names.get(name, name)

    def with_new_name(entry: Named) -> Named:
        return replace(entry, benchmark=new(entry.benchmark))

    return replace(
        reading,
        series=tuple(map(with_new_name, reading.series)),
        failed=tuple(map(with_new_name, reading.failed)),
        skipped=tuple(map(with_new_name, reading.skipped)),
        versions={new(name): version for name, version in reading.versions.items()},
        shorter={new(name): shorter for name, shorter in reading.shorter.items()},
    )
