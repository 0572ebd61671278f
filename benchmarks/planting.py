"""Takes a guard out of a file: the text with one change, at a place that is named by what is there and found by parsing. Pure.

A place in Python is a module, class, function or method, and in it an expression or a statement,
which may be formatted in any way. In YAML it is a path of keys and numbers; in other files a line.
What is no longer there, or is there twice, is an error.
"""

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import yaml

_Found = TypeVar("_Found")

_Owner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_INNER = ("body", "orelse", "handlers", "finalbody", "cases")


class NotFound(Exception):  # noqa: N818 - says what it is
    """The guard is not where the table says."""


class Change(Protocol):
    """How a guard is taken out."""

    def apply(self, text: str) -> str:
        """The text of the file without it. Raises `NotFound`."""

    def __str__(self) -> str:
        """The change in words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Replaced:
    """In `within`, the expression or statement `sound` becomes `broken`: nothing, one or several statements."""

    within: str
    sound: str
    broken: str

    def apply(self, text: str) -> str:
        """The module without it."""
        module = ast.parse(text)
        owner = _owner(module, self.within)
        wanted = _pattern(self.sound, statement=_is_statement(self.broken))
        sites = [site for site in _sites(owner) if _same(site.node, wanted)]
        site = _only(sites, self.sound, self.within)
        if not isinstance(site.node, ast.stmt):
            return _edited(text, module, site, [_pattern(self.broken)])
        made = _statements(self.broken)
        return _edited(
            text,
            module,
            site,
            _with_body(made, site.node) if self.sound.rstrip().endswith(":") else made,
        )

    def __str__(self) -> str:
        """With what stands for it."""
        return f"`{self.sound}` → `{self.broken}`" if self.broken else f"without `{self.sound}`"


@dataclass(frozen=True, kw_only=True, slots=True)
class Argued:
    """In `within`, the argument ``name=value`` of a call becomes others, or is left out."""

    within: str
    sound: str
    broken: str

    def apply(self, text: str) -> str:
        """The module with the other argument."""
        module = ast.parse(text)
        (wanted,), made = _keywords(self.sound), _keywords(self.broken)
        sites = [site for site in _sites(_owner(module, self.within)) if _same(site.node, wanted)]
        return _edited(text, module, _only(sites, self.sound, self.within), made)

    def __str__(self) -> str:
        """With what stands for it."""
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
        """The module with the short function."""
        module = ast.parse(text)
        owner = _owner(module, self.within)
        if not isinstance(owner, ast.FunctionDef):
            raise NotFound(f"{self.within or 'the module'} is no function")
        made = ast.parse(f"return {self.value}").body
        words = owner.body[:1] if ast.get_docstring(owner) is not None else []
        if [ast.dump(one) for one in owner.body] == [ast.dump(one) for one in [*words, *made]]:
            raise NotFound(f"{self.within} returns {self.value} and nothing else already")
        short = copy.copy(owner)
        short.body = [*words, *made]
        (site,) = [site for site in _below(module, (), whole=True) if site.node is owner]
        return _edited(text, module, site, [short])

    def __str__(self) -> str:
        """With what it returns."""
        return f"returns `{self.value}` at once"


@dataclass(frozen=True, kw_only=True, slots=True)
class Keyed:
    """In a YAML file, what stands at `path` becomes `broken`, which is YAML too; `None` takes the key away."""

    path: tuple[str | int, ...]
    broken: str | None

    def apply(self, text: str) -> str:
        """The file without it; comments and the rest stay as they are."""
        key, value = _yaml_node(yaml.compose(text), self.path)
        if self.broken is None:
            changed = text[: key.start_mark.index] + text[value.end_mark.index :]
        else:
            changed = text[: value.start_mark.index] + self.broken + text[value.end_mark.index :]
        if yaml.safe_load(changed) == yaml.safe_load(text):
            raise NotFound(f"{self._where()} is {self.broken} already")
        return changed

    def _where(self) -> str:
        return ".".join(map(str, self.path))

    def __str__(self) -> str:
        """With what stands for it."""
        return (
            f"without `{self._where()}`"
            if self.broken is None
            else f"`{self._where()}: {self.broken}`"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Lined:
    """In any other file, one line becomes another one, or is left out; spaces around it don't count."""

    sound: str
    broken: str

    def apply(self, text: str) -> str:
        """The file without it."""
        lines = text.splitlines(keepends=True)
        found = [index for index, line in enumerate(lines) if line.strip() == self.sound.strip()]
        index = _only(found, self.sound, "")
        lines[index] = lines[index].replace(self.sound.strip(), self.broken) if self.broken else ""
        return "".join(lines)

    def __str__(self) -> str:
        """With what stands for it."""
        return f"`{self.sound}` → `{self.broken}`" if self.broken else f"without `{self.sound}`"


@dataclass(frozen=True, slots=True)
class _Site:
    """A node, and where it hangs: a field of its parent, and the number in it where that is a list.

    Statements go outwards.
    """

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    statements: tuple[ast.stmt, ...]


def _sites(owner: ast.AST) -> Iterator[_Site]:
    """Everything in a function; of a module or class what is its own, and not a function's."""
    yield from _below(
        owner,
        (owner,) if isinstance(owner, ast.stmt) else (),
        whole=isinstance(owner, ast.FunctionDef),
    )


