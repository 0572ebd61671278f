"""Read from one Python source what a gate could measure: programs, training loops, modules.

Pure, needs no torch.

Sources are a stranger's text. They are parsed, never imported or run, and a name is used only if it
is plain ASCII.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ci_bench.errors import BadConfig

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
_GPU = re.compile(r"^[ \t]*(?:import|from)[ \t]+(?:torch|triton|jax|cupy)\b", re.MULTILINE)
_INSTALLED = re.compile(r"\bimportlib[._]metadata\b|\bpkg_resources\b")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FIRST_LAYERS: Mapping[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "Linear": ("in_features", (32,), ()),
    "Conv1d": ("in_channels", (8,), (64,)),
    "Conv2d": ("in_channels", (8,), (32, 32)),
    "Embedding": ("num_embeddings", (8, 16), ()),
}
"""Layers that show the shape of a module's input: the keyword of the size, and the sizes before and
behind it.
"""


class LossReport(StrEnum):
    """The way a training reports its losses."""

    STEPS = "steps"
    """By `ci_bench.step`."""
    PRINTED = "printed"
    """By `print`, on standard output."""
    LOGGED = "logged"
    """By `logging`, which writes to standard error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """A class of `torch.nn.Module` that takes no arguments, called with one tensor.

    Its first layer shows the tensor's shape.
    """

    name: str
    shape: tuple[int, ...]
    high: int | None = None
    """The number of whole numbers that the input draws from; `None` for real numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceProgram:
    """Contents of one file."""

    is_program: bool = False
    """It is started, not only imported."""
    takes_arguments: bool = False
    """It stops without arguments on the command line."""
    losses: LossReport | None = None
    """The way in which it reports losses; `None` if it doesn't train."""
    loops: tuple[str, ...] = ()
    """Names of functions that yield the steps of a training."""
    modules: tuple[Module, ...] = ()
    """Modules that can be made and called."""


def uses_gpu(source: str) -> bool:
    """Return whether a source imports a library that computes on GPUs."""
    return _GPU.search(source) is not None


def reads_metadata(source: str) -> bool:
    """Return whether a source looks up installed packages.

    A package that is not installed cannot do so for itself.
    """
    return _INSTALLED.search(source) is not None


def read_program(source: str, file: str) -> SourceProgram:
    """Read one file.

    Raises:
        BadConfig: it is not valid Python.
    """
    if not re.search(r"__main__|backward|Module|print", source):
        return SourceProgram()
    try:
        tree = ast.parse(source)
        return _read(tree, source)
    except SyntaxError as error:
        raise BadConfig(f"{file}:{error.lineno or 1}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadConfig(f"{file}:1: cannot be read as Python: {error}") from error


def _read(tree: ast.Module, source: str) -> SourceProgram:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    inside = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, _Function | ast.Lambda)
        for inner in ast.walk(node)
    }
    trains = any(_called(call) == "backward" for call in calls)
    started = any(_is_guard(node) for node in tree.body)
    started |= any(
        _called(call) in {"backward", "parse_args", "print"} and id(call) not in inside
        for call in calls
    )
    ours = "ci_bench" in source
    return SourceProgram(
        is_program=started,
        takes_arguments=any(map(_is_required, calls)),
        losses=_losses(calls) if trains else None,
        loops=tuple(
            node.name
            for node in tree.body
            if ours and isinstance(node, ast.FunctionDef) and _is_loop(node)
        ),
        modules=tuple(_modules(tree)),
    )


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _is_guard(node: ast.stmt) -> bool:
    """Return whether a statement is ``if __name__ == "__main__"``."""
    names = (
        {inner.id for inner in ast.walk(node.test) if isinstance(inner, ast.Name)}
        if isinstance(node, ast.If)
        else set()
    )
    return "__name__" in names


def _is_required(call: ast.Call) -> bool:
    """Return whether a call adds a required argument to a command line."""
    if _called(call) != "add_argument" or not call.args:
        return False
    options = {keyword.arg: getattr(keyword.value, "value", None) for keyword in call.keywords}
    name = getattr(call.args[0], "value", "-")
    by_place = (
        isinstance(name, str)
        and not name.startswith("-")
        and options.get("nargs") not in {"?", "*"}
    )
    return by_place or options.get("required") is True


