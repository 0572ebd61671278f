"""Takes a guard out of a file: returns the text with one change. Pure.

The place is named by its code and found by parsing. It is a module, class, function or method, and
in it an expression or a statement, which may be formatted in any way. Code that is no longer there,
or is there twice, is an error.
"""

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

_Found = TypeVar("_Found")

_Owner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_INNER = ("body", "orelse", "handlers", "finalbody", "cases")


class NotFound(Exception):  # noqa: N818 - says what it is
    """The guard is not where the table says."""


class Change(Protocol):
    """Removal of a guard."""

    def apply(self, text: str) -> str:
        """Return the text of the file without it, or raise `NotFound`."""

    def __str__(self) -> str:
        """Return the change in words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Replaced:
    """Replacement in `within` of an expression or statement `sound` by `broken`.

    `broken` is nothing, one or several statements.
    """

    within: str
    sound: str
    broken: str

    def apply(self, text: str) -> str:
        """Return the module without it."""
        module = ast.parse(text)
        owner = _owner(module, self.within)
        pattern = _pattern(self.sound, statement=_is_statement(self.broken))
        sites = [site for site in _sites(owner) if _same(site.node, pattern)]
        site = _only(sites, self.sound, self.within)
        if not isinstance(site.node, ast.stmt):
            return _edited(text, module, site, [_pattern(self.broken)])
        replacement = _statements(self.broken)
        return _edited(
            text,
            module,
            site,
            _with_body(replacement, site.node)
            if self.sound.rstrip().endswith(":")
            else replacement,
        )

    def __str__(self) -> str:
        """Name it, and its replacement."""
        return f"`{self.sound}` → `{self.broken}`" if self.broken else f"without `{self.sound}`"


@dataclass(frozen=True, kw_only=True, slots=True)
class Argued:
    """In `within`, the argument ``name=value`` of a call becomes others, or is left out."""

    within: str
    sound: str
    broken: str

    def apply(self, text: str) -> str:
        """Return the module with the other argument."""
        module = ast.parse(text)
        (pattern,), replacement = _keywords(self.sound), _keywords(self.broken)
        sites = [site for site in _sites(_owner(module, self.within)) if _same(site.node, pattern)]
        return _edited(text, module, _only(sites, self.sound, self.within), replacement)

    def __str__(self) -> str:
        """Name it, and its replacement."""
        return (
            f"argument `{self.sound}` → `{self.broken}`"
            if self.broken
            else f"without the argument `{self.sound}`"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Returned:
    """The function `within` does nothing but return a value."""

    within: str
    value: str

    def apply(self, text: str) -> str:
        """Return the module with the short function."""
        module = ast.parse(text)
        owner = _owner(module, self.within)
        if not isinstance(owner, ast.FunctionDef):
            raise NotFound(f"{self.within or 'the module'} is no function")
        replacement = ast.parse(f"return {self.value}").body
        words = owner.body[:1] if ast.get_docstring(owner) is not None else []
        if [ast.dump(statement) for statement in owner.body] == [
            ast.dump(statement) for statement in [*words, *replacement]
        ]:
            raise NotFound(f"{self.within} returns {self.value} and nothing else already")
        short = copy.copy(owner)
        short.body = [*words, *replacement]
        (site,) = [site for site in _below(module, (), deep=True) if site.node is owner]
        return _edited(text, module, site, [short])

    def __str__(self) -> str:
        """Name it, and the value that it returns."""
        return f"returns `{self.value}` at once"


@dataclass(frozen=True, slots=True)
class _Site:
    """A node, and its position in the tree."""

    node: ast.AST
    """The node."""
    parent: ast.AST
    """The node that has it in a field."""
    field: str
    """The name of that field."""
    index: int | None
    """Its number in the field's list; `None` if the field is not a list."""
    statements: tuple[ast.stmt, ...]
    """The statements around it, from the innermost outwards."""


def _sites(owner: ast.AST) -> Iterator[_Site]:
    """Yield all nodes in a function; of a module or class only those outside of functions."""
    yield from _below(
        owner,
        (owner,) if isinstance(owner, ast.stmt) else (),
        deep=isinstance(owner, ast.FunctionDef),
    )


def _below(parent: ast.AST, statements: tuple[ast.stmt, ...], *, deep: bool) -> Iterator[_Site]:
    for field, value in ast.iter_fields(parent):
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST):
                continue
            inner = (child, *statements) if isinstance(child, ast.stmt) else statements
            yield _Site(child, parent, field, index, inner)
            if deep or not isinstance(child, _Owner):
                yield from _below(child, inner, deep=deep)


