"""Every planted defect of an arm turns a check red: by a compiler that errs, or in the step around it."""

import copy
from dataclasses import replace

import pytest
import torch
from transformers_builders import agrees, outcomes, program, steps, tiny

from ci_bench.records.results import Outcome
from ci_bench.suites.transformers import steps as timed_steps
from ci_bench.suites.transformers.optimizers import build_optimizer
from ci_bench.suites.transformers.parts import Feed, make_parts
from ci_bench.suites.transformers.run import open_program

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("fresh_dynamo")]

CANDIDATE = "planted_compilers:{}"
ERRING = (
    "stale",
    "lagging",
    "slightly_off",
    "rounding",
    "another_dtype",
    "not_finite",
    "coarse_gelu",
)


def entry(backend="sound", model="bert", **more):
    return {**tiny(model), "candidate": CANDIDATE.format(backend), **more}


@pytest.mark.parametrize(
    ("optimizer", "outcome"), [("Signed", Outcome.PASS), ("Hasty", Outcome.FAIL)]
)
def test_an_optimizer_of_ones_own_is_held_against_itself_in_fp64(optimizer, outcome):
    whole = {"backend": "aot_eager", "whole": True}
    given = {
        **tiny("bert"),
        "mode": "training",
        "candidate": whole,
        "optimizer": f"planted_compilers:{optimizer}",
    }
    check = agrees(**given)
    assert check.outcome is outcome, check.detail


@pytest.mark.parametrize("mode", ["inference", "training", "generation"])
def test_a_sound_backend_agrees(mode):
    model = "gpt2" if mode == "generation" else "bert"
    check = agrees(**entry(model=model, mode=mode))
    assert check.outcome is Outcome.PASS, check.detail


@pytest.mark.parametrize("backend", ERRING)
def test_an_arm_that_errs_in_inference_is_caught(backend):
    check = agrees(**entry(backend))
    assert check.outcome is Outcome.FAIL, check.detail


@pytest.mark.parametrize("backend", ["slightly_off", "rounding", "not_finite", "coarse_gelu"])
def test_an_arm_that_errs_in_training_is_caught(backend):
    check = agrees(**entry(backend, mode="training"))
    assert check.outcome is Outcome.FAIL, check.detail


@pytest.mark.parametrize("backend", ["stale", "slightly_off"])
def test_an_arm_that_errs_in_a_generation_is_caught(backend):
    check = agrees(**entry(backend, model="gpt2", mode="generation"))
    assert check.outcome is Outcome.FAIL, check.detail


@pytest.mark.parametrize(
    ("model", "precision"), [("bert", "bf16"), ("vit", "amp_bf16"), ("vit", "fp16")]
)
def test_stale_outputs_are_caught_in_narrow_formats_too(model, precision):
    assert agrees(**entry("sound", model=model, precision=precision)).outcome is Outcome.PASS
    torch._dynamo.reset()
    assert agrees(**entry("stale", model=model, precision=precision)).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("backend", "outcome"),
    [("sound", Outcome.PASS), ("stale", Outcome.FAIL), ("lagging", Outcome.FAIL)],
)
def test_outputs_that_are_stale_while_timed_are_seen_after_the_clock(backend, outcome):
    arm = CANDIDATE.format(backend)
    timed = program(arm, **entry(backend))
    steps(timed, 6)
    assert outcomes(timed)["timed_output_agrees"] is outcome


@pytest.mark.parametrize("mode", ["inference", "generation"])
def test_outputs_that_are_not_finite_are_seen_in_any_arm(mode):
    timed = program(**tiny("gpt2", config={"initializer_range": 1e30}), mode=mode)
    steps(timed, 1)
    assert outcomes(timed)["finite_output"] is Outcome.FAIL


# The step around the model


class Accumulating(timed_steps.Training):
    """Gradients of earlier steps stay."""

    def _train(self, batch, mark):
        kept = self._optimizer.zero_grad
        self._optimizer.zero_grad = lambda set_to_none: None
        try:
            return super()._train(batch, mark)
        finally:
            self._optimizer.zero_grad = kept


class Elsewhere(timed_steps.Training):
    """The optimizer has the parameters of a copy."""

    def __init__(self, parts):
        super().__init__(parts)
        self._optimizer = build_optimizer(parts.recipe.options, copy.deepcopy(parts.model), "cpu")


