"""Names say what they hold, and fields say what they are: the words that never do, and the gaps."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_WORDS = """
found one told kept known said given taken wanted seen made held asked named listed left apart whole
own odd plain
"""
VAGUE = frozenset(_WORDS.split())
"""Words that stand for anything; as the name of a local or a parameter they tell a reader nothing."""
MOST_UNDOCUMENTED = 4
"""A dataclass with more fields documents each of them."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def bound(function: ast.AST) -> Iterator[str]:
    """The names that a function binds itself, in its lambdas and comprehensions too."""
    body = function.body if isinstance(function, FUNCTIONS) else []
    places: list[ast.AST] = [
        node for node in body if not isinstance(node, (*FUNCTIONS, ast.ClassDef))
    ]
    places += [function.args] if isinstance(function, FUNCTIONS) else [function]
    while places:
        node = places.pop()
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        inner = ast.iter_child_nodes(node)
        places += [child for child in inner if not isinstance(child, (*FUNCTIONS, ast.ClassDef))]


def vague(source: str) -> list[str]:
    """Locals and parameters with a word that stands for anything, as ``function: word``."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    lambdas = [node for node in tree.body if not isinstance(node, (*FUNCTIONS, ast.ClassDef))]
    inner = [node for part in lambdas for node in ast.walk(part) if is_scope(node)]
    return [
        f"{getattr(scope, 'name', 'module')}: {word}"
        for scope in (*functions, *inner)
        for word in sorted({*bound(scope)} & VAGUE)
    ]


def is_scope(node: ast.AST) -> bool:
    return isinstance(
        node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    )


def undocumented(source: str) -> list[str]:
    """Fields without a text below them, of dataclasses with many."""
    gaps = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and "dataclass" in map(decorator, node.decorator_list):
            fields = [at for at, item in enumerate(node.body) if isinstance(item, ast.AnnAssign)]
            silent = [at for at in fields if not is_text(node.body[at + 1 : at + 2])]
            if len(fields) > MOST_UNDOCUMENTED:
                gaps += [f"{node.name}.{ast.unparse(node.body[at].target)}" for at in silent]
    return gaps


def decorator(node: ast.AST) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def is_text(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(item, ast.Expr)
        and isinstance(item.value, ast.Constant)
        and isinstance(item.value.value, str)
        for item in body
    )


@pytest.mark.parametrize(
    ("rule", "folders"),
    [
        (vague, ("src", "entrypoint", "tools", "benchmarks")),
        (undocumented, ("src", "entrypoint", "tools", "benchmarks")),
    ],
)
def test_every_file_keeps_to_the_rule(rule, folders):
    complaints = {str(path.relative_to(ROOT)): rule(path.read_text()) for path in sources(*folders)}
    assert len(complaints) > 500
    assert {path: lines for path, lines in complaints.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "complaints"),
    [
        ("def f(found): pass", ["f: found"]),
        ("def f(*, own=1): pass", ["f: own"]),
        ("def f():\n    one = 1", ["f: one"]),
        ("def f():\n    with g() as held: pass", ["f: held"]),
        ("def f():\n    try: pass\n    except OSError as said: pass", ["f: said"]),
        ("def f():\n    return [one for one in g()]", ["f: one"]),
        ("def f():\n    return lambda known: 1", ["f: known"]),
        ("class A:\n    def f(self):\n        for given in g(): pass", ["f: given"]),
        ("def f():\n    def g(left): pass", ["g: left"]),
        ("X = [one for one in g()]", ["module: one"]),
        ("def f(case):\n    return case.found", []),
        ("def f(case):\n    return g(own=case)", []),
        ("class A:\n    found: int", []),
    ],
)
def test_vague_words_are_seen_where_they_are_bound(source, complaints):
    assert vague(source) == complaints


FIELDS = "".join(f'    {letter}: int = 1\n    """A number."""\n' for letter in "abcd")


@pytest.mark.parametrize(
    ("source", "complaints"),
    [
        (f"@dataclass\nclass A:\n{FIELDS}    e: int = 2\n", ["A.e"]),
        (f'@dataclasses.dataclass(frozen=True)\nclass A:\n{FIELDS}    e: int\n    """A."""\n', []),
        ("@dataclass\nclass A:\n    a: int\n    b: int\n", []),
        (f"class A:\n{FIELDS}    e: int = 2\n", []),
    ],
)
def test_a_field_without_a_text_is_seen(source, complaints):
    assert undocumented(source) == complaints
