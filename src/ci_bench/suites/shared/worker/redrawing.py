"""One step of two programs under many seeds: do other random numbers explain their differences?

Owns how the steps are run for the test of `draws`, which has the figures. A suite gives a
`Redrawing` of each program: how it takes a step from a seed. Imports torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ci_bench.suites.shared.worker.draws import (
    SEEDS,
    Draws,
    Left,
    drawn_alike,
    moved_by_seeds,
    off_the_slope,
    slope_ratio,
    told_apart,
)

OF_REFERENCE, OF_CANDIDATE, OF_SLOPES = 1_000_003, 2_000_003, 3_000_017
"""The first seeds of each."""
SLOPES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """Results of a step by name, its loss (`None` without one), and gradients by parameter."""

    results: Left
    loss: Tensor | None
    gradients: Left


@dataclass(frozen=True, kw_only=True, slots=True)
class Redrawing:
    """A program's first step from one start, under seeds of our choice."""

    draw: Callable[[int, Mapping[str, Tensor]], Drawn]
    """Takes a seed, and parameters other than the start's; returns what the step left."""
    trained: Mapping[str, Tensor]
    """The start's trained parameters by name, on the host."""

    def collect(self, first_seed: int, direction: Left, seeds: int) -> Draws:
        """Collect the draws of `seeds` seeds."""
        draws = Draws(direction=direction)
        for seed in range(first_seed, first_seed + seeds, 2):
            draws.add(self.draw(seed, {}).results, self.draw(seed + 1, {}).results)
        return draws

    def slopes(self) -> list[float]:
        """Return the ratios of slopes under some seeds.

        Empty if a step has no loss, or another loss when repeated from the same seed.
        """
        ratios = []
        for seed in range(OF_SLOPES, OF_SLOPES + SLOPES):
            first, again = self.draw(seed, {}), self.draw(seed, {})
            if first.loss is None or again.loss is None or not torch.equal(first.loss, again.loss):
                return []
            ratios.append(self._slope(seed, first))
        return ratios

    def _slope(self, seed: int, drawn: Drawn) -> float:
        names = [name for name in self.trained if name in drawn.gradients]
        weights = [self.trained[name].double() for name in names]
        gradients = [drawn.gradients[name].double() for name in names]

        def loss_at(step: float) -> float:
            moved = {
                name: (weight + step * gradient).to(self.trained[name].dtype)
                for name, weight, gradient in zip(names, weights, gradients, strict=True)
            }
            loss = self.draw(seed, moved).loss
            return float(loss) if loss is not None else 0.0

        square, weight = (
            float(sum(value.square().sum() for value in each)) for each in (gradients, weights)
        )
        loss = float(drawn.loss) if drawn.loss is not None else 0.0
        return slope_ratio(loss_at, square=square, loss=loss, weight=weight**0.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Eager:
    """The reference's draws, which candidates are compared with."""

    redrawing: Redrawing
    draws: Draws
    epsilon: float
    """The rounding of the format that the programs compute in."""
    seeds: int
    """Number of draws."""

    def draws_alike(self, candidate: Redrawing) -> bool:
        """Return true if most tensors that seeds move are the same in both from one seed.

        Also true if seeds move none.
        """
        moved = moved_by_seeds(self.draws, self.epsilon)
        spread = {name: max(self.draws.apart[name]) for name in moved}
        ours, theirs = (each.draw(OF_SLOPES, {}).results for each in (self.redrawing, candidate))
        return not spread or drawn_alike(theirs, ours, spread)

    def unexplained(self, candidate: Redrawing) -> str:
        """Describe a difference that other random numbers do not explain; empty without one."""
        theirs = candidate.collect(OF_CANDIDATE, self.draws.direction, self.seeds)
        wrong = told_apart(self.draws, theirs, self.epsilon)
        if wrong:
            return wrong
        slopes = (self.redrawing.slopes(), candidate.slopes())
        return off_the_slope(*slopes, self.epsilon) if all(slopes) else ""


def redraw(redrawing: Redrawing, epsilon: float, seeds: int = SEEDS) -> Eager:
    """Draw the reference's steps."""
    direction = redrawing.draw(OF_REFERENCE - 1, {}).results
    draws = redrawing.collect(OF_REFERENCE, direction, seeds)
    return Eager(redrawing=redrawing, draws=draws, epsilon=epsilon, seeds=seeds)
