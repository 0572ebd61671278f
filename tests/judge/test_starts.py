"""A changed start: whole trainings over seeds say whether head learns worse, as well, or cannot be told."""

import math
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
    trace,
)

from ci_bench.judge.parity.over_seeds import starts_differ, starts_finding
from ci_bench.records.comparison import Parity, Tier
from ci_bench.records.config import Rule, Severity
from ci_bench.records.results import Role

STEPS = 200
LUCK = (0.004, -0.003, 0.002)
"""What another draw of the start weights does to the final loss, relatively, by seed."""


def side(name, losses, *, luck=LUCK, seeds=3, data="data", **fields):
    """A case whose reference ends so much above the curve of its seed (relatively), from starts of its own."""
    traces = []
    for seed, shift in enumerate(losses[:seeds]):
        common = {"seed": seed, "steps": STEPS, "data": f"{data}-{seed}"}
        traces.append(trace(Role.REFERENCE, scale=1 + shift, start=f"{name}-{seed}", **common))
        if luck:
            again = (1 + shift) * (1 + luck[seed])
            traces.append(
                trace(Role.OTHER_START, scale=again, start=f"{name}-again-{seed}", **common)
            )
    first = traces[0]
    twin = candidate(loss=first.loss, grad_norm=first.grad_norm, start=first.start, data=first.data)
    shaken = perturbed((1 + losses[0]) * (1 + 1e-6) - 1, steps=STEPS, data=first.data)
    times = (metric(sampled(1.0)), metric(sampled(1.0), arm="inductor"))
    return result(
        *times, parity=evidence(*traces, shaken, twin), arms=("eager", "inductor"), **fields
    )


BASE = side("base", (0.0, 0.0, 0.0))


def compared(head, base=BASE):
    comparison = judged(results(head), results(base))
    (case,) = comparison.cases
    found = [
        finding
        for finding in comparison.judgement.findings
        if finding.rule.startswith(("learning", "start"))
    ]
    return case.learning, found, comparison.judgement


def test_head_that_ends_higher_than_chance_explains_fails() -> None:
    learning, found, judgement = compared(side("head", (0.05, 0.054, 0.047)))
    assert (learning.verdict, learning.tier, learning.arm) == (
        Parity.DIFFERENT,
        Tier.STATISTICAL,
        "eager",
    )
    assert learning.interval.low < learning.difference < learning.interval.high
    assert learning.difference == pytest.approx(0.0503, abs=1e-3)
    assert [one.rule for one in found] == [Rule.LEARNING_CHANGED]
    assert not judgement.met
    for said in (
        "the start weights differ",
        "+5.033 %",
        "more than other start weights explain",
        "95 % interval +4.61",
    ):
        assert said in learning.detail


@pytest.mark.parametrize("losses", [(-0.05, -0.054, -0.047), (-0.5, -0.5, -0.5)])
def test_head_that_ends_lower_passes_and_it_is_said(losses) -> None:
    learning, found, judgement = compared(side("head", losses))
    assert (learning.verdict, judgement.met) == (Parity.EQUIVALENT, True)
    assert [(one.rule, one.severity) for one in found] == [(Rule.START_CHANGED, Severity.WARN)]
    assert "the losses from step 0 on" in learning.detail
    assert (learning.first_step, learning.signal, learning.apart_first) == (
        0,
        "loss",
        pytest.approx(losses[0]),
    )
    assert "training from another start ends as well as base's" in judgement.headline
    assert "head learns as well as base" in learning.detail
    assert "head ends lower than base, beyond what other start weights explain" in learning.detail


def test_the_same_distribution_of_starts_with_little_luck_is_equivalent() -> None:
    small = (2e-4, -3e-4, 1e-4)
    learning, found, _ = compared(
        side("head", (1e-4, -2e-4, 1e-4), luck=small), side("base", (0.0, 0.0, 0.0), luck=small)
    )
    assert (learning.verdict, [one.rule for one in found]) == (
        Parity.EQUIVALENT,
        [Rule.START_CHANGED],
    )
    assert "head ends lower" not in learning.detail


def test_what_luck_may_explain_cannot_be_told_and_says_what_would() -> None:
    learning, (found,), judgement = compared(side("head", (0.004, -0.002, 0.003)))
    assert learning.verdict is Parity.INCONCLUSIVE
    assert (found.rule, found.severity, judgement.met) == (
        Rule.LEARNING_UNKNOWN,
        Severity.WARN,
        True,
    )
    assert "train more seeds (about 6 for a difference of the margin)" in learning.detail
    assert "95 % interval" in found.message


