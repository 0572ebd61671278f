"""Tables of trainings: CSV with a header, columns without names, and JSON of step to value.

Owns how each becomes rows of names and values, each with the line or position that people find it
by. So write Lightning (``metrics.csv``), ultralytics (``results.csv``), torchtitan (``1 8.1234``:
columns without names, which are called ``1`` and ``2``) and Megatron-LM (golden values: ``{"lm
loss": {"values": {"1": 10.9}}}``).
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_names import OF_EVALUATION, is_evaluated
from ci_bench.formats.training_numbers import Commas, NotANumber, parse_spelled

Row = tuple[int, dict[str, Any]]
HISTORY = "log_history"
MOST_COLUMNS, MOST_DEPTH = 1000, 8
LEAST_ROWS = 2
NAMED = ("step", "loss")
"""The names of two columns that have none."""
_WITH_LOSS = re.compile(r"loss[\s:=]{1,9}[-+]?\d+\.\d", re.IGNORECASE)
"""A name with its number: the text is lines of a log, no header."""
_MESSAGES = ("message", "msg", "event", "text")
_BAR_AFTER = re.compile(r":\s{1,4}\d{1,3}%.*$")
"""The progress bar after a row of numbers, as ultralytics draws it."""
_OF_ALL = re.compile(r"\d{1,9}/\d{1,9}")
_BARS = "|│┃║"
_RULES = _BARS + "-=+:·─━═┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋┡┩╇╈┢┪╞╡╪╔╗╚╝╠╣╦╩╬ \t"


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
        and not any(map(_WITH_LOSS.search, header))
        and all(header)
        and all(len(row) == len(header) for row in rows[: -1 or None])
        and any(_is_number(cell) for cell in rows[0])
    )


def rows_of_table(text: str) -> Iterator[Row]:
    """Yield the rows of CSV (commas, semicolons or tabs), with decimal commas as points.

    Empty cells are left out.

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
        names = _without_run(header)
        commas = delimiter == ";" and Commas.of(re.split(r"[;\s]+", text)).decimal
        for row in reader:
            if row == [] or [name.strip() for name in row] == header:
                continue
            if len(row) != len(header):
                raise Unreadable(
                    f"line {reader.line_num} has {len(row)} cells, but the header has {len(header)}"
                )
            values = [cell.strip().replace(",", ".") if commas else cell.strip() for cell in row]
            cells = {name: cell for name, cell in zip(names, values, strict=True) if cell}
            yield reader.line_num - 1, cells
    except csv.Error as error:
        raise Unreadable(f"line {reader.line_num} is not a valid table row: {error}") from None


def _without_run(header: Sequence[str]) -> list[str]:
    """Return the names in a chart that W&B exported, without that of its only run.

    Such a header is ``Step, sunny-1 - loss, sunny-1 - loss__MIN, sunny-1 - loss__MAX``.
    """
    runs = {name.rpartition(" - ")[0] for name in header if f"{name}__MIN" in header}
    if len(runs) != 1:
        return list(header)
    prefix = f"{runs.pop()} - "
    return [name.removeprefix(prefix) for name in header]


def is_columns(text: str) -> bool:
    """Return whether each line of a text has the same count of numbers.

    Comments and a header of names do not count.
    """
    rows = [
        line.split() for line in text.splitlines()[:20] if line.strip() and not line.startswith("#")
    ]
    if rows and not any(map(_is_number, rows[0])):
        rows = (
            [row for row in rows if len(row) == len(rows[0])][1:]
            if len(rows[1:]) >= LEAST_ROWS
            else []
        )
    return (
        len(rows) >= LEAST_ROWS
        and {len(row) for row in rows[:-1]} == {len(rows[0])}
        and all(_is_number(cell) for row in rows for cell in row)
    )


