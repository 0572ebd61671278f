"""A drift is said where a slope explains clearly more than steps do, with its ends and its pace; steps stay steps."""

import itertools

import numpy as np
import pytest
from scipy.optimize import curve_fit

from ci_bench.judge.times import drifts, trend
from ci_bench.judge.times.drifts import LEAST_RUNS, evidence_for, fit_ramp
from ci_bench.judge.times.trend import find_steps, look, with_drifts
from ci_bench.records.results import Better

NOISE = 0.01


def noise(points, seed=1, series=1, rho=0.0):
    draws = np.random.Generator(np.random.PCG64(seed)).standard_normal((series, points))
    for point in range(1, points if rho else 0):
        draws[:, point] = rho * draws[:, point - 1] + np.sqrt(1 - rho**2) * draws[:, point]
    return NOISE * draws


def slope(points, first, last, rise):
    return rise * np.clip((np.arange(points) - first) / (last - first), 0, 1)


def steps(points, *places, size=0.03):
    return sum((size * (np.arange(points) >= place) for place in places), np.zeros(points))


def share(levels, *, rho=0.0, series=300, seed=2):
    """Of how many series with these levels a drift is said."""
    least = np.log1p(0.01)
    every = levels + noise(len(levels), seed, series, rho)
    return np.mean(
        [
            any(
                step.until is not None
                for step in with_drifts(row, find_steps(row, least=least), least=least)
            )
            for row in every
        ]
    )


@pytest.mark.parametrize("rho", [0.0, 0.4])
@pytest.mark.parametrize(
    "levels",
    [
        steps(20),
        steps(40),
        steps(100),
        steps(60, 30),
        steps(100, 60, size=0.10),
        steps(100, 40, 60),
        steps(200, 95, 105),
        steps(100, 40, 60, size=0.10),
    ],
    ids=[
        "nothing, 20",
        "nothing, 40",
        "nothing, 100",
        "a step",
        "a large step",
        "two steps",
        "two close steps",
        "two large steps",
    ],
)
def test_of_steps_and_of_noise_at_most_one_series_in_a_hundred_shows_a_drift(levels, rho):
    assert share(levels, rho=rho) <= 0.01


@pytest.mark.parametrize(
    "levels",
    [
        slope(40, 0, 39, 0.117),
        slope(60, 10, 50, 0.12),
        slope(100, 30, 70, 0.12),
        slope(400, 0, 399, -0.1),
    ],
    ids=["all of the runs", "most of them", "some of them", "downwards"],
)
def test_of_slow_drifts_most_series_show_one(levels):
    assert share(levels, series=100) >= 0.9


def test_without_the_evidence_that_it_takes_steps_would_be_called_drifts(monkeypatch):
    for module in (drifts, trend):
        monkeypatch.setattr(module, "EVIDENCE", -20.0)
    assert share(steps(100, 40, 60)) > 0.1


