"""What the judge needs of SciPy comes without numpy's bridge to Fortran, and leaves numpy as it was."""

import ast
import subprocess
import sys
from pathlib import Path

import ci_bench

SOURCES = Path(ci_bench.__file__).parent

LOOK = """
import sys
import ci_bench.judge.compare
loaded = [name for name in ("f2py", "testing", "ma") if f"numpy.{name}" in sys.modules]
import numpy
left = [name for name in dir(numpy) if getattr(numpy, name, None) is None and name not in ("newaxis", "__doc__", "__cached__")]
numpy.testing.assert_allclose(numpy.ma.array([1.0, 3.0]).mean(), 2.0)
print(loaded, left)
"""


def test_numpys_heavy_parts_stay_unloaded_and_load_on_first_use() -> None:
    found = subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True, text=True)
    assert found.stdout == "[] []\n"


def test_what_was_loaded_before_stays() -> None:
    script = "import numpy.testing; import ci_bench.judge.special; print(numpy.testing.assert_equal(1, 1))"
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "None\n"


def test_nothing_else_imports_scipy_special() -> None:
    def imported(file: Path) -> set[str | None]:
        return {node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)}

    found = {file.name for file in (SOURCES / "judge").rglob("*.py") if "scipy.special" in imported(file)}
    assert found == {"special.py"}
