"""The table of faults is true: its tests exist and run, its page is current, and no test of faults is missing from it."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "render_reliability.py"
CONTROLS = {"test_table.py", "test_controls.py", "conftest.py", "table.py"}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TABLE = load(Path(__file__).with_name("table.py")).TABLE
ROWS = [row for rows in TABLE.values() for row in rows]


def functions(path):
    tree = ast.parse(path.read_text())
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.test.partition("::")[2])
def test_each_row_has_its_test_which_asserts_something_and_is_not_skipped(row):
    file, _, name = row.test.partition("::")
    (function,) = [one for one in functions(ROOT / "tests" / file) if one.name == name]
    names = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    asserts = [node for node in ast.walk(function) if isinstance(node, ast.Assert)]
    assert asserts or "raises" in names
    assert not {"skip", "skipif", "xfail"} & names


def test_no_row_is_there_twice_and_none_is_empty():
    assert len({(row.fault, row.test) for row in ROWS}) == len(ROWS)
    assert all(row.fault and row.expected and "|" not in row.fault + row.expected for row in ROWS)
    assert all(TABLE.values())


def test_every_file_of_faults_is_in_the_table():
    files = {path.name for path in Path(__file__).parent.glob("*.py")} - CONTROLS
    assert files == {
        Path(row.test.partition("::")[0]).name for row in ROWS if row.test.startswith("faults/")
    }


def test_the_page_is_made_from_the_table():
    rendered = subprocess.run(
        [sys.executable, str(TOOL)], capture_output=True, text=True, check=True
    )
    assert (ROOT / "docs" / "internals" / "reliability.md").read_text() == rendered.stdout


def test_the_tests_of_the_table_are_told_for_one_command():
    told = subprocess.run(
        [sys.executable, str(TOOL), "--tests"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {*told} == {f"tests/{row.test}" for row in ROWS}
    makefile = (ROOT / "Makefile").read_text()
    assert "render_reliability.py --tests" in makefile
