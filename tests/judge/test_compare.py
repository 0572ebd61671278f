"""Base against head: every verdict of a case, what stands against what, and speedups of arms."""

import math
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import (
    check,
    count,
    judged,
    launches,
    metric,
    numeric,
    peak,
    result,
    results,
    sampled,
    trace,
)

from ci_bench.judge.compare import NOT_RECORDED
from ci_bench.judge.times.pairing import WORST_FIRST
from ci_bench.records.comparison import BaselineMode, Parity, Verdict
from ci_bench.records.config import Policy, SuitePolicy
from ci_bench.records.results import Better, Role, Status, Unit

BROKEN = [
    (),
    launches([]),
    launches([math.nan] * 3, [1] * 3),
    launches([0] * 3, [0] * 3),
    launches([-1] * 3, [1] * 3),
]
values = st.floats(allow_nan=True, allow_infinity=True)
any_series = st.lists(st.lists(values, max_size=4), max_size=3).map(
    lambda groups: launches(*groups)
)


def case_of(head, base=None, **options):
    (case,) = judged(results(head), base and results(base), **options).cases
    return case


def test_the_threshold_belongs_to_the_policy():
    policy = Policy(suites={"s": SuitePolicy(thresholds={"step_time": 0.2})})
    base, head = result(metric(sampled(1.0))), result(metric(sampled(1.1)))
    assert case_of(head, base).pairs[0].verdict is Verdict.REGRESSED
    assert case_of(head, base, policy=policy).pairs[0].verdict is Verdict.UNCHANGED
    assert case_of(head, base, policy=policy).pairs[0].threshold == 0.2


def test_a_metric_named_twice_is_inconclusive_on_either_side():
    fast, slow = metric(sampled(1.0)), metric(sampled(2.0))
    for head, base in ((result(fast, slow), result(fast)), (result(fast), result(fast, slow))):
        pair = case_of(head, base).pairs[0]
        assert (pair.verdict, pair.reason) == (
            Verdict.INCONCLUSIVE,
            "the document holds this metric twice",
        )


@pytest.mark.parametrize("series", BROKEN[:2])
def test_an_emptied_series_is_a_removed_metric(series):
    pair = case_of(result(metric(series), count(1)), result(metric(sampled(1.0)), count(1))).pairs[
        -1
    ]
    assert (pair.verdict, pair.metric) == (Verdict.REMOVED, "step_time")


def test_metrics_of_one_side_only():
    case = case_of(result(metric(sampled(1.0)), count(1)), result(metric(sampled(1.0)), peak(1, 1)))
    assert {pair.metric: pair.verdict for pair in case.pairs} == {
        "step_time": Verdict.UNCHANGED,
        "graph_breaks": Verdict.NEW,
        "peak_allocated": Verdict.REMOVED,
    }
    assert case.verdict is Verdict.REMOVED
    assert (
        case.reason
        == "eager peak allocated memory: was measured in the baseline and is missing now"
    )


def test_worst_pair_names_the_case():
    base = result(metric(sampled(1.0)), metric(sampled(1.0), arm="inductor"), count(0))
    head = result(metric(sampled(1.1)), metric(sampled(1.4), arm="inductor"), count(0))
    case = case_of(head, base)
    assert case.verdict is Verdict.REGRESSED
    assert case.reason.startswith("inductor step time: 40 % slower")
    assert case.reason.endswith("; 1 metric more regressed")


@pytest.mark.parametrize("status", list(Status))
def test_every_status_of_head(status):
    case = case_of(
        result(metric(sampled(1.0)), status=status), result(metric(sampled(1.0)), peak(1, 1))
    )
    expected = {
        Status.OK: Verdict.REMOVED,
        Status.SKIPPED: Verdict.SKIPPED,
        Status.NOT_RUN: Verdict.SKIPPED,
    }
    assert case.verdict is expected.get(status, Verdict.FAILED)
    assert case.pairs[1].verdict is expected.get(status, Verdict.FAILED)
    assert case.head_status is status
    if status is not Status.OK:
        assert (
            case.reason == f"{status.value.replace('_', ' ')} in stage train (inductor): it broke"
        )
        assert case.log_tail == "the end"


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_base_that_failed_leaves_nothing_to_compare_with(status):
    case = case_of(result(metric(sampled(1.0))), result(metric(sampled(1.0)), status=status))
    assert case.verdict is Verdict.NEW
    assert case.pairs[0].verdict is Verdict.NEW
    assert "the baseline's run of it ended" in case.reason


