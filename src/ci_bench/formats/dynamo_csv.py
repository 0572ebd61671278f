"""CSV files of PyTorch's dynamo and TorchBench runners, read and written.

They have performance, accuracy, coverage and compilation.

Latencies are in milliseconds, latencies of compilation in seconds, memory in gigabytes
(``output_csv`` and its callers in ``benchmarks/dynamo/common.py``). The writer makes one file per
backend, source, precision, mode and device. As the tools that read them expect, a failed model has
speedup and latency 0, which those tools drop. Losses: samples, intervals, launches, checks but
accuracy, the reason of a failure; skipped cases have no row, as there. Counters that were not taken
stay empty; the runner would pad with 0. Values without a column of the runner's come after
its columns, in files with an arm that has them (`MORE`). Numbers have six decimals, as in the
runner, or more if needed: reading returns the written numbers.
"""

import csv
import io
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ci_bench.formats.exporting import Files, Written
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Absent, Reading, Series, Unreadable, one_run
from ci_bench.records.metrics import COMPILE_COLD, COMPILE_PHASES
from ci_bench.records.results import Better, CaseResult, Results, Status

PHASES = {kind.name.removeprefix(f"{COMPILE_COLD.name}_"): kind.name for kind in COMPILE_PHASES}
"""Our metric by the phase of compiling."""
_KEYS = ("dev", "name", "batch_size", "tag")
MAIN = "abs_latency"
_COLUMNS: dict[str, tuple[str, Better, bool]] = {
    MAIN: ("ms", Better.LOWER, False),
    "compilation_latency": ("s", Better.LOWER, False),
    "eager_peak_mem": ("GB", Better.LOWER, False),
    "dynamo_peak_mem": ("GB", Better.LOWER, False),
    "speedup": ("x", Better.HIGHER, True),
    "compression_ratio": ("x", Better.HIGHER, True),
    "graph_breaks": ("count", Better.LOWER, False),
    "unique_graph_breaks": ("count", Better.LOWER, False),
    "warm_compilation_latency": ("s", Better.LOWER, False),
    "package_size": ("B", Better.LOWER, False),
    "eager_memory_growth": ("GB", Better.LOWER, False),
    "dynamo_memory_growth": ("GB", Better.LOWER, False),
    "recompiles": ("count", Better.LOWER, False),
    "pct_ops": ("share", Better.HIGHER, False),
    "pct_time": ("share", Better.HIGHER, True),
    "quantization_error": ("share", Better.LOWER, True),
    **{f"{phase}_latency": ("s", Better.LOWER, True) for phase in PHASES},
}
"""Unit, direction and whether it is derived.

The runner gives no direction for other columns (``calls_captured``).
"""
_PASSED = "pass"
_LONGEST_MODEL, _NO_NAME = 60, re.compile(r"[^A-Za-z0-9_.-]+")
"""Characters of a model in a case's name: the last ones, and those that are replaced."""
_NOT_COMPARED = ("eager_", "model_fail_to_load")
"""Prefixes of accuracies that the runner does not blame on the compiler.

The model itself did not run or repeat.
"""


_EXPECTED = (["name", "accuracy"], ["name", "accuracy", "graph_breaks"], ["name", "graph_breaks"])
"""Headers of PyTorch's tables of expected results (``benchmarks/dynamo/ci_expected_accuracy``),
with blank lines between rows.
"""


def matches(text: str) -> bool:
    """Return whether the first line is a header of this format."""
    header = text.lstrip("\ufeff").partition("\n")[0].strip().replace('"', "").split(",")
    return {*HEAD} <= {*header} or header in _EXPECTED


def read(text: str) -> Reading:
    """Read every figure of every model; of a model that was run again, the last row.

    A model without a latency failed.

    The runner writes 0 then, or NaN. An accuracy other than ``pass`` was not checked, or is wrong;
    a checked one counts as 1. Tables of expected results have neither device nor batch size, and
    rows of failures no batch size.

    Raises:
        Unreadable: a row does not fit the header, or a known column holds no number.
    """
    rows, names = _last_rows(text)
    reading = of_models({name: (f"line {number}", row) for name, (number, row) in rows.items()})
    return replace(reading, shorter={name: names[name] for name in rows})