def test_beside_one_step_alone_two_would_be_called_a_drift(monkeypatch):
    """The rival that fits best is what keeps two steps, of which only one was found, from being a slope."""
    levels = steps(60, 24, 36, size=0.02)
    held = share(levels)
    monkeypatch.setattr(
        drifts, "_two_places", lambda values: (len(values) // 3, 2 * len(values) // 3 + 9)
    )
    assert held <= 0.01 < share(levels)


def test_the_ramp_is_that_of_least_squares():
    for seed in range(5):
        values = slope(30, 8, 22, 0.1) + noise(30, seed)[0]
        ramp = fit_ramp(values)
        squares = np.inf
        for first, last in itertools.combinations(range(30), 2):
            if last - first >= LEAST_RUNS:
                shape = np.clip((np.arange(30) - first) / (last - first), 0, 1)
                found, _ = curve_fit(lambda at, level, rise: level + rise * at, shape, values)
                squares = min(squares, float(np.sum((values - found[0] - found[1] * shape) ** 2)))
        assert np.sum((values - ramp.along(30)) ** 2) == pytest.approx(squares)


def test_the_two_steps_are_those_of_least_squares():
    values = steps(24, 8, 15) + noise(24)[0]
    best = min(
        ((first, second) for first in range(3, 19) for second in range(first + 3, 22)),
        key=lambda places: sum(part.var() * len(part) for part in np.split(values, places)),
    )
    assert drifts._two_places(values) == best


def test_what_is_exact_is_called_by_its_name():
    line, step = slope(40, 10, 30, 0.2), steps(40, 20)
    for values, places, wins in ((line, [20], True), (step, [20], False)):
        assert (
            evidence_for(fit_ramp(values), values, places, independent=40.0) > drifts.EVIDENCE
        ) is wins


def test_too_few_runs_hold_no_drift():
    assert fit_ramp(np.arange(LEAST_RUNS, dtype=np.float64)) is None
    assert fit_ramp(np.arange(LEAST_RUNS + 1, dtype=np.float64)) is not None


@pytest.mark.parametrize(("better", "sign"), [(Better.LOWER, 1), (Better.HIGHER, -1)])
def test_a_drift_says_from_where_to_where_over_which_runs_and_how_fast(better, sign):
    values = 0.01 * np.exp(0.2 * noise(100)[0]) * 1.003 ** np.clip(np.arange(100) - 30, 0, 40)
    found = look(values.tolist(), better=better, least=0.01)
    (move,) = found.moves
    assert move.place == pytest.approx(31, abs=3)
    assert move.until == pytest.approx(70, abs=3)
    assert (move.before, move.after) == (
        pytest.approx(0.01, rel=0.003),
        pytest.approx(0.01 * 1.003**40, rel=0.003),
    )
    assert move.per_run == pytest.approx(sign * 0.003, rel=0.1)
    assert move.runs == move.until - move.place + 1
    assert (found.alarm is move) is (sign > 0)
    assert found.noise == pytest.approx(0.002, rel=0.4), "the slope is no noise"
    assert found.levels == pytest.approx((move.before, move.after))


def test_a_drift_over_all_runs_has_the_levels_that_were_fitted():
    values = 1.003 ** np.arange(40) * np.exp(0.1 * noise(40)[0])
    (move,) = look(values.tolist(), better=Better.LOWER, least=0.01).moves
    assert move.worse == pytest.approx(1.003**39 - 1, abs=0.01)
    assert move.per_run == pytest.approx(0.003, rel=0.1)


def test_a_drift_is_open_until_long_after_its_end():
    rising = 1.003 ** np.clip(np.arange(200) - 20, 0, 40) * np.exp(0.1 * noise(200)[0])
    for runs, is_open in ((150, True), (200, False)):
        found = look(rising[:runs].tolist(), better=Better.LOWER, least=0.01)
        assert [move.until is not None for move in found.moves] == [True]
        assert (found.alarm is not None) is is_open


def test_a_step_beside_a_drift_stays_a_step():
    levels = slope(120, 10, 60, 0.12) + steps(120, 90, size=0.10)
    moves = look(
        np.exp(levels + 0.3 * noise(120)[0]).tolist(), better=Better.LOWER, least=0.01
    ).moves
    assert [move.until is not None for move in moves] == [True, False]
    assert moves[1].place == 90
    assert moves[0].after == moves[1].before


def test_a_drift_below_what_matters_is_none():
    values = np.exp(slope(100, 10, 90, 0.009) + 0.05 * noise(100)[0]).tolist()
    assert look(values, better=Better.LOWER, least=0.01).moves == ()
    assert look(values, better=Better.LOWER, least=0.005).moves != ()


@pytest.mark.parametrize(
    "values", [np.linspace(-1.0, 1.0, 40), np.arange(40.0)], ids=["through zero", "from zero"]
)
def test_a_drift_of_what_may_be_zero_or_less_has_a_pace_too(values):
    (move,) = look(values.tolist(), better=Better.LOWER, least=0.01).moves
    assert move.until is not None
    assert move.worse > 0
    assert move.per_run == pytest.approx(move.worse / move.runs)


@pytest.mark.parametrize("points", [9, 10, 17])
def test_two_steps_are_the_pair_of_least_squares_with_three_values_to_each_level(points):
    def squares(values, places):
        return sum(float(((part - part.mean()) ** 2).sum()) for part in np.split(values, places))

    pairs = [
        pair for pair in itertools.combinations(range(3, points - 2), 2) if pair[1] - pair[0] >= 3
    ]
    taken = set()
    for seed, levels in enumerate(
        (
            steps(points, 3, 6),
            steps(points, 3, points - 3),
            steps(points),
            -steps(points, points - 3),
        )
    ):
        for values in 5.0 + levels + noise(points, seed, series=20):
            found = drifts._two_places(values)
            assert found == min(pairs, key=lambda pair: squares(values, pair))
            taken.add(found)
    assert (3, points - 3) in taken


def test_a_ramp_is_the_one_of_least_squares_wherever_it_begins():
    points = 16
    for seed, levels in enumerate(
        (slope(points, 0, 8, 0.1), slope(points, 7, 15, 0.1), slope(points, 3, 13, -0.1))
    ):
        for values in 2.0 + levels + noise(points, seed, series=10):
            ramp = fit_ramp(values)
            left = {}
            for start, stop in itertools.combinations(range(points), 2):
                if stop - start >= LEAST_RUNS:
                    share = np.clip((np.arange(points) - start) / (stop - start), 0, 1)
                    design = np.stack([np.ones(points), share], axis=1)
                    left[start, stop] = float(np.linalg.lstsq(design, values, rcond=None)[1][0])
            assert (ramp.start, ramp.stop) == min(left, key=left.__getitem__)
            assert float(np.sum((values - ramp.along(points)) ** 2)) == pytest.approx(
                min(left.values())
            )
