"""Ratios and their intervals: hand-computed values, coverage, symmetry, and input that carries no interval."""

import math
import random
from itertools import pairwise
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import launches, sampled
from scipy.special import ndtr

from ci_bench.judge.times import ratios
from ci_bench.judge.times.ratios import describe
from ci_bench.records.results import Launch


def ratio_of(one, two, *, paired=False):
    return ratios.ratios([(one, two)], describe((one, two)), paired=paired)[0]


def test_t_quantile_agrees_with_the_printed_table():
    assert ratios.t_quantile(0.975, 2) == pytest.approx(4.3027, abs=1e-4)
    assert ratios.t_quantile(0.995, 10) == pytest.approx(3.1693, abs=1e-4)


def test_ratio_is_that_of_the_medians():
    ratio = ratio_of(sampled(2.0), sampled(1.0))
    assert ratio.value == pytest.approx(2.0)
    assert ratio.interval.low < 2 < ratio.interval.high
    assert ratio.interval.level == 0.95


def test_interval_covers_differences_between_launches_and_not_only_within():
    calm = ratio_of(sampled(1.0), sampled(1.0)).interval
    jumping = launches(*([x * jump for x in (0.99, 1.0, 1.01)] for jump in (0.8, 1.0, 1.25)))
    wide = ratio_of(jumping, sampled(1.0)).interval
    assert wide.low < 0.82
    assert wide.high > 1.2
    assert calm.high - calm.low < 0.03


def bootstrapped(values, reach, resamples=1000):
    """How far the percentile interval of the median reaches, by drawing launches and then samples: the plain way."""
    rng = np.random.default_rng(1)
    picks = rng.integers(len(values), size=(resamples, len(values)))
    drawn = [
        np.concatenate([rng.choice(values[pick], len(values[pick])) for pick in row])
        for row in picks
    ]
    medians = np.array([np.median(one) for one in drawn])
    share = ndtr(reach)
    middle = np.median(np.concatenate(values))
    return middle - np.quantile(medians, 1 - share), np.quantile(medians, share) - middle


@pytest.mark.parametrize("sizes", [(16,) * 3, (16,) * 6, (20, 12, 16, 9), (40, 40)])
@pytest.mark.parametrize("between", [0.0, 1.0, 3.0])
def test_bounds_of_a_median_are_those_of_a_hierarchical_bootstrap(sizes, between):
    rng = np.random.default_rng(sum(sizes))
    down, up = [], []
    for _ in range(6):
        values = [between * rng.standard_normal() + rng.standard_normal(size) for size in sizes]
        bounds, plain = (
            ratios._median_bounds(np.concatenate(values)[None], sizes, 1.96),
            bootstrapped(values, 1.96),
        )
        down.append(bounds[0][0] / plain[0])
        up.append(bounds[1][0] / plain[1])
    assert np.median([*down, *up]) == pytest.approx(1.0, abs=0.15)
    assert np.mean(np.abs(np.log([*down, *up])) < 0.6) >= 0.9


def test_bounds_never_leave_the_samples():
    flat = np.array([[1.0, 2.0, 3.0, 11.0, 12.0, 13.0]])
    (down,), (up,) = ratios._median_bounds(flat, (3, 3), 50.0)
    assert (7 - down, 7 + up) == (1.0, 13.0)


def written_out(row, lengths, reach):
    """The bounds of `_median_bounds` for one row, sample by sample, as its docstring has them."""
    edges = [sum(lengths[:place]) for place in range(len(lengths) + 1)]
    every = [
        (value, launch, rank)
        for launch, (at, to) in enumerate(pairwise(edges))
        for rank, value in enumerate(sorted(row[at:to]))
    ]
    every.sort(key=lambda one: one[0])
    half, z = len(row) / 2, []
    for place, (_, own, rank) in enumerate(every):
        below = [
            sum(launch == number for _, launch, _ in every[:place])
            for number in range(len(lengths))
        ]
        x = [rank + 0.5 if number == own else count for number, count in enumerate(below)]
        mean = place + 0.5 - half
        c = [count - size / 2 for count, size in zip(x, lengths, strict=True)]
        inside = sum(count * (1 - count / size) for count, size in zip(x, lengths, strict=True))
        variance = inside + sum(value**2 for value in c) - sum(c) ** 2 / len(lengths)
        z.append(max([mean / math.sqrt(max(variance, 1e-300)), *z[-1:]]))
    values, middle = [value for value, _, _ in every], median(row)
    return [
        max(0.0, middle - crossing(z, values, -reach)),
        max(0.0, crossing(z, values, reach) - middle),
    ]


def crossing(z, values, target):
    after = sum(figure < target for figure in z)
    last = len(z) - 1
    if after == 0 or after > last or z[after] <= z[after - 1]:
        return values[min(after, last)]
    share = (target - z[after - 1]) / (z[after] - z[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])


