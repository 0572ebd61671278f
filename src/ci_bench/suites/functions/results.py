"""Tensors of a call's result, of any type, for the rule of numbers and the digests.

Imports torch. Numbers become numbers, text and bytes become their bytes, and other objects are
taken apart by value: fields of dataclasses, items of mappings, members of sets in order, and the
state of objects that define equality. An object without a value to compare by (a generator, an
object that is only equal to itself) is refused by its kind.
"""

import datetime as dt
import enum
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from hashlib import sha256
from inspect import isawaitable
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from ci_bench.suites.functions.drawing import BadBenchmark
from ci_bench.suites.shared.worker.plain_values import BYTES, TEXT, WHOLE_NUMBER

OUTPUT = "output"
MOST_NAMED = 64
"""The number of numbers and texts up to which each has its own name; more are grouped by type."""
MOST_DENSE = 1 << 26
"""Elements up to which a sparse tensor is compared as a dense one: explicit zeros mean nothing."""
MOST_KEY = 60
"""Characters of a key in a name."""
KEYS = f"{OUTPUT}, keys"
"""The names of numbers and texts in mappings, which are compared as well."""
DEEPEST = 50
WAY_OUT = "return tensors, arrays, numbers or text, or a list, mapping or dataclass of them"
_WHOLE_BITS = 63
_DATES = {dt.date, dt.time, dt.datetime}

Leaf = Tensor | bool | int | float | complex | str | bytes | tuple[Any, ...]
"""A tuple holds numbers of one type."""


def named_outputs(value: Any) -> dict[str, Tensor]:
    """Name the tensors of a call's result as the rule of numbers knows them: ``output: 0``.

    Raises:
        BadBenchmark: something in it cannot be compared. The message begins with a verb.
    """
    walk = _Walk()
    leaves = dict(_unlike(walk.leaves(value, OUTPUT)))
    small = [name for name, leaf in leaves.items() if not isinstance(leaf, Tensor)]
    if len(small) > MOST_NAMED:
        packed = _packed({name: leaves.pop(name) for name in small})
        return {name: leaf for name, leaf in leaves.items() if isinstance(leaf, Tensor)} | packed
    if walk.has_keys and small:
        leaves[KEYS] = "\n".join(sorted(small))
    return {_typed(name, leaf): _tensor(leaf) for name, leaf in leaves.items()}


def differentiable(value: Any) -> list[Tensor]:
    """List the tensors of a call's result that have a gradient.

    The backward pass is timed with this, so one tensor is quick.
    """
    if isinstance(value, Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in differentiable(item)]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in differentiable(item)]
    if is_dataclass(value) and not isinstance(value, type):
        return [
            tensor
            for field in fields(value)
            for tensor in differentiable(getattr(value, field.name))
        ]
    return []


def plain_tensors(value: Tensor, name: str) -> Iterator[tuple[str, Tensor]]:
    """Give a tensor of any layout as strided ones: itself where it is one."""
    if value.is_meta:
        raise BadBenchmark(f"returns a tensor on the meta device, which has no values; {WAY_OUT}")
    if value.is_nested:
        for place, part in enumerate(value.detach().unbind()):
            yield _below(name, str(place)), part
    elif value.is_quantized:
        yield name, value.dequantize()
    elif value.layout is torch.strided:
        yield name, value
    elif value.numel() <= MOST_DENSE:
        yield name, value.detach().to_dense()
    else:
        sparse = value.detach().to_sparse(layout=torch.sparse_coo).coalesce()
        yield _below(name, "indices"), sparse.indices()
        yield _below(name, "values"), sparse.values()


