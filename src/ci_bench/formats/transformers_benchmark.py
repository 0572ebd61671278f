"""CSV files and log of transformers' former `PyTorchBenchmark`.

They are written from a run of the suite `transformers`.

Columns, sections and widths are those of its last version (transformers 4.44,
`benchmark_utils.py`), so its readers keep working. Three things are corrected: a time has six
digits and not four decimals, memory is called MiB, which it always was, and files are named after
the run and not after the moment of an import. A time is the median of the launches' medians, where
the old one was the fastest of three blocks. These files cannot hold samples and their spread,
generations and checks; arms appear only as a name next to the model's.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from ci_bench.formats.exporting import Files, Written, one_file
from ci_bench.records.forms import Fact
from ci_bench.records.results import LARGEST_BATCH, CaseResult, Metric, Results, Status

SUITE = "transformers"
MISSING = "N/A"
MODES = {
    "inference": ("inference", "INFERENCE - {} - RESULT"),
    "training": ("train", "TRAIN - {} - RESULTS"),
}
"""Prefix of the old files' names, and titles of the log's sections, by the mode of a case."""
MEMORY = ("process_vram", "peak_reserved", "peak_allocated", "peak_anonymous", "peak_rss")
"""Metrics of memory, of which the first measured one counts.

The old figure was a whole GPU's or a whole process's.
"""
KINDS = {"time": ("SPEED", "Time in s"), "memory": ("MEMORY", "Memory in MiB")}
PLAIN = {"precision": "fp32", "attention": "auto"}
MEBIBYTE = 2**20
MOST_LETTERS = 300
COLUMNS = ("model", "batch_size", "sequence_length")

Key = tuple[str, str, str]
"""Model, batch size and sequence length, as the old tables write them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cell:
    """One figure of one arm, `None` if missing."""

    key: Key
    value: float | None


def write_files(results: Results) -> Files:
    """Write the old files by their names.

    They are times and memory of inference and training if measured, the environment, and the log.
    """
    stamp = int(datetime.fromisoformat(results.run.started_at).timestamp())
    left_out = _left_out(results)
    files = {}
    for mode, (prefix, _) in MODES.items():
        for kind in KINDS:
            if cells := _merged(_cells(results, mode, kind)):
                files[f"{prefix}_{kind}_{stamp}.csv"] = Written(
                    text=_csv(cells, kind), left_out=left_out
                )
    environment = _environment(results)
    files[f"env_info_{stamp}.csv"] = Written(text=_rows(environment.items()))
    files[f"log_{stamp}.txt"] = write_log(results)
    return files


def write_log(results: Results) -> Written:
    """Write the old log: a table for each mode and kind, and the environment.

    Utilisation is added where the GPU's peak is known.
    """
    lines: list[str] = []
    for mode, (_, title) in MODES.items():
        for kind, (word, label) in KINDS.items():
            if cells := _merged(_cells(results, mode, kind)):
                lines += [*_title(title.format(word)), *_table(cells, label, kind)]
        if used := _merged(_utilisations(results, mode)):
            lines += [
                *_title(title.format("UTILISATION")),
                *_table(used, "% of peak", "utilisation"),
            ]
    for row in _rows_of(results):
        if row.status is not Status.OK:
            lines.append(
                f"{row.case.id}: {row.status.value.replace('_', ' ')}: {_reason(row)}".rstrip(": ")
            )
    lines += [
        *_title("ENVIRONMENT INFORMATION"),
        *(f"- {name}: {value}" for name, value in _environment(results).items()),
        "",
    ]
    return Written(text="\n".join(lines), left_out=_left_out(results))


def utilisation(row: CaseResult, arm: str) -> float | None:
    """Return the share of the device's peak that an arm's steps reach, 0..1.

    It is `None` if time, operations or peak are unknown.
    """
    seconds = _typical(row, arm, ("step_time",))
    operations, peak = row.facts.get("model_flops_per_step"), row.facts.get("peak_flops_per_s")
    if seconds is None or not _is_number(operations) or not _is_number(peak):
        return None
    return float(operations) / seconds / float(peak)  # type: ignore[arg-type] # both are numbers here


def _cells(results: Results, mode: str, kind: str) -> Iterator[_Cell]:
    """Yield one cell for each arm of each case that measured this, or should have."""
    switch = {"time": "speed", "memory": "memory"}[kind]
    for row in _rows_of(results):
        if row.case.params.get("mode") == mode and row.case.params.get(switch, True):
            names = ("step_time",) if kind == "time" else _memory_of(row)
            for arm in row.case.arms:
                yield _Cell(key=_key(row, arm), value=_typical(row, arm, names))


def _memory_of(row: CaseResult) -> tuple[str, ...]:
    """Return the metrics of memory that all arms of a case have, to compare them."""
    measured = {(metric.name, metric.arm) for metric in row.metrics}
    return (
        tuple(name for name in MEMORY if all((name, arm) in measured for arm in row.case.arms))
        or MEMORY
    )


def _utilisations(results: Results, mode: str) -> Iterator[_Cell]:
    for row in _rows_of(results):
        if row.case.params.get("mode") == mode:
            for arm in row.case.arms:
                share = utilisation(row, arm)
                if share is not None:
                    yield _Cell(key=_key(row, arm), value=100 * share)


def _merged(cells: Iterator[_Cell]) -> dict[Key, float | None]:
    """Return one value for each key.

    The eager arm is measured with every candidate: the median of those.
    """
    values_by_key: dict[Key, list[float]] = {}
    for cell in cells:
        values_by_key.setdefault(cell.key, []).extend([] if cell.value is None else [cell.value])
    return {key: median(values) if values else None for key, values in values_by_key.items()}


