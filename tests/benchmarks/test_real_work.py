"""The benchmark of hours goes on where it was interrupted."""

import json

from benchmarks.real_work import Judged, document, earlier, left, spread

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
