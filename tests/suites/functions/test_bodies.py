"""A benchmark's digest changes with its code, its providers and what of its file they use; with nothing else."""

import pytest

from ci_bench.suites.functions.bodies import digest_of

SOURCE = '''
import ci_bench
SIZE = 3
OTHER = 4

def helper(n):
    return n * SIZE

@ci_bench.benchmark(n=[8])
def one(n):
    """What it does."""
    return lambda: helper(n)

@one.provider("fast")
def _(n):
    return lambda: n * 3

def test_it(benchmark):
    benchmark(lambda: sum(range(3)))
'''


@pytest.mark.parametrize(
    ("old", "new", "function"),
    [
        ("lambda: helper(n)", "lambda: helper(n - 1)", "one"),
        ("return n * SIZE", "return n", "one"),
        ("SIZE = 3", "SIZE = 2", "one"),
        ("lambda: n * 3", "lambda: n", "one"),
        ("range(3)", "range(1)", "test_it"),
        ("range(3)", "range(1)", "TestClass.test_it"),
    ],
)
def test_other_work_is_another_digest(old, new, function):
    assert old in SOURCE
    assert digest_of(SOURCE, function) != digest_of(SOURCE.replace(old, new), function) != ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n=[8]", "n=[8, 16], threshold=0.02"),
        ("What it does.", "What it is for."),
        ("OTHER = 4", "OTHER = 5"),
        ("import ci_bench", "# a comment\n\nimport ci_bench"),
        ("range(3)", "range(1)"),
        ("def test_it", "def another():\n    return 1\n\ndef test_it"),
    ],
)
def test_the_same_work_is_the_same(old, new):
    assert old in SOURCE
    assert digest_of(SOURCE, "one") == digest_of(SOURCE.replace(old, new), "one")


@pytest.mark.parametrize(
    ("source", "function"), [(SOURCE, "none"), ("def broken(:", "broken"), ("\0", "one")]
)
def test_what_cannot_be_read_has_none(source, function):
    assert digest_of(source, function) == ""
