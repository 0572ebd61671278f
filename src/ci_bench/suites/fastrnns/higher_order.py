"""The loop over time as one operator of the graph, so that a compiler need not unroll it: `scan` and `while_loop`.

Both are prototypes in torch, and only worth running compiled: uncompiled they trace their body anew in each call. What has to
be done so that their gradients are right is said where it is done; the agreement check tells when torch changes under it.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ci_bench.suites.base import Unsupported
from ci_bench.suites.fastrnns.cells import gated
from ci_bench.suites.fastrnns.structures import Structure, stacked


def scanned() -> Structure:
    """A scan for each layer."""
    operator = _operator("scan")

    def layer(x: Tensor, state: tuple[Tensor, Tensor], weights: list[Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        w_ih, w_hh, b_ih, b_hh = weights

        def step(carry: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            h, c = gated(functional.linear(x, w_ih, b_ih) + functional.linear(carry[0], w_hh, b_hh), carry[1])
            # Copies, since what backward saves must not be an output, too: https://github.com/pytorch/pytorch/issues/195977
            return (h.clone(), c.clone()), h.clone()

        final, outputs = operator(step, state, x)
        return outputs, final

    return stacked(layer)


def looped() -> Structure:
    """One loop over time, with all layers in its body."""
    operator = _operator("while_loop")

    def structure(x: Tensor, states: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
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
                feature, c = gated(functional.linear(feature, w_ih, b_ih) + functional.linear(h, w_hh, b_hh), c)
                new += [feature.clone(), c.clone()]
            return (step + 1, outputs.index_copy(0, at, feature.unsqueeze(0)), *new)

        # Where a carry needs no gradient at the start, torch 2.13 drops the part of the weights' gradients that flows through it.
        nothing = 0 * weights[0].sum()
        start = [state + nothing for k in range(layers) for state in (states[0][k], states[1][k])]
        outputs = x.new_zeros(steps, x.size(1), states[0].size(2)) + nothing
        counter = torch.zeros((), dtype=torch.int64, device=x.device)
        _, outputs, *finals = operator(going, body, (counter, outputs, *start))
        return outputs, [torch.stack(finals[0::2]), torch.stack(finals[1::2])]

    return structure


HIGHER_ORDER: Mapping[str, Callable[[], Structure]] = {"scan": scanned, "while_loop": looped}
"""What makes each structure; both raise `Unsupported` where this torch lacks the operator."""


def keep_saved_buffers() -> None:
    """Keep inductor from reusing what backward still reads: in the body of a loop it takes the wrong buffers for donated.

    https://github.com/pytorch/pytorch/pull/193787 names the fault, of which gradients are wrong without an error.
    """
    from torch._functorch import config

    config.donated_buffer = False


def _operator(name: str) -> Callable[..., Any]:
    """Imported by name, since the modules are private: one that is gone is a reason to skip."""
    try:
        operator: Callable[..., Any] = getattr(import_module(f"torch._higher_order_ops.{name}"), name)
    except (ImportError, AttributeError) as error:
        message = f"torch {torch.__version__} has no higher-order operator {name}"
        raise Unsupported(message) from error
    return operator
