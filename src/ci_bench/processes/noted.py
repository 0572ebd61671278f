"""Note the functions and values that checks use before a tree's code runs, and name later changes.

A constant of the rule of numbers, the body or the defaults of a function, a method of a class: each
can be changed by one assignment. So every value of the engine's loaded modules is noted, and the
parts of Python and of libraries that checks use. The process that forks the workers notes them once
its own imports are done. Each worker compares them at the end of its stage.

This stops accidents and code that was optimised against a score. Code that shares a process can
undo any check of it (docs/security.md). Imports no torch: loaded modules are noted.
"""

import builtins
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from inspect import getattr_static
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from ci_bench.records.results import SURROUNDINGS, UNTOUCHED, Check, Outcome

PACKAGE = "ci_bench"
SHOWN = 3
MAX_DETAIL = 1000
DEPTH = 4
"""A decorated function holds the plain one in its closure, seldom more than twice."""

LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "gc": ("collect", "disable", "enable"),
    "hashlib": ("file_digest", "sha256"),
    "json": ("dumps", "loads"),
    "math": ("isfinite", "isnan", "sqrt"),
    "msgspec": ("convert", "to_builtins"),
    "os": ("read", "sched_getaffinity", "write"),
    "random": ("Random", "getstate", "seed"),
    "secrets": ("randbits", "token_hex"),
    "statistics": ("fmean", "mean", "median", "quantiles", "stdev"),
    "sys": ("getprofile", "gettrace"),
    "numpy": ("median", "quantile"),
    "numpy.random": ("get_state", "seed"),
    "torch": (
        "allclose",
        "empty_like",
        "equal",
        "full_like",
        "get_num_threads",
        "isfinite",
        "isnan",
        "nan_to_num",
        "rand",
        "randint",
        "randn",
        "randperm",
        "where",
        "zeros_like",
    ),
    "torch.linalg": ("vector_norm",),
    "torch.random": ("manual_seed",),
    "torch.cuda": ("synchronize",),
    "torch.testing": ("assert_close",),
    "torch.utils._pytree": ("tree_flatten", "tree_leaves", "tree_map", "tree_unflatten"),
    "safetensors.torch": ("save_file",),
}
"""Names in their defining modules.

The first import of dynamo, which any arm may cause, replaces `torch.manual_seed`. Clocks are not
among them: tools that freeze time replace those legitimately (`worker.fence`).
"""
OF_TENSORS = (
    *("abs", "add", "all", "allclose", "aminmax", "any", "clone", "copy_", "count_nonzero"),
    *("cpu", "detach", "double", "eq", "equal", "isfinite", "isnan", "item", "max", "mul"),
    *("contiguous", "data", "data_ptr", "is_contiguous"),
    *("nan_to_num", "numel", "sub", "to", "tolist", "__abs__", "__add__", "__bool__", "__eq__"),
    *(
        "__float__",
        "__ge__",
        "__getitem__",
        "__gt__",
        "__le__",
        "__lt__",
        "__mul__",
        "__ne__",
        "__sub__",
    ),
)
OF_RANDOM = ("choice", "getrandbits", "randint", "random", "shuffle")
"""Methods of `random.Random`: a referee draws its rows with them, so a replaced one would announce
a look.
"""
BUILTINS = (
    *("abs", "all", "any", "bool", "bytes", "dict", "enumerate", "filter", "float"),
    *("frozenset", "getattr", "hasattr", "id", "int", "isinstance", "issubclass", "iter"),
    *("len", "list", "map", "max", "min", "next", "range", "repr", "reversed", "round", "set"),
    *("sorted", "str", "sum", "super", "tuple", "type", "zip"),
)
"""Builtins that checks call.

`__import__`, `open` and `print` are missing: lazy loaders and coloured printers legitimately
replace them.
"""

NUMBERS = (float, int, complex, bytes)
"""Types of values that can be overwritten in place.

The names of these types may be hidden later.
"""
TUPLES = (tuple, frozenset)
Token = tuple[object, ...]
"""Represents a value: equal tokens are of the same object with the same contents."""


