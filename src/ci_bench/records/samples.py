"""Samples in little memory: a float of Python takes 32 bytes in a tuple, and 8 among bytes.

Owns how a field of many floats is stored, invisibly to readers, and a shortcut past the tuple for
reading the samples of many series together. `results` defines samples.
"""

from collections.abc import Callable, Iterable
from functools import cache
from struct import Struct
from typing import Any, TypeVar

_LEAST = 4
"""Fewer floats stay a tuple: it is hardly larger, and need not be made again."""
FLOAT_BYTES = 8

T = TypeVar("T")


def compact(name: str) -> Callable[[type[T]], type[T]]:
    """Store a field of floats of a slotted dataclass as bytes; it is set and read as a tuple.

    A value whose first item is not a float is kept as it is. Floats are read as they were written,
    to the bit; an integer among them is read as a float, as it is from a document.
    """

    def decorate(of: type[T]) -> type[T]:
        slot = vars(of)[name]
        held_of, hold = slot.__get__, slot.__set__

        def read(self: T) -> Any:
            stored = held_of(self)
            return _floats(len(stored)).unpack(stored) if type(stored) is bytes else stored

        def keep(self: T, values: Any) -> None:
            if (
                (count := len(values)) >= _LEAST
                and type(values) is tuple
                and type(values[0]) is float
            ):
                values = _floats(count * FLOAT_BYTES).pack(*values)
            hold(self, values)

        setattr(of, name, _Compact(read, keep, held_of))
        return of

    return decorate


class _Compact(property):
    """A field that is kept as bytes, and how these are read."""

    def __init__(
        self,
        read: Callable[[Any], Any],
        keep: Callable[[Any, Any], None],
        held_of: Callable[[Any], Any],
    ) -> None:
        super().__init__(read, keep)
        self.held_of = held_of


@cache
def _floats(width: int) -> Struct:
    """Return the format of `width` bytes as floats."""
    return Struct(f"{width // FLOAT_BYTES}d")


def filled(of: type[T], name: str) -> Callable[[Iterable[T]], bool]:
    """Return a test whether a compact field of any value is filled. It does not read the field."""
    held_of = vars(of)[name].held_of

    def is_filled(every: Iterable[T]) -> bool:
        return any(map(held_of, every))

    return is_filled


def reader(of: type[T], name: str) -> Callable[[Iterable[T]], list[bytes]]:
    """Return a reader of a compact field of many values as bytes.

    It takes eight bytes for each float, and makes no tuples.
    """
    held_of = vars(of)[name].held_of

    def read(every: Iterable[T]) -> list[bytes]:
        return [
            stored if type(stored) is bytes else _floats(len(stored) * FLOAT_BYTES).pack(*stored)
            for stored in map(held_of, every)
        ]

    return read
