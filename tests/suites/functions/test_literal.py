"""What is read without importing is what importing finds; what cannot be read for certain is left to importing."""

import sys

import pytest
from functions_builders import HEAD, write

from ci_bench.errors import BadConfig
from ci_bench.suites.functions import literal
from ci_bench.suites.functions.importing import benchmarks, declarations

PLAIN = {
    "a grid with providers": """
        @ci_bench.benchmark(shapes=[(1024, 64), (-1, 2)], dtype=["fp32"], backward=True, work=lambda shape, dtype: {})
        def attention(shape, dtype, *, causal=False):
            return lambda: None

        @attention.provider("torch", reference=True)
        def _(shape, dtype, causal=False):
            return lambda: None

        @attention.provider(name="other")
        def other(shape, dtype, causal=False):
            yield lambda: None
    """,
    "another name of the decorator": """
        from ci_bench import benchmark as b, inputs

        @b
        def plain():
            return lambda: None

        @b(cases=[{"n": 1}], provider="mine", threshold=0.02)
        def listed(n):
            return lambda: None
    """,
    "another name of the package": """
        import ci_bench as cb

        @cb.benchmark(n=[1])
        @torch.no_grad()
        def under(n):
            return lambda: cb
    """,
}
NOT_PLAIN = {
    "a list that is computed": "@ci_bench.benchmark(n=[2**k for k in range(3)])\ndef f(n): ...",
    "a name": "SIZES = [1]\n@ci_bench.benchmark(n=SIZES)\ndef f(n): ...",
    "keywords from elsewhere": "K = {'n': [1]}\n@ci_bench.benchmark(**K)\ndef f(n): ...",
    "a condition": "if torch.cuda.is_available():\n    @ci_bench.benchmark(n=[1])\n    def f(n): ...",
    "a call": "def g(n): ...\nf = ci_bench.benchmark(n=[1])(g)",
    "a loop of providers": "@ci_bench.benchmark\ndef f(): ...\nfor name in 'ab':\n    f.provider(name)(lambda: None)",
    "a benchmark that is handed on": "@ci_bench.benchmark\ndef f(): ...\nregister(f)",
    "a benchmark by another name": "@ci_bench.benchmark\ndef f(): ...\ng = f\n@g.provider('x')\ndef _(): ...",
    "a provider of elsewhere": "from other import f\n@f.provider('x')\ndef _(): ...",
    "a decorator around it": "@wrap\n@ci_bench.benchmark\ndef f(): ...",
    "a star": "from ci_bench import *\n@benchmark\ndef f(): ...",
    "two of one name": "@ci_bench.benchmark\ndef f(): ...\n@ci_bench.benchmark\ndef f(): ...",
    "the decorator by another name": "b = ci_bench.benchmark\n@b\ndef f(): ...",
    "a name for a provider": "NAME = 'x'\n@ci_bench.benchmark\ndef f(): ...\n@f.provider(NAME)\ndef _(): ...",
    "any parameters": "@ci_bench.benchmark(n=[1])\ndef f(**given): ...",
}


@pytest.mark.engine
@pytest.mark.parametrize("source", PLAIN.values(), ids=PLAIN)
def test_both_ways_declare_the_same(tree, source) -> None:
    pytest.importorskip("torch")
    path = write(tree, source)
    read = literal.read(path.read_text(), "bench.py")
    assert read
    assert read == declarations("bench.py")


@pytest.mark.parametrize("source", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_is_not_plain_is_not_guessed_at(source) -> None:
    assert literal.read(HEAD + source, "bench.py") is None


@pytest.mark.parametrize(
    "source", ["x = 1", "import ci_bench\nprint(ci_bench.__version__)", "# ci_bench is a word here"]
)
def test_a_file_without_benchmarks_has_none(source) -> None:
    assert literal.read(source, "bench.py") == ()


def test_a_file_is_imported_by_its_package_or_beside_its_neighbours(tree, monkeypatch) -> None:
    head = "import ci_bench\n"
    body = "@ci_bench.benchmark(n=N)\ndef f(n):\n    return lambda: None\n"
    for package in ("pkg", "src/inner"):
        write(tree, "", file=f"{package}/__init__.py", head="")
        write(tree, "N = [3]\n", file=f"{package}/sizes.py", head="")
        write(tree, body, file=f"{package}/bench.py", head=f"from .sizes import N\n{head}")
    write(tree, "N = [4]\n", file="loose/loose_sizes.py", head="")
    write(tree, body, file="loose/bench.py", head=f"from loose_sizes import N\n{head}")
    monkeypatch.setattr(sys, "path", [str(tree), str(tree / "src"), *sys.path])
    for file, expected in (
        ("pkg/bench.py", [3]),
        ("src/inner/bench.py", [3]),
        ("loose/bench.py", [4]),
    ):
        (declared,) = declarations(file)
        assert declared.keywords == {"n": expected}
        assert (declared.file, declared.function) == (file, "f")
    (found,) = benchmarks("loose/bench.py")
    assert found(n=1)() is None


def test_what_a_file_raises_is_told_by_the_line_that_raised_it(tree) -> None:
    write(tree, "x = 1\nraise RuntimeError('no driver')\n", head="import ci_bench\n")
    with pytest.raises(
        BadConfig, match=r"bench\.py:3: cannot be imported: RuntimeError: no driver"
    ):
        declarations("bench.py")
    write(tree, "@ci_bench.benchmark(m=[1])\ndef f(n): ...\n", head="import ci_bench\n")
    with pytest.raises(BadConfig, match=r"^bench\.py:2: f: m: no parameter of this name"):
        declarations("bench.py")
    with pytest.raises(BadConfig, match="not found in"):
        declarations("nowhere.py")
