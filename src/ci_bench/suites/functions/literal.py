"""Reads benchmarks from a file's source without running it, if decorators use only literals.

Other code (a list that is computed, a benchmark inside of an `if`, a decorator around it) is not
guessed at. The whole file has to be imported then, and gives the same declarations itself.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.suites.functions.grids import Arm, GridDeclaration

PACKAGE, DECORATOR, PROVIDER = "ci_bench", "benchmark", "provider"


class _NotPlain(Exception):  # noqa: N818 - a reason to import the file, not an error
    """Reason to import a file, since its source does not show its benchmarks."""


def read(source: str, file: str) -> tuple[GridDeclaration, ...] | None:
    """Return the benchmarks of a file in their order; `None` if it has to be imported for that.

    Raises:
        BadConfig: it is not valid Python.
    """
    if PACKAGE not in source:
        return ()
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise BadConfig(f"{file}:{error.lineno or 1}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadConfig(f"{file}:1: cannot be read as Python: {error}") from error
    try:
        return _Reader(file=file).read(tree)
    except _NotPlain:
        return None


@dataclass(kw_only=True, slots=True)
class _FoundNames:
    node: ast.FunctionDef
    keywords: dict[str, Any]
    arms: list[Arm]


@dataclass(kw_only=True, slots=True)
class _Reader:
    """Reader of one file."""

    file: str
    """Path of the file, for errors."""
    packages: set[str] = field(default_factory=set)
    """Names that the file has for `ci_bench`."""
    decorators: set[str] = field(default_factory=set)
    """Names that the file has for `ci_bench.benchmark`."""
    found: dict[str, _FoundNames] = field(default_factory=dict)
    """Benchmarks, by the name of their function."""
    plain: set[int] = field(default_factory=set)
    """Identities of understood nodes; any other mention of a decorator requires an import."""

    def read(self, tree: ast.Module) -> tuple[GridDeclaration, ...]:
        self._read_imports(tree)
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef):
                self._read_function(statement)
        for node in ast.walk(tree):
            self._require_plain(node)
        return tuple(map(self._declaration, self.found.values()))

    def _read_imports(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias for alias in node.names if alias.name.partition(".")[0] == PACKAGE]
                self.packages |= {
                    alias.asname or PACKAGE
                    for alias in names
                    if alias.asname is None or alias.name == PACKAGE
                }
            elif (
                isinstance(node, ast.ImportFrom)
                and (node.module or "").partition(".")[0] == PACKAGE
            ):
                if any(alias.name == "*" for alias in node.names):
                    raise _NotPlain
                self.decorators |= {
                    alias.asname or alias.name for alias in node.names if alias.name == DECORATOR
                }

    def _read_function(self, node: ast.FunctionDef) -> None:
        for place, decorator in enumerate(node.decorator_list):
            call = decorator if isinstance(decorator, ast.Call) else None
            target = call.func if call else decorator
            if self._is_decorator(target):
                self._require_outermost(place)
                self._add_benchmark(node, call)
            elif call and isinstance(target, ast.Attribute) and target.attr == PROVIDER:
                self._require_outermost(place)
                self._add_provider(node, call, target)
            else:
                continue
            self.plain |= {id(target), id(getattr(target, "value", target))}

    def _require_outermost(self, place: int) -> None:
        """Require that no other decorator is around it, since that may make anything of it."""
        if place:
            raise _NotPlain

    def _add_benchmark(self, node: ast.FunctionDef, call: ast.Call | None) -> None:
        if node.name in self.found or (call and call.args):
            raise _NotPlain
        keywords = {} if call is None else self._keywords(call, without="work")
        name = keywords.get(PROVIDER, node.name)
        self.found[node.name] = _FoundNames(
            node=node, keywords=keywords, arms=[self._arm(node, str(name), reference=False)]
        )

    def _add_provider(self, node: ast.FunctionDef, call: ast.Call, target: ast.Attribute) -> None:
        base = target.value.id if isinstance(target.value, ast.Name) else ""
        keywords = self._keywords(call)
        if base not in self.found or len(call.args) > 1 or not {*keywords} <= {"name", "reference"}:
            raise _NotPlain
        names = [_literal(argument) for argument in call.args] + [
            keywords[name] for name in keywords if name == "name"
        ]
        if len(names) != 1:
            raise _NotPlain
        self.found[base].arms.append(
            self._arm(node, str(names[0]), reference=bool(keywords.get("reference", False)))
        )

    def _arm(self, node: ast.FunctionDef, name: str, *, reference: bool) -> Arm:
        return Arm(name=name, parameters=_parameters(node), line=_line(node), reference=reference)

    def _keywords(self, call: ast.Call, without: str = "") -> dict[str, Any]:
        values: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise _NotPlain
            if keyword.arg != without:
                values[keyword.arg] = _literal(keyword.value)
        return values

    def _is_decorator(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.decorators
        return (
            isinstance(node, ast.Attribute)
            and node.attr == DECORATOR
            and isinstance(node.value, ast.Name)
            and node.value.id in self.packages
        )

    def _require_plain(self, node: ast.AST) -> None:
        """Require that no benchmark is made, renamed or given a provider in an unknown way."""
        if id(node) in self.plain:
            return
        names = self.decorators | self.packages | {*self.found}
        if isinstance(node, ast.expr) and self._is_decorator(node):
            raise _NotPlain
        if (
            isinstance(node, ast.Attribute)
            and node.attr == PROVIDER
            and getattr(node.value, "id", "") in names
        ):
            raise _NotPlain
        if isinstance(node, ast.Name) and node.id in names and not isinstance(node.ctx, ast.Load):
            raise _NotPlain
        if isinstance(node, ast.Name) and node.id in self.found:
            raise _NotPlain  # it may be handed to whatever adds a provider
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name in names
        ):
            benchmark = self.found.get(node.name)
            if benchmark is None or benchmark.node is not node:
                raise _NotPlain

    def _declaration(self, benchmark: _FoundNames) -> GridDeclaration:
        return GridDeclaration(
            file=self.file,
            line=_line(benchmark.node),
            function=benchmark.node.name,
            parameters=_parameters(benchmark.node),
            optional=frozenset(_optional(benchmark.node)),
            keywords=benchmark.keywords,
            arms=tuple(benchmark.arms),
        )


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _NotPlain from None


def _line(node: ast.FunctionDef) -> int:
    """Return the line of the first decorator, as a function's code has it."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _parameters(node: ast.FunctionDef) -> tuple[str, ...]:
    if node.args.vararg or node.args.kwarg or node.args.posonlyargs:
        raise _NotPlain
    return tuple(argument.arg for argument in (*node.args.args, *node.args.kwonlyargs))


def _optional(node: ast.FunctionDef) -> Iterator[str]:
    names = [argument.arg for argument in node.args.args]
    yield from names[len(names) - len(node.args.defaults) :]
    yield from (
        keyword.arg
        for keyword, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if default is not None
    )
