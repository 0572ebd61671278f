"""Paired runs: every verdict by a planted defect, and the same without it clean; who gates, what is known, what is said."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import launches, metric, peak, result, results
from paired_builders import NOW, calibrated, device_clock, paired, pairs_of, rated, simulate

from ci_bench.errors import BadInput, ExitCode
from ci_bench.judge.times.calibration import learned
from ci_bench.judge.times.metrics import in_turns
from ci_bench.judge.times.noise import Learned
from ci_bench.judge.times.paired import _of_contrasts, figures, judge_turns, turns_of
from ci_bench.judge.times.pairing import lines_of_both
from ci_bench.judge.times.sequential import SequentialRule, adaptive, fixed, replay
from ci_bench.records.comparison import BaselineMode, Verdict
from ci_bench.records.config import MetricPolicy, Policy, Severity
from ci_bench.records.config import Rule as PolicyRule
from ci_bench.records.results import Better, Due, Lane, Launch, Status, Unit

STEP = "step_time"
ONE = {(2, STEP, "inductor"): 1.05}
FINE = Policy(default_threshold=0.01)


@pytest.fixture(scope="module")
def calibration():
    return calibrated()


def verdicts(comparison, metric=None):
    return {
        key: pair.verdict for key, pair in pairs_of(comparison).items() if metric in {None, key[1]}
    }


def only(comparison, verdict):
    return [key for key, of in verdicts(comparison).items() if of is verdict]


class TestVerdicts:
    @pytest.mark.parametrize("cold", [False, True])
    def test_unchanged_code_stays_clean(self, calibration, cold):
        comparison = paired(*simulate(1, launches=16), calibration=None if cold else calibration)

        assert set(verdicts(comparison).values()) == {Verdict.UNCHANGED}
        assert comparison.judgement.met
        assert comparison.judgement.findings == ()
        assert comparison.mode is BaselineMode.PAIRED

    @pytest.mark.parametrize("cold", [False, True])
    def test_a_planted_slowdown_is_found_where_it_is(self, calibration, cold):
        comparison = paired(
            *simulate(2, launches=16, slower=ONE), calibration=None if cold else calibration
        )

        assert only(comparison, Verdict.REGRESSED) == [(2, STEP, "inductor")]
        assert comparison.judgement.exit_code == ExitCode.POLICY_NOT_MET
        assert comparison.judgement.headline.startswith("Failed: c2: step time ")
        pair = pairs_of(comparison)[2, STEP, "inductor"]
        assert pair.interval.low < 1 / 1.05 < pair.interval.high
        assert pair.calibrated is not cold

    def test_a_planted_improvement_is_told_and_fails_nothing(self, calibration):
        comparison = paired(*simulate(3, slower={(1, STEP, None): 0.95}), calibration=calibration)

        assert only(comparison, Verdict.IMPROVED) == [(1, STEP, "eager"), (1, STEP, "inductor")]
        assert comparison.judgement.met

    def test_too_much_noise_is_inconclusive(self, calibration):
        comparison = paired(*simulate(4, noise=8.0, launches=4), calibration=calibration)

        assert Verdict.INCONCLUSIVE in set(verdicts(comparison, STEP).values())
        assert Verdict.REGRESSED not in set(verdicts(comparison).values())
        assert comparison.pairing.inflation > 4

    def test_a_slowdown_of_everything_is_found(self, calibration):
        comparison = paired(
            *simulate(5, slower={(None, STEP, None): 1.05}, launches=8), calibration=calibration
        )

        assert len(only(comparison, Verdict.REGRESSED)) >= 11
        assert comparison.pairing.mean.interval.high < 1 / 1.04

    def test_other_software_on_one_side_is_incomparable(self, calibration):
        base, head = simulate(6)
        other = replace(
            base, environment=replace(base.environment, identity={"gpu": "H200", "torch": "2.12"})
        )
        comparison = paired(other, head, calibration=calibration)

        assert set(verdicts(comparison).values()) == {Verdict.INCOMPARABLE}
        assert comparison.judgement.exit_code == ExitCode.INCOMPARABLE
        assert comparison.pairing.gating == 0

    def test_a_metric_that_head_lost_is_removed(self, calibration):
        base, head = simulate(7)
        lost = result(
            *(one for one in head.cases[0].metrics if one.name != STEP),
            id="s/c0",
            arms=("eager", "inductor"),
        )
        comparison = paired(
            base, replace(head, cases=(lost, *head.cases[1:])), calibration=calibration
        )

        assert only(comparison, Verdict.REMOVED) == [(0, STEP, "eager"), (0, STEP, "inductor")]
        assert not comparison.judgement.met

    def test_what_is_owed_and_was_not_measured_fails(self, calibration):
        base, head = simulate(8)
        owing = replace(
            head.cases[0], case=replace(head.cases[0].case, due=Due(times=("query_time",)))
        )
        comparison = paired(
            base, replace(head, cases=(owing, *head.cases[1:])), calibration=calibration
        )

        assert only(comparison, Verdict.FAILED) == [
            (0, "query_time", "eager"),
            (0, "query_time", "inductor"),
        ]

    def test_a_side_that_failed_leaves_nothing_to_compare_with(self, calibration):
        base, head = simulate(9)
        broken = replace(
            base, cases=(replace(base.cases[0], status=Status.CRASHED), *base.cases[1:])
        )
        comparison = paired(broken, head, calibration=calibration)

        assert comparison.cases[0].verdict is Verdict.NEW
        assert comparison.pairing.gating == 5 * 3

    def test_a_run_without_a_base_says_so(self):
        _, head = simulate(10)
        comparison = paired(None, head)

        assert not comparison.judgement.met
        assert [f.rule for f in comparison.judgement.findings] == [PolicyRule.BASELINE_MISSING]


class TestWhatCanFail:
    def test_a_detail_never_fails(self, calibration):
        base, head = simulate(11, slower=ONE)
        named = [
            replace(
                side,
                cases=tuple(replace(c, case=replace(c.case, details=(STEP,))) for c in side.cases),
            )
            for side in (base, head)
        ]
        comparison = paired(*named, calibration=calibration)

        assert only(comparison, Verdict.REGRESSED) == [(2, STEP, "inductor")]
        assert pairs_of(comparison)[2, STEP, "inductor"].detail
        assert comparison.judgement.met
        assert comparison.pairing.gating == 6

    def test_head_cannot_take_a_metric_out_of_the_gate(self, calibration):
        base, head = simulate(11, slower=ONE)
        sly = tuple(replace(case, case=replace(case.case, details=(STEP,))) for case in head.cases)

        assert not paired(base, replace(head, cases=sly), calibration=calibration).judgement.met

    def test_the_devices_clock_never_fails_and_takes_no_share_of_alpha(self, calibration):
        plain = paired(*simulate(12, slower=ONE), calibration=calibration)
        both = paired(*simulate(12, slower=ONE, extra=device_clock), calibration=calibration)

        assert both.pairing.gating == plain.pairing.gating == 18
        assert pairs_of(both)[2, "device_time", "inductor"].detail
        assert len(both.judgement.findings) == len(plain.judgement.findings) == 1

    def test_what_is_owed_gates_by_whichever_clock(self, calibration):
        base, head = simulate(12, slower=ONE, extra=device_clock)
        owing = [
            replace(
                side,
                cases=tuple(
                    replace(c, case=replace(c.case, due=Due(times=("device_time",))))
                    for c in side.cases
                ),
            )
            for side in (base, head)
        ]

        assert paired(*owing, calibration=calibration).pairing.gating == 30

    def test_more_gates_ask_for_more_evidence(self, calibration):
        """What one case alone would fail by, many cases don't: the chance of a false alarm is shared out."""
        few = paired(
            *simulate(13, cases=1, launches=2, slower={(0, STEP, None): 1.03}, singles=False),
            calibration=calibration,
        )
        many = paired(
            *simulate(13, cases=40, launches=2, slower={(0, STEP, None): 1.03}, singles=False),
            calibration=calibration,
        )

        assert (
            pairs_of(few)[0, STEP, "eager"].resolvable < pairs_of(many)[0, STEP, "eager"].resolvable
        )

    def test_a_time_that_gates_alone_has_all_of_alpha(self, calibration):
        base, head = simulate(13, cases=1, launches=2, arms=("eager",), extra=device_clock)
        pair = pairs_of(paired(base, head, calibration=calibration))[0, STEP, "eager"]
        (before, *_), (after, *_) = (side.cases[0].metrics for side in (base, head))
        found, history = (
            figures([(before, after)], most=16),
            learned(calibration, [("s/c0", STEP, "eager")], now=NOW),
        )
        alone = replay(found.d, found.within, history, SequentialRule(gating=1))

        assert pair.resolvable == pytest.approx(math.expm1(alone.resolvable[0]))
        assert (pair.interval.low, pair.interval.high) == pytest.approx(
            (math.exp(-alone.high[0]), math.exp(-alone.low[0]))
        )

    def test_latencies_of_compilation_are_judged_too(self, calibration):
        slower = {(4, "compile_warm", "inductor"): 2.0}
        comparison = paired(*simulate(14, launches=8, slower=slower), calibration=calibration)

        assert only(comparison, Verdict.REGRESSED) == [(4, "compile_warm", "inductor")]
        assert pairs_of(comparison)[4, "compile_warm", "inductor"].threshold == 0.2

    def test_rates_turn_around(self, calibration):
        slow = paired(*simulate(15, launches=8, slower=ONE, extra=rated))

        assert only(slow, Verdict.REGRESSED) == [(2, "rate", "inductor")]
        assert pairs_of(slow)[2, "rate", "inductor"].speedup == pytest.approx(1 / 1.05, rel=0.02)
        assert "lower" in pairs_of(slow)[2, "rate", "inductor"].reason

    def test_memory_and_counts_are_exact_as_ever(self, calibration):
        base, head = simulate(16)
        grown = [
            replace(
                side,
                cases=(
                    replace(side.cases[0], metrics=(*side.cases[0].metrics, peak(size, size))),
                    *side.cases[1:],
                ),
            )
            for side, size in ((base, 1e9), (head, 2e9))
        ]
        comparison = paired(*grown, calibration=calibration)

        assert only(comparison, Verdict.REGRESSED) == [(0, "peak_allocated", "eager")]
        assert comparison.pairing.gating == 18

    def test_inconclusive_fails_where_the_policy_says_so(self, calibration):
        documents = simulate(4, noise=8.0)
        strict = Policy(severities={PolicyRule.INCONCLUSIVE: Severity.FAIL})

        assert paired(*documents, calibration=calibration).judgement.met
        assert not paired(*documents, calibration=calibration, policy=strict).judgement.met


