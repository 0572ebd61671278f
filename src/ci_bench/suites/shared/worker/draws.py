"""A test over seeds: do two programs compute the same from other random numbers? Imports torch.

It is for programs whose random numbers cannot be aligned. A compiler that draws its own dropout
masks is right, and agrees with eager in no step. If everything else was shown to agree (without
dropout, by the rule of numbers), only the masks remain to be tested. Both programs run from the
same start under many seeds. Three figures of each tensor are compared by Welch's t test, over all
tensors with Bonferroni's correction. They are its size along one draw of the reference, its norm,
and the distance between two draws, whose square is the variance that masks cause. Masks that never
change, repeat, are missing, or drop another share move these. A backward pass under another mask
than the forward pass hardly does: its gradients are not those of the loss, which the loss itself
shows a little further along them (`slope_ratio`).

This module has the figures and the tests. The suite chooses the run and its start.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ci_bench.statistics.special_functions import stdtr

SEEDS = 32
"""Seeds of each program, in pairs.

With 16 distances the test distinguishes half the share of dropped units from the whole one.
"""
FALSE_ALARM = 1e-4
"""The rate at which equal computations are reported as different."""
FEWEST = 4
"""Figures of each program, below which nothing is tested."""

STEP_ALONG = 0.01
"""Step along the gradient to read the loss, as a share of the loss and of the weights."""
SLOPES_APART, TIMES_REFERENCE = 0.02, 3.0
"""Limits on a median slope's deviation: a share, or a multiple of the reference's."""
LEAST_APART, ROUNDINGS = 0.002, 10
"""In fp32 and fp64 the share is `LEAST_APART`, between them and bf16 this many roundings."""
WIDER = 2.0
"""How much wider a tensor has to scatter that only the candidate's seeds seem to move.

Others are moved by both, at the border of what counts.
"""
ALIKE = 0.01
"""The share of a spread within which results count as drawn from the same random numbers."""

Left = Mapping[str, Tensor]
"""Results of one step, by name, on the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """Results of a program under many seeds, as figures by tensor.

    `direction` is one draw of the reference, for both programs.
    """

    direction: Left
    along: dict[str, list[float]] = field(default_factory=dict)
    norms: dict[str, list[float]] = field(default_factory=dict)
    apart: dict[str, list[float]] = field(default_factory=dict)

    def add(self, first: Left, second: Left) -> None:
        """Add two draws, of seeds that were used for no other."""
        for name, towards in self.direction.items():
            if not towards.is_floating_point() or not towards.numel():
                continue
            first_values, second_values, along = (
                _wide(each[name]) for each in (first, second, self.direction)
            )
            square = float(along @ along) or 1.0
            self.along.setdefault(name, []).extend(
                float(value @ along) / square for value in (first_values, second_values)
            )
            self.norms.setdefault(name, []).extend(
                float(torch.linalg.vector_norm(value)) for value in (first_values, second_values)
            )
            self.apart.setdefault(name, []).append(
                float(torch.linalg.vector_norm(first_values - second_values))
            )


def distance(first: Left, second: Left, name: str) -> float:
    """Return the 2-norm of a tensor's difference; infinite if it is missing or of another shape."""
    if name not in first or name not in second or first[name].shape != second[name].shape:
        return math.inf
    return float(
        torch.linalg.vector_norm((first[name].double() - second[name].double()).nan_to_num())
    )


def drawn_alike(results: Left, others: Left, spread: Mapping[str, float]) -> bool:
    """Return true if most tensors that other draws move (`spread`, by name) are the same.

    Then the random numbers are the same, and explain nothing.
    """
    moved = [name for name, width in spread.items() if width > 0]
    same = sum(distance(results, others, name) <= ALIKE * spread[name] for name in moved)
    return 2 * same > len(moved)


def moved_by_seeds(draws: Draws, epsilon: float) -> tuple[str, ...]:
    """Return the tensors that other seeds change.

    A change is one beyond half the digits of a format whose rounding is `epsilon`.
    """
    least = math.sqrt(epsilon)
    return tuple(
        name for name, each in draws.apart.items() if max(each) > least * max(draws.norms[name])
    )


def told_apart(reference: Draws, candidate: Draws, epsilon: float) -> str:
    """Describe the candidate's differences that other random numbers do not explain.

    Empty if they explain all of them.
    """
    moved = moved_by_seeds(reference, epsilon)
    more = sorted({*moved_by_seeds(candidate, epsilon)} - {*moved})
    if more := [
        name for name in more if max(candidate.apart[name]) > WIDER * max(reference.apart[name])
    ]:
        return f"{more[0]} changes with the seed, and eager's does not"
    if repeated := [
        name
        for name in moved
        if 2 * _share_distinct(candidate, name) < _share_distinct(reference, name)
    ]:
        count, of = _distinct(candidate, repeated[0]), _distinct(reference, repeated[0])
        seeds = len(candidate.norms[repeated[0]])
        return f"{repeated[0]} takes {count} values under {seeds} seeds, where eager's takes {of}"
    limit = FALSE_ALARM / max(1, 4 * len(moved))
    for name in moved:
        for words, ours, theirs in _figures(name, reference, candidate):
            if (chance := _welch(ours, theirs)) < limit:
                return f"over {len(theirs)} figures {name} {words} (p = {chance:.1g})"
    return ""


