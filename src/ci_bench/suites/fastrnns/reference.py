"""Reference of a task in double precision: torch.nn's modules if it has one, else plain formulas.

The plain formulas are written gate by gate and share nothing with the timed structures. Dropout is
off, or uses the given masks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ci_bench.suites.fastrnns.cells import EPSILON
from ci_bench.suites.fastrnns.initial_state import GivenState
from ci_bench.suites.fastrnns.library import Outputs
from ci_bench.suites.fastrnns.networks import Network, build_network
from ci_bench.suites.fastrnns.options import FastrnnsJob
from ci_bench.suites.fastrnns.variants import REFERENCES, VARIANTS, FastrnnsTask

Observed = dict[str, Tensor]
"""Compared values, by name: the output, the final states, the gradient of each weight."""

GRADIENT = "gradient: "
PLAIN = "plain formulas in double precision"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceNetwork:
    """Source of the expected values.

    It has a description in words, and a function from a start in double precision to the values.
    """

    words: str
    job: FastrnnsJob
    backward: bool

    def observe(self, start: GivenState, *, exact: bool = True) -> Observed:
        """Return the expected values of a start in double precision.

        Calls that are not `exact` return those in the start's own format.
        """
        used = start.to(torch.float64, str(start.gradient.device)) if exact else start
        return observe(self._network(used), used.gradient, backward=self.backward)

    def _network(self, start: GivenState) -> Network:
        return _reference_network(self.job, start)


def reference_for(job: FastrnnsJob) -> ReferenceNetwork:
    """Return the reference of a job's variant, which depends only on the function it computes."""
    task = job.variant.task
    if job.variant.structure == "library_layernorm":
        # The added norms do not change the module's results, and take no part in backward.
        return ReferenceNetwork(
            words="nn.LSTM in double precision, forward only", job=_as(job, "aten"), backward=False
        )
    if task in PLAIN_LAYERS:
        return ReferenceNetwork(words=PLAIN, job=job, backward=not job.variant.forward_only)
    names = {
        FastrnnsTask.GRU: "nn.GRU",
        FastrnnsTask.RNN_RELU: "nn.RNN",
        FastrnnsTask.RNN_TANH: "nn.RNN",
    }
    words = names.get(task, "the eager model" if job.variant.is_convolutional else "nn.LSTM")
    return ReferenceNetwork(
        words=f"{words} in double precision", job=_as(job, REFERENCES[task]), backward=True
    )


def _as(job: FastrnnsJob, name: str) -> FastrnnsJob:
    return replace(job, variant=VARIANTS[name], mode=None)


def observe(network: Network, gradient: Tensor, *, backward: bool = True) -> Observed:
    """Return output, states and gradients of one round.

    Earlier values in the gradients stay in the sum.
    """
    output, states = network.forward()
    observed = {
        "output": output.detach(),
        **{f"state {index}": state.detach() for index, state in enumerate(states)},
    }
    if not backward:
        return observed
    torch.autograd.backward([output], [gradient])
    grads = {name: parameter.grad for name, parameter in network.parameters.items()}
    return {
        **observed,
        **{
            f"{GRADIENT}{name}": grad.detach().clone()
            for name, grad in grads.items()
            if grad is not None
        },
    }


def _reference_network(job: FastrnnsJob, start: GivenState) -> Network:
    layer = PLAIN_LAYERS.get(job.variant.task)
    if layer is None:
        network = build_network(job, start)
        network.drop(False)
        return network
    return plain_network(start, layer, layers=job.options.num_layers)


