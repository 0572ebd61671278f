"""The example of a training under torchrun is gated as it is: a fault of one rank is found, and the same code passes."""

from dataclasses import replace
from pathlib import Path

import pytest
from command_builders import QUICK, judge, measure

from ci_bench.config import load_config
from ci_bench.records.results import SideName, Status

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "training"
SHARE = "rows[rank::count]"


@pytest.mark.slow
@pytest.mark.engine
def test_a_rank_that_trains_on_another_ones_rows_is_named_and_the_same_code_passes(tmp_path) -> None:
    (entry,) = (dict(entry.options) for entry in load_config(EXAMPLE / "ci-bench.yml").entries)
    program = (EXAMPLE / "train.py").read_text()
    assert program.count(SHARE) == 1
    files = {"same.py": (program, program), "fault.py": (program, program.replace(SHARE, "rows[0::count]"))}
    trees = {side: tmp_path / side for side in (SideName.BASE, SideName.HEAD)}
    for position, tree in enumerate(trees.values()):
        tree.mkdir()
        for name, contents in files.items():
            (tree / name).write_text(contents[position])
    quick = {"losses": {"rounding": [{"ATEN_CPU_CAPABILITY": "default"}]}}
    entries = [entry | quick | {"name": name, "command": [*entry["command"][:-1], name]} for name in files]
    results = measure(tmp_path, *entries, trees=trees, options=replace(QUICK, stage_timeout_s=500))
    rows = [row for result in results.values() for row in result.cases]
    assert {row.status for row in rows} == {Status.OK}, [row.failure for row in rows]
    same, fault = judge(results).cases
    assert same.learning.verdict.holds, same.learning.detail
    assert str(fault.learning.verdict) == "different_math"
    assert "rank 1 of 2 first, by the loss at step 0" in fault.learning.detail
    (metric,) = rows[0].metrics
    assert (metric.name, metric.items) == ("step_time", 16 * 16)
    assert rows[0].facts["training_ranks"] == 2