@dataclass(kw_only=True, slots=True)
class Noted:
    """Tokens by full name: of the engine's own code, and of the code that it uses."""

    own: dict[str, Token] = field(default_factory=dict)
    others: dict[str, Token] = field(default_factory=dict)
    held: list[object] = field(default_factory=list)
    """Objects that tokens name by address, held so that no address is reused."""

    def take(self) -> None:
        """Note loaded values that were not noted before."""
        for name, value in _engine_values():
            if name not in self.own:
                self._keep(self.own, name, value)
        for name, value in _others():
            if name not in self.others:
                self._keep(self.others, name, value)

    def take_clock(self, clock: object) -> None:
        """Note the functions that a clock reads time with and waits with."""
        for name, value in _functions_of(clock):
            self._keep(self.own, name, value)

    def replaced(self) -> list[str]:
        """Return the names of the engine's own values that differ from the noted ones.

        Includes builtins that a module hides.
        """
        now = dict(_engine_values())
        changed = [
            name for name, token in self.own.items() if name in now and token_of(now[name]) != token
        ]
        gone = [name for name in self.own if name not in now and not name.startswith(CLOCK)]
        return [*changed, *gone, *_hidden_builtins(self.own)]

    def replaced_of_clock(self, clock: object) -> list[str]:
        """Return the functions of a clock that are not those noted."""
        return [
            name
            for name, value in _functions_of(clock)
            if self.own.get(name, ()) != token_of(value)
        ]

    def replaced_of_others(self) -> list[str]:
        """Return the names of functions of Python and libraries that differ from the noted ones."""
        now = dict(_others())
        return [
            name
            for name, token in self.others.items()
            if name not in now or token_of(now[name]) != token
        ]

    def checks(self, arm: str) -> Iterator[Check]:
        """Yield a failed check for replaced values.

        It is on the reference arm, since they affect every arm.
        """
        watched = [f"{name} (watched by sys.monitoring)" for name in _watched()]
        for check, names in (
            (UNTOUCHED, [*self.replaced(), *watched]),
            (SURROUNDINGS, self.replaced_of_others()),
        ):
            if names:
                yield Check(name=check, arm=arm, outcome=Outcome.FAIL, detail=replaced_words(names))

    def _keep(self, table: dict[str, Token], name: str, value: object) -> None:
        table[name] = token_of(value, keepalive=self.held)


CLOCK = "the clock: "
_NOTED = Noted()


def current() -> Noted:
    """Return what this process, or the one that forked it, has noted.

    By default the present state.
    """
    snapshot = _NOTED if _NOTED.own else Noted()
    snapshot.take()
    return snapshot


def begin() -> None:
    """Note loaded values, for all processes that are forked from now on."""
    _NOTED.take()


