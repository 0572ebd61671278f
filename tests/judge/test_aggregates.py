"""Rates and means against hand-computed values and scipy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import false_discovery_control
from scipy.stats import t as student

from ci_bench.judge.times import aggregates, sequential
from ci_bench.judge.times.noise import Learned
from ci_bench.judge.times.sequential import SequentialRule


def learned(spread, freedom=20.0):
    spread = np.asarray(spread, dtype=float)
    return Learned(
        spread=spread, freedom=np.full(spread.shape, freedom), within=np.full(spread.shape, 0.01)
    )


UNKNOWN = learned([math.nan] * 3, freedom=0.0)


class TestFalseDiscovery:
    @given(arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 1)))
    @settings(deadline=None)
    def test_is_scipys(self, p):
        np.testing.assert_allclose(
            aggregates.false_discovery(p), false_discovery_control(p), atol=1e-12
        )

    def test_by_hand(self):
        q = aggregates.false_discovery(np.array([0.01, math.nan, 0.04, 0.03]))
        assert q == pytest.approx([0.03, math.nan, 0.04, 0.04], nan_ok=True)

    def test_of_nothing(self):
        assert aggregates.false_discovery(np.empty(0)).size == 0

    def test_p_values_are_two_sided_students(self):
        ruling = sequential.replay(
            np.array([[0.01]]), np.array([[0.01]]), learned([0.005]), SequentialRule()
        )
        assert aggregates.p_values(ruling) == pytest.approx([2 * student.sf(2.0, 6)])


class TestGeometricMean:
    D = np.array([[0.01, 0.03, 0.02], [0.03, 0.05, 0.04], [0.02, 0.01, 0.03]])

    def test_without_a_history_students_over_launches(self):
        got = aggregates.geometric_mean(self.D, UNKNOWN)
        each = [0.02, 0.03, 0.03]
        half = student.ppf(0.975, 2) * np.std(each, ddof=1) / math.sqrt(3)
        assert got.value == pytest.approx(0.08 / 3)
        assert [got.low, got.high] == pytest.approx([0.08 / 3 - half, 0.08 / 3 + half])
        assert (got.cases, got.launches) == (3, 3)

    def test_history_carries_a_single_launch(self):
        got = aggregates.geometric_mean(self.D[:, :1], learned([0.006] * 3))
        assert got.high - got.value == pytest.approx(student.ppf(0.975, 60) * 0.006 / math.sqrt(3))

    def test_only_launches_in_which_every_case_ran(self):
        d = self.D.copy()
        d[0, 2] = math.nan
        got = aggregates.geometric_mean(d, UNKNOWN)
        assert got.launches == 2
        assert got.value == pytest.approx(0.025)

    def test_a_case_that_never_ran_is_left_out(self):
        d = np.vstack([self.D, np.full((1, 3), math.nan)])
        got = aggregates.geometric_mean(d, learned([math.nan] * 4, freedom=0.0))
        assert got.cases == 3
        assert got.value == pytest.approx(0.08 / 3)

    def test_of_a_single_case_it_is_that_cases_own(self):
        got = aggregates.geometric_mean(self.D[:1, :1], learned([0.006]))
        assert got.high - got.value == pytest.approx(student.ppf(0.975, 20) * 0.006)

    def test_two_launches_carry_an_interval_without_a_history(self):
        got = aggregates.geometric_mean(self.D[:, :2], UNKNOWN)
        half = student.ppf(0.975, 1) * np.std([0.02, 0.03], ddof=1) / math.sqrt(2)
        assert got.high - got.value == pytest.approx(half)

    @pytest.mark.parametrize(
        "d",
        [np.full((3, 2), math.nan), np.empty((3, 0)), np.where(np.eye(3), 0.01, math.nan)],
        ids=["NaN", "none", "never all at once"],
    )
    def test_no_launch_with_every_case_gives_no_mean(self, d):
        for history in (UNKNOWN, learned([0.006] * 3)):
            got = aggregates.geometric_mean(d, history)
            assert np.isnan([got.value, got.low, got.high]).all()
            assert got.launches == 0

    @pytest.mark.parametrize(
        "d",
        [np.full((3, 2), math.nan), np.empty((3, 0)), D[:, :1]],
        ids=["NaN", "none", "one launch"],
    )
    def test_what_carries_no_interval_has_none(self, d):
        got = aggregates.geometric_mean(d, UNKNOWN)
        assert math.isnan(got.low)
        assert math.isnan(got.high)

    def test_covers_the_truth_as_often_as_it_says(self):
        rng = np.random.default_rng(5)
        spread = np.exp(rng.uniform(-7, -4, (1000, 12)))
        d = 0.01 + spread[..., None] * rng.standard_normal((1000, 12, 3))
        past = spread[..., None] * rng.standard_normal((1000, 12, 20))
        means = [
            aggregates.geometric_mean(d[run], learned(np.sqrt((past[run] ** 2).mean(axis=-1))))
            for run in range(1000)
        ]
        assert 930 <= sum(mean.low <= 0.01 <= mean.high for mean in means) <= 970
