"""What several devices do to the error of a mean: held against the same formulas, written out launch by launch."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci_bench.judge.times.devices import between, layout, least_without_one

NAN = math.nan
USUAL, USUAL_WEIGHT = 0.25, 20.0
RATIOS = st.one_of(st.floats(-0.2, 0.2).map(lambda one: round(one, 4)), st.just(NAN))


@st.composite
def runs(draw):
    """Cases of up to six launches, some of them missing, on up to three devices; the last may be unknown (-1)."""
    launches = draw(st.integers(1, 6))
    cases = draw(
        st.lists(st.lists(RATIOS, min_size=launches, max_size=launches), min_size=1, max_size=3)
    )
    slots = draw(st.lists(st.sampled_from([0, 1, -1]), min_size=launches, max_size=launches))
    return cases, slots


def by_device(ratios, slots):
    """The ratios of each device that has any."""
    found = {}
    for ratio, slot in zip(ratios, slots, strict=True):
        if math.isfinite(ratio):
            found.setdefault(slot, []).append(ratio)
    return found


def lying(cases, slots):
    return layout(np.array(cases, dtype=np.float64), np.array(slots))


def plain_between(cases, slots, spreads):
    """`between`, by loops: the share of all cases together, and the common variance of Paule and Mandel's iteration."""
    figures = []
    for ratios, spread in zip(cases, spreads, strict=True):
        groups = by_device(ratios, slots)
        if len(groups) < 2 or not math.isfinite(spread):
            figures.append(None)
            continue
        every = [one for own in groups.values() for one in own]
        mean, count = math.fsum(every) / len(every), len(every)
        squares = sum(len(own) * (math.fsum(own) / len(own) - mean) ** 2 for own in groups.values())
        weight = count - sum(len(own) ** 2 for own in groups.values()) / count
        figures.append((squares, len(groups) - 1, weight, spread**2))
    there = [one for one in figures if one]
    relative = (
        sum(squares / variance - freedom for squares, freedom, _, variance in there)
        + USUAL * USUAL_WEIGHT
    )
    share = max(relative / (sum(weight for _, _, weight, _ in there) + USUAL_WEIGHT), 0.0)
    common = 0.0
    for _ in range(8):
        shown = known = 0.0
        for squares, freedom, weight, variance in there:
            each = weight / freedom
            trust = 1 / (variance + each * common) ** 2
            shown += trust * each * (squares - freedom * variance)
            known += trust * each * weight
        common = max(shown, 0.0) / known if known else 0.0
    return [share if one is None else max(share, common / one[3]) for one in figures]


@settings(max_examples=80)
@given(run=runs())
def test_the_layout_counts_launches_devices_and_how_they_are_shared(run):
    cases, slots = run
    found = lying(cases, slots)
    for row, ratios in enumerate(cases):
        groups = by_device(ratios, slots)
        count = sum(map(len, groups.values()))
        assert (found.count[row], found.devices[row]) == (count, pytest.approx(len(groups)))
        for place, (ratio, slot) in enumerate(zip(ratios, slots, strict=True)):
            own = groups.get(slot, []) if math.isfinite(ratio) else []
            assert found.own[row, place] == pytest.approx(len(own) or NAN, nan_ok=True)
            assert found.means[row, place] == pytest.approx(
                math.fsum(own) / len(own) if own else NAN, nan_ok=True
            )
        expected = sum(len(own) ** 2 for own in groups.values()) / count**2 if count else 1.0
        assert found.concentration[row] == pytest.approx(expected)
        assert found.mean[row] == pytest.approx(
            sum(math.fsum(own) for own in groups.values()) / max(count, 1)
        )