class TestThresholds:
    def test_a_smaller_change_does_not_count_however_certain(self, calibration):
        documents = simulate(17, launches=16, slower=ONE)

        assert paired(*documents, policy=Policy(thresholds={STEP: 0.06})).judgement.met
        assert not paired(*documents, policy=Policy(thresholds={STEP: 0.03})).judgement.met

    def test_unchanged_is_certainly_less_than_twice_the_threshold(self, calibration):
        pair = pairs_of(paired(*simulate(18, launches=16), calibration=calibration))[
            0, STEP, "eager"
        ]

        assert pair.verdict is Verdict.UNCHANGED
        assert pair.threshold == 0.02
        assert pair.reason.endswith("certainly less than 4 %")
        assert 1 / 1.04 < pair.interval.low < pair.interval.high < 1.04

    def test_a_threshold_of_nothing_can_still_be_met(self):
        """No change is certain to be none, so unchanged is what lies within 0.2 %."""
        still = Launch(
            launch=0, values=(0.02, 0.0200001) * 10, blocks=tuple(np.repeat(range(10), 2).tolist())
        )
        same = metric(tuple(replace(still, launch=number) for number in range(16)))
        document = results(*(result(same, id=f"s/c{i}") for i in range(4)))

        assert set(
            verdicts(paired(document, document, policy=Policy(thresholds={STEP: 0.0}))).values()
        ) == {Verdict.UNCHANGED}

    def test_each_metric_has_its_own(self, calibration):
        slower = {(0, STEP, "eager"): 1.08, (0, "compile_warm", "inductor"): 1.08}
        comparison = paired(*simulate(19, launches=16, slower=slower), calibration=calibration)

        assert only(comparison, Verdict.REGRESSED) == [(0, STEP, "eager")]


