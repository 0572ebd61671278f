"""The scan for steps, against a plain reference; false alarms and power by simulation; properties."""

import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ci_bench.judge.times import trend
from ci_bench.judge.times.trend import EDGE, LEAST, find_steps, scan, threshold, winsorised


def noise(seed, series, points, rho=0.0):
    draws = np.random.Generator(np.random.PCG64(seed)).standard_normal((series, points))
    for point in range(1, points):
        draws[:, point] = rho * draws[:, point - 1] + math.sqrt(1 - rho**2) * draws[:, point]
    return draws


def plain_scan(values):
    """The formula of the module's docstring, word by word, for one series."""
    points, best = len(values), (-1.0, 0)
    for place in range(EDGE, points - EDGE + 1):
        left, right = values[:place], values[place:]
        rest = sum((left - left.mean()) ** 2) + sum((right - right.mean()) ** 2)
        spread = math.sqrt(rest / (points - 2))
        score = abs(left.mean() - right.mean()) / (
            spread * math.sqrt(1 / len(left) + 1 / len(right))
        )
        best = max(best, (score, place))
    score, place = best
    around = np.concatenate(
        [values[:place] - values[:place].mean(), values[place:] - values[place:].mean()]
    )
    rho = sum(around[1:] * around[:-1]) / sum(around**2)
    rho = min(max(rho + 5 * (1 + rho) / points, 0.0), 0.7)
    return score * math.sqrt((1 - rho) / (1 + rho)), place


def plain_winsorised(values):
    """The windows word by word: seven values on either side, but at an end no more than two more inwards than outwards."""
    points, middle = len(values), []
    for at in range(points):
        back, on = min(at, 7), min(points - 1 - at, 7)
        back, on = min(back, on + 2), min(on, back + 2)
        middle.append(np.median(values[at - back : at + on + 1]))
    middle = np.array(middle)
    reach = 2.5 * 1.4826 * np.median(np.abs(values - middle))
    return np.clip(values, middle - reach, middle + reach)