@pytest.mark.parametrize("lengths", [(16, 16, 16), (20, 20), (5, 9, 7), (16, 16, 15), (3, 3)])
@pytest.mark.parametrize("decimals", [9, 2])
def test_bounds_are_those_of_the_formula_for_launches_of_one_size_or_several_and_with_equal_samples(
    lengths, decimals
):
    rows = np.round(
        np.random.default_rng(sum(lengths)).normal(0, 0.05, (40, sum(lengths))), decimals
    )
    found = np.transpose(ratios._median_bounds(rows, lengths, 1.7))
    assert found == pytest.approx(
        np.array([written_out(row.tolist(), lengths, 1.7) for row in rows]), abs=1e-12
    )


@pytest.mark.parametrize("kinds", [2**40, 9, 1])
def test_equal_samples_stay_in_the_order_of_their_launches(kinds):
    values = np.random.default_rng(3).integers(0, kinds, (50, 60)).astype(np.float64)
    order, ranked = ratios._in_order(values)
    assert order.tolist() == [sorted(range(60), key=row.__getitem__) for row in values.tolist()]
    assert ranked.tolist() == [sorted(row) for row in values.tolist()]


def test_many_pairs_at_once_are_judged_as_each_alone():
    pairs = [(sampled(1 + i / 10), sampled(1.0, count=2 + i % 3)) for i in range(12)]
    pairs += [(launches([i + 1.0], [i + 1.5]), launches([1.0], [2.0], [1.5])) for i in range(3)]
    pairs += [((), sampled(1.0)), (launches([1.0]), launches([2.0]))]
    known = describe(series for pair in pairs for series in pair)
    for paired in (False, True):
        assert ratios.ratios(pairs, known, paired=paired) == [
            ratio_of(*pair, paired=paired) for pair in pairs
        ]


@pytest.mark.parametrize(
    ("width", "parts"), [(3, [2, 2, 1]), (4, [1] * 5), (7, [1] * 5), (1000, [1] * 5), (1, [5])]
)
def test_parts_hold_as_many_pairs_as_the_bound_allows_and_one_at_least(monkeypatch, width, parts):
    monkeypatch.setattr(ratios, "_MOST_AT_ONCE", 7)
    assert [len(part) for part in ratios._parts(list(range(5)), width)] == parts


def test_a_part_of_bounded_size_changes_nothing(monkeypatch):
    pairs = [(sampled(1 + i / 10), sampled(1.0)) for i in range(5)]
    known = describe(series for pair in pairs for series in pair)
    whole = ratios.ratios(pairs, known)
    monkeypatch.setattr(ratios, "_MOST_AT_ONCE", 1)
    assert ratios.ratios(pairs, known) == whole


def test_interval_covers_the_truth_about_as_often_as_known_for_three_launches():
    rng = random.Random(1)

    def side():
        shifts = [rng.gauss(0, 0.01) for _ in range(3)]
        return launches(
            *([math.exp(shift + rng.gauss(0, 0.01)) for _ in range(12)] for shift in shifts)
        )

    covered = sum((r := ratio_of(side(), side()).interval).low <= 1 <= r.high for _ in range(300))
    assert 0.88 <= covered / 300 <= 0.99


def test_paired_interval_covers_the_truth_about_as_often_as_it_says():
    rng = random.Random(2)

    def sides():
        shared = [rng.gauss(0, 0.05) for _ in range(3)]
        own = [[rng.gauss(0, 0.01) for _ in range(3)] for _ in range(2)]
        return tuple(
            launches(
                *(
                    [math.exp(a + b + rng.gauss(0, 0.01)) for _ in range(12)]
                    for a, b in zip(shared, side, strict=True)
                )
            )
            for side in own
        )

    covered = sum(
        (r := ratio_of(*sides(), paired=True).interval).low <= 1 <= r.high for _ in range(300)
    )
    assert 0.88 <= covered / 300 <= 0.99


def test_pairing_cancels_what_the_launches_share():
    jumps = (0.8, 1.0, 1.25)
    one, two = (
        launches(*([scale * jump * x for x in (0.99, 1.0, 1.01)] for jump in jumps))
        for scale in (1.1, 1.0)
    )
    paired, apart = ratio_of(one, two, paired=True).interval, ratio_of(one, two).interval
    assert paired.low > 1.05
    assert apart.low < 0.9


def test_pairing_needs_the_same_launches():
    other = tuple(Launch(launch=one.launch + 7, values=one.values) for one in sampled(1.0))
    assert ratio_of(sampled(1.1), other, paired=True) == ratio_of(sampled(1.1), other)


