"""Signed numbers of other tools: no ratio compares them."""

import pytest
from judge_builders import judged, launches, metric, result, results

from ci_bench.records.comparison import Verdict
from ci_bench.records.results import Better, Unit

MIB = 1024.0**2
UNCHANGED, REGRESSED, IMPROVED = Verdict.UNCHANGED, Verdict.REGRESSED, Verdict.IMPROVED
INCONCLUSIVE, SUSPECTED = Verdict.INCONCLUSIVE, Verdict.SUSPECTED
S, RATE, BYTES, COUNT, JOULES = Unit.SECONDS, Unit.PER_SECOND, Unit.BYTES, Unit.COUNT, Unit.JOULES
LOWER, HIGHER = Better.LOWER, Better.HIGHER
NOTHING = ([0] * 3, [0] * 3)


def pair_of(base, head, unit, better=LOWER, name="odd"):
    sides = (metric(launches(*side), unit=unit, better=better, name=name) for side in (base, head))
    before, after = (results(result(one)) for one in sides)
    (pair,) = judged(after, before).cases[0].pairs
    return pair


@pytest.mark.parametrize(
    ("base", "head", "better", "verdict"),
    [
        ([-123.4], [-150.9], HIGHER, REGRESSED),
        ([-123.4], [-150.9], LOWER, IMPROVED),
        ([-150.9], [-123.4], HIGHER, IMPROVED),
        ([-123.4], [-123.4], HIGHER, UNCHANGED),
        ([-123.4], [-125], HIGHER, UNCHANGED),
        ([-100], [-105], HIGHER, UNCHANGED),
        ([-100], [-105.1], HIGHER, REGRESSED),
        ([1], [-1], HIGHER, REGRESSED),
        ([-1], [0], HIGHER, IMPROVED),
        ([0], [-1], HIGHER, REGRESSED),
        ([-0.1, 0.1, 0.05], [0.1, -0.1, -0.05], HIGHER, INCONCLUSIVE),
        ([-100, -112], [-113, -101], HIGHER, INCONCLUSIVE),
        ([-100, -101], [-140, -141], HIGHER, REGRESSED),
    ],
)
def test_signed_numbers_go_by_their_difference(base, head, better, verdict):
    pair = pair_of((base,), (head,), COUNT, better)
    assert pair.verdict is verdict, pair.reason
    assert None not in (pair.base, pair.head)


@pytest.mark.parametrize(
    ("unit", "name"),
    [(S, "odd"), (RATE, "odd"), (BYTES, "odd"), (JOULES, "odd"), (COUNT, "graph_breaks")],
)
def test_other_quantities_are_never_negative(unit, name):
    pair = pair_of(([1] * 3,) * 2, ([-1] * 3,) * 2, unit, name=name)
    assert (pair.verdict, pair.reason) == (
        INCONCLUSIVE,
        "head holds the impossible sample -1: measure again",
    )


def test_metrics_of_one_side_are_named():
    both, mine, yours = (
        metric(launches([1] * 3, [1] * 3), name=name) for name in ("both", "mine", "yours")
    )
    pairs = judged(results(result(both, mine)), results(result(both, yours))).cases[0].pairs
    found = {pair.metric: pair.verdict for pair in pairs}
    assert (found["mine"], found["yours"]) == (Verdict.NEW, Verdict.REMOVED)


def test_an_arm_of_the_name_imported_gets_none_of_what_other_tools_files_get():
    """A provider of a function may be called so; a time of the engine's clock is never 0."""
    zero, timed = (
        metric(launches([value] * 3, [value] * 3), unit=S, better=LOWER, arm="imported")
        for value in (0.0, 1.0)
    )
    (pair,) = judged(results(result(zero)), results(result(timed))).cases[0].pairs
    assert (pair.verdict, pair.reason) == (
        INCONCLUSIVE,
        "head holds the impossible sample 0: measure again",
    )