class _Walk:
    """One walk through a value.

    `_within` are the objects that it is in: an object that holds itself ends the walk. `has_keys`
    if it met a mapping or dataclass: another key is another value.
    """

    def __init__(self) -> None:
        self._within: list[int] = []
        self.has_keys = False

    def leaves(self, value: Any, name: str, *, inside: bool = False) -> Iterator[tuple[str, Leaf]]:
        """Give numbers, texts and strided tensors by name.

        `inside` an object with equality all parts count.
        """
        if value is None:
            return
        if isinstance(value, Tensor):
            yield from plain_tensors(value, name)
        elif isinstance(value, enum.Enum):
            yield name, f"{type(value).__name__}.{value.name}"
        elif isinstance(value, bool | int | float | complex | str | bytes):
            yield name, value
        elif isinstance(value, bytearray | memoryview):
            yield name, bytes(value)
        elif isinstance(value, type | FunctionType | BuiltinFunctionType) and inside:
            yield name, f"{value.__module__}.{value.__qualname__}"
        elif type(value) in _DATES:
            yield name, value.isoformat()
        elif isinstance(value, torch.dtype | torch.device | torch.layout | PurePath):
            yield name, str(value)
        elif id(value) in self._within or len(self._within) > DEEPEST:
            raise BadBenchmark(f"returns a {_kind(value)} that contains itself; {WAY_OUT}")
        else:
            self._within.append(id(value))
            yield from self._parts(value, name, inside=inside)
            self._within.pop()

    def _parts(self, value: Any, name: str, *, inside: bool) -> Iterator[tuple[str, Leaf]]:
        if (array := _as_array(value)) is not None:
            yield from self._of_array(array, name)
        elif isinstance(value, Mapping):
            self.has_keys |= not inside
            yield from self._items(
                ((_key(key), item) for key, item in value.items()), name, inside=inside
            )
        elif isinstance(value, list | tuple | deque):
            if _are_numbers(value):
                yield name, tuple(value)
                return
            yield from self._items(
                ((str(place), item) for place, item in enumerate(value)), name, inside=inside
            )
        elif isinstance(value, AbstractSet):
            yield from self._members(value, name)
        elif is_dataclass(value) and not isinstance(value, type):
            self.has_keys |= not inside
            compared = (
                (field.name, getattr(value, field.name)) for field in fields(value) if field.compare
            )
            yield from self._items(compared, name, inside=inside)
        else:
            yield from self._state(value, name, inside=inside)

    def _items(
        self, items: Iterable[tuple[str, Any]], name: str, *, inside: bool
    ) -> Iterator[tuple[str, Leaf]]:
        empty = True
        for key, item in items:
            empty = False
            yield from self.leaves(item, _below(name, key), inside=inside)
        if empty:
            yield f"{name} (empty)", torch.empty(0)

    def _members(self, value: AbstractSet[Any], name: str) -> Iterator[tuple[str, Leaf]]:
        if _are_numbers(value):
            yield name, tuple(sorted(value, key=lambda number: (number.real, number.imag)))
            return
        members = []
        for member in value:
            parts = list(self.leaves(member, "", inside=True))
            if any(isinstance(part, Tensor) and part.numel() for _, part in parts):
                raise BadBenchmark(
                    f"returns a {_kind(value)} of tensors, which has no order; return a list"
                )
            members.append(
                "\x1f".join(f"{at}={part!r}" if at else repr(part) for at, part in parts)
            )
        yield name, "\x1e".join(sorted(members))

    def _of_array(self, array: Any, name: str) -> Iterator[tuple[str, Leaf]]:
        """Give a NumPy array as tensors.

        Numbers become a tensor of its memory, fields go by name, and other elements are as Python
        has them.
        """
        if hasattr(array, "filled"):
            yield from self._of_array(_numpy().ma.getmaskarray(array), _below(name, "mask"))
            array = array.filled(0)
        if array.dtype.names:
            for field in array.dtype.names:
                yield from self._of_array(array[field], _below(name, field))
        elif array.dtype.kind in "mM":
            yield f"{name} ({array.dtype})", torch.from_numpy(array.astype("int64"))
        elif array.dtype.kind in "biufc":
            yield name, _from_numpy(array)
        else:
            yield from self.leaves(array.tolist(), name)

    def _state(self, value: Any, name: str, *, inside: bool) -> Iterator[tuple[str, Leaf]]:
        """Give the parts of an object that defines equality, as pickle takes them."""
        if isinstance(value, Iterator) or isawaitable(value):
            raise BadBenchmark(
                f"returns a {_kind(value)}, which computes only when it is read; return list(…)"
                " of it"
            )
        attrs = getattr(type(value), "__attrs_attrs__", None)
        if attrs is not None:
            compared = (
                (attribute.name, getattr(value, attribute.name))
                for attribute in attrs
                if attribute.eq
            )
            yield from self._items(compared, name, inside=inside)
            return
        if isinstance(value, ModuleType) or not (inside or _has_equality(value)):
            raise BadBenchmark(
                f"returns a {_kind(value)}, which defines no equality (__eq__) to compare by;"
                f" {WAY_OUT}"
            )
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:
            reason = f"cannot be taken apart ({type(error).__name__})"
            raise BadBenchmark(f"returns a {_kind(value)}, which {reason}; {WAY_OUT}") from error
        if isinstance(reduced, str):
            yield name, reduced
            return
        function, arguments, *more = reduced
        parts = [list(part) if isinstance(part, Iterator) else part for part in more]
        yield from self._items(
            (("of", function), ("with", arguments), ("state", parts)), name, inside=True
        )


