"""The example that each suite's page begins with is whole: its files, as they stand there, are planned, and a training runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ci_bench.records import documents
from ci_bench.records.results import Outcome, Status

PAGES = sorted(
    (Path(__file__).resolve().parent.parent / "docs" / "suites").glob("*.md"),
    key=lambda page: page.stem,
)
FILE = re.compile(
    r"`(?P<path>[\w/.-]+\.(?:py|csv|json|yml))`(?:(?!\n\n).)*:\n\n```\w+\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SMALL = {
    "device": "cpu",
    "threads": 1,
    "sampling": "fixed",
    "launches": 1,
    "blocks": 2,
    "sample_s": 0.002,
    "warmup_s": 0.1,
}


def write_files(page: Path, folder: Path) -> set[str]:
    """The page's files, by the names that stand before them."""
    found = {
        match["path"]: match["body"] for match in FILE.finditer(page.read_text(encoding="utf-8"))
    }
    for path, body in found.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(body, encoding="utf-8")
    return {*found}


def ci_bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "CI_BENCH_NOISE": str(folder / "noise"),
        "CI_BENCH_LOCKS": str(folder / "locks"),
    }
    command = [sys.executable, "-m", "ci_bench.cli", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=550, check=False
    )


def test_there_is_a_page_of_each_suite() -> None:
    assert [page.stem for page in PAGES] == [
        "command",
        "fastrnns",
        "functions",
        "torchbench",
        "training_loss",
        "transformers",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_has_an_example_that_is_planned(page, tmp_path) -> None:
    written = write_files(page, tmp_path)
    assert "ci-bench.yml" in written
    assert page.stem == "fastrnns" or len(written) > 1  # which has no code of the user's
    (suite,) = yaml.safe_load((tmp_path / "ci-bench.yml").read_text())["suites"]
    assert suite == page.stem
    done = ci_bench(tmp_path, "list")
    assert done.returncode == 0, done.stderr
    assert f"{suite}/" in done.stdout


@pytest.mark.engine
def test_the_page_of_functions_has_a_test_of_another_tool_that_is_planned_as_it_is(
    tmp_path,
) -> None:
    (page,) = (page for page in PAGES if page.stem == "functions")
    assert "perf/test_softmax.py" in write_files(page, tmp_path)
    done = ci_bench(tmp_path, "list", "perf/")
    assert [line for line in done.stdout.splitlines() if line.startswith("functions/")] == [
        "functions/test_softmax[n=1024]",
        "functions/test_softmax[n=4096]",
    ], done.stderr


@pytest.mark.engine
@pytest.mark.slow
def test_the_example_of_a_training_is_trained_with_its_optimizer(tmp_path) -> None:
    (page,) = (page for page in PAGES if page.stem == "training_loss")
    assert write_files(page, tmp_path) == {"model.py", "train.csv", "ci-bench.yml", "optimizers.py"}
    path = tmp_path / "ci-bench.yml"
    config = yaml.safe_load(path.read_text())
    (entry,) = config["suites"]["training_loss"]
    changed = {**entry, "name": "grouped", "optimizer": "optimizers:grouped"}
    config |= {
        "run": SMALL,
        "suites": {"training_loss": [entry | {"perturbations": 1}, changed | {"perturbations": 1}]},
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))

    done = ci_bench(tmp_path, "run", "--output", "out")

    rows = documents.read_results(tmp_path / "out" / "results.json").cases
    assert [row.status for row in rows] == [Status.OK, Status.OK], done.stdout + done.stderr
    assert f"ok            {rows[0].case.id}" in done.stderr + done.stdout
    for row in rows:
        assert row.parity is not None
        reference = row.parity.traces[0].loss
        assert len(reference) == 40
        assert sum(reference[-2:]) < sum(reference[:2])  # of an epoch each
        assert not [check for check in row.checks if check.outcome is Outcome.FAIL]
