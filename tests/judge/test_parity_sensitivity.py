"""What a verdict could have seen: the positive control, the fp32 twin, and trainings that stand still."""

import math
from dataclasses import replace

import numpy as np
import pytest
from judge_builders import candidate, control, curve, evidence, numeric, only, result, shaken, trace

from ci_bench.judge.parity.learning import why_unlearned
from ci_bench.judge.parity.verdict import learning_of
from ci_bench.records.comparison import Parity
from ci_bench.records.results import Role
from ci_bench.runner.ledger import merge_parity

REFERENCE = trace(Role.REFERENCE)


def rounded(run, digits):
    return replace(
        run,
        loss=[round(x, digits) for x in run.loss],
        grad_norm=[round(x, digits) for x in run.grad_norm],
    )


def in_bf16(candidate_run, *, twin=None, size=1e-3):
    """Evidence under autocast: a wide envelope, and a twin whose envelope is that of fp32."""
    own = evidence(REFERENCE, shaken(REFERENCE, size), candidate_run)
    return replace(own, precision="amp_bf16", epsilon=2.0**-10, twin=twin)


def test_a_pass_says_what_it_could_have_seen():
    finding = only(numeric(candidate(scale=1 + 1e-6)))
    assert finding.verdict is Parity.NUMERIC_PARITY
    assert "; a learning rate 1 % off would have scored 10," in finding.detail


@pytest.mark.parametrize(
    "weak",
    [
        evidence(REFERENCE, shaken(REFERENCE, 2e-3), candidate()),
        evidence(
            *(
                rounded(run, 1)
                for run in (REFERENCE, shaken(REFERENCE), candidate(), control(REFERENCE, off=1e-9))
            )
        ),
        evidence(REFERENCE, shaken(REFERENCE), candidate(), control(REFERENCE, off=5e-6)),
    ],
    ids=["a wide envelope", "one digit", "a fault that hardly acts"],
)
def test_a_control_that_passes_is_no_pass(weak):
    finding = only(weak)
    assert finding.verdict is Parity.INSUFFICIENT_SENSITIVITY
    assert "train more steps" in finding.detail


def test_no_control_is_no_pass():
    traces = tuple(run for run in numeric(candidate()).traces if run.role is not Role.CONTROL)
    finding = only(replace(numeric(candidate()), traces=traces))
    assert finding.verdict is Parity.INSUFFICIENT_SENSITIVITY
    assert "none was trained" in finding.detail


@pytest.mark.parametrize(
    ("scale", "verdict"),
    [
        (1 + 5e-6, Parity.NUMERIC_PARITY),
        (1 + 2e-5, Parity.DIFFERENT_MATH),
        (1.001, Parity.DIFFERENT_MATH),
    ],
)
def test_a_twin_sees_what_autocast_hides(scale, verdict):
    finding = only(in_bf16(candidate(scale=1 + 1e-4), twin=numeric(candidate(scale=scale))))
    assert finding.verdict is verdict
    assert "the same training in fp32: " in finding.detail


def test_head_beside_base_has_a_twin():
    off = trace(Role.REFERENCE, scale=1.001)
    twins = [evidence(run, shaken(run), candidate()) for run in (REFERENCE, REFERENCE, off)]
    base, same, other = (result(parity=in_bf16(candidate(), twin=twin)) for twin in twins)
    assert learning_of(base, same).verdict is Parity.BITWISE
    assert learning_of(base, other).verdict is Parity.DIFFERENT_MATH


def test_further_runs_of_a_twin_are_added():
    first = in_bf16(candidate(), twin=numeric(candidate()))
    further = replace(
        in_bf16(candidate()),
        masks=(),
        traces=(),
        twin=replace(numeric(candidate()), masks=(), traces=(shaken(REFERENCE, index=5),)),
    )
    assert 5 in {run.index for run in merge_parity(first, further).twin.traces}


LN_5 = math.log(5)


