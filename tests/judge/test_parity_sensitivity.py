"""What a verdict could have seen: the positive control, the fp32 twin, and trainings that stand still."""

import math
from dataclasses import replace

import pytest
from judge_builders import candidate, control, curve, evidence, numeric, only, result, shaken, trace

from ci_bench.engine.ledger import merge_parity
from ci_bench.judge.parity import learning_of
from ci_bench.judge.parity_learning import why_unlearned
from ci_bench.records.comparison import Parity
from ci_bench.records.results import Role

REFERENCE = trace(Role.REFERENCE)


def rounded(run, digits):
    return replace(run, loss=[round(x, digits) for x in run.loss], grad_norm=[round(x, digits) for x in run.grad_norm])


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
        evidence(*(rounded(run, 1) for run in (REFERENCE, shaken(REFERENCE), candidate(), control(REFERENCE, off=1e-9)))),
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
    ("scale", "verdict"), [(1 + 5e-6, Parity.NUMERIC_PARITY), (1 + 2e-5, Parity.DIFFERENT_MATH), (1.001, Parity.DIFFERENT_MATH)]
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
