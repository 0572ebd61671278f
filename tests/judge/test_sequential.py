"""The rule by hand, its symmetries, and what must never lead to a verdict."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm as normal
from scipy.stats import t as student

from ci_bench.judge.times import noise, sequential
from ci_bench.judge.times.noise import Learned
from ci_bench.judge.times.sequential import Code, SequentialRule, adaptive, fixed
from ci_bench.records.config import DEFAULT_THRESHOLD

RULE = SequentialRule(tau=math.log(1.01), margin=math.log(1.02))
"""At a threshold of 1 %, which the figures below are worked out for."""

CASES, LAUNCHES = 5, 16


def history(spread=0.005, freedom=6.0, within=0.01, cases=1):
    return Learned(
        spread=np.broadcast_to(np.asarray(spread, dtype=float), cases),
        freedom=np.broadcast_to(np.asarray(freedom, dtype=float), cases),
        within=np.broadcast_to(np.asarray(within, dtype=float), cases),
    )


def rule_on(d, learned=None, rule=RULE, within=0.01):
    d = np.atleast_2d(np.asarray(d, dtype=float))
    return sequential.replay(d, np.full(d.shape, within), learned or history(cases=len(d)), rule)


NOT_RUN = st.just(math.nan)
RATIO = st.one_of(st.floats(-0.2, 0.2), NOT_RUN)
RATIOS = arrays(np.float64, (CASES, LAUNCHES), elements=st.floats(-0.2, 0.2))
HOLED = arrays(np.float64, (CASES, LAUNCHES), elements=RATIO)
SPREADS = arrays(np.float64, CASES, elements=st.floats(0.0005, 0.05))


class TestByHand:
    def test_pools_history_with_today(self):
        got = rule_on(
            [0.001, 0.003], rule=replace(RULE, looks=(2,), alpha_shares=(1.0,), patience=99)
        )
        spread = math.sqrt((6 * 0.005**2 + 2 * 0.001**2) / 7)
        assert got.mean == pytest.approx([0.002])
        assert got.freedom == pytest.approx([7])
        assert got.error == pytest.approx([spread / math.sqrt(2)])

    def test_a_long_history_counts_as_six_launches(self):
        one, two = (
            rule_on([0.001, 0.003], history(freedom=freedom), fixed(2)) for freedom in (6.0, 200.0)
        )
        assert (one.error, one.freedom) == (two.error, two.freedom)

    def test_of_no_change_a_history_says_more(self):
        edge = math.log(1.02) - student.ppf(1 - 0.05 * 0.22, 12) * 0.005
        assert [
            rule_on([edge + shift], history(freedom=99.0)).code.item() for shift in (-1e-5, 1e-5)
        ] == [
            Code.UNCHANGED,
            Code.OPEN,
        ]

    def test_the_interval_is_students(self):
        got = rule_on([0.001, 0.003], rule=fixed(2))
        half = student.ppf(0.975, 7) * got.error
        assert got.low == pytest.approx(got.mean - half)
        assert got.high == pytest.approx(got.mean + half)

    @pytest.mark.parametrize(("shift", "code"), [(-1e-5, Code.UNCHANGED), (1e-5, Code.OPEN)])
    def test_unchanged_up_to_the_margin(self, shift, code):
        edge = math.log(1.02) - student.ppf(1 - 0.05 * 0.22, 6) * 0.005
        assert rule_on([edge + shift]).code == [code]

    @pytest.mark.parametrize(("shift", "code"), [(-1e-5, Code.OPEN), (1e-5, Code.REGRESSED)])
    def test_regressed_beyond_the_quantile_of_its_share(self, shift, code):
        spread = math.sqrt(6 * 0.005**2 / 7)  # two equal launches add no deviations
        edge = student.ppf(1 - 0.01 * 0.01, 7) * spread / math.sqrt(2)
        assert rule_on([edge + shift] * 2, rule=replace(RULE, recurrence=0.99)).code == [code]

    @pytest.mark.parametrize(("shift", "code"), [(-1e-5, Code.OPEN), (1e-5, Code.REGRESSED)])
    def test_regressed_where_the_change_recurs_without_the_most_extreme(self, shift, code):
        spread = math.sqrt(6 * 0.005**2 / 7)
        edge = student.ppf(0.9995, 7) * spread
        assert rule_on([edge + shift] * 2).code == [code]

    def test_a_change_below_tau_is_never_flagged(self):
        quiet = history(spread=1e-5)
        assert rule_on([0.0099] * 4, quiet).code == [Code.UNCHANGED]
        assert rule_on([0.0199] * 4, quiet).code == [Code.REGRESSED]

    def test_the_default_is_the_policys(self):
        assert (SequentialRule().tau, SequentialRule().margin) == (
            math.log1p(DEFAULT_THRESHOLD),
            math.log1p(2 * DEFAULT_THRESHOLD),
        )

    @pytest.mark.parametrize(
        ("times", "code"), [(1.0, Code.UNCHANGED), (1.0 + 1e-12, Code.REGRESSED)]
    )
    def test_what_is_flagged_is_beyond_tau(self, times, code):
        assert rule_on(
            [times * RULE.tau] * 4,
            history(spread=1e-5),
            replace(fixed(4), tau=RULE.tau, margin=RULE.margin),
        ).code == [code]

    def test_the_guard_widens_what_was_learned(self):
        got = rule_on([0.001], within=0.03)
        assert got.inflation == pytest.approx([3.0])
        assert got.error == pytest.approx([0.015])

    def test_resolvable_and_needed(self):
        got = rule_on([0.05, -0.05, 0.05, -0.05, 0.05, -0.05], rule=replace(RULE, patience=99))
        reach = (
            (student.ppf(1 - 0.01 * 0.4, float(got.freedom[0])) + 1.2815515655)
            * float(got.error[0])
            * math.sqrt(6)
        )
        assert got.resolvable == pytest.approx([reach / math.sqrt(6)])
        assert got.needed == pytest.approx([math.ceil((reach / math.log(1.02)) ** 2)])

    def test_more_gating_cases_ask_for_more(self):
        edge = 0.028
        assert rule_on([edge] * 2).code == [Code.REGRESSED]
        assert rule_on([edge] * 2, rule=replace(RULE, gating=50)).code == [Code.OPEN]


class TestEachCaseItsOwn:
    """A threshold and a margin for each case."""

    D = np.array([[0.03] * 4, [0.03] * 4, [0.002] * 4, [0.002] * 4])
    TAU = np.log1p([0.01, 0.05, 0.01, 0.0001])

    def test_by_hand(self):
        got = rule_on(
            self.D,
            history(spread=0.0005, cases=4),
            replace(RULE, tau=self.TAU, margin=np.log1p([0.02, 0.1, 0.02, 0.0002])),
        )
        assert got.code.tolist() == [Code.REGRESSED, Code.UNCHANGED, Code.UNCHANGED, Code.REGRESSED]
        assert got.resolvable[1] == pytest.approx(self.TAU[1])

    @given(HOLED, SPREADS, arrays(np.float64, CASES, elements=st.floats(0.001, 0.1)))
    @settings(deadline=None)
    def test_is_as_if_each_were_judged_by_its_own_rule(self, d, spreads, taus):
        together = rule_on(
            d,
            history(spread=spreads, cases=CASES),
            replace(RULE, tau=taus, margin=2 * taus),
            within=np.nan,
        )
        for case in range(CASES):
            rule = replace(RULE, tau=float(taus[case]), margin=float(2 * taus[case]))
            alone = rule_on(d, history(spread=spreads, cases=CASES), rule, within=np.nan)
            if together.inflation[case] == alone.inflation[case]:
                assert (
                    together.code[case] == alone.code[case]
                    or together.launches[case] != alone.launches[case]
                )

    @given(HOLED, SPREADS)
    @settings(deadline=None)
    def test_one_figure_is_the_same_for_all(self, d, spreads):
        learned = history(spread=spreads, cases=CASES)
        one = rule_on(d, learned, replace(RULE, tau=0.02, margin=0.04))
        each = rule_on(
            d, learned, replace(RULE, tau=np.full(CASES, 0.02), margin=np.full(CASES, 0.04))
        )
        for field in fields(one):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(each, field.name))

    def test_runs_may_lead(self):
        d = np.stack([self.D, self.D])
        rule = replace(RULE, tau=self.TAU, margin=np.log1p([0.02, 0.1, 0.02, 0.0002]))
        learned = Learned(
            spread=np.full((2, 4), 0.0005),
            freedom=np.full((2, 4), 20.0),
            within=np.full((2, 4), np.nan),
        )
        got = sequential.replay(d, np.full(d.shape, np.nan), learned, rule)
        assert (
            got.code.tolist()
            == [[Code.REGRESSED, Code.UNCHANGED, Code.UNCHANGED, Code.REGRESSED]] * 2
        )


class TestResolvable:
    def test_by_hand(self):
        got = sequential.resolvable(history(), 3, RULE)
        reach = student.ppf(1 - 0.01 * 0.4, 8) + 1.2815515655
        assert got == pytest.approx([reach * 0.005 / math.sqrt(3)])

    def test_what_launches_of_a_run_share_does_not_shrink(self):
        got = sequential.resolvable(replace(history(), bound=0.005 * math.sqrt(0.3)), 3, RULE)
        reach = student.ppf(1 - 0.01 * 0.4, 8) + 1.2815515655
        assert got == pytest.approx([reach * 0.005 * math.sqrt(0.7 / 3 + 0.3)])

    def test_of_what_was_never_measured_is_unknown(self):
        assert np.isnan(sequential.resolvable(history(freedom=3.0), 3, RULE)).all()
        assert np.isnan(sequential.resolvable(history(freedom=3.999), 3, RULE)).all()
        assert np.isfinite(sequential.resolvable(history(freedom=4.0), 3, RULE)).all()

    def test_never_less_than_what_is_flagged(self):
        assert sequential.resolvable(history(spread=1e-5), 3, RULE) == pytest.approx([RULE.tau])


class TestRules:
    def test_one_launch_says_nothing_of_noise(self):
        for wrong in ({"cold_launches": 1}, {"cold_unchanged": 1}):
            with pytest.raises(
                ValueError, match="cold_launches and cold_unchanged must be at least 2"
            ):
                SequentialRule(**wrong)
        assert fixed(1).cold_launches == adaptive(1).cold_launches == 2

    @pytest.mark.parametrize(
        "looks",
        [
            (1, 2, 3, 4, 6, 8, 12, 16),
            (1, 2, 3, 4, 6, 8),
            (2, 3, 5),
            (1, 2, 4, 6, 9, 12, 14, 16),
            (7,),
        ],
    )
    def test_the_margin_is_crossed_by_chance_at_any_look_in_at_most_beta(self, looks):
        rule = replace(RULE, looks=looks, alpha_shares=(1 / len(looks),) * len(looks))
        walk = np.cumsum(np.random.default_rng(1).standard_normal((100_000, 16)), axis=1)
        means = walk[:, np.array(looks) - 1] / np.sqrt(looks)
        crossed = (means > normal.isf(rule.beta_of_a_look)).any(axis=1).mean()
        assert 0.6 * rule.beta < crossed < rule.beta + 0.0015

    @pytest.mark.parametrize("most", [1, 2, 3, 5, 8, 15, 16, 40])
    def test_fewer_looks_share_all_of_alpha(self, most):
        rule = adaptive(most)
        assert rule.looks[-1] == min(most, 16)
        assert math.fsum(rule.alpha_shares) == pytest.approx(1.0)
        assert adaptive(16) == SequentialRule()


class TestWhatLaunchesOfARunShare:
    def test_is_not_averaged_away(self):
        got = rule_on([0.001, 0.003], replace(history(), bound=0.003), fixed(2))
        within = (6 * (0.005**2 - 0.003**2) + 2 * 0.001**2) / 7
        assert got.error == pytest.approx([math.sqrt(within / 2 + 0.003**2)])

    def test_is_the_same_for_a_case_that_looks_quieter(self):
        got = rule_on([0.001, 0.003], replace(history(), bound=0.02), fixed(2))
        within = (6 * 0.1 * 0.005**2 + 2 * 0.001**2) / 7
        assert got.error == pytest.approx([math.sqrt(within / 2 + 0.02**2)])

    def test_makes_some_changes_unresolvable(self):
        d = [0.001, -0.001, 0.0, 0.0]
        quiet, bound = rule_on(d), rule_on(d, replace(history(spread=0.02), bound=0.014))
        assert np.isfinite(quiet.needed)
        assert np.isinf(bound.needed)

    @given(RATIOS, SPREADS, st.floats(0.0, 0.02))
    @example(
        np.full((CASES, 1), 0.01), np.full(CASES, 0.0039), 0.003
    )  # suspicious by itself, and unchanged with a larger error
    @settings(deadline=None)
    def test_never_adds_a_verdict_of_change_at_the_first_such_look(self, d, spreads, bound):
        rule = replace(RULE, looks=(2,), alpha_shares=(1.0,))
        pairs = np.repeat(d[:, :1], 2, axis=1)  # equal launches: the deviations say nothing
        free = rule_on(pairs, history(spread=spreads, cases=CASES), rule)
        tied = rule_on(pairs, replace(history(spread=spreads, cases=CASES), bound=bound), rule)
        assert np.isin(tied.code[free.code == Code.OPEN], (Code.OPEN, Code.UNCHANGED)).all()


class TestRecurrence:
    def test_one_launch_never_flags(self):
        assert rule_on([1.0]).code == [Code.OPEN]

    def test_a_single_accident_does_not_flag(self):
        rule = replace(RULE, looks=(4,), alpha_shares=(1.0,))
        assert rule_on([0.0, 0.0, 0.0, 0.5], history(freedom=1000.0), rule).code == [Code.OPEN]
        assert rule_on([0.005, 0.005, 0.005, 0.5], history(freedom=1000.0), rule).code == [
            Code.OPEN
        ]
        assert rule_on([0.12, 0.1, 0.1, 0.1], history(freedom=1000.0), rule).code == [
            Code.REGRESSED
        ]


class TestHistoriesThatTodayContradicts:
    """A few cases are noisier today, and the samples inside their launches do not show it."""

    AGREE = (0.05, 0.0502)

    def codes(self, wild):
        d = np.full((12, 2), 0.0)
        d[0], d[1 : 1 + wild] = self.AGREE, (0.04, -0.04)
        return rule_on(d, history(cases=12), fixed(2)).code[0]

    def test_one_such_case_is_by_itself(self):
        assert self.codes(0) == self.codes(1) == Code.REGRESSED

    def test_several_make_the_others_less_believed(self):
        assert self.codes(3) == Code.OPEN

    def test_a_case_that_contradicts_its_history_is_judged_by_its_launches(self):
        got = rule_on([0.04, -0.04], history(freedom=99.0), fixed(2))
        assert got.freedom == pytest.approx([2.0])
        assert got.error == pytest.approx([math.sqrt((0.005**2 + 2 * 0.04**2) / 2 / 2)])


class TestGoingOn:
    def test_a_decided_case_needs_no_more(self):
        got = rule_on([[0.0] + [math.nan] * 3, [0.012] + [math.nan] * 3])
        assert got.code.tolist() == [Code.UNCHANGED, Code.OPEN]
        assert got.next_look.tolist() == [0, 2]

    def test_launches_after_the_decision_do_not_count(self):
        got = rule_on([0.0, 9.0, 9.0, 9.0])
        assert got.code == [Code.UNCHANGED]
        assert got.launches == [1]

    def test_hopeless_cases_give_up_early(self):
        noisy = history(spread=0.1)
        assert rule_on([0.01, -0.01, 0.01], noisy).next_look == [4]
        assert rule_on([0.01, -0.01, 0.01, -0.01], noisy).next_look == [0]

    def test_suspects_go_on_beyond_the_regular_looks(self):
        noisy = history(spread=0.03)
        assert rule_on([0.027, 0.023] * 4, noisy).next_look == [12]
        assert rule_on([0.023, 0.021] * 3, noisy).next_look == [8], (
            "suspect enough for a regular look"
        )
        assert rule_on([0.018, 0.016] * 4, noisy).next_look == [0], (
            "too little suspect for a late one"
        )

    def test_a_slow_noisy_case_is_found_late(self):
        got = rule_on([0.03, 0.026] * 8, history(spread=0.03))
        assert got.code == [Code.REGRESSED]
        assert got.launches == [12]

    def test_nothing_measured_yet_waits_for_the_first_look(self):
        got = rule_on(np.empty((2, 0)))
        assert got.next_look.tolist() == [1, 1]
        assert np.isnan(got.mean).all()

    @given(RATIOS, SPREADS)
    @settings(max_examples=50, deadline=None)
    def test_live_and_replayed_answers_agree(self, d, spreads):
        learned = history(spread=spreads, cases=CASES)
        measured = np.full_like(d, np.nan)
        got = sequential.replay(measured, np.full(d.shape, 0.01), learned, RULE)
        while got.next_look.any():
            for case, look in enumerate(got.next_look):
                measured[case, :look] = d[case, :look]
            before, got = got, sequential.replay(measured, np.full(d.shape, 0.01), learned, RULE)
            decided = before.code != Code.OPEN
            assert (got.code[decided] == before.code[decided]).all()
        whole = sequential.replay(d, np.full(d.shape, 0.01), learned, RULE)
        np.testing.assert_array_equal(whole.code, got.code)
        np.testing.assert_array_equal(whole.launches, got.launches)
        np.testing.assert_array_equal(whole.low, got.low)


class TestSymmetries:
    @given(HOLED, SPREADS)
    @settings(deadline=None)
    def test_swapping_the_sides_swaps_the_verdicts(self, d, spreads):
        learned = history(spread=spreads, cases=CASES)
        one, other = rule_on(d, learned), rule_on(-d, learned)
        mirrored = np.where(one.code == Code.UNCHANGED, Code.UNCHANGED, -one.code)
        np.testing.assert_array_equal(other.code, mirrored)
        np.testing.assert_allclose(other.low, -one.high)

    @given(HOLED, SPREADS, st.permutations(range(CASES)))
    @settings(deadline=None)
    def test_the_order_of_cases_does_not_matter(self, d, spreads, order):
        one = rule_on(d, history(spread=spreads, cases=CASES))
        other = rule_on(d[order], history(spread=spreads[order], cases=CASES))
        np.testing.assert_array_equal(other.code, one.code[order])
        np.testing.assert_array_equal(other.launches, one.launches[order])

    @given(RATIOS, SPREADS, st.sampled_from([0.25, 0.5, 2.0]))
    @settings(deadline=None)
    def test_all_scaled_alike_decides_alike(self, d, spreads, factor):
        one = rule_on(d, history(spread=spreads, cases=CASES))
        scaled = replace(RULE, tau=factor * RULE.tau, margin=factor * RULE.margin)
        other = rule_on(factor * d, history(spread=factor * spreads, cases=CASES), scaled)
        np.testing.assert_array_equal(other.code, one.code)

    @given(arrays(np.float64, (3, CASES, LAUNCHES), elements=RATIO), SPREADS)
    @settings(max_examples=30, deadline=None)
    def test_runs_side_by_side_are_judged_apart(self, d, spreads):
        learned = history(spread=spreads, cases=CASES)
        names = ("spread", "freedom", "within")
        stacked = Learned(**{name: np.stack([getattr(learned, name)] * 3) for name in names})
        together = sequential.replay(d, np.full(d.shape, 0.01), stacked, RULE)
        for run in range(3):
            np.testing.assert_array_equal(together.code[run], rule_on(d[run], learned).code)


class TestMoreNoise:
    @given(RATIOS, SPREADS, st.floats(1.0, 5.0), st.sampled_from(RULE.looks))
    @settings(deadline=None)
    def test_never_makes_a_change_of_what_is_open_at_the_same_look(self, d, spreads, factor, look):
        rule = fixed(look)
        learned = replace(
            history(spread=spreads, cases=CASES), excursions=0.35
        )  # more than today can show
        calm = rule_on(d, learned, rule)
        noisy = rule_on(d, replace(learned, spread=factor * spreads), rule)
        inside = rule_on(d, learned, rule, within=factor * 0.01)
        changes = {Code.REGRESSED, Code.IMPROVED}
        squares = np.sum((d[:, :look] - d[:, :look].mean(axis=1, keepdims=True)) ** 2, axis=1)
        agrees = squares <= noise.CONFLICT**2 * spreads**2 * (
            look - 1
        )  # else the calm history counts for less
        judged = agrees & (np.sum(~agrees) <= 1)  # several such cases lessen the histories of all
        for more in (noisy, inside):
            assert not changes & set(more.code[(calm.code == Code.OPEN) & judged].tolist())

    @given(RATIOS, SPREADS, st.sampled_from(RULE.looks))
    @settings(deadline=None, max_examples=50)
    def test_contradicting_a_history_never_makes_a_change(self, d, spreads, look):
        learned, rule = history(spread=spreads, cases=CASES, freedom=20.0), fixed(look)
        squares = np.sum((d[:, :look] - d[:, :look].mean(axis=1, keepdims=True)) ** 2, axis=1)
        doubted = rule_on(d, learned, rule, within=math.nan)
        contradicts = squares > 1.01 * (noise.CONFLICT * doubted.inflation * spreads) ** 2 * max(
            look - 1, 1
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(noise, "CONFLICT", math.inf)
            believed = rule_on(d, learned, rule, within=math.nan)
        assert not {Code.REGRESSED, Code.IMPROVED} & set(
            doubted.code[contradicts & (believed.code == Code.OPEN)].tolist()
        )

    @given(RATIOS, SPREADS, st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.sampled_from(RULE.looks))
    @settings(deadline=None, max_examples=50)
    def test_launches_that_stray_never_make_a_change_of_what_is_open(
        self, d, spreads, one, other, look
    ):
        learned = history(spread=spreads, cases=CASES)
        few, many = (
            rule_on(d, replace(learned, excursions=share), fixed(look))
            for share in sorted((one, other))
        )
        assert not {Code.REGRESSED, Code.IMPROVED} & set(many.code[few.code == Code.OPEN].tolist())

    @given(st.floats(-0.2, 0.2), st.floats(0.001, 0.02), st.floats(1.0, 4.0))
    @settings(deadline=None)
    def test_never_narrows_an_interval(self, mean, spread, factor):
        calm, noisy = (rule_on([mean], history(spread=one)) for one in (spread, factor * spread))
        assert noisy.high - noisy.low >= calm.high - calm.low


class TestMalformed:
    @pytest.mark.parametrize(
        "d",
        [
            [[math.nan] * 8],
            [[math.inf] * 8],
            [[-math.inf] * 8],
            [[1e300] * 8],
            [[0.5] + [math.nan] * 7],
            [[math.nan] * 7 + [0.5]],
            [[0.5] + [math.inf] * 7],
        ],
        ids=[
            "nothing",
            "infinite",
            "minus infinite",
            "huge",
            "one launch",
            "one late launch",
            "one and infinities",
        ],
    )
    def test_never_regressed_or_improved(self, d):
        assert rule_on(d).code == [Code.OPEN]

    @pytest.mark.parametrize(("factor", "believed"), [(4e8, True), (6e8, False)])
    def test_a_ratio_beyond_five_hundred_million_is_not_believed(self, factor, believed):
        far = rule_on([math.log(factor), -math.log(factor)], rule=fixed(2))
        assert far.launches == [2 * believed]

    @pytest.mark.parametrize(
        "learned",
        [
            history(spread=math.nan),
            history(freedom=math.nan),
            history(freedom=0.0),
            history(spread=math.inf),
            history(freedom=3.9),
        ],
        ids=["no spread", "no freedom", "no launches", "infinite spread", "three launches"],
    )
    def test_two_launches_without_a_history_decide_nothing(self, learned):
        got = rule_on([0.5, 0.5], learned)
        assert got.code == [Code.OPEN]
        assert got.next_look == [3]
        assert not got.calibrated

    @given(
        arrays(
            np.float64, (CASES, LAUNCHES), elements=st.floats(allow_nan=True, allow_infinity=True)
        ),
        SPREADS,
    )
    @settings(deadline=None)
    def test_anything_gets_an_answer(self, d, spreads):
        got = rule_on(d, history(spread=spreads, cases=CASES))
        assert set(got.code.tolist()) <= set(Code)
        assert (got.code[got.launches < 2] % 2 == 0).all()

    def test_a_spread_of_zero_is_not_believed(self):
        got = rule_on([0.0, 0.0], history(spread=0.0, within=0.0))
        assert got.error > [0.0]

    @pytest.mark.parametrize("within", [math.nan, math.inf])
    def test_unknown_inner_spread_leaves_the_guard_at_one(self, within):
        assert rule_on([0.001], within=within).inflation == [1.0]


class TestColdStart:
    UNKNOWN = staticmethod(
        lambda cases: history(spread=math.nan, freedom=0.0, within=math.nan, cases=cases)
    )

    def test_a_change_is_called_from_the_first_look_after_five_launches(self):
        rng = np.random.default_rng(4)
        d = 0.002 * rng.standard_normal((20, 6))
        d[0] += 0.05
        early = rule_on(d[:, :4], self.UNKNOWN(20))
        assert (early.code[0], early.next_look[0]) == (Code.OPEN, 6)
        assert np.isnan(early.error[0])
        got = rule_on(d, self.UNKNOWN(20))
        assert got.code.tolist() == [Code.REGRESSED] + [Code.UNCHANGED] * 19
        assert got.launches[0] == 6
        assert (got.launches[1:] <= 3).all()

    @pytest.mark.parametrize(
        ("spread", "least", "most"), [(0.001, 2, 3), (0.0075, 3, 6), (0.03, 6, 16)]
    )
    def test_unchanged_code_on_a_machine_that_nobody_calibrated_takes_as_many_launches_as_it_is_noisy(
        self, spread, least, most
    ):
        d = spread * np.random.default_rng(5).standard_normal((40, 1, 16))
        taken = [rule_on(launches, self.UNKNOWN(1)).launches[0] for launches in d]
        assert least <= np.median(taken) <= most

    def test_what_is_called_unchanged_early_has_its_interval_and_the_usual_spread_in_it(self):
        got = rule_on(
            [[0.0, 0.0]],
            self.UNKNOWN(1),
            rule=replace(RULE, margin=math.log(1.1), tau=math.log(1.05)),
        )
        spread = math.sqrt(
            sequential.COLD_FREEDOM * sequential.COLD_SPREAD**2 / (sequential.COLD_FREEDOM + 1)
        )
        assert (got.code, got.freedom) == ([Code.UNCHANGED], [sequential.COLD_FREEDOM + 1])
        assert got.error == pytest.approx([spread / math.sqrt(2)])

    def test_what_scatters_much_inside_its_launches_is_believed_to_do_so_between_them(self):
        wide = replace(RULE, margin=math.log(1.1), tau=math.log(1.05))
        got = [
            rule_on([[0.0, 0.0]], self.UNKNOWN(1), rule=wide, within=within)
            for within in (0.012, 0.06, math.nan)
        ]
        usual = np.array(
            [sequential.COLD_SPREAD, sequential.COLD_SHARE * 0.06, sequential.COLD_SPREAD]
        )
        spread = usual * math.sqrt(sequential.COLD_FREEDOM / (sequential.COLD_FREEDOM + 1))
        assert [one.error[0] for one in got] == pytest.approx(list(spread / math.sqrt(2)))

    @pytest.mark.parametrize("spread", [0.015, 0.03, 0.04])
    def test_on_a_machine_that_nobody_knows_a_change_of_the_margin_is_seldom_called_unchanged(
        self, spread
    ):
        d = math.log(1.04) + spread * np.random.default_rng(6).standard_normal((1000, 1, 8))
        rule, unknown = (
            replace(RULE, tau=math.log(1.02), margin=math.log(1.04)),
            self.UNKNOWN((1000, 1)),
        )
        inside = np.full(d.shape, spread / sequential.COLD_SHARE)
        assert (
            np.mean(sequential.replay(d, inside, unknown, rule).code == Code.UNCHANGED) <= RULE.beta
        )

    def test_one_launch_decides_nothing(self):
        assert rule_on([[0.0]], self.UNKNOWN(1), rule=replace(RULE, margin=1.0)).code == [Code.OPEN]

    def test_two_launches_of_a_lone_case_are_enough_where_the_rule_says_so(self):
        got = rule_on(
            [[0.01, 0.03]], history(spread=np.nan, freedom=0.0), rule=replace(RULE, cold_launches=2)
        )
        assert got.error == pytest.approx([0.01])
        assert got.freedom == pytest.approx([1.0])
        assert got.high == pytest.approx([0.02 + student.ppf(0.975, 1) * 0.01])

    def test_a_lone_case_falls_back_to_its_own_spread(self):
        d = [0.049, 0.051, 0.05, 0.0505, 0.0495, 0.05]
        got = rule_on(d, history(spread=math.nan, freedom=0.0))
        assert got.freedom == pytest.approx([5.0])
        assert got.error == pytest.approx([np.std(d, ddof=1) / math.sqrt(6)])
        assert got.code == [Code.REGRESSED]


class TestParameters:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"alpha_shares": (1.0,)},
            {"looks": (2, 1), "alpha_shares": (0.5, 0.5)},
            {"looks": (0, 1), "alpha_shares": (0.5, 0.5)},
            {"looks": (1, 2), "alpha_shares": (0.6, 0.5)},
            {"looks": (1, 2), "alpha_shares": (-0.1, 0.5)},
        ],
    )
    def test_that_would_not_bound_false_alarms_are_refused(self, wrong):
        with pytest.raises(ValueError, match="look"):
            replace(RULE, **wrong)

    def test_the_shares_of_the_default_use_all_of_alpha(self):
        assert sum(RULE.alpha_shares) == pytest.approx(1.0)
        assert RULE.alpha_shares[0] == 0


def test_false_alarms_stay_within_alpha():
    rng = np.random.default_rng(7)
    runs, cases = 400, 20
    spread = np.exp(rng.uniform(-6, -3.5, (runs, cases)))
    d = spread[..., None] * rng.standard_normal((runs, cases, 16))
    past = spread[..., None] * rng.standard_normal((runs, cases, 20))
    learned = Learned(
        spread=np.sqrt((past**2).mean(axis=-1)),
        freedom=np.full((runs, cases), 20.0),
        within=np.full((runs, cases), 0.01),
    )
    got = sequential.replay(d, np.full(d.shape, 0.01), learned, RULE)
    assert (got.code == Code.REGRESSED).any(axis=-1).sum() <= 6
    naive = replace(RULE, alpha=0.5, gating=1, recurrence=0.5, confirmation=0.5, tau=0.0)
    assert (
        sequential.replay(d, np.full(d.shape, 0.01), learned, naive).code == Code.REGRESSED
    ).any(axis=-1).sum() > 100


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_change_of_many_cases_at_once_does_not_pass_for_noise(share):
    rng = np.random.default_rng(9)
    spread = np.full(40, 0.005)
    slower = rng.uniform(0.03, 0.1, 40) * (np.arange(40) < 40 * share)
    got = rule_on(
        slower[:, None] + spread[:, None] * rng.standard_normal((40, 16)),
        history(spread=spread, cases=40),
    )
    assert (got.code[slower > 0] == Code.REGRESSED).all()