def _has_equality(value: Any) -> bool:
    return getattr(type(value), "__eq__", None) is not getattr(object, "__eq__", None)


def _unlike(leaves: Iterable[tuple[str, Leaf]]) -> Iterator[tuple[str, Leaf]]:
    """Give every leaf a distinct name: the keys 1 and "1" have the same text."""
    counts: dict[str, int] = {}
    for name, leaf in leaves:
        counts[name] = counts.get(name, 0) + 1
        yield name if counts[name] == 1 else f"{name} ({counts[name]})", leaf


def _typed(name: str, leaf: Leaf) -> str:
    return f"{name} ({_word(leaf)})" if isinstance(leaf, str | bytes) or _is_long(leaf) else name


def _word(leaf: Leaf) -> str:
    return BYTES if isinstance(leaf, bytes) else TEXT if isinstance(leaf, str) else WHOLE_NUMBER


def _tensor(leaf: Leaf) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf
    if isinstance(leaf, tuple):
        return torch.tensor(
            leaf, dtype={float: torch.float64, complex: torch.complex128}.get(type(leaf[0]))
        )
    if isinstance(leaf, str | bytes) or _is_long(leaf):
        return _bytes(
            leaf if isinstance(leaf, bytes) else str(leaf).encode("utf-8", "surrogatepass")
        )
    return torch.tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else None)


def _is_long(leaf: Leaf) -> bool:
    return isinstance(leaf, int) and leaf.bit_length() > _WHOLE_BITS


def _bytes(content: bytes) -> Tensor:
    return (
        torch.frombuffer(bytearray(content), dtype=torch.uint8)
        if content
        else torch.empty(0, dtype=torch.uint8)
    )


def _packed(leaves: Mapping[str, Any]) -> dict[str, Tensor]:
    """Put many numbers and texts together.

    Real numbers go into one tensor, whole ones into another, and all else becomes text.
    """
    reals: list[float] = []
    integers: list[int] = []
    lines = []
    for name, leaf in leaves.items():
        written = repr(leaf)
        values = leaf if isinstance(leaf, tuple) else (leaf,)
        if isinstance(values[0], float | complex):
            reals += (part for value in values for part in (value.real, value.imag))
            written = str(len(values))
        elif isinstance(values[0], int) and not _is_long(leaf):
            integers += values
            written = str(len(values))
        lines.append(f"{name}\x1f{type(values[0]).__name__}\x1f{written}")
    tensors = {f"{OUTPUT} (text)": _bytes("\x1e".join(lines).encode("utf-8", "surrogatepass"))}
    if reals:
        tensors[f"{OUTPUT} (numbers)"] = torch.tensor(reals, dtype=torch.float64)
    if integers:
        tensors[f"{OUTPUT} (whole numbers)"] = torch.tensor(integers, dtype=torch.int64)
    return tensors


def _are_numbers(values: Collection[Any]) -> bool:
    """Return true if these are numbers of one type that a tensor can hold."""
    kinds = {type(value) for value in values}
    return kinds in ({bool}, {int}, {float}, {complex}) and not any(
        _is_long(value) for value in values
    )


def _numpy() -> Any:
    return sys.modules.get("numpy")


def _as_array(value: Any) -> Any:
    """Return a NumPy array or another library's array as a NumPy array, `None` for other values."""
    numpy = _numpy()
    if numpy is None:
        return None
    if isinstance(value, numpy.ndarray):
        return value
    if isinstance(value, numpy.generic) or (
        hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")
    ):
        return numpy.asarray(value)
    return None


def _from_numpy(array: Any) -> Tensor:
    numpy = _numpy()
    if array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
        array = array.astype("complex128" if array.dtype.kind == "c" else "float64")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = numpy.array(array)
    return torch.from_numpy(array)


def _key(key: Any) -> str:
    text = key if isinstance(key, str) else repr(key) if isinstance(key, tuple) else str(key)
    return (
        text
        if len(text) <= MOST_KEY
        else f"{text[:MOST_KEY]}…{sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"
    )


def _kind(value: Any) -> str:
    return type(value).__name__


def _below(name: str, key: str) -> str:
    return f"{name}/{key}" if ":" in name else f"{name}: {key}"
