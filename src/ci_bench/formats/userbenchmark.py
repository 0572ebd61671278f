"""Userbenchmark JSON of TorchBench: ``{name, environ, metrics}``.

Metrics are a flat mapping from names to numbers.

Names are as TorchBench has them: ``test_train[resnet-cpu-inductor]_latency`` in milliseconds,
``_gmem`` and ``_cmem`` in gigabytes, and the precision where it is not fp32. Losses: samples,
units, launches, failures and skips (a number that is missing has no name there), checks. Text among
the metrics is read as a failure: the tool itself writes errors there.
"""

import json
import statistics
from collections.abc import Iterator, Mapping

from ci_bench.formats.dynamo_csv import device_of, model_of, tag_of
from ci_bench.formats.exporting import Files, Written, one_file
from ci_bench.formats.parsing import Node, is_missing
from ci_bench.formats.series import Absent, Reading, Series, one_run
from ci_bench.formats.units import direction_of, unit_in
from ci_bench.records.results import Better, CaseResult, Results, Status

GIGA = 1e9
SCALES = {
    "step_time": ("latency", 1e3), "compile_cold": ("compile_time", 1.0),
    "peak_allocated": ("gmem", 1 / GIGA), "peak_anonymous": ("cmem", 1 / GIGA),
    "peak_rss": ("cmem", 1 / GIGA), "graph_breaks": ("graph_breaks", 1.0),
    "forward_time": ("forward_latency", 1e3), "backward_time": ("backward_latency", 1e3),
    "optimizer_time": ("optimizer_latency", 1e3),
}  # fmt: skip
"""Our metric: the ending of its name there, and by what it is multiplied."""


def write(results: Results, name: str = "ci-bench") -> Files:
    """Write a run's medians as one file."""
    identity = results.environment.identity
    environ = {
        "pytorch_version": str(identity.get("torch")),
        "pytorch_git_version": str(identity.get("torch_commit")),
        "device": str(identity.get("gpu") or device_of(results)),
    }
    metrics = {
        key: value
        for row in results.cases
        if _counts(row)
        for key, value in _metrics(row, device_of(results))
    }
    document = {"name": name, "environ": environ, "metrics": metrics}
    return one_file(
        Written(text=json.dumps(document, indent=4, sort_keys=True, allow_nan=False) + "\n")
    )


_ENDINGS: Mapping[str, tuple[str, Better]] = {
    "_latency": ("ms", Better.LOWER), "_latencies": ("ms", Better.LOWER),
    "_compile_time": ("s", Better.LOWER), "_compilation_time": ("s", Better.LOWER),
    "_walltime": ("ms", Better.LOWER), "_peak_mem": ("GB", Better.LOWER),
    "_gmem": ("GB", Better.LOWER), "_cmem": ("GB", Better.LOWER), "_memory": ("GB", Better.LOWER),
    "_graph_breaks": ("count", Better.LOWER), "_speedup": ("x", Better.HIGHER),
    "_throughput": ("1/s", Better.HIGHER), "_tflops": ("TFLOPS", Better.HIGHER),
    "_qps": ("qps", Better.HIGHER), "_accuracy": ("", Better.HIGHER),
}  # fmt: skip
"""Unit and direction by how a metric's name ends; of others the file says neither."""


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    return root.has("name", "environ", "metrics") and isinstance(root.field("metrics").value, dict)


def read(root: Node) -> Reading:
    """Read one number for each metric; a text instead of one is a failure that the tool wrote."""
    series: list[Series] = []
    failed: list[Absent] = []
    for name, value in root.field("metrics").fields():
        if isinstance(value.value, str):
            failed.append(Absent(benchmark=name, reason=value.value[:200] or "no reason was given"))
        elif is_missing(value.value):
            failed.append(Absent(benchmark=name, reason="the file has no number of it"))
        else:
            series.append(_series(name, value))
    return Reading(series=tuple(series), failed=tuple(failed), tool="TorchBench userbenchmark")


def _series(name: str, value: Node) -> Series:
    ending = next((suffix for suffix in _ENDINGS if name.lower().endswith(suffix)), "")
    name_unit = unit_in(name)
    unit, better = _ENDINGS.get(ending, (name_unit, direction_of(name, name_unit)))
    return Series(benchmark=name, runs=one_run(value.number()), unit=unit, better=better)


def _counts(row: CaseResult) -> bool:
    return row.case.suite == "torchbench" and row.status is Status.OK


def _metrics(row: CaseResult, device: str) -> Iterator[tuple[str, float]]:
    params = row.case.params
    test = "train" if params.get("mode") == "training" else "eval"
    model = ".".join(filter(None, (tag_of(row), model_of(row))))
    precision = "" if params.get("precision", "fp32") == "fp32" else f"-{params['precision']}"
    for metric in row.metrics:
        values = [value for launch in metric.launches for value in launch.values]
        if metric.name in SCALES and values:
            ending, scale = SCALES[metric.name]
            yield (
                f"test_{test}[{model}-{device}-{metric.arm}{precision}]_{ending}",
                statistics.median(values) * scale,
            )
