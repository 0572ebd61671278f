"""Loss parity over seeds: every verdict reached, by hand-computed figures and by planted defects."""

import math
from dataclasses import replace

import pytest
from judge_builders import candidate, evidence, only, statistical, trace

from ci_bench.judge.parity.over_seeds import pooled
from ci_bench.judge.times.ratios import t_quantile
from ci_bench.records.comparison import Parity, Tier
from ci_bench.records.results import Masks, Role

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
    assert f"final loss differs by {sign * 2:+.3f} %" in finding.detail


def test_undecided_over_seeds():
    assert (
        only(statistical((0.02, -0.02, 0.004), nulls=(0.02, -0.02))).verdict is Parity.INCONCLUSIVE
    )


def test_a_well_measured_trifle_is_equivalent():
    finding = only(statistical((0.0010, 0.0011, 0.0009), nulls=(1e-5, -1e-5, 1e-5)))
    assert finding.verdict is Parity.EQUIVALENT
    assert "statistically a difference, but inside the margin" in finding.detail


def test_no_difference_at_all_is_not_called_one():
    assert "statistically" not in only(statistical((0.0, 0.0, 0.0), nulls=())).detail


def apart(difference, *, steps=200, nulls=(1e-6, -1e-6)):
    """Three seeds that end at losses far apart (the margin is 0.5 %), and candidates off by `difference(seed, step)`."""
    traces = []
    for seed, level in enumerate((0.9, 1.0, 1.1)):
        sides = [(Role.REFERENCE, [level] * steps)]
        sides += [(Role.CANDIDATE, [level * (1 + difference(seed, step)) for step in range(steps)])]
        sides += [
            (Role.OTHER_MASKS, [level * (1 + null)] * steps) for null in nulls[seed : seed + 1]
        ]
        begun = [2 * level] * 10  # a training that falls; the last half decides
        traces += [
            trace(role, seed=seed, loss=[*begun, *loss[10:]], grad_norm=[1.0] * steps)
            for role, loss in sides
        ]
    return evidence(*traces, masks=Masks.DIFFER)


def test_a_growing_difference_is_not_equivalent():
    finding = only(apart(lambda _, step: 0.00006 * (step - 174.5)))
    assert finding.verdict is Parity.INCONCLUSIVE
    assert "still growing, by 1.2 % over the run" in finding.detail


@pytest.mark.parametrize("offset", [-0.0045, 0.0, 0.0045])
@pytest.mark.parametrize(
    ("growth", "verdict"), [(0.0045, Parity.EQUIVALENT), (0.0055, Parity.INCONCLUSIVE)]
)
def test_how_fast_it_grows_decides_and_not_how_large_it_is(offset, growth, verdict):
    """Over the last 50 of 100 steps, whose middle is step 74.5, the difference is `offset` on average."""
    finding = only(apart(lambda _, step: offset + growth * (step - 74.5) / 100, steps=100))
    assert finding.difference == pytest.approx(offset, abs=1e-9)
    assert finding.verdict is verdict


@pytest.mark.parametrize("size", [1e7, 1e99])
def test_a_difference_without_bounds_is_told_as_a_million_times_the_loss(size):
    finding = only(apart(lambda _, __: size))
    assert (finding.verdict, finding.difference) == (Parity.DIFFERENT, 1e6)


def test_what_settled_in_the_first_half_no_longer_grows():
    assert only(apart(lambda _, step: 0.0005 * min(0, step - 100))).verdict is Parity.EQUIVALENT


def test_growth_that_is_not_certain_over_the_seeds_does_not_count():
    assert (
        only(apart(lambda seed, step: (seed - 1) * 0.00006 * (step - 174.5))).verdict
        is Parity.EQUIVALENT
    )


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
    runs = [
        trace(Role.REFERENCE, steps=200),
        *(candidate(steps=200, index=index) for index in range(3)),
    ]
    assert only(evidence(*runs, masks=Masks.DIFFER)).verdict is Parity.INSUFFICIENT_DATA


def test_a_seed_that_stopped_early_is_not_a_pass():
    whole = statistical((0.0, 0.0, 0.0))
    cut = [
        replace(run, loss=run.loss[:150]) if (run.role, run.seed) == (Role.CANDIDATE, 1) else run
        for run in whole.traces
    ]
    finding = only(replace(whole, traces=tuple(cut)))
    assert finding.verdict is Parity.INSUFFICIENT_DATA
    assert "seed 1" in finding.detail


@pytest.mark.parametrize(
    "other",
    [
        {"loss": [5.0] * 200, "data": "other rows"},
        {"loss": [5.0] * 150, "grad_norm": [1.0] * 150},
        {"loss": [*[5.0] * 90, None, *[5.0] * 109]},
    ],
    ids=["other data", "stopped early", "not finite"],
)
def test_other_masks_that_may_not_be_compared_tell_nothing_of_noise(other):
    reference = trace(
        Role.REFERENCE,
        seed=3,
        loss=[*[1.0] * 90, None, *[1.0] * 109] if None in other["loss"] else [1.0] * 200,
    )
    sound = statistical((0.001, 0.0, 0.001))
    more = (
        reference,
        trace(Role.OTHER_MASKS, seed=3, **{"grad_norm": reference.grad_norm, **other}),
    )
    assert only(replace(sound, traces=(*sound.traces, *more))) == only(sound)


def test_other_masks_of_a_loss_of_zero_tell_nothing_of_noise():
    zero = {"seed": 3, "loss": [0.0] * 200, "grad_norm": [0.0] * 200}
    sound = statistical((0.001, 0.0, 0.001))
    more = (trace(Role.REFERENCE, **zero), trace(Role.OTHER_MASKS, **zero))
    assert only(replace(sound, traces=(*sound.traces, *more))) == only(sound)


def test_a_loss_around_zero_has_no_relative_size():
    runs = [
        run
        for seed in (0, 1)
        for run in (
            trace(Role.REFERENCE, seed=seed, steps=150, scale=0),
            candidate(seed=seed, steps=150),
        )
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

    assert [limit(spread) for spread in (0.001, 0.008, 0.05)] == [
        0.0025,
        pytest.approx(0.004),
        0.005,
    ]
