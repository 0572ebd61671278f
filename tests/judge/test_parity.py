"""Loss parity step by step, and the choice of tier: every verdict reached, by runs that are right and by planted defects."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import candidate, curve, evidence, numeric, only, perturbed, poisoned, trace

from ci_bench.judge.parity.envelope import envelope, ulp
from ci_bench.judge.parity.verdict import WORST_FIRST, numeric_finding, parity_findings
from ci_bench.records.comparison import Parity, Tier
from ci_bench.records.results import Masks, Role


def bent(step, factor, *, signal="loss", steps=60):
    """A candidate that leaves the reference at `step`."""
    values = [x * (factor if at >= step else 1) for at, x in enumerate(curve(steps))]
    return candidate(
        steps=steps, **{signal: values if signal == "loss" else [2 * x for x in values]}
    )


def test_equal_in_every_bit():
    finding = only(numeric(candidate()))
    assert (finding.verdict, finding.tier, finding.loss_score, finding.grad_norm_score) == (
        Parity.BITWISE,
        Tier.NUMERIC,
        0,
        0,
    )
    assert finding.steps == 60


def test_equal_bits_need_a_perturbed_run():
    """Nothing else says that the comparison would have seen a fault."""
    assert (
        only(evidence(trace(Role.REFERENCE), candidate())).verdict
        is Parity.INSUFFICIENT_SENSITIVITY
    )


@pytest.mark.parametrize("step", [49, 50, 59])
def test_a_late_step_counts(step):
    finding = only(numeric(bent(step, 2.0)))
    assert (finding.verdict, finding.first_step) == (Parity.DIFFERENT_MATH, min(step, 50))


def test_ten_steps_are_enough():
    assert (
        only(numeric(candidate(steps=10, scale=1 + 1e-6), steps=10)).verdict
        is Parity.NUMERIC_PARITY
    )


@pytest.mark.parametrize(
    ("scale", "verdict"), [(1 + 9e-6, Parity.NUMERIC_PARITY), (1 + 12e-6, Parity.DIFFERENT_MATH)]
)
def test_ten_envelopes_are_the_limit(scale, verdict):
    finding = only(numeric(candidate(scale=scale)))
    assert finding.verdict is verdict
    assert finding.limit == 10


@pytest.mark.parametrize("signal", ["loss", "grad_norm"])
def test_different_math_names_the_first_step_and_signal(signal):
    finding = only(numeric(bent(17, 1.01, signal=signal)))
    assert (finding.verdict, finding.first_step, finding.signal) == (
        Parity.DIFFERENT_MATH,
        17,
        signal,
    )
    said = {"loss": "loss", "grad_norm": "gradient norm"}[signal]
    assert finding.detail.startswith(
        f"{said} leaves the rounding envelope at step 17: off by 1 % there, by 1 % at the end, up to"
    )
    assert (finding.apart_first, finding.apart_last) == pytest.approx((0.01, 0.01))


def test_how_far_a_signal_is_off_is_unknown_where_the_reference_is_zero():
    flat = [1.0] * 60
    still = trace(Role.REFERENCE, loss=flat, grad_norm=[0.0] * 60)
    nudged = trace(Role.PERTURBED, loss=flat, grad_norm=[0.0] * 60, start="elsewhere")
    found = only(evidence(still, nudged, candidate(loss=flat, grad_norm=[1.0] * 60)))
    assert found.signal == "grad_norm"
    assert (found.apart_first, found.apart_last) == (None, None)


def test_a_scaled_gradient_is_seen_though_the_loss_is_equal():
    finding = only(numeric(candidate(grad_norm=[1.8 * x for x in curve(60)])))
    assert (finding.signal, finding.loss_score) == ("grad_norm", 0)
    assert finding.verdict is Parity.DIFFERENT_MATH


def test_loss_wins_where_both_signals_leave_at_once():
    assert only(numeric(candidate(scale=1.1))).signal == "loss"


@pytest.mark.parametrize("later", [1, 5])
def test_the_signal_that_leaves_first_is_named(later):
    finding = only(numeric(replace(bent(later, 1.1), grad_norm=tuple(3 * x for x in curve(60)))))
    assert (finding.first_step, finding.signal) == (0, "grad_norm")


@pytest.mark.parametrize(
    ("loss", "score", "verdict"),
    [
        (2.0, 4.0, Parity.NUMERIC_PARITY),
        (3.5, 10.0, Parity.NUMERIC_PARITY),
        (3.75, 11.0, Parity.DIFFERENT_MATH),
    ],
)
def test_score_by_hand(loss, score, verdict):
    flat = [1.0] * 20
    runs = [
        trace(Role.REFERENCE, loss=flat, grad_norm=flat),
        trace(
            Role.PERTURBED, loss=[1.0] * 5 + [1.25] + [1.0] * 14, grad_norm=flat, start="elsewhere"
        ),
        candidate(loss=[1.0] * 6 + [loss] * 14, grad_norm=flat),
    ]
    finding = numeric_finding(evidence(*runs), runs[-1], Masks.ALIGNED)
    assert (finding.loss_score, finding.grad_norm_score) == (score, 0)
    assert finding.verdict is verdict


def test_envelope_floor_is_four_fp32_ulps_and_grows_only():
    assert ulp(np.array([1.0, 1.9, 2.0, 0.0, -3.0])).tolist() == [
        2.0**-23,
        2.0**-23,
        2.0**-22,
        2.0**-149,
        2.0**-22,
    ]
    reference = np.ones(4)
    run = trace(Role.PERTURBED, loss=[1.0, 1.5, 1.0, 1.25], grad_norm=[1.0] * 4)
    assert envelope(reference, (run,), "loss").tolist() == [4 * 2.0**-23, 0.5, 0.5, 0.5]
    assert envelope(np.zeros(4), (run,), "grad_norm").tolist() == [4 * 2.0**-23] * 4


def in_bf16(values):
    mantissas, exponents = np.frexp(np.array(values))
    return [float(one) for one in np.ldexp(np.round(np.ldexp(mantissas, 8)), exponents - 8)]


@pytest.mark.parametrize(
    ("precision", "rounded", "apart", "verdict"),
    [
        ("bf16", True, 2, Parity.NUMERIC_PARITY),
        ("bf16", True, 3, Parity.DIFFERENT_MATH),
        ("bf16", False, 1, Parity.DIFFERENT_MATH),
        ("fp32", True, 1, Parity.DIFFERENT_MATH),
    ],
    ids=["two apart", "three apart", "losses in fp32", "of a model in fp32"],
)
def test_losses_of_few_bits_may_be_two_of_their_numbers_apart(precision, rounded, apart, verdict):
    """Perturbed runs that all round to the same loss say nothing of the next number; a layout's mean of ranks is there."""
    losses = in_bf16(curve(20)) if rounded else curve(20)
    spacing = ulp(np.array(losses), 7)
    shifted = [loss + apart * float(one) for loss, one in zip(losses, spacing, strict=True)]
    runs = [
        trace(Role.REFERENCE, loss=losses, grad_norm=curve(20)),
        trace(Role.PERTURBED, loss=losses, grad_norm=curve(20), start="elsewhere"),
        candidate(loss=shifted, grad_norm=curve(20)),
    ]
    assert only(replace(evidence(*runs), precision=precision)).verdict is verdict


