"""Words for differences between text, bytes and whole numbers, which tensors hold.

`functions` puts text and bytes into tensors of bytes, under a name that says so. Imports torch.
"""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

TEXT, BYTES, WHOLE_NUMBER = "text", "bytes", "whole number"
_KINDS = re.compile(rf"\(({TEXT}|{BYTES}|{WHOLE_NUMBER})\)")
_BEFORE, _AFTER = 10, 10
"""Characters shown around the first difference."""
_ITEM = "\x1e"
"""Ends an item of many in one text."""


def kind_of_plain(name: str) -> str:
    """Return the kind of a plain value by its tensor's name; empty for any other tensor.

    The name ``output: name (text)`` is of the kind ``text``.
    """
    match = _KINDS.search(name)
    return match[1] if match else ""


def differing_value(name: str, actual: Tensor, expected: Sequence[Tensor]) -> str:
    """Show the first difference of a value without rounding; empty without one.

    An example is ``'Lisp' instead of 'List' at character 4``. Empty also for real numbers, for
    another form, and if the expected values differ from each other: then rounding decides them.
    """
    kind, owed = kind_of_plain(name), expected[0]
    if actual.dtype != owed.dtype or actual.is_floating_point() or actual.is_complex():
        return ""
    if not (kind or actual.shape == owed.shape) or torch.equal(actual, owed):
        return ""
    if not all(
        alternative.shape == owed.shape and torch.equal(alternative.to(owed.dtype), owed)
        for alternative in expected[1:]
    ):
        return ""
    return (
        _of_texts(*(_read(bytes(value.tolist()), kind) for value in (actual, owed)))
        if kind
        else _of_numbers(actual, owed)
    )


def _of_numbers(actual: Tensor, owed: Tensor) -> str:
    places = (actual != owed).nonzero()
    place = tuple(places[0].tolist())
    words = f"{actual[place].item()} instead of {owed[place].item()}"
    return (
        words
        if actual.ndim == 0
        else f"{words} at {list(place)}; {len(places):,} of {actual.numel():,} differ"
    )


def _read(content: bytes, kind: str) -> str | bytes:
    return content if kind == BYTES else content.decode("utf-8", "surrogatepass")


def _of_texts(actual: str | bytes, expected: str | bytes) -> str:
    pairs = zip(actual, expected, strict=False)
    place = next(
        (at for at, (first, second) in enumerate(pairs) if first != second),
        min(len(actual), len(expected)),
    )
    shown, owed = (_excerpt(text, place) for text in (actual, expected))
    unit = "byte" if isinstance(actual, bytes) else "character"
    return f"{shown} instead of {owed} at {unit} {place + 1:,}"


def _excerpt(text: str | bytes, place: int) -> str:
    """Show a few characters around a place; of a long text of items, only the item there."""
    begin = max(0, place - _BEFORE)
    part = text[begin : place + _AFTER]
    if isinstance(part, str):
        before, after = part[: place - begin], part[place - begin :]
        part = f"{before.rpartition(_ITEM)[2]}{after.partition(_ITEM)[0]}".replace("\x1f", " ")
    return repr(part)
