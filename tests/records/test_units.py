"""The one table of units: each is in it, with sizes that a renderer can choose from, and words that fit the direction."""

import pytest

from ci_bench.records.results import Better, Unit
from ci_bench.records.units import TIMES, UNITS, worse_and_better


def test_every_unit_has_its_facts():
    assert {*UNITS} == {*Unit}


@pytest.mark.parametrize("unit", Unit)
def test_sizes_fall_and_one_is_the_unit_itself(unit):
    sizes = [size for size, _ in UNITS[unit].sizes]
    assert sizes == sorted(sizes, reverse=True)
    assert 1.0 in sizes


def test_times_and_rates_are_of_time():
    assert {Unit.SECONDS, Unit.PER_SECOND, Unit.HERTZ, Unit.JOULES} == TIMES


@pytest.mark.parametrize(
    ("unit", "better", "words"),
    [
        (Unit.SECONDS, Better.LOWER, ("slower", "faster")),
        (Unit.BYTES, Better.LOWER, ("more", "less")),
        (Unit.COUNT, Better.LOWER, ("more", "fewer")),
        (Unit.COUNT, Better.HIGHER, ("lower", "higher")),
        (Unit.PER_SECOND, Better.HIGHER, ("lower", "higher")),
        (Unit.PER_SECOND, Better.LOWER, ("higher", "lower")),
    ],
)
def test_the_words_for_worse_and_better_follow_the_direction(unit, better, words):
    assert worse_and_better(unit, better) == words
