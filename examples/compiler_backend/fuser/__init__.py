"""A compiler backend: turns the graph that TorchDynamo captures into what runs instead."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd


def _compile(graph: torch.fx.GraphModule, _: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Clean up the graph; a real backend would fuse, and generate code."""
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph.forward


backend = aot_autograd(fw_compiler=_compile)
