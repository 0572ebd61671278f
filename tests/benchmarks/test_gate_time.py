"""The benchmark of a gate's wall clock: its repositories can be gated, and samples are counted in seconds."""

import subprocess

import pytest

from benchmarks import gate_time


@pytest.mark.parametrize("case", sorted(gate_time.CASES))
def test_its_repository_has_two_commits_of_the_same_code_and_a_valid_configuration(tmp_path, case):
    gate_time.make(tmp_path / "repository", gate_time.CASES[case])
    changed = ["git", "-C", str(tmp_path / "repository"), "diff", "--name-only", "HEAD~1", "HEAD"]
    assert subprocess.run(changed, capture_output=True, text=True, check=True).stdout == "NOTES\n"
    command = [*gate_time.ci_bench(gate_time.HERE), "list"]
    planned = subprocess.run(
        command, cwd=tmp_path / "repository", capture_output=True, text=True, check=True
    ).stdout
    assert "training_loss/" in planned


def test_samples_are_the_seconds_of_steps_and_of_what_measures_itself():
    launches = [{"values": [0.5, 0.5]}, {"values": [1.0]}]
    document = {
        "cases": [
            {
                "case": {"suite": "training_loss"},
                "metrics": [
                    {"name": "step_time", "unit": "s", "calls": 2, "launches": launches},
                    {"name": "compile_cold", "unit": "s", "launches": launches},
                    {"name": "peak_anonymous", "unit": "bytes", "launches": launches},
                ],
            },
            {
                "case": {"suite": "command"},
                "metrics": [{"name": "wall_time", "unit": "s", "launches": launches}],
            },
        ]
    }
    assert gate_time.sampled_s(document) == 4.0 + 2.0