class TestWhatIsSaid:
    def test_a_regression_names_effect_interval_and_launches(self, calibration):
        pair = pairs_of(paired(*simulate(2, launches=16, slower=ONE), calibration=calibration))[
            2, STEP, "inductor"
        ]

        assert "% slower (speedup 0.9" in pair.reason
        assert "95 % interval" in pair.reason
        assert pair.reason.endswith(" launches), beyond the threshold of 2 %")

    def test_inconclusive_says_what_could_be_told_and_what_it_would_take(self, calibration):
        comparison = paired(
            *simulate(20, noise=2.0, launches=2), calibration=calibration, policy=FINE
        )
        reasons = [
            pair.reason
            for pair in pairs_of(comparison).values()
            if pair.verdict is Verdict.INCONCLUSIVE
        ]

        assert any(
            "; only changes above " in reason and " would take about " in reason
            for reason in reasons
        )
        assert any(
            re.search(r"; 2 % \(twice the threshold\) would take about \d+ launches$", reason)
            for reason in reasons
        )

    def test_the_first_launches_of_an_unknown_machine_say_what_is_missing(self):
        pair = pairs_of(paired(*simulate(21, launches=2, slower={(0, STEP, "eager"): 1.1})))[
            0, STEP, "eager"
        ]

        assert pair.verdict is Verdict.INCONCLUSIVE
        assert pair.interval is None
        assert pair.speedup is not None
        assert "without a calibration of this machine a verdict takes 5 launches" in pair.reason

    def test_no_launch_in_common(self):
        base, head = (
            results(result(metric((Launch(launch=n, values=(1.0, 1.1)),)))) for n in (0, 1)
        )
        comparison = paired(base, head)
        pair = comparison.cases[0].pairs[0]

        assert (pair.verdict, pair.speedup, comparison.pairing.launches) == (
            Verdict.INCONCLUSIVE,
            None,
            0,
        )
        assert pair.reason == "base and head have no launch in common: measure again"

    def test_what_launches_of_a_run_share_may_put_a_change_out_of_reach(self):
        rng = np.random.default_rng(1)
        known = calibrated(runs=12, launches=3)
        shared = {name: 0.03 * rng.standard_normal() for name in range(12)}
        tied = tuple(
            replace(
                series,
                ratios=tuple(
                    shared[run] + ratio / 10
                    for ratio, run in zip(series.ratios, series.runs, strict=True)
                ),
            )
            for series in known.series
        )
        comparison = paired(
            *simulate(22, launches=8), calibration=replace(known, series=tied), policy=FINE
        )

        assert any(
            "no number of launches would show 2 %" in pair.reason
            for pair in pairs_of(comparison).values()
        )

    def test_an_uncalibrated_time_is_marked_and_a_calibrated_one_tells_its_noise(self, calibration):
        cold, warm = (
            paired(*simulate(23, launches=8)),
            paired(*simulate(23, launches=8), calibration=calibration),
        )

        assert {(pair.calibrated, pair.noise) for pair in pairs_of(cold).values()} == {
            (False, None)
        }
        assert {pair.calibrated for pair in pairs_of(warm).values()} == {True}
        assert 0.002 < pairs_of(warm)[0, STEP, "eager"].noise < 0.012

    def test_a_case_that_the_calibration_has_not_seen_is_cold(self, calibration):
        comparison = paired(*simulate(24, cases=7, launches=8), calibration=calibration)

        assert {key[0] for key, pair in pairs_of(comparison).items() if not pair.calibrated} == {6}

    def test_another_machines_calibration_is_not_used_and_that_is_said(self, calibration):
        foreign = replace(
            calibration, fingerprint="sha256:" + "0" * 64, identity={"gpu": "A100", "torch": "2.13"}
        )
        comparison = paired(*simulate(25), calibration=foreign)

        assert (
            comparison.pairing.calibration
            == "not used, it is of another machine: they differ in gpu"
        )
        assert not any(pair.calibrated for pair in pairs_of(comparison).values())

    def test_old_launches_are_forgotten(self, calibration):
        late = paired(*simulate(26), calibration=calibration, now="2026-12-31T00:00:00Z")

        assert not any(pair.calibrated for pair in pairs_of(late).values())

    def test_q_values_tell_changes_from_the_rest(self, calibration):
        pairs = pairs_of(paired(*simulate(27, launches=16, slower=ONE), calibration=calibration))

        assert pairs[2, STEP, "inductor"].q < 0.001
        assert min(pair.q for key, pair in pairs.items() if key != (2, STEP, "inductor")) > 0.01

    def test_now_must_be_a_moment(self, calibration):
        with pytest.raises(BadInput, match="'yesterday' is not a moment of time"):
            paired(*simulate(28), calibration=calibration, now="yesterday")