def test_the_spread_of_starts_counts_and_not_that_of_the_differences_alone() -> None:
    """Three seeds that happen to agree are no proof where another draw moves each of them."""
    alike = (0.01, 0.01, 0.01)
    wide = (0.02, -0.02, 0.015)
    assert (
        compared(side("head", alike, luck=wide), side("base", (0.0, 0.0, 0.0), luck=wide))[
            0
        ].verdict
        is Parity.INCONCLUSIVE
    )
    assert compared(side("head", alike), BASE)[0].verdict is Parity.DIFFERENT


def test_an_unchanged_distribution_of_starts_is_hardly_ever_called_worse() -> None:
    import numpy as np

    coin = np.random.default_rng(5)
    worse, runs = 0, 400
    for _ in range(runs):
        draws = coin.normal(0, 0.01, size=(4, 3))
        base = side("base", tuple(draws[0]), luck=tuple(draws[1] - draws[0]))
        head = side("head", tuple(draws[2]), luck=tuple(draws[3] - draws[2]))
        worse += starts_finding(base, head).verdict is Parity.DIFFERENT
    assert worse / runs <= 0.015, "half of one per cent is promised: head is one-sided"


def test_a_start_that_diverges_is_named() -> None:
    head = side("head", (0.0, 0.0, 0.0))
    traces = tuple(
        poisoned(run, 30) if (run.role, run.seed) == (Role.REFERENCE, 1) else run
        for run in head.parity.traces
    )
    learning, (found,), _ = compared(replace(head, parity=replace(head.parity, traces=traces)))
    assert (learning.verdict, found.rule) == (Parity.NON_FINITE, Rule.LEARNING_CHANGED)


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (side("base", (0.0,) * 3, seeds=1), side("head", (0.0,) * 3, seeds=1)),
        (side("base", (0.0,) * 3), side("head", (0.0,) * 3, seeds=1)),
        (BASE, side("head", (0.5,) * 3, data="other rows")),
    ],
    ids=["one seed each", "an older base with more", "other data"],
)
def test_without_seeds_or_on_other_data_it_stays_unknown(base, head) -> None:
    learning, (found,), _ = compared(head, base)
    assert (learning.verdict, learning.tier, found.rule) == (
        Parity.INSUFFICIENT_DATA,
        Tier.NUMERIC,
        Rule.LEARNING_UNKNOWN,
    )


def test_too_few_steps_decide_nothing() -> None:
    short = [
        replace(one, parity=replace(one.parity, traces=tuple(replace(run, loss=run.loss[:60], grad_norm=run.grad_norm[:60]) for run in one.parity.traces)))
        for one in (BASE, side("head", (0.5, 0.5, 0.5)))
    ]  # fmt: skip
    learning, (found,), _ = compared(short[1], short[0])
    assert (learning.verdict, found.rule) == (Parity.INSUFFICIENT_DATA, Rule.LEARNING_UNKNOWN)
    assert "60 steps are too few: it needs 100" in learning.detail


def test_a_saved_base_without_draws_of_its_own_is_judged_by_the_seeds_alone() -> None:
    learning, _, _ = compared(
        side("head", (0.05, 0.054, 0.047), luck=()), side("base", (0.0, 0.0, 0.0), luck=())
    )
    assert learning.verdict is Parity.DIFFERENT
    assert math.isfinite(learning.interval.high)


def test_seeds_are_asked_for_where_the_starts_differ_on_the_same_data_alone() -> None:
    head = side("head", (0.0, 0.0, 0.0), seeds=1)
    assert starts_differ(BASE, head)
    assert not starts_differ(BASE, BASE)
    assert not starts_differ(BASE, side("head", (0.0,) * 3, data="other rows"))
    assert not starts_differ(BASE, replace(head, parity=None))
    assert not starts_differ(BASE, replace(head, case=replace(head.case, reference="jit")))


def test_a_side_without_trainings_has_no_finding() -> None:
    head = side("head", (0.05, 0.054, 0.047))
    assert starts_finding(replace(BASE, parity=None), head) is None
    assert starts_finding(BASE, replace(head, parity=None)) is None


def test_two_seeds_are_enough_to_be_asked_and_one_is_not() -> None:
    assert (
        starts_finding(side("base", (0.0, 0.0), seeds=2), side("head", (0.05, 0.054), seeds=2))
        is not None
    )
    assert starts_finding(side("base", (0.0,), seeds=1), side("head", (0.05,), seeds=1)) is None


def test_where_the_losses_part_only_a_known_share_is_told() -> None:
    assert "% off)" in starts_finding(BASE, side("head", (0.05, 0.054, 0.047))).detail