def _below(parent: ast.AST, statements: tuple[ast.stmt, ...], *, whole: bool) -> Iterator[_Site]:
    for field, value in ast.iter_fields(parent):
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST):
                continue
            inner = (child, *statements) if isinstance(child, ast.stmt) else statements
            yield _Site(child, parent, field, index, inner)
            if whole or not isinstance(child, _Owner):
                yield from _below(child, inner, whole=whole)


def _owner(module: ast.Module, within: str) -> ast.Module | _Owner:
    """The class, function or method of a qualified name; the module for none."""
    found: ast.Module | _Owner = module
    for name in within.split(".") if within else ():
        inner = (
            [one for one in ast.walk(found) if isinstance(one, _Owner) and one.name == name]
            if found is not module
            else []
        )
        inner = inner or [one for one in found.body if isinstance(one, _Owner) and one.name == name]
        found = _only(inner, name, within)
    return found


def _only(found: Sequence[_Found], sound: str, within: str) -> _Found:
    place = within or "the file"
    if len(found) != 1:
        raise NotFound(f"{place} has {len(found) or 'no'} places with `{sound}`")
    return found[0]


def _pattern(text: str, *, statement: bool = False) -> ast.AST:
    """What a text means: an expression where it is one, else a statement; of one that ends with a colon, the head alone."""
    if not statement:
        try:
            return ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            pass
    made = _statements(text)
    if len(made) != 1:
        raise NotFound(f"`{text}` is no statement, but {len(made)}")
    return made[0]


def _statements(text: str) -> list[ast.stmt]:
    lines = text.strip("\n")
    made = ast.parse(f"{lines}\n    ..." if lines.rstrip().endswith(":") else lines).body
    return made or [ast.Pass()]


def _is_statement(broken: str) -> bool:
    """Whether what comes instead can only stand where a statement does: nothing, or what is no expression."""
    try:
        ast.parse(broken.strip(), mode="eval")
    except SyntaxError:
        return True
    return False


def _with_body(made: list[ast.stmt], of: ast.stmt) -> list[ast.stmt]:
    """Heads alone get the body of the statement that they stand for."""
    if len(made) == 1 and hasattr(made[0], "body"):
        for name in _INNER:
            if hasattr(of, name) and hasattr(made[0], name):
                setattr(made[0], name, getattr(of, name))
    return made


def _keywords(text: str) -> list[ast.keyword]:
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)  # noqa: S101 - as it was written
    return call.keywords


def _same(node: ast.AST, wanted: ast.AST) -> bool:
    """Whether two nodes mean the same; of a head alone, whether it is the other one's."""
    if type(node) is not type(wanted):
        return False
    body = getattr(wanted, "body", None)
    if (
        isinstance(wanted, ast.stmt)
        and isinstance(body, list)
        and ast.dump(body[0]) == ast.dump(ast.Expr(ast.Constant(...)))
    ):
        node, wanted = (_head(one) for one in (node, wanted))
    return ast.dump(node) == ast.dump(wanted)


def _head(statement: ast.AST) -> ast.AST:
    alone = copy.copy(statement)
    for name in _INNER:
        if isinstance(getattr(alone, name, None), list):
            setattr(alone, name, [])
    return alone


def _edited(text: str, module: ast.Module, site: _Site, made: Sequence[ast.AST]) -> str:
    """The text with other nodes in the place of one: the statement around it is written anew, and nothing else."""
    before = ast.dump(module)
    held = getattr(site.parent, site.field)
    if site.index is None:
        (made_one,) = made
        setattr(site.parent, site.field, made_one)
    else:
        held[site.index : site.index + 1] = made
    if isinstance(site.node, ast.stmt):
        first, statements = (
            [one for one in made if isinstance(one, ast.stmt)],
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
            [statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))]
        )
        line = lines[start - 1]
        prefix = line[: len(line) - len(line.lstrip())]
        alone = len(prefix) == statement.col_offset and not (
            isinstance(statement, ast.If) and line.lstrip().startswith("elif")
        )
        if not alone:
            continue
        written = first if number == 0 else [statement]
        whole = "".join(
            [
                *lines[: start - 1],
                _written(written, len(prefix)),
                *lines[statement.end_lineno or start :],
            ]
        )
        if ast.dump(ast.parse(whole)) == ast.dump(module) != before:
            return whole
    raise NotFound(f"`{ast.unparse(site.node)}` cannot be changed there")


def _written(statements: list[ast.stmt], indent: int) -> str:
    """Statements as text, where they hang: not indented afterwards, since lines of a string are not to be."""
    depth, made = indent // 4, statements
    for _ in range(depth):
        made = [ast.If(test=ast.Constant(value=True), body=made, orelse=[])]
    text = "\n".join(ast.unparse(ast.fix_missing_locations(one)) for one in made)
    return "\n".join(text.split("\n")[depth:]).lstrip("\n") + "\n"


def _yaml_node(root: Any, path: Sequence[str | int]) -> tuple[Any, Any]:
    """Key and value of the last part of a path."""
    key, value = root, root
    for part in path:
        if isinstance(value, yaml.MappingNode):
            pairs = [pair for pair in value.value if pair[0].value == str(part)]
        elif (
            isinstance(value, yaml.SequenceNode)
            and isinstance(part, int)
            and part < len(value.value)
        ):
            pairs = [(value.value[part], value.value[part])]
        else:
            pairs = []
        if len(pairs) != 1:
            raise NotFound(f"there is no {'.'.join(map(str, path))}")
        ((key, value),) = pairs
    return key, value
