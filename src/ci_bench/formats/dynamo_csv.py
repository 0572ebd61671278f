"""The CSV files of PyTorch's dynamo and TorchBench runners, read and written: performance, accuracy, coverage.

Latencies are in milliseconds, latencies of compilation in seconds, memory in gigabytes (``output_csv`` and its callers in
``benchmarks/dynamo/common.py``). Written is one file per backend, source, precision, mode and device. For the tools that read
them: a failed model has speedup and latency 0, which those tools drop. What is lost: samples, intervals, launches, checks but
accuracy, the reason of a failure; skipped cases have no row, as there. Counters that were not taken stay empty, where the
runner would pad with 0.
"""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from ci_bench.formats.exporting import Files, Written
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Absent, Reading, Series, Unreadable, one_run
from ci_bench.records.results import Better, CaseResult, Results, Status

_KEYS = ("dev", "name", "batch_size", "tag")
_MAIN = "abs_latency"
_COLUMNS: dict[str, tuple[str, Better, bool]] = {
    _MAIN: ("ms", Better.LOWER, False),
    "compilation_latency": ("s", Better.LOWER, False),
    "eager_peak_mem": ("GB", Better.LOWER, False),
    "dynamo_peak_mem": ("GB", Better.LOWER, False),
    "speedup": ("x", Better.HIGHER, True),
    "compression_ratio": ("x", Better.HIGHER, True),
    "graph_breaks": ("count", Better.LOWER, False),
    "unique_graph_breaks": ("count", Better.LOWER, False),
}
"""Unit, direction and whether it is derived. Of other columns (``calls_captured``) the runner says no direction."""
_PASSED = "pass"
_NOT_COMPARED = ("eager_", "model_fail_to_load")
"""How an accuracy begins that the runner does not blame on the compiler, since the model itself did not run or repeat."""


def matches(text: str) -> bool:
    """Whether it looks like this format."""
    return text.lstrip("\ufeff").startswith(("dev,name,batch_size", '"dev","name","batch_size"'))


def read(text: str) -> Reading:
    """Every figure of every model. A model without a latency failed: the runner writes 0 then.

    Raises:
        Unreadable: a row does not fit the header, or a known column holds no number.
    """
    series: list[Series] = []
    failed: list[Absent] = []
    skipped: list[Absent] = []
    for number, row in _rows(text):
        name, accuracy = _name(row), row.get("accuracy", _PASSED)
        if accuracy.startswith(_NOT_COMPARED):
            skipped.append(Absent(benchmark=name, reason=accuracy))
        elif not accuracy.startswith(_PASSED):
            failed.append(Absent(benchmark=name, reason=accuracy or "the runner says nothing of its accuracy"))
        elif _MAIN in row and not _number(row[_MAIN], number, _MAIN).number():
            failed.append(Absent(benchmark=name, reason="the runner has no latency of it"))
        else:
            series += _series(name, row, number)
    return Reading(series=tuple(series), failed=tuple(failed), skipped=tuple(skipped), tool="dynamo runner")


