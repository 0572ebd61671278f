"""Estimators against hand-computed values and scipy; what is missing or malformed never becomes a figure."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.special import polygamma, psi
from scipy.stats import median_abs_deviation, trim_mean

from ci_bench.judge.times import noise

FINITE = st.floats(-5, 5, allow_nan=False)
SAMPLES = arrays(
    np.float64, array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=25), elements=FINITE
)


def learned(past, within=None, weights=None):
    past = np.atleast_2d(np.asarray(past, dtype=float))
    within = np.ones_like(past) if within is None else np.atleast_2d(within)
    return noise.learn(
        past, within, np.ones_like(past) if weights is None else np.atleast_2d(weights)
    )


class TestTrimmedMean:
    def test_cuts_a_fifth_at_each_end(self):
        assert noise.trimmed_mean(np.array([[100.0, 1, 2, 3, -100]])) == pytest.approx([2.0])

    @given(SAMPLES)
    def test_is_scipys(self, samples):
        np.testing.assert_allclose(
            noise.trimmed_mean(samples), trim_mean(samples, 0.2, axis=-1), atol=1e-12
        )

    @given(SAMPLES, st.integers(1, 5))
    def test_what_is_missing_does_not_count(self, samples, missing):
        padding = np.full((*samples.shape[:-1], missing), np.nan)
        padded = np.concatenate([padding, samples], axis=-1)
        np.testing.assert_allclose(
            noise.trimmed_mean(padded), noise.trimmed_mean(samples), atol=1e-12
        )

    @pytest.mark.parametrize(
        "empty", [np.full((1, 4), np.nan), np.empty((1, 0)), np.array([[np.inf, -np.inf]])]
    )
    def test_of_nothing_is_unknown(self, empty):
        assert np.isnan(noise.trimmed_mean(empty)).all()

    def test_infinities_are_no_samples(self):
        assert noise.trimmed_mean(np.array([[np.inf, 1.0, -np.inf, 3.0]])) == pytest.approx([2.0])


class TestLaunchRatio:
    def test_twice_the_time_is_the_logarithm_of_two(self):
        base = np.log([[1.0, 1.0, 1.0]])
        assert noise.launch_ratio(base, base + np.log(2)) == pytest.approx([np.log(2)])

    @given(SAMPLES, SAMPLES, st.floats(-3, 3))
    def test_the_unit_of_time_does_not_matter(self, base, head, unit):
        base, head = base.ravel()[None], head.ravel()[None]
        np.testing.assert_allclose(
            noise.launch_ratio(base + unit, head + unit), noise.launch_ratio(base, head), atol=1e-9
        )

    @given(SAMPLES, SAMPLES)
    def test_swapping_the_sides_swaps_the_sign(self, base, head):
        base, head = base.ravel()[None], head.ravel()[None]
        assert noise.launch_ratio(base, head) == pytest.approx(-noise.launch_ratio(head, base))


class TestWithinSpread:
    def test_of_blocks_by_hand(self):
        base = np.zeros((1, 6))
        head = np.array([[0.0, 2, 2, 2, 4, 6]])  # blocks 1, 2, 5: median 2, deviations 1, 0, 3
        assert noise.within_spread(base, head) == pytest.approx([1.4826 * 1])

    @given(arrays(np.float64, (3, 20), elements=FINITE))
    def test_is_scipys_median_absolute_deviation(self, head):
        blocks = head.reshape(3, 10, 2).mean(axis=-1)
        expected = 1.4826 * median_abs_deviation(blocks, axis=-1)
        np.testing.assert_allclose(
            noise.within_spread(np.zeros_like(head), head), expected, atol=1e-12
        )

    @pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
    def test_a_block_with_a_hole_on_either_side_is_left_out(self, hole):
        base, head = np.zeros((1, 8)), np.array([[0.0, 2, 2, 2, hole, 6, 4, 6]])
        assert noise.within_spread(base, head) == pytest.approx([1.4826])
        assert noise.within_spread(head, base) == pytest.approx([1.4826])

    def test_two_blocks_are_enough(self):
        assert noise.within_spread(np.zeros((1, 4)), np.array([[0.0, 2, 4, 6]])) == pytest.approx(
            [1.4826 * 2]
        )

    @pytest.mark.parametrize("samples", [0, 1, 2, 3])
    def test_one_block_has_none(self, samples):
        assert np.isnan(noise.within_spread(np.zeros((1, samples)), np.ones((1, samples)))).all()


class TestLearning:
    def test_the_mean_square_around_zero(self):
        got = learned([[0.3, -0.1, 0.2]])
        assert got.spread == pytest.approx([np.sqrt(0.14 / 3)])
        assert got.freedom == pytest.approx([3.0])

    def test_weights_by_hand(self):
        got = learned([[0.3, -0.1]], weights=[[1.0, 0.5]])
        assert got.spread == pytest.approx([np.sqrt((0.09 + 0.005) / 1.5)])
        assert got.freedom == pytest.approx([1.5**2 / 1.25])

    @pytest.mark.parametrize("age", [30.0, 150.0])
    def test_launches_of_one_age_are_a_history_however_old(self, age):
        past = [[0.3, -0.1, 0.2, 0.1]]
        got = learned(past, weights=noise.forgetting(np.full((1, 4), age)))
        assert got.spread == pytest.approx(learned(past).spread)
        assert got.freedom == pytest.approx([4.0])

    def test_a_month_halves_the_weight(self):
        assert noise.forgetting(np.array([0.0, 30, 60])) == pytest.approx([1, 0.5, 0.25])

    def test_launches_that_were_not_run_teach_nothing(self):
        got = learned([[0.3, np.nan, -0.1, np.inf, 0.2]])
        assert got.spread == pytest.approx([np.sqrt(0.14 / 3)])
        assert got.freedom == pytest.approx([3.0])

    def test_no_history_is_unknown_not_zero(self):
        got = noise.learn(np.empty((2, 0)), np.empty((2, 0)), np.empty(0))
        assert np.isnan(got.spread).all()
        assert (got.freedom == 0).all()

    def test_identical_launches_are_not_believed_noiseless(self):
        assert learned([[0.0, 0.0, 0.0]]).spread == pytest.approx([noise.LEAST_SPREAD])


class TestExcursionShare:
    def share(self, past, weights=None):
        past = np.asarray(past, dtype=float)
        return noise.excursion_share(
            past, np.ones(past.shape) if weights is None else np.asarray(weights)
        ).item()

    PAST = ((0.01, -0.01, 0.01, 0.08, -0.01), (0.01, 0.01, 0.01, -0.01, -0.01))

    def test_by_hand_and_over_all_cases(self):
        assert self.share(self.PAST) == pytest.approx((1 + 0.5) / (10 + 250))

    def test_either_side_counts(self):
        assert self.share(-np.array(self.PAST)) == self.share(self.PAST)

    def test_five_robust_spreads_are_no_more(self):
        edge = 5 * 1.4826 * 0.01
        for size, strayed in ((edge - 1e-9, 0), (edge + 1e-9, 1)):
            assert self.share([[0.01, 0.01, 0.01, size]]) == pytest.approx((strayed + 0.5) / 254)

    def test_old_launches_count_less(self):
        weights = np.broadcast_to([1.0, 1.0, 1.0, 0.25, 0.5], (2, 5))
        assert self.share(self.PAST, weights) == pytest.approx((0.25 + 0.5) / (7.5 + 250))

    @pytest.mark.parametrize(
        "past", [[[0.01, 0.01, 0.5]], [[0.01, 0.01, np.nan, 0.5]], [[]], [[np.nan] * 9]]
    )
    def test_fewer_than_four_launches_tell_nothing(self, past):
        assert self.share(past) == pytest.approx(0.002)

    def test_a_case_that_repeats_exactly_is_not_believed_noiseless(self):
        assert self.share([[0.0, 0.0, 0.0, 4e-5]]) == pytest.approx(0.5 / 254)

    def test_is_learned_with_the_spread_and_by_run(self):
        past = np.stack([self.PAST, np.zeros((2, 5))])
        got = noise.learn(past, np.ones(past.shape), np.ones(5))
        assert got.excursions == pytest.approx(np.array([[1.5 / 260], [0.5 / 260]]))
        assert noise.nothing_learned(3).excursions == 0.002


class TestWhatLaunchesOfARunShare:
    RUNS = np.repeat(np.arange(50), 2)

    def draw(self, sizes, shared):
        """Launches of cases with own noise of `sizes`, and an offset of each run of `shared` per case."""
        rng = np.random.default_rng(8)
        own, common = (
            rng.standard_normal((len(sizes), 100)),
            rng.standard_normal((len(sizes), 50)).repeat(2, axis=1),
        )
        return np.asarray(sizes)[:, None] * own + np.asarray(shared)[:, None] * common

    def bound(self, past, runs=RUNS):
        learned = noise.learn(past, np.full(past.shape, np.nan), np.ones(past.shape[-1]))
        return noise.with_runs(learned, past, runs).bound

    def test_by_hand(self):
        past = np.array([[0.01, 0.02, -0.01, -0.01]] * 4)
        learned = noise.Learned(
            spread=np.full(4, 0.01), freedom=np.full(4, 4.0), within=np.full(4, np.nan)
        )
        covariance = (2 + 1) / 2 * 1e-4
        got = noise.with_runs(learned, past, np.array([0, 0, 1, 1]))
        assert got.bound == pytest.approx([math.sqrt(covariance * 8 / (8 + 100))] * 4)

    def test_has_one_size_however_noisy_a_case_is(self):
        sizes = np.repeat([0.001, 0.005, 0.02], 20)
        got = self.bound(self.draw(sizes, np.full(60, 0.005)))
        assert got[:40] == pytest.approx(0.005, rel=0.2)
        assert got[40:] == pytest.approx(0.005, abs=0.004)

    def test_that_grows_with_the_noise_is_found_where_the_noise_is(self):
        got = self.bound(self.draw(np.repeat([0.001, 0.01], 30), np.repeat([0.001, 0.01], 30)))
        assert got[:10] == pytest.approx(0.001, rel=0.25)
        assert got[-10:] == pytest.approx(0.01, rel=0.25)

    def test_is_next_to_nothing_for_independent_launches(self):
        assert (self.bound(self.draw(np.full(20, 0.01), np.zeros(20))) < 0.003).all()

    def test_a_case_without_a_history_gets_what_most_have(self):
        past = self.draw(np.full(20, 0.001), np.full(20, 0.005))
        past[3] = np.nan
        assert self.bound(past)[3] == pytest.approx(0.005, rel=0.2)

    def test_each_case_may_have_its_own_runs(self):
        past = self.draw(np.full(20, 0.01), np.full(20, 0.01))
        assert (
            self.bound(past, np.broadcast_to(self.RUNS, past.shape)).tolist()
            == self.bound(past).tolist()
        )

    def test_runs_of_several_simulations_at_once(self):
        both = np.stack([self.draw(np.full(20, 0.01), np.full(20, size)) for size in (0.01, 0.0)])
        assert self.bound(both) == pytest.approx(np.stack([self.bound(one) for one in both]))

    def test_one_launch_a_run_shows_none(self):
        assert not self.bound(self.draw(np.full(20, 0.01), np.full(20, 0.01)), np.arange(100)).any()


class TestModeration:
    @pytest.mark.parametrize("x", [0.05, 0.5, 1.0, 3.0, 40.0, 1e4])
    def test_the_inverse_of_trigamma(self, x):
        assert noise.trigamma_inverse(polygamma(1, np.array([x]))) == pytest.approx([x], rel=1e-8)

    def test_finds_the_prior_that_variances_were_drawn_from(self):
        rng = np.random.default_rng(3)
        truth = 0.02**2 * 10 / rng.chisquare(10, 20_000)
        spread, freedom = noise.moderated(
            truth * rng.chisquare(4, 20_000) / 4, np.full(20_000, 4.0)
        )
        assert spread == pytest.approx(0.02, rel=0.02)
        assert freedom == pytest.approx(10, rel=0.1)

    def test_equal_variances_are_believed_as_much_as_the_other_cases_showed(self):
        rng = np.random.default_rng(3)
        spread, freedom = noise.moderated(rng.chisquare(50, 200) / 50, np.full(200, 4.0))
        assert freedom == 199 * 4
        assert noise.moderated(np.array([1.0, 1.0]), np.array([2.0, 6.0]))[1] == 4
        assert spread == pytest.approx(
            math.exp((math.log(2) - psi(2)) / 2), rel=0.02
        )  # its location is that of infinite trust

    @pytest.mark.parametrize("variances", [[np.nan, np.nan], [1.0, np.nan], [0.0, 0.0]])
    def test_needs_two_cases(self, variances):
        spread, freedom = noise.moderated(np.array(variances), np.full(2, 4.0))
        assert np.isnan(spread)
        assert freedom == 0


class TestInflation:
    CASES = 40

    def draw(self, rng, launches=4, scale=1.0):
        spread = np.exp(rng.uniform(-7, -4, self.CASES))
        d = scale * spread[:, None] * rng.standard_normal((self.CASES, launches))
        within = np.full(d.shape, 0.01)
        return (
            d,
            within,
            noise.Learned(
                spread=spread, freedom=np.full(self.CASES, 20.0), within=np.full(self.CASES, 0.01)
            ),
        )

    def test_is_one_on_a_usual_day(self):
        d, within, known = self.draw(np.random.default_rng(1))
        assert 1.0 <= noise.inflation(d, within, known).item() < 1.25

    def test_sees_launches_that_scatter_more(self):
        d, within, known = self.draw(np.random.default_rng(1), scale=3.0)
        assert 2.2 < noise.inflation(d, within, known).item() < 4.0

    def test_sees_samples_that_scatter_more(self):
        d, within, known = self.draw(np.random.default_rng(1))
        assert noise.inflation(d, 2.5 * within, known).item() == pytest.approx(2.5)

    def test_a_change_of_all_cases_is_not_noise(self):
        rng = np.random.default_rng(1)
        d, within, known = self.draw(rng)
        slower = rng.uniform(0.02, 0.1, (self.CASES, 1))
        assert noise.inflation(d + 0.05, within, known).item() < 1.25
        assert noise.inflation(d + slower, within, known).item() < 1.25

    def test_few_launches_tell_nothing(self):
        d, within, known = self.draw(np.random.default_rng(1), scale=3.0)
        few = noise.Learned(
            spread=known.spread[:9], freedom=known.freedom[:9], within=known.within[:9]
        )
        assert noise.inflation(d[:9, :1], within[:9, :1], few).item() == 1.0
        assert noise.inflation(d[:9], within[:9], few).item() > 2.0

    def test_nothing_known_is_no_inflation(self):
        unknown = np.full(12, np.nan)
        known = noise.Learned(spread=unknown, freedom=np.zeros(12), within=unknown)
        assert noise.inflation(np.ones((12, 2)), np.ones((12, 2)), known).item() == 1.0


@given(
    arrays(
        np.float64,
        array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=9),
        elements=st.one_of(FINITE, st.just(np.nan)),
    )
)
@settings(max_examples=50)
@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_the_median_is_numpys(values):
    np.testing.assert_allclose(noise.nan_median(values, axis=-1), np.nanmedian(values, axis=-1))


class TestLearned:
    def test_only_some_of_the_cases(self):
        learned = noise.Learned(
            spread=np.arange(3.0),
            freedom=np.arange(3.0),
            within=np.arange(3.0),
            bound=np.arange(3.0),
        )
        assert learned.only(np.array([True, False, True])).spread.tolist() == [0.0, 2.0]
        assert learned.only(np.array([2, 0])).freedom.tolist() == [2.0, 0.0]
        assert learned.only(np.array([1])).bound == [1.0]

    def test_nothing(self):
        nothing = noise.nothing_learned(2)
        assert np.isnan(nothing.spread).all()
        assert nothing.freedom.tolist() == [0.0, 0.0]


class TestGrids:
    @pytest.mark.parametrize(
        ("values", "step"),
        [
            ([0.50, 0.50, 0.51, 0.51], 0.01 / 0.50),
            ([0.52, 0.52], 0.0),
            ([100.0] * 8 + [110.0] * 8, 1 / 100),
            ([1000.0] * 8 + [1100.0] * 8, 0.0),
            ([0.0151, 0.0152] * 3, 0.0001 / 0.0151),
            (
                [15.625e-3, 31.25e-3, 31.25e-3, 15.625e-3, 46.875e-3, 15.625e-3],
                15.625e-3 / 31.25e-3,
            ),
            ([0.123456, 0.123457, 0.123461, 0.123458], 0.0),
            ([0.1234567, 0.1234567, 0.1234589, 0.1234589, 0.1234602, 0.1234602], 0.0),
            ([1.5, 1.7, 1.1, 1.2, 1.9, 1.8, 1.3, 1.4, 1.6], 0.0),
            ([], 0.0),
            ([0.0, 0.0], 0.0),
        ],
        ids=[
            "two digits",
            "one value",
            "whole numbers",
            "large numbers",
            "three digits",
            "ticks",
            "fine",
            "repeats off a grid",
            "no value repeats",
            "none",
            "zero",
        ],
    )
    def test_the_step_is_found(self, values, step):
        assert noise.grid_step(np.array(values)) == pytest.approx(step)

    @pytest.mark.parametrize(
        ("base", "head", "step"),
        [
            ([1.0202013, 1.0408108] * 4, [1.0408108] * 8, 0.0206 / 1.0202),
            ([1.0202013] * 8, [1.0408108] * 8, 0.0206 / 1.0202),  # a clock, or a change of 2 %
            ([1.2214028, 1.3498588] * 4, [1.3498588] * 8, 0.1285 / 1.2214),
            ([1.2214028] * 8, [1.3498588] * 8, 0.0),
        ],
        ids=[
            "small, of one side",
            "small, between the sides",
            "large, of one side",
            "large, between the sides",
        ],
    )
    def test_of_two_values_a_side_that_has_both_tells_ticks_from_a_change(self, base, head, step):
        assert noise.grid_step(np.array(base), np.array(head)) == pytest.approx(step, rel=1e-3)