class TestWhatIsSeenOverAll:
    def test_the_geometric_mean_is_over_gating_times_in_turns(self, calibration):
        pairing = paired(
            *simulate(29, launches=4, slower={(None, STEP, "eager"): 1.04}), calibration=calibration
        ).pairing

        assert (pairing.mean.metrics, pairing.mean.launches) == (12, 4)
        assert pairing.mean.interval.low < 1.04**-0.5 < pairing.mean.interval.high
        assert pairing.mean.speedup == pytest.approx(1.04**-0.5, rel=0.005)

    def test_the_mean_of_unchanged_code_is_no_change(self, calibration):
        mean = paired(*simulate(30, launches=4), calibration=calibration).pairing.mean

        assert mean.interval.low < 1 < mean.interval.high

    def test_a_speedup_that_head_lost_is_told_and_fails_nothing_by_itself(self, calibration):
        faster_reference = {(3, STEP, "eager"): 0.94}
        comparison = paired(
            *simulate(31, launches=8, slower=faster_reference), calibration=calibration
        )
        changes = {
            case.id: found.change
            for case in comparison.cases
            for found in case.speedups
            if found.metric == STEP
        }

        assert changes["s/c3"].verdict is Verdict.REGRESSED
        assert changes["s/c3"].ratio == pytest.approx(0.94, rel=0.01)
        assert changes["s/c3"].interval.low < 0.94 < changes["s/c3"].interval.high
        assert {change.verdict for name, change in changes.items() if name != "s/c3"} == {
            Verdict.UNCHANGED
        }
        assert comparison.judgement.met

    def test_of_a_changed_speedup_the_noise_of_both_arms_counts_and_the_shorter_history(self):
        known = Learned(
            spread=np.array([0.03, 0.04]),
            freedom=np.array([9.0, 4.0]),
            within=np.full(2, np.nan),
            bound=0.1,
        )
        both = _of_contrasts(known, np.array([0, 1]), np.array([1, 0]))

        assert both.spread == pytest.approx([0.05, 0.05])
        assert (both.freedom.tolist(), both.bound.tolist()) == (
            [4.0, 4.0],
            pytest.approx([0.1 * 2**0.5] * 2),
        )

    def test_what_slows_both_arms_alike_changes_no_speedup(self, calibration):
        comparison = paired(
            *simulate(32, launches=8, slower={(3, STEP, None): 1.06}), calibration=calibration
        )
        (change,) = [found.change for found in comparison.cases[3].speedups if found.metric == STEP]

        assert change.verdict is Verdict.UNCHANGED