def of_models(rows: Mapping[str, tuple[str, Mapping[str, str]]]) -> Reading:
    """Return the figures of each model, by the name that it is compared under.

    Each row is its place in the file, and its cells by column.

    Raises:
        Unreadable: a known column holds no number.
    """
    series: list[Series] = []
    failed: list[Absent] = []
    skipped: list[Absent] = []
    for name, (place, row) in rows.items():
        accuracy = row.get("accuracy", _PASSED)
        if accuracy.startswith(_NOT_COMPARED):
            skipped.append(Absent(benchmark=name, reason=accuracy))
        elif accuracy != _PASSED:
            failed.append(
                Absent(benchmark=name, reason=accuracy or "the runner says nothing of its accuracy")
            )
        elif MAIN in row and not _has_latency(row[MAIN], place):
            failed.append(Absent(benchmark=name, reason="the runner has no latency of it"))
        else:
            if "accuracy" in row:
                series.append(
                    Series(
                        benchmark=name,
                        measure="accuracy",
                        runs=one_run(1.0),
                        unit="",
                        better=Better.HIGHER,
                    )
                )
            series += _series(name, row, place)
    return Reading(
        series=tuple(series), failed=tuple(failed), skipped=tuple(skipped), tool="dynamo runner"
    )


def _last_rows(
    text: str,
) -> tuple[dict[str, tuple[int, Mapping[str, str]]], dict[str, tuple[str, ...]]]:
    """Return the last row of each model, by name, with its line; and each model's shorter names.

    A row without a batch size replaces the only earlier row of its model, and is replaced by a
    later one.
    """
    rows: dict[str, tuple[int, Mapping[str, str]]] = {}
    names: dict[str, tuple[str, ...]] = {}
    batches: dict[str, set[str]] = {}
    for number, row in _rows(text):
        name, *shorter = _names(row)
        if not _batch_of(row) and len(earlier := batches.get(name, set())) == 1:
            (name,) = earlier
        elif _batch_of(row):
            batches.setdefault(shorter[0], set()).add(name)
            rows.pop(shorter[0], None)
        names.setdefault(name, tuple(shorter))
        rows[name] = (number, row)
    return rows, names


