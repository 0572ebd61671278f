"""Head's own training beside base's: the same, something else, or not to be told."""

from dataclasses import replace

import pytest
from judge_builders import (
    candidate,
    evidence,
    judged,
    metric,
    perturbed,
    poisoned,
    result,
    results,
    sampled,
    shaken,
    trace,
)

from ci_bench.records.comparison import Parity
from ci_bench.records.config import Policy, Rule, Severity
from ci_bench.records.results import Role, Status

REFERENCE = trace(Role.REFERENCE)


def side(reference, *, anchors=True, **fields):
    """A case that was trained: its reference, how far rounding drives it, and a candidate that equals the reference."""
    more = (shaken(reference),) if anchors else ()
    twin = candidate(
        loss=reference.loss,
        grad_norm=reference.grad_norm,
        start=reference.start,
        data=reference.data,
    )
    parity = evidence(reference, *more, replace(twin, non_finite=reference.non_finite))
    times = (metric(sampled(1.0)), metric(sampled(1.0), arm="inductor"))
    return result(*times, parity=parity, arms=("eager", "inductor"), **fields)


def compared(base, head, **more):
    comparison = judged(results(head), results(base), **more)
    (case,) = comparison.cases
    rules = [
        finding.rule
        for finding in comparison.judgement.findings
        if finding.rule.startswith("learning")
    ]
    return case.learning, rules, comparison.judgement


def test_the_same_training_is_the_same_in_every_bit() -> None:
    found, rules, judgement = compared(side(REFERENCE), side(REFERENCE))
    assert (found.verdict, found.arm, rules, judgement.met) == (Parity.BITWISE, "eager", [], True)


def test_what_rounding_explains_is_no_change() -> None:
    found, rules, _ = compared(side(REFERENCE), side(trace(Role.REFERENCE, scale=1 + 3e-6)))
    assert (found.verdict, rules) == (Parity.NUMERIC_PARITY, [])
    assert 2 < found.loss_score < 4


@pytest.mark.parametrize(
    "other",
    [trace(Role.REFERENCE, scale=1.01), trace(Role.REFERENCE, shift=0.1), poisoned(REFERENCE, 20)],
    ids=["another scale", "a regulariser", "not a number"],
)
def test_another_loss_in_all_arms_of_head_fails_though_its_arms_agree(other) -> None:
    found, rules, judgement = compared(side(REFERENCE), side(other))
    assert found.verdict.broken, found.detail
    assert rules == [Rule.LEARNING_CHANGED]
    assert (judgement.met, judgement.exit_code) == (False, 1)
    assert "(head against base)" in judgement.headline


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"start": "another"}, "the start weights differ"),
        ({"data": "other rows"}, "the data differ"),
    ],
)
def test_another_model_or_other_data_cannot_be_told_and_is_no_failure(fields, said) -> None:
    found, rules, judgement = compared(
        side(REFERENCE), side(trace(Role.REFERENCE, scale=2, **fields))
    )
    assert (found.verdict, found.steps, rules) == (
        Parity.INSUFFICIENT_DATA,
        0,
        [Rule.LEARNING_UNKNOWN],
    )
    assert said in found.detail
    (warned,) = [finding for finding in judgement.findings if finding.rule is Rule.LEARNING_UNKNOWN]
    assert warned.severity is Severity.WARN


def test_too_few_steps_are_no_pass() -> None:
    short = trace(Role.REFERENCE, steps=5)
    found, rules, _ = compared(side(short), side(short))
    assert (found.verdict, rules) == (Parity.INSUFFICIENT_DATA, [Rule.LEARNING_UNKNOWN])


def test_the_policy_may_let_a_repository_change_what_it_learns() -> None:
    policy = Policy(severities={Rule.LEARNING_CHANGED: Severity.NOTE})
    _, rules, judgement = compared(
        side(REFERENCE), side(trace(Role.REFERENCE, scale=1.01)), policy=policy
    )
    assert (rules, judgement.met) == ([Rule.LEARNING_CHANGED], True)


@pytest.mark.parametrize(
    "base",
    [
        None,
        side(REFERENCE, anchors=False),
        result(metric(sampled(1.0)), arms=("eager", "inductor")),
        side(REFERENCE, status=Status.FAILED),
    ],
    ids=["no base", "no measure of rounding", "not trained", "failed"],
)
def test_without_a_training_on_both_sides_there_is_nothing_to_say(base) -> None:
    comparison = judged(results(side(REFERENCE)), results(base) if base else None)
    assert comparison.cases[0].learning is None
    assert not [
        finding for finding in comparison.judgement.findings if finding.rule.startswith("learning")
    ]


@pytest.mark.parametrize(
    "runs",
    [
        (perturbed(1e-6), candidate()),
        (candidate(),),
        (trace(Role.REFERENCE, arm="jit"), perturbed(1e-6, arm="jit"), candidate()),
    ],
    ids=["no reference", "candidates only", "another arm's"],
)
def test_a_side_without_its_reference_training_says_nothing(runs) -> None:
    times = (metric(sampled(1.0)), metric(sampled(1.0), arm="inductor"))
    bare = result(*times, parity=evidence(*runs), arms=("eager", "inductor"))
    for base, head in ((side(REFERENCE), bare), (bare, side(REFERENCE))):
        assert judged(results(head), results(base)).cases[0].learning is None
