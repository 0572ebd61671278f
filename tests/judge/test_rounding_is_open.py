"""Whether one perturbed run is enough: where all that it was to show holds, and where more of them could still move a verdict."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import candidate, curve, evidence, only, perturbed, result, trace

from ci_bench.judge.parity.verdict import learning_of, parity_findings, rounding_is_open
from ci_bench.records.comparison import Parity
from ci_bench.records.results import Role
from ci_bench.runner.ledger import merge_parity


def side(*, scale=1.0, off=1.0, sizes=(1e-6,), **fields):
    """A case that was trained: its reference, scaled, a candidate that is `off` it by another factor, and perturbed runs."""
    reference = trace(Role.REFERENCE, scale=scale, **fields)
    shaken = (perturbed(scale * (1 + size) - 1, index=index) for index, size in enumerate(sizes))
    return result(
        parity=evidence(reference, candidate(scale=scale * off, **fields), *shaken),
        arms=("eager", "inductor"),
    )


def test_where_all_holds_one_run_is_enough():
    assert not rounding_is_open(side(), side())
    assert not rounding_is_open(side(off=1 + 5e-6), side(scale=1 + 5e-6)), (
        "within ten widths of the envelope of one"
    )


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (side(), side(off=1.01)),
        (side(off=1.01), side()),
        (side(), side(scale=1.01)),
        (side(), side(off=1 + 12e-6)),
    ],
    ids=["head's candidate", "base's candidate", "what head learns", "just beyond"],
)
def test_what_does_not_hold_in_the_envelope_of_one_is_asked_again(base, head):
    assert rounding_is_open(base, head)


def test_a_side_that_is_left_alone_is_asked_of_itself():
    wrong, right = side(off=1.01), side()
    assert rounding_is_open(wrong, wrong)
    assert not rounding_is_open(right, right)


def test_a_side_by_itself_is_asked_again_in_the_envelope_of_several():
    """There it is three at once, and three may agree where a fourth does not."""
    right, wrong = (side(off=off, sizes=(1e-6, 2e-6, 1e-6)) for off in (1 + 15e-6, 1 + 25e-6))
    assert [rounding_is_open(one, one) for one in (right, wrong)] == [False, True]


def test_there_is_no_more_to_be_had_where_there_are_none():
    assert not rounding_is_open(side(sizes=()), side(off=1.01, sizes=()))


def test_another_start_is_a_question_for_seeds():
    other = side(scale=2.0, start="another")
    told = [finding.verdict for finding in parity_findings(other.parity)]
    assert told == [Parity.BITWISE]
    assert not rounding_is_open(side(), other)


def test_the_envelope_of_one_training_is_said_to_be_that_where_head_leaves_it():
    """A pair needs no more where all holds; its documents may be held against others later."""
    found = learning_of(side(), side(scale=1 + 15e-6))
    assert found.verdict is Parity.DIFFERENT_MATH
    assert found.detail.endswith("measure base again with more `perturbations`")
    told = [
        learning_of(side(), side()),
        learning_of(side(sizes=(1e-6, 1e-6, 1e-6)), side(scale=1.01)),
    ]
    assert [found.detail.endswith("(`perturbations`)") for found in told] == [False, False]


def test_what_further_runs_explain_holds_and_what_they_do_not_still_fails():
    further = evidence(perturbed(2e-6, index=1), perturbed(1e-6, index=2))
    for off, verdict in ((1 + 15e-6, Parity.NUMERIC_PARITY), (1.01, Parity.DIFFERENT_MATH)):
        first = side(off=off).parity
        (before,) = parity_findings(first)
        (after,) = parity_findings(merge_parity(first, replace(further, masks=())))
        assert (before.verdict, after.verdict) == (Parity.DIFFERENT_MATH, verdict)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(1e-9, 5e-4), min_size=2, max_size=5),
    st.floats(1e-9, 1e-2),
    st.integers(0, 59),
)
def test_what_holds_in_the_envelope_of_one_holds_in_that_of_all(sizes, off, step):
    losses = [value * (1 + off if at >= step else 1) for at, value in enumerate(curve(60))]
    runs = [perturbed(size, index=index) for index, size in enumerate(sizes)]
    of_one, of_all = (
        only(evidence(trace(Role.REFERENCE), candidate(loss=losses), *some))
        for some in (runs[:1], runs)
    )
    assert of_all.verdict.holds or not of_one.verdict.holds
