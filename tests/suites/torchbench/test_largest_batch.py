"""Gates of models whose memory is known: the largest batch is found once, by all arms used, and told; others are skipped."""

import subprocess
import sys

import pytest
import yaml

from ci_bench.records.documents import read_results
from ci_bench.records.results import Outcome, Status
from ci_bench.suites.contract import Context, Unsupported
from ci_bench.suites.torchbench.plan import SUITE
from ci_bench.suites.torchbench.run import open_workload

pytestmark = [pytest.mark.engine]

RUN = {
    "device": "cpu",
    "threads": 1,
    "launches": 1,
    "blocks": 2,
    "sample_s": 0.002,
    "warmup_s": 0.2,
    "compile_budget_s": 0,
}
MODELS = """
import torch
from torch import nn

class Known(nn.Module):
    '''Takes a MiB for each row, and little else.'''

    def __init__(self, batch_size=4):
        super().__init__()
        self.batch_size = batch_size
        self.layer = nn.Linear(4, 4)

    def get_example_inputs(self):
        return (torch.ones(self.batch_size, 4),)

    def forward(self, rows):
        wide = rows.sum(1, keepdim=True).expand(-1, 2**18).contiguous()
        return self.layer(rows) + wide[:, :1]

def fixed():
    return nn.Linear(2, 4), (torch.ones(1, 2),)
"""
LIMIT_BYTES = 50_000_000
"""Of which 46 rows take 46 MiB and a little, and 48 rows 48 MiB and a little: 50.3 MB."""


def workload(model, folder, **entry):
    """Opens the case of a model as a worker does, with what the search found where it did."""
    limits = {"memory_bytes": LIMIT_BYTES, "most": 512}
    given = {
        "mode": "inference",
        "backend": "eager",
        "batch_size": "largest",
        "largest_batch": limits,
        **entry,
    }
    (case,) = SUITE.plan({"models": [model], **given})
    return lambda found=None: open_workload(
        case, Context(device="cpu", scratch=folder, progress=lambda *_: None, largest_batch=found)
    )


@pytest.mark.slow
def test_the_batch_of_a_model_whose_memory_is_known_is_found_used_by_all_arms_and_told(tmp_path):
    limits = {"memory_bytes": LIMIT_BYTES, "most": 512}
    usual = {
        "mode": "inference",
        "perturbations": 1,
        "backend": "eager",
        "batch_size": "largest",
        "largest_batch": limits,
    }
    entries = [{"source": "own", "models": ["own_models:Known", "own_models:fixed"], **usual}]
    (tmp_path / "own_models.py").write_text(MODELS)
    (tmp_path / "ci-bench.yml").write_text(
        yaml.safe_dump({"schema_version": 1, "run": RUN, "suites": {"torchbench": entries}})
    )
    command = [sys.executable, "-m", "ci_bench.cli", "gate", "--output", "out"]
    subprocess.run(command, cwd=tmp_path, check=False, timeout=300, capture_output=True)
    known, fixed = read_results(tmp_path / "out/results.json").cases
    assert known.status is Status.OK, known.failure
    assert known.facts["largest_batch"] == 46
    assert known.facts["largest_batch_bytes"] == pytest.approx(46 * 2**20, abs=2 * 2**20)
    assert {metric.items for metric in known.metrics if metric.name == "step_time"} == {46}
    assert {
        check.arm
        for check in known.checks
        if check.name == "accuracy" and check.outcome is Outcome.PASS
    } == {"dynamo-eager"}
    assert (
        "46 rows fit, and 48 rows do not: they take 5" in (tmp_path / "out/report.md").read_text()
    )
    assert fixed.status is Status.SKIPPED
    assert "have its factory follow a parameter `batch_size`" in fixed.failure.reason
    assert fixed.failure.stage == "size"


def test_a_table_bounds_the_search_or_fixes_the_batch(tmp_path):
    table = tmp_path / "table.yml"
    for said, error, words in (
        ({"max_batch_size": 6}, LookupError, "takes at most 6 rows"),
        ({"fixed_batch": True}, Unsupported, "the batch of mlp is fixed"),
    ):
        table.write_text(
            yaml.safe_dump({"schema_version": 1, "rules": [{"models": ["mlp"], **said}]})
        )
        opened = workload("mlp", tmp_path, tables=[str(table)])()
        with pytest.raises(error, match=words):
            opened.open_sized("eager", 7)
    assert workload("mlp", tmp_path)().open_sized("eager", 7).items == 7


def test_a_model_of_the_zoo_whose_rows_cannot_be_cut_is_skipped(tmp_path):
    with pytest.raises(Unsupported, match="has a fixed batch of"):
        workload("gnn", tmp_path)().open_sized("eager", 1)


def test_what_was_found_is_what_every_later_stage_opens(tmp_path):
    opened = workload("mlp", tmp_path)
    opened().prepare()
    assert opened(11).open("eager").items == opened(11).open("dynamo-eager").items == 11
    with pytest.raises(AssertionError, match="the largest batch was not searched for"):
        opened().open("eager")
