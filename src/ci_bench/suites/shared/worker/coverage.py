"""Share of a step's operators, and of their time, that run inside the graphs that dynamo captured.

The graphs of the experiment `coverage` run as they were captured, forward and backward, each call
under a label. torch's profiler records one step. An operator counts if no other operator called it,
and as captured if a label is above it. Time is the device's if there is one, else the host's, and
only of operators: Python's work between them belongs to neither side. The dynamo runner's
`--coverage` measures the same (`torch._dynamo.profiler`). Imported by workers only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

LABEL = "ci-bench: a captured graph"
OPERATORS = ("aten::", "torchvision::", "prims::", "quantized::", "mkldnn::")


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """Work of a step, inside captured graphs and in all."""

    graph_calls: int
    """The number of calls of captured graphs."""
    captured: int
    """The number of operators that ran inside graphs."""
    operators: int
    """The number of operators in all."""
    captured_us: float
    """Time of the operators inside graphs, in microseconds."""
    operators_us: float
    """Time of all operators, in microseconds."""

    @property
    def of_operators(self) -> float | None:
        """The share of operators that ran inside graphs, 0 to 1; `None` without an operator."""
        return self.captured / self.operators if self.operators else None

    @property
    def of_time(self) -> float | None:
        """The share of the operators' time, 0 to 1; `None` if they took none."""
        return self.captured_us / self.operators_us if self.operators_us > 0 else None


def run_labelled(graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a captured graph, run under `LABEL`: a backend of dynamo that compiles nothing.

    Forward and backward graphs are those of AOTAutograd.
    """
    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=_labelled, bw_compiler=_labelled)
    run: Callable[..., Any] = backend(graph, inputs)
    return run


def _labelled(graph: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
    from torch._functorch._aot_autograd.utils import make_boxed_func

    def run(*args: Any) -> Any:
        with torch.profiler.record_function(LABEL):
            return graph(*args)

    boxed: Callable[..., Any] = make_boxed_func(run)
    return boxed


def coverage_of(step: Callable[[], object]) -> Coverage:
    """Profile one step, which has been compiled already."""
    from torch.profiler import ProfilerActivity, profile

    activities = [
        ProfilerActivity.CPU,
        *([ProfilerActivity.CUDA] if torch.cuda.is_available() else []),
    ]
    with profile(activities=activities, acc_events=True) as profiled:
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return read_events(profiled.events() or ())


def read_events(events: Iterable[Any]) -> Coverage:
    """Compute the coverage of one step from its profiler's events.

    Each event has ``name``, ``cpu_parent`` and its times in microseconds.
    """
    recorded = list(events)
    on_device = any(event.device_time_total for event in recorded)
    inside: list[float] = []
    outside: list[float] = []
    for event in recorded:
        if _is_operator(event) and not any(map(_is_operator, _above(event))):
            took_us = float(event.device_time_total if on_device else event.cpu_time_total)
            labelled = any(ancestor.name == LABEL for ancestor in _above(event))
            (inside if labelled else outside).append(took_us)
    return Coverage(
        graph_calls=sum(event.name == LABEL for event in recorded),
        captured=len(inside),
        operators=len(inside) + len(outside),
        captured_us=sum(inside),
        operators_us=sum(inside) + sum(outside),
    )


def _is_operator(event: Any) -> bool:
    return str(event.name).startswith(OPERATORS)


def _above(event: Any) -> Iterable[Any]:
    parent = event.cpu_parent
    while parent is not None:
        yield parent
        parent = parent.cpu_parent
