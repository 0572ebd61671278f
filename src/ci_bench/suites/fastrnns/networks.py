"""One arm of a case, ready to run: a forward pass, and the parameters whose gradients it leaves.

This module turns a function into the form that runs it (plain, scripted, traced or compiled).
Translation happens in the first call, so the latency of the first call shows its cost. This module
also has the loop over time as one operator of the graph, `scan` and `while_loop`, so a compiler
need not unroll it. Both are prototypes in torch, and only worth running compiled: uncompiled they
trace their body again in each call. Comments in the code give the steps that keep their gradients
right; the agreement check fails if torch changes them.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import rnn

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.fastrnns import library
from ci_bench.suites.fastrnns.cells import gated, lstm_cell
from ci_bench.suites.fastrnns.initial_state import GivenState
from ci_bench.suites.fastrnns.library import Outputs
from ci_bench.suites.fastrnns.options import FastrnnsJob
from ci_bench.suites.fastrnns.residual import build_resnet
from ci_bench.suites.fastrnns.structures import STRUCTURES, Structure, sequences_apart, stacked
from ci_bench.suites.fastrnns.variants import FastrnnsTask, Form
from ci_bench.suites.shared.planning.arms import CompiledArm
from ci_bench.suites.shared.worker.compiling import compiled

Function = Callable[..., Any]


def translated(
    function: Function, form: Form, arm: CompiledArm | None = None, *, fullgraph: bool = False
) -> Function:
    """Return a function that runs `function` in a form, compiled for `arm`.

    `fullgraph` refuses graph breaks, for functions that can only run as one graph.
    """
    if form is Form.COMPILE:
        return compiled(arm or CompiledArm(), function, fullgraph=fullgraph, whole_step=False)
    if form is Form.SCRIPT:
        return Lazy(function, _script)
    if form is Form.TRACE:
        return Lazy(function, _trace)
    return function


class Lazy:
    """A function that TorchScript translates in the first call.

    It translates the function's text, or traces it with that call's arguments.
    """

    def __init__(
        self, function: Function, translate: Callable[[Function, tuple[Any, ...]], Function]
    ) -> None:
        """Translate nothing yet."""
        self._function = function
        self._translate = translate
        self._translated: Function | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Translate once, and call."""
        if self._translated is None:
            self._translated = self._translate(self._function, arguments)
        return self._translated(*arguments)


def require_torchscript() -> None:
    """Raise `Unsupported` if scripted and traced forms cannot run: they are gone, or switched off.

    With PYTORCH_JIT=0 `torch.jit.script` returns its argument, and an eager loop would be timed
    under another name.
    """
    for name in ("script", "trace"):
        if not callable(getattr(getattr(torch, "jit", None), name, None)):
            message = (
                f"torch {torch.__version__} has no torch.jit.{name}; use the compiled form of the"
                " structure"
            )
            raise Unsupported(message)
    with _no_deprecation():
        if _add_one is torch.jit.script(_add_one):
            raise Unsupported(
                "TorchScript is switched off here (PYTORCH_JIT=0); unset the variable to run"
                " scripted forms"
            )


def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _script(function: Function, _: tuple[Any, ...]) -> Function:
    with _no_deprecation():
        scripted: Function = torch.jit.script(function)
    return scripted


def _trace(function: Function, arguments: tuple[Any, ...]) -> Function:
    """Trace without torch's own comparison: the suite checks agreement, with gradients."""
    with _no_deprecation():
        # A model asks for sizes on its way, and a trace has the answers built in: the sizes are the
        # same in every step.
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        traced: Function = torch.jit.trace(function, arguments, check_trace=False)  # type: ignore[no-untyped-call]
    return traced


