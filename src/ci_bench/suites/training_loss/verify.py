"""Gathers the parity evidence: trains reference, perturbed references and candidates, step by step.

All start from the same bytes. Judging is done elsewhere (`ci_bench.judge.parity.verdict`), only
from the recorded traces. Envelope runs and the statistical tier: J = `perturbations` eager runs
from shaken weights; one run with a known fault, to show that it is found; in a lower precision than
fp32 the same in fp32; if masks differ, `seeds` whole trainings of reference, candidate, and
reference under other masks. Every step of every run starts from its own seed, made of the run's
`mask_seed`, its seed and the step.
"""

import hashlib
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from ci_bench.records.first_calls import FirstCall
from ci_bench.records.results import (
    ArmMasks,
    Check,
    Masks,
    NonFinite,
    Outcome,
    ParityEvidence,
    Resumed,
    Role,
    Trace,
)
from ci_bench.statistics.accuracy import is_certain
from ci_bench.suites.contract import Context
from ci_bench.suites.shared.worker.first_calls import held_to, read_call, read_start, verified
from ci_bench.suites.shared.worker.freshness import left_by_training
from ci_bench.suites.shared.worker.randomness import generator_states, moved, seed_step
from ci_bench.suites.shared.worker.sharing import own_masks
from ci_bench.suites.training_loss.checkpoints import Shelf
from ci_bench.suites.training_loss.corpus import Batch, Rows, batches, full_batches
from ci_bench.suites.training_loss.layouts import full_state
from ci_bench.suites.training_loss.masks import MaskDraws, compare_masks, take_draws
from ci_bench.suites.training_loss.network import State, perturbed, start_state, state_digest
from ci_bench.suites.training_loss.options import REFERENCE_ARM, TrainingOptions, TrainingPrecision
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
MOST_DETAIL = 1000
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

    @property
    def saves(self) -> bool:
        """True if it leaves a checkpoint, when the options request one."""
        return self.role in {Role.REFERENCE, Role.CANDIDATE}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingVerifier:
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
    """True if it trains the fp32 twin of a lower precision."""

    def gather(self, arms: tuple[str, ...]) -> ParityEvidence:
        """Gather all evidence about the candidates among `arms`."""
        seed = self.options.seed
        if self.options.layouts:
            return self._gather_layouts(arms)
        reference, expected = self._run_and_draw(
            TrainingRecipe(arm=REFERENCE_ARM, role=Role.REFERENCE, seed=seed)
        )
        traces = [reference]
        masks: list[ArmMasks] = []
        for arm in arms:
            if arm == REFERENCE_ARM:
                continue
            candidate, draws = self._run_and_draw(
                TrainingRecipe(arm=arm, role=Role.CANDIDATE, seed=seed)
            )
            first_losses = (_first_loss(reference), _first_loss(candidate))
            masks.append(compare_masks(arm, expected, draws, first_losses=first_losses))
            traces.append(candidate)
            if masks[-1].masks is Masks.DIFFER:
                traces += self._more_seeds(
                    arm, trained={(trace.role, trace.arm, trace.seed) for trace in traces}
                )
        return self._backed([*traces, *self._envelope(traces, masks)], masks)

    def _gather_layouts(self, arms: tuple[str, ...]) -> ParityEvidence:
        """Gather all evidence about the layouts among `arms`.

        If a step draws random numbers, each rank draws its own, so trainings are compared over
        seeds.
        """
        seed = self.options.seed
        if self.shelf is not None:
            shutil.rmtree(self.shelf.folder, ignore_errors=True)
        traces = [self._run(TrainingRecipe(arm=REFERENCE_ARM, role=Role.REFERENCE, seed=seed))]
        drawn = self._drawn()
        detail = (
            f"ranks draw their own masks ({', '.join(drawn)})"
            if drawn
            else "a step draws no random numbers"
        )
        masks: list[ArmMasks] = []
        for arm in arms:
            if arm == REFERENCE_ARM:
                continue
            masks.append(
                ArmMasks(arm=arm, masks=Masks.DIFFER if drawn else Masks.NO_DROPOUT, detail=detail)
            )
            traces.append(self._run(TrainingRecipe(arm=arm, role=Role.CANDIDATE, seed=seed)))
            if drawn:
                traces += self._more_seeds(
                    arm, trained={(trace.role, trace.arm, trace.seed) for trace in traces}
                )
        traces += self._envelope(traces, masks)
        if self.shelf is not None:
            traces += self._resumed(arms, self.shelf, drawn)
        return self._backed(traces, masks)

    def _backed(self, traces: list[Trace], masks: list[ArmMasks]) -> ParityEvidence:
        """Return the evidence with a positive control.

        The control is in the precision itself, or in the fp32 twin of a lower one.
        """
        twin = self._twin(masks) if self.options.precision is not TrainingPrecision.FP32 else None
        controls = [] if twin is not None else [self._run(self._short(Role.CONTROL))]
        return replace(self._evidence([*traces, *controls], masks), twin=twin)

    def _twin(self, masks: Sequence[ArmMasks]) -> ParityEvidence | None:
        """Train the envelope's steps in fp32; return `None` if this model does not train in fp32.

        Of candidates those that are compared step by step, for lower precision hides small faults
        there.
        """
        compared = [entry for entry in masks if entry.masks is not Masks.DIFFER]
        count = 1 if self.context.provisional else self.options.perturbations
        trainings = [
            (REFERENCE_ARM, Role.REFERENCE, 0),
            *((entry.arm, Role.CANDIDATE, 0) for entry in compared),
        ]
        trainings += [
            *((REFERENCE_ARM, Role.PERTURBED, index) for index in range(count)),
            (REFERENCE_ARM, Role.CONTROL, 0),
        ]
        try:
            return self.in_fp32().train_short(trainings, compared)
        except (RuntimeError, TypeError, ValueError) as error:
            if self.options.layouts:
                raise
            reason = f"the training fails in fp32: {error}"
            self.checks.append(
                Check(
                    name="fp32_twin",
                    arm=REFERENCE_ARM,
                    outcome=Outcome.UNKNOWN,
                    detail=reason[:MOST_DETAIL],
                )
            )
            return None

    def in_fp32(self) -> "TrainingVerifier":
        """Return the verifier of the twin."""
        options = replace(self.options, precision=TrainingPrecision.FP32, checkpoint=None)
        return replace(self, options=options, test=None, first={}, is_twin=True)

    def train_short(
        self, trainings: Sequence[tuple[str, Role, int]], masks: Sequence[ArmMasks]
    ) -> ParityEvidence:
        """Train by an arm, a role and an index each, for as many steps as the envelope has."""
        runs = [
            self._run(replace(self._short(role, index), arm=arm)) for arm, role, index in trainings
        ]
        return self._evidence(runs, masks)

    def _short(self, role: Role, index: int = 0) -> TrainingRecipe:
        """Return a recipe of the reference arm for as many steps as the envelope has."""
        seed, steps = self.options.seed, ENVELOPE_STEPS
        return TrainingRecipe(
            arm=REFERENCE_ARM, role=role, seed=seed, index=index, steps=steps, twin=self.is_twin
        )

    def _resumed(self, arms: tuple[str, ...], shelf: Shelf, drawn: tuple[str, ...]) -> list[Trace]:
        """Resume from the checkpoint of each arm in every arm, for some steps.

        One process is among the arms, but does not resume from itself. If masks differ, nothing is
        trained: the check is unknown.
        """
        layouts = [arm for arm in arms if arm != REFERENCE_ARM]
        if drawn:
            detail = (
                f"a step draws random numbers ({', '.join(drawn)}), other ones in each layout; set"
                " dropout: false"
            )
            self.checks.extend(
                Check(name="resumes", arm=arm, outcome=Outcome.UNKNOWN, detail=detail)
                for arm in layouts
            )
            return []
        recipes = [
            TrainingRecipe(
                arm=arm, role=Role.RESUMED, seed=self.options.seed, index=place, resumes=saved
            )
            for arm in arms
            for place, saved in enumerate(arms)
            if {saved, arm} != {REFERENCE_ARM}
        ]
        traces = [self._run(recipe) for recipe in recipes]
        shutil.rmtree(shelf.folder, ignore_errors=True)
        steps = f"{shelf.options.steps} steps from step {shelf.options.after} on"
        detail = f"{steps} from the checkpoint of each of {', '.join(arms)}"
        self.checks.extend(
            Check(name="resumes", arm=arm, outcome=Outcome.PASS, detail=detail) for arm in layouts
        )
        return traces

    @property
    def shelf(self) -> Shelf | None:
        """Checkpoints, if the options request them."""
        options, folder = self.options.checkpoint, self.context.scratch / "checkpoints"
        return (
            None
            if options is None
            else Shelf(options=options, folder=folder, arms=self.options.arms)
        )

    def _drawn(self) -> tuple[str, ...]:
        """Return the generators that a step of one process draws from."""
        state = start_state(self.options, seed=self.options.seed)
        trainee = build_trainee(self.options, state, device=self.context.device, candidate=None)
        seed_step(MASK_SEED)
        before = generator_states()
        trainee.step(self._first_batch())
        return moved(before, generator_states())

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

    def follow(self, recipe: TrainingRecipe) -> None:
        """Train along by a recipe, in another rank."""
        if recipe.twin and not self.is_twin:
            self.in_fp32().follow(recipe)
        else:
            self._run(recipe)

    def over_seeds(self, arm: str) -> ParityEvidence:
        """Train the reference arm over seeds, to show how well it learns.

        The spread over starts shows the effect of chance. Each seed has the reference, and the
        reference drawn again: from other start weights, under other masks, on the same data.
        """
        recipes = [
            recipe
            for seed in range(self.options.seed, self.options.seed + self.options.seeds)
            for recipe in (
                TrainingRecipe(arm=arm, role=Role.REFERENCE, seed=seed),
                TrainingRecipe(
                    arm=arm, role=Role.OTHER_START, seed=seed, mask_seed=OTHER_MASK_SEED
                ),
            )
        ]
        return self._evidence([self._run(recipe) for recipe in recipes], [])

    def first_calls(self) -> dict[str, FirstCall]:
        """Return the first step of each arm in one process, which the timed one has to repeat."""
        arms = {
            arm: call
            for (role, arm, _), call in self.first.items()
            if role in {Role.REFERENCE, Role.CANDIDATE}
        }
        runs = [
            call
            for (role, _, _), call in self.first.items()
            if role in {Role.REFERENCE, Role.PERTURBED}
        ]
        calls = {
            arm: verified(call, epsilon=self.options.precision.epsilon, runs=runs)
            for arm, call in arms.items()
        }
        for other in arms.values():
            calls = {arm: held_to(call, other.words) for arm, call in calls.items()}
        return calls

    def _evidence(self, traces: Sequence[Trace], masks: Sequence[ArmMasks]) -> ParityEvidence:
        return ParityEvidence(
            precision=str(self.options.precision),
            epsilon=self.options.precision.perturbation,
            steps_per_epoch=math.ceil(len(self.train) / self.options.batch_size),
            evaluation_rows=len(self.test) if self.test is not None else 0,
            masks=tuple(masks),
            traces=tuple(traces),
        )

    def _envelope(self, traces: Sequence[Trace], masks: Sequence[ArmMasks]) -> list[Trace]:
        """Train perturbed references, for the envelope and until accuracy is decided.

        The first is as long as the reference, others as long as needed. Others can follow
        (`further_envelope`) unless accuracy needs them all. A provisional look then takes one: an
        envelope only widens with more of them, so a result inside that of one is inside that of
        more.
        """
        short = self._are_short(traces, masks)
        count = 1 if short and self.context.provisional else self.options.perturbations
        self._trained_already.unlink(missing_ok=True)
        if short:
            self._trained_already.write_text(str(count), encoding="ascii")
        references: list[Trace] = []
        for index in range(count):
            certain = (
                short
                or self.test is None
                or self._accuracy_is_certain([*traces, *references], masks, missing=count - index)
            )
            references.append(self._perturbed(index, evaluated=not certain, full_length=index == 0))
        return references

    def _are_short(self, traces: Sequence[Trace], masks: Sequence[ArmMasks]) -> bool:
        """Return true if only the envelope depends on perturbed references.

        This must hold for any number of them.
        """
        if any(arm.masks is Masks.DIFFER for arm in masks):
            return False
        return self.test is None or self._accuracy_is_certain(
            traces, masks, missing=2 * self.options.perturbations
        )

    def further_envelope(self) -> ParityEvidence:
        """Train further perturbed references, up to twice as many as `perturbations`.

        Accuracy was certain without them. A result may leave the envelope of three by chance: more
        are worth their time if a red verdict is near. None on a side whose accuracy took whole
        trainings: with these, short ones would leave it in doubt again.
        """
        most = 2 * self.options.perturbations
        count = (
            int(self._trained_already.read_text(encoding="ascii"))
            if self._trained_already.exists()
            else most
        )
        further = range(count, most)
        evidence = self._evidence(
            [self._perturbed(index, evaluated=False, full_length=True) for index in further], []
        )
        if self.options.precision is TrainingPrecision.FP32 or not further:
            return evidence
        perturbed = [(REFERENCE_ARM, Role.PERTURBED, index) for index in further]
        return replace(evidence, twin=self.in_fp32().train_short(perturbed, []))

    @property
    def _trained_already(self) -> Path:
        """The file with the number of perturbed references.

        One stage of the case leaves it to another if further references can follow.
        """
        return self.context.scratch / "perturbed-references"

    def _perturbed(self, index: int, *, evaluated: bool, full_length: bool) -> Trace:
        """Train a perturbed reference.

        One of `full_length` shows how far rounding moves later steps; accuracy is another question.
        """
        total = math.ceil(len(self.train) / self.options.batch_size) * self.options.epochs
        steps = None if evaluated else total if full_length else ENVELOPE_STEPS
        return self._run(replace(self._short(Role.PERTURBED, index), steps=steps))

    def _accuracy_is_certain(
        self, traces: Sequence[Trace], masks: Sequence[ArmMasks], *, missing: int
    ) -> bool:
        """Return true if every candidate is as accurate as the reference in any case.

        `missing` more peers would not change that. Over seeds all peers are trained: there each of
        them narrows the limit.
        """
        if any(arm.masks is Masks.DIFFER for arm in masks):
            return False
        peers = [
            trace.accuracy
            for trace in traces
            if trace.arm == REFERENCE_ARM and trace.accuracy is not None
        ]
        candidates = [trace.accuracy for trace in traces if trace.role is Role.CANDIDATE]
        return all(
            accuracy is not None and bool(peers) and is_certain(accuracy, peers, missing=missing)
            for accuracy in candidates
        )

    def _more_seeds(self, arm: str, trained: set[tuple[Role, str, int]]) -> list[Trace]:
        """Train the recipes of the statistical tier that are missing."""
        seeds = range(self.options.seed, self.options.seed + self.options.seeds)
        recipes = [
            recipe
            for seed in seeds
            for recipe in (
                TrainingRecipe(arm=REFERENCE_ARM, role=Role.REFERENCE, seed=seed),
                TrainingRecipe(arm=arm, role=Role.CANDIDATE, seed=seed),
                TrainingRecipe(
                    arm=REFERENCE_ARM, role=Role.OTHER_MASKS, seed=seed, mask_seed=OTHER_MASK_SEED
                ),
            )
        ]
        return [
            self._run(recipe)
            for recipe in recipes
            if (recipe.role, recipe.arm, recipe.seed) not in trained
        ]

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
            trace = record_training(trainee, recipe, state=state, verifier=self)
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