@pytest.mark.parametrize(
    ("losses", "norms", "says"),
    [
        (curve(60), curve(60), ""),
        ([2.3] * 60, curve(60), "never moves"),
        ([-1.0] * 60, [], "placeholder"),
        ([0.0, -1.0] * 30, [], "placeholder"),
        (curve(60), [0.0] * 60, "every gradient norm is exactly 0"),
        (curve(60), [-1.0] * 60, "placeholder"),
        ([LN_5 + 5e-4 * math.sin(9 * step) for step in range(60)], curve(60), "ln 5"),
        ([10.825 + 2e-3 * math.sin(9 * step) for step in range(60)], [], "a guess among"),
        ([LN_5 - 1e-5 * step for step in range(60)], curve(60), ""),
        ([0.02 + 0.01 * math.sin(9 * step) for step in range(60)], curve(60), ""),
        ([1.0] * 9, [], ""),
    ],
)
def test_why_a_training_learned_nothing(losses, norms, says):
    assert (says in why_unlearned(losses, norms)) if says else not why_unlearned(losses, norms)


def test_standing_still_is_never_a_pass():
    still = trace(Role.REFERENCE, loss=[LN_5] * 60)
    finding = only(evidence(still, shaken(still), candidate(loss=still.loss)))
    assert finding.verdict is Parity.INSUFFICIENT_SENSITIVITY
    assert (
        finding.detail
        == "learning unknown: the loss never moves: it is 1.60944 at every step, which is ln 5: a guess among 5 classes"
    )


def digits(count):
    """The run with that many significant digits."""
    return lambda run: replace(
        run,
        loss=tuple(float(f"{x:.{count}g}") for x in run.loss),
        grad_norm=tuple(float(f"{x:.{count}g}") for x in run.grad_norm),
    )


def in_fp32(run):
    """The run with its numbers as fp32, as suites record them."""
    return replace(
        run,
        loss=tuple(float(np.float32(x)) for x in run.loss),
        grad_norm=tuple(float(np.float32(x)) for x in run.grad_norm),
    )


def finding_of(*, log, steps=60, size=1e-6, change=lambda run: run):
    """A run that equals the reference in every bit, in a suite or in a log."""
    reference = trace(Role.REFERENCE, steps=steps)
    noise = replace(shaken(reference, size), start="rounding_1")
    runs = (reference, noise, candidate(steps=steps), control(reference))
    return only(replace(evidence(*map(change, runs)), own_program=log))


@pytest.mark.parametrize("log", [False, True], ids=["suite", "log"])
@pytest.mark.parametrize(
    ("options", "verdict", "says"),
    [
        ({}, Parity.BITWISE, "would have scored 10,"),
        ({"change": digits(5)}, Parity.BITWISE, "would have scored"),
        ({"change": digits(3)}, Parity.BITWISE, "would have scored"),
        ({"change": digits(2)}, Parity.INSUFFICIENT_SENSITIVITY, "so a small fault would pass"),
        ({"change": in_fp32}, Parity.BITWISE, "would have scored"),
        ({"steps": 3}, Parity.INSUFFICIENT_DATA, "parity needs 10 steps, and 3 were compared"),
        ({"size": 5e-4}, Parity.BITWISE, "would have scored 20 (limit 10)"),
        ({"size": 2e-3}, Parity.INSUFFICIENT_SENSITIVITY, "would have scored 5 (limit 10)"),
        ({"size": 1e-2}, Parity.INSUFFICIENT_SENSITIVITY, "would have scored 1 (limit 10)"),
    ],
    ids=[
        "as it is", "five digits", "three digits", "two digits", "fp32", "three steps",
        "perturbed by 0.05 %", "perturbed by 0.2 %", "perturbed by 1 %",
    ],
)  # fmt: skip
def test_the_control_fails_when_it_must(options, verdict, says, log):
    finding = finding_of(log=log, **options)
    assert finding.verdict is verdict
    assert says in finding.detail


def test_fp32_numbers_of_two_digits_hide_the_control():
    finding = finding_of(log=False, change=lambda run: in_fp32(digits(2)(run)))
    assert finding.verdict is Parity.INSUFFICIENT_SENSITIVITY


@pytest.mark.parametrize("log", [False, True], ids=["suite", "log"])
def test_a_pass_is_in_the_same_words(log):
    what = "loss" if log else "learning rate"
    finding = finding_of(log=log, steps=120)
    assert f"; a {what} 1 % off would have scored 10,000 (limit 10)" in finding.detail


def test_without_an_envelope_nothing_is_told_in_figures():
    reference = trace(Role.REFERENCE)
    finding = only(evidence(reference, candidate()))
    assert finding.verdict is Parity.INSUFFICIENT_SENSITIVITY
    assert "would have been found is unknown: no usable perturbed run has seed 0" in finding.detail