def _rows(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    try:
        lines = csv.reader(text.lstrip("\ufeff").splitlines(), strict=True)
        header = next(lines, [])
        if not _is_header(header):
            raise Unreadable(
                "line 1: not a header of the dynamo runner's tables (dev, name, batch_size, …)"
            )
        for cells in lines:
            if _is_header(cells):  # of another shard in the same file, which may have other columns
                header = cells
            if not cells or cells == header:
                continue
            if len(cells) != len(header):
                raise Unreadable(
                    f"line {lines.line_num}: {len(cells)} cells, but the header has {len(header)}"
                )
            yield lines.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise Unreadable(f"it is not valid CSV: {error}") from error


def _is_header(cells: Sequence[str]) -> bool:
    return ({"name", "dev"} <= {*cells} or cells in _EXPECTED) and len({*cells}) == len(cells)


def _has_latency(cell: str, place: str) -> bool:
    """Return whether there is a latency above 0.

    The runner writes NaN if it could not measure, and an empty cell for a missing latency.
    """
    latency = _number(cell or "0", place, MAIN)
    return (
        not (isinstance(latency.value, float) and math.isnan(latency.value))
        and latency.number() > 0
    )


def _names(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return the row's name, then its names in tables that know less.

    These are without the batch size, then without the device as well.
    """
    model, device, tag = row["name"], row.get("dev"), row.get("tag")
    full = (model, device, _batch_of(row), tag)
    return tuple(
        dict.fromkeys(
            " ".join(filter(None, parts)) for parts in (full, (model, device, tag), (model,))
        )
    )


def _batch_of(row: Mapping[str, str]) -> str:
    """Return the batch size in words.

    It is empty for 0, which the runner writes for a model that failed before it had one.
    """
    size = row.get("batch_size", "")
    return f"batch={size}" if size not in {"", "0"} else ""


def _series(name: str, row: Mapping[str, str], place: str) -> Iterator[Series]:
    for column, cell in row.items():
        measure = "" if column == MAIN else column
        if column in _COLUMNS and cell:
            unit, better, derived = _COLUMNS[column]
            value = one_run(_number(cell, place, column).number())
            yield Series(
                benchmark=name,
                measure=measure,
                runs=value,
                unit=unit,
                better=better,
                derived=derived,
            )
        elif column not in _KEYS and _is_number(cell):
            yield Series(
                benchmark=name,
                measure=measure,
                runs=one_run(float(cell)),
                unit="",
                better=None,
                derived=True,
            )


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _number(cell: str, place: str, column: str) -> Node:
    """Return the cell as a node, which names its place in errors."""
    try:
        return Node(float(cell), f"{place}, column {column}")
    except ValueError:
        return Node(cell, f"{place}, column {column}")


HEAD = ("dev", "name", "batch_size")
PERFORMANCE = (
    "speedup",
    "abs_latency",
    "compilation_latency",
    "compression_ratio",
    "eager_peak_mem",
    "dynamo_peak_mem",
)
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
MORE = (
    "warm_compilation_latency",
    "package_size",
    "eager_memory_growth",
    "dynamo_memory_growth",
    "recompiles",
)
"""Columns of experiments, after the runner's columns of performance.

The package's size is in bytes.
"""
GIGA = 1e9
PEAKS = ("peak_allocated", "peak_anonymous", "peak_rss")

WORDS = (
    "pass", "pass_due_to_skip", "fail_accuracy", "fail_to_run", "OOM", "eager_1st_run_OOM",
    "eager_1st_run_fail", "eager_2nd_run_OOM", "eager_2nd_run_fail", "eager_two_runs_differ",
    "eager_fail_to_run", "model_fail_to_load", "timeout", "warmup_failed", "not_bitwise_equivalent",
    "fail_to_run_at_batch", "fail_batch_invariance_at", "infra_error", "eager_variation",
)  # fmt: skip
"""Words of the runner's accuracy column; the two of batch invariance end in ``_n``."""
BY_STATUS = {
    Status.TIMEOUT: "timeout",
    Status.OUT_OF_MEMORY: "OOM",
    Status.CRASHED: "fail_to_run",
    Status.FAILED: "fail_to_run",
    Status.NOT_RUN: "infra_error",
}


Cells = Mapping[str, str]
"""One row, by column."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """A file of one configuration: `columns` are always there, `more` where a row has them.

    `rows` are those of a case's arm.
    """

    name: str
    columns: tuple[str, ...]
    more: tuple[str, ...] = ()
    rows: Callable[[CaseResult, str], Sequence[Cells]]

    def text(self, rows: Sequence[Cells]) -> str:
        """Return the whole file."""
        more = (column for column in self.more if any(row.get(column) for row in rows))
        tags = (
            ("tag",)
            if self.columns[: len(HEAD)] == HEAD and any(row.get("tag") for row in rows)
            else ()
        )
        columns = (*self.columns[: len(HEAD)], *tags, *self.columns[len(HEAD) :], *more)
        stream = io.StringIO()
        writer = csv.DictWriter(
            stream, columns, lineterminator="\n", restval="", extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue()


def write(results: Results) -> Files:
    """Write the files of a run by name, such as ``inductor_zoo_fp32_training_cpu_performance.csv``.

    Each arm is a configuration.
    """
    files: dict[str, tuple[_Kind, list[Cells]]] = {}
    device = device_of(results)
    for row in results.cases:
        if row.case.suite != "torchbench" or row.status is Status.SKIPPED:
            continue
        for arm, kind in product(candidates(row), KINDS):
            new_rows = kind.rows(row, arm)
            if new_rows:
                _, rows = files.setdefault(
                    f"{_configuration(row, arm, device)}_{kind.name}.csv", (kind, [])
                )
                keys = {
                    "dev": device,
                    "name": model_of(row),
                    "batch_size": _batch(row),
                    "tag": tag_of(row),
                }
                rows += [{**keys, **cells} for cells in new_rows]
    return {name: Written(text=kind.text(rows)) for name, (kind, rows) in files.items()}


def candidates(row: CaseResult) -> tuple[str, ...]:
    """Return the arms that a case compares with its reference, or only the reference."""
    return tuple(arm for arm in row.case.arms if arm != row.case.reference) or (row.case.reference,)


def accuracy_word(row: CaseResult, arm: str | None = None) -> str | None:
    """Return the runner's word for an arm's end; `None` if accuracy was not requested.

    Without `arm` it is the only arm.
    """
    several = len(candidates(row)) > 1
    check = next(
        (
            check
            for check in row.checks
            if check.name == "accuracy" and (not several or check.arm == arm)
        ),
        None,
    )
    if row.status is Status.OK:
        return _leading_word(check.detail) or check.outcome if check else None
    word = _leading_word(row.failure.reason) if row.failure else None
    return word or BY_STATUS.get(row.status)


def model_of(row: CaseResult) -> str:
    """Return the model's name as the source has it."""
    return str(row.case.params.get("model", row.case.name))


def tag_of(row: CaseResult) -> str:
    """Return the name of the case's entry; empty if it has none.

    In the case's name it is before the model's name, or replaces it.
    """
    model, name = _NO_NAME.sub("_", model_of(row))[-_LONGEST_MODEL:], row.case.name
    if name == model:
        return ""
    return name.removesuffix(f".{model}") if name.endswith(f".{model}") else name


def device_of(results: Results) -> str:
    """Return the measured device: ``cuda`` or ``cpu``."""
    device = results.environment.identity.get("device")
    return str(device or results.run.device).partition(":")[0]


def speedup_of(row: CaseResult, arm: str) -> float | None:
    """Return the median time of the reference over the arm's; `None` if either is unknown."""
    times = [_median(row, "step_time", side) for side in (row.case.reference, arm)]
    return times[0] / times[1] if times[0] and times[1] else None


def _performance(row: CaseResult, candidate: str) -> Sequence[Cells]:
    if row.case.due.times == () and not any(metric.name == "step_time" for metric in row.metrics):
        return ()
    speedup, latency = speedup_of(row, candidate), _median(row, "step_time", candidate)
    peaks = [
        next((peak for name in PEAKS if (peak := _median(row, name, arm))), None)
        for arm in (row.case.reference, candidate)
    ]
    growth = [_median(row, "memory_growth", arm) for arm in (row.case.reference, candidate)]
    ok = row.status is Status.OK
    cells = {
        "speedup": _cell(speedup if ok else 0.0),
        "abs_latency": _cell(latency * 1e3 if latency and ok else 0.0),
        "compilation_latency": _cell(_median(row, "compile_cold", candidate)),
        "compression_ratio": _cell(peaks[0] / peaks[1] if peaks[0] and peaks[1] else None),
        **dict(zip(("eager_peak_mem", "dynamo_peak_mem"), map(_gigabytes, peaks), strict=True)),
        **_counters(row, candidate),
        "warm_compilation_latency": _cell(_median(row, "compile_warm", candidate)),
        "package_size": _whole(_median(row, "package_size", candidate)),
        **dict(
            zip(
                ("eager_memory_growth", "dynamo_memory_growth"),
                map(_gigabytes, growth),
                strict=True,
            )
        ),
        "recompiles": _whole(_median(row, "recompiles", candidate)),
    }
    return (cells,)


def _accuracy(row: CaseResult, arm: str) -> Sequence[Cells]:
    if "accuracy" not in row.case.due.checks:
        return ()
    # A case keeps that of one arm.
    error = row.facts.get("quantization_error") if len(candidates(row)) == 1 else None
    cells = {
        "accuracy": accuracy_word(row, arm) or "infra_error",
        **_counters(row, arm),
        "compilation_latency": _cell(_median(row, "compile_cold", arm)),
        "quantization_error": _cell(error if isinstance(error, int | float) else None),
    }
    return (cells,)


def _coverage(row: CaseResult, arm: str) -> Sequence[Cells]:
    """Return the row of the experiment; nothing if the arm is another one.

    Shares are between 0 and 1, in spite of their names, as in the runner.
    """
    shares = [_median(row, metric, arm) for metric in ("coverage_ops", "coverage_time")]
    if row.status is not Status.OK or shares[0] is None:
        return ()
    counts = (
        _median(row, metric, arm)
        for metric in ("graphs", "graph_calls", "ops_in_graphs", "ops_run")
    )
    return (dict(zip(COVERAGE, [*map(_whole, counts), *map(_cell, shares)], strict=True)),)


def _compilation(row: CaseResult, arm: str) -> Sequence[Cells]:
    """Return the seconds of each phase of a compilation from cold; nothing if none is known.

    A phase does not include the phases inside it.
    """
    cells = {
        f"{phase}_latency": _cell(_median(row, metric, arm)) for phase, metric in PHASES.items()
    }
    return (cells,) if any(cells.values()) else ()


def _graph_breaks(row: CaseResult, arm: str) -> Sequence[Cells]:
    """Return dynamo's graph breaks of an explained arm: reasons, and the user's lines."""
    return tuple(
        {
            "model": model_of(row),
            "reason": broken.reason,
            "user_stack": broken.place,
            "times": str(broken.times),
        }
        for profile in row.profiles
        if profile.arm == arm
        for broken in profile.breaks
    )


KINDS = (
    _Kind(
        name="performance", columns=(*HEAD, *PERFORMANCE, *COUNTERS), more=MORE, rows=_performance
    ),
    _Kind(
        name="accuracy",
        columns=(*HEAD, "accuracy", *COUNTERS, "compilation_latency"),
        more=("quantization_error",),
        rows=_accuracy,
    ),
    _Kind(name="coverage", columns=(*HEAD, *COVERAGE), rows=_coverage),
    _Kind(
        name="compilation_metrics",
        columns=HEAD,
        more=tuple(f"{phase}_latency" for phase in PHASES),
        rows=_compilation,
    ),
    _Kind(
        name="graph_breaks", columns=("model", "reason", "user_stack", "times"), rows=_graph_breaks
    ),
)


def _counters(row: CaseResult, arm: str) -> Cells:
    return {column: _whole(_median(row, metric, arm)) for column, metric in COUNTERS.items()}


def _median(row: CaseResult, metric: str, arm: str) -> float | None:
    metrics = [entry for entry in row.metrics if (entry.name, entry.arm) == (metric, arm)]
    values = [value for entry in metrics for launch in entry.launches for value in launch.values]
    return statistics.median(values) if values else None


def _configuration(row: CaseResult, arm: str, device: str) -> str:
    params = row.case.params
    words = (
        params.get("backend", arm),
        params.get("source"),
        params.get("precision"),
        params.get("mode"),
        device,
    )
    return "_".join(str(word).replace(":", ".").replace("/", ".") for word in words)


def _batch(row: CaseResult) -> str:
    items = next(
        (metric.items for metric in row.metrics if metric.name == "step_time" and metric.items),
        None,
    )
    return str(items) if items else ""


def _leading_word(text: str) -> str | None:
    """Return the word that a detail or a reason begins with.

    An error's class may be before it.
    """
    pieces = [piece.strip() for piece in text.split(":")[:2]]
    return next(
        (
            piece
            for piece in pieces
            if piece in WORDS or any(_numbered(piece, word) for word in WORDS)
        ),
        None,
    )


def _numbered(piece: str, word: str) -> bool:
    return (
        word.endswith(("_batch", "_at"))
        and piece.startswith(word + "_")
        and piece.removeprefix(word + "_").isdigit()
    )


def _whole(value: float | None) -> str:
    return "" if value is None else str(int(value)) if value == int(value) else repr(value)


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    short = f"{value:.6f}"
    return short if float(short) == value else repr(float(value))


def _gigabytes(value: float | None) -> str:
    return _cell(None if value is None else value / GIGA)
