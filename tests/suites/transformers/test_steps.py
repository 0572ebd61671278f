"""The timed steps do what they say: forward alone, or zero-grad, forward, backward, optimizer."""

import copy
from dataclasses import replace

import pytest
import torch
from transformers_builders import options, outcomes, program, recipe, steps, tiny

from ci_bench.records.metrics import STEP_PARTS
from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Compiler
from ci_bench.suites.shared.worker.optimizers import BadOptimizer
from ci_bench.suites.transformers import steps as timed_steps
from ci_bench.suites.transformers.inputs import Inputs
from ci_bench.suites.transformers.optimizers import Shadow, build_optimizer
from ci_bench.suites.transformers.parts import make_parts
from ci_bench.suites.transformers.run import open_program
from ci_bench.suites.transformers.steps import Training, fingerprints, loss_of

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("fresh_dynamo")]

PASSED = {"finite_loss": Outcome.PASS, "gradients": Outcome.PASS, "updates_weights": Outcome.PASS}


def batches_of(one):
    return Inputs(
        options=one.options, model=one.build("meta"), dtype=torch.float32, device="cpu"
    ).batches()


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adafactor", "Rprop"])
def test_training_is_a_hand_written_loop_to_the_bit(name):
    one = recipe(**tiny("bert"), mode="training", optimizer=name, lr=0.01)
    plain = one.build()
    optimizer = getattr(torch.optim, name)(plain.parameters(), lr=0.01)
    for batch in batches_of(one)[:3]:
        optimizer.zero_grad()
        loss = plain(**batch).loss
        loss.backward()
        optimizer.step()
    timed = program(**tiny("bert"), mode="training", optimizer=name, lr=0.01)
    steps(timed, 3)
    assert all(
        torch.equal(a, b) for a, b in zip(timed.model.parameters(), plain.parameters(), strict=True)
    )
    assert outcomes(timed) == PASSED


def test_inference_is_a_hand_written_loop_to_the_bit():
    one = recipe(**tiny("gpt2"))
    plain, timed = one.build(), program(**tiny("gpt2"))
    for batch in batches_of(one)[:2]:
        with torch.no_grad():
            expected = plain(**batch, use_cache=False).logits
        assert torch.equal(timed.observe().values["output: 0"], expected)


def test_inference_leaves_no_gradient_and_no_second_output():
    timed = program(**tiny("bert"))
    held = []
    forward = timed._forward
    timed._forward = lambda **batch: held.append(timed._output) or forward(**batch)
    steps(timed, 3)
    assert held == [None, None, None], "the output before is let go first"
    assert not timed._output.logits.requires_grad


def test_a_training_step_marks_the_end_of_each_part_in_order():
    timed = program(**tiny("bert"), mode="training")
    assert [part.metric for part in timed.parts] == [part.name for part in STEP_PARTS]
    steps(timed, 1)
    states = []

    def look():
        gradients = [one.grad is not None for one in timed.model.parameters()]
        states.append((any(gradients), fingerprints(timed.model)))

    before = fingerprints(timed.model)
    timed.step(look)
    (cleared, first), (forwarded, second), (backwarded, third), (stepped, fourth) = states
    assert (cleared, forwarded, backwarded, stepped) == (False, False, True, True)
    assert before == first == second == third
    assert fourth != third


def test_inputs_take_turns():
    timed = program(**tiny("bert"), prepared_inputs=3)
    seen = []
    forward = timed._forward
    timed._forward = lambda **batch: seen.append(batch["input_ids"]) or forward(**batch)
    steps(timed, 6)
    assert [torch.equal(seen[0], other) for other in seen] == [
        True,
        False,
        False,
        True,
        False,
        False,
    ]


def test_a_candidate_compiles_the_forward_pass_and_keeps_the_parts():
    timed = program("dynamo-eager", **tiny("bert"), mode="training", candidate="eager")
    assert (len(timed.parts), timed.compiler) == (4, Compiler.DYNAMO)
    assert steps(timed, 2) == [4, 4]
    assert outcomes(timed) == PASSED


def test_a_whole_candidate_has_no_parts_and_trains_the_same():
    entry = {**tiny("bert"), "mode": "training", "candidate": {"backend": "eager", "whole": True}}
    whole, plain = program("dynamo-eager+whole", **entry), program("eager", **entry)
    assert (whole.parts, len(plain.parts)) == ((), 4)
    assert steps(whole, 2) == [0, 0]
    steps(plain, 2)
    assert outcomes(whole) == PASSED
    torch.testing.assert_close(
        dict(whole.model.named_parameters()), dict(plain.model.named_parameters())
    )


@pytest.mark.parametrize("precision", ["amp_bf16", "amp_fp16", "bf16", "fp16"])
def test_narrow_formats_train(precision):
    timed = program(**tiny("bert"), mode="training", precision=precision, lr=0.01)
    steps(timed, 3)
    assert outcomes(timed) == PASSED
    kept = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    assert {value.dtype for value in timed.model.parameters()} == {kept}


def test_fp16_under_autocast_scales_its_loss_and_unscales_its_gradients():
    scaled = program(**tiny("bert"), mode="training", precision="amp_fp16")
    plain = program(**tiny("bert"), mode="training")
    one, two = scaled.observe().values, plain.observe().values
    assert scaled._scaler.is_enabled()
    name = "gradient: cls.predictions.transform.dense.weight"
    assert 0.9 < float(one[name].norm() / two[name].norm()) < 1.1