PERMUTATIONS = 20_000
MOST_ELEMENTS = 1 << 18
"""Of a larger tensor as many elements, evenly spread, are compared one by one."""


def apart_on_average(
    reference: Sequence[Left], candidate: Sequence[Left], names: Sequence[str]
) -> str:
    """Name a tensor whose elements differ on average; empty if seeds explain all differences.

    A permutation test: the squared distance of both averages, over all elements, among those of
    draws that change sides at random. It is exact whatever the distribution is, and however
    elements depend on each other.
    """
    limit = FALSE_ALARM / max(1, len(names))
    for name in names:
        rows = torch.stack([_some(draw[name]) for draw in (*reference, *candidate)])
        rows = rows - rows.mean(0)
        products = rows @ rows.T
        sides = torch.tensor(
            [1.0 / len(reference)] * len(reference) + [-1.0 / len(candidate)] * len(candidate),
            dtype=rows.dtype,
        )
        generator = torch.Generator().manual_seed(len(sides))
        mixed = sides[torch.rand(PERMUTATIONS, len(sides), generator=generator).argsort(1)]
        usual = ((mixed @ products) * mixed).sum(1)
        chance = float((usual >= sides @ products @ sides).sum() + 1) / (PERMUTATIONS + 1)
        if chance < limit:
            return f"{name} is another on average, element by element (p = {chance:.1g})"
    return ""


def _some(value: Tensor) -> Tensor:
    flat = _wide(value)
    return flat[:: -(-flat.numel() // MOST_ELEMENTS)] if flat.numel() > MOST_ELEMENTS else flat


def _figures(
    name: str, reference: Draws, candidate: Draws
) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yield the compared figures of one tensor: in words, of the reference, of the candidate.

    Norms and distances are compared by their logarithms.
    """
    yield "is another on average", reference.along[name], candidate.along[name]
    yield "has another norm", _logs(reference.norms[name]), _logs(candidate.norms[name])
    yield "scatters otherwise", _logs(reference.apart[name]), _logs(candidate.apart[name])
    yield (
        "varies otherwise from draw to draw",
        _deviations(reference.along[name]),
        _deviations(candidate.along[name]),
    )


def _deviations(values: Sequence[float]) -> list[float]:
    """Return the distances from the median (Brown and Forsythe 1974, JASA 69, 364-367).

    A quantity that many elements share shows in how figures vary.
    """
    middle = statistics.median(values)
    return [abs(value - middle) for value in values]


def _distinct(draws: Draws, name: str) -> int:
    """Count the distinct values of a tensor over all draws."""
    return len({*zip(draws.along[name], draws.norms[name], strict=True)})


def _share_distinct(draws: Draws, name: str) -> float:
    return _distinct(draws, name) / len(draws.norms[name])


def _welch(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided chance of a difference in means as large; 1 with too few figures.

    Source: Welch 1947, Biometrika 34, 28-35.
    """
    if min(len(ours), len(theirs)) < FEWEST:
        return 1.0
    a, b = (statistics.variance(values) / len(values) for values in (ours, theirs))
    if a + b == 0:
        return 1.0 if statistics.fmean(ours) == statistics.fmean(theirs) else 0.0
    t = abs(statistics.fmean(ours) - statistics.fmean(theirs)) / math.sqrt(a + b)
    freedom = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    return float(2 * stdtr(freedom, -t))


def _logs(values: Sequence[float]) -> list[float]:
    """Return the logarithms of those that have one: draws may coincide."""
    return [math.log(value) for value in values if value > 0]


def _wide(value: Tensor) -> Tensor:
    return value.detach().reshape(-1).to(torch.float64).nan_to_num()


def slope_ratio(
    loss_at: Callable[[float], float], *, square: float, loss: float, weight: float
) -> float:
    """Return the slope of the loss along its own gradient, over the gradient's.

    It is 1 if the gradient is the loss's. `loss_at` gives the loss with that many gradients added
    to the weights, from the same seed; `square` is the gradient's squared norm, `weight` the norm
    of the weights. By a central difference.
    """
    if square <= 0:
        return 1.0
    step = STEP_ALONG * min(abs(loss) / square, weight / math.sqrt(square))
    return (loss_at(step) - loss_at(-step)) / (2 * step * square) if step else 1.0


def off_the_slope(
    reference: Sequence[float], candidate: Sequence[float], epsilon: float = math.inf
) -> str:
    """Describe a fault in a candidate's ratios of slopes; empty without one.

    The reference's ratios set the limit, and so does `epsilon`, the rounding of the precision.
    """
    ours, theirs = (
        statistics.median(abs(ratio - 1) for ratio in each) for each in (reference, candidate)
    )
    least = min(SLOPES_APART, max(LEAST_APART, ROUNDINGS * epsilon))
    if theirs <= max(least, TIMES_REFERENCE * ours):
        return ""
    return (
        f"its gradients are not those of its loss: slopes are off by {theirs:.2g} (median), eager's"
        f" by {ours:.2g}"
    )
