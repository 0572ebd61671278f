"""The tables (CSV) of PyTorch's dynamo and TorchBench runners, read: performance and accuracy.

Latencies are in milliseconds, latencies of compilation in seconds, memory in gigabytes (``output_csv`` and its callers in
``benchmarks/dynamo/common.py``).
"""

import csv
import math
from collections.abc import Iterator, Mapping

from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Absent, Reading, Series, Unreadable, one_run
from ci_bench.records.case import Better

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
