"""Captures one call of a program's step in a CUDA graph, or says why that cannot be done.

Follows https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs: warm up on a side stream, capture, replay. A replay does
the GPU's part of the captured call again, with the same inputs; what the step does on the host is not repeated.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

WARMUP_CALLS = 3
"""As in torch's own example: lazy set-up and autotuning have to be over before capturing."""
MAX_REASON = 300


class NothingCaptured(Exception):  # noqa: N818 - it names what is wrong, and is shown to the user
    """The graph is empty: replaying it would time nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Captured:
    """A step's graph, or the reason why there is none. `replay` queues one call and does not wait for it."""

    replay: Callable[[], object] | None
    reason: str = ""


def capture(step: Callable[[], object], cuda: Any, device: str) -> Captured:
    """Capture one call of `step` on the current device of `cuda` (`torch.cuda`, or what behaves like it).

    Raises:
        RuntimeError: the attempt failed, and the step does not run without a graph either.
    """
    home = cuda.current_stream(device)
    graph = cuda.CUDAGraph()
    try:
        _warm_up(step, cuda, device, home)
        _record(step, cuda, graph)
    except Exception as error:  # noqa: BLE001 - whatever stands against capturing is a reason to go on without
        # Where ending the capture raises, torch.cuda.graph leaves its own stream current, and the random generators and the
        # allocator in the middle of a capture; resetting the graph frees them in newer versions of torch.
        cuda.set_stream(home)
        with contextlib.suppress(Exception):
            graph.reset()
        _prove_that_it_runs(step, cuda, device, error)
        return Captured(replay=None, reason=_words(error))
    return Captured(replay=graph.replay)


def _warm_up(step: Callable[[], object], cuda: Any, device: str, home: Any) -> None:
    """Call the step on a side stream; the last call may not wait for the GPU.

    Capturing cannot do that either, but a failed capture may spoil the process for plain calls (see `capture`), and this doesn't.
    """
    side = cuda.Stream(device)
    side.wait_stream(home)
    with cuda.stream(side):
        for _ in range(WARMUP_CALLS - 1):
            step()
        with _no_waiting(cuda):
            step()
    home.wait_stream(side)
    cuda.synchronize(device)


@contextlib.contextmanager
def _no_waiting(cuda: Any) -> Iterator[None]:
    before = cuda.get_sync_debug_mode()
    cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        cuda.set_sync_debug_mode(before)


def _record(step: Callable[[], object], cuda: Any, graph: Any) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with cuda.graph(graph):
            step()
    if any("graph is empty" in str(warning.message).lower() for warning in said):
        message = "the step gave the GPU nothing to do, or did it on a stream of its own"
        raise NothingCaptured(message)


def _prove_that_it_runs(step: Callable[[], object], cuda: Any, device: str, reason: Exception) -> None:
    try:
        step()
        cuda.synchronize(device)
    except Exception as error:
        message = (
            f"the step could not be captured in a CUDA graph ({_words(reason)}), and after the attempt it does not run without "
            f"one either ({_words(error)}); set run.cuda_graph to false"
        )
        raise RuntimeError(message) from error


def _words(error: Exception) -> str:
    """The first line of an error: torch's go on with advice and stacks."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}".removesuffix(": ")[:MAX_REASON]
