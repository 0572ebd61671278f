"""What a series is, for one and for many at once, against the plain way."""

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import launches, sampled

from ci_bench.judge.times import ratios
from ci_bench.judge.times.ratios import describe
from ci_bench.records.comparison import Summary

values = st.floats(allow_nan=True, allow_infinity=True)
any_series = st.lists(st.lists(values, max_size=4), max_size=3).map(
    lambda groups: launches(*groups)
)


def facts_of(series):
    return describe([series])[id(series)]


@pytest.mark.parametrize(
    ("series", "fault", "where_zero_may_be"),
    [
        ((), "has no samples", "has no samples"),
        (launches([], []), "has no samples", "has no samples"),
        (
            launches([1, math.nan], []),
            "holds a sample that is not a finite number",
            "holds a sample that is not a finite number",
        ),
        (
            launches([1, math.inf]),
            "holds a sample that is not a finite number",
            "holds a sample that is not a finite number",
        ),
        (
            launches([1, 1e308]),
            "holds a sample that is not a finite number",
            "holds a sample that is not a finite number",
        ),
        (
            launches([1, 1e300]),
            "holds a sample that is not a finite number",
            "holds a sample that is not a finite number",
        ),
        (launches([1, 0]), "holds the impossible sample 0", None),
        (
            launches([1, -2.5]),
            "holds the impossible sample -2.5",
            "holds the impossible sample -2.5",
        ),
        (launches([1, 2], [3]), None, None),
        (launches([0.5, 1e-9], []), None, None),
    ],
)
def test_faults(series, fault, where_zero_may_be):
    facts = facts_of(series)

    assert facts.fault(zero_allowed=False) == fault
    assert facts.sound is (fault is None)
    assert facts.fault(zero_allowed=True) == where_zero_may_be
    assert (facts.summary is None) is (where_zero_may_be is not None)


def test_summary_counts_launches_that_have_samples():
    assert facts_of(launches([3, 1], [], [2])).summary == Summary(median=2.0, samples=3, launches=2)
    assert facts_of(launches([3, 1], [], [2, 2, 2])).summary == Summary(
        median=2.0, samples=5, launches=2
    )


def test_single_is_one_value_per_launch():
    assert facts_of(launches([1], [], [2])).single
    assert not facts_of(launches([1], [2, 3])).single


def test_a_series_that_is_met_twice_is_looked_at_once():
    one, other = sampled(1.0), sampled(2.0)

    assert len(describe([one, other, one])) == 2


@settings(max_examples=80, deadline=None)
@given(every=st.lists(any_series, max_size=5), together=st.booleans())
def test_many_at_once_are_as_the_plain_way(every, together):
    known = describe(every) if together else {id(one): facts_of(one) for one in every}
    for series in every:
        facts, plain = known[id(series)], [x for launch in series for x in launch.values]
        assert facts.sizes == tuple(len(launch.values) for launch in series)
        assert bool(facts.odd) is any(not abs(x) < 1e300 for x in plain)
        if plain and not facts.odd:
            assert facts.least == min(plain)
            assert facts.median == pytest.approx(statistics.median(plain), rel=1e-12)


@pytest.mark.parametrize(
    ("samples_of", "parts"),
    [
        ([3, 3, 2, 5, 1], [2, 2, 1]),
        ([6, 6], [1, 1, 0]),
        ([5, 6, 5], [2, 1]),
        ([1, 5, 2, 3], [2, 2]),
        ([], [0]),
    ],
)
def test_a_part_ends_with_the_series_that_fills_it(monkeypatch, samples_of, parts):
    monkeypatch.setattr(ratios, "_MOST_SAMPLES_AT_ONCE", 6)
    lengths = [(number,) for number in samples_of]

    assert [len(lengths[part]) for part in ratios._slices(lengths)] == parts


def test_parts_of_bounded_size_change_nothing(monkeypatch):
    every = [sampled(1 + i / 10, count=1 + i % 3) for i in range(7)]
    whole = describe(every)
    monkeypatch.setattr(ratios, "_MOST_SAMPLES_AT_ONCE", 1)

    assert describe(every) == whole