def record_training(
    trainee: Trainee, recipe: TrainingRecipe, *, state: State, verifier: TrainingVerifier
) -> Trace:
    """Train and keep loss and gradient norm of every step, and digests of start and batches.

    The batches are those of the whole training, even if only some steps of it are trained from a
    checkpoint.
    """
    options, shelf = verifier.options, verifier.shelf
    stream = batches(
        verifier.train, batch_size=options.batch_size, seed=recipe.seed, epochs=options.epochs
    )
    trained = _steps(recipe, verifier)
    ranks = None if options.layout_of(recipe.arm) is None else verifier.context.ranks
    data_digest = hashlib.sha256(verifier.train.digest().encode())
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
            float(trainee.step(batch) if step else _first_step(trainee, recipe, batch, verifier))
        )
        norms.append(trainee.gradient_norm())
        verifier.context.progress(
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


def _first_step(
    trainee: Trainee, recipe: TrainingRecipe, batch: Batch, verifier: TrainingVerifier
) -> Tensor:
    """Take the first step, and note its start and its results, for the process that times.

    Returns the loss.
    """
    options = verifier.options
    if recipe.seed != options.seed or options.layout_of(recipe.arm) is not None:
        return trainee.step(batch)
    fed = [] if recipe.role is Role.PERTURBED else full_batches(verifier.train, options)
    inputs = [value for full_batch in fed for value in full_batch.values()]
    start, states = read_start(inputs, trainee.model.named_parameters()), generator_states()
    loss = trainee.step(batch)
    draws = bool(moved(states, generator_states()))
    results = {} if draws else left_by_training(loss, trainee.model)
    verifier.first[recipe.role, recipe.arm, recipe.index] = read_call(start, results)
    return loss


def _steps(recipe: TrainingRecipe, verifier: TrainingVerifier) -> range:
    """Return the steps of a training that are trained."""
    options, shelf = verifier.options, verifier.shelf
    total = math.ceil(len(verifier.train) / options.batch_size) * options.epochs
    if recipe.resumes and shelf is not None:
        return range(
            min(shelf.options.after, total), min(shelf.options.after + shelf.options.steps, total)
        )
    return range(min(total, recipe.steps or total))


def _first_loss(trace: Trace) -> float:
    """Return the loss before any update; nan if it is not a number."""
    first = trace.loss[0] if trace.loss else None
    return math.nan if first is None else first


def _finite(values: list[float]) -> tuple[float | None, ...]:
    return tuple(value if math.isfinite(value) else None for value in values)


def _non_finite(signal: str, values: list[float], first: int) -> tuple[NonFinite, ...]:
    """Return the holes of a series whose first value is of step `first`."""
    return tuple(
        NonFinite(signal=signal, step=first + place, value=str(value))
        for place, value in enumerate(values)
        if not math.isfinite(value)
    )
