"""The documented example of a plugin works: it is planned, measured and judged, and sees defects planted in its kernel."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "plugin"
QUICK = ["--launches", "1", "--filter", "4096x64"]

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("c++") is None, reason="the example compiles a kernel"),
]


@pytest.fixture
def package(tmp_path):
    """A copy of the example, and beside it what pip would leave of its installation: its entry points."""
    folder = tmp_path / "plugin"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    points = "".join(
        f"{name} = {value}\n" for name, value in project["entry-points"]["ci_bench.suites"].items()
    )
    installed = tmp_path / "site" / f"{project['name'].replace('-', '_')}-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n"
    )
    (installed / "entry_points.txt").write_text(f"[ci_bench.suites]\n{points}")
    return folder


def ci_bench(folder, *arguments):
    environ = {**os.environ, "PYTHONPATH": f"{folder.parent / 'site'}{os.pathsep}{folder}"}
    script = "import sys; from ci_bench.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def measured(folder, *arguments):
    done = ci_bench(folder, "run", "-o", "out", *QUICK, *arguments)
    (row,) = json.loads((folder / "out" / "results.json").read_text())["cases"]
    assert done.returncode == 0, done.stderr
    return row


def test_it_is_planned_from_its_own_configuration(package) -> None:
    done = ci_bench(package, "list")
    assert done.returncode == 0, done.stderr
    assert (
        "row_softmax/256x1024\n    a plugin's case; arms: torch (reference), kernel" in done.stdout
    )
    assert "row_softmax/4096x64" in done.stdout


def test_its_options_are_checked_like_those_of_a_built_in_suite(package) -> None:
    config = package / "ci-bench.yml"
    config.write_text(config.read_text().replace("rows: 256", "row: 256"))
    done = ci_bench(package, "list")
    assert done.returncode == 2
    assert "suites.row_softmax[0].row: unknown field; did you mean 'rows'?" in done.stderr


def test_it_is_measured_and_its_kernel_is_right(package) -> None:
    row = measured(package)
    assert row["status"] == "ok", row["failure"]
    assert {check["name"]: check["outcome"] for check in row["checks"] if check["name"] not in {"steady", "witnessed"}} == {
        "accuracy": "pass", "normalised": "pass",
    }  # fmt: skip
    times = {metric["arm"]: metric for metric in row["metrics"] if metric["name"] == "step_time"}
    assert {*times} == {"torch", "kernel"}
    assert times["kernel"]["items"] == 4096


DEFECTS = {
    "overflow": (" - largest", "", "accuracy"),
    "off by a column": (
        "column < columns; ++column) out",
        "column + 1 < columns; ++column) out",
        "normalised",
    ),
    "scaled": ("/= total", "/= (1.001f * total)", "accuracy"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after", "check"), DEFECTS.values(), ids=DEFECTS)
def test_a_defect_in_the_kernel_fails_its_check(package, before, after, check) -> None:
    kernel = package / "row_softmax" / "kernel.cpp"
    assert before in kernel.read_text()
    kernel.write_text(kernel.read_text().replace(before, after))
    outcomes = {(one["name"], one["arm"]): one["outcome"] for one in measured(package)["checks"]}
    assert outcomes[check, "kernel"] == "fail"
    assert outcomes["normalised", "torch"] == "pass"


def test_a_kernel_that_does_not_compile_is_a_failed_case_with_the_compilers_words(package) -> None:
    kernel = package / "row_softmax" / "kernel.cpp"
    kernel.write_text(kernel.read_text() + "this is no C++\n")
    ci_bench(package, "run", "-o", "out", *QUICK)
    (row,) = json.loads((package / "out" / "results.json").read_text())["cases"]
    assert (row["status"], row["failure"]["stage"]) == ("failed", "prepare")
    assert "CalledProcessError" in row["failure"]["reason"]
    assert "kernel.cpp" in row["failure"]["log_tail"]


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text()
    for name in ("row_softmax/suite.py", "row_softmax/worker.py"):
        assert (EXAMPLE / name).read_text() in page, f"docs/plugins.md shows another {name}"
    assert 'row_softmax = "row_softmax.suite:SUITE"' in page