def plain_network(
    start: GivenState,
    layer: "PlainLayer",
    *,
    layers: int,
    between: Callable[[int, Tensor], Tensor] = lambda _, x: x,
) -> Network:
    """Stack layers of plain formulas; `between` changes the output of a layer.

    Layers count from 0.
    """
    parameters = {name: value.clone().requires_grad_() for name, value in start.weights.items()}

    def forward() -> Outputs:
        x, finals = start.inputs[0], []
        for k in range(layers):
            layer_weights = {
                name.removesuffix(f"_l{k}"): value
                for name, value in parameters.items()
                if name.endswith(f"_l{k}")
            }
            x, h, c = layer(x, start.states[0][k], start.states[1][k], layer_weights)
            x = between(k, x) if k < layers - 1 else x
            finals.append((h, c))
        return x, (torch.stack([h for h, _ in finals]), torch.stack([c for _, c in finals]))

    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    return Network(parameters=parameters, forward=forward, drop=lambda _: None)


def plain_lstm(
    x: Tensor, h: Tensor, c: Tensor, weights: dict[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Run an LSTM layer: i, f, o = sigma(z), g = tanh(z_g), c' = f c + i g, h' = o tanh(c')."""

    def sums(x: Tensor, h: Tensor) -> Iterator[Tensor]:
        for rows in _gates(h):
            matrices = x @ weights["weight_ih"][rows].T + h @ weights["weight_hh"][rows].T
            yield matrices + weights["bias_ih"][rows] + weights["bias_hh"][rows]

    return _through_time(x, h, c, sums, lambda cell: cell)


def plain_milstm(
    x: Tensor, h: Tensor, c: Tensor, weights: dict[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a layer as `plain_lstm` with z = alpha Wx Uh + beta_i Wx + beta_h Uh + b."""

    def sums(x: Tensor, h: Tensor) -> Iterator[Tensor]:
        for rows in _gates(h):
            wx, uh = x @ weights["weight_ih"][rows].T, h @ weights["weight_hh"][rows].T
            mixed = weights["alpha"][rows] * wx * uh
            yield (
                mixed
                + weights["beta_ih"][rows] * wx
                + weights["beta_hh"][rows] * uh
                + weights["bias"][rows]
            )

    return _through_time(x, h, c, sums, lambda cell: cell)


def plain_layernorm(
    x: Tensor, h: Tensor, c: Tensor, weights: dict[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a layer as `plain_lstm` with z = LN(x W_ih^T) + LN(h W_hh^T), and c' normalised.

    Both normalisations of z are over all gates.
    """

    def norm(values: Tensor, name: str) -> Tensor:
        deviation = (values.var(-1, unbiased=False, keepdim=True) + EPSILON).sqrt()
        return (values - values.mean(-1, keepdim=True)) / deviation * weights[
            f"scale_{name}"
        ] + weights[f"shift_{name}"]

    def sums(x: Tensor, h: Tensor) -> Iterator[Tensor]:
        together = norm(x @ weights["weight_ih"].T, "ih") + norm(h @ weights["weight_hh"].T, "hh")
        yield from (together[:, rows] for rows in _gates(h))

    return _through_time(x, h, c, sums, lambda cell: norm(cell, "c"))


def _gates(h: Tensor) -> tuple[slice, ...]:
    """Return the rows of i, f, g and o in a weight."""
    width = h.shape[1]
    return tuple(slice(gate * width, (gate + 1) * width) for gate in range(4))


def _through_time(
    x: Tensor,
    h: Tensor,
    c: Tensor,
    sums: Callable[[Tensor, Tensor], Iterator[Tensor]],
    settle: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    outputs = []
    for step in x:
        z_i, z_f, z_g, z_o = sums(step, h)
        c = settle(z_f.sigmoid() * c + z_i.sigmoid() * z_g.tanh())
        h = z_o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs), h, c


PlainLayer = Callable[[Tensor, Tensor, Tensor, dict[str, Tensor]], tuple[Tensor, Tensor, Tensor]]
PLAIN_LAYERS: Mapping[FastrnnsTask, PlainLayer] = {
    FastrnnsTask.LAYERNORM: plain_layernorm,
    FastrnnsTask.MILSTM: plain_milstm,
}
"""Tasks for which torch.nn has no module."""
