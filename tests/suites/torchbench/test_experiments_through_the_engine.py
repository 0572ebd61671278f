"""One run of experiments as arms of one case: one reference for all, and a package that only the cold stage's process made."""

import subprocess
import sys

import pytest
import yaml

from ci_bench.records.documents import read_comparison, read_results
from ci_bench.records.results import Outcome, Status

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ARMS = ["export", "overhead", "aot-inductor"]
RUN = {
    "device": "cpu",
    "threads": 1,
    "launches": 1,
    "blocks": 2,
    "sample_s": 0.002,
    "warmup_s": 0.2,
    "compile_budget_s": 0,
}
MODEL = """
import torch
from torch import nn

class Branch(nn.Module):
    def forward(self, rows):
        return rows * 2 if rows.sum() > 0 else rows

def branch():
    return Branch(), (torch.ones(4, 4),)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Results and comparison of a gate without a baseline."""
    folder = tmp_path_factory.mktemp("experiments")
    usual = {"mode": "inference", "perturbations": 1}
    entries = [
        {"models": ["mlp"], "arms": ARMS, **usual},
        {"source": "own", "models": ["own_models:branch"], "backend": "export", **usual},
    ]
    (folder / "own_models.py").write_text(MODEL)
    (folder / "ci-bench.yml").write_text(
        yaml.safe_dump({"schema_version": 1, "run": RUN, "suites": {"torchbench": entries}})
    )
    command = [sys.executable, "-m", "ci_bench.cli", "gate", "--output", "out"]
    subprocess.run(command, cwd=folder, check=False, timeout=300, capture_output=True)
    return read_results(folder / "out/results.json"), read_comparison(
        folder / "out/comparison.json"
    )


def test_every_experiment_is_verified_refereed_and_timed_beside_one_reference(ended):
    row = ended[0].cases[0]
    assert row.status is Status.OK, row.failure
    counted = [
        check
        for check in row.checks
        if not check.informative and check.outcome is not Outcome.PASS and check.name != "steady"
    ]
    assert counted == []
    for name in ("compiled", "accuracy", "refereed"):
        assert {check.arm for check in row.checks if check.name == name} - {"eager"} == set(ARMS), (
            name
        )
    assert {found.arm for found in ended[1].cases[0].speedups} == set(ARMS)
    cold = {
        metric.arm: metric.launches[0].values[0]
        for metric in row.metrics
        if metric.name == "compile_cold"
    }
    assert set(cold) == set(ARMS)
    assert cold["aot-inductor"] > cold["export"]


def test_the_package_is_loaded_by_other_processes_than_the_one_that_made_it(ended):
    row = ended[0].cases[0]
    loaded = [check.detail for check in row.checks if check.name == "package"]
    assert loaded
    for detail in loaded:
        maker, loader = detail.partition("made by process ")[2].split(", loaded by process ")
        assert maker != loader
    (size,) = (metric for metric in row.metrics if metric.name == "package_size")
    assert size.launches[0].values[0] > 100_000


def test_what_cannot_be_captured_loses_its_own_case_only(ended):
    row = ended[0].cases[1]
    assert row.status is Status.SKIPPED
    assert "export: the model cannot be captured" in row.failure.reason
