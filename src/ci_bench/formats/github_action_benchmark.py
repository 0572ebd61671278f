"""github-action-benchmark's custom JSON, read and written, and its store ``data.js``, read.

A custom file has one direction, which is not in it but in the action's ``tool``: that is why the formats here have its names.
https://github.com/benchmark-action/github-action-benchmark#examples
"""

import json
from functools import partial

from ci_bench.formats.exporting import Export, Written
from ci_bench.formats.parsing import Node, is_number, parse_json
from ci_bench.formats.series import Reading, Series, one_run
from ci_bench.records.case import Better

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
    """Whether it looks like a custom file."""
    return isinstance(root.value, list) and bool(root.value) and all(one.has("name", "value", "unit") for one in root.items())


def matches_store(root: Node) -> bool:
    """Whether it looks like the store, without its prefix."""
    return root.has("entries", "lastUpdate")


def read_custom(root: Node, *, better: Better | None) -> Reading:
    """One number for each name."""
    return Reading(series=tuple(_series(one, better) for one in root.items()), tool="github-action-benchmark")


read_bigger = partial(read_custom, better=Better.HIGHER)
read_smaller = partial(read_custom, better=Better.LOWER)


def parse_store(text: str) -> Node:
    """The JSON behind the assignment that ``data.js`` is. Raises `Unreadable`."""
    return parse_json(text.strip().removeprefix(PREFIX).strip().removesuffix(";"))


def read_store(root: Node) -> Reading:
    """The newest entry of each suite of the store; names are those of suite and benchmark."""
    series: list[Series] = []
    for suite, entries in root.field("entries").fields():
        listed = list(entries.items())
        if listed:
            tool = listed[-1].field("tool")
            better = TOOLS.get(tool.text()) or tool.wrong(f"{tool.text()!r} is no tool of github-action-benchmark")
            series += [_series(one, better, f"{suite}/") for one in listed[-1].field("benches").items()]
    return Reading(series=tuple(series), tool="github-action-benchmark")


def _series(record: Node, better: Better | None, prefix: str = "") -> Series:
    unit = record.field("unit")
    value = one_run(coerced(record.field("value")))
    return Series(benchmark=prefix + record.field("name").text(), runs=value, unit=str(unit.value), better=better)


def coerced(node: Node) -> float:
    """The action takes a number in quotation marks for a number."""
    if isinstance(node.value, str):
        try:
            value = float(node.value)
        except ValueError:
            return node.number()
        return value if is_number(value) else node.number()
    return node.number()


def write(export: Export, *, better: Better) -> Written:
    """The typical value of every series of one direction; the other direction needs a file of its own."""
    records, left_out = [], []
    for series in export.series:
        if series.better is better and series.values:
            extra = f"median of {len(series.values)} samples in {len(series.runs)} launches"
            records.append({"name": series.label, "unit": series.unit, "value": series.typical, "extra": extra})
        else:
            left_out.append(series.label)
    return Written(text=json.dumps(records, indent=2) + "\n", left_out=tuple(left_out))


write_bigger = partial(write, better=Better.HIGHER)
write_smaller = partial(write, better=Better.LOWER)
