"""Launches that stray: counted by hand, and kept from passing for a change, while a true change is still found."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ci_bench.judge.times import noise, sequential, strays
from ci_bench.judge.times.noise import Learned
from ci_bench.judge.times.sequential import Code, SequentialRule

NAN = math.nan


def today(d, spread):
    return strays.today(np.asarray(d, dtype=float), np.asarray(spread, dtype=float)).item()


class TestToday:
    def test_by_hand(self):
        d = [[0.0, 0.01, 0.08], [0.0, 0.0, 0.0]]
        assert today(d, [0.01, 0.01]) == pytest.approx((1 + 0.1) / (6 + 50))

    def test_two_launches_that_disagree_are_one_that_strayed(self):
        assert today([[0.0, 0.11]], [0.01]) == pytest.approx(1.1 / 52)
        assert today([[0.0, 0.09]], [0.01]) == pytest.approx(0.1 / 52), (
            "within five spreads of their middle"
        )

    def test_a_change_of_all_launches_is_not_seen(self):
        assert today([[0.5, 0.5, 0.51, 0.5]], [0.01]) == pytest.approx(0.1 / 54)

    @pytest.mark.parametrize("launches", [[0.3], [0.3, NAN, NAN], [NAN, NAN], []])
    def test_one_launch_has_none_to_stray_from(self, launches):
        assert today([launches], [0.01]) == pytest.approx(0.002)

    def test_a_spread_that_nobody_knows_tells_nothing(self):
        assert today([[0.0, 0.3], [0.0, 0.3]], [NAN, 0.01]) == pytest.approx(1.1 / 52)

    def test_runs_are_counted_apart(self):
        d = np.array([[[0.0, 0.3]], [[0.0, 0.0]]])
        assert strays.today(d, np.full((2, 1), 0.01)) == pytest.approx(
            np.array([[1.1 / 52], [0.1 / 52]])
        )


def more_than(most, count, share):
    """Of so many launches, the chance that more than `most` stray to one side."""
    return math.fsum(
        math.comb(count, k) * (share / 2) ** k * (1 - share / 2) ** (count - k)
        for k in range(most + 1, count + 1)
    )


class TestByChance:
    @pytest.mark.parametrize("share", [1e-6, 0.002, 0.02, 0.1, 0.5])
    @pytest.mark.parametrize("chance", [2e-6, 8e-5, 0.01])
    def test_is_the_least_number_that_is_rarely_exceeded(self, share, chance):
        count = np.arange(1, 17)
        found = strays.by_chance(count, np.full(16, share), chance)
        for launches, most in zip(count.tolist(), found.tolist(), strict=True):
            assert 1 <= most <= launches
            assert more_than(most, launches, share) <= chance
            assert most == 1 or more_than(most - 1, launches, share) > chance

    def test_where_launches_rarely_stray_it_is_one(self):
        assert strays.by_chance(
            np.array([2, 3, 4]), np.full(3, 0.002), 2e-6 * np.array([1, 2, 4])
        ).tolist() == [1, 1, 1]

    @pytest.mark.parametrize("share", [0.002, 0.02, 0.1, 0.5])
    @pytest.mark.parametrize("chance", [2e-6, 8e-5, 0.01])
    def test_fewer_launches_than_the_least_may_all_have_strayed(self, share, chance):
        least = int(strays.least_launches(np.array([share]), chance)[0])
        found = strays.by_chance(np.array([least - 1, least]), np.full(2, share), chance)
        assert found[0] == least - 1
        assert found[1] < least

    def test_without_any_chance_all_may_always_have_strayed(self):
        assert strays.by_chance(np.array([2, 16]), np.full(2, 0.002), 0.0).tolist() == [2, 16]
        assert np.isinf(strays.least_launches(np.array([0.002]), 0.0)).all()


CASES, PAST = 10, 20
OLD = SequentialRule(recurrence=0.99)


def history(*, modes):
    """What quiet cases taught of which all but the first met a mode 8 % away, once on each side, or none did."""
    past = 0.003 * np.random.default_rng(5).standard_normal((CASES, PAST))
    past[1:, :2] += modes * np.array([0.08, -0.08])
    return noise.learn(past, np.full(past.shape, 0.01), np.ones(PAST))


def judged(first, learned, rule, *, others=()):
    """What the rule says of the first case, which had the launches `first`; all others are calm but for `others`."""
    d = np.full((CASES, 16), NAN)
    d[1:, 0] = 0.001
    d[0, : len(first)] = first
    for row, launches in enumerate(others, start=1):
        d[row, : len(launches)] = launches
    ruling = sequential.replay(d, np.full(d.shape, 0.01), learned, rule)
    return int(ruling.code[0]), int(ruling.next_look[0])


def blind(monkeypatch, learned):
    """As if no launch ever strayed."""
    monkeypatch.setattr(sequential, "today", lambda d, _spread: np.zeros((*d.shape[:-2], 1)))
    return replace(learned, excursions=0.0)


class TestPlantedMode:
    MODE = (0.081, 0.079)
    TRUE = (0.047, 0.052, 0.049, 0.046, 0.051, 0.05, 0.048, 0.05)

    def test_two_launches_in_a_mode_that_the_history_knows_wait_for_more(self):
        assert judged(self.MODE, history(modes=True), SequentialRule()) == (Code.OPEN, 3)
        assert judged((*self.MODE, 0.001), history(modes=True), SequentialRule())[0] == Code.OPEN
        assert judged((*self.MODE, 0.001, -0.002), history(modes=True), SequentialRule())[
            0
        ] not in (
            Code.REGRESSED,
            Code.IMPROVED,
        )

    def test_they_passed_for_a_change_before(self, monkeypatch):
        assert judged(self.MODE, blind(monkeypatch, history(modes=True)), OLD)[0] == Code.REGRESSED

    @pytest.mark.parametrize(("side", "code"), [(1, Code.REGRESSED), (-1, Code.IMPROVED)])
    def test_a_true_change_is_found_all_the_same(self, side, code):
        true = [side * one for one in self.TRUE]
        assert judged(true[:2], history(modes=True), SequentialRule())[0] == Code.OPEN
        assert judged(true[:6], history(modes=True), SequentialRule())[0] == code

    def test_where_no_launch_ever_strayed_two_are_enough(self):
        assert judged(self.TRUE[:2], history(modes=False), SequentialRule())[0] == Code.REGRESSED

    def test_modes_that_are_new_today_make_it_wait_as_well(self, monkeypatch):
        others = [[0.001, 0.08, 0.0], [-0.08, 0.001, 0.001]]
        learned = history(modes=False)
        noisy = replace(learned, spread=np.where(np.arange(CASES) == 0, learned.spread, 0.006))
        assert judged(self.MODE, noisy, SequentialRule(), others=others)[0] == Code.OPEN
        assert judged(self.MODE, blind(monkeypatch, noisy), OLD, others=others)[0] == Code.REGRESSED

    def test_needed_says_how_many_launches_can_tell(self):
        d = np.array([[0.03, 0.03]])
        quiet = Learned(
            spread=np.array([0.001]),
            freedom=np.array([20.0]),
            within=np.array([NAN]),
            excursions=0.1,
        )
        rule = SequentialRule(gating=50)
        got = sequential.replay(d, np.full(d.shape, NAN), quiet, rule)
        assert got.needed == strays.least_launches(np.array([0.1]), rule.alpha * 0.4 / 50)


RUNS, EACH = 300, 50


@pytest.fixture(scope="module")
def drawn():
    """Launches of runs of quiet cases of which either arm is 8 % slower in one launch of twenty, and what such launches taught."""
    rng = np.random.default_rng(3)
    shape = (RUNS, EACH, PAST + 16)
    modes = (rng.random(shape) < 0.05) * 1.0 - (rng.random(shape) < 0.05)
    d = 0.004 * rng.standard_normal(shape) + 0.08 * modes
    learned = noise.learn(d[..., :PAST], np.full((RUNS, EACH, PAST), 0.01), np.ones(PAST))
    return d[..., PAST:], learned


class TestManyRuns:
    @staticmethod
    def codes(d, learned, rule):
        return sequential.replay(d, np.full(d.shape, NAN), learned, rule).code

    def test_false_changes_are_rare_on_both_sides(self, drawn):
        codes = self.codes(*drawn, SequentialRule())
        assert np.mean((codes == Code.REGRESSED).any(axis=-1)) <= 0.01
        assert np.mean((codes == Code.IMPROVED).any(axis=-1)) <= 0.01

    def test_they_were_not_before(self, drawn, monkeypatch):
        d, learned = drawn
        monkeypatch.setattr(noise, "MOST_HISTORY", 20.0)
        monkeypatch.setattr(noise, "CONFLICT", math.inf)
        codes = self.codes(d, blind(monkeypatch, learned), OLD)
        assert np.mean((codes == Code.REGRESSED).any(axis=-1)) > 0.03
        assert np.mean((codes == Code.IMPROVED).any(axis=-1)) > 0.03

    def test_a_true_change_is_found(self, drawn):
        d, learned = drawn
        d = d.copy()
        d[:, :5] += math.log(1.05)
        assert np.mean(self.codes(d, learned, SequentialRule())[:, :5] == Code.REGRESSED) > 0.85
