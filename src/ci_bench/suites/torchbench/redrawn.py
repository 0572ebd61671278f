"""Candidates that draw other random numbers than eager: shown right over seeds.

A candidate may be right although it disagrees step by step on a model that draws random numbers. It
is right under three conditions. Most tensors that seeds move are not eager's own (its masks are
others). Without dropout it agrees by the rule of numbers. Over seeds it is indistinguishable from
eager (`suites.shared.worker.draws`). A model that cannot run without random numbers is unknown,
never passed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ci_bench.records.results import Outcome
from ci_bench.suites.shared.planning.arms import CompiledArm
from ci_bench.suites.shared.worker.draws import (
    SEEDS,
    Draws,
    drawn_alike,
    drop_nothing,
    moved_by_seeds,
    off_the_slope,
    slope_ratio,
    told_apart,
    without_dropout,
)
from ci_bench.suites.torchbench.program import Ready
from ci_bench.suites.torchbench.snapshot import Snapshot
from ci_bench.suites.torchbench.status import Word
from ci_bench.suites.torchbench.verdict import ArmAnswer, Judge
from ci_bench.suites.torchbench.verify import Build, Start, VerifyWitness, is_random

OF_REFERENCE, OF_CANDIDATE, OF_SLOPES = 1_000_003, 2_000_003, 3_000_017
"""The first seeds of each."""
SLOPES = 8


@dataclass(kw_only=True, slots=True)
class _Drawing:
    """One program of the case, from the start of the first step, under seeds of our choice."""

    witness: VerifyWitness
    ready: Ready
    start: Start

    def draw(self, seed: int, start: Start | None = None) -> Snapshot:
        """Return the first step's results from that seed."""
        return self.witness.draw(self.ready, start or self.start, seed)

    def collect(self, first_seed: int, direction: dict[str, Tensor]) -> Draws:
        """Collect as many draws as the test over seeds takes."""
        draws = Draws(direction=direction)
        for seed in range(first_seed, first_seed + SEEDS, 2):
            draws.add(tensors_of(self.draw(seed)), tensors_of(self.draw(seed + 1)))
        return draws

    def slopes(self) -> list[float]:
        """Return the ratios of slopes under some seeds.

        Empty if a step has no loss, or another loss when repeated from the same seed.
        """
        ratios = []
        for seed in range(OF_SLOPES, OF_SLOPES + SLOPES):
            first, again = self.draw(seed), self.draw(seed)
            if first.loss is None or again.loss is None or not torch.equal(first.loss, again.loss):
                return []
            ratios.append(self._slope(seed, first))
        return ratios

    def _slope(self, seed: int, snapshot: Snapshot) -> float:
        names = [name for name in self.start.trained if name in snapshot.gradients]
        weights = [self.start.parameters[name].double() for name in names]
        gradients = [snapshot.gradients[name].double() for name in names]

        def loss_at(step: float) -> float:
            moved = {
                name: (weight + step * gradient).to(self.start.parameters[name].dtype)
                for name, weight, gradient in zip(names, weights, gradients, strict=True)
            }
            there = replace(self.start, parameters={**self.start.parameters, **moved})
            loss = self.draw(seed, there).loss
            return float(loss) if loss is not None else 0.0

        square, weight = (
            float(sum(value.square().sum() for value in each)) for each in (gradients, weights)
        )
        loss = float(snapshot.loss) if snapshot.loss is not None else 0.0
        return slope_ratio(loss_at, square=square, loss=loss, weight=weight**0.5)


def tensors_of(snapshot: Snapshot) -> dict[str, Tensor]:
    """Return outputs, loss and gradients of a step; updates were judged without dropout."""
    loss = {} if snapshot.loss is None else {"loss": snapshot.loss.reshape(1)}
    return {
        **snapshot.outputs,
        **loss,
        **{f"gradients.{name}": value for name, value in snapshot.gradients.items()},
    }


def judged_over_seeds(
    witness: VerifyWitness, judge: Judge, build: Callable[[VerifyWitness], Ready], failed: ArmAnswer
) -> ArmAnswer:
    """Judge a candidate that `failed` step by step, if eager draws random numbers.

    `build` gives a fresh candidate. The first answer stays if the candidate drew eager's numbers,
    since these explain nothing then.
    """
    start = judge.reference.starts[0]
    eager = _Drawing(witness=witness, ready=witness.build(candidate=None), start=start)
    candidate = _Drawing(witness=witness, ready=build(witness), start=start)
    ours = eager.collect(OF_REFERENCE, tensors_of(eager.draw(OF_REFERENCE - 1)))
    epsilon = witness.options.precision.epsilon
    if _drew_alike(eager, candidate, ours, epsilon):
        return failed
    still = _without_dropout(witness, judge, build)
    if still.outcome is not Outcome.PASS:
        return still
    wrong = told_apart(ours, candidate.collect(OF_CANDIDATE, dict(ours.direction)), epsilon)
    slopes = (eager.slopes(), candidate.slopes())
    wrong = wrong or (off_the_slope(*slopes) if all(slopes) else "")
    if wrong:
        detail = (
            f"{Word.FAIL_ACCURACY}: it draws other random numbers than eager, and these do not"
            f" explain that {wrong}"
        )
        return replace(failed, detail=detail)
    detail = (
        f"{still.detail}, without dropout; with dropout, it is indistinguishable from eager over"
        f" {SEEDS} seeds, of other masks"
    )
    return replace(still, detail=detail)


def _drew_alike(eager: _Drawing, candidate: _Drawing, draws: Draws, epsilon: float) -> bool:
    """Return true if most tensors that seeds move are the same in both from one seed.

    Also true if seeds move none.
    """
    spread = {name: max(draws.apart[name]) for name in moved_by_seeds(draws, epsilon)}
    ours, theirs = (tensors_of(each.draw(OF_SLOPES)) for each in (eager, candidate))
    return not spread or drawn_alike(theirs, ours, spread)


def _without_dropout(
    witness: VerifyWitness, judge: Judge, build: Callable[[VerifyWitness], Ready]
) -> ArmAnswer:
    """Apply the rule of numbers to the same model, with nothing dropped.

    Unknown if it still draws random numbers.
    """
    with without_dropout():
        quiet = replace(witness, build=partial(build_quiet, witness.build))
        if is_random(quiet.build(candidate=None)):
            detail = (
                f"{Word.PASS}: it draws other random numbers than eager, and these cannot be turned"
                " off to compare the rest"
            )
            return ArmAnswer(outcome=Outcome.UNKNOWN, word=Word.PASS, detail=detail, score=0.0)
        reference = quiet.reference()
        torch.compiler.reset()
        answer, _ = replace(judge, reference=reference).candidate(
            quiet.candidate(build(quiet), reference.starts)
        )
    torch.compiler.reset()
    return (
        answer
        if answer.outcome is Outcome.PASS
        else replace(answer, detail=f"{answer.detail} (without dropout, too)")
    )


def build_quiet(build: Build, *, candidate: CompiledArm | None, exact: bool = False) -> Ready:
    """Build a fresh model whose recurrent layers drop nothing either."""
    ready = build(candidate=candidate, exact=exact)
    drop_nothing(ready.module)
    return ready
