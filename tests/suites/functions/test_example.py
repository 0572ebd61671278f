"""The example of kernels as functions is planned as it is, measured at a small size, and sees a defect that is planted."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

from functions_builders import context

from ci_bench.configuration.config import load_config
from ci_bench.records.results import Outcome
from ci_bench.suites.registry import find_suite

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "kernels"

pytestmark = pytest.mark.engine


@pytest.fixture
def copied(tree):
    shutil.copytree(EXAMPLE, tree, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (tree / "benchmarks").glob("*.py"):
        path.write_text(
            path.read_text()
            .replace("(512, 1024), (4096, 256)", "(16, 64)")
            .replace("(2048, 512)", "(32, 64)")
        )
    return tree


def outcomes(tree):
    from ci_bench.suites.functions.importing import benchmarks
    from ci_bench.suites.functions.run import open_workload

    found = {}
    for case in find_suite("functions").plan({"path": "benchmarks"}):
        assert benchmarks(case.params["file"])
        evidence = open_workload(case, context(tree)).verify(case.arms)
        found |= {(case.id, check.arm): check.outcome for check in evidence.checks}
    return found


def test_its_cases_are_those_that_it_declares(monkeypatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    (entry,) = load_config(Path("ci-bench.yml")).entries
    assert len(find_suite("functions").plan(entry.options)) == entry.cases == 5


def test_its_kernels_are_right_and_a_planted_defect_is_not(copied, monkeypatch) -> None:
    import sys

    assert {*outcomes(copied).values()} == {Outcome.PASS}
    kernel = copied / "kernels" / "__init__.py"
    kernel.write_text(kernel.read_text().replace("+ epsilon)", "+ 1e-2)"))
    for name in [
        name for name in sys.modules if name == "kernels" or name.startswith("ci_bench_own_")
    ]:
        monkeypatch.delitem(sys.modules, name)
    wrong = {place for place, outcome in outcomes(copied).items() if outcome is Outcome.FAIL}
    assert ("functions/norm[dtype=fp32,shape=16x64]", "library") in wrong
    assert {arm for _, arm in wrong} == {"library"}
