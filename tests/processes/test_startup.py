"""A server starts without the tree's folders on its path, and gets them back, with what Python would have run of them."""

import json
import os
import subprocess
import sys

import pytest

from ci_bench.processes.startup import without_tree

PROGRAM = """
import json, os, sys
early = sorted(name for name in ("tree_ran", "json_of_tree") if hasattr(sys, name))
from ci_bench.processes.startup import with_tree
with_tree()
late = sorted(name for name in ("tree_ran", "json_of_tree") if hasattr(sys, name))
import lib
print(json.dumps([early, late, lib.NAME, os.environ["PYTHONPATH"], sys.path]))
"""


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "tree"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "sitecustomize.py").write_text("import sys\nsys.tree_ran = True\n")
    (folder / "json.py").write_text("import sys\nsys.json_of_tree = True\n")
    (folder / "lib.py").write_text("NAME = 'lib'\n")
    return folder


def started(environ, cwd):
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_tree_runs_nothing_before_it_is_let_in(tree, tmp_path):
    path = f"{tree}{os.pathsep}{tree / 'src'}"
    environ = without_tree(tmp_path, {"PYTHONPATH": path}, tree)
    early, late, name, restored, found = started(environ, tmp_path)
    assert (early, late, name, restored) == ([], ["tree_ran"], "lib", path)
    assert found[:2] == [str(tree), str(tree / "src")]
    assert not any(one.endswith("first") for one in found)


def test_a_plain_start_would_run_it(tree, tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        started({"PYTHONPATH": f"{tree}{os.pathsep}{tree / 'src'}"}, tmp_path)


def test_a_file_of_the_callers_runs_at_once(tree, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys\nsys.tree_ran = True\n")
    (tree / "src" / "sitecustomize.py").unlink()
    environ = without_tree(tmp_path, {"PYTHONPATH": f"{tree}{os.pathsep}{tmp_path / 'own'}"}, tree)
    assert started(environ, tmp_path)[:2] == [["tree_ran"], ["tree_ran"]]


def test_the_engine_stays_on_the_path(tree, tmp_path, monkeypatch):
    monkeypatch.setattr("ci_bench.__file__", str(tree / "src" / "ci_bench" / "__init__.py"))
    environ = without_tree(tmp_path, {"PYTHONPATH": str(tree)}, tree)
    program = "import sys; print([one for one in sys.path if 'tree' in one])"
    environ["PYTHONPATH"] += f"{os.pathsep}{tree / 'src'}"
    said = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.strip() == str([str(tree / "src")])
