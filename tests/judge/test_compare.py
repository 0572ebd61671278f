"""Base against head: every verdict of a pair and of a case, and what must never become a change."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import check, count, judged, launches, metric, numeric, peak, result, results, sampled, trace

from ci_bench.judge.compare import NOT_RECORDED, WORST_FIRST
from ci_bench.judge.pairs import Ground, compare_metric
from ci_bench.records.case import Better, Lane, Role, Status, Unit
from ci_bench.records.comparison import BaselineMode, Parity, Verdict
from ci_bench.records.policy import Policy, SuitePolicy

MIB = 1024**2


def pair_of(base, head, threshold=0.05):
    return compare_metric((base,) if base else (), (head,) if head else (), threshold=threshold, ground=Ground())


def case_of(head, base=None, **options):
    (case,) = judged(results(head), base and results(base), **options).cases
    return case


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        (1.0, 1.10, Verdict.REGRESSED),
        (1.0, 0.90, Verdict.IMPROVED),
        (1.0, 1.00, Verdict.UNCHANGED),
        (1.0, 1.03, Verdict.UNCHANGED),
        (1.0, 1.045, Verdict.INCONCLUSIVE),
    ],
)
def test_time_needs_evidence_and_size(base, head, verdict):
    pair = pair_of(metric(sampled(base)), metric(sampled(head)))
    assert pair.verdict is verdict
    assert pair.speedup == pytest.approx(base / head, rel=1e-3)
    assert pair.interval.low <= pair.speedup <= pair.interval.high


def test_a_large_difference_in_noise_is_inconclusive_and_says_what_to_do():
    noisy = launches(*([x * jump for x in (0.9, 1.0, 1.1)] for jump in (0.7, 1.0, 1.4)))
    pair = pair_of(metric(noisy), metric(launches(*([1.2 * x for x in one.values] for one in noisy))))
    assert pair.verdict is Verdict.INCONCLUSIVE
    assert "measure more launches" in pair.reason
    assert "% or more can be told" in pair.reason


def test_the_threshold_belongs_to_the_policy():
    policy = Policy(suites={"s": SuitePolicy(thresholds={"step_time": 0.2})})
    base, head = result(metric(sampled(1.0))), result(metric(sampled(1.1)))
    assert case_of(head, base).pairs[0].verdict is Verdict.REGRESSED
    assert case_of(head, base, policy=policy).pairs[0].verdict is Verdict.UNCHANGED
    assert case_of(head, base, policy=policy).pairs[0].threshold == 0.2


def test_higher_is_better_turns_the_ratio():
    rate = {"name": "tokens", "unit": Unit.PER_SECOND, "better": Better.HIGHER}
    pair = pair_of(metric(sampled(100.0), **rate), metric(sampled(80.0), **rate))
    assert pair.verdict is Verdict.REGRESSED
    assert pair.speedup == pytest.approx(0.8)
    assert pair.reason.startswith("20 % lower")


def test_reason_says_by_how_much():
    assert pair_of(metric(sampled(1.0)), metric(sampled(1.123))).reason.startswith("12.3 % slower (speedup 0.890, 95 % interval")


def test_compile_time_has_one_value_per_launch():
    cold = {"name": "compile_cold"}
    steady = pair_of(metric(launches([10], [10.2], [9.9]), **cold), metric(launches([14], [14.1], [13.8]), **cold), 0.2)
    assert steady.verdict is Verdict.REGRESSED
    erratic = pair_of(metric(launches([10], [14]), **cold), metric(launches([12], [19]), **cold), 0.2)
    assert erratic.verdict is Verdict.INCONCLUSIVE
    single = pair_of(metric(launches([10]), **cold), metric(launches([99]), **cold), 0.2)
    assert (single.verdict, single.interval) == (Verdict.INCONCLUSIVE, None)


@pytest.mark.parametrize(
    ("base", "head", "threshold", "verdict", "speedup"),
    [
        ((1, 1), (1, 2), 0.0, Verdict.REGRESSED, 0.5),
        ((2, 1), (1, 1), 0.0, Verdict.IMPROVED, 2.0),
        ((3,), (3,), 0.0, Verdict.UNCHANGED, 1.0),
        ((0,), (1,), 0.0, Verdict.REGRESSED, None),
        ((1,), (0,), 0.5, Verdict.IMPROVED, None),
        ((0,), (0,), 0.0, Verdict.UNCHANGED, None),
        ((10,), (11,), 0.1, Verdict.UNCHANGED, 10 / 11),
        ((10,), (12,), 0.1, Verdict.REGRESSED, 10 / 12),
    ],
)
def test_counts_are_exact(base, head, threshold, verdict, speedup):
    pair = pair_of(count(*base), count(*head), threshold)
    assert (pair.verdict, pair.speedup) == (verdict, speedup)


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        ((100, 100), (100.9, 100.9), Verdict.UNCHANGED),
        ((100, 100), (101.1, 101.1), Verdict.REGRESSED),
        ((101.1, 101.1), (100, 100), Verdict.IMPROVED),
        ((1000, 1000), (1004, 1004), Verdict.UNCHANGED),
        ((1000, 1000), (1006, 1006), Verdict.REGRESSED),
        ((1000, 1004), (1006, 1006), Verdict.INCONCLUSIVE),
        ((1000, 1004), (1011, 1011), Verdict.REGRESSED),
        ((1000, 1002), (1003, 1003), Verdict.UNCHANGED),
        ((0, 0), (0, 0), Verdict.UNCHANGED),
        ((0, 0), (5, 5), Verdict.REGRESSED),
        ((1000,), (2000,), Verdict.INCONCLUSIVE),
    ],
)
def test_memory_is_exact_where_it_repeats(base, head, verdict):
    pair = pair_of(peak(*(x * MIB for x in base)), peak(*(x * MIB for x in head)), 0.005)
    assert pair.verdict is verdict
    assert pair.reason


def test_sampled_memory_goes_by_the_ratio():
    unit = {"unit": Unit.BYTES, "name": "resident"}
    assert pair_of(metric(sampled(1e9), **unit), metric(sampled(1.2e9), **unit)).interval is not None


@pytest.mark.parametrize("field", [{"unit": Unit.COUNT}, {"better": Better.HIGHER}, {"lane": Lane.DEVICE}])
def test_a_metric_that_changed_its_meaning_cannot_be_compared(field):
    pair = pair_of(metric(sampled(1.0)), metric(sampled(1.0), **field))
    assert pair.verdict is Verdict.INCOMPARABLE
    assert next(iter(field)) in pair.reason


def test_a_metric_named_twice_is_inconclusive():
    fast, slow = metric(sampled(1.0)), metric(sampled(2.0))
    assert case_of(result(fast, slow), result(fast)).pairs[0].verdict is Verdict.INCONCLUSIVE


BROKEN = [(), launches([]), launches([math.nan] * 3, [1] * 3), launches([0] * 3, [0] * 3), launches([-1] * 3, [1] * 3)]


@pytest.mark.parametrize("series", BROKEN[2:])
def test_malformed_samples_are_inconclusive_on_either_side(series):
    for base, head in ((series, sampled(1.0)), (sampled(1.0), series)):
        pair = pair_of(metric(base), metric(head))
        assert pair.verdict is Verdict.INCONCLUSIVE
        assert "measure again" in pair.reason


@pytest.mark.parametrize("series", BROKEN[:2])
def test_an_emptied_series_is_a_removed_metric(series):
    pair = case_of(result(metric(series), count(1)), result(metric(sampled(1.0)), count(1))).pairs[-1]
    assert (pair.verdict, pair.metric) == (Verdict.REMOVED, "step_time")


def test_metrics_of_one_side_only():
    case = case_of(result(metric(sampled(1.0)), count(1)), result(metric(sampled(1.0)), peak(1, 1)))
    assert {pair.metric: pair.verdict for pair in case.pairs} == {
        "step_time": Verdict.UNCHANGED,
        "graph_breaks": Verdict.NEW,
        "peak_allocated": Verdict.REMOVED,
    }
    assert case.verdict is Verdict.REMOVED
    assert case.reason == "eager peak_allocated: was measured in the baseline and is missing now"


def test_worst_pair_names_the_case():
    base = result(metric(sampled(1.0)), metric(sampled(1.0), arm="inductor"), count(0))
    head = result(metric(sampled(1.1)), metric(sampled(1.4), arm="inductor"), count(0))
    case = case_of(head, base)
    assert case.verdict is Verdict.REGRESSED
    assert case.reason.startswith("inductor step_time: 40 % slower")
    assert case.reason.endswith("; 1 metric more regressed")


@pytest.mark.parametrize("status", list(Status))
def test_every_status_of_head(status):
    case = case_of(result(metric(sampled(1.0)), status=status), result(metric(sampled(1.0)), peak(1, 1)))
    expected = {Status.OK: Verdict.REMOVED, Status.SKIPPED: Verdict.SKIPPED, Status.NOT_RUN: Verdict.SKIPPED}
    assert case.verdict is expected.get(status, Verdict.FAILED)
    assert case.pairs[1].verdict is expected.get(status, Verdict.FAILED)
    assert case.head_status is status
    if status is not Status.OK:
        assert case.reason == f"{status.value.replace('_', ' ')} in train (inductor): it broke"
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
    assert [(case.id, case.verdict) for case in cases] == [("s/new", Verdict.NEW), ("s/old", Verdict.REMOVED)]
    assert cases[0].reason == "not in the baseline"
    assert (cases[1].head_status, cases[1].base_status) == (None, Status.OK)
    assert cases[1].pairs[0].verdict is Verdict.REMOVED


def test_without_base_head_is_still_judged():
    parity = numeric(trace(Role.CANDIDATE, scale=1.1))
    comparison = judged(results(result(metric(sampled(1.0)), checks=(check(),), parity=parity)), absence="first run")
    (case,) = comparison.cases
    assert (case.verdict, case.reason) == (Verdict.NEW, "no baseline")
    assert case.parity[0].verdict is Parity.DIFFERENT_MATH
    assert case.checks
    assert (comparison.base, comparison.absence) == (None, "first run")


def test_a_case_with_nothing_to_compare_is_inconclusive():
    assert case_of(result(), result()).verdict is Verdict.INCONCLUSIVE


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


def test_facts_unknown_on_both_sides_do_not_bar_comparing():
    body = results(result(count(1)), identity={"gpu": None})
    assert judged(body, body).mismatches == ()


def test_arm_speedups_within_head():
    arms = (metric(sampled(2.0)), metric(sampled(1.0), arm="inductor"), peak(300, 300), peak(100, 100, arm="inductor"))
    base = (metric(sampled(3.0)), metric(sampled(1.0), arm="inductor"))
    case = case_of(result(*arms, count(1), count(1, arm="eager")), result(*base))
    time_, memory = case.speedups
    assert (time_.metric, time_.arm, time_.reference) == ("step_time", "inductor", "eager")
    assert time_.speedup == pytest.approx(2.0)
    assert time_.base_speedup == pytest.approx(3.0)
    assert time_.interval.low < 2 < time_.interval.high
    assert (memory.metric, memory.speedup) == ("peak_allocated", pytest.approx(3.0))


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
    metrics = [(metric(sampled(x)), metric(sampled(x / 2), arm="inductor"), peak(9, 9), count(0)) for x in (1.0, 1.1)]
    base, head = (results(*(result(*side, id=f"s/{i}") for i in range(2000))) for side in metrics)
    start = time.process_time()
    assert len(judged(head, base).cases) == 2000
    assert time.process_time() - start < 5


values = st.floats(allow_nan=True, allow_infinity=True)
any_series = st.lists(st.lists(values, max_size=4), max_size=3).map(lambda groups: launches(*groups))
good = st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=6)
good_series = st.lists(good, min_size=2, max_size=3).map(lambda groups: launches(*groups))
units = st.sampled_from([Unit.SECONDS, Unit.PER_SECOND, Unit.BYTES])
CHANGES = {Verdict.IMPROVED, Verdict.REGRESSED}


@settings(max_examples=60, deadline=None)
@given(base=any_series, head=any_series, unit=st.sampled_from(list(Unit)), better=st.sampled_from(list(Better)))
def test_garbage_never_crashes_nor_leaves_a_figure_that_is_no_number(base, head, unit, better):
    case = case_of(result(metric(head, unit=unit, better=better)), result(metric(base, unit=unit, better=better)))
    for pair in case.pairs:
        assert pair.speedup is None or 0 < pair.speedup < math.inf
        assert pair.reason


@settings(max_examples=40, deadline=None)
@given(broken=any_series, series=good_series, unit=units)
def test_one_launch_or_malformed_samples_never_become_a_change(broken, series, unit):
    usable = [one for one in broken if len(one.values) >= 3 and all(0 < x < 1e300 for x in one.values)]
    bytes_by_launch = unit is Unit.BYTES and all(len(one.values) <= 1 for one in broken)
    if len(usable) >= 2 or bytes_by_launch or not any(one.values for one in broken):
        return
    for base, head in ((broken, series), (series, broken)):
        assert pair_of(metric(base, unit=unit), metric(head, unit=unit)).verdict not in CHANGES


@settings(max_examples=40, deadline=None)
@given(value=st.floats(1, 1e12), other=st.floats(1, 1e12), unit=units)
def test_one_value_never_becomes_a_change(value, other, unit):
    pair = pair_of(metric(launches([value]), unit=unit), metric(launches([other]), unit=unit))
    assert pair.verdict is Verdict.INCONCLUSIVE


@settings(max_examples=40, deadline=None)
@given(base=good_series, head=good_series, scale=st.sampled_from([0.25, 4.0, 1024.0]))
def test_scaling_both_sides_changes_nothing(base, head, scale):
    def scaled(series):
        return launches(*([scale * x for x in one.values] for one in series))

    plain, both = pair_of(metric(base), metric(head)), pair_of(metric(scaled(base)), metric(scaled(head)))
    assert plain.verdict is both.verdict


@settings(max_examples=40, deadline=None)
@given(base=good_series, head=good_series)
def test_swapping_sides_mirrors_the_verdict(base, head):
    mirror = {Verdict.IMPROVED: Verdict.REGRESSED, Verdict.REGRESSED: Verdict.IMPROVED}
    forth, back = pair_of(metric(base), metric(head)), pair_of(metric(head), metric(base))
    assert mirror.get(forth.verdict, forth.verdict) is back.verdict
