"""What is found out about a case beside its times: that the arms agree, and how large the model and its work are.

The timed programs themselves take the steps that are compared: same batch, same formats, same mode. The reference is the same
program in fp64, from the same bytes. One model lives at a time.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ci_bench.records.case import Better, Check, Fact, Lane, Launch, Metric, Outcome, Unit
from ci_bench.suites.base import Context, Evidence
from ci_bench.suites.transformers.agreement import (
    Mismatch,
    Observation,
    agreement,
    disagrees,
    errors_of,
    limits_of,
    same_formats,
    scales_of,
)
from ci_bench.suites.transformers.flops import count_flops, peak_flops_per_s
from ci_bench.suites.transformers.generation import Generation, Script
from ci_bench.suites.transformers.inputs import task_of
from ci_bench.suites.transformers.network import Recipe, forget, parameter_counts
from ci_bench.suites.transformers.options import AGREES, PROCESS_VRAM, REFERENCE_ARM, Mode
from ci_bench.suites.transformers.process_memory import Timeline, is_out_of_memory, process_vram, sites_at_peak, told_sites
from ci_bench.suites.transformers.steps import Observed, nothing

logger = logging.getLogger(__name__)

STEPS = 2
"""Steps that are compared: what is stale, or adds up, shows in the second."""
SETTLING_CALLS = 3

Open = Callable[[Recipe, str, Script | None], Observed]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verifier:
    """Verifies one case. `open_program` builds the program of an arm by a recipe."""

    recipe: Recipe
    context: Context
    open_program: Open

    def gather(self) -> Evidence:
        """Facts from the eager arm, and of the candidate the check `agrees`. A case of one arm has its look here, too."""
        candidate = self.recipe.options.candidate
        if candidate is None:
            seen = self.look(REFERENCE_ARM)
            return replace(seen, facts={**seen.facts, **self._facts()})
        return Evidence(checks=(self._compare(candidate.arm),), facts=self._facts())

    def look(self, arm: str) -> Evidence:
        """What one arm by itself holds on its GPU. On the CPU its resident size says it all, and that is the engine's to tell."""
        device, options = self.context.device, self.recipe.options
        if not options.memory:
            return Evidence()
        if not device.startswith("cuda"):
            return Evidence(facts={"memory_timeline": "not recorded: it needs a GPU"} if options.memory_timeline else {})
        program = self.open_program(self.recipe, arm, None)
        for _ in range(SETTLING_CALLS):
            program.step(nothing)
        used, how = process_vram(device)
        facts: dict[str, Fact] = {f"{PROCESS_VRAM}_found_{_plain(arm)}": how}
        if options.memory_timeline:
            facts |= self._timeline(arm, program)
        return Evidence(metrics=() if used is None else (_bytes(PROCESS_VRAM, arm, used),), facts=facts)

    def _timeline(self, arm: str, program: Observed) -> dict[str, Fact]:
        """Record one steady step. The events stay in the case's scratch folder, the lines at the peak in the results."""
        timeline = Timeline(self.context.device)
        with timeline.record():
            program.step(nothing)
        timeline.write(self.context.scratch / f"memory-timeline-{_plain(arm)}.jsonl")
        peak, sites = sites_at_peak(timeline.events())
        return {f"step_peak_bytes_{_plain(arm)}": peak, f"step_peak_lines_{_plain(arm)}": told_sites(sites)[:1000]}

    def _compare(self, arm: str) -> Check:
        """The candidate against the reference in fp64; the eager arm says what rounding does.

        Without dropout even where it is timed with it: no compiler draws the random numbers that eager draws.
        """
        recipe = replace(self.recipe, options=replace(self.recipe.options, dropout=False))
        try:
            exact, script = self._observe(replace(recipe, exact=True), REFERENCE_ARM, None)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return _unknown(arm, error)
        eager, _ = self._observe(recipe, REFERENCE_ARM, script)
        scales = scales_of(exact)
        try:
            noise = errors_of(eager, exact, scales)
        except Mismatch as mismatch:
            return disagrees(arm, f"the eager arm itself cannot be compared with fp64: {mismatch}")
        seen, _ = self._observe(recipe, arm, script)
        try:
            same_formats(seen, {name: value.dtype for name, value in eager.values.items()})
            errors = errors_of(seen, exact, scales)
        except Mismatch as mismatch:
            return disagrees(arm, str(mismatch))
        return agreement(arm, errors, noise, limits_of(noise, scales, self.recipe.options.precision.epsilon))

    def _observe(self, recipe: Recipe, arm: str, script: Script | None) -> tuple[Observation, Script | None]:
        """All that came of the first steps. For a generation the tokens, too: the other arms take the same."""
        program = self.open_program(recipe, arm, script)
        values: dict[str, Tensor] = {}
        expected: dict[str, Tensor] = {}
        for step in range(1, 1 + STEPS):
            one = program.observe()
            values |= {_of_step(name, step): value for name, value in one.values.items()}
            expected |= {_of_step(name, step): value for name, value in one.expected.items()}
            self.context.progress(f"{arm} (fp64)" if recipe.exact else arm, step, STEPS)
        tokens = program.observed if isinstance(program, Generation) else None
        del program
        forget(recipe.device)
        return Observation(values=values, expected=expected), tokens

    def _facts(self) -> dict[str, Fact]:
        """The size of the model and of one eager step's work."""
        program = self.open_program(self.recipe, REFERENCE_ARM, None)
        model: Any = program.model
        options = self.recipe.options
        parameters, trained = parameter_counts(model)
        facts: dict[str, Fact] = {
            "model_class": type(model).__name__,
            "attention": str(model.config._attn_implementation),  # noqa: SLF001 - where transformers keeps it
            "parameters": parameters,
            "trainable_parameters": trained,
            "inputs": program.inputs,
            "model_flops_per_step": count_flops(lambda: program.step(nothing)),
            "throughput_counts": "tokens" if options.mode is Mode.GENERATION else "rows",
        }
        if options.mode is Mode.TRAINING:
            facts["loss"] = "the model's own" if task_of(model) else "a fixed projection of its main output"
        peak = peak_flops_per_s(self.recipe.device, options.precision)
        return facts if peak is None else {**facts, "peak_flops_per_s": peak}


def _of_step(name: str, step: int) -> str:
    """``gradient of step 2: lm_head.weight``."""
    kind, _, place = name.partition(": ")
    return f"{kind} of step {step}: {place}"


def _unknown(arm: str, error: BaseException) -> Check:
    logger.warning("the reference in fp64: %s", error)
    detail = (
        "the reference in fp64 does not fit into memory; take a smaller batch or a shorter sequence to have the arms compared"
    )
    return Check(name=AGREES, arm=arm, outcome=Outcome.UNKNOWN, detail=detail)


def _bytes(name: str, arm: str, value: int) -> Metric:
    taken = Launch(launch=0, values=(float(value),))
    return Metric(name=name, arm=arm, unit=Unit.BYTES, better=Better.LOWER, lane=Lane.COUNTERS, launches=(taken,))


def _plain(arm: str) -> str:
    """An arm's name as part of a fact's."""
    return "".join(letter if letter.isalnum() else "_" for letter in arm.lower())[:30]