@settings(max_examples=80)
@given(run=runs(), spread=st.floats(0.001, 0.1), unknown=st.booleans())
def test_the_variance_between_devices_is_that_of_the_loops(run, spread, unknown):
    cases, slots = run
    spreads = [NAN if unknown and not row else spread * (1 + row) for row in range(len(cases))]
    found = between(lying(cases, slots), np.array(spreads))
    assert found == pytest.approx(plain_between(cases, slots, spreads), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("spreads", [(0.02, 0.002, 0.01), (0.002, 0.02, NAN), (0.03, 0.03, 0.03)])
def test_one_figure_for_all_cases_weighs_each_by_how_well_it_knows(spreads):
    """Cases of unlike noise and unlike layouts, whose devices differ: each iteration moves the weights."""
    cases = [
        [0.01, 0.03, 0.05, 0.02, NAN, 0.06],
        [0.002, 0.031, 0.001, 0.03, 0.058, 0.06],
        [0.1, 0.12, NAN, 0.03, 0.0, 0.01],
    ]
    slots = [0, 1, 0, 1, 2, 2]
    found = between(lying(cases, slots), np.array(spreads))
    assert found == pytest.approx(plain_between(cases, slots, spreads), rel=1e-9)
    assert (found.max() > found.min()) == (len(set(spreads)) > 1)


def test_one_device_shows_nothing_and_the_usual_share_stands_for_it():
    assert between(lying([[0.01, 0.02, 0.03]], [0, 0, 0]), np.array([0.01])) == pytest.approx(
        [USUAL]
    )


def test_devices_that_differ_by_far_more_than_launches_do_show_it():
    """Twelve cases, two devices with three launches each that are 4 % apart, where launches scatter by 0.1 %."""
    noise = np.random.default_rng(3).normal(0.0, 0.001, (12, 6))
    found = between(
        layout(noise + np.array([0.0, 0.0, 0.0, 0.04, 0.04, 0.04]), np.array([0, 0, 0, 1, 1, 1])),
        np.full(12, 0.001),
    )
    assert found.min() > 500  # g = 0.028, so that g^2 is 800 times the variance of a launch
    alike = between(layout(noise, np.array([0, 0, 0, 1, 1, 1])), np.full(12, 0.001))
    assert alike.max() < 1


@settings(max_examples=80)
@given(run=runs())
def test_what_is_left_without_a_device_is_the_least_in_the_direction_of_the_mean(run):
    cases, slots = run
    least, launches = least_without_one(lying(cases, slots))
    for row, ratios in enumerate(cases):
        groups = by_device(ratios, slots)
        every = [one for own in groups.values() for one in own]
        direction = np.sign(math.fsum(every) / len(every)) if every else 0.0
        left = {}
        for slot in groups:
            others = [one for name, own in groups.items() if name != slot for one in own]
            if others:
                left[slot] = direction * math.fsum(others) / len(others), len(others)
        expected = min((one for one, _ in left.values()), default=NAN)
        assert least[row] == pytest.approx(expected, nan_ok=True, abs=1e-12)
        if left:
            assert any(
                launches[row] == count and one == pytest.approx(expected, abs=1e-12)
                for one, count in left.values()
            )


def test_a_change_that_one_device_alone_shows_is_gone_without_it():
    (least,), (launches,) = least_without_one(lying([[0.0, 0.0, 0.1, 0.1]], [0, 1, 2, 2]))
    assert (least, launches) == (pytest.approx(0.0), 2)


def test_directions_are_turned_alike():
    up, down = (
        least_without_one(lying([[sign * one for one in (0.05, 0.02, 0.08)]], [0, 1, 2]))[0]
        for sign in (1, -1)
    )
    assert [up, down] == [pytest.approx([0.035])] * 2


def test_every_order_of_launches_says_the_same():
    ratios, slots = [0.01, 0.03, 0.02, 0.05], [0, 1, 0, 1]
    expected = between(lying([ratios], slots), np.array([0.01]))
    for first, second in product(range(4), repeat=2):
        order = list(range(4))
        order[first], order[second] = order[second], order[first]
        turned = lying([[ratios[one] for one in order]], [slots[one] for one in order])
        assert between(turned, np.array([0.01])) == pytest.approx(expected)
