"""One run of all suites with several compiled arms in a case: one denominator, and each arm answers for itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ci_bench.records.documents import read_comparison, read_results
from ci_bench.records.results import Outcome, Status

pytestmark = [pytest.mark.engine, pytest.mark.slow]

WRONG = "planted_backends:scaled_output"
ARMS = ["aot_eager", "overhead", {"backend": WRONG}]
NAMES = ("aot_eager", "overhead", WRONG)
RUN = {
    "device": "cpu",
    "threads": 1,
    "launches": 1,
    "blocks": 2,
    "sample_s": 0.002,
    "warmup_s": 0.2,
    "compile_budget_s": 0,
}
SUITES = {
    "fastrnns": {
        "variants": ["compile"],
        "seq_length": 5,
        "batch_size": 4,
        "input_size": 16,
        "hidden_size": 16,
    },
    "torchbench": {"models": ["mlp"], "mode": "inference", "perturbations": 1},
    "training_loss": {
        "num_samples": 192,
        "batch_size": 16,
        "epochs": 1,
        "evaluation": False,
        "perturbations": 1,
    },
    "transformers": {"model": "bert", "batch_size": 2, "sequence_length": 16},
}
each_suite = pytest.mark.parametrize("suite", sorted(SUITES))


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Results and comparison of one gate without a baseline."""
    folder = tmp_path_factory.mktemp("arms")
    suites = {suite: [{**entry, "arms": ARMS}] for suite, entry in SUITES.items()}
    (folder / "ci-bench.yml").write_text(
        yaml.safe_dump({"schema_version": 1, "run": RUN, "suites": suites})
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "torchbench")}
    command = [sys.executable, "-m", "ci_bench.cli", "gate", "--output", "out"]
    done = subprocess.run(
        command, cwd=folder, env=environ, check=False, timeout=600, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    return read_results(folder / "out/results.json"), read_comparison(
        folder / "out/comparison.json"
    )


def row_of(results, suite):
    (row,) = (row for row in results.cases if row.case.suite == suite)
    return row


@each_suite
def test_all_arms_are_timed_in_the_same_launches_and_blocks_beside_one_reference(ended, suite):
    row = row_of(ended[0], suite)
    assert row.status is Status.OK, row.failure
    time = "forward_time" if suite == "fastrnns" else "step_time"
    taken = {
        one.arm: [(launch.launch, launch.blocks) for launch in one.launches]
        for one in row.metrics
        if one.name == time
    }
    assert set(taken) == {row.case.reference, *NAMES}
    assert all(blocks == taken[row.case.reference] for blocks in taken.values())
    assert [number for number, _ in taken[row.case.reference]] == [0]


@each_suite
def test_every_speedup_has_the_same_denominator(ended, suite):
    (case,) = (case for case in ended[1].cases if case.id == row_of(ended[0], suite).case.id)
    assert {found.reference for found in case.speedups} == {case.reference}
    assert {found.arm for found in case.speedups} == set(NAMES)


@each_suite
def test_only_the_arm_that_is_wrong_is_wrong(ended, suite):
    row = row_of(ended[0], suite)
    (case,) = (case for case in ended[1].cases if case.id == row.case.id)
    failed = {
        check.arm for check in row.checks if check.outcome is Outcome.FAIL and not check.informative
    }
    failed |= {finding.arm for finding in case.parity if not finding.verdict.holds}
    assert failed == {WRONG}
    captured = {check.arm: check.outcome for check in row.checks if check.name == "compiled"}
    assert captured == dict.fromkeys(NAMES, Outcome.PASS)
