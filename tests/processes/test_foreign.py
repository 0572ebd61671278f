"""Head's workers must not read base's tree: modules, sources and listings of it are named; head's own tree is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from ci_bench.processes.foreign import foreign_of

PROGRAM = """
import os, sys
from pathlib import Path
from ci_bench.processes.foreign import foreign_of
foreign = foreign_of(Path.cwd())
if sys.argv[1] == "watched":
    foreign.watch()
exec(sys.argv[2])
print([check.detail for check in foreign.checks("torch")])
"""
LOAD = """
import importlib.util
spec = importlib.util.spec_from_file_location("base_lib", "../../base/repo/lib.py")
base_lib = importlib.util.module_from_spec(spec)
sys.modules["base_lib"] = base_lib
spec.loader.exec_module(base_lib)
"""


@pytest.fixture
def pair(tmp_path):
    for side in ("base", "head"):
        (tmp_path / side / "repo").mkdir(parents=True)
        (tmp_path / side / "repo" / "lib.py").write_text("f = 1\n")
    return tmp_path


def said(folder: Path, code: str, how: str = "watched") -> str:
    command = [sys.executable, "-c", PROGRAM, how, code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


READS = {
    "module": LOAD,
    "source": "exec(open('../../base/repo/lib.py').read())",
    "link": "os.symlink('../../base/repo', 'other'); Path('other/lib.py').read_text()",
    "listing": "os.listdir(Path.cwd().parents[1] / 'base')",
}


@pytest.mark.parametrize("way", sorted(READS))
def test_reading_bases_tree_is_named(pair, way):
    assert "head's code read base's tree" in said(pair / "head" / "repo", READS[way])


def test_a_loaded_module_is_named_in_any_stage(pair):
    assert "repo/lib.py" in said(pair / "head" / "repo", LOAD, "timed")


@pytest.mark.parametrize(
    "code", ["import lib; open('lib.py').read()", "os.listdir('..'); os.listdir('/tmp')", "pass"]
)
def test_heads_own_files_are_nobodys(pair, code):
    assert said(pair / "head" / "repo", f"sys.path.insert(0, ''); {code}").strip() == "[]"


def test_base_and_a_single_tree_are_not_watched(pair):
    assert said(pair / "base" / "repo", "open('../../head/repo/lib.py').read()").strip() == "[]"
    assert said(pair, "open('base/repo/lib.py').read()").strip() == "[]"


@pytest.mark.parametrize("tree", ["/", "/workspace"])
def test_a_tree_below_the_root(tree):
    """In the image the tree is ``/workspace``."""
    assert foreign_of(Path(tree)).folder == ""
