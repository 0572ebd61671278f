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
    """Return the digest of a benchmark's code without its decorators.

    It is empty if the file has no such function. `function` is the benchmark's name in the file,
    with its class in front if it is a method.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    name = function.rpartition(".")[2]
    definitions = [node for node in _functions(tree) if node.name == name or _provides(node, name)]
    if not definitions:
        return ""
    top = {name: node for node in tree.body for name in _defined(node)}
    used: dict[str, ast.AST] = {}
    waiting: list[ast.AST] = [*definitions]
    while waiting:
        for identifier in (
            node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)
        ):
            if identifier in top and identifier not in used and top[identifier] not in definitions:
                used[identifier] = top[identifier]
                waiting.append(top[identifier])
    parts = [_dump(node) for node in definitions] + [
        _dump(used[identifier]) for identifier in sorted(used)
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:LENGTH]


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _provides(node: ast.AST, name: str) -> bool:
    """Return true if a function is another provider of a benchmark: ``@name.provider(…)``."""
    targets = (
        decorator.func if isinstance(decorator, ast.Call) else decorator
        for decorator in getattr(node, "decorator_list", ())
    )
    return any(
        isinstance(target, ast.Attribute)
        and target.attr == "provider"
        and isinstance(target.value, ast.Name)
        and target.value.id == name
        for target in targets
    )


def _defined(node: ast.stmt) -> Iterator[str]:
    """Return the names that a statement at the top of a file defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (
            part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)
        )


def _dump(node: ast.AST) -> str:
    """Dump a definition without places, decorators and docstring."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        return "\n".join([ast.dump(node.args), *(ast.dump(statement) for statement in body)])
    return ast.dump(node)
