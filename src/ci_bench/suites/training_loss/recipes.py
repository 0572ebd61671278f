"""Trains by recipe, step by step, and records every step.

A recipe is one training: its arm, its purpose, its seed, and how many steps. Every step of every
run starts from its own seed, made of the run's `mask_seed`, its seed and the step.
"""

import hashlib
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Self

import torch
from torch import Tensor

from ci_bench.records.first_calls import FirstCall
from ci_bench.records.results import Check, NonFinite, Resumed, Role, Trace
from ci_bench.suites.contract import Context
from ci_bench.suites.shared.worker.dropping import without_dropout
from ci_bench.suites.shared.worker.first_calls import read_call, read_start
from ci_bench.suites.shared.worker.freshness import left_by_training
from ci_bench.suites.shared.worker.randomness import generator_states, moved, seed_step
from ci_bench.suites.shared.worker.sharing import own_masks
from ci_bench.suites.training_loss.checkpoints import Shelf
from ci_bench.suites.training_loss.corpus import Batch, Rows, batches, full_batches
from ci_bench.suites.training_loss.layouts import full_state
from ci_bench.suites.training_loss.masks import MaskDraws, take_draws
from ci_bench.suites.training_loss.network import State, perturbed, start_state, state_digest
from ci_bench.suites.training_loss.options import TrainingOptions, TrainingPrecision
from ci_bench.suites.training_loss.training import (
    Trainee,
    accuracy,
    build_parallel,
    build_trainee,
    disagreements,
    predict,
    rounded_rates,
    watching_ranks,
    with_longer_updates,
)

