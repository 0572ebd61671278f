"""`gate --baseline paired` of commands that measure themselves, from argv to exit code: they take launches as everything does."""

import sys

import pytest
import yaml
from end_to_end_builders import git, outcome

from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.comparison import Verdict

pytestmark = pytest.mark.usefixtures("plugin")

SCRIPT = """import json, pathlib, sys, time
pause = float(pathlib.Path("pause_s").read_text())
def once():
    start = time.perf_counter()
    time.sleep(pause)
    return time.perf_counter() - start
print(json.dumps({"kind": "measurements", "schema_version": 1,
                  "series": [{"name": "parse", "unit": "s", "better": "lower", "values": [once() for _ in range(20)]}]}))
"""


@pytest.fixture
def reading(repository):
    """A repository whose script prints its own measurements."""
    (repository / "measure.py").write_text(SCRIPT)
    entry = {
        "name": "own",
        "command": [sys.executable, "measure.py"],
        "output": "stdout",
        "format": "measurements",
    }
    config = {"schema_version": 1, "run": {"device": "cpu"}, "suites": {"command": [entry]}}
    (repository / "ci-bench.yml").write_text(yaml.safe_dump(config))

    def pause(seconds):
        (repository / "pause_s").write_text(str(seconds))
        git(repository, "add", ".")
        git(repository, "commit", "-m", f"pauses {seconds} s")

    return pause


@pytest.mark.alone
def test_a_fivefold_slowdown_without_a_calibration_fails(reading, tmp_path, ci_bench) -> None:
    reading(0.002)
    reading(0.010)
    code, _, said = ci_bench(
        "gate", "--baseline", "paired", "--base", "HEAD~1", "--output", tmp_path / "out"
    )
    comparison = outcome(tmp_path / "out")
    assert (code, comparison.cases[0].verdict) == (ExitCode.POLICY_NOT_MET, Verdict.REGRESSED), said
    (series,) = documents.read_results(tmp_path / "out" / "results.json").cases[0].metrics
    assert len(series.launches) >= 5, "without a history that is how many it takes"


@pytest.mark.alone
def test_the_same_code_passes(reading, tmp_path, ci_bench) -> None:
    reading(0.01)
    code, _, said = ci_bench(
        "gate", "--baseline", "paired", "--base", "HEAD", "--output", tmp_path / "out"
    )
    assert code == ExitCode.OK, said
    assert outcome(tmp_path / "out").cases[0].verdict in {Verdict.UNCHANGED, Verdict.INCONCLUSIVE}


@pytest.mark.alone
def test_where_the_budget_ends_after_one_launch_it_is_suspected_and_fails(
    reading, tmp_path, ci_bench
) -> None:
    reading(0.002)
    reading(0.010)
    short = tmp_path / "short.yml"
    short.write_text(
        (tmp_path / "a repository" / "ci-bench.yml")
        .read_text()
        .replace("device: cpu", "device: cpu\n  case_budget_s: 0.001")
    )
    code, _, _ = ci_bench(
        "gate",
        "--config",
        short,
        "--baseline",
        "paired",
        "--base",
        "HEAD~1",
        "--output",
        tmp_path / "out",
    )
    comparison = outcome(tmp_path / "out")
    assert (code, comparison.cases[0].verdict) == (ExitCode.POLICY_NOT_MET, Verdict.SUSPECTED)
    assert "suspected: " in comparison.judgement.headline
    assert "without a calibration of this machine" in comparison.judgement.findings[0].message
    assert "ci-bench calibrate" in (tmp_path / "out" / "report.md").read_text()