def test_one_value_per_launch_takes_welchs_interval():
    one, two = launches([1.0], [1.1], [1.2]), launches([2.0], [2.1])
    logs = [[math.log(x) for x in side] for side in ((1.0, 1.1, 1.2), (2.0, 2.1))]
    means = [sum(side) / len(side) for side in logs]
    parts = [
        sum((x - mean) ** 2 for x in side) / (len(side) - 1) / len(side)
        for side, mean in zip(logs, means, strict=True)
    ]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2)
    half = ratios.t_quantile(0.975, freedom) * math.sqrt(sum(parts))
    ratio = ratio_of(one, two)
    assert ratio.value == pytest.approx(1.1 / 2.05)
    assert ratio.interval.high / ratio.value == pytest.approx(math.exp(half))


def test_single_values_that_never_differ_have_an_interval_without_width():
    ratio = ratio_of(launches([6.0], [6.0]), launches([2.0], [2.0], [2.0]))
    assert (ratio.interval.low, ratio.interval.high) == (pytest.approx(3.0), pytest.approx(3.0))


def test_one_value_per_launch_paired_takes_differences():
    ratio = ratio_of(launches([2.0], [4.0], [8.0]), launches([1.0], [2.0], [4.0]), paired=True)
    assert (ratio.interval.low, ratio.interval.high) == (pytest.approx(2.0), pytest.approx(2.0))


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [
        (sampled(1.0, count=1), sampled(1.0), "1 launch of 3 samples is too little"),
        (launches([1.0]), launches([1.0]), "at least 2 launches on each side"),
        (launches([1, 2]), sampled(1.0), "1 launch is too little"),
        (launches([1, 2], []), launches([1, 2], [1, 2]), "1 launch is too little"),
    ],
)
def test_too_few_samples_give_a_ratio_without_interval(one, two, reason):
    ratio = ratio_of(one, two)
    assert ratio.value is not None
    assert ratio.interval is None
    assert reason in ratio.reason


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (launches([1, 2], [1.1, 2.2]), launches([1, 2, 3], [1, 2, 3])),
        (launches([1, 2, 3], [1]), launches([2], [2.2])),
        (sampled(1.0), launches([1], [2], [3])),
    ],
)
def test_launches_of_few_samples_count_by_their_medians(one, two):
    def medians(series):
        return launches(*([median(launch.values)] for launch in series))

    found, expected = ratio_of(one, two).interval, ratio_of(medians(one), medians(two)).interval
    assert (found.low, found.high) == (
        pytest.approx(expected.low, rel=0.1),
        pytest.approx(expected.high, rel=0.1),
    )


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        ((), "no samples"),
        (launches([], []), "no samples"),
        (launches([1, math.nan, 1], [1, 1, 1]), "not a finite"),
        (launches([1, math.inf, 1], [1, 1, 1]), "not a finite"),
        (launches([1, 1e308, 1], [1, 1, 1]), "not a finite"),
        (launches([1, 0, 1], [1, 1, 1]), "impossible sample 0"),
        (launches([1, -1, 1], [1, 1, 1]), "impossible sample -1"),
    ],
)
def test_malformed_series_give_nothing_but_a_reason(series, reason):
    for ratio in (ratio_of(series, sampled(1.0)), ratio_of(sampled(1.0), series)):
        assert ratio.value is None
        assert ratio.interval is None
        assert reason in ratio.reason


@pytest.mark.parametrize(
    "series", [(), launches([1, math.nan, 1]), launches([1, 0, 1]), launches([1, -1, 1])]
)
def test_no_ratio_of_medians_with_an_unusable_side(series):
    good = sampled(1.0)
    known = describe([series, good])
    assert ratios.ratio_of_medians(known[id(series)], known[id(good)]) is None
    assert ratios.ratio_of_medians(known[id(good)], known[id(series)]) is None


def test_huge_series_are_thinned():
    series = launches(*([1 + (i * 7 % 100) / 1000 for i in range(5000)] for _ in range(40)))
    ratio = ratio_of(series, sampled(1.0))
    assert ratio.interval.low <= ratio.value <= ratio.interval.high


def test_extreme_ratios_stay_finite():
    ratio = ratio_of(launches([1e299] * 3, [1e299] * 3), launches([5e-324] * 3, [5e-324] * 3))
    assert 0 < ratio.interval.low <= ratio.value <= ratio.interval.high < math.inf


samples = st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=5)
series = st.lists(samples, min_size=2, max_size=3).map(lambda groups: launches(*groups))


@settings(max_examples=40, deadline=None)
@given(one=series, two=series, paired=st.booleans())
def test_swapping_sides_inverts_the_interval(one, two, paired):
    forth, back = ratio_of(one, two, paired=paired), ratio_of(two, one, paired=paired)
    assert forth.interval.low <= forth.value <= forth.interval.high
    assert forth.value == pytest.approx(1 / back.value)
    assert forth.interval.low == pytest.approx(1 / back.interval.high)
    assert forth.interval.high == pytest.approx(1 / back.interval.low)