def _losses(calls: list[ast.Call]) -> LossReport | None:
    if any(
        _called(call) == "step"
        and getattr(getattr(call.func, "value", None), "id", "") == "ci_bench"
        for call in calls
    ):
        return LossReport.STEPS
    words = {
        "print": LossReport.PRINTED,
        "info": LossReport.LOGGED,
        "log": LossReport.LOGGED,
        "warning": LossReport.LOGGED,
    }
    reports = {
        words[_called(call)] for call in calls if _called(call) in words and _names_loss(call)
    }
    return next(
        (report for report in (LossReport.PRINTED, LossReport.LOGGED) if report in reports), None
    )


def _names_loss(call: ast.Call) -> bool:
    texts = (
        node.value
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return any("loss" in text.lower() for text in texts)


def _is_loop(node: ast.FunctionDef) -> bool:
    """Return whether a function yields the steps of a training, and is called without arguments."""
    nodes = [inner for inner in ast.walk(node) if isinstance(inner, ast.Yield | ast.Call)]
    trains = any(isinstance(inner, ast.Call) and _called(inner) == "backward" for inner in nodes)
    steps = any(isinstance(inner, ast.Yield) and _is_step(inner.value) for inner in nodes)
    return trains and steps and _is_public(node.name) and _owed(node.args) == 0


def _is_step(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and _called(value) == "Step"


def _is_public(name: str) -> bool:
    return NAME.fullmatch(name) is not None and not name.startswith("_")


def _owed(args: ast.arguments) -> int:
    """Return the number of arguments without a default."""
    places = [*args.posonlyargs, *args.args]
    return len(places) - len(args.defaults) + sum(default is None for default in args.kw_defaults)


def _modules(tree: ast.Module) -> Iterator[Module]:
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or not _is_public(node.name):
            continue
        if not any(
            getattr(base, "attr", getattr(base, "id", "")) == "Module" for base in node.bases
        ):
            continue
        methods = {inner.name: inner for inner in node.body if isinstance(inner, ast.FunctionDef)}
        init, forward = methods.get("__init__"), methods.get("forward")
        if init is None or forward is None or _owed(init.args) != 1 or _owed(forward.args) != 2:  # noqa: PLR2004 - self and a tensor
            continue
        if (shape := _input(init)) is not None:
            sizes = (
                (8, 16, *shape[0][1:])
                if len(shape[0]) == 2 and not shape[1] and _has_sequences(forward)  # noqa: PLR2004
                else shape[0]
            )
            yield Module(name=node.name, shape=sizes, high=shape[1])


def _has_sequences(forward: ast.FunctionDef) -> bool:
    """Return whether a method moves a third dimension, as ``x.transpose(1, 2)`` does."""
    moved = [
        node
        for node in ast.walk(forward)
        if isinstance(node, ast.Call) and _called(node) in {"permute", "transpose"}
    ]
    return any(
        isinstance(argument, ast.Constant) and argument.value == 2  # noqa: PLR2004
        for call in moved
        for argument in call.args
    )


def _input(init: ast.FunctionDef) -> tuple[tuple[int, ...], int | None] | None:
    """Return the shape of a module's input by its first layer, and the range of whole numbers.

    The range is `None` for real numbers.
    """
    defaults = {argument.arg: value for argument, value in _defaults(init.args)}
    calls = [
        node
        for node in ast.walk(init)
        if isinstance(node, ast.Call) and _called(node) in _FIRST_LAYERS
    ]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset))[:1]:
        keyword, before, behind = _FIRST_LAYERS[_called(call)]
        size = next(
            (passed.value for passed in call.keywords if passed.arg == keyword),
            call.args[0] if call.args else None,
        )
        number = (
            defaults.get(size.id) if isinstance(size, ast.Name) else getattr(size, "value", None)
        )
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= 1 << 16:
            return None
        return (
            (before, number) if keyword == "num_embeddings" else ((*before, number, *behind), None)
        )
    return None


def _defaults(args: ast.arguments) -> Iterator[tuple[ast.arg, object]]:
    places = [*args.posonlyargs, *args.args]
    defaults = [*zip(places[len(places) - len(args.defaults) :], args.defaults, strict=True)]
    defaults += [
        (argument, default)
        for argument, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
        if default is not None
    ]
    yield from ((argument, getattr(default, "value", None)) for argument, default in defaults)
