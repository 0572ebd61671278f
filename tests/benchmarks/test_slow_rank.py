"""One rank of two that works 5 % longer: the benchmark's repositories can be gated, and the gate finds the step 5 % longer."""

import subprocess
import sys

import pytest

from benchmarks import slow_rank


@pytest.mark.parametrize("way", sorted(slow_rank.SUITES))
def test_one_ranks_work_is_all_that_is_planted_and_the_configuration_is_valid(tmp_path, way):
    slow_rank.make(tmp_path / "repository", way, launches=6)
    slow_rank.plant(tmp_path / "repository", slow_rank.SLOWER)
    command = ["git", "-C", str(tmp_path / "repository"), "diff", "--unified=0", "base", "HEAD", "--", "model.py"]
    changed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line for line in changed.splitlines() if line.startswith(("+R", "-R"))] == [
        "-REPEATS = (20, 20)",
        "+REPEATS = (20, 21)",
    ]
    command = [sys.executable, "-m", "ci_bench.cli", "list"]
    planned = subprocess.run(command, cwd=tmp_path / "repository", capture_output=True, text=True, check=True).stdout
    assert slow_rank.ARM[way] in planned
    slow_rank.plant(tmp_path / "repository", slow_rank.SAME)
    assert "(20, 20)" in (tmp_path / "repository" / "model.py").read_text()


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.engine
def test_a_step_is_found_as_much_longer_as_one_of_its_ranks(tmp_path):
    """Where the machine is too busy to find 5 %, the gate says that it cannot tell as little."""
    pytest.importorskip("torch")
    slow_rank.make(tmp_path / "repository", slow_rank.LAYOUTS, launches=6)
    slow_rank.plant(tmp_path / "repository", slow_rank.SLOWER)
    found = slow_rank.gate(tmp_path / "repository", tmp_path / "out")
    step = found.pair("step_time", "ddp")
    assert step.verdict == "regressed" or step.resolvable > 0.05, step.reason
    assert 1 / step.speedup == pytest.approx(1.05, abs=max(0.02, step.resolvable or 0))
    assert found.pair("step_time", "eager").verdict != "regressed", "one process does what it did"
    assert found.pair("rank_skew", "ddp").head is not None
    assert found.ranks.count("rank ") == 2, found.ranks
