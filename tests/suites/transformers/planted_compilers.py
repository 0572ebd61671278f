"""Compiler backends for dynamo with a defect each.

They run the graph as it is, and then go wrong.
"""

import copy
import sys

import torch
from torch import Tensor

from ci_bench.suites.transformers.optimizers import build_optimizer
from ci_bench.suites.transformers.steps import Training


def sound(graph, inputs):
    return graph.forward


def stale(graph, inputs):
    """What came out first comes out ever after."""
    kept = []

    def run(*values):
        kept.append(graph.forward(*values))
        return kept[0]

    return run


def lagging(graph, inputs):
    """What comes out is what should have come out one call ago."""
    kept = []

    def run(*values):
        kept.append(graph.forward(*values))
        return kept[-2] if len(kept) > 1 else kept[-1]

    return run


def slightly_off(graph, inputs):
    """A tenth of a per mille too much."""

    def run(*values):
        return tuple(
            one * 1.0001 if isinstance(one, Tensor) and one.is_floating_point() else one
            for one in graph.forward(*values)
        )

    return run


def wrong_at_ten(graph, inputs):
    """A tenth of a per mille too much, where a text has ten tokens."""

    def run(*values):
        ten = any(
            isinstance(one, Tensor) and one.dtype == torch.int64 and one.shape[1:] == (10,)
            for one in values
        )
        return tuple(
            one * 1.0001 if ten and isinstance(one, Tensor) and one.is_floating_point() else one
            for one in graph.forward(*values)
        )

    return run


def rounding(graph, inputs):
    """Computes in another format, and returns the right one."""

    def run(*values):
        return tuple(
            one.bfloat16().to(one.dtype)
            if isinstance(one, Tensor) and one.is_floating_point()
            else one
            for one in graph.forward(*values)
        )

    return run


def another_dtype(graph, inputs):
    def run(*values):
        return tuple(
            one.double() if isinstance(one, Tensor) and one.is_floating_point() else one
            for one in graph.forward(*values)
        )

    return run


def not_finite(graph, inputs):
    def run(*values):
        return tuple(
            one * float("nan") if isinstance(one, Tensor) and one.is_floating_point() else one
            for one in graph.forward(*values)
        )

    return run


def coarse_gelu(graph, inputs):
    """The tanh form of GELU for the exact one: another function, close by."""
    for node in graph.graph.nodes:
        if node.op == "call_function" and "gelu" in str(node.target):
            node.target, node.kwargs = torch.nn.functional.gelu, {"approximate": "tanh"}
    graph.recompile()
    return graph.forward


def _step_around():
    """The training step whose model is being compiled: a backend is called from within it."""
    frame = sys._getframe()
    while not isinstance(frame.f_locals.get("self"), Training):
        frame = frame.f_back
    return frame.f_locals["self"]


def accumulating(graph, inputs):
    """From here on, no gradient is cleared."""
    _step_around()._optimizer.zero_grad = lambda set_to_none: None
    return graph.forward


def optimizer_elsewhere(graph, inputs):
    """From here on, the optimizer has the parameters of a copy."""
    step = _step_around()
    step._optimizer = build_optimizer(step._parts.recipe.options, copy.deepcopy(step.model), "cpu")
    return graph.forward


def no_compiler(graph, inputs):
    raise NotImplementedError("this backend compiles nothing")


def greedy_for_memory(graph, inputs):
    torch.empty(1 << 50, dtype=torch.uint8)
    return graph.forward


class Signed(torch.optim.Optimizer):
    """An optimizer of the user's own: every weight moves against the sign of its gradient."""

    further = 1.0

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            far = group["lr"] * (self.further if torch.compiler.is_compiling() else 1.0)
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.sub_(torch.sign(weight.grad), alpha=far)


class Hasty(Signed):
    """Where it is compiled, it moves one per cent further."""

    further = 1.01
