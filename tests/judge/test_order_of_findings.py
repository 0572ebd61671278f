"""Within a rule, what is furthest off comes first: a reader sees the worst of many."""

import re

import pytest
from judge_builders import (
    candidate,
    curve,
    evidence,
    judged,
    metric,
    numeric,
    perturbed,
    poisoned,
    result,
    results,
    sampled,
    statistical,
    trace,
)

from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.config import Rule
from ci_bench.records.results import Better, Due, Role

TIMES = (metric(sampled(1.0)), metric(sampled(1.0), arm="inductor"))
ARMS = ("eager", "inductor")


def order(rule, heads, bases=None):
    """The cases of a rule's findings, in their order; `heads` are their trainings by name."""
    cases = [
        result(*TIMES, id=f"s/{name}", arms=ARMS, parity=parity) for name, parity in heads.items()
    ]
    before = [
        result(*TIMES, id=f"s/{name}", arms=ARMS, parity=parity)
        for name, parity in (bases or heads).items()
    ]
    findings = judged(results(*cases), results(*before)).judgement.findings
    return [finding.case.removeprefix("s/") for finding in findings if finding.rule is rule]


BROKEN = {
    "a little": numeric(candidate(scale=1 + 2e-5)),
    "not finite": numeric(poisoned(candidate(), 20)),
    "gradients": numeric(candidate(grad_norm=[2.4 * x for x in curve(60)])),
    "a lot": numeric(candidate(scale=3.0)),
}


def test_broken_parity_by_how_far_apart_what_is_not_finite_first():
    assert order(Rule.PARITY_BROKEN, BROKEN) == ["not finite", "a lot", "gradients", "a little"]


def test_lost_accuracy_by_how_much_of_it_is_gone():
    def evaluated(before, after):
        runs = [
            trace(Role.REFERENCE, accuracy=before),
            perturbed(),
            candidate(accuracy=after, disagreements=(100, 0)),
        ]
        return evidence(*runs, rows=1000)

    lost = {
        "little of much": evaluated(0.95, 0.90),
        "much of little": evaluated(0.6, 0.4),
        "some": evaluated(0.8, 0.7),
    }
    assert order(Rule.ACCURACY_BROKEN, lost) == ["much of little", "some", "little of much"]


def test_undecided_parity_by_the_difference_over_seeds():
    undecided = {
        "no data": numeric(candidate(start="x")),
        "small": statistical((0.02, -0.02, 0.001), nulls=(0.02, -0.02)),
        "down": statistical((0.02, -0.04, 0.001), nulls=(0.02, -0.02)),
        "nothing": numeric(candidate(data="x")),
    }
    assert order(Rule.PARITY_UNDECIDED, undecided) == ["down", "small", "no data", "nothing"]


def trained(reference):
    return evidence(
        reference, perturbed(), candidate(loss=reference.loss, grad_norm=reference.grad_norm)
    )


@pytest.mark.parametrize("mirrored", [False, True])
def test_what_head_learns_by_how_far_it_is_from_base(mirrored):
    heads = {
        "a little": trained(trace(Role.REFERENCE, scale=1 + 2e-5)),
        "not finite": trained(poisoned(trace(Role.REFERENCE), 20)),
        "gradients": trained(trace(Role.REFERENCE, grad_norm=[2.4 * x for x in curve(60)])),
        "a lot": trained(trace(Role.REFERENCE, scale=3.0)),
    }
    if mirrored:
        heads = dict(reversed(heads.items()))
    bases = {name: trained(trace(Role.REFERENCE)) for name in heads}

    assert order(Rule.LEARNING_CHANGED, heads, bases) == [
        "not finite",
        "a lot",
        "gradients",
        "a little",
    ]


def test_the_worst_of_several_seeds_is_the_one_whose_larger_score_is_largest():
    """Seed 0 scores 0 and 3, seed 1 scores 6 twice."""
    gradients = candidate(grad_norm=[2 * x * (1 + 3e-6) for x in curve(60)])
    both = candidate(seed=1, scale=1 + 6e-6)
    references = [
        run
        for seed in (0, 1)
        for run in (trace(Role.REFERENCE, seed=seed), perturbed(1e-6, seed=seed))
    ]
    for runs in ((gradients, both), (both, gradients)):
        (finding,) = parity_findings(evidence(*references, *runs))
        assert finding.detail.startswith("worst of 2 seeds, 1:")
        assert finding.loss_score == pytest.approx(6, rel=0.1)


def test_a_seed_without_any_score_is_no_worse_than_one_with_a_small_one():
    equal = candidate()
    small = candidate(seed=1, loss=[x * (1 + 3e-7) for x in curve(60, 1)])
    references = [
        run
        for seed in (0, 1)
        for run in (trace(Role.REFERENCE, seed=seed), perturbed(1e-6, seed=seed))
    ]
    for first in (equal,):
        (finding,) = parity_findings(evidence(*references, first, small))
        assert finding.detail.startswith("worst of 2 seeds, 1:")
        assert 0 < finding.loss_score < 1


def test_what_fails_beside_other_machines_is_told_in_its_own_words():
    parity = numeric(candidate(scale=3.0))
    base, head = (
        results(result(*TIMES, arms=ARMS, parity=parity), identity={"gpu": gpu}) for gpu in "AB"
    )
    headline = judged(head, base).judgement.headline

    assert re.search(r"(loss|gradient norm) (off by|differs)", headline)
    assert "base and head differ in gpu" in headline


def test_what_cannot_be_compared_on_one_machine_is_told_by_its_own_reason():
    turned = result(metric(sampled(1.0), better=Better.HIGHER))
    headline = judged(results(turned), results(result(metric(sampled(1.0))))).judgement.headline

    assert headline.startswith("Not compared: a: eager step time: ")


def test_findings_without_a_size_stay_in_the_order_of_the_cases():
    head = [
        result(id="s/a", due=Due(times=("step_time",))),
        result(id="s/b"),
        result(id="s/c", due=Due(times=("step_time",))),
    ]
    findings = judged(results(*head)).judgement.findings

    missing = [finding.case for finding in findings if finding.rule is Rule.METRIC_MISSING]
    assert missing == sorted(missing)
    assert len({*missing}) > 1