ENVELOPE_STEPS = 50
MASK_SEED = 7919
OTHER_MASK_SEED = 104729
OTHER_START = 1_000_003
"""Added to a seed, for start weights that no seed of the options has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRecipe:
    """One training to do."""

    arm: str
    """The arm to train."""
    role: Role
    """The purpose of the training."""
    seed: int
    """Seed of weights and data order."""
    index: int = 0
    """Number of a perturbed reference, or place of the arm whose checkpoint is resumed."""
    steps: int | None = None
    """Maximum of steps; `None` trains all epochs."""
    mask_seed: int = MASK_SEED
    """With `seed` and the step, the start of the step's random numbers."""
    resumes: str = ""
    """The arm from whose checkpoint it continues; empty if it starts at step 0."""
    twin: bool = False
    """True if it trains in fp32, to back a lower precision."""
    quiet: bool = False
    """True if it trains without dropout, to back masks that differ."""

    @property
    def saves(self) -> bool:
        """True if it leaves a checkpoint, when the options request one."""
        return self.role in {Role.REFERENCE, Role.CANDIDATE}


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainer:
    """Trains by recipe."""

    options: TrainingOptions
    """The training's options; the twin's have fp32 as precision."""
    context: Context
    """The process's device, scratch folder and ranks."""
    train: Rows
    """The training rows, on the device."""
    test: Rows | None
    """The test rows, on the device; `None` if evaluation is off."""
    checks: list[Check] = field(default_factory=list)
    """Checks in addition to the trainings."""
    first: dict[tuple[Role, str, int], FirstCall] = field(default_factory=dict)
    """The first step of each training of the first seed in one process, by role, arm and index."""
    is_twin: bool = False
    """True if it trains in fp32 what has a lower precision."""
    is_quiet: bool = False
    """True if it trains without dropout what has some."""

    def in_fp32(self) -> Self:
        """Return the same, training the twin in fp32."""
        options = replace(self.options, precision=TrainingPrecision.FP32, checkpoint=None)
        return replace(self, options=options, test=None, first={}, is_twin=True)

    @contextmanager
    def without_dropout(self) -> Iterator[Self]:
        """Yield the same, in fp32 and without dropout."""
        twin = self.in_fp32()
        with without_dropout():
            yield replace(twin, options=replace(twin.options, dropout=False), is_quiet=True)

    @property
    def shelf(self) -> Shelf | None:
        """Checkpoints, if the options request them."""
        options, folder = self.options.checkpoint, self.context.scratch / "checkpoints"
        return (
            None
            if options is None
            else Shelf(options=options, folder=folder, arms=self.options.arms)
        )

    def follow(self, recipe: TrainingRecipe) -> None:
        """Train along by a recipe, in another rank."""
        if recipe.quiet and not self.is_quiet:
            with self.without_dropout() as quiet:
                quiet.follow(recipe)
        elif recipe.twin and not self.is_twin:
            self.in_fp32().follow(recipe)
        else:
            self._run(recipe)

    def _run(self, recipe: TrainingRecipe) -> Trace:
        """Train by a recipe, and evaluate a whole training."""
        with self._trained(recipe) as (_, _, trace):
            return trace

    def _run_and_draw(self, recipe: TrainingRecipe) -> tuple[Trace, MaskDraws]:
        """Train by a recipe, and then probe the masks of the very step that was trained with."""
        with self._trained(recipe) as (trainee, state, trace):
            return trace, take_draws(trainee, state, self._first_batch(), seed=recipe.mask_seed)

    @contextmanager
    def _trained(self, recipe: TrainingRecipe) -> Iterator[tuple[Trainee, State, Trace]]:
        """Yield a trainee after its training, its start state, and the record.

        Dynamo is reset first: it counts compilations per code object, and all trainings share the
        step's. From the ninth on (`recompile_limit`) it would run a candidate eagerly without a
        word.
        """
        torch.compiler.reset()
        elsewhere = recipe.role in {
            Role.OTHER_START,
            Role.RESUMED,
        }  # a checkpoint that restores nothing must not pass
        state = start_state(self.options, seed=recipe.seed + (OTHER_START if elsewhere else 0))
        if recipe.role is Role.PERTURBED:
            state = perturbed(
                state, epsilon=self.options.precision.perturbation, seed=1 + recipe.index
            )
        with self._aligned():
            trainee = self._trainee(recipe, state)
            if recipe.role is Role.CONTROL:
                trainee = with_longer_updates(trainee)
            trace = record_training(trainee, recipe, state=state, trainer=self)
            self._note_masks(recipe, trainee)
            test = None if recipe.role is Role.RESUMED or recipe.steps is not None else self.test
            yield trainee, state, trace if test is None else self._evaluated(trace, trainee, test)

    def _trainee(self, recipe: TrainingRecipe, state: State) -> Trainee:
        """Build the trainee of a recipe.

        If several processes share its layout, the others get an order to train along.
        """
        layout, ranks = self.options.layout_of(recipe.arm), self.context.ranks
        if layout is not None and ranks is not None:
            if ranks.rank == 0:
                ranks.order({"train": asdict(recipe)})
            return build_parallel(
                self.options, state, layout, ranks, device=self.context.device, watched=True
            )
        trainee = build_trainee(
            self.options,
            state,
            device=self.context.device,
            candidate=self.options.candidate_of(recipe.arm),
            captured=self.context.cuda_graph,
        )
        return (
            trainee
            if ranks is None or recipe.role is Role.RESUMED
            else watching_ranks(trainee, ranks.count, self.options)
        )

    def _first_batch(self) -> Batch:
        """Return the first batch of every training of the first seed."""
        stream = batches(
            self.train, batch_size=self.options.batch_size, seed=self.options.seed, epochs=1
        )
        return next(batch for _, batch in stream)

    def _evaluated(self, trace: Trace, trainee: Trainee, test: Rows) -> Trace:
        """Add the accuracy in the arm's own forward pass.

        A candidate also gets the number of rows for which an eager pass with the same weights
        disagrees.
        """
        labels, size = test.labels.cpu(), self.options.batch_size
        if trace.role is Role.CANDIDATE and self.options.layouts:
            trained = full_state(trainee.model)
            trainee = build_trainee(
                self.options, trained, device=self.context.device, candidate=None
            )
        predicted = predict(trainee, test, batch_size=size)
        share = accuracy(predicted, labels, cache=self.context.scratch / "evaluate")
        if trace.role is not Role.CANDIDATE or self.options.layouts:
            return replace(trace, accuracy=share)
        eager = predict(trainee, test, batch_size=size, compiled=False)
        return replace(trace, accuracy=share, disagreements=disagreements(eager, predicted, labels))

    def _aligned(self) -> AbstractContextManager[object]:
        """Make inductor draw eager's random numbers, if the options request that."""
        if not self.options.align_rng:
            return nullcontext()
        from torch._inductor import config

        aligned: AbstractContextManager[object] = config.patch(fallback_random=True)
        return aligned

    def _note_masks(self, recipe: TrainingRecipe, trainee: Trainee) -> None:
        """Check that ranks with separate rows draw different masks, once for each layout."""
        watch, layout = trainee.watched, self.options.layout_of(recipe.arm)
        if watch is None or layout is None or not layout.own_rows or recipe.role is Role.RESUMED:
            return
        if recipe.seed != self.options.seed or not self._drawn():
            return
        self.checks.append(
            own_masks(recipe.arm, watch.draws, where="at step 0", sharing=layout.sharing)
        )

    def _drawn(self) -> tuple[str, ...]:
        """Return the generators that a step of one process draws from."""
        state = start_state(self.options, seed=self.options.seed)
        trainee = build_trainee(self.options, state, device=self.context.device, candidate=None)
        seed_step(MASK_SEED)
        before = generator_states()
        trainee.step(self._first_batch())
        return moved(before, generator_states())


