"""The backends of PyTorch's own pages pass on a model with dropout, in training and inference; wrong masks fail.

State: the model of `dropping_models`, dropout 0.1 in layer and attention, fp32, one thread, CPU.
"""

import plain_backends
import pytest
import torch
from torchbench_builders import accuracy, opened, word

from ci_bench.records.results import Outcome
from ci_bench.suites.shared.worker import randomness

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()


def dropping(backend, mode="training", **more):
    backend = (
        backend
        if backend in plain_backends.REGISTERED or ":" in backend
        else f"plain_backends:{backend}"
    )
    return {
        "source": "own",
        "models": ["dropping_models:Bench"],
        "mode": mode,
        "backend": backend,
        "optimizer": "SGD",
        **more,
    }


@pytest.mark.parametrize(
    "backend",
    ["forward", "falling_back", "aot_plain", "aot_min_cut", "aot_decomposed", "aot_eager"],
)
def test_a_plain_backend_is_right_in_training(backend):
    check = accuracy(**dropping(backend))
    assert (check.outcome, word(check)) == (Outcome.PASS, "pass"), check.detail


@pytest.mark.parametrize("backend", ["forward", "aot_boxed_func", "falling_back"])
def test_a_plain_backend_is_right_in_inference(backend):
    check = accuracy(**dropping(backend, mode="inference"))
    assert (check.outcome, word(check)) == (Outcome.PASS, "pass"), check.detail


@pytest.mark.parametrize(
    "backend",
    [
        "same_mask",
        "two_masks",
        "redrawn",
        "no_dropout",
        "half_dropout",
        "drawing_and_doubling",
        "drawing_and_keeping",
    ],
)
def test_wrong_masks_fail(backend):
    check = accuracy(**dropping(backend))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy"), check.detail


@pytest.mark.parametrize("backend", ["drawing", "own_generator"])
def test_a_backend_with_its_own_masks_is_right(backend):
    check = accuracy(**dropping(backend))
    assert (check.outcome, word(check)) == (Outcome.PASS, "pass"), check.detail
    assert "is indistinguishable from eager over 128 seeds" in check.detail
    assert "missing in the least visible of its places (3) would have shown" in check.detail


@pytest.mark.parametrize("backend", ["drawing_and_scaled", "drawing_and_detached"])
def test_a_backend_with_its_own_masks_and_a_wrong_result_fails(backend):
    check = accuracy(**dropping(backend))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy"), check.detail
    assert "without dropout, too" in check.detail


def test_a_timed_program_begins_from_its_seed_whatever_was_drawn_before():
    losses = []
    for noise in (1, 2):
        case, workload = opened(**dropping("eager"))
        program = workload.open(case.reference)
        randomness.seed_everything(noise)
        program = workload.open(case.reference)
        program.step(lambda: None)
        losses.append(float(program._result[0]))
    assert losses[0] == losses[1]


def test_dropout_that_is_missing_in_attention_alone_is_seen():
    check = accuracy(**dropping("drawing_and_attending"))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy"), check.detail
    assert "do not explain that with only dropout in attention" in check.detail
