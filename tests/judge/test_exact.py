"""Counts and peaks of memory at their limits: what lies on one is still within it."""

from dataclasses import replace

import pytest
from judge_builders import count, judged, metric, peak, result, results

from ci_bench.judge.times.metrics import by_count, by_memory
from ci_bench.records.comparison import Verdict
from ci_bench.records.metrics import LEAST_BYTES, MEMORY_GROWTH
from ci_bench.records.results import Better, Unit

MIB = 1024**2
UNCHANGED, REGRESSED, IMPROVED, INCONCLUSIVE = (
    Verdict.UNCHANGED,
    Verdict.REGRESSED,
    Verdict.IMPROVED,
    Verdict.INCONCLUSIVE,
)


@pytest.mark.parametrize(
    ("base", "head", "threshold", "verdict"),
    [
        ((100 * MIB,) * 2, (101 * MIB,) * 2, 0.0, UNCHANGED),
        ((100 * MIB,) * 2, (101 * MIB + 1,) * 2, 0.0, REGRESSED),
        ((100 * MIB,) * 2, (99 * MIB - 1,) * 2, 0.0, IMPROVED),
        ((200 * MIB,) * 2, (202 * MIB,) * 2, 0.01, UNCHANGED),
        ((200 * MIB,) * 2, (202 * MIB + 9,) * 2, 0.01, REGRESSED),
        ((202 * MIB + 9,) * 2, (200 * MIB,) * 2, 0.01, IMPROVED),
        ((100 * MIB, 102 * MIB), (105 * MIB,) * 2, 0.0, INCONCLUSIVE),
        ((100 * MIB, 102 * MIB), (105 * MIB + 1,) * 2, 0.0, REGRESSED),
        ((100 * MIB, 100.5 * MIB), (100 * MIB,) * 2, 0.0, UNCHANGED),
        ((100 * MIB, 100.5 * MIB + 1), (100 * MIB,) * 2, 0.0, INCONCLUSIVE),
        ((100 * MIB,), (200 * MIB,) * 2, 0.0, INCONCLUSIVE),
        ((100 * MIB,) * 2, (200 * MIB,), 0.0, INCONCLUSIVE),
        ((100 * MIB,), (100.25 * MIB,), 0.0, UNCHANGED),
        ((100 * MIB,), (100.25 * MIB + 1,), 0.0, INCONCLUSIVE),
        ((400 * MIB,), (401 * MIB,), 0.01, UNCHANGED),
        ((400 * MIB,), (399 * MIB - 1,), 0.01, INCONCLUSIVE),
        ((100 * MIB,), (100 * MIB, 102 * MIB), 0.0, INCONCLUSIVE),
        ((100 * MIB, 101 * MIB, 101 * MIB), (100 * MIB, 100 * MIB, 101 * MIB), 0.0, UNCHANGED),
        (
            (100 * MIB, 101 * MIB, 101 * MIB),
            (100 * MIB, 100 * MIB, 101 * MIB + 1),
            0.0,
            INCONCLUSIVE,
        ),
        ((100 * MIB, 101 * MIB), (100 * MIB, 100 * MIB, 101 * MIB), 0.0, INCONCLUSIVE),
        ((100 * MIB, 101 * MIB, 101 * MIB), (100 * MIB,) * 3, 0.0, UNCHANGED),
        ((100 * MIB, 101 * MIB, 100 * MIB), (102 * MIB, 101 * MIB, 102 * MIB), 0.0, INCONCLUSIVE),
        ((200 * MIB, 202 * MIB, 200 * MIB), (200 * MIB, 202 * MIB, 202 * MIB), 0.01, UNCHANGED),
    ],
)
def test_peaks_differ_beyond_a_mebibyte_the_threshold_and_twice_their_own_range(
    base, head, threshold, verdict
):
    assert LEAST_BYTES == MIB
    assert by_memory(peak(*base), peak(*head), threshold).verdict is verdict


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        ((0, 0), (0, 0), UNCHANGED),
        ((0, 900), (200, 4000), UNCHANGED),
        ((0, 0), (MIB / 4, MIB / 4), UNCHANGED),
        ((0, 0), (MIB / 4 + 1, MIB / 4 + 1), REGRESSED),
        ((0, 0), (MIB, MIB), REGRESSED),
        ((MIB, MIB), (0, 0), IMPROVED),
        ((10 * MIB, 10 * MIB), (10.3 * MIB, 10.3 * MIB), UNCHANGED),
        ((0, 0), (0, MIB), INCONCLUSIVE),
    ],
)
def test_memory_that_begins_to_grow_is_judged_by_its_bytes(base, head, verdict):
    sides = (replace(peak(*side), name=MEMORY_GROWTH.name) for side in (base, head))
    before, after = (results(result(one)) for one in sides)
    (pair,) = judged(after, before).cases[0].pairs
    assert (pair.verdict, pair.title) == (verdict, "memory growth per step")