def test_a_candidate_that_rounds_its_losses_is_held_against_those_that_are_not():
    losses = curve(20)
    runs = [
        trace(Role.REFERENCE, loss=losses, grad_norm=losses),
        trace(Role.PERTURBED, loss=losses, grad_norm=losses, start="elsewhere"),
        candidate(loss=in_bf16(losses), grad_norm=losses),
    ]
    assert only(replace(evidence(*runs), precision="bf16")).verdict is Parity.DIFFERENT_MATH


def test_ulp_agrees_with_numpy():
    values = np.abs(np.random.default_rng(1).normal(size=200)).astype(np.float32)
    assert ulp(values.astype(np.float64)).tolist() == np.spacing(values).astype(np.float64).tolist()


def test_the_widest_of_several_perturbed_runs_counts():
    runs = (
        trace(Role.REFERENCE),
        perturbed(1e-9),
        perturbed(1e-4, index=1),
        candidate(scale=1 + 5e-4),
    )
    assert only(evidence(*runs)).verdict is Parity.NUMERIC_PARITY
    assert only(evidence(*runs[:2], runs[3])).verdict is Parity.DIFFERENT_MATH


def test_a_perturbed_run_counts_until_it_stops_being_finite():
    wild = poisoned(perturbed(1e-4), 20)
    wild = replace(wild, loss=(*wild.loss[:21], *[1e9] * 39))
    assert only(numeric(candidate(scale=1 + 5e-4))).verdict is Parity.DIFFERENT_MATH
    runs = (trace(Role.REFERENCE), wild)
    assert only(evidence(*runs, candidate(scale=1 + 5e-4))).verdict is Parity.NUMERIC_PARITY
    assert only(evidence(*runs, candidate(scale=1 + 5e-2))).verdict is Parity.DIFFERENT_MATH


@pytest.mark.parametrize(
    "useless",
    [
        perturbed(start="start-0"),
        perturbed(data="other"),
        perturbed(seed=1),
        perturbed(arm="inductor"),
        perturbed(steps=9),
        replace(perturbed(), loss=[None] * 51 + [1.0] * 9),
    ],
)
def test_perturbed_runs_that_tell_nothing(useless):
    finding = only(evidence(trace(Role.REFERENCE), useless, candidate(scale=1 + 1e-7)))
    assert finding.verdict is Parity.INSUFFICIENT_DATA
    assert "perturbed" in finding.detail


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (numeric(candidate(start="x")), "same state"),
        (numeric(candidate(start="")), "same state"),
        (numeric(candidate(data="x")), "same data"),
        (numeric(candidate(steps=9), steps=9), "needs 10 steps, and 9 were compared"),
        (numeric(candidate(loss=(), grad_norm=())), "needs 10 steps, and 0 were compared"),
        (numeric(candidate(steps=40)), "40 (candidate) and 60 (reference)"),
        (numeric(candidate(steps=80)), "80 (candidate) and 60 (reference)"),
        (numeric(candidate(grad_norm=[2 * x for x in curve(60)[:30]])), "equally long"),
        (numeric(candidate(seed=4)), "no reference run has seed 4"),
        (numeric(candidate(), masks=None), "never probed"),
        (evidence(trace(Role.REFERENCE), perturbed()), "never trained"),
        (evidence(), "never trained"),
    ],
)
def test_insufficient_data_says_why(runs, says):
    finding = only(runs)
    assert finding.verdict is Parity.INSUFFICIENT_DATA
    assert says in finding.detail


