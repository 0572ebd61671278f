"""The places of a module where one thing can be changed, and the module with that change.

Knows neither tests nor files' fates.

A place is a comparison, an arithmetic or boolean operator, a number, a truth or a negation.
Decorators, annotations and texts are none, nor is ``strict=True`` of zip: these guard against
defects, and decide nothing of the judge.
"""

import ast
import copy
import hashlib
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One change of a module."""

    module: str
    """The dotted name of the module."""
    place: int
    """The number of the place in the module."""
    key: str
    """Its name, which stays the same when other functions of the module change."""
    owner: str
    """The function or method it is in; empty for code that runs at import."""
    names: tuple[str, ...]
    """The names that code at import binds."""
    lines: tuple[int, int]
    """First and last line of the innermost statement, without the body of a compound one."""
    text: str
    """The text of the line, without its indentation."""
    change: str
    """The change in words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """A place of a module that can be changed."""

    node: ast.AST
    """The node that is changed."""
    operator: int
    """The number of the operator in the node; 0 unless it is a chain of comparisons."""
    change: str
    """The change in words."""
    owner: str
    """The function or method it is in; empty for code that runs at import."""
    names: tuple[str, ...]
    """The names that code at import binds."""
    statement: ast.stmt
    """The innermost statement around it."""
    outermost: ast.stmt
    """The outermost statement around it, within a class if it is in one."""
    guard: bool
    """True if it guards against defects (``strict=True``), and makes no mutant."""


@cache
def text_of(path: Path) -> str:
    """Return a file as it was at the first call: later edits change no mutant."""
    return path.read_text()


