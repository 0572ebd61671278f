"""The dynamo runner's CSV files, written: performance and accuracy, one file per backend, source, precision, mode and device.

For the tools that read them: a failed model has speedup and latency 0, which those tools drop. What is lost: samples,
intervals, launches, checks but accuracy, the reason of a failure; skipped cases have no row, as there. Counters that were not
taken stay empty, where the runner would pad with 0. Reading is the business of `dynamo_table`.
"""

import csv
import io
import statistics
from collections.abc import Iterable

from ci_bench.records.case import CaseResult, Status
from ci_bench.records.results import Results

HEAD = ("dev", "name", "batch_size")
PERFORMANCE = ("speedup", "abs_latency", "compilation_latency", "compression_ratio", "eager_peak_mem", "dynamo_peak_mem")
COUNTERS = {
    "calls_captured": "ops_captured",
    "unique_graphs": "graphs",
    "graph_breaks": "graph_breaks",
    "unique_graph_breaks": "unique_graph_breaks",
    "fallbacks_to_eager": "fallbacks",
    "cudagraph_skips": "cudagraph_skips",
}
"""The runner's column by our metric."""
GIGA = 1e9
PEAKS = ("peak_allocated", "peak_rss")

WORDS = (
    "pass", "pass_due_to_skip", "fail_accuracy", "fail_to_run", "OOM", "eager_1st_run_OOM", "eager_1st_run_fail",
    "eager_2nd_run_OOM", "eager_2nd_run_fail", "eager_two_runs_differ", "eager_fail_to_run", "model_fail_to_load", "timeout",
    "warmup_failed", "not_bitwise_equivalent", "fail_to_run_at_batch", "fail_batch_invariance_at", "infra_error",
    "eager_variation",
)  # fmt: skip
"""All that the runner writes into its accuracy column; the two of batch invariance end in ``_n``."""
BY_STATUS = {
    Status.TIMEOUT: "timeout",
    Status.OUT_OF_MEMORY: "OOM",
    Status.CRASHED: "fail_to_run",
    Status.FAILED: "fail_to_run",
    Status.NOT_RUN: "infra_error",
}


def write(results: Results) -> dict[str, str]:
    """The files of a run by name, such as ``inductor_zoo_fp32_training_cpu_performance.csv``."""
    files: dict[str, list[list[str]]] = {}
    heads: dict[str, tuple[str, ...]] = {}
    for row in results.cases:
        if row.case.suite != "torchbench" or row.status is Status.SKIPPED:
            continue
        device = device_of(results)
        for kind, columns, cells in (
            ("performance", PERFORMANCE, _performance(row)),
            ("accuracy", ("accuracy",), _accuracy(row)),
        ):
            if cells is not None:
                name = f"{_configuration(row, device)}_{kind}.csv"
                last = ("compilation_latency",) if kind == "accuracy" else ()
                heads[name] = (*HEAD, *columns, *COUNTERS, *last)
                tail = [_cell(_median(row, "compile_cold", _candidate(row)))] if last else []
                files.setdefault(name, []).append([device, model_of(row), _batch(row), *cells, *_counters(row), *tail])
    return {name: _text([list(heads[name]), *lines]) for name, lines in files.items()}


def accuracy_word(row: CaseResult) -> str | None:
    """How a case ended in the runner's vocabulary; `None` where accuracy was not asked."""
    check = next((one for one in row.checks if one.name == "accuracy"), None)
    if row.status is Status.OK:
        return _leading_word(check.detail) or check.outcome if check else None
    told = _leading_word(row.failure.reason) if row.failure else None
    return told or BY_STATUS.get(row.status)


def model_of(row: CaseResult) -> str:
    """The model's name as the source has it."""
    return str(row.case.params.get("model", row.case.name))


def device_of(results: Results) -> str:
    """``cuda`` or ``cpu``: what was measured on."""
    named = results.environment.identity.get("device")
    return str(named or results.run.device).partition(":")[0]


def speedup_of(row: CaseResult) -> float | None:
    """Median time of the reference over the candidate's; `None` where either is unknown."""
    times = [_median(row, "step_time", arm) for arm in (row.case.reference, _candidate(row))]
    return times[0] / times[1] if times[0] and times[1] else None


def _performance(row: CaseResult) -> list[str] | None:
    if row.case.due.times == () and not any(metric.name == "step_time" for metric in row.metrics):
        return None
    candidate = _candidate(row)
    speedup, latency = speedup_of(row), _median(row, "step_time", candidate)
    peaks = [next((peak for name in PEAKS if (peak := _median(row, name, arm))), None) for arm in (row.case.reference, candidate)]
    ratio = peaks[0] / peaks[1] if peaks[0] and peaks[1] else None
    cells = [
        _cell(speedup if row.status is Status.OK else 0.0),
        _cell(latency * 1e3 if latency and row.status is Status.OK else 0.0),
        _cell(_median(row, "compile_cold", candidate)),
        _cell(ratio),
    ]
    return cells + [_cell(None if peak is None else peak / GIGA) for peak in peaks]


def _accuracy(row: CaseResult) -> list[str] | None:
    if "accuracy" not in row.case.due.checks:
        return None
    return [accuracy_word(row) or "infra_error"]


def _counters(row: CaseResult) -> list[str]:
    found = (_median(row, metric, _candidate(row)) for metric in COUNTERS.values())
    return ["" if value is None else str(round(value)) for value in found]


def _candidate(row: CaseResult) -> str:
    return next((arm for arm in row.case.arms if arm != row.case.reference), row.case.reference)


def _median(row: CaseResult, metric: str, arm: str) -> float | None:
    found = [one for one in row.metrics if (one.name, one.arm) == (metric, arm)]
    values = [value for one in found for launch in one.launches for value in launch.values]
    return statistics.median(values) if values else None


def _configuration(row: CaseResult, device: str) -> str:
    params = row.case.params
    words = (params.get("backend"), params.get("source"), params.get("precision"), params.get("mode"), device)
    return "_".join(str(word).replace(":", ".").replace("/", ".") for word in words)


def _batch(row: CaseResult) -> str:
    items = next((one.items for one in row.metrics if one.name == "step_time" and one.items), None)
    return str(items) if items else ""


def _leading_word(text: str) -> str | None:
    """The word that a detail or a reason begins with; an error's class may stand before it."""
    pieces = [piece.strip() for piece in text.split(":")[:2]]
    return next((piece for piece in pieces if piece in WORDS or any(_numbered(piece, word) for word in WORDS)), None)


def _numbered(piece: str, word: str) -> bool:
    return word.endswith(("_batch", "_at")) and piece.startswith(word + "_") and piece.removeprefix(word + "_").isdigit()


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _text(lines: Iterable[list[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()