def test_a_bare_model_is_trained_on_a_projection_of_its_output():
    entry = {**tiny("bert"), "mode": "training", "only_pretrain_model": True}
    timed = program(**entry)
    one = recipe(**entry)
    with torch.no_grad():
        expected = (
            one.build()(**batches_of(one)[0]).last_hidden_state @ torch.arange(32.0).cos()
        ).mean()
    seen = timed.observe().values
    assert float(seen["loss: of the step"]) == pytest.approx(float(expected), rel=1e-4)
    gradient = seen["gradient: encoder.layer.0.attention.self.value.weight"]
    assert float(gradient.abs().max()) > 1e-4, (
        "the output is normalised, so that its mean and its size have no gradient"
    )
    assert outcomes(timed) == PASSED


def test_a_models_own_loss_is_its_first_output_too():
    assert float(loss_of((torch.tensor(3.0), torch.tensor(1.0)), own_loss=True)) == 3
    assert float(loss_of({"loss": torch.tensor(2.0)}, own_loss=True)) == 2


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            {"optimizer_options": {"beta": 0.9}},
            r"optimizer_options\.beta: torch\.optim\.AdamW does not take this option here \(did you mean betas",
        ),
        ({"optimizer_options": {"betas": [2.0, 0.9]}}, r"torch\.optim\.AdamW refuses .*betas"),
        ({"optimizer_options": {"lr": 0.1}}, r"optimizer_options\.lr: "),
    ],
)
def test_a_wrong_option_of_an_optimizer_is_told(entry, fault):
    one = recipe(**tiny("bert"), mode="training", **entry)
    with pytest.raises(BadOptimizer, match=fault):
        build_optimizer(one.options, one.build("meta"), "cpu")


def test_adam_in_fp16_gets_an_epsilon_that_is_not_zero_there():
    model = torch.nn.Linear(2, 2)
    assert (
        build_optimizer(options(model="bert", precision="fp16"), model, "cpu").param_groups[0][
            "eps"
        ]
        == 1e-4
    )
    given = options(model="bert", precision="fp16", optimizer_options={"eps": 0.01})
    assert build_optimizer(given, model, "cpu").param_groups[0]["eps"] == 0.01
    assert build_optimizer(options(model="bert"), model, "cpu").param_groups[0]["eps"] == 1e-8


@pytest.mark.parametrize(
    ("arm", "captured", "capturable"),
    [(0, False, False), (-1, False, True), (0, True, True), (-1, True, True)],
)
def test_capturable_is_for_steps_that_are_captured_or_compiled_as_a_whole(
    arm, captured, capturable, monkeypatch
):
    asked = []

    def noting(*given, capturable):
        asked.append(capturable)
        return build_optimizer(*given, capturable=capturable)

    monkeypatch.setattr(timed_steps, "build_optimizer", noting)
    one = replace(
        recipe(**tiny("bert"), mode="training", candidate={"whole": True}), captured=captured
    )
    Training(make_parts(one, one.options.arms[arm]))
    assert asked == [capturable]


def test_capturable_is_for_a_gpu():
    given, model = options(model="bert"), torch.nn.Linear(2, 2)
    assert (
        build_optimizer(given, model, "cpu", capturable=True).param_groups[0]["capturable"] is False
    )
    assert (
        build_optimizer(given, model, "cuda:1", capturable=True).param_groups[0]["capturable"]
        is True
    )
    assert build_optimizer(given, model, "cuda:1").param_groups[0]["capturable"] is False


def test_a_fingerprint_tells_one_element():
    model = torch.nn.Linear(64, 64)
    before, other = fingerprints(model), copy.deepcopy(model)
    assert fingerprints(other) == before
    with torch.no_grad():
        other.weight[3, 5] += 1e-6
    assert {name for name, value in fingerprints(other).items() if value != before[name]} == {
        "weight"
    }


@pytest.mark.parametrize("name", ["AdamW", "SGD", "RMSprop", "Adafactor"])
def test_a_shadow_tells_what_the_optimizer_does(name):
    timed = open_program(
        recipe(**tiny("bert"), mode="training", optimizer=name, lr=0.01), "eager", None
    )
    start = {key: value.detach().clone() for key, value in timed.model.named_parameters()}
    for _ in range(3):
        seen = timed.observe()
        assert seen.changes.keys() == {f"weight change: {key}" for key in start}
        for key, change in seen.changes.items():
            size, weights = float(change.ideal.norm()), float(start[key.partition(": ")[2]].norm())
            assert size > 0
            moved = change.after.double() - change.start.double()
            assert (
                float((moved - change.ideal).norm()) <= 1e4 * 2.0**-23 * size + 2.0**-23 * weights
            ), key
            assert torch.equal(change.start, start[key.partition(": ")[2]])
            assert torch.equal(change.after, timed.model.get_parameter(key.partition(": ")[2]))


def test_a_shadow_does_not_run_as_a_gpu_would():
    given = options(
        model="bert",
        optimizer_options={"fused": True, "capturable": True, "foreach": None, "weight_decay": 0.5},
    )
    shadow = Shadow(given, torch.nn.Linear(2, 2))
    group = shadow._optimizer.param_groups[0]
    assert (group["fused"], group["capturable"], group["weight_decay"]) == (None, False, 0.5)
