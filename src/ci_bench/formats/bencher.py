"""Bencher Metric Format (BMF), read and written.

It has one number for each measure of each benchmark, and no samples.

Unit and direction are those of the measure; only Bencher's built-in measures say theirs.
https://bencher.dev/docs/reference/bencher-metric-format
"""

import json
from collections.abc import Iterator
from statistics import median

from ci_bench.formats.exporting import Export, Written
from ci_bench.formats.parsing import Node, is_missing
from ci_bench.formats.series import Absent, Reading, Series, one_run
from ci_bench.formats.units import interpret
from ci_bench.records.results import Better, Unit

_MEASURES: dict[str, tuple[str, Better]] = {
    "latency": ("ns", Better.LOWER),
    "throughput": ("ops/s", Better.HIGHER),
    "build-time": ("s", Better.LOWER),
    "file-size": ("bytes", Better.LOWER),
    "allocated": ("bytes", Better.LOWER),
    "instructions": ("count", Better.LOWER),
    "estimated-cycles": ("count", Better.LOWER),
}
"""Measures that Bencher defines itself (``lib/bencher_json/src/project/measure/built_in.rs``)."""
_IGNORE = "-bencher-ignore"
_NS_PER_S = 1e9


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    benchmarks = list(root.fields()) if isinstance(root.value, dict) else []
    measures = [
        measure
        for _, benchmark in benchmarks
        if isinstance(benchmark.value, dict)
        for _, measure in benchmark.fields()
    ]
    return (
        bool(measures)
        and all(isinstance(benchmark.value, dict) for _, benchmark in benchmarks)
        and all(m.has("value") for m in measures)
    )


def read(root: Node) -> Reading:
    """Read every value.

    A benchmark whose name asks Bencher to ignore its alerts is used only on request.
    """
    rows = [(name, benchmark, _without_number(benchmark)) for name, benchmark in root.fields()]
    return Reading(
        series=tuple(
            series
            for name, benchmark, without in rows
            if not without
            for series in _series(name, benchmark)
        ),
        failed=tuple(
            Absent(benchmark=name.removesuffix(_IGNORE), reason=f"it has no number of {without}")
            for name, _, without in rows
            if without
        ),
        tool="Bencher Metric Format",
    )


def _without_number(benchmark: Node) -> str:
    missing = (
        measure for measure, metric in benchmark.fields() if is_missing(metric.field("value").value)
    )
    return next(missing, "")


def _series(name: str, benchmark: Node) -> Iterator[Series]:
    ignored = name.endswith(_IGNORE)
    for measure, metric in benchmark.fields():
        unit, better = _MEASURES.get(measure.lower().replace(" ", "-"), ("", None))
        yield Series(
            benchmark=name.removesuffix(_IGNORE),
            measure=measure,
            runs=one_run(metric.field("value").number()),
            unit=unit,
            better=better,
            derived=ignored,
        )


def write(export: Export) -> Written:
    """Write the median over launches, between the least and the most of any.

    The main time of a benchmark is its `latency`.
    """
    document: dict[str, dict[str, dict[str, float]]] = {}
    left_out = []
    for series in export.series:
        medians = [median(run) for run in series.runs if run]
        measured = interpret(series.unit)
        latency = not series.measure and measured.unit is Unit.SECONDS
        measure = "latency" if latency else (series.measure or "value").replace("_", "-")
        scale = measured.scale * _NS_PER_S if latency else measured.scale
        metrics = document.setdefault(series.benchmark, {})
        if medians and measure not in metrics:
            bounds = {
                "value": median(medians),
                "lower_value": min(medians),
                "upper_value": max(medians),
            }
            metrics[measure] = {name: value * scale for name, value in bounds.items()}
        else:
            left_out.append(series.label)
    benchmarks = {name: measures for name, measures in document.items() if measures}
    return Written(text=json.dumps(benchmarks, indent=2) + "\n", left_out=tuple(left_out))
