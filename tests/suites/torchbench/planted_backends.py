"""Backends with a defect each."""

import torch
from torch._dynamo.backends.common import aot_autograd


def right(graph, inputs):
    return graph.forward


def _zeros(graph, inputs):
    def run(*arguments):
        return tuple(
            torch.zeros_like(one) if isinstance(one, torch.Tensor) else one
            for one in graph.forward(*arguments)
        )

    return _boxed(run)


def _flipped(graph, inputs):
    def run(*arguments):
        return tuple(
            -one if isinstance(one, torch.Tensor) else one for one in graph.forward(*arguments)
        )

    return _boxed(run)


def _boxed(run):
    from functorch.compile import make_boxed_func

    return make_boxed_func(run)


def _as_is(graph, inputs):
    return _boxed(graph.forward)


zeroed_gradients = aot_autograd(fw_compiler=_as_is, bw_compiler=_zeros)
flipped_gradients = aot_autograd(fw_compiler=_as_is, bw_compiler=_flipped)


def scaled_output(graph, inputs):
    return lambda *arguments: tuple(1000 * one for one in graph.forward(*arguments))


def out_of_memory(graph, inputs):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def refusing(graph, inputs):
    raise RuntimeError("no lowering for this operator")


def gelu_as_relu(graph, inputs):
    """Right but for one operator."""
    for node in graph.graph.nodes:
        if _is_gelu(node):
            node.target, node.kwargs = torch.nn.functional.relu, {}
    graph.recompile()
    return graph.forward


def refusing_gelu(graph, inputs):
    """Compiles all but one operator."""
    if any(map(_is_gelu, graph.graph.nodes)):
        raise RuntimeError("no lowering for gelu")
    return graph.forward


def refusing_gelu_else_wrong(graph, inputs):
    """Refuses one operator, and computes something else of graphs without it."""
    refusing_gelu(graph, inputs)
    return scaled_output(graph, inputs)


def _is_gelu(node):
    return "gelu" in getattr(node.target, "__name__", "")


def half_of_the_rows(graph, inputs):
    place = _of_rows(inputs)

    def run(*arguments):
        some = list(arguments)
        some[place] = some[place][: len(some[place]) // 2]
        return graph(*some)

    return run


def overwriting(graph, inputs):
    place = _of_rows(inputs)

    def run(*arguments):
        left = graph(*arguments)
        arguments[place].mul_(2)
        return left

    return run


def _of_rows(inputs):
    return next(
        place for place, one in enumerate(inputs) if not isinstance(one, torch.nn.Parameter)
    )