@pytest.mark.parametrize(("points", "unit"), [(20, 1.0), (57, 1.0), (200, 1e-3)])
def test_the_scan_is_the_plain_formula(points, unit):
    table = noise(points, 5, points)
    table[1, points // 2 :] += 2.0
    table *= unit
    found = scan(table)
    for row, values in enumerate(table):
        assert (found.score[row], found.place[row]) == pytest.approx(plain_scan(values))


@pytest.mark.parametrize(
    ("points", "unit"), [*((points, 1.0) for points in range(LEAST, 17)), (60, 1.0), (60, 1e-3)]
)
def test_pulling_in_is_the_plain_formula(points, unit):
    table = noise(3, 4, points)
    table[2, points // 2] += 50.0
    table *= unit
    for pulled, values in zip(winsorised(table), table, strict=True):
        assert pulled == pytest.approx(plain_winsorised(values))


def test_where_most_values_are_their_neighbours_nothing_is_pulled_in():
    mostly_alike = np.array([[3.0] * 9 + [5.0] + [3.0] * 9 + [2.0] + [3.0] * 9])
    assert winsorised(mostly_alike).tolist() == mostly_alike.tolist()


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_at_most_one_null_series_in_a_hundred_shows_a_step(rho):
    shown = [bool(find_steps(values, least=0.0)) for values in noise(11, 300, 400, rho)]
    assert sum(shown) <= 3


def test_most_steps_of_two_standard_deviations_are_seen_after_ten_runs():
    table = noise(12, 120, 410)
    table[:, 400:] += 2.0
    seen = [
        any(abs(step.place - 400) <= 10 for step in find_steps(values, least=0.0))
        for values in table
    ]
    assert sum(seen) >= 102


def test_a_scan_without_its_correction_for_dependence_alarms_falsely(monkeypatch):
    monkeypatch.setattr(trend, "_dependence", lambda residuals: np.ones(len(residuals)))
    assert sum(bool(find_steps(values, least=0.0)) for values in noise(11, 100, 400, 0.6)) > 10


def test_a_threshold_that_is_too_low_alarms_falsely(monkeypatch):
    monkeypatch.setattr(trend, "_THRESHOLDS", tuple(2.5 for _ in trend._THRESHOLDS))
    assert sum(bool(find_steps(values, least=0.0)) for values in noise(11, 100, 400)) > 20


def test_steps_up_and_down_again_are_both_found():
    (values,) = noise(1, 1, 600)
    values[200:400] += 3.0
    assert [
        abs(step.place - place) <= 2
        for step, place in zip(find_steps(values, least=0.0), (200, 400), strict=True)
    ] == [
        True,
        True,
    ]


def test_a_step_far_back_in_a_long_series_is_found():
    (values,) = noise(2, 1, 4_000)
    values[500:] += 2.0
    (step,) = find_steps(values, least=0.0)
    assert abs(step.place - 500) <= 3


def test_one_wild_value_is_no_step():
    (values,) = noise(5, 1, 100)
    values[50] += 1_000.0
    values[97] += 1_000.0
    assert find_steps(values, least=0.0) == ()


@pytest.mark.parametrize("level", [-7.0, 0.0, 7.0])
def test_a_step_smaller_than_what_matters_is_let_be(level):
    (values,) = level + noise(6, 1, 400)
    values[200:] += 1.5
    assert find_steps(values, least=1.0)
    assert find_steps(values, least=2.0) == ()


def test_few_values_late_in_a_series_need_as_strong_a_step_as_on_their_own():
    few = np.resize([1.0, -1.0], 12) + np.repeat([0.0, 4.0], 6)
    assert threshold(72) < scan(few[None]).score[0] < threshold(12)
    assert find_steps(few, least=0.0) == ()
    (step,) = find_steps(np.concatenate([np.resize([1.0, -1.0], 60) - 50.0, few]), least=0.0)
    assert step.place == 60


def test_a_step_is_held_against_half_of_what_a_scan_sees_on_either_side():
    swinging = np.resize([1.0, -1.0], 1_600) + np.repeat([0.0, 0.35], 800)
    (step,) = find_steps(swinging, least=0.0)
    assert step.place == 800
    assert find_steps(swinging[500:1_100], least=0.0) == ()
    assert find_steps(swinging[500:], least=0.0) == ()


CLOSE = [
    7,
    92,
    -82,
    98,
    -1,
    -101,
    -75,
    75,
    -34,
    -28,
    15,
    -46,
    -140,
    33,
    -24,
    210,
    -88,
    105,
    -185,
    21,
    53,
    212,
    -40,
    100,
    6,
    70,
    -93,
    98,
    -103,
    24,
    -102,
    185,
    378,
    60,
    292,
    165,
    129,
    330,
    176,
    186,
    21,
    299,
    196,
    413,
    442,
    528,
    350,
    637,
    591,
    491,
    624,
    624,
    572,
    666,
    763,
    653,
    636,
    806,
    764,
    717,
    958,
    986,
    1042,
    997,
    950,
    1054,
    908,
    1034,
    1351,
    1154,
    1188,
    1273,
    1117,
    1166,
    1179,
    1152,
    1176,
    1325,
    1137,
    1277,
    1326,
    1329,
    1157,
    1160,
    1172,
    1393,
    1239,
    1042,
    1275,
    1045,
    1255,
    1246,
    1168,
    1068,
    1040,
    1218,
    1042,
    1065,
    1370,
    1248,
]
"""A slope in noise that follows itself: of two steps the first turns out to be where the second is."""


def test_a_step_that_turns_out_to_be_where_the_next_one_is_counts_once():
    places = [step.place for step in find_steps(np.array(CLOSE) / 1e4, least=np.log1p(0.01))]
    assert places == [43, 60, 68]


def test_the_fewest_points_can_hold_a_step():
    (step,) = find_steps(np.array([3.0] * (LEAST - EDGE) + [4.0] * EDGE), least=0.0)
    assert step.place == LEAST - EDGE


@pytest.mark.parametrize("points", [0, 1, 5, LEAST - 1])
def test_too_few_points_say_nothing(points):
    assert find_steps(np.arange(points) * 1.0, least=0.0) == ()
    assert threshold(points) == math.inf


def test_values_that_never_change_have_no_step_and_exact_ones_have_theirs():
    assert find_steps(np.full(50, math.log(3.0)), least=0.0) == ()
    (step,) = find_steps(np.array([3.0] * 40 + [4.0] * 10), least=0.0)
    assert step.place == 40
    assert find_steps(np.array([3.0] * 40 + [4.0] * 10), least=1.0) == (step,)
    assert find_steps(np.array([3.0] * 48 + [4.0] * 2), least=2.0) == ()


def test_rounding_is_no_step():
    nearly = np.array([[0.1 + 0.2, 0.3] * 20, [3.0] * 40])
    assert scan(nearly).score.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("points", "stretches"),
    [
        (0, [(0, 0)]),
        (10, [(0, 10)]),
        (800, [(0, 800)]),
        (801, [(1, 801), (0, 800)]),
        (1300, [(500, 1300), (100, 900), (0, 800)]),
        (1600, [(800, 1600), (400, 1200), (0, 800)]),
    ],
)
def test_long_series_are_looked_at_in_stretches_that_overlap_by_half(points, stretches):
    assert trend._overlapping(points) == stretches


@pytest.mark.parametrize(
    ("part", "keeps"),
    [
        ([1.0, 1.0, 1.9], True),
        ([1.0, 1.0, 2.0], False),
        ([1.0, 1.0, 3.0], False),
        ([1.0, 1.0, 2.0, 1.0], True),
    ],
)
def test_the_values_of_a_short_side_are_nearer_to_their_own_level(part, keeps):
    assert trend._keeps(np.array(part), np.array([3.0] * 20)) is keeps


def test_no_scan_sees_more_than_its_bound(monkeypatch):
    seen = []
    monkeypatch.setattr(trend, "scan", lambda values: seen.append(values.shape[1]) or scan(values))
    (values,) = noise(2, 1, 4_000)
    values[1_500:] += 2.0
    assert find_steps(values, least=0.0)
    assert max(seen) == trend.MOST_POINTS


THRESHOLDS = {
    8: 8.36,
    9: 8.98,
    10: 7.85,
    12: 7.27,
    16: 6.40,
    20: 6.02,
    30: 5.40,
    40: 5.12,
    60: 5.00,
    100: 4.82,
    200: 4.78,
    400: 4.72,
}
"""As simulated once; `benchmarks.history_quality --thresholds` tells them again."""


@pytest.mark.parametrize(
    ("points", "score"), [*THRESHOLDS.items(), (800, 4.72), (5000, 4.72), (11, (7.85 + 7.27) / 2)]
)
def test_thresholds_are_those_that_were_simulated(points, score):
    assert threshold(points) == pytest.approx(score, abs=0.02 if points == 11 else 1e-9)


@pytest.mark.parametrize("points", [8, 9, 12])
def test_few_points_of_white_noise_seldom_exceed_them(points):
    scores = scan(
        winsorised(np.random.default_rng(points).standard_normal((100_000, points)))
    ).score
    assert 5 <= np.sum(scores > threshold(points)) <= 40, "twenty are expected"


rows = st.lists(st.floats(-1e6, 1e6), min_size=LEAST, max_size=60).map(np.array)


def around_levels(values, place):
    """The squares that two levels leave, of which the second begins at `place`."""
    return sum(part.var() * len(part) for part in (values[:place], values[place:]))


@settings(max_examples=60, deadline=None)
@example(
    values=np.array([0.0, 0.0, -725971.0, 0.0, 1.6875, 0.0, -15909.0, -710062.0]),
    shift=0.0,
    scale=0.109375,
)
@given(values=rows, shift=st.floats(-1e3, 1e3), scale=st.floats(0.1, 100))
def test_neither_origin_nor_unit_changes_what_is_found(values, shift, scale):
    values = np.round(values, 3)
    one, two = scan(values[None]), scan(values[None] * scale + shift)
    if one.place[0] != two.place[0]:
        assert around_levels(values, one.place[0]) == pytest.approx(
            around_levels(values, two.place[0])
        ), "rounding decides"
    elif np.ptp(values) > 1.0 and np.isfinite(one.score[0]) and one.score[0] < 50:
        assert two.score[0] == pytest.approx(one.score[0], rel=1e-3, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(values=rows)
def test_whatever_comes_places_are_in_order_and_keep_their_distance_from_the_ends(values):
    places = [step.place for step in find_steps(values, least=0.0)]
    assert places == sorted(set(places))
    assert all(EDGE <= place <= len(values) - EDGE for place in places)


@settings(max_examples=40, deadline=None)
@given(values=rows)
def test_backwards_the_strongest_step_is_the_same(values):
    values = np.round(values, 3)
    one, two = scan(values[None]), scan(values[None, ::-1])
    if np.ptp(values) > 1.0 and np.isfinite(one.score[0]) and one.score[0] < 50:
        assume(
            two.place[0] == len(values) - one.place[0]
        )  # where two places fit equally well, each way takes its first
        assert two.score[0] == pytest.approx(one.score[0], rel=1e-6)
