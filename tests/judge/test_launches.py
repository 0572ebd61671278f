"""Which samples stand against which, and the figures of a launch, against the plain way."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import metric

from ci_bench.judge.times import noise, paired
from ci_bench.judge.times.paired import figures
from ci_bench.records.results import Better, Launch, Unit

BLOCKS = (0, 0, 1, 1, 2, 2)
BASE = (1.00, 1.02, 1.01, 0.99, 1.00, 1.03)
HEAD = (1.10, 1.12, 1.13, 1.09, 1.10, 1.11)


def taken(values, *, number=0, blocks=BLOCKS):
    return Launch(launch=number, values=tuple(values), blocks=tuple(blocks))


def of(base, head, *, most=4, better=Better.LOWER):
    unit = Unit.SECONDS if better is Better.LOWER else Unit.PER_SECOND
    pair = tuple(metric(tuple(side), unit=unit, better=better) for side in (base, head))
    return figures([pair], most=most)


def test_by_hand():
    got = of([taken(BASE)], [taken(HEAD)])
    one, two = np.log(BASE)[None], np.log(HEAD)[None]

    assert got.d[0, 0] == pytest.approx(
        np.mean(np.sort(two)[0, 1:5]) - np.mean(np.sort(one)[0, 1:5])
    )
    assert got.within[0, 0] == pytest.approx(noise.within_spread(one, two)[0])
    assert np.isnan(got.d[0, 1:]).all()
    assert got.in_turns.tolist() == [True]


def test_a_rate_that_falls_is_worse():
    slower = of([taken(BASE)], [taken(HEAD)])
    rates = of([taken([1 / x for x in BASE])], [taken([1 / x for x in HEAD])], better=Better.HIGHER)

    assert rates.d[0, 0] == pytest.approx(slower.d[0, 0])
    assert rates.within[0, 0] == pytest.approx(slower.within[0, 0])


def test_launches_are_matched_by_number_and_what_one_side_lacks_is_unknown():
    got = of([taken(BASE), taken(HEAD, number=2)], [taken(HEAD, number=2), taken(BASE, number=3)])

    assert np.isfinite(got.d[0]).tolist() == [False, False, True, False]
    assert got.d[0, 2] == 0


def test_blocks_are_matched_by_number_in_any_order():
    order = [4, 0, 5, 2, 1, 3]
    shuffled = taken([HEAD[i] for i in order], blocks=[BLOCKS[i] for i in order])
    plain, mixed = of([taken(BASE)], [taken(HEAD)]), of([taken(BASE)], [shuffled])

    assert mixed.d == pytest.approx(plain.d, nan_ok=True)
    assert mixed.within == pytest.approx(plain.within, nan_ok=True)


def test_the_same_odd_order_on_both_sides():
    order = [4, 0, 5, 2, 1, 3]
    sides = [
        taken([side[i] for i in order], blocks=[BLOCKS[i] for i in order]) for side in (BASE, HEAD)
    ]

    assert of([sides[0]], [sides[1]]).within == pytest.approx(
        of([taken(BASE)], [taken(HEAD)]).within, nan_ok=True
    )


def test_a_block_that_one_side_lacks_is_left_out():
    whole = of([taken(BASE[:4], blocks=BLOCKS[:4])], [taken(HEAD[:4], blocks=BLOCKS[:4])])
    lost = of([taken([*BASE[:4], 9.0, 9.0])], [taken(HEAD[:4], blocks=BLOCKS[:4])])

    assert lost.d == pytest.approx(whole.d, nan_ok=True)
    assert lost.within == pytest.approx(whole.within, nan_ok=True)


def test_half_a_block_is_no_block():
    got = of([taken(BASE)], [taken(HEAD[:5], blocks=BLOCKS[:5])])

    assert got.d == pytest.approx(
        of([taken(BASE[:4], blocks=BLOCKS[:4])], [taken(HEAD[:4], blocks=BLOCKS[:4])]).d,
        nan_ok=True,
    )


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (taken([1.0], blocks=()), taken([1.1], blocks=())),
        (taken(BASE, blocks=()), taken(HEAD, blocks=())),
        (taken(BASE), taken(HEAD, blocks=())),
        (taken(BASE, blocks=(0, 0, 0, 1, 2, 2)), taken(HEAD, blocks=(0, 0, 0, 1, 2, 2))),
        (taken(BASE, blocks=(0, 0, 0, 1, 2, 2)), taken(HEAD[:4], blocks=(0, 0, 0, 1))),
        (taken(BASE, blocks=(0,)), taken(HEAD, blocks=(0,))),
    ],
    ids=["single", "no blocks", "one side", "uneven", "uneven and one lost", "fault"],
)
def test_without_even_blocks_the_spread_inside_is_unknown(base, head):
    got = of([base], [head])

    assert np.isfinite(got.d[0, 0])
    assert np.isnan(got.within).all()
    assert got.in_turns.tolist() == [False]


def test_nothing_shared_is_nothing():
    assert np.isnan(of([taken(BASE)], [taken(HEAD, number=1)]).d).all()
    assert np.isnan(of([taken(BASE)], [taken(HEAD, blocks=(3, 3, 4, 4, 5, 5))]).d).all()
    assert figures([], most=3).d.shape == (0, 3)


def test_numbers_beyond_the_last_look_are_ranked():
    base, head = ([taken(side, number=number) for number in (100, 7, 31)] for side in (BASE, HEAD))

    assert np.isfinite(of(base, head, most=4).d[0]).tolist() == [True, True, True, False]
    assert np.isfinite(of(base, head, most=2).d[0]).tolist() == [True, True]


@pytest.mark.parametrize(("last", "columns"), [(3, [0, 3]), (4, [0, 1])])
def test_columns_are_counted_from_zero(last, columns):
    base, head = ([taken(side, number=number) for number in (0, last)] for side in (BASE, HEAD))

    assert np.flatnonzero(np.isfinite(of(base, head, most=4).d[0])).tolist() == columns


def test_a_launch_that_failed_everywhere_leaves_a_hole():
    base, head = ([taken(side, number=number) for number in (0, 2)] for side in (BASE, HEAD))

    assert np.isfinite(of(base, head).d[0]).tolist() == [True, False, True, False]


def test_a_launch_of_which_a_side_has_no_sample_moves_no_other():
    base, head = ([taken(side, number=number) for number in (0, 2)] for side in (BASE, HEAD))
    nothing, something = Launch(launch=9, values=()), Launch(launch=9, values=(1.0,))

    for sides in (([*base, nothing], [*head, something]), ([*base, something], [*head, nothing])):
        assert np.isfinite(of(*sides).d[0]).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("most", "at_once"), [(5, [1] * 7), (6, [1] * 7), (13, [2, 2, 2, 1]), (42, [7])]
)
def test_parts_of_bounded_size_change_nothing(monkeypatch, most, at_once):
    pairs = [
        (metric((taken(BASE),)), metric((taken([x * (1 + i / 10) for x in HEAD]),)))
        for i in range(7)
    ]
    whole = figures(pairs, most=2)
    seen = []
    monkeypatch.setattr(paired, "_MOST_AT_ONCE", most)
    monkeypatch.setattr(
        noise,
        "launch_ratio",
        lambda *sides, plain=noise.launch_ratio: seen.append(len(sides[0])) or plain(*sides),
    )
    parts = figures(pairs, most=2)

    assert seen == at_once
    assert parts.d == pytest.approx(whole.d, nan_ok=True)
    assert whole.d[:, 0] == pytest.approx([whole.d[0, 0] + math.log(1 + i / 10) for i in range(7)])


numbers = st.lists(st.integers(-2, 5), max_size=4, unique=True)
launch = st.builds(
    lambda values, blocks: Launch(launch=0, values=tuple(values), blocks=tuple(blocks)),
    st.lists(st.floats(1e-3, 1e3), max_size=6),
    st.lists(st.integers(0, 3), max_size=6),
)
series = st.lists(launch, max_size=4).flatmap(
    lambda some: numbers.map(
        lambda of: tuple(replace(one, launch=n) for one, n in zip(some, of, strict=False))
    )
)


@settings(max_examples=120, deadline=None)
@given(base=series, head=series)
def test_swapping_the_sides_turns_the_sign(base, head):
    forth, back = of(base, head), of(head, base)

    assert forth.d == pytest.approx(-back.d, nan_ok=True)
    assert forth.within == pytest.approx(back.within, nan_ok=True)