def _key(row: CaseResult, arm: str) -> Key:
    """Return the key of an arm in the old tables.

    They have no arms and no precisions: other settings than the usual ones follow the model's name.
    """
    params = row.case.params
    marks = [arm] if arm != row.case.reference else []
    marks += [
        str(params[name]) for name, default in PLAIN.items() if params.get(name, default) != default
    ]
    name = f"{row.case.name} ({', '.join(marks)})" if marks else row.case.name
    length = params.get("sequence_length")
    rows = row.facts.get(LARGEST_BATCH, params.get("batch_size"))
    return name, "" if rows is None else str(rows), "" if length is None else str(length)


def _typical(row: CaseResult, arm: str, names: Sequence[str]) -> float | None:
    """Return the median of the launches' medians.

    It is of the first of these metrics that the arm has; `None` if it has none of them.
    """
    by_name: Mapping[str, Metric] = {
        metric.name: metric for metric in row.metrics if metric.arm == arm
    }
    for name in names:
        values = (
            [median(launch.values) for launch in by_name[name].launches if launch.values]
            if name in by_name
            else []
        )
        if values:
            return median(values)
    return None


def _csv(cells: Mapping[Key, float | None], kind: str) -> str:
    def format_value(value: float | None) -> str:
        if value is None:
            return MISSING
        return f"{value:.6g}" if kind == "time" else str(int(value) // MEBIBYTE)

    return _rows(
        [(*COLUMNS, "result"), *((*key, format_value(value)) for key, value in cells.items())]
    )


def _rows(rows: Iterable[tuple[str, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _title(words: str) -> list[str]:
    return ["", 20 * "=" + words.center(40) + 20 * "="]


def _table(cells: Mapping[Key, float | None], label: str, kind: str) -> list[str]:
    head = (
        "Model Name".center(30)
        + "Batch Size".center(15)
        + "Seq Length".center(15)
        + label.center(15)
    )
    rows = [
        f"{name[:30].center(30)}{batch.center(15)} {(length or '-').center(15)}"
        f" {_figure(value, kind).center(15)}"
        for (name, batch, length), value in cells.items()
    ]
    return [80 * "-", head, 80 * "-", *rows, 80 * "-"]


def _figure(value: float | None, kind: str) -> str:
    """Format a figure; the last digit of a time is a millisecond, as in the old tables."""
    if value is None:
        return MISSING
    if kind == "time":
        return "< 0.001" if round(value, 3) == 0 else str(round(value, 3))
    return str(int(value) // MEBIBYTE) if kind == "memory" else f"{value:.1f}"


def _environment(results: Results) -> dict[str, str]:
    """Return the old fields in their order; unknown ones are N/A."""
    facts: dict[str, Fact] = {**results.environment.condition, **results.environment.identity}
    started = datetime.fromisoformat(results.run.started_at)
    params = [row.case.params for row in _rows_of(results)]
    arms = {arm for row in _rows_of(results) for arm in row.case.arms}
    gpu = facts.get("device") == "cuda"
    fields: dict[str, object] = {
        "transformers_version": facts.get("transformers"),
        "framework": "PyTorch",
        "use_torchscript": "torchscript" in arms,
        "framework_version": facts.get("torch"),
        "python_version": facts.get("python"),
        "system": "Linux",
        "cpu": facts.get("cpu"),
        "architecture": "64bit",  # torch has no other
        "date": started.date(),
        "time": started.time(),
        "fp16": _common(case_params.get("precision") == "fp16" for case_params in params),
        "use_multiprocessing": True,
        "only_pretrain_model": _common(
            case_params.get("only_pretrain_model", False) for case_params in params
        ),
        "cpu_ram_mb": _mebibytes(facts.get("memory_total_bytes")),
        "use_gpu": gpu,
    }
    if gpu:
        fields |= {
            "num_gpus": 1,
            "gpu": facts.get("gpu"),
            "gpu_ram_mb": _mebibytes(facts.get("gpu_memory_bytes")),
            "gpu_power_watts": facts.get("gpu_power_limit_w"),
            "gpu_performance_state": None,
        }
    fields["use_tpu"] = False
    return {name: MISSING if value is None else str(value) for name, value in fields.items()}


def _reason(row: CaseResult) -> str:
    """Explain why a case failed, on one line."""
    text = row.failure.reason if row.failure else ""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[
        :MOST_LETTERS
    ]


def _common(values: Iterable[bool]) -> str:
    """Return the one value, or ``some`` if there are several."""
    texts = sorted({str(value) for value in values})
    return texts[0] if len(texts) == 1 else "some" if texts else MISSING


def _mebibytes(value: Fact) -> int | None:
    return int(float(value)) // MEBIBYTE if _is_number(value) else None  # type: ignore[arg-type] # it is a number here


def _is_number(value: Fact) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _left_out(results: Results) -> tuple[str, ...]:
    """List parts of the results that these files lack."""
    written = {"step_time", *MEMORY}
    return tuple(
        f"{row.case.id} ({metric.arm}) {metric.name}"
        for row in results.cases
        for metric in row.metrics
        if row.case.suite != SUITE
        or row.case.params.get("mode") not in MODES
        or metric.name not in written
    )


def _rows_of(results: Results) -> list[CaseResult]:
    return [row for row in results.cases if row.case.suite == SUITE]


def export_log(results: Results) -> Files:
    """Return the old log as a file."""
    return one_file(write_log(results))
