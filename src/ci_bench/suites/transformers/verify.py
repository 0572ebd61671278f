"""Evidence on a case except its times: agreement of the arms, and the size of model and work.

The timed programs themselves take the compared steps: same batch, same formats, same mode. The
reference is the same program in fp64, from the same bytes. Every step of every arm starts from its
own seed. One model lives at a time.

For the other side of a paired run, the results of the eager arm are kept: outputs or logits, in
training loss and gradients, and the optimizer's updates by known gradients. With the model's own
gradients, Adam makes whole updates of the rounding of tiny ones. Every observed step of a training
starts from the same weights, so all of them are comparable.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from ci_bench.records.first_calls import FirstCall
from ci_bench.records.forms import Fact
from ci_bench.records.results import Check, Lane, Launch, Outcome
from ci_bench.suites.contract import Computed, Context, Evidence
from ci_bench.suites.shared.planning.arms import without_cuda_graphs
from ci_bench.suites.shared.planning.sizes import SHARES
from ci_bench.suites.shared.worker.compiling import allow_compilations
from ci_bench.suites.shared.worker.digests import digest, digests
from ci_bench.suites.shared.worker.first_calls import held_to, read_call, read_start, verified
from ci_bench.suites.shared.worker.later_calls import with_later_calls
from ci_bench.suites.shared.worker.memory_errors import is_out_of_memory
from ci_bench.suites.shared.worker.numerics import agree_coarsely, jolt_of
from ci_bench.suites.shared.worker.randomness import seed_step
from ci_bench.suites.shared.worker.roofline import step_facts
from ci_bench.suites.shared.worker.sharing import forget_graphs, really_compiled
from ci_bench.suites.transformers import PROCESS_VRAM
from ci_bench.suites.transformers.agreement import (
    OutputChange,
    OutputObservation,
    ReferenceOutputsOfModel,
    as_computed,
    check_of,
    compared,
    shake_of,
)
from ci_bench.suites.transformers.generation import Generation, Script
from ci_bench.suites.transformers.inputs import Inputs, task_of
from ci_bench.suites.transformers.network import ModelRecipe, forget, parameter_counts, sentence
from ci_bench.suites.transformers.options import AGREES, REFERENCE_ARM, ROWS_ALONE, Mode
from ci_bench.suites.transformers.process_memory import (
    Timeline,
    process_vram,
    sites_at_peak,
    told_sites,
)
from ci_bench.suites.transformers.ranks import SharedTraining
from ci_bench.suites.transformers.steps import EverySize, Observed, Training, nothing

logger = logging.getLogger(__name__)

STEPS = 2
"""The least number of compared steps, all in full: stale or adding values show in the second."""
SETTLING_CALLS = 3

Open = Callable[[ModelRecipe, str, Script | None], Observed]


@dataclass(kw_only=True, slots=True)
class Beginning:
    """Start of a program, read before its first step."""

    recipe: ModelRecipe
    """Recipe of the model."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Forms and digests of inputs and weights, for the first call; empty for shared programs."""
    start: Mapping[str, str] = field(default_factory=dict)
    """Digests of the start weights, by name."""
    inputs: tuple[str, ...] = ()
    """Digests of all tensors of the prepared batches, in order."""
    updates: Mapping[str, Tensor] = field(default_factory=dict)
    """Updates by known gradients, by weight; empty without training."""

    def look(self, program: Observed) -> None:
        """Take the digests of a fresh program's weights and batches.

        Its optimizer gets known gradients.
        """
        recipe, self.words = self.recipe, words_of(program)
        batches = Inputs(
            options=recipe.options, model=program.model, dtype=recipe.dtype, device=recipe.device
        ).batches()
        self.start = digests(program.model.named_parameters())
        self.inputs = tuple(digest(value) for batch in batches for value in batch.values())
        self.updates = program.known_updates() if isinstance(program, Training | EverySize) else {}

    def computed(
        self,
        eager: OutputObservation,
        exact: OutputObservation | None,
        shaken: OutputObservation,
        last: OutputObservation | None,
    ) -> Computed:
        """Return the results of the eager arm, of fp64 if available, and from shaken weights.

        For these see `shake_of`. `last` is the first step once more, after all steps.
        """
        epsilon = self.recipe.options.precision.epsilon
        later = {} if last is None else {"last": last.values}
        outputs, off = with_later_calls(eager.values, later, [eager.values, shaken.values])
        return Computed(
            arm=REFERENCE_ARM,
            epsilon=epsilon,
            outputs={**outputs, **self.updates},
            start=self.start,
            inputs=self.inputs,
            runs=() if jolt_of(epsilon) else [off],
            jolts=[off] if jolt_of(epsilon) else (),
            truth=None if exact is None else exact.values,
        )


