"""A compiler backend that runs a graph as it is, with injected faults.

Only for `ci-bench doctor --selftest`. The variable CI_BENCH_PLANT lists the faults: `slow` sleeps,
`leak` keeps memory, `loss` scales what gradients flow through.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

SLEEP_S = 0.01
LEAKED_FLOATS = 8 << 20
MOST_LEAKS = 8
SCALE = 1.01


def backend(graph: torch.fx.GraphModule, _: Sequence[Tensor]) -> Callable[..., Any]:
    """Return the graph's own forward, with the faults of CI_BENCH_PLANT around it."""
    planted = set(filter(None, os.environ.get("CI_BENCH_PLANT", "").split(",")))
    if not planted:
        return graph.forward
    leaks: list[Tensor] = []

    def run(*inputs: Any) -> Any:
        if "slow" in planted:
            time.sleep(SLEEP_S)
        if "leak" in planted and len(leaks) < MOST_LEAKS:
            leaks.append(torch.ones(LEAKED_FLOATS, device=_device_of(inputs)))
        outputs = graph.forward(*inputs)
        return tuple(map(_scaled, outputs)) if "loss" in planted else outputs

    return run


def _device_of(inputs: Sequence[Any]) -> torch.device:
    """Return the device that computes the graph: its memory is measured."""
    return next(
        (value.device for value in inputs if isinstance(value, Tensor)), torch.device("cpu")
    )


def _scaled(value: Any) -> Any:
    return value * SCALE if isinstance(value, Tensor) and value.requires_grad else value