@contextmanager
def _no_deprecation() -> Iterator[None]:
    """Silence TorchScript, which reports in every call that it is deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=r"`torch\.jit\.\w+` is (deprecated|not supported)"
        )
        yield


def scanned() -> Structure:
    """Return a structure with a scan for each layer."""
    operator = _operator("scan")

    def layer(
        x: Tensor, state: tuple[Tensor, Tensor], weights: list[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        w_ih, w_hh, b_ih, b_hh = weights

        def step(carry: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            h, c = gated(
                functional.linear(x, w_ih, b_ih) + functional.linear(carry[0], w_hh, b_hh), carry[1]
            )
            # Copies, since what backward saves must not be an output, too:
            # https://github.com/pytorch/pytorch/issues/195977
            return (h.clone(), c.clone()), h.clone()

        final, outputs = operator(step, state, x)
        return outputs, final

    return stacked(layer)


def looped() -> Structure:
    """Return a structure with one loop over time, and all layers in its body."""
    operator = _operator("while_loop")

    def structure(
        x: Tensor, states: list[Tensor], weights: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        layers, steps = states[0].size(0), x.size(0)

        def going(step: Tensor, *_: Tensor) -> Tensor:
            return step < steps

        def body(step: Tensor, outputs: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
            at = step.reshape(1)
            feature = x.index_select(0, at).squeeze(0)
            new: list[Tensor] = []
            for k in range(layers):
                w_ih, w_hh, b_ih, b_hh = weights[4 * k : 4 * k + 4]
                h, c = carried[2 * k], carried[2 * k + 1]
                feature, c = gated(
                    functional.linear(feature, w_ih, b_ih) + functional.linear(h, w_hh, b_hh), c
                )
                new += [feature.clone(), c.clone()]
            return (step + 1, outputs.index_copy(0, at, feature.unsqueeze(0)), *new)

        # If a carry needs no gradient at the start, torch 2.13 drops the part of the weights'
        # gradients that flows through it.
        nothing = 0 * weights[0].sum()
        start = [state + nothing for k in range(layers) for state in (states[0][k], states[1][k])]
        outputs = x.new_zeros(steps, x.size(1), states[0].size(2)) + nothing
        counter = torch.zeros((), dtype=torch.int64, device=x.device)
        _, outputs, *finals = operator(going, body, (counter, outputs, *start))
        return outputs, [torch.stack(finals[0::2]), torch.stack(finals[1::2])]

    return structure


HIGHER_ORDER: Mapping[str, Callable[[], Structure]] = {"scan": scanned, "while_loop": looped}
"""Makers of each structure; both raise `Unsupported` if this torch lacks the operator."""


def keep_saved_buffers() -> None:
    """Keep inductor from reusing buffers that backward still reads.

    In the body of a loop it takes the wrong buffers for donated.
    https://github.com/pytorch/pytorch/pull/193787 names the fault, of which gradients are wrong
    without an error.
    """
    from torch._functorch import config

    config.donated_buffer = False


def _operator(name: str) -> Callable[..., Any]:
    """Import a higher-order operator by its name.

    The modules are private, so a missing one is a reason to skip.
    """
    try:
        operator: Callable[..., Any] = getattr(
            import_module(f"torch._higher_order_ops.{name}"), name
        )
    except (ImportError, AttributeError) as error:
        message = f"torch {torch.__version__} has no higher-order operator {name}"
        raise Unsupported(message) from error
    return operator


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A network of one arm.

    `forward` gives the tensor at which the gradient enters, and the final states. `drop` switches
    dropout on and off. The gradients of `parameters` exist from the start and are added to, so
    zeroing them costs every arm the same.
    """

    parameters: dict[str, Tensor]
    forward: Callable[[], Outputs]
    drop: Callable[[bool], object]

    def zero_gradients(self) -> None:
        """Set every gradient to zero, in place."""
        torch._foreach_zero_(
            [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]
        )


def build_network(job: FastrnnsJob, start: GivenState) -> Network:
    """Build a network of the job's variant, from a copy of the start, on its device."""
    if job.variant.is_convolutional:
        network = _residual(job, start)
    elif job.variant.structure.startswith("library"):
        network = _of_library(job, start)
    else:
        network = _hand_written(job, start)
    for parameter in network.parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    return network


def _residual(job: FastrnnsJob, start: GivenState) -> Network:
    """Build a ResNet, first without numbers.

    All numbers, buffers too, are among the weights of the start.
    """
    with torch.device("meta"):
        model = build_resnet(job.options, job.variant.task)
    model.to_empty(device=start.gradient.device)
    model.load_state_dict(start.weights)
    model.to(dtype=start.gradient.dtype)
    run = translated(model, job.variant.form, job.compiled)
    (images,) = start.inputs
    return Network(
        parameters=dict(model.named_parameters()),
        forward=lambda: (run(images), ()),
        drop=_nothing_to_drop,
    )


def _of_library(job: FastrnnsJob, start: GivenState) -> Network:
    module = library.build_module(job.options, job.variant.task, start.weights)
    share = module.dropout

    def drop(on: bool) -> None:  # noqa: FBT001 - as torch's own `train`
        # Not by `eval`: cuDNN has no backward for a module that is not in training mode.
        module.dropout = share if on else 0.0

    return Network(
        parameters=dict(module.named_parameters()),
        forward=library.forward_of(module, job, start),
        drop=drop,
    )


def _hand_written(job: FastrnnsJob, start: GivenState) -> Network:
    parameters = {
        name: value.detach().clone().requires_grad_() for name, value in start.weights.items()
    }
    run, states, weights = _function(job), list(start.states), list(parameters.values())
    training = True

    def drop(on: bool) -> None:  # noqa: FBT001 - as torch's own `train`
        nonlocal training
        training = on

    def run_sequence() -> Outputs:
        output, finals = run(start.inputs[0], states, weights)
        return output, tuple(finals)

    def dropping() -> Outputs:
        output, finals = run(start.inputs[0], states, weights, job.options.dropout, training)
        return output, tuple(finals)

    sequences = list(start.inputs)

    def run_sequences() -> Outputs:
        outputs, finals = run(sequences, states, weights)
        return rnn.pad_sequence(outputs).squeeze(2), tuple(finals)

    forwards = {FastrnnsTask.DROPOUT: dropping, FastrnnsTask.VARIABLE_LENGTH: run_sequences}
    return Network(
        parameters=parameters, forward=forwards.get(job.variant.task, run_sequence), drop=drop
    )


def _function(job: FastrnnsJob) -> Callable[..., Any]:
    """Return the structure in its form.

    Sequences of every length would each be unrolled into a graph, so there the cell is compiled.
    """
    form, structure = job.variant.form, job.variant.structure
    if structure in HIGHER_ORDER:
        keep_saved_buffers()
        return translated(HIGHER_ORDER[structure](), form, job.compiled, fullgraph=True)
    if form is Form.COMPILE and job.variant.task is FastrnnsTask.VARIABLE_LENGTH:
        return sequences_apart(translated(lstm_cell, form, job.compiled))
    return translated(STRUCTURES[structure], form, job.compiled)


def _nothing_to_drop(_on: bool) -> None:  # noqa: FBT001 - as torch's own `train`
    return None
