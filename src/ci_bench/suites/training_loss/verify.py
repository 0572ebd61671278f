"""Gathers the parity evidence: trains reference, perturbed references and candidates, step by step.

All start from the same bytes. Judging is done elsewhere (`ci_bench.judge.parity.verdict`), only
from the recorded traces. Envelope runs and the statistical tier: J = `perturbations` eager runs
from shaken weights; one run with a known fault, to show that it is found; in a lower precision than
fp32 the same in fp32; if masks differ, `seeds` whole trainings of reference, candidate, and
reference under other masks, and the same training without dropout. `recipes` trains and records.
"""

import math
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from ci_bench.records.first_calls import FirstCall
from ci_bench.records.results import (
    ArmMasks,
    Check,
    Masks,
    Outcome,
    ParityEvidence,
    Role,
    Trace,
)
from ci_bench.statistics.accuracy import is_certain
from ci_bench.suites.shared.planning.arms import CompiledArm
from ci_bench.suites.shared.worker.dropping import Dropout, drop_nothing, without_dropout
from ci_bench.suites.shared.worker.first_calls import held_to, verified
from ci_bench.suites.shared.worker.redrawing import Tested
from ci_bench.suites.training_loss.checkpoints import Shelf
from ci_bench.suites.training_loss.masks import (
    MaskDraws,
    compare_first_steps,
    compare_masks,
    take_draws,
)
from ci_bench.suites.training_loss.network import State, start_state
from ci_bench.suites.training_loss.options import REFERENCE_ARM, TrainingPrecision
from ci_bench.suites.training_loss.recipes import (
    ENVELOPE_STEPS,
    OTHER_MASK_SEED,
    Trainer,
    TrainingRecipe,
)
from ci_bench.suites.training_loss.training import Trainee, build_trainee

MOST_DETAIL = 1000


