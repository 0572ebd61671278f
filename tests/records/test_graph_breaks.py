"""Which count stands for a graph break, and where its line is known from."""

from dataclasses import replace

import pytest
from judge_builders import count, judged, metric, result, results, sampled

from ci_bench.records.causes import Cause
from ci_bench.records.graph_breaks import first_break, leading
from ci_bench.records.profiles import GraphBreak
from ci_bench.records.results import Check, Outcome

DETAIL = "9 graphs of 90 operations, 4 breaks, 0 recompiles. z at attend.py:566 in forward (3x); a at late.py:7 in f (1x)"


def case_of(before, after, *, detail=DETAIL, arm="inductor"):
    check = Check(name="compiled", arm=arm, outcome=Outcome.PASS, detail=detail)
    (case,) = judged(
        results(result(count(after), checks=(check,))), results(result(count(before)))
    ).cases
    return case


@pytest.mark.parametrize(
    ("case", "place"),
    [
        (case_of(0, 4), "attend.py:566"),
        (case_of(1, 4), ""),
        (case_of(0, 4, detail="9 graphs of 90 operations, 4 breaks"), ""),
        (case_of(0, 4, arm="other"), ""),
        (case_of(0, 4, detail=f"z at {'x' * 400}:1 in f"), ""),
    ],
    ids=["new", "base has breaks", "no line", "another arm", "long"],
)
def test_the_check_names_the_first_new_line(case, place):
    assert first_break(case, case.pairs[0]) == place


def test_an_explained_arm_names_its_new_line():
    breaks = (GraphBreak(reason="a", place=""), GraphBreak(reason="b", place="lib/attend.py:9"))
    case = replace(case_of(1, 4), causes=(Cause(arm="inductor", new_breaks=breaks),))
    assert first_break(case, case.pairs[0]) == "lib/attend.py:9"
    assert not first_break(case, replace(case.pairs[0], metric="graphs"))
    assert not first_break(case, replace(case.pairs[0], arm="eager"))


def test_the_first_count_of_an_arm_stands_for_all():
    head = result(
        metric(sampled(1.0)),
        count(9, name="graphs"),
        count(2, name="recompiles"),
        count(1, name="fallbacks", arm="other"),
    )
    (case,) = judged(results(head), results(head)).cases
    assert [pair.metric for pair in leading(case.pairs)] == ["step_time", "recompiles", "fallbacks"]
