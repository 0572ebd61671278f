"""The compiler backend of the pictured pull request, in head.

It is slower, has a large buffer, and is wrong from its ninth training step on.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

WORK = torch.ones(160, 160)
TIMES = 1
KEPT_FLOATS = 1_500_000
LAST_GOOD_CALL = 8


def backend(graph: GraphModule, _: Sequence[Tensor]) -> Callable[..., Any]:
    """Return the graph's forward with needless work and memory, wrong from the ninth call on."""
    calls = 0
    buffer = torch.ones(KEPT_FLOATS)

    def run(*inputs: Any) -> Any:
        nonlocal calls
        calls += 1
        for _ in range(TIMES):
            torch.matmul(WORK, WORK, out=buffer[: WORK.numel()].view_as(WORK))
        outputs = graph.forward(*inputs)
        if calls <= LAST_GOOD_CALL:
            return outputs
        return tuple(value * 1.002 if value.requires_grad else value for value in outputs)

    return run