class TestTheRule:
    def test_a_fixed_number_of_launches_has_one_look(self, calibration):
        documents = simulate(33, launches=3, slower={(2, STEP, "inductor"): 1.03})
        looks, fixed_looks = (
            paired(*documents, calibration=calibration, rule=rule)
            for rule in (SequentialRule(), fixed(3))
        )
        key = (2, STEP, "inductor")

        assert pairs_of(fixed_looks)[key].verdict is Verdict.REGRESSED
        assert pairs_of(fixed_looks)[key].resolvable < pairs_of(looks)[key].resolvable * 1.05

    def test_launches_beyond_the_decision_change_nothing(self, calibration):
        """The answer from the document is the one that was given on the way."""
        long = simulate(34, launches=16, slower=ONE)
        whole = pairs_of(paired(*long, calibration=calibration))
        pair = whole[2, STEP, "inductor"]
        used = int(pair.reason.rpartition(" launch")[0].rpartition(" ")[2])
        cut = [_first(side, used) for side in long]

        assert used < 16
        again = pairs_of(paired(*cut, calibration=calibration))[2, STEP, "inductor"]
        assert (again.verdict, again.interval) == (pair.verdict, pair.interval)

    def test_fewer_launches_at_most_still_spend_all_of_alpha(self):
        for most in range(1, 20):
            rule = adaptive(most)
            assert rule.looks[-1] == min(most, 16)
            assert sum(rule.alpha_shares) == pytest.approx(1.0)
            assert rule.cold_launches <= max(2, rule.looks[-1])

    def test_of_a_hundred_runs_without_a_change_hardly_one_is_red(self, calibration):
        red = sum(
            not paired(*simulate(seed, cases=3, launches=6), calibration=calibration).judgement.met
            for seed in range(100)
        )

        assert red <= 1

    def test_a_planted_five_per_cent_is_nearly_always_found(self, calibration):
        found = sum(
            not paired(
                *simulate(seed, cases=3, launches=8, slower=ONE), calibration=calibration
            ).judgement.met
            for seed in range(200, 240)
        )

        assert found >= 38


