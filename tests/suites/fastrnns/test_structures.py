"""Outputs, states and gradients of every variant against formulas in numpy, at the corners of its sizes."""

import numpy as np
import plain_numpy
import pytest
import torch
from fastrnns_builders import HAND_WRITTEN, WITHOUT_COMPILER, make_job

from ci_bench.suites.fastrnns.initial_state import draw
from ci_bench.suites.fastrnns.networks import build_network
from ci_bench.suites.fastrnns.reference import observe, reference_for
from ci_bench.suites.fastrnns.variants import VARIANTS, FastrnnsTask

pytestmark = pytest.mark.engine

CORNERS = {
    "one of all": {"seq_length": 1, "num_layers": 1, "batch_size": 1},
    "one step, three layers": {"seq_length": 1, "num_layers": 3, "batch_size": 2},
    "one row, three layers": {"seq_length": 4, "num_layers": 3, "batch_size": 1},
    "several of all": {"seq_length": 5, "num_layers": 2, "batch_size": 3},
}


def numpy_of(given):
    return (
        [one.numpy() for one in given.inputs],
        [one.numpy() for one in given.states],
        {k: v.numpy() for k, v in given.weights.items()},
    )


def task_of(job):
    """What numpy computes; dropout is off, and the norms beside the library's module change nothing."""
    return "sequence" if job.variant.structure == "library_layernorm" else str(job.variant.task)


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("name", WITHOUT_COMPILER)
def test_outputs_states_and_gradients_are_those_of_the_formulas(name, corner):
    job = make_job(name, dtype="float64", **CORNERS[corner])
    given = draw(job)
    network = build_network(job, given)
    network.drop(False)
    reference = reference_for(job)
    seen = observe(network, given.gradient, backward=reference.backward)
    inputs, states, weights = numpy_of(given)
    if job.variant.structure == "library_layernorm":
        zeros = {
            name.replace("weight", "bias"): np.zeros(len(value))
            for name, value in weights.items()
            if "weight" in name
        }
        weights = {**weights, **zeros}

    output, finals = plain_numpy.compute(task_of(job), inputs, states, weights)

    np.testing.assert_allclose(seen["output"], output, atol=1e-12)
    for index, final in enumerate(finals):
        np.testing.assert_allclose(seen[f"state {index}"], final, atol=1e-12)
    rng = np.random.default_rng(0)
    for weight in given.weights if reference.backward else ():
        direction = rng.standard_normal(weights[weight].shape)
        found = float((seen[f"gradient: {weight}"].numpy() * direction).sum())
        wanted = plain_numpy.slope(
            task_of(job),
            inputs,
            states,
            weights,
            gradient=given.gradient.numpy(),
            name=weight,
            direction=direction,
        )
        assert found == pytest.approx(wanted, rel=2e-6, abs=1e-7), weight


@pytest.mark.parametrize("name", WITHOUT_COMPILER)
def test_the_suites_own_reference_is_the_formulas(name):
    job = make_job(name, dtype="float64", seq_length=3, num_layers=2, batch_size=2)
    if job.variant.structure == "library_layernorm":
        return  # its biases are the module's own, as the test above says
    given = draw(job)
    inputs, states, weights = numpy_of(given)
    output, _ = plain_numpy.compute(task_of(job), inputs, states, weights)
    np.testing.assert_allclose(reference_for(job).observe(given)["output"], output, atol=1e-12)


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_lengths_layers_and_sizes_are_all_heeded(name):
    """The original ran one layer whatever was asked for; here every size shows in what comes out."""
    job = make_job(name, seq_length=3, num_layers=3, input_size=4, hidden_size=5, batch_size=2)
    given = draw(job)
    seen = observe(build_network(job, given), given.gradient)
    weights = [name for name in seen if name.startswith("gradient: weight_ih")]
    directions = 2 if job.variant.task is FastrnnsTask.BIDIRECTIONAL else 1
    assert len(weights) == 3 * directions
    assert seen["gradient: weight_ih_l0"].shape[1] == 4
    assert seen["state 0"].shape == (
        (2, 5) if job.variant.task is FastrnnsTask.LAST_STATE else (3 * directions, 2, 5)
    )
    assert all(bool(value.count_nonzero()) for value in seen.values())


def test_variable_lengths_are_padded_with_zeros_and_end_where_their_rows_end():
    job = make_job("vl_py", seq_length=10, batch_size=4, dtype="float64")
    given = draw(job)
    output, (hidden, _) = build_network(job, given).forward()
    lengths = [len(one) for one in given.inputs]
    assert len({*lengths}) > 1
    for row, length in enumerate(lengths):
        assert not output[length:, row].any()
        assert torch.equal(output[length - 1, row], hidden[-1, row])


def test_only_the_norms_cost_tells_the_lower_bound_from_the_module():
    job = make_job("aten_layernorm")
    given = draw(job)
    assert VARIANTS["aten_layernorm"].forward_only
    alone = observe(
        build_network(make_job("aten_layernorm"), given), given.gradient, backward=False
    )
    assert {*alone} == {"output", "state 0", "state 1"}