def mutants(module: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of its text."""
    lines, collected, counts = source.splitlines(), [], dict[str, int]()
    for number, place in enumerate(_places(ast.parse(source))):
        first, last = _extent(place.statement)
        line = getattr(place.node, "lineno", first)
        print_of = hashlib.sha256(
            f"{module} {place.owner} {ast.dump(place.outermost)}".encode()
        ).hexdigest()[:12]
        counts[print_of] = counts.get(print_of, -1) + 1
        if place.guard:
            continue
        collected.append(
            Mutant(
                module=module,
                place=number,
                key=f"{print_of}-{counts[print_of]}",
                owner=place.owner,
                names=place.names,
                lines=(first, last),
                text=lines[line - 1].strip(),
                change=place.change,
            )
        )
    return collected


def compiled(source: str, place: int | None, name: str) -> types.CodeType:
    """Return the module's code with the change at one place, at its usual lines.

    Without a place, it is the sound code.
    """
    tree = ast.parse(source)
    if place is not None:
        _change(
            next(candidate for number, candidate in enumerate(_places(tree)) if number == place)
        )
    code = compile(ast.fix_missing_locations(tree), name, "exec")
    assert isinstance(code, types.CodeType)  # noqa: S101 - compile says Any
    return code


def code_of(module: types.CodeType, owner: str) -> types.CodeType:
    """Return the code of a function or method, `f` or `C.m`, within that of its module."""
    for part in owner.split("."):
        module = next(
            constant
            for constant in module.co_consts
            if isinstance(constant, types.CodeType) and constant.co_name == part
        )
    return module


def mentions(tree: ast.AST, names: frozenset[str]) -> set[int]:
    """Return the lines on which one of the names is used."""
    return {
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.Attribute) and node.attr in names)
    }


def affected(trees: Iterable[ast.Module], names: frozenset[str]) -> frozenset[str]:
    """Return the names, and all that they bind when modules are imported.

    These are constants, classes by a field, and functions by a default.
    """
    bound = [
        (statement.names, statement.value) for tree in trees for statement in _bindings(tree.body)
    ]
    while True:
        more = {
            name
            for targets, value in bound
            if not names.issuperset(targets) and mentions(value, names)
            for name in targets
        }
        if not more - names:
            return names
        names |= more


@dataclass(frozen=True, slots=True)
class _Binding:
    names: tuple[str, ...]
    value: ast.AST


def _bindings(body: Sequence[ast.stmt], within: tuple[str, ...] = ()) -> Iterator[_Binding]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _bindings(statement.body, (*within, statement.name))
        elif isinstance(statement, _Function):
            yield from (
                _Binding((*within, statement.name), value) for value in _own_expressions(statement)
            )
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
            yield _Binding((*within, *_bound(statement)), statement.value)


def _places(tree: ast.Module) -> Iterator[_Place]:
    for statement in tree.body:
        yield from _in_statement(statement, "", statement, ())


def _in_statement(
    statement: ast.stmt, owner: str, outermost: ast.stmt, names: tuple[str, ...]
) -> Iterator[_Place]:
    """Yield the places of a statement, those of its own expressions first.

    The defaults of a definition bind its name.
    """
    if isinstance(statement, _Function):
        inner = owner if owner and not owner.endswith(".") else f"{owner}{statement.name}"
        names = (*names, statement.name) if inner != owner else names
    elif isinstance(statement, ast.ClassDef):
        inner, names = f"{owner}{statement.name}.", (*names, statement.name)
    else:
        inner = owner
        names = (*names, *_bound(statement)) if not owner or owner.endswith(".") else names
    holder = "" if owner.endswith(".") else owner
    for expression in _own_expressions(statement):
        guards = {
            id(keyword.value)
            for keyword in ast.walk(expression)
            if isinstance(keyword, ast.keyword) and keyword.arg == "strict"
        }
        for node in ast.walk(expression):
            for operator, change in _changes(node):
                yield _Place(
                    node=node,
                    operator=operator,
                    change=change,
                    owner=holder,
                    names=names,
                    statement=statement,
                    outermost=outermost,
                    guard=id(node) in guards,
                )
    for child in _inner_statements(statement):
        within = isinstance(statement, ast.ClassDef)
        yield from _in_statement(child, inner, child if within else outermost, names)


def _bound(statement: ast.stmt) -> tuple[str, ...]:
    if isinstance(statement, ast.Assign):
        return tuple(
            node.id
            for target in statement.targets
            for node in ast.walk(target)
            if isinstance(node, ast.Name)
        )
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return (statement.target.id,)
    return ()


def _inner_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions that a statement computes itself.

    Decorators, annotations and inner statements are left out.
    """
    if isinstance(statement, _Function):
        yield from (
            default
            for default in (*statement.args.defaults, *statement.args.kw_defaults)
            if default
        )
    elif isinstance(statement, ast.AnnAssign):
        yield from [statement.value] if statement.value else []
    elif not isinstance(statement, ast.ClassDef):
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.match_case):
                yield from (child.pattern, *([child.guard] if child.guard else []))
            elif isinstance(child, ast.expr | ast.withitem):
                yield child


def _extent(statement: ast.stmt) -> tuple[int, int]:
    inner = [child.lineno for child in _inner_statements(statement)]
    return statement.lineno, (
        max(min(inner) - 1, statement.lineno) if inner else statement.end_lineno or statement.lineno
    )


def _changes(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the changes of a node: the number of its operator, and the change in words.

    A chain of comparisons has several operators.
    """
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            yield number, f"{type(operator).__name__} to {_SWAPS[type(operator)].__name__}"
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS:
        yield 0, f"{type(node.op).__name__} to {_SWAPS[type(node.op)].__name__}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield 0, f"{type(node.op).__name__} is dropped"
    elif (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and _other(node.value) != node.value
    ):
        yield 0, f"{node.value!r} to {_other(node.value)!r}"


def _other(value: float) -> float:
    return not value if isinstance(value, bool) else value + 1


def _change(place: _Place) -> None:
    node = place.node
    if isinstance(node, ast.Compare):
        node.ops[place.operator] = _SWAPS[type(node.ops[place.operator])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        node.value = _other(node.value)  # type: ignore[arg-type]
    elif isinstance(node, ast.UnaryOp):
        node.operand = ast.copy_location(
            ast.UnaryOp(op=node.op, operand=copy.copy(node.operand)), node
        )
