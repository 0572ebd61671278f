"""torch.nn's own modules as references and rivals: LSTM, GRU and RNN, with cuDNN and without."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import rnn

from ci_bench.suites.fastrnns.initial_state import GivenState
from ci_bench.suites.fastrnns.options import FastrnnsJob, FastrnnsOptions
from ci_bench.suites.fastrnns.variants import FastrnnsTask, Form
from ci_bench.suites.shared.planning.arms import CompiledArm
from ci_bench.suites.shared.worker.compiling import compiled

Outputs = tuple[Tensor, tuple[Tensor, ...]]
"""The tensor at which the gradient enters, and the final states."""


def build_module(
    options: FastrnnsOptions, task: FastrnnsTask, weights: dict[str, Tensor]
) -> nn.RNNBase:
    """Build the module of a task with the given weights, in training mode.

    It has the number format and the device of the weights.

    Weights that the task does not have are zero: the biases of an LSTM with layer normalisation.
    """
    kinds: dict[FastrnnsTask, Callable[..., nn.RNNBase]] = {
        FastrnnsTask.GRU: nn.GRU,
        FastrnnsTask.RNN_RELU: nn.RNN,
        FastrnnsTask.RNN_TANH: nn.RNN,
    }
    more: dict[str, Any] = (
        {"nonlinearity": str(task).removeprefix("rnn_")} if kinds.get(task) is nn.RNN else {}
    )
    some = weights["weight_ih_l0"]
    module = kinds.get(task, nn.LSTM)(
        options.input_size,
        options.hidden_size,
        options.num_layers,
        bidirectional=task is FastrnnsTask.BIDIRECTIONAL,
        dropout=options.dropout if task is FastrnnsTask.DROPOUT else 0.0,
        **more,
    ).to(device=some.device, dtype=some.dtype)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(weights[name] if name in weights else torch.zeros_like(parameter))
    return module


def forward_of(module: nn.RNNBase, job: FastrnnsJob, start: GivenState) -> Callable[[], Outputs]:
    """Return the task's forward pass on the start's inputs and states.

    Some forms run it without cuDNN.
    """
    call: Callable[..., Any] = module
    if job.variant.form is Form.COMPILE:
        call = _compiled(module, job)
    states: Any = start.states if len(start.states) > 1 else start.states[0]
    passes: dict[str, Callable[[], Outputs]] = {
        FastrnnsTask.VARIABLE_LENGTH: lambda: _packed(call, start.inputs, states),
        FastrnnsTask.LAST_STATE: lambda: _last(call, start.inputs[0], states),
    }
    run = passes.get(job.variant.task, lambda: _whole(call, start.inputs[0], states))
    if job.variant.structure == "library_layernorm":
        run = _with_norms(run, job.options, start)
    # cuDNN only exists on a GPU.
    return _without_cudnn(run) if job.variant.form is Form.ATEN and start.gradient.is_cuda else run


def _whole(call: Callable[..., Any], x: Tensor, states: Any) -> Outputs:
    output, finals = call(x, states)
    return output, finals if isinstance(finals, tuple) else (finals,)


def _last(call: Callable[..., Any], x: Tensor, states: Any) -> Outputs:
    _, (hidden, cell) = call(x, states)
    return hidden[-1], (hidden[-1], cell[-1])


def _packed(call: Callable[..., Any], sequences: tuple[Tensor, ...], states: Any) -> Outputs:
    """Pack the sequences, run the module, and pad the outputs."""
    packed = rnn.pack_sequence(
        [sequence.squeeze(1) for sequence in sequences], enforce_sorted=False
    )
    output, finals = call(packed, states)
    return rnn.pad_packed_sequence(output)[0], tuple(finals)


def _with_norms(
    run: Callable[[], Outputs], options: FastrnnsOptions, start: GivenState
) -> Callable[[], Outputs]:
    """Add three layer normalisations per step and layer to the module.

    Two are over 4 H on fixed numbers, one on the cell.
    """
    hidden, some = options.hidden_size, start.gradient
    wide = [nn.LayerNorm(4 * hidden).to(some) for _ in range(2)]
    narrow = nn.LayerNorm(hidden).to(some)
    generator = torch.Generator().manual_seed(options.seed)
    fixed = torch.randn(options.batch_size, 4 * hidden, generator=generator).to(some)

    def run_both() -> Outputs:
        output, finals = run()
        for layer in range(options.num_layers):
            for _ in range(options.seq_length):
                for norm in wide:
                    norm(fixed)
                narrow(finals[1][layer])
        return output, finals

    return run_both


def _without_cudnn(run: Callable[[], Outputs]) -> Callable[[], Outputs]:
    def run_apart() -> Outputs:
        with switched_off(torch.backends.cudnn):
            return run()

    return run_apart


def _compiled(module: nn.RNNBase, job: FastrnnsJob) -> Callable[..., Any]:
    """Compile the module.

    By default dynamo skips recurrent modules, and inductor fails on oneDNN's operator. Without
    oneDNN, only in the first call, the module is split into its steps instead.
    """
    from torch._dynamo import config

    config.allow_rnn = True
    run = compiled(job.compiled or CompiledArm(), module, whole_step=False)
    called = False

    def call(*arguments: Any) -> Any:
        nonlocal called
        if called:
            return run(*arguments)
        called = True
        with switched_off(torch.backends.mkldnn):
            return run(*arguments)

    return call


@contextmanager
def switched_off(backend: Any) -> Iterator[None]:
    """Switch a backend of torch off for a while.

    Its own context managers set precision, too, and warn about that.
    """
    before = backend.enabled
    backend.enabled = False
    try:
        yield
    finally:
        backend.enabled = before