def test_an_arm_that_the_evidence_forgot_is_not_a_pass():
    both = parity_findings(numeric(candidate()), arms=("inductor", "jit"))
    assert [(f.arm, f.verdict) for f in both] == [
        ("inductor", Parity.BITWISE),
        ("jit", Parity.INSUFFICIENT_DATA),
    ]


def test_a_short_candidate_that_differs_is_different():
    assert only(numeric(candidate(steps=40, scale=1.1))).verdict is Parity.DIFFERENT_MATH


def test_the_worst_seed_decides():
    seeds = [
        run for seed in (0, 1) for run in (trace(Role.REFERENCE, seed=seed), perturbed(seed=seed))
    ]
    good, bad = candidate(seed=0, scale=1 + 1e-6), candidate(seed=1, scale=1.1)
    finding = only(evidence(*seeds, good, bad))
    assert finding.verdict is Parity.DIFFERENT_MATH
    assert finding.detail.startswith("worst of 2 seeds, 1:")
    assert (
        only(evidence(*seeds[:3], good, candidate(seed=1, scale=1 + 1e-7))).verdict
        is Parity.INSUFFICIENT_DATA
    )


def test_zero_gradients_and_losses_do_not_divide_by_zero():
    flat = (0.0,) * 20
    runs = [trace(Role.REFERENCE, loss=flat, grad_norm=flat), perturbed(loss=flat, grad_norm=flat)]
    assert (
        only(evidence(*runs, candidate(loss=flat, grad_norm=(1e-30,) * 20))).verdict
        is Parity.DIFFERENT_MATH
    )
    finding = only(evidence(*runs, candidate(loss=(5.0,) * 20, grad_norm=flat)))
    assert finding.loss_score == 1e9


def test_accuracy_and_the_seed_rule_come_along():
    runs = [
        trace(Role.REFERENCE, steps=125, accuracy=0.6),
        perturbed(steps=125),
        candidate(steps=125, accuracy=0.6, disagreements=(1, 1)),
    ]
    finding = only(evidence(*runs, rows=1000))
    assert finding.accuracy.holds
    assert finding.seed_rule.passed


def test_missing_accuracy_is_said():
    assert "accuracy is missing" in only(numeric(candidate(), rows=100)).detail


def test_every_verdict_has_a_rank():
    assert set(WORST_FIRST) == set(Parity)


floats = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))


histories = st.lists(floats, max_size=14)


@settings(max_examples=60, deadline=None)
@given(reference=histories, norms=histories, other=histories, masks=st.sampled_from(list(Masks)))
def test_garbage_never_crashes_and_a_pass_is_earned(reference, norms, other, masks):
    runs = [
        trace(Role.REFERENCE, loss=reference, grad_norm=norms),
        trace(Role.PERTURBED, loss=other, grad_norm=norms, start="elsewhere"),
        candidate(loss=other, grad_norm=reference),
    ]
    finding = only(evidence(*runs, masks=masks))
    assert not finding.verdict.holds or finding.steps >= 10
    for score in (finding.loss_score, finding.grad_norm_score):
        assert score is None or math.isfinite(score)


@pytest.mark.parametrize(
    "runs",
    [
        numeric(candidate(start="")),
        numeric(candidate(), masks=None),
        evidence(trace(Role.REFERENCE)),
    ],
)
def test_runs_that_cannot_be_held_together_have_no_steps(runs):
    assert only(runs).steps == 0


@pytest.mark.parametrize(
    ("epsilon", "verdict"), [(2.0**-8, Parity.NUMERIC_PARITY), (2.0**-7, Parity.INSUFFICIENT_DATA)]
)
def test_perturbations_beyond_bfloat16s_own_rounding_are_no_measure(epsilon, verdict):
    assert only(replace(numeric(candidate(scale=1 + 1e-6)), epsilon=epsilon)).verdict is verdict


@pytest.mark.parametrize("first", [0, 7])
def test_how_far_apart_is_told_of_the_first_step_out_and_of_the_last(first):
    losses = [
        loss * (1 + (0.001 * (step + 1) if step >= first else 0.0))
        for step, loss in enumerate(curve(40))
    ]
    found = only(numeric(candidate(loss=losses, steps=40), steps=40))
    assert (found.first_step, found.signal) == (first, "loss")
    assert (found.apart_first, found.apart_last) == pytest.approx((0.001 * (first + 1), 0.04))