def test_a_peak_that_does_not_repeat_says_how_far_it_goes():
    found = by_memory(peak(100 * MIB, 102 * MIB), peak(103 * MIB, 103 * MIB), 0.0)
    assert found.reason == (
        "101 MiB to 103 MiB; launches of one side differ by up to 2 MiB, so only changes of more than 4 MiB would show"
    )


@pytest.mark.parametrize(
    ("base", "head", "threshold", "verdict"),
    [
        ((100,), (110,), 0.1, UNCHANGED),
        ((100,), (111,), 0.1, REGRESSED),
        ((110,), (100,), 0.1, UNCHANGED),
        ((111,), (100,), 0.1, IMPROVED),
        ((0,), (0,), 0.0, UNCHANGED),
        ((0,), (1,), 0.5, REGRESSED),
        ((1, 3), (2, 2), 0.0, IMPROVED),
        ((1, 2), (2, 2), 0.0, UNCHANGED),
    ],
)
def test_counts_differ_beyond_the_threshold_by_their_worst_launch(base, head, threshold, verdict):
    assert by_count(count(*base), count(*head), threshold).verdict is verdict


@pytest.mark.parametrize(
    ("head", "told"),
    [(100, "100 on both sides"), (110, "100 to 110, within the threshold"), (111, "100 to 111")],
)
def test_what_is_said_of_counts(head, told):
    assert by_count(count(100), count(head), 0.1).reason == told


@pytest.mark.parametrize(
    ("base", "head", "speedup"),
    [
        ((4,), (2,), 2.0),
        ((0,), (2,), None),
        ((2,), (0,), None),
        ((0,), (0,), None),
        ((1,), (4,), 0.25),
        ((1e-200,), (1e200,), None),
        ((1e200,), (1e-200,), None),
    ],
)
def test_there_is_no_factor_from_or_to_nothing_nor_one_beyond_all_numbers(base, head, speedup):
    assert by_count(count(*base), count(*head), 0.0).speedup == speedup
    more, fewer = (
        metric(count(*side).launches, unit=Unit.COUNT, better=Better.HIGHER)
        for side in (base, head)
    )
    assert by_count(fewer, more, 0.0).speedup == speedup


def test_more_may_be_better():
    few, many = (
        metric(count(value).launches, unit=Unit.COUNT, better=Better.HIGHER) for value in (3, 6)
    )
    assert (by_count(few, many, 0.0).verdict, by_count(few, many, 0.0).speedup) == (IMPROVED, 2.0)
    assert (by_count(many, few, 0.0).verdict, by_count(many, few, 0.0).speedup) == (REGRESSED, 0.5)


@pytest.mark.parametrize(
    ("head", "gating", "suspected"),
    [
        (3 * MIB, 1, True),
        (3 * MIB, 0, False),
        (1.2 * MIB, 1, False),
        (1.2 * MIB + 1, 1, True),
        (0.2 * MIB, 1, False),
    ],
)
def test_a_peak_of_one_launch_is_suspected_only_beyond_the_bytes_that_count(
    head, gating, suspected
):
    found = by_memory(peak(0.2 * MIB), peak(head), 0.0, gating=gating)
    assert (found.verdict is Verdict.SUSPECTED) is suspected
