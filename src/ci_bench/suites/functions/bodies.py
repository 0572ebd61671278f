"""Digest of a benchmark's code: its functions, its providers, and the parts of its file they use.

If no result of a benchmark can be compared, other code may be other work. The digest comes from the
file's text, without importing it.
"""

import ast
import hashlib
from collections.abc import Iterator

LENGTH = 16
"""Hexadecimal digits of a digest."""


def digest_of(source: str, function: str) -> str:
    """The digest of a benchmark's code, without its decorators; empty if the file has no such function.

    `function` is the benchmark's name in the file, with its class in front where it is a method.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    name = function.rpartition(".")[2]
    own = [node for node in _functions(tree) if node.name == name or _provides(node, name)]
    if not own:
        return ""
    top = {name: node for node in tree.body for name in _defined(node)}
    used: dict[str, ast.AST] = {}
    waiting: list[ast.AST] = [*own]
    while waiting:
        for named in (node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)):
            if named in top and named not in used and top[named] not in own:
                used[named] = top[named]
                waiting.append(top[named])
    parts = [_plain(node) for node in own] + [_plain(used[named]) for named in sorted(used)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:LENGTH]


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _provides(node: ast.AST, name: str) -> bool:
    """Return true if a function is another provider of a benchmark: ``@name.provider(…)``."""
    found = (
        one.func if isinstance(one, ast.Call) else one
        for one in getattr(node, "decorator_list", ())
    )
    return any(
        isinstance(one, ast.Attribute)
        and one.attr == "provider"
        and isinstance(one.value, ast.Name)
        and one.value.id == name
        for one in found
    )


def _defined(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top of a file defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (
            one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
        )


def _plain(node: ast.AST) -> str:
    """A definition without places, decorators and docstring."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        return "\n".join([ast.dump(node.args), *(ast.dump(one) for one in body)])
    return ast.dump(node)
