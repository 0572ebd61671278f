"""What the judge needs of SciPy comes without numpy's bridge to Fortran, and leaves numpy as it was."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import polygamma as scipy_polygamma

import ci_bench
from ci_bench.statistics import special_functions as special

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
    script = "import numpy.testing; import ci_bench.statistics.special_functions; print(numpy.testing.assert_equal(1, 1))"
    assert (
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True
        ).stdout
        == "None\n"
    )


ALONE = """
import sys
import ci_bench.statistics.special_functions as ours
print("scipy.special" in sys.modules, "scipy._lib._array_api" in sys.modules)
import scipy.special, scipy.stats
print(scipy.special._ufuncs is ours.compiled_functions(), scipy.special.stdtrit is ours.stdtrit)
print(scipy.stats.t.ppf(0.9, 5) == ours.stdtrit(5, 0.9))
"""


def test_the_compiled_module_is_loaded_alone_and_the_whole_package_afterwards() -> None:
    found = subprocess.run(
        [sys.executable, "-c", ALONE], check=True, capture_output=True, text=True
    )
    assert found.stdout.split() == ["False", "False", "True", "True", "True"]


@pytest.mark.parametrize("broken", ["raise ImportError('moved')", "return object()"])
def test_where_scipy_has_moved_its_functions_they_are_the_packages(broken) -> None:
    script = f"""
import ci_bench.statistics.special_functions as ours
def moved():
    {broken}
ours.compiled_functions = moved
import scipy.special
print(ours.functions() is scipy.special)
"""
    assert (
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True
        ).stdout
        == "True\n"
    )


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_derivative_of_psi_is_scipys(order) -> None:
    x = np.concatenate([np.geomspace(1e-6, 1e6, 500), [0.5, 1.0, 1.5, 1000.0]])
    np.testing.assert_array_equal(special.polygamma(order, x), scipy_polygamma(order, x))
    assert special.polygamma(order, 2.5) == scipy_polygamma(order, 2.5)


def test_nothing_of_the_judge_imports_scipy_special() -> None:
    def imported(file: Path) -> set[str | None]:
        return {
            node.module
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ImportFrom)
        }

    assert [
        file.name for file in (SOURCES / "judge").rglob("*.py") if "scipy.special" in imported(file)
    ] == []