def rows_of_columns(text: str) -> Iterator[Row]:
    """Yield the rows of columns: by the names of a header, if any, and by their number, from 1.

    Two columns without names are step and loss.

    Raises:
        Unreadable: a line has another number of columns.
    """
    header: list[str] = []
    for number, line in enumerate(text.splitlines()):
        cells = line.split()
        if not cells or line.startswith("#"):
            continue
        if not header:
            is_header = not any(map(_is_number, cells))
            header = cells if is_header else _names_of_columns(len(cells))
            if is_header:
                continue
        if len(cells) != len(header):
            raise Unreadable(
                f"line {number + 1} has {len(cells)} columns, and the first {len(header)}"
            )
        yield (
            number,
            {str(column): cell for column, cell in enumerate(cells, 1)}
            | dict(zip(header, cells, strict=True)),
        )


def _names_of_columns(width: int) -> list[str]:
    """Return the names of columns that have no header."""
    return (
        list(NAMED)
        if width == len(NAMED)
        else ["loss"]
        if width == 1
        else list(map(str, range(1, width + 1)))
    )


def rows_of_document(document: Any) -> list[Row] | None:
    """Return the rows of a JSON document; `None` if it has none.

    It is one of series (step to value, or lists), a list of records, or has a `log_history`.
    """
    if isinstance(document, list):
        records = [(number, row) for number, row in enumerate(document) if isinstance(row, dict)]
        return records or _rows_of_points(document)
    if not isinstance(document, dict):
        return None
    if isinstance(document.get(HISTORY), list):
        return [
            (number, row) for number, row in enumerate(document[HISTORY]) if isinstance(row, dict)
        ]
    series = {name: _series(entry) for name, entry in document.items()}
    if not any(series.values()) and (values_by_step := _series(document)):
        series = {"loss": values_by_step}
    by_step: dict[int, dict[str, Any]] = {}
    for name, values in series.items():
        for step, value in (values or {}).items():
            by_step.setdefault(step, {"step": step})[name] = value
    if not by_step and len(document) == 1:  # {"history": {"loss": [4.2, 4.1]}}
        return rows_of_document(next(iter(document.values())))
    return [(number, by_step[step]) for number, step in enumerate(sorted(by_step))] or None


def _rows_of_points(points: Sequence[Any]) -> list[Row] | None:
    """Return the rows of points; `None` for anything else.

    A point is ``[step, loss]``, or ``[time, step, loss]`` as TensorBoard exports them.
    """
    if not points or not all(_is_point(point) for point in points):
        return None
    return [
        (number, dict(zip(NAMED, point[-2:], strict=True))) for number, point in enumerate(points)
    ]


def _is_point(point: Any) -> bool:
    return (
        isinstance(point, list)
        and len(point) in {2, 3}
        and all(isinstance(value, int | float) for value in point)
    )


def _series(entry: Any) -> dict[int, Any] | None:
    """Return the values of one name by step; `None` if it has none."""
    if isinstance(entry, Mapping) and isinstance(values := entry.get("values"), list | Mapping):
        if isinstance(values, Mapping):
            return _series(values)
        start, interval = entry.get("start_step", 0), entry.get("step_interval", 1)
        if not (isinstance(start, int) and isinstance(interval, int) and interval > 0):
            return None
        return {start + position * interval: value for position, value in enumerate(values)}
    if isinstance(entry, Mapping) and entry and all(_is_step(key) for key in entry):
        return {int(key): value for key, value in entry.items()}
    return _series_of_list(entry) if isinstance(entry, list) else None


def _series_of_list(entry: Sequence[Any]) -> dict[int, Any] | None:
    """Return the values of a list by their position, or of points by their step."""
    if entry and all(isinstance(value, int | float) for value in entry):
        return dict(enumerate(entry))
    points = _rows_of_points(entry)
    return {row["step"]: row["loss"] for _, row in points} if points else None