def record_training(
    trainee: Trainee, recipe: TrainingRecipe, *, state: State, trainer: Trainer
) -> Trace:
    """Train and keep loss and gradient norm of every step, and digests of start and batches.

    The batches are those of the whole training, even if only some steps of it are trained from a
    checkpoint.
    """
    options, shelf = trainer.options, trainer.shelf
    stream = batches(
        trainer.train, batch_size=options.batch_size, seed=recipe.seed, epochs=options.epochs
    )
    trained = _steps(recipe, trainer)
    ranks = None if options.layout_of(recipe.arm) is None else trainer.context.ranks
    data_digest = hashlib.sha256(trainer.train.digest().encode())
    losses: list[float] = []
    norms: list[float] = []
    rates, generator = (
        [group["lr"] for group in trainee.optimizer.param_groups],
        torch.Generator().manual_seed(recipe.index),
    )
    for step, (indices, batch) in enumerate(islice(stream, max(trained.stop, ENVELOPE_STEPS))):
        if step < ENVELOPE_STEPS:
            data_digest.update(indices.numpy().tobytes())
        if step not in trained:
            continue
        if shelf is not None and step == shelf.options.after:
            if recipe.resumes:
                shelf.load(recipe.resumes, trainee.model, trainee.optimizer, trainee.names, ranks)
            elif recipe.saves:
                shelf.save(recipe.arm, trainee.model, trainee.optimizer, trainee.names, ranks)
        if recipe.role is Role.PERTURBED:
            rounded_rates(options.optimizer, trainee.optimizer, rates, step, generator)
        seed_step(recipe.mask_seed, recipe.seed, step)
        losses.append(
            float(trainee.step(batch) if step else _first_step(trainee, recipe, batch, trainer))
        )
        norms.append(trainee.gradient_norm())
        trainer.context.progress(
            f"{recipe.arm} ({recipe.role})", step + 1 - trained.start, len(trained)
        )
    return Trace(
        arm=recipe.arm,
        role=recipe.role,
        seed=recipe.seed,
        index=recipe.index,
        loss=_finite(losses),
        grad_norm=_finite(norms),
        non_finite=(
            *_non_finite("loss", losses, trained.start),
            *_non_finite("grad_norm", norms, trained.start),
        ),
        start=state_digest(state),
        data=data_digest.hexdigest()[:16],
        ranks=None if trainee.watched is None else trainee.watched.series(),
        resumed=Resumed(saved_by=recipe.resumes, step=trained.start) if recipe.resumes else None,
    )


def _first_step(trainee: Trainee, recipe: TrainingRecipe, batch: Batch, trainer: Trainer) -> Tensor:
    """Take the first step, and note its start and its results, for the process that times.

    Returns the loss.
    """
    options = trainer.options
    if recipe.seed != options.seed or options.layout_of(recipe.arm) is not None:
        return trainee.step(batch)
    fed = [] if recipe.role is Role.PERTURBED else full_batches(trainer.train, options)
    inputs = [value for full_batch in fed for value in full_batch.values()]
    start, states = read_start(inputs, trainee.model.named_parameters()), generator_states()
    loss = trainee.step(batch)
    draws = bool(moved(states, generator_states()))
    results = {} if draws else left_by_training(loss, trainee.model)
    trainer.first[recipe.role, recipe.arm, recipe.index] = read_call(start, results)
    return loss


def _steps(recipe: TrainingRecipe, trainer: Trainer) -> range:
    """Return the steps of a training that are trained."""
    options, shelf = trainer.options, trainer.shelf
    total = math.ceil(len(trainer.train) / options.batch_size) * options.epochs
    if recipe.resumes and shelf is not None:
        return range(
            min(shelf.options.after, total), min(shelf.options.after + shelf.options.steps, total)
        )
    return range(min(total, recipe.steps or total))


def _finite(values: list[float]) -> tuple[float | None, ...]:
    return tuple(value if math.isfinite(value) else None for value in values)


def _non_finite(signal: str, values: list[float], first: int) -> tuple[NonFinite, ...]:
    """Return the holes of a series whose first value is of step `first`."""
    return tuple(
        NonFinite(signal=signal, step=first + place, value=str(value))
        for place, value in enumerate(values)
        if not math.isfinite(value)
    )
