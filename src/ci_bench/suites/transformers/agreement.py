"""Do two arms compute the same? Errors against a reference in fp64, and how large they may be. Numbers in, sentences out.

Of each tensor the 2-norm of its error is taken, relative to its scale. The eager arm's own error says what rounding alone does
to this model; a candidate may be off by `NOISE_FACTOR` times that, and by a few roundings of the format. The scale of a tensor is
its norm, but at least its share of the norm of all tensors of its kind: a gradient that is zero by mathematics (of a key's bias,
say) has an error, and no norm to compare it with.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ci_bench.records.case import Check, Outcome
from ci_bench.suites.transformers.options import AGREES

NOISE_FACTOR = 4.0
BLIND, BEYOND_BLIND = 0.9, 1.5
"""A tensor of zeros has an error of 1, so no limit is beyond 0.9, unless rounding comes near it: then 1.5 times eager's own."""
ROUNDINGS = 8.0
FEW = 16.0
"""A norm over n elements fluctuates by a share of 1/sqrt(n); so a limit grows by 1 + sqrt(FEW / n)."""
COARSE_EXPONENT = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What came of a step, on the CPU, by names such as ``output: 0``, ``loss: of the step``, ``gradient: lm_head.weight``.

    `expected` holds the truth, in fp64, of values that follow from what the same arm computed before: of a weight's change after
    its own gradient. All other values have the reference's for their truth.
    """

    values: Mapping[str, Tensor]
    expected: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """The size of one tensor of the reference: its norm, raised to its share of its kind's, and its number of elements."""

    norm: float
    elements: int


class Mismatch(Exception):  # noqa: N818 - it is an answer, not an error
    """Two observations are not of one form. The message says where."""


def scales_of(reference: Observation) -> dict[str, Scale]:
    """The scale of every tensor. The kind of a tensor is what its name says before the colon."""
    squares: dict[str, float] = {}
    counts: dict[str, int] = {}
    for name, value in reference.values.items():
        squares[kind_of(name)] = squares.get(kind_of(name), 0.0) + _norm(value) ** 2
        counts[kind_of(name)] = counts.get(kind_of(name), 0) + value.numel()
    found = {}
    for name, value in reference.values.items():
        kind = kind_of(name)
        share = math.sqrt(squares[kind] * value.numel() / max(counts[kind], 1))
        found[name] = Scale(norm=max(_norm(value), share), elements=value.numel())
    return found


def errors_of(seen: Observation, reference: Observation, scales: Mapping[str, Scale]) -> dict[str, float]:
    """The relative error of every tensor.

    Raises:
        Mismatch: names, shapes or finiteness differ.
    """
    values, truths = seen.values, {**reference.values, **seen.expected}
    missing, more = sorted(reference.values.keys() - values.keys()), sorted(values.keys() - reference.values.keys())
    if missing or more:
        said = [f"lacks {missing[0]} (and {len(missing) - 1} more)"] if missing else []
        raise Mismatch("; ".join([*said, *([f"has {more[0]} (and {len(more) - 1} more)"] if more else [])]))
    errors = {}
    for name in reference.values:
        value, other = truths[name], values[name]
        if other.shape != value.shape:
            raise Mismatch(f"{name} has the shape {tuple(other.shape)}, not {tuple(value.shape)}")
        if not bool(torch.isfinite(other).all()):
            raise Mismatch(f"{name} is not finite")
        error = _norm(other.double() - value)
        errors[name] = error / scales[name].norm if scales[name].norm > 0 else (math.inf if error > 0 else 0.0)
    return errors


def same_formats(seen: Observation, eager: Mapping[str, torch.dtype]) -> None:
    """Raise `Mismatch` where an arm returns another dtype than the eager one."""
    for name, dtype in eager.items():
        if name in seen.values and seen.values[name].dtype != dtype:
            raise Mismatch(f"{name} is {seen.values[name].dtype}, and {dtype} in the eager arm")


def limits_of(noise: Mapping[str, float], scales: Mapping[str, Scale], epsilon: float) -> dict[str, float]:
    """How large each relative error may be, from the eager arm's own (`noise`) and the size of one rounding (`epsilon`).

    A tensor's noise counts as at least the median of its kind: in one of few elements the eager arm may be right by luck.
    """
    kinds: dict[str, list[float]] = {}
    for name, value in noise.items():
        kinds.setdefault(kind_of(name), []).append(value)
    typical = {kind: statistics.median(values) for kind, values in kinds.items()}
    limits = {}
    for name, value in noise.items():
        few = 1 + math.sqrt(FEW / max(scales[name].elements, 1))
        limit = (NOISE_FACTOR * max(value, typical[kind_of(name)]) + ROUNDINGS * epsilon) * few
        limits[name] = min(limit, max(BLIND, BEYOND_BLIND * value))
    return limits


def agreement(arm: str, errors: Mapping[str, float], noise: Mapping[str, float], limits: Mapping[str, float]) -> Check:
    """The check `agrees` of one arm. Its detail names the tensor that comes nearest to its limit, or is farthest beyond."""
    if not errors:
        return disagrees(arm, "the step returned no tensor, so there is nothing to compare")
    worst = max(errors, key=lambda name: errors[name] / limits[name])
    beyond = sum(1 for name, error in errors.items() if not error <= limits[name])
    outcome = Outcome.FAIL if beyond else Outcome.PASS
    figures = f"{worst}: relative error {errors[worst]:.2g}, limit {limits[worst]:.2g}, eager's own {noise[worst]:.2g}"
    counted = f"{beyond} of {len(errors)} tensors are beyond their limit" if beyond else f"{len(errors)} tensors agree"
    return Check(name=AGREES, arm=arm, outcome=outcome, detail=f"{counted}; {figures} (against fp64)")


def disagrees(arm: str, reason: str) -> Check:
    """The check `agrees`, failed for a reason that is no number."""
    return Check(name=AGREES, arm=arm, outcome=Outcome.FAIL, detail=reason)


def coarse_limit(epsilon: float) -> float:
    """A limit for one look without a reference in fp64: half of the format's digits."""
    return float(epsilon**COARSE_EXPONENT)


def relative_error(value: Tensor, other: Tensor) -> float:
    """The 2-norm of the difference over that of `other`; infinite where one is not finite or the shapes differ."""
    if value.shape != other.shape:
        return math.inf
    error, norm = _norm(value.double() - other.double()), _norm(other)
    if not math.isfinite(error) or not math.isfinite(norm):
        return math.inf
    return error / norm if norm > 0 else (math.inf if error > 0 else 0.0)


def kind_of(name: str) -> str:
    """What a name says before the colon."""
    return name.partition(":")[0]


def _norm(value: Tensor) -> float:
    return float(torch.linalg.vector_norm(value.double()))
