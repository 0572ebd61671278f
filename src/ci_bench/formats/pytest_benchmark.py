"""pytest-benchmark's JSON (``--benchmark-json=FILE``), read and written. Times only, in seconds.

https://pytest-benchmark.readthedocs.io/en/stable/usage.html
"""

import json
from collections.abc import Iterator
from statistics import fmean, quantiles, stdev
from typing import Any

from ci_bench.formats.exporting import Export, Written, split_times
from ci_bench.formats.importing import known_facts, without_patch
from ci_bench.formats.parsing import Node, is_number
from ci_bench.formats.series import Reading, Series, one_run
from ci_bench.records.forms import Fact
from ci_bench.records.results import Better

_LEAST_FOR_SPREAD, _LEAST_MEAN = 2, 1e-300


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    return root.has("machine_info", "benchmarks")


def read(root: Node) -> Reading:
    """Read seconds per call of every benchmark that passed.

    They are all rounds if these were saved, else their median.

    Numbers in ``extra_info`` are the user's own, of no known direction.
    """
    version = root.get("version")
    return Reading(
        series=tuple(
            series
            for benchmark in root.field("benchmarks").items()
            for series in _series(benchmark)
        ),
        tool=f"pytest-benchmark {version.text()}" if version else "pytest-benchmark",
        machine=_machine(root.field("machine_info")),
    )


def _machine(info: Node) -> dict[str, Fact]:
    """Return the processor and the interpreter, which identify a machine."""
    if not isinstance(info.value, dict):
        return {}
    cpu = info.value.get("cpu")
    processor = cpu if isinstance(cpu, dict) else {}
    return known_facts(
        (
            ("cpu", processor.get("brand_raw") or processor.get("brand")),
            ("cpu_count", processor.get("count")),
            ("python", without_patch(info.value.get("python_version"))),
        )
    )


def _series(benchmark: Node) -> Iterator[Series]:
    stats, name = benchmark.field("stats"), benchmark.field("fullname").text()
    data = stats.get("data")
    seconds = data.numbers() if data and data.value else (stats.field("median").number(),)
    yield Series(benchmark=name, runs=one_run(*seconds), unit="s", better=Better.LOWER)
    info = benchmark.get("extra_info")
    counters = info.fields() if info and isinstance(info.value, dict) else ()
    for measure, value in counters:
        if measure.strip() and is_number(value.value):
            yield Series(
                benchmark=name,
                measure=measure,
                runs=one_run(value.number()),
                unit="",
                better=None,
                derived=True,
            )


def write(export: Export) -> Written:
    """Write all samples of each time, as rounds of a benchmark."""
    times, left_out = split_times(export)
    document = {
        "machine_info": {
            "node": "",
            "system": "",
            **{name: str(value) for name, value in export.machine.items()},
        },
        "commit_info": {
            "id": export.commit or "unversioned",
            "time": None,
            "author_time": None,
            "dirty": bool(export.dirty),
            "project": "",
            "branch": export.branch or "(unknown)",
        },
        "benchmarks": [_benchmark(name, seconds) for name, seconds in times],
        "datetime": export.started_at,
        "version": f"ci-bench {export.tool_version}",
    }
    return Written(text=json.dumps(document, indent=1) + "\n", left_out=left_out)


def _benchmark(name: str, runs: tuple[tuple[float, ...], ...]) -> dict[str, Any]:
    return {
        "group": None,
        "name": name,
        "fullname": name,
        "params": None,
        "param": None,
        "extra_info": {},
        "options": {"timer": "perf_counter", "warmup": False},
        "stats": _stats([value for run in runs for value in run]),
    }


def _stats(seconds: list[float]) -> dict[str, Any]:
    """Return the figures that pytest-benchmark's own ``compare`` reads.

    Quartiles lie inside the data (the inclusive method); outliers are counted from the mean and
    from the quartiles, as pytest-benchmark's table says.
    """
    ordered = sorted(seconds)
    many = len(ordered) >= _LEAST_FOR_SPREAD
    q1, middle, q3 = (
        quantiles(ordered, n=4, method="inclusive")
        if many
        else (ordered[0], ordered[0], ordered[0])
    )
    mean, spread, iqr = fmean(ordered), stdev(ordered) if many else 0.0, q3 - q1
    inside = [value for value in ordered if q1 - 1.5 * iqr <= value <= q3 + 1.5 * iqr]
    far = sum(abs(value - mean) > spread for value in ordered)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": spread,
        "rounds": len(ordered),
        "median": middle,
        "iqr": iqr,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": len(ordered) - len(inside),
        "stddev_outliers": far,
        "outliers": f"{far};{len(ordered) - len(inside)}",
        "ld15iqr": inside[0],
        "hd15iqr": inside[-1],
        "ops": 1 / mean if abs(mean) > _LEAST_MEAN else 0.0,  # 0 is pytest-benchmark's own word
        "total": sum(ordered),
        "data": seconds,
        "iterations": 1,
    }
