"""Losses and gradient norms that are no number: which run is to blame, and what is judged all the same."""

from dataclasses import replace

import pytest
from judge_builders import candidate, curve, evidence, numeric, only, perturbed, poisoned, trace

from ci_bench.records.comparison import Parity
from ci_bench.records.results import Masks, Role


@pytest.mark.parametrize("signal", ["loss", "grad_norm"])
@pytest.mark.parametrize("masks", list(Masks))
def test_not_finite_in_the_candidate_only(signal, masks):
    finding = only(numeric(poisoned(candidate(), 7, signal, "inf"), masks=masks))
    assert (finding.verdict, finding.first_step, finding.signal) == (Parity.NON_FINITE, 7, signal)
    assert "inf at step 7" in finding.detail


def test_a_loss_beyond_any_float32_counts_as_not_finite():
    values = list(curve(60))
    values[20] = 1e200
    assert only(numeric(candidate(loss=values))).verdict is Parity.NON_FINITE


def test_a_candidate_that_ends_where_it_stops_being_finite():
    assert only(numeric(poisoned(candidate(steps=30), 29))).verdict is Parity.NON_FINITE


def both_poisoned(step, later=0, **fields):
    return evidence(
        poisoned(trace(Role.REFERENCE), step),
        perturbed(),
        poisoned(candidate(**fields), step + later),
    )


@pytest.mark.parametrize("later", [-1, 0, 1])
def test_not_finite_in_both_is_reported_and_not_failed(later):
    finding = only(both_poisoned(40, later, scale=1 + 1e-6))
    assert finding.verdict is Parity.NUMERIC_PARITY
    assert f"step {min(40, 40 + later)}" in finding.detail


@pytest.mark.parametrize(
    ("step", "fields", "verdict"),
    [(0, {}, Parity.BITWISE), (5, {}, Parity.BITWISE), (0, {"scale": 1.1}, Parity.DIFFERENT_MATH)],
)
def test_a_hole_in_both_is_skipped(step, fields, verdict):
    """A loss scaler's first overflow is no reason to stop looking."""
    finding = only(both_poisoned(step, **fields))
    assert (finding.verdict, finding.steps) == (verdict, 59 if finding.verdict.holds else 49)


@pytest.mark.parametrize(
    ("holes", "verdict"), [(30, Parity.NUMERIC_PARITY), (31, Parity.INSUFFICIENT_DATA)]
)
def test_half_of_the_steps_need_numbers(holes, verdict):
    runs = [trace(Role.REFERENCE), candidate(scale=1 + 1e-6)]
    for step in range(60 - holes, 60):
        runs = [poisoned(run, step) for run in runs]
    finding = only(evidence(runs[0], perturbed(), runs[1]))
    assert finding.verdict is verdict
    assert finding.steps == 60 - holes


def test_a_second_hole_on_one_side_fails():
    """The candidate's scaler overflows once more than the reference's."""
    finding = only(
        evidence(
            poisoned(trace(Role.REFERENCE), 0), perturbed(), poisoned(poisoned(candidate(), 0), 1)
        )
    )
    assert (finding.verdict, finding.first_step) == (Parity.NON_FINITE, 1)


@pytest.mark.parametrize(("later", "verdict"), [(-2, Parity.NON_FINITE), (2, Parity.INCONCLUSIVE)])
def test_not_finite_at_different_steps_blames_the_first(later, verdict):
    assert only(both_poisoned(40, later)).verdict is verdict


@pytest.mark.parametrize("masks", list(Masks))
def test_not_finite_in_the_reference_only_blames_the_reference(masks):
    finding = only(
        evidence(poisoned(trace(Role.REFERENCE), 12), perturbed(), candidate(), masks=masks)
    )
    assert finding.verdict is Parity.INCONCLUSIVE
    assert finding.steps == 12
    assert "the reference itself is not finite (loss at step 12)" in finding.detail


@pytest.mark.parametrize(
    ("loss", "grad_norm", "first"),
    [(7, 9, (7, "loss")), (9, 7, (7, "grad_norm")), (7, 7, (7, "loss"))],
)
def test_the_first_step_that_fails_is_told_and_the_loss_where_both_fail_at_once(
    loss, grad_norm, first
):
    finding = only(numeric(poisoned(poisoned(candidate(), loss), grad_norm, "grad_norm")))
    assert (finding.first_step, finding.signal) == first


