"""The worker's half of the six workloads: each step repeats a small piece of eager work."""

import os
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.work_suite import PLANT, REPEATS
from ci_bench.records.results import Case, Check
from ci_bench.suites.contract import Compiler, Context, Evidence, Mark, Part

COPIED_FLOATS = 16 * 1024
"""In each of the two buffers, 64 KiB: all programs that take turns in a process have room for
theirs in a core's own cache.
"""


def open_workload(case: Case, context: Context) -> "Work":  # noqa: ARG001 - the contract's signature
    """Open the workload of one case."""
    return Work(case.name)


class Work:
    """One kind of work."""

    def __init__(self, name: str) -> None:
        """Choose the work `name`, one of `work_suite.WORK`."""
        self._name = name

    def prepare(self) -> None:
        """Do nothing: there is nothing to fetch."""

    def open(self, arm: str) -> "Repeated":  # noqa: ARG002 - there is one arm
        """Return a fresh program."""
        torch.manual_seed(0)
        return Repeated(PIECES[self._name](), REPEATS + bool(os.environ.get(PLANT)))

    def verify(self, arms: tuple[str, ...]) -> Evidence:  # noqa: ARG002 - the contract's signature
        """Verify nothing."""
        return Evidence()


class Repeated:
    """A piece of work, so many times."""

    items: int | None = None
    parts: tuple[Part, ...] = ()
    compiler = Compiler.NONE

    def __init__(self, piece: Callable[[], object], times: int) -> None:
        """Call `piece` in each step so many times."""
        self._piece, self._times = piece, times

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - it has no parts
        """Do all repetitions."""
        for _ in range(self._times):
            self._piece()

    def finish(self) -> tuple[Check, ...]:
        """Return no checks."""
        return ()


def _matmul() -> Callable[[], object]:
    first, second = torch.randn(96, 96), torch.randn(96, 96)
    return lambda: first @ second


def _dispatch() -> Callable[[], object]:
    value = torch.randn(4)

    def chain() -> torch.Tensor:
        out = value
        for _ in range(8):
            out = out.add(1.0).mul(0.5).sin()
        return out

    return chain


def _mlp_step() -> Callable[[], object]:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    weights, inputs = tuple(model.parameters()), torch.randn(16, 32)

    def step() -> (
        None
    ):  # gradient descent by hand: torch.optim would import dynamo into every process
        slopes = torch.autograd.grad(model(inputs).square().mean(), weights)
        with torch.no_grad():
            for weight, slope in zip(weights, slopes, strict=True):
                weight.sub_(slope, alpha=1e-3)

    return step


def _convolution() -> Callable[[], object]:
    layer, image = nn.Conv2d(3, 8, 3), torch.randn(2, 3, 24, 24)

    def convolve() -> torch.Tensor:
        with torch.no_grad():
            out: torch.Tensor = layer(image)
        return out

    return convolve


def _lstm_step() -> Callable[[], object]:
    cell, inputs = nn.LSTM(16, 24), torch.randn(6, 4, 16)

    def step() -> None:
        out, _ = cell(inputs)
        out.sum().backward()

    return step


def _copy() -> Callable[[], object]:
    """Copy from buffer to buffer within a core's own cache.

    The time of larger buffers depends on their pages of memory, and on the other cores' use of the
    shared cache: launches of 512 KiB and more, and of many pairs in turn, differ by 3 % and more.
    """
    source, target = torch.randn(COPIED_FLOATS), torch.empty(COPIED_FLOATS)
    return lambda: target.copy_(source)


PIECES: dict[str, Callable[[], Callable[[], object]]] = {
    "matmul": _matmul,
    "dispatch": _dispatch,
    "mlp_step": _mlp_step,
    "convolution": _convolution,
    "lstm_step": _lstm_step,
    "copy": _copy,
}
