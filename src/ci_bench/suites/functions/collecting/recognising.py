"""Tools whose benchmarks a file holds, read from its source without running it.

These tools' benchmarks are known only after a file is imported: asv looks classes through, pytest
has fixtures, shapes are computed. So a file with any of them is planned in a separate process
(`importing`), and this module only detects them. Pure, needs no torch.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from ci_bench.errors import BadConfig


class Format(StrEnum):
    """A tool whose benchmarks are collected as they are."""

    PYTEST = "pytest-benchmark"
    ASV = "asv"
    PERF_REPORT = "triton.testing.perf_report"
    TRITONBENCH = "tritonbench"


RECOGNISED = (
    "functions under @ci_bench.benchmark, tests with pytest-benchmark's fixture `benchmark`, asv's"
    " time_*, peakmem_* and track_*, functions under triton.testing.perf_report, and tritonbench's"
    " operators"
)
"""The formats that a file may hold, in the words of errors."""
ASV_NAMES = ("time_", "peakmem_", "track_")
_GIVEN = {"params", "setup_cache", "parameterize"}
"""One of these is in a file, or a base class, where asv's functions have parameters; else one with
parameters is a helper.
"""
_HINTS = ("benchmark", "perf_report", *ASV_NAMES)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def recognise(source: str, file: str) -> tuple[Format, ...]:
    """List the other tools whose benchmarks are in a file, in the order of `Format`.

    Raises:
        BadConfig: it seems to have some, and is not valid Python.
    """
    counts = count_benchmarks(source, file)
    return tuple(tool for tool in Format if counts[tool])


def count_benchmarks(source: str, file: str) -> Counter[Format]:
    """Count the functions or classes in a file that are benchmarks of each tool.

    Their parameters are not counted.

    Raises:
        BadConfig: it seems to have some, and is not valid Python.
    """
    if not any(hint in source for hint in _HINTS):
        return Counter()
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise BadConfig(f"{file}:{error.lineno or 1}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadConfig(f"{file}:1: cannot be read as Python: {error}") from error
    return Counter(_detect(tree))


def _detect(tree: ast.Module) -> Iterator[Format]:
    names = {
        getattr(node, "id", getattr(node, "attr", getattr(node, "name", "")))
        for node in ast.walk(tree)
    }
    has_parameters = bool(names & _GIVEN)
    for owner, node in _functions(tree):
        if node.name.startswith("test") and any(
            argument.arg == "benchmark" for argument in (*node.args.args, *node.args.kwonlyargs)
        ):
            yield Format.PYTEST
        inherits = owner is not None and bool(owner.bases)
        if (
            node.name.startswith(ASV_NAMES)
            and (has_parameters or inherits or _owed(node) <= bool(owner))
            and not _is_ours(node)
        ):
            yield Format.ASV
        if owner is None and "perf_report" in names and any(map(_is_report, node.decorator_list)):
            yield Format.PERF_REPORT
    if "perf_report" in names:
        yield from (Format.PERF_REPORT for node in tree.body if _is_called_report(node))
    if "register_benchmark" in names:
        yield from (Format.TRITONBENCH for node in tree.body if _is_operator(node))


def _functions(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | None, _Function]]:
    """Yield the functions of the module and of its classes, each after its class.

    Those inside of an `if` or a `try` are among them. The class of a module's own is `None`.
    """
    waiting: list[tuple[ast.ClassDef | None, ast.AST]] = [(None, node) for node in tree.body]
    while waiting:
        owner, node = waiting.pop(0)
        if isinstance(node, _Function):
            yield owner, node
        elif isinstance(node, ast.ClassDef):
            waiting += [(node, inner) for inner in node.body]
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            waiting += [(owner, inner) for inner in ast.iter_child_nodes(node)]


def _owed(node: _Function) -> int:
    """Return the number of arguments that a call has to give."""
    return len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)


def _is_report(decorator: ast.expr) -> bool:
    return _called(decorator) == "perf_report"


def _is_called_report(node: ast.stmt) -> bool:
    """Return true if a statement assigns ``perf_report(…)(function)``: the decorator with no @."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Call) and _is_report(value.func)
    )


def _is_ours(node: _Function) -> bool:
    return any(_called(decorator) in {"benchmark", "provider"} for decorator in node.decorator_list)


def _called(decorator: ast.expr) -> str:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return str(getattr(target, "attr", getattr(target, "id", "")))


def _is_operator(node: ast.stmt) -> bool:
    bases = node.bases if isinstance(node, ast.ClassDef) else ()
    return any(
        getattr(base, "attr", getattr(base, "id", "")) == "BenchmarkOperator" for base in bases
    )