def replaced_words(names: list[str]) -> str:
    """Return a description of the replacements for the detail of a check."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    shown = ", ".join(names[:SHOWN])
    words = f"the measured code replaced what samples and checks are made with: {shown}{more}"
    return words[:MAX_DETAIL]


def token_of(value: object, depth: int = DEPTH, keepalive: list[object] | None = None) -> Token:
    """Return the token of a value: its address, and the parts that an in-place change alters."""
    if keepalive is not None:
        keepalive.append(value)
    if isinstance(value, NUMBERS):
        return id(value), type(value), repr(value)
    if isinstance(value, BuiltinFunctionType):
        return value.__name__, id(value.__self__)
    if isinstance(value, MethodType):
        return token_of(value.__func__, depth, keepalive), id(value.__self__)
    raw, parts = _contents(value) if depth else ((), ())
    return (id(value), *raw, *(token_of(part, depth - 1, keepalive) for part in parts))


def _contents(value: Any) -> tuple[tuple[object, ...], Iterable[object]]:
    """Return the parts compared by value, and those compared by their own token."""
    raw: tuple[object, ...] = ()
    parts: Iterable[object] = ()
    if isinstance(value, FunctionType):
        cells, keyword_defaults = value.__closure__ or (), value.__kwdefaults__ or {}
        parts = (
            value.__code__,
            *map(_cell, cells),
            *(value.__defaults__ or ()),
            *keyword_defaults.values(),
        )
    elif isinstance(value, CodeType):
        raw = (
            value.co_code,
            *(repr(constant) for constant in value.co_consts if isinstance(constant, NUMBERS)),
        )
    elif isinstance(value, TUPLES):
        parts = value
    elif isinstance(value, property):
        parts = (value.fget, value.fset)
    elif isinstance(value, staticmethod | classmethod):
        parts = (value.__func__,)
    elif isinstance(value, partial):
        parts = (value.func, *value.args, *value.keywords.values())
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, part.name, None) for part in fields(value)]
    elif not isinstance(value, type) and "__wrapped__" in getattr(value, "__dict__", {}):
        parts = (value.__wrapped__,)
    return raw, parts


def _cell(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _engine_values() -> Iterator[tuple[str, object]]:
    """Yield everything that the engine's loaded modules define, by its full name.

    Functions, classes, methods and constants.
    """
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] != PACKAGE or not isinstance(module, ModuleType):
            continue
        yield name, module
        for key, value in [*vars(module).items()]:
            if isinstance(value, ModuleType) or key in {
                "__builtins__",
                "__cached__",
                "__doc__",
                "__warningregistry__",
            }:
                continue
            if key.isupper() and key[0] != "_" and isinstance(value, dict | list):
                yield f"{name}.{key} (its length)", len(value)
                yield from (
                    (f"{name}.{key}[{place!r}]", element) for place, element in _items(value)
                )
            yield f"{name}.{key}", value
            if isinstance(value, type) and value.__module__ == name:
                yield from _of_class(f"{name}.{key}", value)


def _of_class(name: str, value: type) -> Iterator[tuple[str, object]]:
    """Yield what a class defines itself, without entries that Python adds later."""
    for key, attribute in [*vars(value).items()]:
        if not key.startswith(
            ("__abstract", "_abc_", "__annot", "__doc", "__dict__", "__weakref__")
        ):
            yield f"{name}.{key}", attribute


def _items(table: dict[Any, object] | list[object]) -> Iterable[tuple[Any, object]]:
    return table.items() if isinstance(table, dict) else enumerate(table)


def _others() -> Iterator[tuple[str, object]]:
    """Yield what checks use of Python and of loaded libraries."""
    yield from ((f"builtins.{name}", getattr(builtins, name)) for name in BUILTINS)
    for module, names in LIBRARIES.items():
        if (loaded := sys.modules.get(module)) is not None:
            yield from (
                (f"{module}.{name}", vars(loaded).get(name))
                for name in names
                if name in vars(loaded)
            )
    if (random := sys.modules.get("random")) is not None:
        yield from (
            (f"random.Random.{name}", getattr_static(random.Random, name)) for name in OF_RANDOM
        )
    if (torch := sys.modules.get("torch")) is not None:
        yield from (
            (f"torch.Tensor.{name}", getattr_static(torch.Tensor, name)) for name in OF_TENSORS
        )


def _functions_of(clock: object) -> Iterator[tuple[str, object]]:
    for name in getattr(type(clock), "__slots__", None) or vars(clock):
        if callable(value := getattr(clock, name, None)):
            yield f"{CLOCK}{name}", value


def _hidden_builtins(tokens: Mapping[str, Token]) -> list[str]:
    """Yield names of builtins that a module of the engine has got since.

    These hide the builtins from its functions.
    """
    hidden = []
    for name, module in [*sys.modules.items()]:
        if name in tokens:
            hidden += [
                f"{name}.{builtin}"
                for builtin in BUILTINS
                if builtin in vars(module) and f"{name}.{builtin}" not in tokens
            ]
    return hidden


def _watched() -> Iterator[str]:
    """Yield functions of the engine that a tool observes by `sys.monitoring`.

    That costs neither time nor a stack.
    """
    monitoring: Any = getattr(sys, "monitoring", None)
    tools = (
        []
        if monitoring is None
        else [tool for tool in range(6) if monitoring.get_tool(tool) is not None]
    )
    for name, value in _engine_values() if tools else ():
        if isinstance(value, FunctionType) and any(
            monitoring.get_local_events(tool, value.__code__) for tool in tools
        ):
            yield name
