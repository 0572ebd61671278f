"""The example of a training loop that is a generator is gated as it is: a fault is found, and the same code passes."""

from dataclasses import replace
from pathlib import Path

import pytest
from command_builders import QUICK, fault_beside_same, measure, step_time

from ci_bench.configuration.config import load_config
from ci_bench.records.results import SideName, Status

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "training_loop"
ACCUMULATED = "flatten()) / PARTS"


@pytest.mark.slow
@pytest.mark.engine
def test_micro_batches_that_are_summed_are_found_and_the_same_code_passes(tmp_path) -> None:
    (entry,) = (dict(entry.options) for entry in load_config(EXAMPLE / "ci-bench.yml").entries)
    program = (EXAMPLE / "trainer.py").read_text()
    assert program.count(ACCUMULATED) == 1
    files = {
        "same": (program, program),
        "fault": (program, program.replace(ACCUMULATED, "flatten())")),
    }
    trees = {side: tmp_path / side for side in (SideName.BASE, SideName.HEAD)}
    for position, tree in enumerate(trees.values()):
        tree.mkdir()
        for name, contents in files.items():
            (tree / f"{name}.py").write_text(contents[position])
    losses = entry["losses"] | {"rounding": [{"ATEN_CPU_CAPABILITY": "default"}]}
    entries = [entry | {"losses": losses, "name": name, "loop": f"{name}:train"} for name in files]
    results = measure(tmp_path, *entries, trees=trees, options=replace(QUICK, stage_timeout_s=500))
    assert "leaves the rounding envelope at step 0" in fault_beside_same(results)
    metric = step_time(results[SideName.BASE].cases[0])
    assert (metric.name, metric.items, len(metric.launches[0].values)) == (
        "step_time",
        2 * 8 * 16,
        25,
    )


@pytest.mark.slow
@pytest.mark.engine
def test_two_processes_of_a_loop_are_two_ranks(tmp_path) -> None:
    """Started by torchrun, with ranks that stay connected to the end."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "ranked.py").write_text(
        "import ci_bench, torch, torch.distributed as dist\n"
        "def train():\n"
        "    dist.init_process_group('gloo')\n"
        "    while True:\n"
        "        value = torch.ones(()) + dist.get_rank()\n"
        "        dist.all_reduce(value)\n"
        "        yield ci_bench.Step(loss=value + dist.get_rank(), tokens=8)\n"
    )
    entry = {
        "name": "ranked",
        "loop": "ranked:train",
        "processes": 2,
        "losses": {"steps": 12, "rounding": []},
    }
    trees = {SideName.HEAD: tmp_path / "tree"}
    (row,) = measure(tmp_path, entry, trees=trees, options=replace(QUICK, stage_timeout_s=500))[
        SideName.HEAD
    ].cases
    assert row.status == Status.OK, row.failure
    assert row.facts["training_ranks"] == 2
    assert row.parity.traces[0].ranks.loss == ((3.0,) * 12, (4.0,) * 12)
    assert step_time(row).items == 16