def _first(side, number):
    def cut(one):
        return replace(one, launches=one.launches[:number])

    return replace(
        side,
        cases=tuple(replace(case, metrics=tuple(map(cut, case.metrics))) for case in side.cases),
    )


values = st.floats(allow_nan=True, allow_infinity=True)
numbers = st.lists(st.integers(-1, 20), max_size=4, unique=True)
groups = st.lists(st.lists(values | st.floats(1e-3, 1e3), max_size=4), max_size=4)


@st.composite
def any_metric(draw, unit, better):
    series = tuple(
        Launch(
            launch=number,
            values=tuple(group),
            blocks=tuple(
                draw(st.lists(st.integers(0, 2), min_size=len(group), max_size=len(group)))
            ),
        )
        for number, group in zip(draw(numbers), draw(groups), strict=False)
    )
    return metric(series, unit=unit, better=better)


@settings(max_examples=120, deadline=None)
@given(
    data=st.data(),
    unit=st.sampled_from([Unit.SECONDS, Unit.PER_SECOND]),
    better=st.sampled_from(list(Better)),
)
def test_garbage_never_crashes_nor_leaves_a_figure_that_is_no_number(data, unit, better):
    sides = [
        results(*(result(data.draw(any_metric(unit, better)), id=f"s/c{i}") for i in range(3)))
        for _ in range(2)
    ]
    comparison = paired(*sides, rule=data.draw(st.sampled_from([SequentialRule(), fixed(2)])))
    for pair in pairs_of(comparison).values():
        figures = [
            pair.speedup,
            pair.noise,
            pair.resolvable,
            pair.q,
            *((pair.interval.low, pair.interval.high) if pair.interval else ()),
        ]
        assert all(figure is None or math.isfinite(figure) for figure in figures)
        assert pair.reason


