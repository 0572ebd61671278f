"""A compilation from cold is judged like everything else: repeated while it looks slower, within its budget."""

import pytest
import yaml
from end_to_end_builders import git, outcome

from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.comparison import Verdict

pytestmark = pytest.mark.usefixtures("plugin")

BEFORE_S, AFTER_S = 0.4, 0.52


@pytest.fixture
def compiled(repository):
    """A repository whose candidate takes a while to compile; commits set how long."""
    config = yaml.safe_load((repository / "ci-bench.yml").read_text())
    config["suites"]["fake"] = [{"name": "one", "arms": ["plain", "compiled"], "stages": ["cold", "time"]}]
    config["run"] |= {"max_launches": 6, "blocks": 2}
    (repository / "ci-bench.yml").write_text(yaml.safe_dump(config))

    def commit(seconds):
        (repository / "fake_first_s").write_text(str(seconds))
        git(repository, "add", ".")
        git(repository, "commit", "--allow-empty", "-m", f"compiles for {seconds} s")

    commit(BEFORE_S)
    return commit


def cold(folder):
    (pair,) = [pair for pair in outcome(folder).cases[0].pairs if pair.metric == "compile_cold"]
    (metric,) = [one for one in documents.read_results(folder / "results.json").cases[0].metrics if one.name == "compile_cold"]
    return pair.verdict, len(metric.launches)


@pytest.mark.alone
def test_a_third_more_is_regressed_after_a_few_compilations_without_any_calibration(compiled, tmp_path, ci_bench) -> None:
    compiled(AFTER_S)
    code, _, said = ci_bench("gate", "--baseline", "paired", "--base", "HEAD~1", "--output", tmp_path / "out")
    verdict, compilations = cold(tmp_path / "out")
    assert (code, verdict) == (ExitCode.POLICY_NOT_MET, Verdict.REGRESSED), said
    assert 2 <= compilations <= 6


@pytest.mark.alone
def test_the_same_is_unchanged_after_one(compiled, tmp_path, ci_bench) -> None:
    compiled(BEFORE_S)
    code, _, said = ci_bench("gate", "--baseline", "paired", "--base", "HEAD~1", "--output", tmp_path / "out")
    verdict, compilations = cold(tmp_path / "out")
    assert (code, verdict) == (ExitCode.OK, Verdict.UNCHANGED), said
    assert compilations <= 2
