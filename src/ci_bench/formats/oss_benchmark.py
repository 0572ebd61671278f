"""Records for PyTorch's OSS benchmark database (v3), written: one JSON array, one record per metric.

A record names benchmark, model and metric; all samples go into ``benchmark_values``. Metrics have one type, numbers: how a case
ended is in ``extra_info``, and in the metric ``passed``, 0 or 1, which failed and skipped cases have as well. Paths, command
lines and environments are left out. What is lost: launches and blocks of samples, warm-ups, details of checks. Reading is the
business of `oss_records`, which finds unit and direction in the metric's ``extra_info``.
https://github.com/pytorch/pytorch/wiki/How-to-integrate-with-PyTorch-OSS-benchmark-database
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ci_bench.formats.dynamo_csv import accuracy_word, device_of, model_of, speedup_of
from ci_bench.records.case import Better, CaseResult, Outcome, Status
from ci_bench.records.results import Results

NAME = "ci-bench"


def write(results: Results) -> str:
    """All records of a run. Of every suite: what is particular to one is in ``extra_info``."""
    device = device_of(results)
    records = [record for row in results.cases for record in _records(row, device)]
    return json.dumps(records, indent=1, allow_nan=False) + "\n"


def _records(row: CaseResult, device: str) -> Iterator[dict[str, Any]]:
    for metric in row.metrics:
        values = [value for launch in metric.launches for value in launch.values]
        yield _record(
            row, device, metric.arm, metric.name, values=values, about={"unit": str(metric.unit), "better": str(metric.better)}
        )
    speedup = speedup_of(row)
    candidate = next((arm for arm in row.case.arms if arm != row.case.reference), row.case.reference)
    if speedup is not None:
        yield _record(row, device, candidate, "speedup", values=[speedup], about={"unit": "x", "better": str(Better.HIGHER)})
    passed = row.status is Status.OK and not any(one.outcome is Outcome.FAIL and not one.informative for one in row.checks)
    yield _record(row, device, candidate, "passed", values=[float(passed)], about={"better": str(Better.HIGHER)})


def _record(
    row: CaseResult, device: str, arm: str, name: str, *, values: list[float], about: Mapping[str, str]
) -> dict[str, Any]:
    params = row.case.params
    settings = params.get("settings")
    batch = next((one.items for one in row.metrics if one.items), None) or (settings or {}).get("batch_size")
    extra = {"device": device, "suite": row.case.suite, "case": row.case.id, "status": str(row.status), "batch_size": batch}
    word = accuracy_word(row)
    return {
        "benchmark": {
            "name": NAME,
            "mode": params.get("mode", ""),
            "dtype": params.get("precision", ""),
            "extra_info": extra | ({} if word is None else {"accuracy": word}),
        },
        "model": {
            "name": model_of(row),
            "type": str(params.get("source", row.case.suite)),
            "backend": arm,
            "origins": ["pytorch"],
        },
        "metric": {"name": name, "benchmark_values": values, "extra_info": dict(about)},
    }
