"""Candidates that draw other random numbers than eager: shown right over seeds.

A candidate may be right although it disagrees step by step on a model that draws random numbers. It
is right under three conditions. Most tensors that seeds move are not eager's own (its masks are
others). Without dropout it agrees by the rule of numbers. Over seeds it is indistinguishable from
eager (`suites.shared.worker.draws`), and would not be with dropout missing in one place. A model
that cannot run without random numbers is unknown, never passed.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ci_bench.records.results import Outcome
from ci_bench.suites.shared.planning.arms import CompiledArm
from ci_bench.suites.shared.worker.dropping import Dropout, drop_nothing, without_dropout
from ci_bench.suites.shared.worker.redrawing import (
    FEW_SEEDS,
    MANY_SEEDS,
    Drawn,
    Redrawing,
    Tested,
    redraw,
)
from ci_bench.suites.torchbench.program import Ready
from ci_bench.suites.torchbench.snapshot import Snapshot
from ci_bench.suites.torchbench.status import Word
from ci_bench.suites.torchbench.verdict import ArmAnswer, Judge
from ci_bench.suites.torchbench.verify import Build, Start, VerifyWitness, is_random


def _redrawing(witness: VerifyWitness, ready: Ready, start: Start) -> Redrawing:
    """Return how a program of the case takes its first step, from `start` or other parameters."""

    def draw(seed: int, moved: Mapping[str, Tensor]) -> Drawn:
        there = replace(start, parameters={**start.parameters, **moved}) if moved else start
        snapshot = witness.draw(ready, there, seed)
        return Drawn(results=tensors_of(snapshot), loss=snapshot.loss, gradients=snapshot.gradients)

    return Redrawing(
        draw=draw,
        trained={name: start.parameters[name] for name in start.trained},
        module=ready.module,
    )


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
    epsilon = witness.options.precision.epsilon
    redrawing = _redrawing(witness, witness.build(candidate=None), start)
    candidate = _redrawing(witness, build(witness), start)
    if redraw(redrawing, epsilon, FEW_SEEDS).draws_alike(candidate):
        return failed
    still = _without_dropout(witness, judge, build)
    if still.outcome is not Outcome.PASS:
        return still
    tested = redraw(redrawing, epsilon, MANY_SEEDS).test(candidate)
    wrong, unseen = tested.with_each_alone(partial(_alone, witness, start, build))
    if wrong:
        detail = (
            f"{Word.FAIL_ACCURACY}: it draws other random numbers than eager, and these do not"
            f" explain that {wrong}"
        )
        return replace(failed, detail=detail)
    if unseen or tested.control is None or not tested.control.places:
        detail = (
            f"{Word.PASS}: it draws other random numbers than eager, and {MANY_SEEDS} seeds would"
            f" not show {f'dropout missing in {unseen}' if unseen else 'other differences'}"
        )
        return ArmAnswer(outcome=Outcome.UNKNOWN, word=Word.PASS, detail=detail, score=0.0)
    detail = (
        f"{still.detail}, without dropout; with dropout, it is indistinguishable from eager over"
        f" {MANY_SEEDS} seeds, of other masks; dropout missing in the least visible of its"
        f" places ({tested.control.places}) would have shown"
    )
    return replace(still, detail=detail)


def _alone(
    witness: VerifyWitness, start: Start, build: Callable[[VerifyWitness], Ready], kind: Dropout
) -> Tested:
    """Test a fresh candidate with only one kind of dropout."""
    torch.compiler.reset()
    with without_dropout(keeping=kind):
        quiet = (
            witness
            if kind is Dropout.RECURRENT
            else replace(witness, build=partial(build_quiet, witness.build))
        )
        redrawing = _redrawing(quiet, quiet.build(candidate=None), start)
        eager = redraw(redrawing, witness.options.precision.epsilon, MANY_SEEDS)
        tested = eager.test(_redrawing(quiet, build(quiet), start))
    torch.compiler.reset()
    return tested


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
