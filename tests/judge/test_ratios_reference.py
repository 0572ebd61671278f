"""Intervals of ratios against the formulas of their docstrings, written out sample by sample."""

import math
import statistics
from itertools import chain

import numpy as np
import pytest
from judge_builders import launches

from ci_bench.judge.times import ratios
from ci_bench.judge.times.ratios import describe

SHAPES = [
    ((3, 3), (3, 3)),
    ((5, 3, 4), (4, 4)),
    ((7, 8), (3, 3, 3, 6)),
    ((16,) * 4, (9,) * 4),
    ((4, 4, 4), (4, 4, 4)),
]


def sides(shapes, seed):
    rng = np.random.default_rng(seed)
    return [
        [np.exp(rng.normal(0, 0.3) + rng.normal(0, 0.2, size)).tolist() for size in side]
        for side in shapes
    ]


def interval(one, two, *, paired=False):
    pair = launches(*one), launches(*two)
    found = ratios.ratios([pair], describe(pair), paired=paired)[0].interval
    return found.low, found.high


def logs(side):
    return [[math.log(value) for value in launch] for launch in side]


def plain_bounds(side, reach):
    """How far down and up: ``x_i`` samples of launch i lie below each value, the value itself counted half."""
    every = sorted(
        (value, i, rank)
        for i, launch in enumerate(side)
        for rank, value in enumerate(sorted(launch))
    )
    z = []
    for place, (_, own, _) in enumerate(every):
        below = [
            sum(i == launch for _, i, _ in every[:place]) + (0.5 if launch == own else 0.0)
            for launch in range(len(side))
        ]
        apart = [x - len(launch) / 2 for x, launch in zip(below, side, strict=True)]
        within = sum(x * (1 - x / len(launch)) for x, launch in zip(below, side, strict=True))
        variance = within + sum(c**2 for c in apart) - sum(apart) ** 2 / len(side)
        z.append(max([sum(apart) / math.sqrt(variance), *z[-1:]]))
    values = [value for value, _, _ in every]
    middle = statistics.median(values)
    ends = [np.interp(target, z, values) for target in (-reach, reach)]
    return middle - ends[0], ends[1] - middle


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_apart_is_the_closed_form(shapes, seed):
    one, two = sides(shapes, seed)
    reach = ratios.t_quantile(0.975, len(one) + len(two))
    (down, up), (other_down, other_up) = (plain_bounds(logs(side), reach) for side in (one, two))
    centre = math.log(statistics.median(chain(*one)) / statistics.median(chain(*two)))

    wanted = (
        math.exp(centre - math.hypot(down, other_up)),
        math.exp(centre + math.hypot(up, other_down)),
    )
    assert interval(one, two) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(
    "shapes", [((3, 3), (3, 3)), ((5, 3, 4), (4, 4, 7)), ((16,) * 4, (9,) * 4)]
)
def test_in_turns_is_students_around_the_differences_of_launches(shapes):
    one, two = sides(shapes, 4)
    parts = [
        [(statistics.median(launch), error(launch)) for launch in logs(side)] for side in (one, two)
    ]
    differences = [a - b for (a, _), (b, _) in zip(*parts, strict=True)]
    inside = statistics.fmean(a**2 + b**2 for (_, a), (_, b) in zip(*parts, strict=True))
    number = len(differences)
    half = ratios.t_quantile(0.975, number + 1) * math.sqrt(
        (statistics.pvariance(differences) + inside) / number
    )

    middle = statistics.fmean(differences)
    value = statistics.median(chain(*one)) / statistics.median(chain(*two))
    wanted = min(math.exp(middle - half), value), max(math.exp(middle + half), value)
    assert interval(one, two, paired=True) == pytest.approx(wanted, rel=1e-9)


def error(launch):
    """Of a median: 1.2533 times that of a mean, the spread from the median absolute deviation."""
    middle = statistics.median(launch)
    return (
        1.2533
        * 1.4826
        * statistics.median(abs(value - middle) for value in launch)
        / math.sqrt(len(launch))
    )


def test_single_values_in_turns_take_students_over_their_differences():
    one, two = [[2.0], [4.4], [7.7]], [[1.0], [2.0], [4.0]]
    differences = [math.log(2.0), math.log(2.2), math.log(1.925)]
    half = ratios.t_quantile(0.975, 2) * statistics.stdev(differences) / math.sqrt(3)

    assert interval(one, two, paired=True) == pytest.approx(
        (2.2 * math.exp(-half), 2.2 * math.exp(half))
    )


@pytest.mark.parametrize(
    ("shape", "kept"),
    [
        ((16, 128), (16, 128)),
        ((17, 129), (9, 65)),
        ((32, 256), (16, 128)),
        ((33, 257), (11, 86)),
        ((40, 5000), (14, 125)),
    ],
)
def test_what_is_too_much_is_thinned_evenly(shape, kept):
    many, long = shape
    series = launches(*([number + place / 1e5 for place in range(long)] for number in range(many)))
    thin = ratios._thinned(series)

    assert (len(thin), {len(launch.values) for launch in thin}) == (kept[0], {kept[1]})
    assert [launch.launch for launch in thin] == [
        launch.launch for launch in series[:: -(-many // 16)]
    ]
    assert thin[0].values[-1] == series[0].values[:: -(-long // 128)][-1]