def _owner(module: ast.Module, within: str) -> ast.Module | _Owner:
    """Return the class, function or method of a qualified name; the module for an empty one."""
    owner: ast.Module | _Owner = module
    for name in within.split(".") if within else ():
        inner = (
            [node for node in ast.walk(owner) if isinstance(node, _Owner) and node.name == name]
            if owner is not module
            else []
        )
        inner = inner or [
            node for node in owner.body if isinstance(node, _Owner) and node.name == name
        ]
        owner = _only(inner, name, within)
    return owner


def _only(matches: Sequence[_Found], sound: str, within: str) -> _Found:
    place = within or "the file"
    if len(matches) != 1:
        raise NotFound(f"{place} has {len(matches) or 'no'} places with `{sound}`")
    return matches[0]


def _pattern(text: str, *, statement: bool = False) -> ast.AST:
    """Parse a text: an expression if it is one, else a statement.

    Of a statement that ends with a colon, only the head is meant.
    """
    if not statement:
        try:
            return ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            pass
    statements = _statements(text)
    if len(statements) != 1:
        raise NotFound(f"`{text}` is no statement, but {len(statements)}")
    return statements[0]


def _statements(text: str) -> list[ast.stmt]:
    lines = text.strip("\n")
    body = ast.parse(f"{lines}\n    ..." if lines.rstrip().endswith(":") else lines).body
    return body or [ast.Pass()]


def _is_statement(broken: str) -> bool:
    """Return whether the replacement can only be a statement: nothing, or not an expression."""
    try:
        ast.parse(broken.strip(), mode="eval")
    except SyntaxError:
        return True
    return False


def _with_body(heads: list[ast.stmt], of: ast.stmt) -> list[ast.stmt]:
    """Give heads the body of the statement that they replace."""
    if len(heads) == 1 and hasattr(heads[0], "body"):
        for name in _INNER:
            if hasattr(of, name) and hasattr(heads[0], name):
                setattr(heads[0], name, getattr(of, name))
    return heads


def _keywords(text: str) -> list[ast.keyword]:
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)  # noqa: S101 - as it was written
    return call.keywords


def _same(node: ast.AST, pattern: ast.AST) -> bool:
    """Return whether two nodes mean the same; a bare head is compared with the other's head."""
    if type(node) is not type(pattern):
        return False
    body = getattr(pattern, "body", None)
    if (
        isinstance(pattern, ast.stmt)
        and isinstance(body, list)
        and ast.dump(body[0]) == ast.dump(ast.Expr(ast.Constant(...)))
    ):
        node, pattern = (_head(each) for each in (node, pattern))
    return ast.dump(node) == ast.dump(pattern)


def _head(statement: ast.AST) -> ast.AST:
    alone = copy.copy(statement)
    for name in _INNER:
        if isinstance(getattr(alone, name, None), list):
            setattr(alone, name, [])
    return alone


def _edited(text: str, module: ast.Module, site: _Site, replacement: Sequence[ast.AST]) -> str:
    """Return the text with other nodes instead of one.

    Only the statement around it is written again.
    """
    before = ast.dump(module)
    siblings = getattr(site.parent, site.field)
    if site.index is None:
        (made_one,) = replacement
        setattr(site.parent, site.field, made_one)
    else:
        siblings[site.index : site.index + 1] = replacement
    if isinstance(site.node, ast.stmt):
        first, statements = (
            [node for node in replacement if isinstance(node, ast.stmt)],
            (
                site.node,
                *site.statements[1:],
            ),
        )
    else:
        first, statements = list(site.statements[:1]), site.statements
    lines = text.splitlines(keepends=True)
    for number, statement in enumerate(statements):
        start = min(
            [statement.lineno, *(node.lineno for node in getattr(statement, "decorator_list", ()))]
        )
        line = lines[start - 1]
        prefix = line[: len(line) - len(line.lstrip())]
        alone = len(prefix) == statement.col_offset and not (
            isinstance(statement, ast.If) and line.lstrip().startswith("elif")
        )
        if not alone:
            continue
        written = first if number == 0 else [statement]
        changed = "".join(
            [
                *lines[: start - 1],
                _written(written, len(prefix)),
                *lines[statement.end_lineno or start :],
            ]
        )
        if ast.dump(ast.parse(changed)) == ast.dump(module) != before:
            return changed
    raise NotFound(f"`{ast.unparse(site.node)}` cannot be changed there")


def _written(statements: list[ast.stmt], indent: int) -> str:
    """Return statements as text at their depth.

    They are not indented afterwards, since lines of a string must not be.
    """
    depth, nested = indent // 4, statements
    for _ in range(depth):
        nested = [ast.If(test=ast.Constant(value=True), body=nested, orelse=[])]
    text = "\n".join(ast.unparse(ast.fix_missing_locations(statement)) for statement in nested)
    return "\n".join(text.split("\n")[depth:]).lstrip("\n") + "\n"
