"""The worker's half of `transformers`: one case as a workload.

Imports torch; never imported by the parent.

Seed, precision and determinism: weights and inputs follow `options.seed`; TF32 is on only for
precision `tf32`; torch's deterministic mode is off, since it changes what is timed; dropout is off
unless the case asks for it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from ci_bench.records.results import Case
from ci_bench.suites.contract import Context, Evidence, Program, Unsupported
from ci_bench.suites.shared.worker.batch_parts import read_found
from ci_bench.suites.shared.worker.compiling import allow_compilations, fail_beyond_limit
from ci_bench.suites.shared.worker.fp32_precision import set_fp32_precision
from ci_bench.suites.transformers.generation import Generation, Script, require_generation
from ci_bench.suites.transformers.inputs import (
    Inputs,
    refuse_lacking,
    require_inputs,
    require_length,
)
from ci_bench.suites.transformers.network import ModelRecipe
from ci_bench.suites.transformers.optimizers import build_optimizer
from ci_bench.suites.transformers.options import (
    Attention,
    Candidate,
    Mode,
    TransformersOptions,
    TransformersPrecision,
    parse,
)
from ci_bench.suites.transformers.parts import make_parts
from ci_bench.suites.transformers.process_memory import limit_memory
from ci_bench.suites.transformers.ranks import SharedTraining, look_at_parts
from ci_bench.suites.transformers.steps import EverySize, Inference, Observed, Training
from ci_bench.suites.transformers.translate import check_candidate
from ci_bench.suites.transformers.verify import TransformersVerifier

AMPERE = 8


def open_workload(case: Case, context: Context) -> "TransformersWorkload":
    """Return the workload of one case.

    Raises `Unsupported` if the device lacks the precision.
    """
    options = parse(case.params)
    if options.largest is not None and context.largest_batch is not None:
        options = replace(options, batch_size=context.largest_batch)
    if options.dynamic:
        fail_beyond_limit()
    _require(options, context.device)
    set_fp32_precision(tf32=options.precision is TransformersPrecision.TF32)
    limit_memory(options.memory_limit_bytes, context.device)
    return TransformersWorkload(options, context)


class TransformersWorkload:
    """One model in one mode, in every arm."""

    def __init__(self, options: TransformersOptions, context: Context) -> None:
        """Store the options; nothing is built yet."""
        self._recipe = ModelRecipe(
            options=options, device=context.device, captured=context.cuda_graph
        )
        self._context = context
        self._opened = 0

    def prepare(self) -> None:
        """Fetch stored files, and check that model, inputs, arm and optimizer exist.

        The check needs no weights.

        Raises:
            UnusableModel: the model does not exist or cannot be built.
            BadOptimizer: the optimizer does not fit its options.
            LookupError: the backend does not exist.
            Unsupported: the model cannot do this.
        """
        options = self._recipe.options
        shared = (
            Candidate(backend=layout.backend)
            for layout in options.layouts
            if layout.backend is not None
        )
        for candidate in (*options.candidates, *shared):
            check_candidate(candidate, options.mode)
        model = self._recipe.build("meta")
        require_length(model.config, options)
        if options.mode is Mode.GENERATION:
            require_generation(model, options)
        inputs = Inputs(options=options, model=model, dtype=self._recipe.dtype, device="cpu")
        first, *_ = inputs.batches()
        if options.mode is not Mode.GENERATION:
            require_inputs(model, first)
        if options.mode is Mode.TRAINING:
            build_optimizer(options, model, self._context.device)
        if options.model.on_hub and options.model.pretrained:
            self._recipe.build("cpu")
        if options.layouts:
            look_at_parts(self._recipe).write(self._context.scratch)

    def spans(self, arm: str) -> bool:
        """Return true if all processes share an arm, as in layouts."""
        return self._recipe.options.layout_of(arm) is not None

    def follow(self, order: Mapping[str, Any]) -> None:
        """Take the steps that are verified, in a rank that is not the first."""
        self._verifier().observe_along(order["arm"])

    def open(self, arm: str) -> Program:
        """Return a fresh program of the arm."""
        sized = self._recipe.options.largest is None or self._context.largest_batch
        assert sized, "the largest batch was not searched for"  # noqa: S101 - our own bug if not
        self._opened += 1
        allow_compilations(self._opened)
        return self._open(self._recipe, arm, None)

    def open_sized(self, arm: str, rows: int) -> Program:
        """Return the arm in a batch with this number of rows."""
        options = replace(self._recipe.options, batch_size=rows)
        return open_program(replace(self._recipe, options=options), arm, None)

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Check that the arms agree, and gather facts.

        For a single arm, measure its memory on the GPU.
        """
        verifier = self._verifier()
        try:
            return (
                verifier.gather() if arms == self._recipe.options.arms else verifier.look(arms[0])
            )
        except (ValueError, TypeError, AttributeError) as error:
            self._refuse_lacking(error)
            raise

    def _refuse_lacking(self, error: Exception) -> None:
        """Raise `Unsupported` if the model lacks an input.

        Not every model runs on `meta` while the case is prepared.
        """
        model = self._recipe.build("meta")
        inputs = Inputs(
            options=self._recipe.options, model=model, dtype=self._recipe.dtype, device="cpu"
        )
        refuse_lacking(model, inputs.batches()[0], error)

    def _verifier(self) -> TransformersVerifier:
        return TransformersVerifier(
            recipe=self._recipe, context=self._context, open_program=self._open
        )

    def _open(self, recipe: ModelRecipe, arm: str, script: Script | None) -> Observed:
        layout, ranks = recipe.options.layout_of(arm), self._context.ranks
        if layout is None or ranks is None:
            return open_program(recipe, arm, script)
        return SharedTraining(
            make_parts(recipe, arm), layout, ranks, read_found(self._context.scratch)
        )


def open_program(recipe: ModelRecipe, arm: str, script: Script | None) -> Observed:
    """Return the program of an arm; a generation takes the tokens of `script`."""
    parts = make_parts(recipe, arm)
    if recipe.options.mode is Mode.GENERATION:
        return Generation(parts, script)
    program: Training | Inference = (
        Training(parts) if recipe.options.mode is Mode.TRAINING else Inference(parts)
    )
    return EverySize(program, parts.batches) if recipe.options.dynamic else program


def _require(options: TransformersOptions, device: str) -> None:
    """Skip precisions for which the device has no units."""
    on_gpu = device.startswith("cuda")
    modern = on_gpu and torch.cuda.get_device_capability(device)[0] >= AMPERE
    if options.precision is TransformersPrecision.TF32 and not modern:
        raise Unsupported("precision tf32 needs an NVIDIA GPU of compute capability 8.0 or newer")
    if (
        on_gpu
        and not modern
        and options.precision in {TransformersPrecision.BF16, TransformersPrecision.AMP_BF16}
    ):
        raise Unsupported(
            f"precision {options.precision} needs an NVIDIA GPU of compute capability 8.0 or newer"
        )
    if options.attention is Attention.FLASH and options.precision in {
        TransformersPrecision.FP32,
        TransformersPrecision.TF32,
    }:
        raise Unsupported(
            f"attention {options.attention} computes only in fp16 and bf16; precision"
            f" {options.precision} has neither"
        )