@pytest.mark.parametrize("rule", [SequentialRule(), fixed(1)])
def test_one_launch_never_decides_but_what_no_noise_explains_is_suspected(rule):
    quick, slow = (results(result(metric(launches([x] * 6)))) for x in (1.0, 50.0))

    def word(base, head):
        return paired(base, head, rule=rule, now=NOW).cases[0].pairs[0].verdict

    assert word(quick, slow) is Verdict.SUSPECTED
    assert word(slow, quick) is word(quick, quick) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("better", list(Better))
def test_the_figures_of_both_sides_are_means_over_the_launches_that_were_judged(better):
    """Geometric means of the sides' levels; what they are to each other is the speedup."""
    levels = (1.0, 1.1, 1.21)
    base, head = (
        results(
            result(
                metric(
                    launches(*([level * factor] * 8 for level in levels)),
                    better=better,
                    name="rate",
                    unit=Unit.SECONDS,
                )
            )
        )
        for factor in (1.0, 1.02)
    )
    ((pair,),) = (case.pairs for case in paired(base, head, policy=FINE).cases)
    assert pair.base.estimate == pytest.approx(1.1)
    assert pair.head.estimate == pytest.approx(1.1 * 1.02)
    assert pair.speedup == pytest.approx(1 / 1.02 if better is Better.LOWER else 1.02)


def test_the_device_of_each_launch_lies_in_its_column():
    one = metric(launches([1.0, 1.1], [1.0, 1.2], [1.0, 1.0]))
    for most, expected in ((4, [[2, -1, 1, -1]]), (2, [[2, -1]])):
        assert (
            figures([(one, one)], most=most, slots=[{0: 2, 2: 1, 7: 5}]).slots.tolist() == expected
        )
    assert figures([(one, one)], most=4).slots is None


@pytest.mark.parametrize(
    "places",
    [{}, {0: 0, 1: 1, 2: 0}, {0: 0, 1: 0, 2: 0}, {0: 0, 1: 1, 2: 2}],
    ids=["-", "2", "1", "3"],
)
def test_a_pairing_says_on_how_many_devices_it_stands(places):
    base, head = simulate(1, launches=3)
    lines = lines_of_both(*in_turns(base, head), lambda *_: MetricPolicy(threshold=0.05))
    turns = turns_of(
        lines,
        learned(None, [line.key for line in lines], now=NOW),
        SequentialRule(),
        {"s/c0": places} if places else {},
    )
    assert judge_turns(turns, calibration="").pairing.devices == max(1, len({*places.values()}))


@pytest.mark.parametrize(
    ("shown", "verdicts"), [(0.51, {Verdict.INCONCLUSIVE}), (0.59, {Verdict.REGRESSED})]
)
def test_a_step_of_printed_figures_is_no_change(shown, verdicts):
    """Figures of two digits agree to the bit in all launches; 0.2 % apart, they may be printed 2 % apart."""
    sides = [
        results(result(metric(tuple(Launch(launch=n, values=(value,)) for n in range(8)))))
        for value in (0.50, shown)
    ]
    assert {pair.verdict for pair in paired(*sides).cases[0].pairs} == verdicts


def test_a_device_prints_no_figures():
    """Simulated launches of 0.2 ms are equal to the bit, and no clock of a GPU is that coarse."""
    times = metric(tuple(Launch(launch=n, values=(2e-4,)) for n in range(8)), lane=Lane.DEVICE)
    found = paired(results(result(times)), results(result(times)))
    assert {pair.verdict for pair in found.cases[0].pairs} == {Verdict.UNCHANGED}
