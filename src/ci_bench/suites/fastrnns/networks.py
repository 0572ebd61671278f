"""One arm of a case, built and ready: a forward pass on what is given, and the parameters whose gradients it leaves behind."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import rnn

from ci_bench.suites.fastrnns import library
from ci_bench.suites.fastrnns.cells import lstm_cell
from ci_bench.suites.fastrnns.forms import translated
from ci_bench.suites.fastrnns.given import Given
from ci_bench.suites.fastrnns.higher_order import HIGHER_ORDER, keep_saved_buffers
from ci_bench.suites.fastrnns.library import Outputs
from ci_bench.suites.fastrnns.options import Job
from ci_bench.suites.fastrnns.residual import build_resnet
from ci_bench.suites.fastrnns.structures import STRUCTURES, sequences_apart
from ci_bench.suites.fastrnns.variants import Form, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """`forward` gives what the gradient is driven into, and the final states; `drop` switches dropout on and off.

    The gradients of `parameters` exist from the start and are added to, so that zeroing them costs every arm the same.
    """

    parameters: dict[str, Tensor]
    forward: Callable[[], Outputs]
    drop: Callable[[bool], object]

    def zero_gradients(self) -> None:
        """Set every gradient to zero, in place."""
        torch._foreach_zero_([parameter.grad for parameter in self.parameters.values() if parameter.grad is not None])


def build_network(job: Job, given: Given) -> Network:
    """A fresh network of the job's variant, from a copy of what is given, on its device."""
    if job.variant.is_convolutional:
        network = _residual(job, given)
    elif job.variant.structure.startswith("library"):
        network = _of_library(job, given)
    else:
        network = _hand_written(job, given)
    for parameter in network.parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    return network


def _residual(job: Job, given: Given) -> Network:
    """Built without numbers first: all of them, buffers too, are among the weights that are given."""
    with torch.device("meta"):
        model = build_resnet(job.options, job.variant.task)
    model.to_empty(device=given.gradient.device)
    model.load_state_dict(given.weights)
    model.to(dtype=given.gradient.dtype)
    run = translated(model, job.variant.form, mode=job.mode)
    (images,) = given.inputs
    return Network(parameters=dict(model.named_parameters()), forward=lambda: (run(images), ()), drop=_nothing_to_drop)


def _of_library(job: Job, given: Given) -> Network:
    module = library.build_module(job.options, job.variant.task, given.weights)
    share = module.dropout

    def drop(on: bool) -> None:  # noqa: FBT001 - as torch's own `train`
        # Not by `eval`: cuDNN has no backward for a module that is not in training mode.
        module.dropout = share if on else 0.0

    return Network(parameters=dict(module.named_parameters()), forward=library.forward_of(module, job, given), drop=drop)


def _hand_written(job: Job, given: Given) -> Network:
    parameters = {name: value.detach().clone().requires_grad_() for name, value in given.weights.items()}
    run, states, weights = _function(job), list(given.states), list(parameters.values())
    training = True

    def drop(on: bool) -> None:  # noqa: FBT001 - as torch's own `train`
        nonlocal training
        training = on

    def whole() -> Outputs:
        output, finals = run(given.inputs[0], states, weights)
        return output, tuple(finals)

    def dropping() -> Outputs:
        output, finals = run(given.inputs[0], states, weights, job.options.dropout, training)
        return output, tuple(finals)

    sequences = list(given.inputs)

    def apart() -> Outputs:
        outputs, finals = run(sequences, states, weights)
        return rnn.pad_sequence(outputs).squeeze(2), tuple(finals)

    forwards = {Task.DROPOUT: dropping, Task.VARIABLE_LENGTH: apart}
    return Network(parameters=parameters, forward=forwards.get(job.variant.task, whole), drop=drop)


def _function(job: Job) -> Callable[..., Any]:
    """The structure in its form. Sequences of every length would each be unrolled into a graph, so there the cell is compiled."""
    form, structure = job.variant.form, job.variant.structure
    if structure in HIGHER_ORDER:
        keep_saved_buffers()
        return translated(HIGHER_ORDER[structure](), form, mode=job.mode, whole=True)
    if form is Form.COMPILE and job.variant.task is Task.VARIABLE_LENGTH:
        return sequences_apart(translated(lstm_cell, form, mode=job.mode))
    return translated(STRUCTURES[structure], form, mode=job.mode)


def _nothing_to_drop(_on: bool) -> None:  # noqa: FBT001 - as torch's own `train`
    return None
