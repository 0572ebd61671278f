"""The benchmark of one rank that works longer: its repositories can be gated, and nothing else is planted."""

import subprocess
import sys

import pytest

from benchmarks import slow_rank


@pytest.mark.parametrize(("way", "work"), [("layouts", "pauses"), ("loop", "products")])
def test_one_ranks_work_is_all_that_is_planted_and_the_configuration_is_valid(tmp_path, way, work):
    slow_rank.make(tmp_path / "repository", way, launches=6, work=work)
    slow_rank.plant(tmp_path / "repository", slow_rank.SLOWER, work=work)
    command = [
        "git",
        "-C",
        str(tmp_path / "repository"),
        "diff",
        "--unified=0",
        "base",
        "HEAD",
        "--",
        "model.py",
    ]
    changed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line for line in changed.splitlines() if line.startswith(("+R", "-R"))] == [
        "-REPEATS = (20, 20)",
        "+REPEATS = (20, 21)",
    ]
    command = [sys.executable, "-m", "ci_bench.cli", "list"]
    planned = subprocess.run(
        command, cwd=tmp_path / "repository", capture_output=True, text=True, check=True
    ).stdout
    listed = (
        "command/tiny" if way == slow_rank.LOOP else slow_rank.ARM[way]
    )  # a loop's only arm has no line
    assert listed in planned
    assert "1 case" in planned
    slow_rank.plant(tmp_path / "repository", slow_rank.SAME, work=work)
    assert "(20, 20)" in (tmp_path / "repository" / "model.py").read_text()
