"""pyperf's JSON (``-o FILE``), read and written.

It keeps runs and warm-ups apart as ci-bench keeps launches and warm-ups.

https://pyperf.readthedocs.io/en/latest/api.html#pyperf-benchmark-json
"""

import json
from typing import Any

from ci_bench.formats.exporting import Export, Written
from ci_bench.formats.importing import known_facts, without_patch
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Reading, Runs, Series
from ci_bench.formats.units import interpret
from ci_bench.records.results import Better, Unit

_UNITS = {"second": "s", "byte": "bytes", "integer": "count"}
_MACHINE = {"cpu": "cpu_model_name", "cpu_count": "cpu_count", "python": "python_version"}
_WRITTEN = {Unit.SECONDS: "second", Unit.BYTES: "byte", Unit.COUNT: "integer"}


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    return root.has("benchmarks", "version") and any(
        benchmark.has("runs") for benchmark in root.field("benchmarks").items()
    )


def read(root: Node) -> Reading:
    """Read every benchmark's values per inner loop.

    For pyperf less is always better. Runs that calibrate have no values.
    """
    shared = root.get("metadata")
    tool = shared.get("perf_version") if shared else None
    return Reading(
        series=tuple(_series(benchmark, shared) for benchmark in root.field("benchmarks").items()),
        tool=f"pyperf {tool.text()}" if tool else "pyperf",
        machine=known_facts(
            (field, without_patch(fact.value))
            for field, name in _MACHINE.items()
            if shared and (fact := shared.get(name))
        ),
    )


def _series(benchmark: Node, shared: Node | None) -> Series:
    unit = _metadata(benchmark, shared, "unit")
    if unit is not None and unit.text() not in _UNITS:
        unit.wrong(f"{unit.text()!r} is not a unit of pyperf; known are {', '.join(_UNITS)}")
    name = _metadata(benchmark, shared, "name")
    measuring = [
        run
        for run in benchmark.field("runs").items()
        if (values := run.get("values")) and values.value
    ]
    if not measuring:
        benchmark.field("runs").wrong("no run has values")
    return Series(
        benchmark=name.text() if name else "benchmark",
        runs=tuple(run.field("values").numbers() for run in measuring),
        warmups=tuple(_warmups(run) for run in measuring),
        unit=_UNITS[unit.text()] if unit else "s",
        better=Better.LOWER,
        peak=unit is not None and interpret(_UNITS[unit.text()]).unit is Unit.BYTES,
    )


def _metadata(benchmark: Node, shared: Node | None, name: str) -> Node | None:
    """Return metadata of a benchmark, or of the whole file.

    Metadata that all benchmarks share is written once, at the top.
    """
    metadata = benchmark.get("metadata")
    return (metadata.get(name) if metadata else None) or (shared.get(name) if shared else None)


def _warmups(run: Node) -> tuple[float, ...]:
    """Return the values of a run's warm-ups, each a pair of loops and value."""
    warmups = run.get("warmups")
    return tuple(pair.numbers()[-1] for pair in warmups.items() if pair.value) if warmups else ()


def write(export: Export) -> Written:
    """Write a run for each launch.

    Rates are left out, and so is all that is better higher: for pyperf less is always better.
    """
    benchmarks, left_out = [], []
    for series in export.series:
        measured = interpret(series.unit)
        positive = bool(series.values) and min(series.values) > 0
        if measured.unit in _WRITTEN and series.better is Better.LOWER and positive:
            benchmarks.append(_benchmark(series, measured.scale, _WRITTEN[measured.unit]))
        else:
            left_out.append(series.label)
    document = {"benchmarks": benchmarks, "metadata": {}, "version": "1.0"}
    return Written(text=json.dumps(document, indent=1) + "\n", left_out=tuple(left_out))


def _benchmark(series: Series, scale: float, unit: str) -> dict[str, Any]:
    integral = unit != "second"

    def scaled(run: tuple[float, ...]) -> list[float]:
        return [round(value * scale) if integral else value * scale for value in run]

    warmups: Runs = series.warmups or ((),) * len(series.runs)
    runs = [
        {
            "metadata": {},
            "values": scaled(run),
            **({"warmups": [[1, value] for value in scaled(warm)]} if warm else {}),
        }
        for run, warm in zip(series.runs, warmups, strict=True)
        if run
    ]
    return {"metadata": {"name": series.label, "unit": unit, "loops": 1}, "runs": runs}
