"""optimum-benchmark's ``benchmark.json`` and ``benchmark_report.json``, read.

The form is that of its dataclasses (``optimum_benchmark/benchmark/report.py`` and ``trackers/``): a
target such as ``prefill`` has latency, throughput, memory, energy and efficiency, each with its
unit.
"""

from collections.abc import Iterator

from ci_bench.formats.parsing import Node, is_missing
from ci_bench.formats.series import Reading, Series, one_run
from ci_bench.records.results import Better

_PARTS = {"latency", "throughput", "memory", "energy", "efficiency"}
_MEMORY = {
    "max_ram": False,
    "max_process_vram": False,
    "max_reserved": False,
    "max_allocated": False,
    "max_global_vram": True,
}
"""Peaks, and whether they are derived: that of the whole device includes other processes."""


def matches(root: Node) -> bool:
    """Return whether it looks like this format.

    Bencher's has measures of the same names, each a value without a unit.
    """
    if root.has("config", "report"):
        return True
    targets = [target for _, target in root.fields()] if isinstance(root.value, dict) else []
    return bool(targets) and all(map(_is_target, targets))


def _is_target(node: Node) -> bool:
    if not isinstance(node.value, dict) or not node.value or not node.value.keys() <= _PARTS:
        return False
    return all(part.value is None or part.has("unit") for _, part in node.fields())


def read(root: Node) -> Reading:
    """Read latencies of every run and peaks of memory, for each target."""
    config = root.get("config") if root.has("config", "report") else None
    name = config.get("name") if config else None
    prefix = f"{name.text()} " if name else ""
    report = root.field("report") if config else root
    series = tuple(
        entry for target, node in report.fields() for entry in _series(f"{prefix}{target}", node)
    )
    return Reading(series=series, tool="optimum-benchmark")


def _series(benchmark: str, target: Node) -> Iterator[Series]:
    if (latency := target.get("latency")) is not None:
        values = latency.get("values")
        seconds = values.numbers() if values and values.value else (latency.field("mean").number(),)
        unit = latency.field("unit").text()
        yield Series(benchmark=benchmark, runs=one_run(*seconds), unit=unit, better=Better.LOWER)
    if (memory := target.get("memory")) is not None:
        unit = memory.field("unit").text()
        for measure, derived in _MEMORY.items():
            if (peak := memory.get(measure)) is not None:
                value = one_run(peak.number())
                yield Series(
                    benchmark=benchmark,
                    measure=measure,
                    runs=value,
                    unit=unit,
                    better=Better.LOWER,
                    derived=derived,
                )
    for part, measured, better in (
        ("throughput", "value", Better.HIGHER),
        ("energy", "total", Better.LOWER),
        ("efficiency", "value", Better.HIGHER),
    ):
        if (figures := target.get(part)) is not None and not is_missing(
            figures.field(measured).value
        ):
            value, unit = one_run(figures.field(measured).number()), figures.field("unit").text()
            yield Series(
                benchmark=benchmark,
                measure=part,
                runs=value,
                unit=unit,
                better=better,
                derived=True,
            )
