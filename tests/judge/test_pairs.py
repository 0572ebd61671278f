"""One metric, base against head: every verdict, and what must never become a change."""

import math
import re
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import count, judged, launches, metric, peak, result, results, sampled

from ci_bench.judge.times.metrics import judge_lines
from ci_bench.judge.times.pairing import CaseGround, Line, known_of
from ci_bench.judge.times.screening import screen
from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Policy
from ci_bench.records.results import Better, Lane, Unit

MIB = 1024**2
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
good = st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=6)
good_series = st.lists(good, min_size=2, max_size=3).map(lambda groups: launches(*groups))
units = st.sampled_from([Unit.SECONDS, Unit.PER_SECOND, Unit.BYTES])
CHANGES = {Verdict.IMPROVED, Verdict.REGRESSED}


def pair_of(base, head, threshold=0.05, drift=0.0):
    sides = (base,) if base else (), (head,) if head else ()
    line = Line(
        case="s/a",
        suite="s",
        reference="eager",
        metric=head or base,
        base=sides[0],
        head=sides[1],
        threshold=threshold,
        ground=CaseGround(),
        detail=False,
    )
    ((pair,), _) = judge_lines([line], known_of([line]), partial(screen, drift=drift))
    return pair


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
    pair = pair_of(
        metric(noisy), metric(launches(*([1.2 * x for x in one.values] for one in noisy)))
    )
    assert pair.verdict is Verdict.INCONCLUSIVE
    assert "measure more launches" in pair.reason
    assert re.search(r"only changes above [\d.]+ % would show", pair.reason)


def test_launches_of_two_runs_share_nothing_though_their_numbers_are_the_same():
    base, head = (
        launches(*([scale * jump * x for x in (0.99, 1.0, 1.01)] for jump in (0.8, 1.0, 1.25)))
        for scale in (1.0, 1.1)
    )
    assert pair_of(metric(base), metric(head)).verdict is Verdict.INCONCLUSIVE


def test_higher_is_better_turns_the_ratio():
    rate = {"name": "tokens", "unit": Unit.PER_SECOND, "better": Better.HIGHER}
    pair = pair_of(metric(sampled(100.0), **rate), metric(sampled(80.0), **rate))
    assert pair.verdict is Verdict.REGRESSED
    assert pair.speedup == pytest.approx(0.8)
    assert pair.reason.startswith("20 % lower")


def test_reason_says_by_how_much():
    assert pair_of(metric(sampled(1.0)), metric(sampled(1.123))).reason.startswith(
        "12 % slower (speedup 0.890, 95 % interval"
    )


@pytest.mark.parametrize(
    ("head", "end"),
    [(1.0, "), within the threshold of 5 %"), (1.2, "), beyond the threshold of 5 %")],
)
def test_reason_says_on_which_side_of_the_threshold(head, end):
    assert pair_of(metric(sampled(1.0)), metric(sampled(head))).reason.endswith(end)


def test_compile_time_has_one_value_per_launch():
    cold = {"name": "compile_cold"}
    steady = pair_of(
        metric(launches([10], [10.2], [9.9]), **cold),
        metric(launches([14], [14.1], [13.8]), **cold),
        0.2,
    )
    assert steady.verdict is Verdict.REGRESSED
    erratic = pair_of(
        metric(launches([10], [14]), **cold), metric(launches([12], [19]), **cold), 0.2
    )
    assert erratic.verdict is Verdict.INCONCLUSIVE
    single = pair_of(metric(launches([10]), **cold), metric(launches([12.5]), **cold), 0.2)
    assert (single.verdict, single.interval) == (Verdict.INCONCLUSIVE, None)
    far = pair_of(metric(launches([10]), **cold), metric(launches([99]), **cold), 0.2)
    assert (far.verdict, far.possible) == (Verdict.INCONCLUSIVE, True)


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
        ((1000,), (1100,), Verdict.INCONCLUSIVE),
        ((1000,), (5000,), Verdict.SUSPECTED),
        ((5000,), (1000,), Verdict.INCONCLUSIVE),
    ],
)
def test_memory_is_exact_where_it_repeats(base, head, verdict):
    pair = pair_of(peak(*(x * MIB for x in base)), peak(*(x * MIB for x in head)), 0.005)
    assert pair.verdict is verdict
    assert pair.reason


def test_sampled_memory_goes_by_the_ratio():
    unit = {"unit": Unit.BYTES, "name": "resident"}
    assert (
        pair_of(metric(sampled(1e9), **unit), metric(sampled(1.2e9), **unit)).interval is not None
    )


@pytest.mark.parametrize(
    "field", [{"unit": Unit.COUNT}, {"better": Better.HIGHER}, {"lane": Lane.DEVICE}]
)
def test_a_metric_that_changed_its_meaning_cannot_be_compared(field):
    pair = pair_of(metric(sampled(1.0)), metric(sampled(1.0), **field))
    assert pair.verdict is Verdict.INCOMPARABLE
    assert next(iter(field)) in pair.reason


@pytest.mark.parametrize("series", BROKEN[2:])
def test_malformed_samples_are_inconclusive_on_either_side(series):
    for base, head in ((series, sampled(1.0)), (sampled(1.0), series)):
        pair = pair_of(metric(base), metric(head))
        assert pair.verdict is Verdict.INCONCLUSIVE
        assert "measure again" in pair.reason