class TrainingVerifier(Trainer):
    """Gathers the evidence by training."""

    __slots__ = ()

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
            candidate, probed = self._run_and_compare(arm, reference, expected)
            masks.append(probed)
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
                ArmMasks(
                    arm=arm,
                    masks=Masks.DIFFER if drawn else Masks.NO_DROPOUT,
                    detail=detail,
                    unexplained="" if drawn else None,  # ranks run the reference's own layers
                )
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
        is_fp32 = self.options.precision is TrainingPrecision.FP32
        twin = None if is_fp32 else self._if_it_trains("fp32_twin", self._twin, masks)
        controls = [] if twin is not None else [self._run(self._short(Role.CONTROL))]
        return replace(
            self._evidence([*traces, *controls], masks),
            twin=twin,
            without_dropout=self._if_it_trains("without_dropout", self._without_dropout, masks),
        )

    def _if_it_trains(
        self,
        check: str,
        train: Callable[[Sequence[ArmMasks]], ParityEvidence | None],
        masks: Sequence[ArmMasks],
    ) -> ParityEvidence | None:
        """Return what trainings in fp32 show; `None`, with a check, if this model has none."""
        try:
            return train(masks)
        except (RuntimeError, TypeError, ValueError) as error:
            if self.options.layouts:
                raise
            self.checks.append(
                Check(
                    name=check,
                    arm=REFERENCE_ARM,
                    outcome=Outcome.UNKNOWN,
                    detail=f"the training fails in fp32: {error}"[:MOST_DETAIL],
                )
            )
            return None

    def _without_dropout(self, masks: Sequence[ArmMasks]) -> ParityEvidence | None:
        """Train in fp32 with nothing dropped, for candidates whose masks differ.

        These trainings are whole, except for the control and further perturbed references. `None`
        without such a candidate, or if the model draws more random numbers than dropout's.
        """
        differing = [
            replace(entry, masks=Masks.NO_DROPOUT, detail="nothing is dropped", unexplained=None)
            for entry in masks
            if entry.masks is Masks.DIFFER
        ]
        if not differing:
            return None
        with self.without_dropout() as quiet:
            evidence = quiet.train_whole(differing)
        torch.compiler.reset()
        return evidence

    def train_whole(self, masks: Sequence[ArmMasks]) -> ParityEvidence | None:
        """Train the candidates of `masks` without random numbers.

        `None` if the model still draws some.
        """
        if self._drawn():
            return None
        of_candidate = replace(self._short(Role.CANDIDATE), steps=None)
        further = range(1, 2 * self.options.perturbations)
        recipes = [
            replace(of_candidate, role=Role.REFERENCE),
            *(replace(of_candidate, arm=entry.arm) for entry in masks),
            replace(of_candidate, role=Role.PERTURBED),
            *(self._short(Role.PERTURBED, index) for index in further),
            self._short(Role.CONTROL),
        ]
        return self._evidence([self._run(recipe) for recipe in recipes], masks)

    def _twin(self, masks: Sequence[ArmMasks]) -> ParityEvidence:
        """Train the envelope's steps in fp32.

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
        return self.in_fp32().train_short(trainings, compared)

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
            arm=REFERENCE_ARM,
            role=role,
            seed=seed,
            index=index,
            steps=steps,
            twin=self.is_twin,
            quiet=self.is_quiet,
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

    def _run_and_compare(
        self, arm: str, reference: Trace, expected: MaskDraws
    ) -> tuple[Trace, ArmMasks]:
        """Train a candidate, and then compare its masks with the `expected` ones of `reference`.

        If they differ, test whether that explains how its steps do.
        """
        recipe = TrainingRecipe(arm=arm, role=Role.CANDIDATE, seed=self.options.seed)
        with self._trained(recipe) as (trainee, state, trace):
            draws = take_draws(trainee, state, self._first_batch(), seed=recipe.mask_seed)
            first_losses = (_first_loss(reference), _first_loss(trace))
            probed = compare_masks(arm, expected, draws, first_losses=first_losses)
            if probed.masks is not Masks.DIFFER:
                return trace, probed
            tested = self._tested(trainee, state)
        return trace, self.with_masks_tested(probed, tested)

    def with_masks_tested(self, probed: ArmMasks, tested: Tested | None) -> ArmMasks:
        """Add what the test of masks found.

        A lower precision than fp32 is also tested in fp32.
        """
        trainer = self if self.options.precision is TrainingPrecision.FP32 else self.in_fp32()
        if trainer is not self and tested is not None and not tested.unexplained:
            tested = trainer.masks_tested(probed.arm)
        if tested is None or tested.unexplained:
            return replace(probed, unexplained=None if tested is None else tested.unexplained)
        control = tested.control
        if control is None or not control.places:
            return probed  # it draws other random numbers than dropout's
        unexplained, unseen = tested.with_each_alone(
            lambda kind: trainer.masks_tested(probed.arm, kind)
        )
        if unexplained:
            return replace(probed, unexplained=unexplained[:MOST_DETAIL])
        return replace(probed, unexplained="", places=control.places, unseen=unseen)

    def masks_tested(self, arm: str, alone: Dropout | None = None) -> Tested | None:
        """Test the masks of a fresh candidate, with all dropout or only that of one kind.

        `None` if this model does not train in this precision.
        """
        torch.compiler.reset()
        try:
            state = start_state(self.options, seed=self.options.seed)
            quiet = nullcontext() if alone is None else without_dropout(keeping=alone)
            with self._aligned(), quiet:
                candidate = self._built(state, self.options.candidate_of(arm))
                return self._tested(candidate, state, alone)
        except (RuntimeError, TypeError, ValueError):  # the check `without_dropout` says which
            return None

    def _tested(
        self, candidate: Trainee, state: State, alone: Dropout | None = None
    ) -> Tested | None:
        """Do the same for a built candidate; `None` if memory does not suffice for eager, too."""
        try:
            eager = self._built(state, None)
            if alone not in {None, Dropout.RECURRENT}:
                drop_nothing(eager.model)
                drop_nothing(candidate.model)
            tested = compare_first_steps(
                eager,
                candidate,
                state,
                self._first_batch(),
                epsilon=self.options.precision.epsilon,
                controlled=self.options.precision is TrainingPrecision.FP32,
            )
            return replace(tested, unexplained=tested.unexplained[:MOST_DETAIL])
        except torch.OutOfMemoryError:
            return None

    def _built(self, state: State, candidate: CompiledArm | None) -> Trainee:
        return build_trainee(self.options, state, device=self.context.device, candidate=candidate)


def _first_loss(trace: Trace) -> float:
    """Return the loss before any update; nan if it is not a number."""
    first = trace.loss[0] if trace.loss else None
    return math.nan if first is None else first
