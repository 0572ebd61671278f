"""The log-ratio of explained and unexplained gates, on figures made up: the order of a pair does not matter, and an effect is seen."""

import math
from dataclasses import replace

from benchmarks.explained_gates import Gate, order, table


def gates(*ratios):
    return [
        Gate(explain=how, step=math.log(0.01) + own, samples=80, profiles=4 * (how == "always"), launches=(own, own + 0.1))
        for ratio in ratios
        for how, own in (("always", ratio), ("never", 0.0))
    ]


def test_the_ratio_is_explained_over_not_with_its_standard_error() -> None:
    text = table(gates(0.01, 0.03))
    assert "| +2.00% ± 1.00%  | +2.00% ± 1.00%" in text
    assert "| 80           | 80              | 4             | 0" in text
    assert "+0.00%" in table(gates(0.0, 0.0))


def test_a_launch_that_something_disturbed_does_not_count_among_the_quickest() -> None:
    spoilt = [replace(one, launches=(0.7, one.launches[0])) if one.explain == "always" else one for one in gates(0.0, 0.0)]
    assert "+0.00% ± 0.00%  | +0.00% ± 0.00%" in table(spoilt)


def test_one_pair_has_no_error_and_none_has_nothing() -> None:
    assert "nan" in table(gates(0.01))
    assert "nan" in table([])


def test_each_way_comes_first_in_every_second_pair() -> None:
    assert [order(number)[0] for number in range(4)] == ["never", "always", "never", "always"]