def _is_step(key: Any) -> bool:
    return isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) <= 15  # noqa: PLR2004 - digits of a step


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a JSON object and of the objects in it, by name.

    Inner ones are ``metrics.loss``, and also ``loss`` if that is free and no object is in theirs.
    """
    nested = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    if not nested:
        return dict(values)
    flattened = dict(values)
    for name, value in nested.items():
        flattened |= {f"{name}.{key}": each for key, each in _leaves(value, MOST_DEPTH)}
        has_objects = any(isinstance(each, Mapping) for each in value.values())
        if not has_objects and not is_evaluated(f"{name}.loss"):
            flattened = {**value, **flattened}
    return flattened


def _leaves(values: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the values in an object and in the objects in it, with dots in their names."""
    for name, value in values.items():
        if not isinstance(value, Mapping):
            yield name, value
        elif depth > 1:
            yield from ((f"{name}.{key}", each) for key, each in _leaves(value, depth - 1))


def messages_of(rows: Sequence[Row]) -> str:
    """Return the lines of text in a log of JSON objects, each at the line of its object."""
    texts = {
        line: next((row[name] for name in _MESSAGES if isinstance(row.get(name), str)), "")
        for line, row in rows
    }
    return "\n".join(
        texts.get(line, "").replace("\n", " ") for line in range(max(texts, default=-1) + 1)
    )


def rows_of_drawing(text: str) -> list[Row]:
    """Return the rows of drawn tables and of blocks.

    A table is drawn with bars or laid out with spaces. A block has two columns, name and value.
    """
    rows, headers, section, block = list[Row](), dict[int, list[str]](), "", dict[str, Any]()
    bar = ""
    for number, line in enumerate(text.splitlines()):
        bare = _BAR_AFTER.sub("", line)
        cells = _cells(bare)
        if len(cells) < LEAST_ROWS:
            if block:
                rows.append((number, block))
            section, block = "", {}
            if line.strip(_RULES):
                headers = {}
        elif not any(map(_is_number, cells)) and all(cells):
            headers = {len(names): names for names in (_wide_cells(bare), cells)}
        elif len(cells) in headers and any(map(_is_number, cells)):
            if bar and bar == (cells[0] if bare != line else ""):
                rows.pop()  # the bar of this row was drawn again
            bar = cells[0] if bare != line else ""
            rows.append((number, _drawn_row(headers[len(cells)], cells)))
        elif len(cells) == LEAST_ROWS and not _is_number(cells[0]):
            section = cells[0] if not cells[1] else section
            block |= {section + cells[0]: cells[1]} if cells[1] else {}
    return [*rows, (len(text.splitlines()), block)] if block else rows


def _drawn_row(header: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    """Return a drawn row by name: ``1/100`` is 1, and a first cell ``validation`` is a split."""
    row: dict[str, Any] = {
        name: cell.partition("/")[0] if _OF_ALL.fullmatch(cell) else cell
        for name, cell in zip(header, cells, strict=True)
        if cell
    }
    return {"split": cells[0], **row} if cells[0].lower() in OF_EVALUATION else row


def _cells(line: str) -> list[str]:
    """Return the cells of a line between bars, else its words if spaces lay it out as a table.

    A rule has no cells.
    """
    bare = line.strip()
    if not bare.strip(_RULES):
        return []
    if bare[0] in _BARS and bare[-1] in _BARS:
        return [cell.strip() for cell in re.split(f"[{_BARS}]", bare[1:-1])]
    return bare.split() if re.search(r"\S\s{2,}\S", bare) else []


def _wide_cells(line: str) -> list[str]:
    """Return the parts of a line between two spaces or more: names of several words."""
    bare = line.strip()
    return _cells(line) if bare[:1] in _BARS else re.split(r"\s{2,}", bare)


def names_of(rows: Sequence[Row]) -> list[str]:
    """Return the names in rows, in the order of their first rows."""
    names = (
        name for _, row in rows for name, value in row.items() if not isinstance(value, Mapping)
    )
    return list(dict.fromkeys(names))[:MOST_COLUMNS]


def document_of(text: str) -> Any:
    """Return the JSON of a text, or `None`."""
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
