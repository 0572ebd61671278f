"""Words for values that are equal or not: text, bytes and whole numbers, which tensors hold for the comparison.

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
    """Return the kind of a plain value by its tensor's name: ``text`` of ``output: name (text)``; empty of any other tensor."""
    found = _KINDS.search(name)
    return found[1] if found else ""


def differing_value(name: str, seen: Tensor, expected: Sequence[Tensor]) -> str:
    """Show where a value without rounding differs first: ``'Lisp' instead of 'List' at character 4``.

    Empty for real numbers, for another form, and if the expected values differ from each other:
    then rounding decides them.
    """
    kind, owed = kind_of_plain(name), expected[0]
    if seen.dtype != owed.dtype or seen.is_floating_point() or seen.is_complex():
        return ""
    if not (kind or seen.shape == owed.shape) or torch.equal(seen, owed):
        return ""
    if not all(
        one.shape == owed.shape and torch.equal(one.to(owed.dtype), owed) for one in expected[1:]
    ):
        return ""
    return (
        _of_texts(*(_read(bytes(value.tolist()), kind) for value in (seen, owed)))
        if kind
        else _of_numbers(seen, owed)
    )


def _of_numbers(seen: Tensor, owed: Tensor) -> str:
    places = (seen != owed).nonzero()
    place = tuple(places[0].tolist())
    words = f"{seen[place].item()} instead of {owed[place].item()}"
    return (
        words
        if seen.ndim == 0
        else f"{words} at {list(place)}; {len(places):,} of {seen.numel():,} differ"
    )


def _read(content: bytes, kind: str) -> str | bytes:
    return content if kind == BYTES else content.decode("utf-8", "surrogatepass")


def _of_texts(seen: str | bytes, expected: str | bytes) -> str:
    pairs = zip(seen, expected, strict=False)
    place = next(
        (at for at, (one, other) in enumerate(pairs) if one != other), min(len(seen), len(expected))
    )
    shown, owed = (_excerpt(text, place) for text in (seen, expected))
    unit = "byte" if isinstance(seen, bytes) else "character"
    return f"{shown} instead of {owed} at {unit} {place + 1:,}"


def _excerpt(text: str | bytes, place: int) -> str:
    """Show a few characters around a place; of a long text of items, only the item there."""
    begin = max(0, place - _BEFORE)
    part = text[begin : place + _AFTER]
    if isinstance(part, str):
        before, after = part[: place - begin], part[place - begin :]
        part = f"{before.rpartition(_ITEM)[2]}{after.partition(_ITEM)[0]}".replace("\x1f", " ")
    return repr(part)