class PartlyElsewhere(timed_steps.Training):
    """The optimizer lacks one of the parameters."""

    def __init__(self, parts):
        super().__init__(parts)
        group = self._optimizer.param_groups[0]
        group["params"] = [
            one for one in group["params"] if one is not parts.model.cls.predictions.bias
        ]


class AnotherRate(timed_steps.Training):
    """A learning rate one per cent higher."""

    def __init__(self, parts):
        super().__init__(parts)
        self._optimizer.param_groups[0]["lr"] *= 1.01


class Undone(timed_steps.Training):
    """The weights are put back after each step."""

    def _train(self, batch, mark):
        before = copy.deepcopy(self.model.state_dict())
        loss = super()._train(batch, mark)
        self.model.load_state_dict(before)
        return loss


class NoGradient(timed_steps.Training):
    """The gradients are gone when the optimizer comes."""

    def _train(self, batch, mark):
        hook = self._optimizer.register_step_pre_hook(lambda *_: self._optimizer.zero_grad())
        try:
            return super()._train(batch, mark)
        finally:
            hook.remove()


class LostLoss(timed_steps.Training):
    """The loss is no number."""

    def _train(self, batch, mark):
        return super()._train(batch, mark) * float("nan")


class OneBatch(timed_steps.Training):
    """Always the first batch."""

    def __init__(self, parts):
        super().__init__(replace(parts, feed=Feed(parts.feed._inputs, parts.batches[:1])))


class HalfBackward(timed_steps.Training):
    """Gradients are half of what they should be; Adam's update hardly differs."""

    def _train(self, batch, mark):
        hook = self._optimizer.register_step_pre_hook(
            lambda *_: [one.grad.mul_(0.5) for one in self.model.parameters()] and None
        )
        try:
            return super()._train(batch, mark)
        finally:
            hook.remove()


DEFECTS = (
    Accumulating,
    Elsewhere,
    PartlyElsewhere,
    AnotherRate,
    Undone,
    NoGradient,
    LostLoss,
    OneBatch,
    HalfBackward,
)


def opening(defect):
    """Opens every program as it is, but the candidate's with a defect, and without a compiler, which has no part in it."""

    def open_one(recipe, arm, script):
        if arm == "eager":
            return open_program(recipe, arm, script)
        return defect(replace(make_parts(recipe, arm), candidate=None))

    return open_one


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_the_training_step_is_caught(defect):
    check = agrees(opening(defect), **entry(mode="training"))
    assert check.outcome is Outcome.FAIL, check.detail


def test_the_same_way_of_opening_passes_without_a_defect():
    check = agrees(opening(timed_steps.Training), **entry(mode="training"))
    assert check.outcome is Outcome.PASS, check.detail


@pytest.mark.parametrize("defect", [Accumulating, Elsewhere, Undone, OneBatch])
def test_the_step_is_caught_in_narrow_formats_too(defect):
    check = agrees(opening(defect), **entry(mode="training", precision="amp_bf16"))
    assert check.outcome is Outcome.FAIL, check.detail


def finished(defect):
    timed = defect(make_parts(program_recipe(), "eager"))
    steps(timed, 3)
    return {name for name, outcome in outcomes(timed).items() if outcome is Outcome.FAIL}


def program_recipe():
    from transformers_builders import recipe

    return recipe(**tiny("bert"), mode="training")


def test_an_update_that_a_format_rounds_away_is_no_defect():
    entry = {**tiny("bert"), "mode": "training", "optimizer": "SGD"}
    for precision, lr in (("fp32", 1e-7), ("bf16", 1e-4)):
        timed = program(**entry, precision=precision, lr=lr)
        steps(timed, 3)
        still = timed._moved({name: one.grad for name, one in timed.model.named_parameters()})[1]
        assert still == []
        unmoved = [
            name
            for name, value in timed_steps.fingerprints(timed.model).items()
            if value == timed._start[name]
        ]
        assert unmoved, "or the test would see nothing"


@pytest.mark.parametrize(
    ("defect", "red"),
    [
        (timed_steps.Training, set()),
        (Elsewhere, {"updates_weights"}),
        (PartlyElsewhere, {"updates_weights"}),
        (Undone, {"updates_weights"}),
        (NoGradient, {"gradients", "updates_weights"}),
        (LostLoss, {"finite_loss"}),
    ],
)
def test_what_the_timed_steps_left_behind_is_looked_at(defect, red):
    assert finished(defect) == red