def _rows(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    try:
        lines = csv.reader(text.lstrip("\ufeff").splitlines(), strict=True)
        header = next(lines, [])
        if not {"name", "dev"} <= {*header} or len({*header}) != len(header):
            raise Unreadable("line 1: it is no header of the dynamo runner's tables (dev, name, batch_size, …)")
        for cells in lines:
            if len(cells) != len(header):
                raise Unreadable(f"line {lines.line_num}: {len(cells)} cells, and the header has {len(header)}")
            yield lines.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise Unreadable(f"it is no CSV: {error}") from error


def _name(row: Mapping[str, str]) -> str:
    batch = f" batch={row['batch_size']}" if row.get("batch_size") else ""
    tag = f" {row['tag']}" if row.get("tag") else ""
    return f"{row['name']} {row['dev']}{batch}{tag}"


def _series(name: str, row: Mapping[str, str], number: int) -> Iterator[Series]:
    for column, cell in row.items():
        measure = "" if column == _MAIN else column
        if column in _COLUMNS and cell:
            unit, better, derived = _COLUMNS[column]
            value = one_run(_number(cell, number, column).number())
            yield Series(benchmark=name, measure=measure, runs=value, unit=unit, better=better, derived=derived)
        elif column not in _KEYS and _is_number(cell):
            yield Series(benchmark=name, measure=measure, runs=one_run(float(cell)), unit="", better=None, derived=True)


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _number(cell: str, line: int, column: str) -> Node:
    """The cell, as something that can complain about itself."""
    try:
        return Node(float(cell), f"line {line}, column {column}")
    except ValueError:
        return Node(cell, f"line {line}, column {column}")


HEAD = ("dev", "name", "batch_size")
PERFORMANCE = ("speedup", "abs_latency", "compilation_latency", "compression_ratio", "eager_peak_mem", "dynamo_peak_mem")
COVERAGE = ("graphs", "graph_calls", "captured_ops", "total_ops", "pct_ops", "pct_time")
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
PEAKS = ("peak_allocated", "peak_anonymous", "peak_rss")

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


def write(results: Results) -> Files:
    """The files of a run by name, such as ``inductor_zoo_fp32_training_cpu_performance.csv``: each arm is a configuration."""
    files: dict[str, list[list[str]]] = {}
    heads: dict[str, tuple[str, ...]] = {}
    for row in results.cases:
        if row.case.suite != "torchbench" or row.status is Status.SKIPPED:
            continue
        device = device_of(results)
        for arm, (kind, columns, cells_of) in product(candidates(row), KINDS):
            cells = cells_of(row, arm)
            if cells is not None:
                name = f"{_configuration(row, arm, device)}_{kind}.csv"
                last = ("compilation_latency",) if kind == "accuracy" else ()
                heads[name] = (*HEAD, *columns, *(() if kind == "coverage" else COUNTERS), *last)
                tail = [_cell(_median(row, "compile_cold", arm))] if last else []
                counters = [] if kind == "coverage" else _counters(row, arm)
                files.setdefault(name, []).append([device, model_of(row), _batch(row), *cells, *counters, *tail])
    return {name: Written(text=_text([list(heads[name]), *lines])) for name, lines in files.items()}


def candidates(row: CaseResult) -> tuple[str, ...]:
    """The arms that a case holds against its reference; the reference alone where there is no other."""
    return tuple(arm for arm in row.case.arms if arm != row.case.reference) or (row.case.reference,)


def accuracy_word(row: CaseResult, arm: str | None = None) -> str | None:
    """How an arm ended in the runner's vocabulary (the only one, if none is named); `None` where accuracy was not asked."""
    several = len(candidates(row)) > 1
    check = next((one for one in row.checks if one.name == "accuracy" and (not several or one.arm == arm)), None)
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


def speedup_of(row: CaseResult, arm: str) -> float | None:
    """Median time of the reference over the arm's; `None` where either is unknown."""
    times = [_median(row, "step_time", one) for one in (row.case.reference, arm)]
    return times[0] / times[1] if times[0] and times[1] else None


def _performance(row: CaseResult, candidate: str) -> list[str] | None:
    if row.case.due.times == () and not any(metric.name == "step_time" for metric in row.metrics):
        return None
    speedup, latency = speedup_of(row, candidate), _median(row, "step_time", candidate)
    peaks = [next((peak for name in PEAKS if (peak := _median(row, name, arm))), None) for arm in (row.case.reference, candidate)]
    ratio = peaks[0] / peaks[1] if peaks[0] and peaks[1] else None
    cells = [
        _cell(speedup if row.status is Status.OK else 0.0),
        _cell(latency * 1e3 if latency and row.status is Status.OK else 0.0),
        _cell(_median(row, "compile_cold", candidate)),
        _cell(ratio),
    ]
    return cells + [_cell(None if peak is None else peak / GIGA) for peak in peaks]


def _accuracy(row: CaseResult, arm: str) -> list[str] | None:
    if "accuracy" not in row.case.due.checks:
        return None
    return [accuracy_word(row, arm) or "infra_error"]


def _coverage(row: CaseResult, arm: str) -> list[str] | None:
    """Shares are between 0 and 1, in spite of their names, as in the runner; `None` where the arm is not the experiment."""
    shares = [_median(row, metric, arm) for metric in ("coverage_ops", "coverage_time")]
    if row.status is not Status.OK or shares[0] is None:
        return None
    counts = (_median(row, metric, arm) for metric in ("graphs", "graph_calls", "ops_in_graphs", "ops_run"))
    return [*(_whole(value) for value in counts), *(_cell(share) for share in shares)]


KINDS = (
    ("performance", PERFORMANCE, _performance),
    ("accuracy", ("accuracy",), _accuracy),
    ("coverage", COVERAGE, _coverage),
)


def _counters(row: CaseResult, arm: str) -> list[str]:
    found = (_median(row, metric, arm) for metric in COUNTERS.values())
    return [_whole(value) for value in found]


def _median(row: CaseResult, metric: str, arm: str) -> float | None:
    found = [one for one in row.metrics if (one.name, one.arm) == (metric, arm)]
    values = [value for one in found for launch in one.launches for value in launch.values]
    return statistics.median(values) if values else None


def _configuration(row: CaseResult, arm: str, device: str) -> str:
    params = row.case.params
    words = (params.get("backend", arm), params.get("source"), params.get("precision"), params.get("mode"), device)
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


def _whole(value: float | None) -> str:
    return "" if value is None else str(round(value))


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _text(lines: Iterable[list[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()