def words_of(program: Observed) -> dict[str, str]:
    """Return forms and digests of a fresh program's inputs and weights.

    Empty for a program that several processes share.
    """
    shared = isinstance(program, SharedTraining)
    return {} if shared else read_start(program.operands(), program.weights().items())


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformersVerifier:
    """Verifies one case."""

    recipe: ModelRecipe
    """Recipe of the arms' models."""
    context: Context
    """Context of the case in this worker."""
    open_program: Open
    """Function that builds the program of an arm by a recipe."""
    begun: dict[str, FirstCall] = field(default_factory=dict)
    """The first call of each arm, for the process that times."""
    runs: list[FirstCall] = field(default_factory=list)
    """First calls of the reference, as it is and from shaken weights."""

    def gather(self) -> Evidence:
        """Gather facts from the eager arm, and the check `agrees` of each candidate.

        A case of one arm has its look here, too.
        """
        candidates, shared = self.recipe.options.candidates, self.recipe.options.layouts
        if shared:
            checks = self._compare(tuple(layout.name for layout in shared))
            return Evidence(checks=checks, facts=self._facts(), begun=self.begun)
        if not candidates:
            evidence = self.look(REFERENCE_ARM)
            checks = self._keep_alone()
            return replace(
                evidence, checks=checks, facts={**evidence.facts, **self._facts()}, begun=self.begun
            )
        checks = self._compare(tuple(candidate.arm for candidate in candidates))
        modes = {candidate.arm: candidate.mode for candidate in candidates}
        facts = {**self._facts(), **without_cuda_graphs(modes, self.context.device)}
        return Evidence(checks=checks, facts=facts, begun=self.begun)

    def look(self, arm: str) -> Evidence:
        """Measure the memory of a single arm on its GPU.

        On the CPU its resident size shows it all, and the engine reports that.
        """
        device, options = self.context.device, self.recipe.options
        if not options.memory:
            return Evidence()
        if not device.startswith("cuda"):
            return Evidence(
                facts=(
                    {"memory_timeline": "not recorded: it needs a GPU"}
                    if options.memory_timeline
                    else {}
                )
            )
        program = self.open_program(self.recipe, arm, None)
        for _ in range(SETTLING_CALLS):
            program.step(nothing)
        used, how = process_vram(device)
        facts: dict[str, Fact] = {f"{PROCESS_VRAM.name}_found_{_fact_part(arm)}": how}
        if options.memory_timeline:
            facts |= self._timeline(arm, program)
        if used is None:
            return Evidence(facts=facts)
        sample = Launch(launch=0, values=(float(used),))
        return Evidence(metrics=(PROCESS_VRAM.of(arm, sample, lane=Lane.COUNTERS),), facts=facts)

    def _timeline(self, arm: str, program: Observed) -> dict[str, Fact]:
        """Record one steady step.

        The events are kept next to the results, the lines at the peak in them.
        """
        timeline = Timeline(self.context.device)
        with timeline.record():
            program.step(nothing)
        timeline.write(self.context.attachments / f"memory-timeline-{_fact_part(arm)}.jsonl.gz")
        peak, sites = sites_at_peak(timeline.events())
        return {
            f"step_peak_bytes_{_fact_part(arm)}": peak,
            f"step_peak_lines_{_fact_part(arm)}": told_sites(sites)[:1000],
        }

    def _compare(self, arms: tuple[str, ...]) -> tuple[Check, ...]:
        """Compare each candidate with the reference in fp64.

        If the model cannot run in fp64, the reference is eager.

        Eager runs, one from shaken weights, show the effect of rounding. Dropout is off even if it
        is on in timing: no compiler draws the random numbers that eager draws.
        """
        recipe = replace(self.recipe, options=replace(self.recipe.options, dropout=False))
        exact, script = None, None
        try:
            exact, script, _ = self._observe(
                replace(recipe, exact=True), REFERENCE_ARM, None, self.steps
            )
        except Exception as error:  # noqa: BLE001 - a model may raise anything in fp64; one that fails itself fails below
            logger.warning("the reference in fp64: %s", error)
            if is_out_of_memory(error) or self.recipe.options.mode is Mode.GENERATION:
                self._keep(recipe, None, None)
                return tuple(_unknown(arm, error) for arm in arms)
        reference, memory = self._keep(recipe, exact, script)
        expected = as_computed(reference, epsilon=recipe.options.precision.epsilon)
        checks = []
        for arm in arms:
            if recipe.options.layout_of(arm) is not None and self.context.ranks is not None:
                self.context.ranks.order({"arm": arm})
            observation = self._observe_candidate(recipe, arm, script)
            answers = self._judge_candidate(reference, memory, arm, observation)
            if answers[0].outcome is Outcome.PASS:
                self.context.claim(AGREES, arm, observation.values, expected)
            checks += answers
        return (*checks, *self._rows_alone(reference))

    def _rows_alone(self, reference: ReferenceOutputsOfModel) -> tuple[Check, ...]:
        """Compare eager's ragged prompts with the same prompts one by one.

        For the candidates they only show the effect of rounding.
        """
        options = self.recipe.options
        if (
            options.mode is not Mode.GENERATION
            or not options.ragged
            or reference.exact is reference.eager
        ):
            return ()
        epsilon = options.precision.epsilon
        eager = reference.eager.values
        exact = {
            name: value.to(eager[name].dtype) for name, value in reference.exact.values.items()
        }
        looked = agree_coarsely(eager, exact, epsilon=epsilon)
        detail = (
            "eager's logits of padded prompts compared with each prompt separately in fp64:"
            f" {looked.detail}"
        )
        return (Check(name=ROWS_ALONE, arm=REFERENCE_ARM, outcome=looked.outcome, detail=detail),)

    def _judge_candidate(
        self,
        reference: ReferenceOutputsOfModel,
        memory: float,
        arm: str,
        observation: OutputObservation,
    ) -> list[Check]:
        check = check_of(
            arm,
            compared(
                observation, reference, epsilon=self.recipe.options.precision.epsilon, beta=memory
            ),
        )
        check = replace(
            check, detail=f"{self.steps} steps over all {self.batches} batches: {check.detail}"
        )
        layout = self.recipe.options.layout_of(arm)
        compiled = layout is not None and layout.backend is not None
        return [check, really_compiled(arm)] if compiled else [check]

    def observe_along(self, arm: str) -> None:
        """Take the steps of a shared arm in a rank other than the first.

        Rank 0 judges the results.
        """
        self._observe_candidate(
            replace(self.recipe, options=replace(self.recipe.options, dropout=False)), arm, None
        )

    def _observe_candidate(
        self, recipe: ModelRecipe, arm: str, script: Script | None
    ) -> OutputObservation:
        if recipe.options.layout_of(arm) is not None:
            forget_graphs()
        allow_compilations(1 + recipe.options.arms.index(arm))
        words: dict[str, str] = {}
        observation, _, _ = self._observe(
            recipe, arm, script, self.steps, look=lambda program: words.update(words_of(program))
        )
        if words:
            self._note(arm, words, observation)
            self.begun[arm] = held_to(self.begun[arm], self.begun[REFERENCE_ARM].words)
        return observation

    def _note(self, arm: str, words: Mapping[str, str], observation: OutputObservation) -> None:
        """Note the first call of an arm. Its results are random if it is timed with dropout."""
        options = self.recipe.options
        compared = options.mode is not Mode.GENERATION and not options.dynamic
        call = read_call(words, _of_first(observation) if compared else {})
        self.begun[arm] = verified(
            call, epsilon=options.precision.epsilon, runs=self.runs, draws=options.dropout
        )

    @property
    def steps(self) -> int:
        """The number of compared steps: every batch that takes turns."""
        return max(STEPS, self.batches)

    @property
    def batches(self) -> int:
        """The number of batches that take turns, or are the sizes of one step."""
        options = self.recipe.options
        return len(SHARES) if options.dynamic else options.prepared_inputs

    def _keep_alone(self) -> tuple[Check, ...]:
        """Keep the results of a case's only arm, to be compared with the other side's."""
        recipe = replace(self.recipe, options=replace(self.recipe.options, dropout=False))
        exact, script = None, None
        try:
            exact, script, _ = self._observe(
                replace(recipe, exact=True), REFERENCE_ARM, None, self.steps
            )
        except Exception as error:  # noqa: BLE001 - a model may raise anything in fp64; one that fails itself fails below
            logger.warning("the reference in fp64: %s", error)
        reference, _ = self._keep(recipe, exact, script)
        return self._rows_alone(reference)

    def _keep(
        self, recipe: ModelRecipe, exact: OutputObservation | None, script: Script | None
    ) -> tuple[ReferenceOutputsOfModel, float]:
        """Observe the eager arm, once from shaken weights, and keep its results for the other side.

        Returns the reference for candidates (eager itself without fp64), and the optimizer's
        memory.
        """
        begun = Beginning(recipe=recipe)
        last: list[OutputObservation] = []
        eager, _, memory = self._observe(
            recipe, REFERENCE_ARM, script, self.steps, look=begun.look, take_last=last.append
        )
        shake = shake_of(self.recipe.options.precision.epsilon)
        shaken, _, _ = self._observe(replace(recipe, shake=shake), REFERENCE_ARM, script, 1)
        self.context.keep(begun.computed(eager, exact, shaken, last[0] if last else None))
        self.runs.extend(read_call({}, _of_first(observation)) for observation in (eager, shaken))
        self._note(REFERENCE_ARM, begun.words, eager)
        return (
            ReferenceOutputsOfModel(
                exact=eager if exact is None else exact, eager=eager, shaken=shaken
            ),
            memory,
        )

    def _observe(
        self,
        recipe: ModelRecipe,
        arm: str,
        script: Script | None,
        steps: int,
        *,
        look: Callable[[Observed], None] = lambda _: None,
        take_last: Callable[[OutputObservation], None] | None = None,
    ) -> tuple[OutputObservation, Script | None, float]:
        """Observe all results of the first steps, and for a generation its tokens.

        The other arms take the same tokens. Of a training's later batches, only losses and the
        norms of gradients are kept: gradients of a large model fill the memory. The last value is
        the optimizer's memory. `look` sees the program before its first step, and `take_last` is
        given the first step once more, after all others.
        """
        program = self.open_program(recipe, arm, script)
        look(program)
        values: dict[str, Tensor] = {}
        changes: dict[str, OutputChange] = {}
        for step in range(1, 1 + steps):
            seed_step(recipe.options.seed, step)
            observation = program.observe(lightly=step > STEPS)
            values |= {f"{name} (step {step})": value for name, value in observation.values.items()}
            changes |= {
                f"{name} (step {step})": change for name, change in observation.changes.items()
            }
            self.context.progress(f"{arm} (fp64)" if recipe.exact else arm, step, steps)
        tokens = program.observed if isinstance(program, Generation) else None
        if take_last is not None and (script or not isinstance(program, Generation)):
            seed_step(recipe.options.seed, 1)
            observation = program.observe()
            take_last(
                OutputObservation(
                    values={f"{name} (step 1)": value for name, value in observation.values.items()}
                )
            )
        memory = program.memory if isinstance(program, Training | EverySize) else 0.0
        del program
        forget(recipe.device)
        return OutputObservation(values=values, changes=changes), tokens, memory

    def _facts(self) -> dict[str, Fact]:
        """Return the size of the model and of one eager step's work."""
        program = self.open_program(self.recipe, REFERENCE_ARM, None)
        if (first_call := self.begun.get(REFERENCE_ARM)) is not None:
            self.begun[REFERENCE_ARM] = held_to(first_call, words_of(program))
        model: Any = program.model
        options = self.recipe.options
        parameters, trained = parameter_counts(model)
        facts: dict[str, Fact] = {
            "model_class": type(model).__name__,
            "attention": str(model.config._attn_implementation),  # noqa: SLF001 - where transformers keeps it
            "parameters": parameters,
            "trainable_parameters": trained,
            "inputs": program.inputs,
            **step_facts(lambda: program.step(nothing), self.recipe.device, options.precision),
            "throughput_counts": "tokens" if options.mode is Mode.GENERATION else "rows",
        }
        if options.mode is Mode.TRAINING:
            facts["loss"] = (
                "the model's own" if task_of(model) else "a fixed projection of its main output"
            )
        return facts


def _of_first(observation: OutputObservation) -> dict[str, Tensor]:
    """Return the results of the first step."""
    return {name: value for name, value in observation.values.items() if name.endswith("(step 1)")}


def _unknown(arm: str, error: BaseException) -> Check:
    if is_out_of_memory(error):
        detail = (
            "the reference in fp64 does not fit into memory; use a smaller batch or a shorter"
            " sequence to compare the arms"
        )
    else:
        detail = (
            "the model does not generate in fp64, which the comparison needs:"
            f" {type(error).__name__}: {sentence(error)}"
        )
    return Check(name=AGREES, arm=arm, outcome=Outcome.UNKNOWN, detail=detail)


def _fact_part(arm: str) -> str:
    """Return an arm's name as part of a fact's."""
    return "".join(letter if letter.isalnum() else "_" for letter in arm.lower())[:30]