def test_cases_of_one_side_only():
    new, old = result(count(1), id="s/new"), result(count(1), id="s/old")
    cases = judged(results(new), results(old)).cases
    assert [(case.id, case.verdict) for case in cases] == [
        ("s/new", Verdict.NEW),
        ("s/old", Verdict.REMOVED),
    ]
    assert cases[0].reason == "not in the baseline"
    assert (cases[1].head_status, cases[1].base_status) == (None, Status.OK)
    assert cases[1].pairs[0].verdict is Verdict.REMOVED


def test_without_base_head_is_still_judged():
    parity = numeric(trace(Role.CANDIDATE, scale=1.1))
    comparison = judged(
        results(result(metric(sampled(1.0)), checks=(check(),), parity=parity)), absence="first run"
    )
    (case,) = comparison.cases
    assert (case.verdict, case.reason) == (Verdict.NEW, "no baseline")
    assert case.parity[0].verdict is Parity.DIFFERENT_MATH
    assert case.checks
    assert (comparison.base, comparison.absence) == (None, "first run")


def test_a_case_without_metrics_that_learnt_is_inconclusive_and_not_unchanged():
    case = case_of(result(parity=numeric(trace(Role.CANDIDATE))), result())
    assert (case.verdict, case.reason) == (Verdict.INCONCLUSIVE, "no metric on either side")


@pytest.mark.parametrize(
    ("base", "head", "field", "facts"),
    [
        ({"gpu": "A", "torch": "2"}, {"gpu": "B", "torch": "2"}, "gpu", ("A", "B")),
        ({"gpu": "A"}, {}, "gpu", ("A", NOT_RECORDED)),
        ({}, {"gpu": None}, "gpu", (NOT_RECORDED, None)),
        ({"gpu": None}, {"gpu": "A"}, "gpu", (None, "A")),
    ],
)
def test_other_machines_cannot_be_compared(base, head, field, facts):
    bodies = [result(metric(sampled(x)), metric(sampled(x), arm="inductor")) for x in (1.0, 2.0)]
    comparison = judged(results(bodies[1], identity=head), results(bodies[0], identity=base))
    (mismatch,) = comparison.mismatches
    assert (mismatch.field, mismatch.base, mismatch.head) == (field, *facts)
    (case,) = comparison.cases
    assert {pair.verdict for pair in case.pairs} == {case.verdict} == {Verdict.INCOMPARABLE}
    assert field in case.reason
    assert case.pairs[0].speedup is None
    assert case.speedups[0].base_speedup is None


@pytest.mark.parametrize("fields", [("torch",), ("torch", "gpu")])
def test_differences_on_purpose_are_compared(fields):
    base = results(result(count(1)), identity={"torch": "2.11", "gpu": "A"})
    head = results(result(count(9)), identity={"torch": "2.12", "gpu": "A"})
    comparison = judged(head, base, policy=Policy(compare_across=fields))
    assert comparison.mismatches == ()
    assert [(one.field, one.base, one.head) for one in comparison.across] == [
        ("torch", "2.11", "2.12")
    ]
    assert comparison.cases[0].verdict is Verdict.REGRESSED
    assert comparison.judgement.headline.endswith(
        "; compared across torch (2.11 on base, 2.12 on head)."
    )
    assert judged(base, base, policy=Policy(compare_across=fields)).across == ()


def test_another_difference_still_bars_comparing():
    base = results(result(count(1)), identity={"torch": "2.11", "gpu": "A"})
    head = results(result(count(9)), identity={"torch": "2.12", "gpu": "B"})
    comparison = judged(head, base, policy=Policy(compare_across=("torch",)))
    assert [one.field for one in comparison.mismatches] == ["gpu"]
    assert (comparison.judgement.exit_code, comparison.cases[0].verdict) == (
        4,
        Verdict.INCOMPARABLE,
    )


def test_facts_unknown_on_both_sides_do_not_bar_comparing():
    body = results(result(count(1)), identity={"gpu": None})
    assert judged(body, body).mismatches == ()


def test_arm_speedups_within_head():
    arms = (
        metric(sampled(2.0)),
        metric(sampled(1.0), arm="inductor"),
        peak(300, 300),
        peak(100, 100, arm="inductor"),
    )
    base = (metric(sampled(3.0)), metric(sampled(1.0), arm="inductor"))
    case = case_of(result(*arms, count(1), count(1, arm="eager")), result(*base))
    time_, memory = case.speedups
    assert (time_.metric, time_.arm, time_.reference) == ("step_time", "inductor", "eager")
    assert time_.speedup == pytest.approx(2.0)
    assert time_.base_speedup == pytest.approx(3.0)
    assert time_.interval.low < 2 < time_.interval.high
    assert (memory.metric, memory.speedup) == ("peak_allocated", pytest.approx(3.0))


