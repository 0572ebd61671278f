"""Start of a case: weights, inputs, states and output gradient, drawn from the seed on the CPU.

All arms of a case get the same bytes, in every process. Weights are uniform in ±1/sqrt(H), as
`torch.nn.LSTM` draws its own; inputs, states and gradient are standard normal. Values are drawn in
double precision and rounded once, to the case's number format.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ci_bench.suites.fastrnns.options import FastrnnsJob, FastrnnsOptions
from ci_bench.suites.fastrnns.residual import draw_weights
from ci_bench.suites.fastrnns.variants import FastrnnsTask

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
SHORTEST = 0.3
"""Variable lengths are uniform from this share of `seq_length` to below all of it.

Of 100 steps they have 30 to 99.
"""
GATES = {FastrnnsTask.GRU: 3, FastrnnsTask.RNN_RELU: 1, FastrnnsTask.RNN_TANH: 1}
NORM_SPREAD = 0.1
"""Scales are drawn around 1 and shifts around 0: at exactly 1 and 0, a structure without them would
compute the same.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenState:
    """The start of one case.

    `weights` by name, in the order in which a structure takes them; `inputs` is x (T, B, I) alone,
    the sequences (length, 1, I) of the rows, or the images; `states` are (L, B, H) each; `gradient`
    has the shape of what is driven.
    """

    weights: dict[str, Tensor]
    inputs: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    gradient: Tensor

    def to(self, dtype: torch.dtype, device: str) -> "GivenState":
        """Copy to a number format and a device; counts stay integral."""

        def moved(value: Tensor) -> Tensor:
            return value.detach().to(
                device=device, dtype=dtype if value.is_floating_point() else value.dtype, copy=True
            )

        return GivenState(
            weights={name: moved(value) for name, value in self.weights.items()},
            inputs=tuple(moved(value) for value in self.inputs),
            states=tuple(moved(value) for value in self.states),
            gradient=moved(self.gradient),
        )


def draw(job: FastrnnsJob) -> GivenState:
    """Draw the start of the job's task, in the job's number format, on the CPU."""
    generator = torch.Generator().manual_seed(job.options.seed)
    drawn = _images(job, generator) if job.variant.is_convolutional else _sequences(job, generator)
    return drawn.to(DTYPES[job.options.dtype], "cpu")


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _images(job: FastrnnsJob, generator: torch.Generator) -> GivenState:
    options = job.options
    pixels = _normal(generator, options.cnn_batch_size, 3, options.image_size, options.image_size)
    weights = draw_weights(options, job.variant.task)
    return GivenState(
        weights=weights,
        inputs=(pixels,),
        states=(),
        gradient=_normal(generator, options.cnn_batch_size, 1000),
    )


def _sequences(job: FastrnnsJob, generator: torch.Generator) -> GivenState:
    options, task = job.options, job.variant.task
    steps, batch, hidden = options.seq_length, options.batch_size, options.hidden_size
    directions = 2 if task is FastrnnsTask.BIDIRECTIONAL else 1
    weights = {
        name: _weight(name, shape, hidden, generator)
        for name, shape in weight_shapes(options, task)
    }
    count = 1 if task in GATES else 2
    states = tuple(
        _normal(generator, options.num_layers * directions, batch, hidden) for _ in range(count)
    )
    inputs: tuple[Tensor, ...] = (_normal(generator, steps, batch, options.input_size),)
    driven: tuple[int, ...] = (steps, batch, hidden * directions)
    if task is FastrnnsTask.LAST_STATE:
        driven = (batch, hidden)
    if task is FastrnnsTask.VARIABLE_LENGTH:
        shortest = max(1, int(SHORTEST * steps))
        lengths = torch.randint(
            shortest, max(shortest + 1, steps), (batch,), generator=generator
        ).tolist()
        inputs = tuple(_normal(generator, length, 1, options.input_size) for length in lengths)
        driven = (max(lengths), batch, hidden)
    return GivenState(
        weights=weights, inputs=inputs, states=states, gradient=_normal(generator, *driven)
    )


def _weight(name: str, shape: tuple[int, ...], hidden: int, generator: torch.Generator) -> Tensor:
    if name.startswith(("scale", "alpha", "beta")):
        return 1 + NORM_SPREAD * _normal(generator, *shape)
    if name.startswith("shift"):
        return NORM_SPREAD * _normal(generator, *shape)
    bound = 1 / math.sqrt(hidden)
    return (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1) * bound


def weight_shapes(
    options: FastrnnsOptions, task: FastrnnsTask
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield names and shapes of all weights of a recurrent task.

    The order is that in which structures take them; the names are torch.nn's.
    """
    hidden = options.hidden_size
    gates = GATES.get(task, 4) * hidden
    directions = ("", "_reverse") if task is FastrnnsTask.BIDIRECTIONAL else ("",)
    for k in range(options.num_layers):
        features = options.input_size if k == 0 else hidden * len(directions)
        for direction in directions:
            tail = f"l{k}{direction}"
            yield f"weight_ih_{tail}", (gates, features)
            yield f"weight_hh_{tail}", (gates, hidden)
            for name, width in _vectors(task, gates, hidden):
                yield f"{name}_{tail}", (width,)


def _vectors(task: FastrnnsTask, gates: int, hidden: int) -> tuple[tuple[str, int], ...]:
    """Return the vectors of a layer, in addition to its two matrices."""
    if task is FastrnnsTask.LAYERNORM:
        return (
            ("scale_ih", gates),
            ("shift_ih", gates),
            ("scale_hh", gates),
            ("shift_hh", gates),
            ("scale_c", hidden),
            ("shift_c", hidden),
        )
    if task is FastrnnsTask.MILSTM:
        return ("alpha", gates), ("beta_ih", gates), ("beta_hh", gates), ("bias", gates)
    return ("bias_ih", gates), ("bias_hh", gates)
