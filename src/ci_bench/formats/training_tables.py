"""Tables of trainings: CSV with a header, columns without names, and JSON documents of step to value.

Owns how each becomes rows of names and values, each with the line or position that people find it by. So write Lightning
(``metrics.csv``), ultralytics (``results.csv``), torchtitan (``1 8.1234``: columns without names, which are called ``1`` and
``2``) and Megatron-LM (golden values: ``{"lm loss": {"values": {"1": 10.9}}}``).
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_numbers import NotANumber, parse_spelled

Row = tuple[int, dict[str, Any]]
HISTORY = "log_history"
MOST_COLUMNS = 1000
LEAST_ROWS = 2
NAMED = ("step", "loss")
"""The names of two columns that have none."""


def is_table(text: str) -> bool:
    """Return whether a text is a header and rows of as many cells, one of them a number."""
    lines = [line for line in text.splitlines()[:20] if line.strip()]
    if len(lines) < LEAST_ROWS or (delimiter := _delimiter(lines[0])) is None:
        return False
    try:
        header, *rows = csv.reader(lines, delimiter=delimiter)
    except csv.Error:
        return False
    return (
        bool(rows)
        and not any(map(_is_number, header))
        and all(header)
        and all(len(row) == len(header) for row in rows[: -1 or None])
        and any(_is_number(cell) for cell in rows[0])
    )


def rows_of_table(text: str) -> Iterator[Row]:
    """The rows of CSV (commas, semicolons or tabs); empty cells are left out.

    Raises:
        Unreadable: a row has another number of cells than the header.
    """
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = _delimiter(first)
    if delimiter is None:
        raise Unreadable("it is not a table: the first line has no names separated by commas")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=False)
    try:
        header = [name.strip() for name in next(row for row in reader if row)]
        for row in reader:
            if row == [] or [name.strip() for name in row] == header:
                continue
            if len(row) != len(header):
                raise Unreadable(f"line {reader.line_num} has {len(row)} cells, but the header has {len(header)}")
            cells = {name: cell.strip() for name, cell in zip(header, row, strict=True) if cell.strip()}
            yield reader.line_num - 1, cells
    except csv.Error as error:
        raise Unreadable(f"line {reader.line_num} is not a valid table row: {error}") from None


def is_columns(text: str) -> bool:
    """Return whether each line of a text, except comments, has the same count of numbers."""
    rows = [line.split() for line in text.splitlines()[:20] if line.strip() and not line.startswith("#")]
    return (
        len(rows) >= LEAST_ROWS
        and {len(row) for row in rows[:-1]} == {len(rows[0])}
        and all(_is_number(cell) for row in rows for cell in row)
    )


def rows_of_columns(text: str) -> Iterator[Row]:
    """The rows of columns without names: two are step and loss, and all are called by their number, from 1.

    Raises:
        Unreadable: a line has another number of columns.
    """
    width = 0
    for number, line in enumerate(text.splitlines()):
        if not line.strip() or line.startswith("#"):
            continue
        cells = line.split()
        width = width or len(cells)
        if len(cells) != width:
            raise Unreadable(f"line {number + 1} has {len(cells)} columns, and the first {width}")
        row = {str(column): cell for column, cell in enumerate(cells, 1)}
        if width == len(NAMED):
            row |= dict(zip(NAMED, cells, strict=True))
        elif width == 1:
            row["loss"] = cells[0]
        yield number, row


def rows_of_document(whole: Any) -> list[Row] | None:
    """The rows of a JSON document of series (step to value, or lists), of a list of records, or of `log_history`."""
    if isinstance(whole, list):
        return [(number, row) for number, row in enumerate(whole) if isinstance(row, dict)] or None
    if not isinstance(whole, dict):
        return None
    if isinstance(whole.get(HISTORY), list):
        return [(number, row) for number, row in enumerate(whole[HISTORY]) if isinstance(row, dict)]
    series = {name: _series(entry) for name, entry in whole.items()}
    if not any(series.values()) and (alone := _series(whole)):
        series = {"loss": alone}
    found: dict[int, dict[str, Any]] = {}
    for name, values in series.items():
        for step, value in (values or {}).items():
            found.setdefault(step, {"step": step})[name] = value
    return [(number, found[step]) for number, step in enumerate(sorted(found))] or None


def _series(entry: Any) -> dict[int, Any] | None:
    """The values of one name by step."""
    if isinstance(entry, Mapping) and isinstance(values := entry.get("values"), list | Mapping):
        if isinstance(values, Mapping):
            return _series(values)
        start, interval = entry.get("start_step", 0), entry.get("step_interval", 1)
        if not (isinstance(start, int) and isinstance(interval, int) and interval > 0):
            return None
        return {start + position * interval: value for position, value in enumerate(values)}
    if isinstance(entry, Mapping) and entry and all(_is_step(key) for key in entry):
        return {int(key): value for key, value in entry.items()}
    if isinstance(entry, list) and entry and all(isinstance(value, int | float) for value in entry):
        return dict(enumerate(entry))
    return None


def _is_step(key: Any) -> bool:
    return isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) <= 15  # noqa: PLR2004 - digits of a step


def names_of(rows: Sequence[Row]) -> list[str]:
    """The names in rows, as often as they come first."""
    return list(dict.fromkeys(name for _, row in rows for name in row))[:MOST_COLUMNS]


def document_of(text: str) -> Any:
    """The JSON that a text is, or `None`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _delimiter(line: str) -> str | None:
    counts = {delimiter: line.count(delimiter) for delimiter in ",;\t"}
    best = max(counts, key=lambda delimiter: counts[delimiter])
    return best if counts[best] else None


def _is_number(text: str) -> bool:
    try:
        parse_spelled(text)
    except NotANumber:
        return False
    return True