def test_what_a_launch_does_to_both_arms_is_no_part_of_their_speedup():
    jumps = (0.7, 1.0, 1.4)
    one, two = (
        launches(*([by * jump * x for x in (0.999, 1.0, 1.001)] for jump in jumps))
        for by in (2.0, 1.0)
    )
    (shared,) = case_of(result(metric(one), metric(two, arm="inductor"))).speedups
    assert 1.99 < shared.interval.low < 2.0 < shared.interval.high < 2.01


def test_arm_speedups_need_both_arms_and_positive_values():
    assert case_of(result(metric(sampled(1.0), arm="inductor"))).speedups == ()
    assert case_of(result(peak(0, 0), peak(1, 1, arm="inductor"))).speedups == ()


def test_every_verdict_has_a_rank():
    assert set(WORST_FIRST) == set(Verdict)


def test_the_same_documents_give_the_same_comparison():
    documents = results(result(metric(sampled(1.1)))), results(result(metric(sampled(1.0))))
    assert judged(*documents) == judged(*documents)


def test_mode_and_tool_version_are_kept():
    comparison = judged(results(), mode=BaselineMode.NONE)
    assert (comparison.mode, comparison.tool_version) == (BaselineMode.NONE, "1")


def test_thousands_of_cases_are_quick():
    metrics = [
        (metric(sampled(x)), metric(sampled(x / 2), arm="inductor"), peak(9, 9), count(0))
        for x in (1.0, 1.1)
    ]
    base, head = (results(*(result(*side, id=f"s/{i}") for i in range(2000))) for side in metrics)
    start = time.process_time()
    assert len(judged(head, base).cases) == 2000
    assert time.process_time() - start < 5


@settings(max_examples=60, deadline=None)
@given(
    base=any_series,
    head=any_series,
    unit=st.sampled_from(list(Unit)),
    better=st.sampled_from(list(Better)),
)
def test_garbage_never_crashes_nor_leaves_a_figure_that_is_no_number(base, head, unit, better):
    case = case_of(
        result(metric(head, unit=unit, better=better)),
        result(metric(base, unit=unit, better=better)),
    )
    for pair in case.pairs:
        assert pair.speedup is None or 0 < pair.speedup < math.inf
        assert pair.reason


@pytest.mark.parametrize("params", [{"batch": 9}, {}, {"batch": 8, "more": 1}])
def test_other_options_are_another_measurement(params):
    plain = result(metric(sampled(1.0)))
    base, head = (
        replace(plain, case=replace(plain.case, params=own)) for own in ({"batch": 8}, params)
    )
    pair = case_of(head, base).pairs[0]
    differing = "batch" if params != {"batch": 8, "more": 1} else "more"
    assert (pair.verdict, pair.reason) == (
        Verdict.INCOMPARABLE,
        f"the case's options differ: {differing}",
    )
    assert case_of(base, base).pairs[0].verdict is Verdict.UNCHANGED


def test_another_largest_batch_is_another_measurement():
    plain = result(metric(sampled(1.0)))
    base, head, silent = (
        replace(plain, facts=facts)
        for facts in ({"largest_batch": 8}, {"largest_batch": 9}, {"other": 1})
    )
    pair = case_of(head, base).pairs[0]
    assert (pair.verdict, pair.reason) == (
        Verdict.INCOMPARABLE, "the largest batch was of 8 rows in the baseline, and is of 9 now",
    )  # fmt: skip
    assert case_of(silent, base).pairs[0].verdict is Verdict.INCOMPARABLE
    assert case_of(base, base).pairs[0].verdict is Verdict.UNCHANGED


@pytest.mark.parametrize("mode", [BaselineMode.FILE, BaselineMode.PAIRED])
def test_the_threshold_is_that_of_any_baseline(mode):
    both = result(
        metric(sampled(1.0), name="other"), peak(9e6, 9e6, name="held"), count(3, name="score")
    )
    pairs = case_of(both, both, mode=mode).pairs
    assert {pair.metric: pair.threshold for pair in pairs} == {
        "other": 0.02,
        "held": 0.02,
        "score": 0.05,
    }
