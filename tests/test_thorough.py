"""The list of what `make test` leaves out: nothing in it is stale, and no part of the product is left out whole."""

import ast
import importlib.util
from collections import Counter
from functools import cache
from pathlib import Path

from extent import entries, in_ci

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("choose_tests", ROOT / "tools" / "choose_tests.py")
choose_tests = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(choose_tests)


@cache
def functions(file):
    """The names of the test functions of a file, those of a class as pytest has them."""
    tree = ast.parse((ROOT / file).read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_what_is_left_out_exists():
    left_out, kept = entries()
    named = {name.partition("[")[0] for name in left_out | kept}
    assert [
        name
        for name in sorted(named)
        if name.rpartition("::")[2] not in functions(name.partition("::")[0])
    ] == []
    assert len(left_out) > 100


def test_what_ci_runs_of_it_exists_and_is_left_out_by_make_test():
    left_out, kept = entries()
    for name in in_ci():
        file, _, function = name.partition("::")
        assert function.partition("[")[0].rpartition("::")[2] in functions(file), name
        assert name.partition("[")[0] in left_out, name
        assert name not in kept, name


def test_every_folder_of_tests_has_quick_ones():
    left_out, kept = entries()
    left = {name for name in left_out if not any(one.startswith(name) for one in kept)}
    quick = Counter()
    for path in (ROOT / "tests").rglob("test_*.py"):
        file = str(path.relative_to(ROOT))
        quick[path.parent.name] += sum(f"{file}::{name}" not in left for name in functions(file))
    assert [folder for folder, number in quick.items() if not number and folder != "gpu"] == []


def test_a_function_is_left_out_by_its_average_or_its_sum_and_a_file_keeps_its_quickest():
    took = {
        "tests/a.py::test_one": 0.1,
        "tests/a.py::test_long": 2.0,
        **{f"tests/a.py::test_many[{number}]": 1.0 for number in range(16)},
        **{f"tests/a.py::test_few[{number}]": 1.0 for number in range(14)},
        "tests/b.py::test_x[slow]": 9.0,
        "tests/b.py::test_x[less]": 4.0,
        "tests/c.py::test_y": 100.0,
    }
    assert [*choose_tests.chosen(took)] == [
        "2 tests/a.py::test_long",
        "16 tests/a.py::test_many",
        "13 tests/b.py::test_x",
        "100 tests/c.py::test_y",
        "keep tests/b.py::test_x[less]",
    ]


def test_ci_runs_the_quickest_of_a_file_and_what_was_chosen_by_hand():
    took = {
        "tests/a.py::test_quick": 0.1,
        **{f"tests/a.py::test_many[{number}]": 3.0 + number for number in range(4)},
        "tests/b.py::test_only": 25.0,
        "tests/c.py::test_too_long": 100.0,
    }
    assert [*choose_tests.of_ci(took, ("tests/c.py::test_too_long",))] == [
        "3 tests/a.py::test_many[0]",
        "4 tests/a.py::test_many[1]",
        "25 tests/b.py::test_only",
        "keep tests/c.py::test_too_long",
    ]


def test_a_test_is_named_as_pytest_names_it():
    names = {
        "tests.a.test_b": "tests/a/test_b.py::test_x[1]",
        "tests.a.test_b.TestC": "tests/a/test_b.py::TestC::test_x[1]",
    }
    for classname, name in names.items():
        assert choose_tests._name({"classname": classname, "name": "test_x[1]"}) == name
