"""A launch that is slow as a whole is one event; a change of all cases repeats in each launch."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ci_bench.judge.times import sequential, shifts
from ci_bench.judge.times.noise import Learned
from ci_bench.judge.times.sequential import Code, SequentialRule, fixed

NAN = math.nan
CASES = 20
RULE = SequentialRule(tau=math.log(1.01), margin=math.log(1.02), gating=CASES)
QUIET = Learned(
    spread=np.full(CASES, 0.003), freedom=np.full(CASES, 6.0), within=np.full(CASES, 0.01)
)
UNKNOWN = Learned(spread=np.full(CASES, NAN), freedom=np.zeros(CASES), within=np.full(CASES, NAN))


def noise_of(launches, *, seed=3):
    return 0.003 * np.random.default_rng(seed).standard_normal((CASES, launches))


def words(d, learned=QUIET, rule=RULE):
    return {
        Code(code)
        for code in sequential.replay(d, np.full(d.shape, 0.01), learned, rule).code.tolist()
    }


class TestSlowLaunches:
    SLOW = math.log(1.03)

    def test_two_slow_launches_change_no_case(self):
        d = noise_of(2) + self.SLOW
        assert words(d) == {Code.OPEN}

    def test_without_the_guard_they_changed_most(self, monkeypatch):
        monkeypatch.setattr(shifts, "LEAST_CASES", CASES + 1)
        d = noise_of(2) + self.SLOW
        assert Code.REGRESSED in words(d)

    def test_a_slow_base_hides_no_change(self, monkeypatch):
        d = noise_of(1)
        d[:5] += math.log(1.02)
        d -= math.log(1.015)
        got = [sequential.replay(d, np.full(d.shape, 0.01), QUIET, RULE).code[:5].tolist()]
        monkeypatch.setattr(shifts, "LEAST_CASES", CASES + 1)
        got.append(sequential.replay(d, np.full(d.shape, 0.01), QUIET, RULE).code[:5].tolist())
        assert got[0] == [Code.OPEN] * 5
        assert Code.UNCHANGED in got[1]

    def test_the_next_launches_settle_it(self):
        d = noise_of(8)
        d[:, :2] += self.SLOW
        assert words(d) <= {Code.UNCHANGED, Code.OPEN}


class TestAChangeOfAll:
    @pytest.mark.parametrize(
        ("learned", "launches"), [(QUIET, 3), (UNKNOWN, 6)], ids=["calibrated", "unknown"]
    )
    @pytest.mark.parametrize("share", [0.5, 1.0])
    def test_is_found_once_it_repeats(self, learned, launches, share):
        changed = np.arange(CASES) < share * CASES
        d = noise_of(launches) + math.log(1.05) * changed[:, None]
        got = sequential.replay(d, np.full(d.shape, 0.01), learned, RULE).code
        assert (got[changed] == Code.REGRESSED).all()
        assert not (np.abs(got[~changed]) == 1).any()

    def test_of_few_cases_is_found_in_two_launches(self):
        d = noise_of(2)[: shifts.LEAST_CASES - 1] + math.log(1.1)
        got = sequential.replay(d, np.full(d.shape, 0.01), QUIET.only(np.arange(len(d))), RULE)
        assert (
            got.code.tolist().count(Code.REGRESSED) == len(d) - 1
        )  # the first contradicts its history


class TestCommonShifts:
    def test_is_the_median_of_each_launch(self):
        d = np.stack([np.arange(11.0), np.arange(1.0, 12.0)], axis=-1)
        np.testing.assert_array_equal(shifts.common_shifts(d), [5.0, 6.0])

    @pytest.mark.parametrize(
        ("cases", "there", "known"),
        [(10, 10, True), (9, 9, False), (30, 15, True), (30, 14, False)],
    )
    def test_needs_ten_cases_and_half_of_all(self, cases, there, known):
        d = np.ones((cases, 2))
        d[there:, 1] = NAN
        assert np.isfinite(shifts.common_shifts(d)[1]) == known

    @pytest.mark.parametrize(
        ("launches", "repeated"),
        [
            ([0.03], False),
            ([0.03, NAN], False),
            ([0.030, 0.031], False),
            ([0.030, 0.031, 0.029], True),
            ([-0.030, -0.031, -0.029], True),
            ([0.03, 0.0, 0.03], False),
            ([NAN, NAN], False),
        ],
    )
    def test_repeats_if_three_launches_agree(self, launches, repeated):
        assert bool(shifts.is_repeated(np.array(launches), 0.001)) == repeated

    def test_is_the_t_test(self):
        edge = 22.327 * 0.001 / math.sqrt(3)  # t of two degrees of freedom at 0.999
        launches = np.array([-0.001, 0.0, 0.001])
        assert [
            bool(shifts.is_repeated(launches + edge * part, 0.001)) for part in (0.999, 1.001)
        ] == [False, True]

    def test_equal_launches_have_an_error_all_the_same(self):
        t = 318.3  # of one degree of freedom at 0.999
        sizes = np.array([0.99, 1.01]) * t * 1e-5
        assert [bool(shifts.is_repeated(np.full(2, size), 0.001)) for size in sizes] == [
            False,
            True,
        ]


class TestWithoutShifts:
    def test_takes_off_what_is_beyond_half_the_threshold(self):
        d = np.tile([0.004, 0.006, NAN], (CASES, 1))
        tau = np.full(CASES, 0.01)
        tau[0] = 0.02
        rest = shifts.without_shifts(d, tau, 0.001)
        np.testing.assert_allclose(rest[1:, :2], [[0.004, 0.0]] * (CASES - 1))
        np.testing.assert_allclose(rest[0, :2], [0.004, 0.006])

    def test_is_none_if_nothing_is_taken_off(self):
        assert shifts.without_shifts(np.full((CASES, 3), 0.004), 0.01, 0.001) is None

    @given(arrays(np.float64, (2, 12, 4), elements=st.one_of(st.floats(-0.2, 0.2), st.just(NAN))))
    @settings(deadline=None, max_examples=20)
    def test_runs_side_by_side_are_each_by_itself(self, d):
        both = shifts.without_shifts(d, 0.01, 0.001)
        for run in range(2):
            alone = shifts.without_shifts(d[run], 0.01, 0.001)
            np.testing.assert_array_equal(
                d[run] if both is None else both[run], d[run] if alone is None else alone
            )

    @given(arrays(np.float64, (12, 8), elements=st.floats(-0.1, 0.1)), st.sampled_from([2, 3, 8]))
    @settings(deadline=None, max_examples=20)
    def test_never_adds_a_word(self, d, look):
        learned, rule = QUIET.only(np.arange(12)), fixed(look)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shifts, "LEAST_CASES", 99)
            before = sequential.replay(d, np.full(d.shape, 0.01), learned, rule).code
        after = sequential.replay(d, np.full(d.shape, 0.01), learned, rule).code
        assert ((after == before) | (after == Code.OPEN)).all()