@settings(max_examples=40, deadline=None)
@given(broken=any_series, series=good_series, unit=units)
def test_one_launch_or_malformed_samples_never_become_a_change(broken, series, unit):
    filled = [one for one in broken if one.values]
    well_formed = all(0 < x < 1e300 for one in filled for x in one.values)
    if (
        well_formed and len(filled) >= 2
    ) or not filled:  # two launches can be told apart, by their medians if need be
        return
    for base, head in ((broken, series), (series, broken)):
        assert pair_of(metric(base, unit=unit), metric(head, unit=unit)).verdict not in CHANGES


@settings(max_examples=40, deadline=None)
@given(value=st.floats(1, 1e12), other=st.floats(1, 1e12), unit=units)
def test_one_value_is_at_most_suspected_and_of_two_sides_one(value, other, unit):
    sides = metric(launches([value]), unit=unit), metric(launches([other]), unit=unit)
    words = {pair_of(*pair).verdict for pair in (sides, sides[::-1])}
    if unit is Unit.BYTES and abs(value - other) <= MIB / 4:  # peaks that agree repeat each other
        assert words == {Verdict.UNCHANGED}
        return
    agrees = {Verdict.UNCHANGED} if unit is Unit.BYTES else set()
    assert words & ({Verdict.INCONCLUSIVE} | agrees)
    assert words <= {Verdict.INCONCLUSIVE, Verdict.SUSPECTED} | agrees
    assert (
        (Verdict.SUSPECTED in words)
        or max(value, other) < 4 * min(value, other)
        or abs(value - other) <= MIB
    )


@settings(max_examples=40, deadline=None)
@given(base=good_series, head=good_series, scale=st.sampled_from([0.25, 4.0, 1024.0]))
def test_scaling_both_sides_changes_nothing(base, head, scale):
    def scaled(series):
        return launches(*([scale * x for x in one.values] for one in series))

    plain, both = (
        pair_of(metric(base), metric(head)),
        pair_of(metric(scaled(base)), metric(scaled(head))),
    )
    assert plain.verdict is both.verdict


@settings(max_examples=40, deadline=None)
@given(base=good_series, head=good_series)
def test_swapping_sides_mirrors_the_verdict(base, head):
    mirror = {Verdict.IMPROVED: Verdict.REGRESSED, Verdict.REGRESSED: Verdict.IMPROVED}
    forth, back = pair_of(metric(base), metric(head)), pair_of(metric(head), metric(base))
    assert mirror.get(forth.verdict, forth.verdict) is back.verdict


class TestDrift:
    """Against a run of another moment, a time must have moved by more than moments do."""

    @pytest.mark.parametrize(
        ("slower", "drift", "verdict"),
        [
            (1.13, 0.0, Verdict.REGRESSED),
            (1.13, 0.3, Verdict.INCONCLUSIVE),
            (0.85, 0.3, Verdict.INCONCLUSIVE),
            (1.35, 0.3, Verdict.REGRESSED),
            (0.6, 0.3, Verdict.IMPROVED),
            (1.0, 0.3, Verdict.UNCHANGED),
        ],
    )
    def test_of_times(self, slower, drift, verdict):
        pair = pair_of(metric(sampled(1.0)), metric(sampled(slower)), drift=drift)

        assert pair.verdict is verdict
        assert ("policy.drift" in pair.reason) is (verdict is Verdict.INCONCLUSIVE)

    def test_memory_and_counts_do_not_drift(self):
        sampled_bytes = (
            metric(sampled(1e9 * by), unit=Unit.BYTES, name="resident") for by in (1.0, 1.2)
        )

        assert pair_of(peak(1e9, 1e9), peak(1.2e9, 1.2e9), drift=0.3).verdict is Verdict.REGRESSED
        assert pair_of(count(1.0), count(2.0), 0.0, drift=0.3).verdict is Verdict.REGRESSED
        assert pair_of(*sampled_bytes, drift=0.3).verdict is Verdict.REGRESSED

    @pytest.mark.parametrize(
        ("device", "policy", "verdict"),
        [
            ("cpu", Policy(), Verdict.INCONCLUSIVE),
            ("cuda", Policy(), Verdict.REGRESSED),
            ("cpu", Policy(drift=0.0), Verdict.REGRESSED),
            ("cuda", Policy(drift=0.5), Verdict.INCONCLUSIVE),
        ],
    )
    def test_is_the_devices_unless_the_policy_says_otherwise(self, device, policy, verdict):
        base, head = (
            results(result(metric(sampled(at))), identity={"device": device}) for at in (1.0, 1.13)
        )

        assert judged(head, base, policy=policy).cases[0].verdict is verdict


def test_what_a_tool_calls_a_metric_is_read_unless_the_metric_is_declared() -> None:
    own = replace(metric(sampled(1.0), name="test_sort_10_wdueft"), title="test_sort[10]")
    declared = replace(metric(sampled(1.0), name="step_time"), title="peak memory")
    plain = metric(sampled(1.0), name="other")
    (case,) = judged(
        results(result(own, declared, plain)), results(result(own, declared, plain))
    ).cases
    assert {pair.metric: pair.title for pair in case.pairs} == {
        "test_sort_10_wdueft": "test_sort[10]", "step_time": "step time", "other": "other",
    }  # fmt: skip
