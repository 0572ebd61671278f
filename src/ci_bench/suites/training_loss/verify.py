"""Gathers the parity evidence: trains reference, perturbed references and candidates from the same bytes, step by step.

Judging is done elsewhere (`ci_bench.judge.parity.candidates`), from the recorded traces alone. Envelope runs and the statistical
tier: J = `perturbations` eager runs from shaken weights; where masks differ, `seeds` whole trainings of reference, candidate, and
reference under other masks.
"""

import hashlib
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice

import torch

from ci_bench.records.case import ArmMasks, Masks, NonFinite, ParityEvidence, Role, Trace
from ci_bench.suites.base import Context
from ci_bench.suites.training_loss import evaluation
from ci_bench.suites.training_loss.corpus import Rows, batches
from ci_bench.suites.training_loss.masks import model_is_random, probe_masks
from ci_bench.suites.training_loss.network import State, perturbed, start_state, state_digest
from ci_bench.suites.training_loss.options import REFERENCE_ARM, Options
from ci_bench.suites.training_loss.training import Trainee, build_trainee

ENVELOPE_STEPS = 50
MASK_SEED = 7919
OTHER_MASK_SEED = 104729


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """One training to do. `steps` limits it; `mask_seed` starts the random numbers of dropout."""

    arm: str
    role: Role
    seed: int
    index: int = 0
    steps: int | None = None
    mask_seed: int = MASK_SEED


@dataclass(frozen=True, kw_only=True, slots=True)
class Verifier:
    """Trains by recipe. `test` is `None` where evaluation is off."""

    options: Options
    context: Context
    train: Rows
    test: Rows | None

    def gather(self, arms: tuple[str, ...]) -> ParityEvidence:
        """All evidence about the candidates among `arms`."""
        seed = self.options.seed
        traces = [self._run(Recipe(arm=REFERENCE_ARM, role=Role.REFERENCE, seed=seed)), *self._envelope(seed)]
        masks = []
        for arm in arms:
            if arm == REFERENCE_ARM:
                continue
            found = self._probe(arm)
            masks.append(found)
            traces.append(self._run(Recipe(arm=arm, role=Role.CANDIDATE, seed=seed)))
            if found.masks is Masks.DIFFER:
                traces += self._more_seeds(arm, known={(trace.role, trace.arm, trace.seed) for trace in traces})
        return ParityEvidence(
            precision=str(self.options.precision),
            epsilon=self.options.precision.epsilon,
            steps_per_epoch=math.ceil(len(self.train) / self.options.batch_size),
            evaluation_rows=len(self.test) if self.test is not None else 0,
            masks=tuple(masks),
            traces=tuple(traces),
        )

    def _envelope(self, seed: int) -> list[Trace]:
        """Perturbed references: whole trainings where accuracy is judged too, else only as long as the envelope needs."""
        steps = None if self.test is not None else ENVELOPE_STEPS
        recipes = [
            Recipe(arm=REFERENCE_ARM, role=Role.PERTURBED, seed=seed, index=index, steps=steps)
            for index in range(self.options.perturbations)
        ]
        return [self._run(recipe) for recipe in recipes]

    def _more_seeds(self, arm: str, known: set[tuple[Role, str, int]]) -> list[Trace]:
        """The statistical tier's trainings that are not there yet."""
        seeds = range(self.options.seed, self.options.seed + self.options.seeds)
        wanted = [
            recipe
            for seed in seeds
            for recipe in (
                Recipe(arm=REFERENCE_ARM, role=Role.REFERENCE, seed=seed),
                Recipe(arm=arm, role=Role.CANDIDATE, seed=seed),
                Recipe(arm=REFERENCE_ARM, role=Role.OTHER_MASKS, seed=seed, mask_seed=OTHER_MASK_SEED),
            )
        ]
        return [self._run(recipe) for recipe in wanted if (recipe.role, recipe.arm, recipe.seed) not in known]

    def _probe(self, arm: str) -> ArmMasks:
        backend = self.options.backend_of(arm)
        assert backend is not None, f"{arm} is a candidate, so it has a backend"  # noqa: S101 - our own bug if not
        trainee = build_trainee(self.options, start_state(self.options, seed=0), device=self.context.device, backend=None)
        random = model_is_random(trainee, self.train.batch(torch.arange(min(2, len(self.train)))))
        with self._aligned():
            return probe_masks(arm, backend, device=self.context.device, random=random)

    def _run(self, recipe: Recipe) -> Trace:
        """Train by a recipe, and evaluate a whole training.

        Dynamo is reset first: it counts compilations per code object, and all trainings share the step's. From the ninth on
        (`recompile_limit`) it would run a candidate eagerly without a word.
        """
        torch.compiler.reset()
        state = start_state(self.options, seed=recipe.seed)
        if recipe.role is Role.PERTURBED:
            state = perturbed(state, epsilon=self.options.precision.epsilon, seed=1 + recipe.index)
        backend = self.options.backend_of(recipe.arm)
        with self._aligned():
            trainee = build_trainee(self.options, state, device=self.context.device, backend=backend)
            trace = record_training(trainee, recipe, state=state, verifier=self)
            return self._evaluated(trace, trainee, self.test) if self.test is not None else trace

    def _evaluated(self, trace: Trace, trainee: Trainee, test: Rows) -> Trace:
        """Accuracy in the arm's own forward pass, and for a candidate where an eager pass of the same weights disagrees."""
        labels, size = test.labels.cpu(), self.options.batch_size
        predicted = evaluation.predict(trainee, test, batch_size=size)
        share = evaluation.accuracy(predicted, labels, cache=self.context.scratch / "evaluate")
        if trace.role is not Role.CANDIDATE:
            return replace(trace, accuracy=share)
        eager = evaluation.predict(trainee, test, batch_size=size, compiled=False)
        return replace(trace, accuracy=share, disagreements=evaluation.disagreements(eager, predicted, labels))

    def _aligned(self) -> AbstractContextManager[object]:
        """Ask inductor for eager's random numbers, if the options want that."""
        if not self.options.align_rng:
            return nullcontext()
        from torch._inductor import config

        aligned: AbstractContextManager[object] = config.patch(fallback_random=True)
        return aligned


