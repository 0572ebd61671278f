"""Loss parity over seeds: every verdict reached, by hand-computed figures and by planted defects."""

import math
from dataclasses import replace

import pytest
from judge_builders import candidate, evidence, only, statistical, trace

from ci_bench.judge.parity.statistical import pooled
from ci_bench.judge.statistics.ratios import t_quantile
from ci_bench.records.case import Masks, Role
from ci_bench.records.comparison import Parity, Tier

PAIR = (Role.REFERENCE, Role.CANDIDATE)


def test_pooled_estimate_by_hand():
    estimate = pooled([1.0, 3.0], [2.0, -1.0])
    assert (estimate.mean, estimate.freedom) == (2.0, 3.0)
    assert estimate.error == pytest.approx(math.sqrt((4 + 1 + 2) / 3 / 2))
    assert estimate.reach(0.95) == pytest.approx(t_quantile(0.95, 3) * estimate.error)


def test_equivalent_over_seeds():
    finding = only(statistical((0.0001, -0.0002, 0.0001)))
    assert (finding.verdict, finding.tier) == (Parity.EQUIVALENT, Tier.STATISTICAL)
    assert finding.difference == pytest.approx(0, abs=1e-9)
    assert finding.interval.low < finding.difference < finding.interval.high
    assert 0.0025 <= finding.limit <= 0.005


@pytest.mark.parametrize("sign", [1, -1])
def test_different_over_seeds(sign):
    finding = only(statistical((sign * 0.02, sign * 0.021, sign * 0.019)))
    assert finding.verdict is Parity.DIFFERENT
    assert finding.difference == pytest.approx(sign * 0.02, rel=1e-6)


def test_undecided_over_seeds():
    assert only(statistical((0.02, -0.02, 0.004), nulls=(0.02, -0.02))).verdict is Parity.INCONCLUSIVE


def test_a_well_measured_trifle_is_equivalent():
    finding = only(statistical((0.0010, 0.0011, 0.0009), nulls=(1e-5, -1e-5, 1e-5)))
    assert finding.verdict is Parity.EQUIVALENT
    assert "inside the margin" in finding.detail


def test_a_growing_difference_is_not_equivalent():
    steady = statistical((0.0, 0.0, 0.0), nulls=(1e-6, -1e-6))
    growth = [1 + 0.00006 * (step - 174.5) for step in range(200)]
    growing = [
        replace(run, loss=tuple(x * by for x, by in zip(run.loss, growth, strict=True))) if run.role is Role.CANDIDATE else run
        for run in steady.traces
    ]
    finding = only(replace(steady, traces=tuple(growing)))
    assert only(steady).verdict is Parity.EQUIVALENT
    assert finding.verdict is Parity.INCONCLUSIVE
    assert "still growing" in finding.detail


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (statistical((0.0,)), "1 seed cannot decide"),
        (statistical((0.0, 0.0), steps=99), "99 steps are too few"),
        (evidence(trace(Role.REFERENCE), candidate(start="x"), masks=Masks.DIFFER), "same state"),
    ],
)
def test_too_little_over_seeds(runs, says):
    finding = only(runs)
    assert finding.verdict is Parity.INSUFFICIENT_DATA
    assert says in finding.detail


def test_repeats_of_one_seed_are_not_seeds():
    runs = [trace(Role.REFERENCE, steps=200), *(candidate(steps=200, index=index) for index in range(3))]
    assert only(evidence(*runs, masks=Masks.DIFFER)).verdict is Parity.INSUFFICIENT_DATA


def test_a_seed_that_stopped_early_is_not_a_pass():
    whole = statistical((0.0, 0.0, 0.0))
    cut = [replace(run, loss=run.loss[:150]) if (run.role, run.seed) == (Role.CANDIDATE, 1) else run for run in whole.traces]
    finding = only(replace(whole, traces=tuple(cut)))
    assert finding.verdict is Parity.INSUFFICIENT_DATA
    assert "seed 1" in finding.detail


def test_a_loss_around_zero_has_no_relative_size():
    runs = [
        run for seed in (0, 1) for run in (trace(Role.REFERENCE, seed=seed, steps=150, scale=0), candidate(seed=seed, steps=150))
    ]
    assert only(evidence(*runs, masks=Masks.DIFFER)).verdict is Parity.INCONCLUSIVE


def test_the_margin_is_half_of_what_another_seed_does_within_bounds():
    def limit(spread):
        scales = (1 - spread, 1.0, 1 + spread)
        runs = [
            trace(role, seed=seed, loss=[scale] * 100, grad_norm=[1.0] * 100)
            for role in PAIR
            for seed, scale in enumerate(scales)
        ]
        return only(evidence(*runs, masks=Masks.DIFFER)).limit

    assert [limit(spread) for spread in (0.001, 0.008, 0.05)] == [0.0025, pytest.approx(0.004), 0.005]
