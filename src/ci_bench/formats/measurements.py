"""ci-bench's own small JSON for what a benchmark of yours measures, read and written.

It holds all that a `Series` holds.

Its form is in ``schemas/measurements.json``: ``{"kind": "measurements", "schema_version": 1,
"series": [{"name": "sum", "unit": "ms", "better": "lower", "values": [1.2]}]}``.
"""

import json
from collections.abc import Collection
from typing import Any

from ci_bench.formats.exporting import Export, Written
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Absent, Reading, Runs, Series, one_run
from ci_bench.records.faults import show
from ci_bench.records.results import Better
from ci_bench.records.spelling import nearest

KIND = "measurements"
VERSION = 1
_TOP = {"kind", "schema_version", "tool", "series", "failed", "skipped"}
_SERIES = {"name", "measure", "unit", "better", "derived", "value", "values", "runs", "warmups"}
_NUMBERS = ("value", "values", "runs")
_ABSENT = {"name", "reason"}


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    return root.has("kind") and root.field("kind").value == KIND


def read(root: Node) -> Reading:
    """Read all series; unknown fields are refused, since a misspelt one would be lost."""
    _only(root, _TOP)
    kind, version, tool = root.field("kind"), root.field("schema_version"), root.get("tool")
    if kind.value != KIND:
        kind.wrong(f"{show(kind.value)} is not {KIND!r}")
    if type(version.value) is not int or version.value != VERSION:
        version.wrong(
            f"{show(version.value)} is not {VERSION}, the version that this ci-bench reads"
        )
    return Reading(
        series=tuple(_series(entry) for entry in root.field("series").items()),
        failed=_absent(root, "failed"),
        skipped=_absent(root, "skipped"),
        tool=tool.text() if tool else "",
    )


def _only(node: Node, allowed: Collection[str]) -> None:
    for name, value in node.fields():
        if name not in allowed:
            value.wrong(f"unknown field{nearest(name, sorted(allowed))}")


def _series(record: Node) -> Series:
    _only(record, _SERIES)
    measure, better, warmups, derived = (
        record.get("measure"),
        record.field("better"),
        record.get("warmups"),
        record.get("derived"),
    )
    if better.value not in tuple(Better):
        better.wrong(f"{show(better.value)} is neither 'lower' nor 'higher'")
    if derived is not None and not isinstance(derived.value, bool):
        derived.wrong(f"{show(derived.value)} is neither true nor false")
    runs = _runs(record)
    warm = tuple(run.numbers() for run in warmups.items()) if warmups else ()
    if warmups is not None and len(warm) != len(runs):
        warmups.wrong(f"{len(warm)} lists of warm-ups for {len(runs)} runs")
    return Series(
        benchmark=record.field("name").text(),
        measure=measure.text() if measure else "",
        unit=record.field("unit").text(),
        better=Better(better.value),
        derived=derived is not None and derived.value,
        runs=runs,
        warmups=warm,
    )


def _runs(record: Node) -> Runs:
    number_fields = [name for name in _NUMBERS if record.has(name)]
    if len(number_fields) != 1:
        record.wrong(
            f"it needs one of {', '.join(_NUMBERS)}, and has"
            f" {' and '.join(number_fields) or 'none'}"
        )
    node = record.field(number_fields[0])
    match number_fields[0]:
        case "value":
            return one_run(node.number())
        case "values":
            runs: Runs = one_run(*node.numbers())
        case _:
            runs = tuple(run.numbers() for run in node.items())
    if not runs or not all(runs):
        node.wrong("a list of numbers is empty")
    return runs


def _absent(root: Node, name: str) -> tuple[Absent, ...]:
    entries = root.get(name)
    if entries is None:
        return ()
    absents = []
    for entry in entries.items():
        _only(entry, _ABSENT)
        absents.append(
            Absent(benchmark=entry.field("name").text(), reason=entry.field("reason").text())
        )
    return tuple(absents)


def write(export: Export) -> Written:
    """Write all series with a direction and numbers, which the format requires."""
    writable = [series for series in export.series if series.better is not None and series.values]
    document = {
        "kind": KIND,
        "schema_version": VERSION,
        "tool": f"ci-bench {export.tool_version}".strip(),
        "series": [_written(series) for series in writable],
        **{
            name: [{"name": entry.benchmark, "reason": entry.reason} for entry in absent]
            for name, absent in (("failed", export.failed), ("skipped", export.skipped))
            if absent
        },
    }
    left_out = tuple(
        series.label for series in export.series if series.better is None or not series.values
    )
    return Written(text=json.dumps(document, indent=1, allow_nan=False) + "\n", left_out=left_out)


def _written(series: Series) -> dict[str, Any]:
    warmups = series.warmups or ((),) * len(series.runs)
    pairs = [(run, warm) for run, warm in zip(series.runs, warmups, strict=True) if run]
    return {
        "name": series.benchmark,
        **({"measure": series.measure} if series.measure else {}),
        "unit": series.unit or "count",
        "better": str(series.better),
        **({"derived": True} if series.derived else {}),
        "runs": [list(run) for run, _ in pairs],
        **(
            {"warmups": [list(warm) for _, warm in pairs]} if any(warm for _, warm in pairs) else {}
        ),
    }
