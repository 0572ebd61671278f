"""Means over windows after the first 50 steps: one rule, of a suite's trainings and of logs."""

from dataclasses import replace

import pytest
from judge_builders import candidate, curve, evidence, only, perturbed, poisoned, shaken, trace

from ci_bench.judge.parity.verdict import numeric_finding
from ci_bench.records.comparison import Parity
from ci_bench.records.results import Masks, Role

STEPS, NOISE = 100, 1 + 1e-6


def found(run, *, log, shaken_steps=STEPS):
    """The finding on a run of a suite or of a log, in the envelope of one perturbed run."""
    reference, other = trace(Role.REFERENCE, steps=STEPS), trace(Role.REFERENCE, steps=shaken_steps)
    noise = replace(shaken(other), start="rounding_1")
    whole = replace(evidence(reference, noise, run), own_program=log)
    return numeric_finding(whole, run, Masks.ALIGNED)


def late(step, loss=NOISE, norm=NOISE):
    """A candidate that is off by a factor from a step on, and by noise before."""
    values = curve(STEPS)

    def off(scale, factor):
        return [scale * x * (factor if at >= step else NOISE) for at, x in enumerate(values)]

    return candidate(loss=off(1, loss), grad_norm=off(2, norm))


BOTH = pytest.mark.parametrize("log", [False, True], ids=["suite", "log"])


@BOTH
@pytest.mark.parametrize(
    ("run", "first", "signal"),
    [
        (late(61, 1.01), 50, "loss"),
        (late(80, 1.01), 75, "loss"),
        (late(99, 1.01), 75, "loss"),
        (late(61, norm=3.0), 50, "grad_norm"),
        (late(61, 1 + 5e-6, 1 + 5e-6), None, None),
    ],
    ids=["loss", "later", "last step", "gradient norm", "rounding"],
)
def test_a_late_change_is_found(run, first, signal, log):
    finding = found(run, log=log)
    assert (finding.first_step, finding.signal, finding.steps) == (first, signal, STEPS)
    if first is None:
        assert finding.verdict is Parity.NUMERIC_PARITY
        assert "mean losses and gradient norms of steps 50 to 99 within" in finding.detail
        assert "; 100 steps compared" in finding.detail
        assert 0 < finding.loss_score < 10
    else:
        assert finding.verdict is Parity.DIFFERENT_MATH
        assert f"of steps {first} to {first + 24} is off by" in finding.detail


def test_both_forms_find_the_same():
    """Exact words and figures of a suite and of a log."""
    for run in (late(61, 1.01), late(80, norm=1.5)):
        suite, log = (found(run, log=log) for log in (False, True))
        assert log.detail.startswith(suite.detail)
        assert (suite.loss_score, suite.grad_norm_score) == (log.loss_score, log.grad_norm_score)


def test_a_late_hole_is_not_finite():
    assert found(poisoned(late(61), 70), log=False).verdict is Parity.NON_FINITE


@BOTH
@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1 + 5e-6, Parity.NUMERIC_PARITY), (1.01, Parity.INSUFFICIENT_DATA)],
    ids=["rounding", "1 %"],
)
def test_short_perturbed_runs_decide_what_they_can(log, factor, verdict):
    """Steps that no perturbed run has pass within the width so far, and are undecided beyond it."""
    finding = found(late(61, factor), log=log, shaken_steps=50)
    assert finding.verdict is verdict
    assert ("the runs in other roundings end after 50 steps" in finding.detail) == (
        not verdict.holds
    )


def test_a_rising_loss_has_its_own_last_digit():
    """A digit of 1,000.0 is more than one of 2.000: it may differ by one there as well."""
    values = [2.0 - 0.01 * step if step < 50 else 1000.0 + step for step in range(STEPS)]
    written = [float(f"{value:.4g}") for value in values]
    reference = trace(Role.REFERENCE, loss=written, grad_norm=())
    noise = replace(reference, role=Role.PERTURBED, start="rounding_1")
    for digits, verdict in ((1, Parity.NUMERIC_PARITY), (30, Parity.DIFFERENT_MATH)):
        moved = [value + digits * (step >= 50) for step, value in enumerate(written)]
        run = candidate(loss=moved, grad_norm=())
        whole = replace(evidence(reference, noise, run), own_program=True)
        assert numeric_finding(whole, run, Masks.ALIGNED).verdict is verdict


def test_a_suites_pass_counts_all_steps():
    runs = (
        trace(Role.REFERENCE, steps=300),
        perturbed(steps=30),
        candidate(steps=300, scale=NOISE),
    )
    assert only(evidence(*runs)).steps == 300
