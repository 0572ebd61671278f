"""The benchmark of hours goes on where it was interrupted."""

import json

import pytest
from benchmarks.real_work import Judged, document, earlier, is_wrong, left, noise_rows, spread

from ci_bench.records.calibration import Calibration, PastRun, PastSeries
from ci_bench.records.comparison import Verdict


def run(*, plant):
    verdict = Verdict.REGRESSED if plant else Verdict.UNCHANGED
    return Judged(plant=plant, verdicts={"matmul": verdict}, launches={"matmul": 3}, seconds=1.0)


def test_what_was_written_down_is_counted_and_the_rest_is_made(tmp_path):
    ended = [run(plant=plant) for plant in (False, False, True)]
    (tmp_path / "runs.json").write_text(json.dumps(document(ended)))
    again = earlier(tmp_path / "runs.json")
    assert again == ended
    rest = left(spread(4, 2), again)
    assert (rest.count(False), rest.count(True)) == (2, 1)


def test_without_anything_earlier_all_is_made(tmp_path):
    assert earlier(tmp_path / "runs.json") == earlier(None) == []
    assert left(spread(3, 1), []) == spread(3, 1)


def test_runs_of_before_that_say_no_reasons_are_counted_too(tmp_path):
    told = document([run(plant=False)])
    del told["runs"][0]["reasons"]
    (tmp_path / "runs.json").write_text(json.dumps(told))
    assert earlier(tmp_path / "runs.json") == [run(plant=False)]


def test_a_suspicion_fails_a_gate_as_well_and_is_counted():
    suspected = Judged(
        plant=False, verdicts={"copy": Verdict.SUSPECTED}, launches={"copy": 16}, seconds=1.0
    )
    told = document([run(plant=False), suspected, run(plant=True)])
    assert told["false_alarms"].startswith("any false `regressed`: 0 of 2 runs")
    assert told["false_failures"].startswith("any false `regressed` or `suspected`: 1 of 2 runs")


def test_how_far_launches_differed_is_told_over_all_runs_of_the_calibration():
    def calibration(*ratios, metric="step_time"):
        one = PastSeries(
            case="work/copy",
            metric=metric,
            arm="eager",
            ratios=ratios,
            within=(0.02, None, 0.04)[: len(ratios)],
            runs=(0,) * len(ratios),
        )
        return Calibration(
            tool_version="1",
            fingerprint="f",
            identity={},
            runs=(PastRun(id="r", at=""),),
            series=(one,),
        )

    (row,) = noise_rows(
        [calibration(0.03, -0.04, 0.0), calibration(0.0), calibration(9.0, metric="peak")]
    )
    assert row == {
        "workload": "copy",
        "launches": "4",
        "between launches": "2.50%",
        "largest": "4.00%",
        "inside a launch": "2.00%",
    }


@pytest.mark.parametrize(
    ("verdict", "unchanged", "planted"),
    [
        (Verdict.REGRESSED, True, False),
        (Verdict.SUSPECTED, True, True),
        (Verdict.IMPROVED, True, True),
        (Verdict.UNCHANGED, False, True),
        (Verdict.INCONCLUSIVE, False, True),
    ],
)
def test_reasons_are_kept_of_verdicts_that_are_wrong(verdict, unchanged, planted):
    assert (is_wrong(verdict, plant=False), is_wrong(verdict, plant=True)) == (unchanged, planted)
