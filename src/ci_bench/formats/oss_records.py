"""The records of PyTorch's OSS benchmark database (version 3), read: a list of records, one record, or one on each line.

A record has neither unit nor direction; where a writer put them into the metric's ``extra_info`` (``unit``, ``better``), they are
taken from there. https://github.com/pytorch/pytorch/wiki/How-to-integrate-with-PyTorch-OSS-benchmark-database
"""

import json
from collections.abc import Iterator
from typing import Any

from ci_bench.formats.parsing import Node, parse_json
from ci_bench.formats.series import Reading, Series, Unreadable, one_run
from ci_bench.records.case import Better


def is_lines(text: str) -> bool:
    """Whether it is one JSON text on each of several lines."""
    first, newline, rest = text.strip().partition("\n")
    try:
        return bool(newline and rest) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def parse(text: str) -> Node:
    """One JSON text, or one on each line, the lines as a list. Raises `Unreadable`."""
    if is_lines(text):
        lines = enumerate(text.strip().splitlines(), 1)
        return Node([_line(number, line) for number, line in lines if line.strip()], "$")
    return parse_json(text)


def _line(number: int, line: str) -> Any:
    try:
        return parse_json(line).value
    except Unreadable as error:
        raise Unreadable(f"line {number}: {str(error).removeprefix('line 1, ')}") from error


def matches(root: Node) -> bool:
    """Whether it looks like this format."""
    records = list(root.items()) if isinstance(root.value, list) else [root]
    return bool(records) and all(one.has("benchmark", "metric") for one in records)


def read(root: Node) -> Reading:
    """All values of each metric. A benchmark is named by benchmark, model, backend, mode, data type and device."""
    records = root.items() if isinstance(root.value, list) else iter((root,))
    return Reading(series=tuple(map(_series, records)), tool="PyTorch OSS benchmark v3")


def _series(record: Node) -> Series:
    metric = record.field("metric")
    info = metric.get("extra_info")
    unit, better = (info.get("unit"), info.get("better")) if info else (None, None)
    values = metric.field("benchmark_values").numbers()
    if not values:
        metric.field("benchmark_values").wrong("the list is empty")
    return Series(
        benchmark=" ".join(_words(record)),
        measure=metric.field("name").text(),
        runs=one_run(*values),
        unit=unit.text() if unit else "",
        better=Better(better.value) if better is not None and better.value in tuple(Better) else None,
    )


def _words(record: Node) -> Iterator[str]:
    """What tells benchmarks apart, as far as the record says it."""
    benchmark, model = record.field("benchmark"), record.get("model")
    yield benchmark.field("name").text()
    info = benchmark.get("extra_info")
    places = ((model, "name"), (model, "backend"), (benchmark, "mode"), (benchmark, "dtype"), (info, "device"), (info, "case"))
    for node, name in places:
        part = node.get(name) if node is not None else None
        if part is not None and part.value:
            yield part.text()