def record_training(trainee: Trainee, recipe: Recipe, *, state: State, verifier: Verifier) -> Trace:
    """Train and keep loss and gradient norm of every step, and digests of what it started from and saw."""
    options = verifier.options
    stream = batches(verifier.train, batch_size=options.batch_size, seed=recipe.seed, epochs=options.epochs)
    total = math.ceil(len(verifier.train) / options.batch_size) * options.epochs
    total = min(total, recipe.steps or total)
    seen = hashlib.sha256(verifier.train.digest().encode())
    losses: list[float] = []
    norms: list[float] = []
    torch.manual_seed(recipe.mask_seed + recipe.seed)
    for step, (indices, batch) in enumerate(islice(stream, total)):
        losses.append(float(trainee.step(batch)))
        norms.append(trainee.gradient_norm())
        if step < ENVELOPE_STEPS:
            seen.update(indices.numpy().tobytes())
        verifier.context.progress(f"{recipe.arm} ({recipe.role})", step + 1, total)
    return Trace(
        arm=recipe.arm,
        role=recipe.role,
        seed=recipe.seed,
        index=recipe.index,
        loss=_finite(losses),
        grad_norm=_finite(norms),
        non_finite=(*_non_finite("loss", losses), *_non_finite("grad_norm", norms)),
        start=state_digest(state),
        data=seen.hexdigest()[:16],
    )


def _finite(values: list[float]) -> tuple[float | None, ...]:
    return tuple(value if math.isfinite(value) else None for value in values)


def _non_finite(signal: str, values: list[float]) -> tuple[NonFinite, ...]:
    return tuple(
        NonFinite(signal=signal, step=step, value=str(value)) for step, value in enumerate(values) if not math.isfinite(value)
    )
