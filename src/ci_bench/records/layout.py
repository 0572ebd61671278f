"""How the JSON of a document lies on its lines, so that it can be read and compared by eye. Pure."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

one_line = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
"""Raises `ValueError` where a number is not finite."""


def many_lines(value: Any, indent: str = "") -> str:
    """One line for each field and for each list of numbers. Raises `ValueError` where a number is not finite."""
    inner = indent + " "
    if isinstance(value, Mapping) and value:
        fields = (f"{inner}{one_line(key)}: {many_lines(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(item, dict | list | tuple) for item in value):
        return "[\n" + ",\n".join(inner + many_lines(item, inner) for item in value) + f"\n{indent}]"
    return _one_value(value)


def _one_value(value: Any) -> str:
    """A number as the encoder writes it, without the preparations that it makes for each."""
    if type(value) is int or (type(value) is float and isfinite(value)):
        return repr(value)
    return one_line(value)
