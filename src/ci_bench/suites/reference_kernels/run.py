"""The worker's half of `reference_kernels`: a matrix product, a chain of tiny operations, a copy.

Imports torch.

Seed 0, fp32, nothing random after the inputs. Sizes follow the device: a step takes about a
millisecond on any.
"""

import math
from collections.abc import Callable

import torch

from ci_bench.records.results import Case, Check, Outcome
from ci_bench.suites.contract import Compiler, Context, Evidence, Mark, Part, Program
from ci_bench.suites.reference_kernels.plan import ARM

Work = Callable[[], torch.Tensor]

CHAIN = 100
CPU_SIDE, SIDE_PER_MULTIPROCESSOR = 384, 32
"""Of a square matrix: 4,224 on an H100, 1,280 on a T4."""
CPU_COPIED, COPIED_PER_L2_BYTE = 1 << 20, 4
"""Numbers in a vector on the CPU, or at least; on a GPU it is 16 times as large as the L2 cache."""


def open_workload(case: Case, context: Context) -> "CanaryWorkload":
    """Return the workload of one case."""
    return CanaryWorkload(case.name, context.device)


class CanaryWorkload:
    """One kind of work."""

    def __init__(self, name: str, device: str) -> None:
        """Set the kind of work: `name` is one of `plan.WORK`."""
        self._name, self._device = name, device

    def prepare(self) -> None:
        """Do nothing; there is nothing to fetch."""

    def open(self, arm: str) -> Program:  # noqa: ARG002 - there is one arm
        """Return a fresh program on fresh inputs."""
        torch.manual_seed(0)
        return KernelProgram(
            {"matmul": _matmul, "dispatch": _dispatch, "copy": _copy}[self._name](self._device)
        )

    def verify(self, arms: tuple[str, ...]) -> Evidence:  # noqa: ARG002 - the contract's signature
        """Return no evidence; there is nothing to verify."""
        return Evidence()


class KernelProgram:
    """The same work at every step."""

    items: int | None = None
    parts: tuple[Part, ...] = ()
    compiler = Compiler.NONE

    def __init__(self, work: Work) -> None:
        """Set the work: a step is one call of `work`."""
        self._work = work
        self._out = torch.tensor(math.nan)

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - it has no parts
        """Do the work."""
        self._out = self._work()

    def finish(self) -> tuple[Check, ...]:
        """Check that the last result is finite."""
        finite = bool(torch.isfinite(self._out).all())
        outcome, detail = (
            (Outcome.PASS, "all numbers are finite")
            if finite
            else (Outcome.FAIL, "a number is not finite")
        )
        return (Check(name="finite", arm=ARM, outcome=outcome, detail=detail),)


def _matmul(device: str) -> Work:
    side = CPU_SIDE
    if device != "cpu":
        side = max(
            CPU_SIDE,
            SIDE_PER_MULTIPROCESSOR
            * torch.cuda.get_device_properties(device).multi_processor_count,
        )
    left_factor = torch.randn(side, side, device=device)
    right_factor = torch.randn(side, side, device=device)
    return lambda: left_factor @ right_factor


def _dispatch(device: str) -> Work:
    start = torch.ones(1, device=device)

    def chain() -> torch.Tensor:
        value = start
        for _ in range(CHAIN):
            value = value + 1.0
        return value

    return chain


def _copy(device: str) -> Work:
    numbers = CPU_COPIED
    if device != "cpu":
        l2_bytes = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
        numbers = max(CPU_COPIED, COPIED_PER_L2_BYTE * l2_bytes)
    source = torch.randn(numbers, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)
