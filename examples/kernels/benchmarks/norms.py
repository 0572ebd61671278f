"""Normalisations.

Run with `ci-bench run benchmarks/`, gate with `ci-bench gate benchmarks/ --baseline paired`.
"""

import torch
from kernels import rms_norm

import ci_bench


def moved(shape: tuple[int, int], dtype: str) -> dict[str, float]:
    """Return the bytes that a normalisation has to read and to write."""
    return {"bytes": 2 * shape[0] * shape[1] * (4 if dtype == "fp32" else 2)}


@ci_bench.benchmark(
    shapes=[(512, 1024), (4096, 256)], dtype=["fp32", "bf16"], work=moved, provider="library"
)
def norm(shape, dtype):
    (rows,) = ci_bench.inputs(1, shape, dtype)
    (weight,) = ci_bench.inputs(1, shape[1:], dtype)
    return lambda: rms_norm(rows, weight)


@norm.provider("torch", reference=True)
def _(shape, dtype):
    (rows,) = ci_bench.inputs(1, shape, dtype)
    (weight,) = ci_bench.inputs(1, shape[1:], dtype)
    return lambda: torch.nn.functional.rms_norm(rows, shape[1:], weight, 1e-6)
