"""What is paired between two sides: nothing twice, what has no key not at all, and of one key what fits best."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci_bench.judge.policy.matching import closest, pair_off

SIZES = st.lists(st.integers(1, 9), max_size=5)


def size(item):
    return item[1]


def numbered(sizes):
    return list(enumerate(sizes))


def test_pairs_of_one_key_leave_both_lists_and_the_rest_stays() -> None:
    base, head = ["a1", "b1", "a2", "-"], ["a3", "-", "c1"]
    assert pair_off(base, head, lambda text: None if text == "-" else text[0]) == [("a1", "a3")]
    assert (base, head) == (["b1", "a2", "-"], ["-", "c1"])


def test_those_that_fit_worst_are_left_over() -> None:
    base, head = numbered([10, 20]), numbered([10, 50, 20])
    base_again, head_again = list(base), list(head)
    assert pair_off(base, head, lambda _: 0, lambda *sides: closest(*sides, size)) == [
        ((0, 10), (0, 10)),
        ((1, 20), (2, 20)),
    ]
    assert (base, head) == ([], [(1, 50)])
    assert closest(head_again, base_again, size) == [((0, 10), (0, 10)), ((2, 20), (1, 20))]
    assert closest([], head, size) == []


@pytest.mark.parametrize(
    ("few", "many", "places"),
    [
        ([50], [10, 50], [1]),
        ([20], [20, 20], [0]),
        ([1, 9], [9, 1, 9], [1, 2]),
        ([9, 1], [9, 1, 9], [0, 1]),
        ([5], [9, 4, 6, 1], [1]),
    ],
)
def test_what_is_nearest_is_taken_and_of_equals_the_first(few, many, places) -> None:
    assert [two for (one, _), (two, _) in closest(numbered(few), numbered(many), size)] == places


@settings(max_examples=60)
@given(SIZES, SIZES)
def test_the_pairs_are_in_order_and_no_others_differ_by_less(before, after) -> None:
    """Held against every way to leave items of the longer side out."""
    base, head = numbered(before), numbered(after)
    pairs = closest(base, head, size)
    few, many = sorted((base, head), key=len)
    ways = combinations(many, len(few))
    least = min(
        sum(abs(size(one) - size(two)) for one, two in zip(few, way, strict=True)) for way in ways
    )
    assert sum(abs(size(one) - size(two)) for one, two in pairs) == least
    assert len(pairs) == len(few)
    for place in (0, 1):
        order = [pair[place][0] for pair in pairs]
        assert order == sorted(set(order))
