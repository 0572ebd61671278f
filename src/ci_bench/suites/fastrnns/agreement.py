"""Whether two sets of tensors are the same up to rounding: the scale of each tensor, and how far rounding moves it, decide.

How far rounding moves a result is found in double precision, from starts that are shaken by one rounding of the case's number
format. On top comes what a computation in that format adds: a rounding per time step and layer, and sums over all rows and
steps in single precision. The bound is `SLACK` times that; nothing absolute is in it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ci_bench.records.case import Outcome
from ci_bench.suites.fastrnns.given import Given
from ci_bench.suites.fastrnns.options import Dtype, Job
from ci_bench.suites.fastrnns.reference import GRADIENT, Observed, Reference
from ci_bench.suites.fastrnns.variants import Task

ROUNDING: Mapping[Dtype, float] = {
    Dtype.FLOAT64: 2.0**-53,
    Dtype.FLOAT32: 2.0**-24,
    Dtype.BFLOAT16: 2.0**-8,
    Dtype.FLOAT16: 2.0**-11,
}
"""Half the distance from 1 to the next number: the most that one rounding moves a value, as a share of it."""
TYPICAL = 3.0**-0.5
"""The root mean square of roundings, as a share of the largest."""
TF32_ROUNDING = 2.0**-11
SHAKES = 2
SHAKES_OF_FEW = 8
FEW = 64
"""Tensors of fewer numbers are shaken more often: of a few draws, all may be small."""
SLACK = 8.0
"""Twice what was seen at most over all variants, sizes and formats tried (docs/suites/fastrnns.md)."""
SLACK_OF_CONVOLUTIONS = 32.0
"""Of their outputs: each product sums up to 4608 numbers, and normalisation by few numbers amplifies what that leaves."""
UNTELLING = 1.0
"""A bound of a tensor's whole scale lets zeros pass: the answer is then unknown, not yes."""
KINKED = {Task.RNN_RELU, Task.RESNET18, Task.RESNET50}
KINK = 0.1
"""Where a unit's sign hangs on rounding, the gradient through it is there or not, so gradients behind ReLUs move in jumps.

Theirs are held to this share of their root mean square; what goes forward is held to the bound.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """Exact values and the bound of each, as a share of its scale. Those named in `kinked` are compared in the mean alone."""

    exact: Observed
    bounds: Mapping[str, float]
    kinked: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The answer, and what was seen."""

    outcome: Outcome
    detail: str


def expect(job: Job, given: Given, reference: Reference) -> Expected:
    """The exact values of a start, and how far from them rounding may lead."""
    exact = reference.observe(given)
    rounding = rounding_of(job)
    shakes = SHAKES_OF_FEW if min(value.numel() for value in exact.values()) < FEW else SHAKES
    shaken = [reference.observe(_shaken(given, rounding, seed=1 + index)) for index in range(shakes)]
    floor = _floor(job, rounding)
    kinked = frozenset(name for name in exact if name.startswith(GRADIENT)) if job.variant.task in KINKED else frozenset()

    def bound(name: str) -> float:
        slack = SLACK_OF_CONVOLUTIONS if job.variant.is_convolutional and name not in kinked else SLACK
        moved = max(_error(one[name], exact[name], mean_only=name in kinked) for one in shaken)
        return max(slack * (moved + floor), KINK if name in kinked else 0.0)

    return Expected(exact=exact, bounds={name: bound(name) for name in exact}, kinked=kinked)


def rounding_of(job: Job) -> float:
    """The size of one rounding in the narrowest format that the job multiplies in."""
    return TF32_ROUNDING if job.options.allow_tf32 else ROUNDING[job.options.dtype]


def compare(seen: Observed, expected: Expected) -> Verdict:
    """Every tensor against its bound. Other names or shapes fail, whatever the values."""
    exact = expected.exact
    if apart := _mismatch(seen, exact):
        return Verdict(outcome=Outcome.FAIL, detail=apart)
    errors = {name: _error(seen[name], value, mean_only=name in expected.kinked) for name, value in exact.items()}
    name = max(errors, key=lambda name: errors[name] / expected.bounds[name])
    error, bound = errors[name], expected.bounds[name]
    detail = f"{name} is off by {error:.2g} of its scale (bound {bound:.2g}; the worst of {len(errors)} tensors)"
    if not error <= bound:
        return Verdict(outcome=Outcome.FAIL, detail=detail)
    vague = [name for name, bound in expected.bounds.items() if bound >= UNTELLING]
    if vague:
        more = f"{detail}. Rounding alone may move {len(vague)} of them by all of its scale, {vague[0]} for one"
        return Verdict(outcome=Outcome.UNKNOWN, detail=f"{more}; a wider dtype, a shorter sequence or a larger batch would tell")
    return Verdict(outcome=Outcome.PASS, detail=detail)


def _mismatch(seen: Observed, exact: Observed) -> str:
    if seen.keys() != exact.keys():
        return f"it lacks {_listed(exact.keys() - seen.keys())}, and has {_listed(seen.keys() - exact.keys())} besides"
    shapes = [
        f"{name} {tuple(seen[name].shape)}, not {tuple(exact[name].shape)}"
        for name in exact
        if seen[name].shape != exact[name].shape
    ]
    return f"shapes differ: {_listed(shapes)}" if shapes else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:5]) or "nothing"


def _error(seen: Tensor, exact: Tensor, *, mean_only: bool = False) -> float:
    """The larger of two shares: root mean square of the difference, and its largest element, each of the exact tensor's own.

    The second sees a single wrong element of a large tensor. Infinite for what is not finite, or not zero where it should be.
    """
    difference, exact = seen.double() - exact.double(), exact.double()
    if not bool(difference.isfinite().all()):
        return math.inf
    mean, largest = (
        _share(difference.square().mean().sqrt(), exact.square().mean().sqrt()),
        _share(difference.abs().max(), exact.abs().max()),
    )
    return mean if mean_only else max(mean, largest)


def _share(part: Tensor, whole: Tensor) -> float:
    if float(part) == 0:
        return 0.0
    return float(part / whole) if float(whole) else math.inf


def _floor(job: Job, rounding: float) -> float:
    """The typical roundings of a walk through time and layers, and of sums over rows and steps."""
    options = job.options
    sums = max(ROUNDING[Dtype.FLOAT64], min(rounding, ROUNDING[Dtype.FLOAT32]))
    if job.variant.is_convolutional:
        return TYPICAL * (rounding + sums * math.sqrt(options.cnn_batch_size * (options.image_size / 2) ** 2))
    rows = options.seq_length * options.batch_size
    # Rows of variable length run one after the other, and each of their steps adds to the gradients.
    depth = options.num_layers * (rows if job.variant.task is Task.VARIABLE_LENGTH else options.seq_length)
    return TYPICAL * (rounding * math.sqrt(depth) + sums * math.sqrt(rows))


def _shaken(given: Given, rounding: float, *, seed: int) -> Given:
    """Every number times (1 + rounding xi), xi standard normal.

    From another generator than the start was drawn with: of one seed, xi would go with the numbers that it shakes.
    """
    generator = np.random.default_rng(seed)

    def shake(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        noise = torch.from_numpy(generator.standard_normal(tuple(value.shape))).to(value.device)
        return value.double() * (1 + rounding * noise)

    return Given(
        weights={name: shake(value) for name, value in given.weights.items()},
        inputs=tuple(shake(value) for value in given.inputs),
        states=tuple(shake(value) for value in given.states),
        gradient=shake(given.gradient),
    )
