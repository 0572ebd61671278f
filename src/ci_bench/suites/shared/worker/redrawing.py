"""One step of two programs under many seeds: do other random numbers explain their differences?

Owns how the steps are run for the test of `draws`, which has the figures. A suite gives a
`Redrawing` of each program: how it takes a step from a seed. A positive control shows if the test
would see dropout missing: the reference's own steps, with one place of it left out. Imports torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ci_bench.suites.shared.worker.draws import (
    Draws,
    Left,
    distance,
    drawn_alike,
    moved_by_seeds,
    off_the_slope,
    slope_ratio,
    told_apart,
)
from ci_bench.suites.shared.worker.dropping import Dropout, Place, leaving_out

OF_REFERENCE, OF_CANDIDATE, OF_SLOPES, OF_CONTROL = 1_000_003, 2_000_003, 3_000_017, 4_000_037
"""The first seeds of each."""
SLOPES = 8
FEW_SEEDS, MANY_SEEDS = 8, 128
"""Seeds to see if both draw the same numbers, and to test whether others explain a difference.

With 32 a mask that all rows share, or dropout twice in one of two places, was found once in ten.
"""
FIRST_SEEDS = 32
"""A control that is found with this number of seeds takes no more."""
MOST_PLACES = 24
"""The maximum of places, evenly spread, that are left out once each to find the least visible."""


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
    module: nn.Module
    """The model."""

    def collect(self, first_seed: int, direction: Left, seeds: int) -> Draws:
        """Collect the draws of `seeds` seeds."""
        draws = Draws(direction=direction)
        self.collect_into(draws, range(first_seed, first_seed + seeds, 2))
        return draws

    def collect_into(self, draws: Draws, seeds: range) -> None:
        """Add the draws of each of `seeds` and of the next one."""
        for seed in seeds:
            draws.add(self.draw(seed, {}).results, self.draw(seed + 1, {}).results)

    def places(self) -> tuple[Place, ...]:
        """Return the places where a step drops units; it has to be an eager one."""
        with leaving_out(self.module, None) as passed:
            self.draw(OF_CONTROL, {})
        return tuple((kind, place) for kind, count in passed.items() for place in range(count))

    def without(self, place: Place) -> "Redrawing":
        """Return the same with nothing dropped in one place."""

        def draw(seed: int, moved: Mapping[str, Tensor]) -> Drawn:
            with leaving_out(self.module, place):
                return self.draw(seed, moved)

        return replace(self, draw=draw)

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

    def test(self, candidate: Redrawing, *, controlled: bool = True) -> "Tested":
        """Test if other random numbers explain how a candidate differs, and the test itself."""
        unexplained = self.unexplained(candidate)
        control = self.control() if controlled and not unexplained else None
        return Tested(unexplained=unexplained, control=control)

    def control(self) -> "Control":
        """Leave out the least visible place of each kind, and test if that is found.

        In a small model it may not be: other places can drown it.
        """
        places = self.redrawing.places()
        some = places[:: -(-len(places) // MOST_PLACES)] if places else ()
        usual = self.redrawing.draw(OF_CONTROL, {}).results
        effects = {place: self._effect(place, usual) for place in some}
        visible = [place for place in some if effects[place] > 0]
        kinds = sorted({kind for kind, _ in visible})
        least = {
            kind: min((place for place in visible if place[0] is kind), key=effects.__getitem__)
            for kind in kinds
        }
        return Control(
            places=len(visible),
            kinds=tuple(kinds),
            unseen=tuple(kind for kind, place in least.items() if not self._sees(place)),
        )

    def _effect(self, place: Place, usual: Left) -> float:
        """Return how far a place moves a step at most, in units of what other seeds do."""
        results = self.redrawing.without(place).draw(OF_CONTROL, {}).results
        return max(
            (
                distance(results, usual, name) / max(self.draws.apart[name])
                for name in moved_by_seeds(self.draws, self.epsilon)
            ),
            default=0.0,
        )

    def _sees(self, place: Place) -> bool:
        """Return true if some or all of the draws show that a place is left out."""
        redrawing, draws = self.redrawing.without(place), Draws(direction=self.draws.direction)
        last = OF_CONTROL + self.seeds
        first = min(OF_CONTROL + FIRST_SEEDS, last)
        for seeds in (range(OF_CONTROL, first, 2), range(first, last, 2)):
            redrawing.collect_into(draws, seeds)
            if told_apart(self.draws, draws, self.epsilon):
                return True
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """Whether the test finds dropout that is missing in one place."""

    places: int
    """Number of places that were left out and matter."""
    kinds: tuple[Dropout, ...]
    """The kinds of these places."""
    unseen: tuple[Dropout, ...]
    """Kinds whose least visible place could be missing unnoticed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """The answer of the test, and how sensitive it was."""

    unexplained: str
    """The difference that other random numbers do not explain; empty without one."""
    control: Control | None
    """`None` if something was found, or if no control was asked for."""

    def with_each_alone(self, alone: Callable[[Dropout], "Tested | None"]) -> tuple[str, str]:
        """Return the difference, and the kinds of dropout that could be missing unseen.

        A kind that others drown is tested without them.
        """
        if self.unexplained or self.control is None:
            return self.unexplained, ""
        unseen = []
        for kind in self.control.unseen:
            tested = alone(kind) if len(self.control.kinds) > 1 else None
            if tested is not None and tested.unexplained:
                return f"with only dropout in {kind}, {tested.unexplained}", ""
            if tested is None or tested.control is None or tested.control.unseen:
                unseen.append(str(kind))
        return "", " and ".join(unseen)


def redraw(redrawing: Redrawing, epsilon: float, seeds: int) -> Eager:
    """Draw the reference's steps."""
    direction = redrawing.draw(OF_REFERENCE - 1, {}).results
    draws = redrawing.collect(OF_REFERENCE, direction, seeds)
    return Eager(redrawing=redrawing, draws=draws, epsilon=epsilon, seeds=seeds)
