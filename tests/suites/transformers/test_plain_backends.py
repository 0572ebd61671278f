"""The backends of PyTorch's own pages agree with the model, also where it is timed with dropout."""

import plain_backends
import pytest
import torch
from torch.nn import functional
from transformers_builders import agrees, options, outcomes, program, steps, tiny

from ci_bench.records.results import Outcome
from ci_bench.suites.shared.worker import randomness

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.usefixtures("fresh_dynamo")]


def entry(backend, **more):
    named = backend if backend in plain_backends.REGISTERED else f"plain_backends:{backend}"
    return {**tiny("bert"), "candidate": named, **more}


@pytest.mark.parametrize("backend", ["interpreter", "aot_plain", "aot_min_cut"])
def test_a_plain_backend_agrees_in_training(backend):
    check = agrees(**entry(backend, mode="training", dropout=True))
    assert check.outcome is Outcome.PASS, check.detail


def test_a_decomposition_of_torchs_own_is_right_where_its_gradients_are():
    """In torch 2.13 the core decompositions of the CPU's flash attention have gradients that are off by ten times their size."""
    wrong = gradients_are_wrong(plain_backends.aot_decomposed)
    check = agrees(**entry("aot_decomposed", mode="training"))
    assert check.outcome is (Outcome.FAIL if wrong else Outcome.PASS), check.detail


def gradients_are_wrong(backend):
    found = []
    for compiler in ("eager", backend):
        torch.compiler.reset()
        query = torch.randn(
            2, 2, 8, 16, generator=torch.Generator().manual_seed(0)
        ).requires_grad_()
        attention = torch.compile(functional.scaled_dot_product_attention, backend=compiler)
        attention(query, query, query).square().sum().backward()
        found.append(query.grad)
    return not torch.allclose(*found, rtol=1e-3)


@pytest.mark.parametrize("backend", ["forward", "aot_boxed_func"])
def test_a_plain_backend_agrees_in_inference(backend):
    check = agrees(**entry(backend))
    assert check.outcome is Outcome.PASS, check.detail


def test_a_timed_step_with_dropout_is_sound():
    given = entry("aot_plain", mode="training", dropout=True)
    assert options(**given).dropout
    timed = program("plain_backends:aot_plain", **given)
    steps(timed, 2)
    assert set(outcomes(timed).values()) == {Outcome.PASS}


def test_an_observed_step_draws_from_its_own_seed():
    """The numbers drawn before it, as by a compiler, are in none of its masks."""
    losses = []
    for noise in (1, 2):
        one = program(**{**tiny("bert"), "mode": "training", "dropout": True})
        randomness.seed_everything(noise)
        randomness.seed_step(0, 1)
        losses.append(float(one.observe().values["loss: of the step"]))
    assert losses[0] == losses[1]
