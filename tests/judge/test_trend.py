"""What a series says: which way is worse, what is open, what has recovered, what is the new normal."""

import math

import numpy as np
import pytest

from ci_bench.judge.times.trend import RECENT, Move, TrendStep, look, worsening
from ci_bench.records.results import Better

LOWER, HIGHER = Better.LOWER, Better.HIGHER


def series(*stretches, seed=0, spread=0.002):
    """Values around a level for so many runs, one stretch after the other."""
    levels = np.concatenate([np.full(runs, level) for level, runs in stretches])
    return (
        levels
        * np.exp(spread * np.random.Generator(np.random.PCG64(seed)).standard_normal(len(levels)))
    ).tolist()


def alarm(values, better=LOWER, **options):
    return look(values, better=better, **{"least": 0.01, **options}).alarm


@pytest.mark.parametrize(("better", "sign"), [(LOWER, 1), (HIGHER, -1)])
def test_which_way_is_worse_is_the_metrics_own(better, sign):
    up = look(series((1.0, 50), (1.1, 20)), better=better, least=0.01)
    (move,) = up.moves
    assert move.place == 50
    assert move.worse == pytest.approx(sign * 0.1, abs=0.01)
    assert (up.alarm is not None) == (sign > 0)
    assert up.levels == pytest.approx((1.0, 1.1), rel=0.005)
    assert up.noise == pytest.approx(0.002, rel=0.5)


def test_an_alarm_waits_for_the_third_run():
    values = series((1.0, 50), (1.1, 3))
    assert alarm(values[:-1]) is None
    assert alarm(values).place == 50


def test_what_has_recovered_is_no_alarm():
    assert alarm(series((1.0, 50), (1.1, 10))) is not None
    assert alarm(series((1.0, 50), (1.1, 10), (1.0, 10))) is None
    assert alarm(series((1.0, 50), (1.1, 10), (1.05, 10))).place == 50, "half of it is still open"


def test_what_got_worse_long_ago_is_the_new_normal():
    assert alarm(series((1.0, 50), (1.1, RECENT))) is not None
    assert alarm(series((1.0, 50), (1.1, RECENT + 1))) is None
    assert alarm(series((1.0, 50), (1.1, 60)), recent=50) is None
    assert RECENT == 100


def test_two_moves_for_the_worse_give_the_first():
    assert alarm(series((1.0, 50), (1.1, 20), (1.2, 20))).place == 50


def test_a_move_smaller_than_what_matters_is_none():
    assert alarm(series((1.0, 100), (1.008, 50))) is None
    assert alarm(series((1.0, 100), (1.008, 50)), least=0.005) is not None
    below_zero = look([-100.0] * 30 + [-99.5] * 30, better=LOWER, least=0.01)
    assert (below_zero.moves, below_zero.alarm) == ((), None)


@pytest.mark.parametrize("better", [LOWER, HIGHER])
@pytest.mark.parametrize(("before", "after"), [(2, 3), (2, 5), (5, 2), (3, 2), (10, 11), (-4, -3)])
def test_a_move_of_just_what_matters_is_one(before, after, better):
    least = abs(after - before) / abs(before)
    found = look([before] * 30 + [after] * 30, better=better, least=least)
    assert [abs(move.worse) for move in found.moves] == [least]
    assert (found.alarm is not None) == ((after > before) == (better is LOWER))


def test_counts_are_compared_as_they_are():
    assert alarm([3] * 30 + [4] * 3, least=0.0).worse == pytest.approx(1 / 3)
    assert alarm([0] * 30 + [1] * 4, least=0.0).worse == math.inf
    assert alarm([0] * 30 + [1] * 2, least=0.0) is None
    assert alarm([0] * 40, least=0.0) is None
    assert alarm([0] * 30 + [0.25] * 4, least=0.01).after == 0.25


def test_a_slow_drift_is_noticed_and_called_one():
    rng = np.random.Generator(np.random.PCG64(4))
    values = np.exp(0.002 * rng.standard_normal(90) + np.linspace(0, 0.05, 90)).tolist()
    found = look(values, better=LOWER, least=0.01)
    assert found.alarm is not None
    assert [move.until is not None for move in found.moves] == [True]


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0]])
def test_short_series_say_nothing(values):
    found = look(values, better=LOWER, least=0.01)
    assert (found.moves, found.alarm) == ((), None)


def test_a_single_run_or_none_shows_no_noise():
    assert [look(values, better=LOWER, least=0.01).noise for values in ([], [3.0])] == [0.0, 0.0]


def test_worsening_is_relative_and_signed():
    assert worsening(2.0, 3.0, LOWER) == 0.5
    assert worsening(2.0, 3.0, HIGHER) == -0.5
    assert worsening(0.0, 3.0, LOWER) == math.inf
    assert worsening(0.0, 0.0, LOWER) == 0.0


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_changes_nothing(unit):
    values = series((1.0, 50), (1.1, 20), seed=3)
    plain, other = (
        look([value * by for value in values], better=LOWER, least=0.01) for by in (1.0, unit)
    )
    assert [move.place for move in plain.moves] == [move.place for move in other.moves] == [50]
    assert other.moves[0].score == pytest.approx(plain.moves[0].score)
    assert other.noise == pytest.approx(plain.noise)


def test_noise_around_zero_is_that_of_the_values_themselves():
    assert look([-1.0, 1.0, 0.0] * 10, better=LOWER, least=0.0).noise == pytest.approx(1.4826)


def test_levels_are_medians_of_all_values_of_their_stretch():
    assert look([1.0, 2.0], better=LOWER, least=0.0).levels == (1.5,)
    assert look([1.0, 3.0, 2.0] + [9.0] * 40, better=LOWER, least=0.0).levels == (2.0, 9.0)


def test_a_move_goes_from_the_level_before_to_the_one_after():
    moves = look([1.0] * 30 + [2.0] * 30 + [5.0] * 30, better=LOWER, least=0.01).moves
    assert [(move.before, move.after, move.worse) for move in moves] == [
        (1.0, 2.0, 1.0),
        (2.0, 5.0, 1.5),
    ]


@pytest.mark.parametrize(
    ("before", "after", "worse", "per_run"),
    [
        (4.0, 1.0, -0.75, -0.5),
        (1.0, 4.0, 3.0, 1.0),
        (-1.0, 4.0, 3.0, 1.5),
        (0.0, 4.0, math.inf, math.inf),
    ],
)
def test_of_a_drift_one_run_is_a_factor_where_there_is_one(before, after, worse, per_run):
    assert Move(
        place=5, before=before, after=after, worse=worse, score=9.0, until=6
    ).per_run == pytest.approx(per_run)


def test_only_a_drift_rises_by_what_was_fitted():
    assert TrendStep(place=3, score=9.0, until=9, levels=(1.5, 4.0)).rise == 2.5
    assert TrendStep(place=3, score=9.0).rise == 0.0
