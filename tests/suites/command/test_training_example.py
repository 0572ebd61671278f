"""The example of a training under torchrun is gated as it is: a fault of one rank is found, and the same code passes."""

from dataclasses import replace
from pathlib import Path

import pytest
from command_builders import QUICK, judge, measure, step_time

from ci_bench.configuration.config import load_config
from ci_bench.records.results import Results, SideName, Status

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "training"
SHARE = "rows[rank::count]"


@pytest.mark.slow
@pytest.mark.engine
def test_a_rank_that_trains_on_another_ones_rows_is_named_and_the_same_code_passes(
    tmp_path,
) -> None:
    (entry,) = (dict(entry.options) for entry in load_config(EXAMPLE / "ci-bench.yml").entries)
    program = (EXAMPLE / "train.py").read_text()
    assert program.count(SHARE) == 1
    entry["losses"] = {"rounding": [{"ATEN_CPU_CAPABILITY": "default"}]}
    options = replace(QUICK, stage_timeout_s=500)

    def trained(folder: str, **programs: str) -> dict[SideName, Results]:
        trees = {SideName(side): tmp_path / folder / side for side in programs}
        for side, text in programs.items():
            trees[SideName(side)].mkdir(parents=True)
            (trees[SideName(side)] / "train.py").write_text(text)
        return dict(measure(tmp_path / folder, entry, trees=trees, options=options))

    results = trained("same", base=program, head=program)
    faulty = {**results, **trained("fault", head=program.replace(SHARE, "rows[0::count]"))}
    rows = [row for result in (*results.values(), *faulty.values()) for row in result.cases]
    assert {row.status for row in rows} == {Status.OK}, [row.failure for row in rows]
    (same,), (fault,) = judge(results).cases, judge(faulty).cases
    assert same.learning.verdict.holds, same.learning.detail
    assert str(fault.learning.verdict) == "different_math"
    assert "rank 1 of 2 first, by the loss at step 0" in fault.learning.detail
    metric = step_time(rows[0])
    assert (metric.name, metric.items) == ("step_time", 16 * 16)
    assert rows[0].facts["training_ranks"] == 2
