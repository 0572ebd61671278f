"""How much a history counts today: a few launches, and less where launches contradict it."""

import math

import numpy as np
import pytest

from ci_bench.judge.times import noise

CASES = 12


def worth(scatter, *, freedom=20.0, count=5):
    """Of cases whose launches scatter so many times as widely as their history says."""
    scatter = np.asarray(scatter, dtype=float)
    squares, launches = scatter**2 * (count - 1), np.full(scatter.shape, count)
    return noise.worth_today(
        squares, launches, np.ones(scatter.shape), np.full(scatter.shape, freedom)
    )


@pytest.mark.parametrize(("freedom", "own", "more"), [(20.0, 6, 6), (8.0, 6, 2), (5.0, 5, 0)])
def test_counts_six_and_twelve_at_most(freedom, own, more):
    got = worth(np.ones(CASES), freedom=freedom)
    assert (got[0].tolist(), got[1].tolist()) == ([own] * CASES, [more] * CASES)


@pytest.mark.parametrize(
    ("wide", "own", "more"), [(1, 6, 6), (2, 4, 4), (3, 2, 2), (4, 1, 1), (9, 1, 1)]
)
def test_several_contradictions_lessen_all_others(wide, own, more):
    got = worth([3.01] * wide + [1.0] * (CASES - wide))
    assert (got[0][wide:].tolist(), got[1][wide:].tolist()) == (
        [own] * (CASES - wide),
        [more] * (CASES - wide),
    )


def test_a_contradicted_history_counts_one_launch():
    own, more = worth([3.01, 2.99] + [1.0] * (CASES - 2))
    assert (own[:2].tolist(), more[:2].tolist()) == ([1, 6], [0, 6])


def test_one_case_in_a_hundred_may_contradict_by_chance():
    assert worth([3.01, 3.01] + [1.0] * 98)[0][2:].tolist() == [6] * 98
    assert worth([3.01, 3.01] + [1.0] * 97)[0][2:].tolist() == [4] * 97


def test_single_launches_contradict_nothing():
    own, _ = noise.worth_today(np.zeros(2), np.array([1, 0]), np.ones(2), np.full(2, 20.0))
    assert own.tolist() == [6, 6]


def test_runs_are_each_by_themselves():
    scatter = np.ones((2, CASES))
    scatter[1, :4] = 5.0
    assert worth(scatter)[0].tolist() == [[6] * CASES, [1] * CASES]


def test_without_a_history_it_is_worth_nothing_known():
    own, more = noise.worth_today(
        np.ones(2), np.full(2, 3), np.array([math.nan, 1.0]), np.array([math.nan, 20.0])
    )
    assert math.isnan(own[0])
    assert (own[1], more.tolist()) == (6, [0.0, 6.0])
