"""Counts that tell of a graph's size are shown and fail nothing; those beside them fail as ever."""

from dataclasses import replace

import pytest
from judge_builders import count, judged, launches, metric, result, results

from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Rule
from ci_bench.records.metrics import ENGINE, RECORDED

SHOWN_ONLY = sorted(kind.name for kind in ENGINE.values() if not kind.gates)


def compared(name, before, after):
    base, head = (
        results(result(count(number, name=name, arm="eager"))) for number in (before, after)
    )
    comparison = judged(head, base=base, mode=BaselineMode.FILE)
    (pair,) = [pair for case in comparison.cases for pair in case.pairs if pair.metric == name]
    return pair, [finding.rule for finding in comparison.judgement.findings]


@pytest.mark.parametrize("name", SHOWN_ONLY)
@pytest.mark.parametrize(("before", "after"), [(100, 10), (10, 100)])
def test_more_or_fewer_is_neither_better_nor_worse(name, before, after):
    pair, rules = compared(name, before, after)
    assert pair.detail
    assert Rule.REGRESSED not in rules


@pytest.mark.parametrize(("before", "after"), [(100, 10), (10, 100)])
def test_what_a_benchmark_recorded_fails_nothing_unless_it_gates(before, after):
    pair, rules = compared(f"{RECORDED}tokens", before, after)
    assert pair.detail
    assert Rule.REGRESSED not in rules
    gating, _ = compared("tokens", before, after)
    assert not gating.detail


def test_a_number_that_head_no_longer_lets_gate_is_missed():
    base, head = (
        results(result(count(10, name="tokens", arm="eager"))),
        results(result(count(10, name=f"{RECORDED}tokens", arm="eager"))),
    )
    comparison = judged(head, base=base, mode=BaselineMode.FILE)
    assert Rule.METRIC_REMOVED in [finding.rule for finding in comparison.judgement.findings]


def test_another_count_that_grows_still_fails():
    pair, rules = compared("graph_breaks", 1, 2)
    assert not pair.detail
    assert Rule.REGRESSED in rules


def test_what_is_only_shown_has_no_threshold():
    assert all(ENGINE[name].threshold is None for name in SHOWN_ONLY)


def compiled(*seconds):
    return results(
        result(
            metric(launches(*([one] for one in seconds)), name="compile_cold", arm="fused"),
            metric(
                launches([0.01, 0.0101, 0.0099], [0.01, 0.0101, 0.0099]),
                name="step_time",
                arm="fused",
            ),
        )
    )


@pytest.mark.parametrize(
    ("before", "after", "shown_only"),
    [
        ([10.0], [11.9], True),
        ([10.0], [6.0], True),
        ([10.0], [12.1], False),
        ([10.0], [100.0], False),
        ([10.0, 10.1], [10.0, 10.1], False),
        ([10.0], [10.0, 10.1], False),
    ],
    ids=[
        "slower within the threshold",
        "faster",
        "slower beyond it",
        "far slower",
        "repeated",
        "repeated on one side",
    ],
)
def test_one_cold_compilation_that_does_not_look_slower_holds_up_nothing(before, after, shown_only):
    """The time budget of compilations allowed no second one, and no verdict rests on one."""
    base, head = compiled(*before), compiled(*after)
    comparison = judged(head, base=base, mode=BaselineMode.PAIRED)
    (pair,) = [
        pair for case in comparison.cases for pair in case.pairs if pair.metric == "compile_cold"
    ]
    assert pair.detail is shown_only


def test_a_cold_compilation_is_held_to_the_threshold_that_its_case_asks_for():
    """11 % slower is within the policy's threshold, and beyond the case's own."""
    base, head = (
        results(*(replace(row, case=replace(row.case, threshold=0.05)) for row in of.cases))
        for of in (compiled(10.0), compiled(11.1))
    )
    comparison = judged(head, base=base, mode=BaselineMode.PAIRED)
    (pair,) = [
        pair for case in comparison.cases for pair in case.pairs if pair.metric == "compile_cold"
    ]
    assert not pair.detail
