"""The GPU under trial, and the helpers that all figures share. Imports torch only on request."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ci_bench.records.results import Check
from ci_bench.suites.contract import Compiler, Mark, Part

MICROSECONDS = 1e6
MILLISECONDS = 1e3
Call = Callable[[], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One trial: its device, and how large and how patient it is."""

    device: str = "cuda:0"
    simulated: bool = False
    """The device is the simulated card of the tests: sizes are tiny."""
    patience: int = 1
    """The factor on all time limits."""

    def size(self, real: int, simulated: int) -> int:
        """Return the size for this device."""
        return simulated if self.simulated else real


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The figures of one section, and their summary in one line."""

    values: Mapping[str, object]
    summary: str
    failed: bool = False


def read_trial(environ: Mapping[str, str]) -> Trial:
    """Return the trial that the variables ``GPU_KIT_…`` describe."""
    return Trial(
        device=environ.get("GPU_KIT_DEVICE", Trial().device),
        simulated=bool(environ.get("GPU_KIT_SIMULATED")),
        patience=int(environ.get("GPU_KIT_PATIENCE", "1")),
    )


def load_torch(trial: Trial) -> Any:
    """Import torch, and make the trial's device the current one."""
    import torch

    torch.cuda.set_device(trial.device)
    return torch


def uuid_of(torch: Any, trial: Trial) -> str:
    """Return the UUID of the trial's device, as torch spells it."""
    return str(torch.cuda.get_device_properties(trial.device).uuid)


def quantiles(values: Sequence[float], unit: float = MICROSECONDS) -> dict[str, float]:
    """Return minimum, median, 90 % quantile and maximum, in another unit."""
    ordered = sorted(values)
    places = {"min": 0.0, "p50": 0.5, "p90": 0.9, "max": 1.0}
    last = len(ordered) - 1
    seconds = {name: ordered[min(last, int(at * len(ordered)))] for name, at in places.items()}
    return {name: round(value * unit, 3) for name, value in seconds.items()}


def middle(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def time_each(call: Call, count: int) -> list[float]:
    """Return the seconds of each of `count` calls, by the host's clock."""
    seconds = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return seconds


def new_event(torch: Any) -> Any:
    """Return a CUDA event that has a time."""
    return torch.cuda.Event(enable_timing=True)


def time_between(torch: Any, call: Call) -> float:
    """Return the seconds between two events around a call, once the device has finished."""
    start, end = new_event(torch), new_event(torch)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / MILLISECONDS


def nothing() -> None:
    """Do nothing."""


def products(torch: Any, trial: Trial, *, size: int = 2048, count: int = 20) -> Call:
    """Return a call that queues `count` products of two square matrices in bf16."""
    side = trial.size(size, 64)
    factor = torch.randn(side, side, device=trial.device, dtype=torch.bfloat16)
    out = torch.empty_like(factor)

    def call() -> None:
        for _ in range(count):
            torch.mm(factor, factor, out=out)

    return call


class CallProgram:
    """A program for the clock of ci-bench whose step is one call."""

    items: int | None = None
    parts: tuple[Part, ...] = ()
    compiler = Compiler.NONE

    def __init__(self, call: Call) -> None:
        """Make this call in each step."""
        self._call = call

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - it has no parts
        """Make the call."""
        self._call()

    def finish(self) -> tuple[Check, ...]:
        """Return no checks."""
        return ()


def this_trial() -> Trial:
    """Return the trial of this process's environment."""
    return read_trial(os.environ)


def run_module(
    trial: Trial,
    name: str,
    *arguments: str,
    limit_s: float,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """Run a module of the trial in this Python, with more variables; its last line is its answer.

    Raises:
        TimeoutExpired: it took longer than the limit, times the trial's patience.
    """
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.gpu.{name}", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=limit_s * trial.patience,
        check=False,
    )
