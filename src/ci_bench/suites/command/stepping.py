"""Calls for a custom training loop: `step` for each step, or `Step` to yield; `perturb` once.

A loop calls `step` as each step ends, or yields a `Step`. It calls `perturb` before the first step.
Outside of ci-bench they do nothing, so they may stay in the loop. Imports no torch. Losses may be
tensors: reading one waits for the device, as logging a loss does.

Each record also holds the memory in use after the step, so a step that keeps some shows.
"""

import ctypes
import json
import os
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, SupportsFloat

OUTPUT_VARIABLE = "CI_BENCH_OUTPUT"
ROUNDING_VARIABLE = "CI_BENCH_ROUNDING"
EPSILON = 2.0**-23
"""The relative distance of neighbouring fp32 numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Training step that ended: its loss, and optionally global gradient norm and tokens (or rows).

    A loop that is a generator yields these (`loop` of an entry). Numbers may be tensors with one
    element.
    """

    loss: SupportsFloat
    grad_norm: SupportsFloat | None = None
    tokens: int | None = None


def step(
    *,
    loss: SupportsFloat,
    grad_norm: SupportsFloat | None = None,
    tokens: int | None = None,
    rank: int | None = None,
) -> None:
    """Record a training step that ended.

    Optional are the global gradient norm and the step's tokens (or rows).

    Every process may call it, or only the first. By default `rank` is torchrun's. Each call appends
    one line of JSON to the file that CI_BENCH_OUTPUT names, in one write, with the seconds of the
    machine's monotonic clock, less those that reading memory took, and the memory in use.

    Raises:
        OSError: the file cannot be written.
    """
    file = os.environ.get(OUTPUT_VARIABLE)
    if file:
        write(file, read_numbers(Step(loss=loss, grad_norm=grad_norm, tokens=tokens)), rank=rank)


def read_numbers(step: Step) -> Step:
    """Read each number of a step once, as plain numbers.

    A lazy framework computes a step only now, so the clock of the step must still run.
    """
    norm, tokens = step.grad_norm, step.tokens
    return Step(
        loss=_number(step.loss),
        grad_norm=None if norm is None else _number(norm),
        tokens=None if tokens is None else int(tokens),
    )


def write(
    file: str,
    step: Step,
    *,
    rank: int | None = None,
    step_time: float | None = None,
    cpu_time: float | None = None,
) -> None:
    """Append a step of plain numbers to a file, as one line in one write.

    `step_time` and `cpu_time` are in seconds, if known.
    """
    begun = time.monotonic()
    memory = read_memory()
    _Clock.reading_s += time.monotonic() - begun
    record: dict[str, Any] = {
        "loss": step.loss,
        "clock": time.monotonic() - _Clock.reading_s,
        **memory,
    }
    own_rank = int(os.environ.get("RANK", "0")) if rank is None else rank
    record |= {"rank": own_rank} if own_rank or "RANK" in os.environ else {}
    record |= {} if step.grad_norm is None else {"grad_norm": step.grad_norm}
    record |= {} if step.tokens is None else {"tokens": step.tokens}
    record |= {} if step_time is None else {"step_time": step_time}
    record |= {} if cpu_time is None else {"step_cpu_time": cpu_time}
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, json.dumps(record).encode() + b"\n")
    finally:
        os.close(descriptor)


class _MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`.

    `uordblks` and `hblkhd` are the bytes in use, of heaps and of separate mappings.
    """

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


class _Clock:
    """Seconds that this process has spent reading memory; no step counts them."""

    reading_s = 0.0


def read_memory() -> dict[str, int]:
    """Return the bytes that allocations hold now, and the peak on a GPU, by the names of records.

    Unknown ones are missing.

    The C library counts its allocations exactly (glibc's mallinfo2(3)), which resident memory does
    not: freed pieces stay resident. On GPUs torch's allocator counts, if the program has used one.
    """
    memory: dict[str, int] = {}
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is not None:
        mallinfo.restype = _MallocInfo
        amounts = mallinfo()
        memory["allocated_bytes"] = amounts.uordblks + amounts.hblkhd
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        devices = range(cuda.device_count())
        memory["allocated_bytes"] = memory.get("allocated_bytes", 0) + sum(
            map(cuda.memory_allocated, devices)
        )
        memory["peak_allocated_bytes"] = max(map(cuda.max_memory_allocated, devices))
    return memory


def _number(value: SupportsFloat) -> float:
    """Convert a number, or a tensor that has one.

    torch warns of such a tensor while it is part of a graph.
    """
    detach = getattr(value, "detach", None)
    return float(value if detach is None else detach())


def perturb(parameters: Iterable[Any]) -> None:
    """Shake each of these tensors by a rounding error, in the runs that measure rounding.

    For programs that no environment makes round otherwise: trainings on GPUs. In all other runs
    nothing happens. A tensor is multiplied, in place, by 1 + 2^-23 or 1 - 2^-23 (times 2^16 for
    bfloat16, 2^13 for float16), each as a whole, so all ranks shake alike, however it is sharded.
    The same number of CI_BENCH_ROUNDING always shakes the same way.
    """
    number = os.environ.get(ROUNDING_VARIABLE)
    if not number:
        return
    signs = random.Random(number)  # noqa: S311 - no secret
    for parameter in parameters:
        widths = {"torch.bfloat16": 2.0**16, "torch.float16": 2.0**13}
        epsilon = EPSILON * widths.get(str(parameter.dtype), 1.0)
        parameter.data.mul_(1 + signs.choice((-1, 1)) * epsilon)