@pytest.mark.parametrize("role", [Role.CANDIDATE, Role.REFERENCE])
@pytest.mark.parametrize("step", [29, 30])
def test_nobody_is_blamed_for_what_fails_after_the_other_has_ended(role, step):
    """The other run has 30 steps, so that nothing is known of what it would have been at step 30."""
    other = Role.REFERENCE if role is Role.CANDIDATE else Role.CANDIDATE
    finding = only(evidence(poisoned(trace(role), step), trace(other, steps=30), perturbed()))
    blamed = Parity.NON_FINITE if role is Role.CANDIDATE else Parity.INCONCLUSIVE
    assert finding.verdict is (blamed if step < 30 else Parity.INSUFFICIENT_DATA)


def test_what_fails_beyond_the_last_common_step_is_not_told():
    """Both have a gradient norm more than losses, and that one is no number."""
    norms = [2 * x for x in curve(60)]
    runs = [replace(run, grad_norm=(*norms, None)) for run in (trace(Role.REFERENCE), candidate())]
    assert "stop being finite" not in only(evidence(runs[0], perturbed(), runs[1])).detail


def exploding(step, run):
    """Return the run without a loss from a step on."""
    for hole in range(step, 60):
        run = poisoned(run, hole)
    return run


def beside_an_explosion(run, *, explodes=46):
    """Return the finding of a run whose reference is finite, and one of two perturbed runs not."""
    runs = (perturbed(index=0), exploding(explodes, perturbed(index=1)))
    return only(evidence(trace(Role.REFERENCE), *runs, run))


@pytest.mark.parametrize("step", [45, 46, 50, 59])
def test_a_training_that_rounding_alone_drives_beyond_numbers_blames_the_reference(step):
    finding = beside_an_explosion(exploding(step, candidate()))
    assert (finding.verdict, finding.steps) == (Parity.INCONCLUSIVE, step)
    assert "after rounding, the reference is not finite either (loss at step 46)" in finding.detail


@pytest.mark.parametrize("step", [7, 44])
def test_an_explosion_before_that_of_rounding_fails(step):
    finding = beside_an_explosion(exploding(step, candidate()))
    assert (finding.verdict, finding.first_step) == (Parity.NON_FINITE, step)


def test_a_candidate_that_stays_finite_is_judged_although_rounding_may_explode():
    assert beside_an_explosion(candidate(scale=1.1)).verdict is Parity.DIFFERENT_MATH


@pytest.mark.parametrize("signal", ["loss", "grad_norm"])
def test_a_skipped_step_of_a_perturbed_run_is_no_explosion(signal):
    """A scaler overflows once, and the training goes on; so does one whose last norm overflows."""
    step = 20 if signal == "loss" else 59
    runs = (poisoned(perturbed(), step, signal), exploding(59, candidate()))
    assert only(evidence(trace(Role.REFERENCE), *runs)).verdict is Parity.NON_FINITE


GROWTH = (4.0, 17.0, 258.0, 1e12)
"""Losses on the way to an overflow."""


def growing(role, factor=1.0, early=1.0, **fields):
    """Return a run that only grows from step 45 on, and has no number from step 50 on.

    There it grows by a `factor` more each step; step 20 is off by the factor `early`.
    """
    made = trace(role, **fields)
    grown = [loss * factor**place for place, loss in enumerate(GROWTH)]
    losses = [*made.loss[:45], 0.5, *grown, *made.loss[50:]]
    losses[20] *= early
    return exploding(50, replace(made, loss=tuple(losses)))


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (growing(Role.CANDIDATE), Parity.BITWISE),
        (growing(Role.CANDIDATE, factor=3.0), Parity.INCONCLUSIVE),
        (growing(Role.CANDIDATE, early=1.1), Parity.DIFFERENT_MATH),
    ],
)
def test_rounding_is_multiplied_where_a_loss_only_grows_until_it_overflows(run, verdict):
    """From there on a deviation says nothing; one before it does."""
    run = replace(run, arm=candidate().arm)
    finding = only(evidence(growing(Role.REFERENCE), perturbed(), run))
    assert finding.verdict is verdict
    if verdict is Parity.INCONCLUSIVE:
        assert "its loss only grows from step 45 on" in finding.detail


def test_a_loss_that_grows_and_stays_finite_is_judged():
    losses = (*curve(60)[:46], *GROWTH, *(9.0 for _ in range(10)))
    apart = (*losses[:47], 50.0, *losses[48:])
    reference, run = trace(Role.REFERENCE, loss=losses), candidate(loss=apart)
    finding = only(evidence(reference, replace(perturbed(), loss=losses), run))
    assert (finding.verdict, finding.first_step) == (Parity.DIFFERENT_MATH, 47)
