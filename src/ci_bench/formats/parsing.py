"""Parser of strict JSON, and nodes that name their place in errors."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Never

from ci_bench.formats.series import Unreadable
from ci_bench.records.faults import show, step

MAX_NAME = 2000
MAX_FIELDS = 50_000
"""Limit for one object; far more than there may be series."""


def parse_json(text: str) -> "Node":
    """Return the root of a JSON text.

    NaN and infinities are let through, in any case of letters, since tools write them for what they
    could not measure; `Node.number` refuses them.

    Raises:
        Unreadable: not valid JSON, nested too deep, or names a field twice.
    """
    try:
        return Node(json.loads(_with_words(text), object_pairs_hook=_object), "$")
    except json.JSONDecodeError as error:
        raise Unreadable(
            f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}{_why(error)}"
        ) from error
    except RecursionError as error:
        raise Unreadable("it is nested too deep") from error
    except ValueError as error:
        raise Unreadable("an integer has too many digits") from error


_EXCERPT, _VALUE = 20, re.compile(r"\S")
_COMMA = re.compile(r"\d,$")


def _why(error: json.JSONDecodeError) -> str:
    """Return the place of an error in words, and its cause if that is certain."""
    if error.doc.lstrip().startswith(("{", "[")) and error.pos >= len(error.doc.rstrip()):
        return "; the text is cut short"
    rest = error.doc[error.pos : error.pos + _EXCERPT]
    if error.msg == "Extra data":
        more = "; put each JSON text in a separate file" if rest.startswith(("{", "[")) else ""
        return f" at {show(rest)}{more}"
    if _COMMA.search(error.doc[: error.pos]) and rest[:1].isdigit():
        return f" at {show(rest)}; if it is a decimal comma, run the tool with LC_ALL=C"
    return f" at {show(rest)}"


def parse_each(text: str) -> "Node | None":
    """Parse several JSON texts in a row, on separate lines or not, as a list.

    Lists among them are joined. It returns `None` if one of them is not JSON.
    """
    decoder, words, place = json.JSONDecoder(object_pairs_hook=_object), _with_words(text), 0
    values: list[Any] = []
    try:
        while match := _VALUE.search(words, place):
            value, place = decoder.raw_decode(words, match.start())
            values += value if isinstance(value, list) else [value]
    except (ValueError, RecursionError):
        return None
    return Node(values, "$")


_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|-?\b(?:nan|inf|infinity)\b', re.IGNORECASE)
_NUMBERS = {
    "nan": "NaN",
    "-nan": "NaN",
    "inf": "Infinity",
    "-inf": "-Infinity",
    "infinity": "Infinity",
    "-infinity": "-Infinity",
}
_LOWER = re.compile(r"[:,\[\s]-?(?:nan|inf)\b")


def _with_words(text: str) -> str:
    """Spell numbers that are not finite as Python's parser does.

    C++ prints ``nan`` and ``inf``. Strings stay.
    """
    if _LOWER.search(text) is None:
        return text
    return _WORD.sub(lambda match: _NUMBERS.get(match[0].lower(), match[0]), text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_FIELDS:
        raise Unreadable(f"an object has {len(pairs):,} fields; at most {MAX_FIELDS:,} are read")
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names: set[str] = set()
        twice = next(name for name, _ in pairs if name in names or names.add(name))  # type: ignore[func-returns-value]
        raise Unreadable(
            f"an object has the field {show(twice)} twice, and only one of them can be meant"
        )
    return fields


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a JSON text and its position in the text."""

    value: Any
    path: str

    def wrong(self, why: str) -> Never:
        """Raise `Unreadable` about this place."""
        raise Unreadable(f"{self.path}: {why}")

    def has(self, *names: str) -> bool:
        """Return whether it is a mapping with all of these fields."""
        return isinstance(self.value, dict) and all(name in self.value for name in names)

    def field(self, name: str) -> "Node":
        """Return a field that must exist."""
        if not isinstance(self.value, dict):
            self.wrong(f"{show(self.value)} is not a mapping")
        if name not in self.value:
            self.wrong(f"the field {name!r} is missing")
        return Node(self.value[name], step(self.path, name))

    def get(self, name: str) -> "Node | None":
        """Return a field, or `None` if it is absent or null."""
        child = self.field(name) if self.has(name) else None
        return None if child is None or child.value is None else child

    def items(self) -> "Iterator[Node]":
        """Return the items of a list."""
        if not isinstance(self.value, list):
            self.wrong(f"{show(self.value)} is not a list")
        return (Node(item, step(self.path, index)) for index, item in enumerate(self.value))

    def fields(self) -> "Iterator[tuple[str, Node]]":
        """Return the fields of a mapping."""
        if not isinstance(self.value, dict):
            self.wrong(f"{show(self.value)} is not a mapping")
        return ((name, Node(item, step(self.path, name))) for name, item in self.value.items())

    def text(self) -> str:
        """Return a text that is not empty."""
        if not isinstance(self.value, str) or not self.value.strip():
            self.wrong(f"{show(self.value)} is not a text")
        if len(self.value) > MAX_NAME:
            self.wrong(
                f"a text of {len(self.value):,} characters; at most {MAX_NAME:,} are allowed"
            )
        return str(self.value)

    def number(self) -> float:
        """Return a finite number."""
        if not is_number(self.value):
            self.wrong(f"{show(self.value)} is not a finite number")
        return float(self.value)

    def numbers(self) -> tuple[float, ...]:
        """Return a list of finite numbers."""
        if isinstance(self.value, list) and all(map(is_number, self.value)):
            return tuple(map(float, self.value))
        return tuple(item.number() for item in self.items())


def is_number(value: Any) -> bool:
    """Return whether it is a finite number, and neither true nor false."""
    if type(value) not in {int, float}:
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_missing(value: Any) -> bool:
    """Return whether a value is null or NaN, which tools write if they could not measure."""
    return value is None or (isinstance(value, float) and math.isnan(value))
