"""The worker's half of `torchbench`: one case as a workload.

Imports torch; never imported by the parent.

Seed, precision and determinism: weights and data follow `Settings.seed`; TF32 is on only for
precision `tf32`; torch's deterministic mode is off unless asked for; with `align_rng`, inductor
draws eager's random numbers, in what is timed as in what is verified.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ci_bench.errors import BadConfig
from ci_bench.records.results import Case
from ci_bench.suites.contract import Context, Evidence, Program, Unsupported, no_mark
from ci_bench.suites.shared.planning.arms import CompiledArm, without_cuda_graphs
from ci_bench.suites.shared.planning.layouts import Layout
from ci_bench.suites.shared.worker.batch_parts import OWN_MASKS, FoundParts, read_found
from ci_bench.suites.shared.worker.compiling import backend_of
from ci_bench.suites.shared.worker.randomness import seed_everything
from ci_bench.suites.shared.worker.torch_errors import LAZY
from ci_bench.suites.torchbench.backends import set_up_torch
from ci_bench.suites.torchbench.evidence import accuracy_evidence, shared_evidence
from ci_bench.suites.torchbench.options import (
    REFERENCE_ARM,
    TorchbenchOptions,
    TorchbenchPrecision,
    parse,
)
from ci_bench.suites.torchbench.program import Ready, make_ready
from ci_bench.suites.torchbench.quantization import quantize
from ci_bench.suites.torchbench.ranks import (
    Conducted,
    RankSteps,
    Shared,
    SharedProgram,
    look_at_parts,
    make_shared,
)
from ci_bench.suites.torchbench.sources.loaded import Loaded, find_loader
from ci_bench.suites.torchbench.sources.transforms import leaves, transformed
from ci_bench.suites.torchbench.status import ModelFailed, Word, worded
from ci_bench.suites.torchbench.tables import Settled, settle
from ci_bench.suites.torchbench.timed import ModelProgram

AMPERE = 8
PACKAGES = "packages"
"""The folder of compiled models in the case's scratch folder."""


def open_workload(case: Case, context: Context) -> "ModelWorkload":
    """Return the workload of one case.

    Raises:
        Unsupported: a table skips the model here, or the device lacks the precision.
    """
    options = parse(case.params)
    if options.settings.largest is not None and context.largest_batch is not None:
        options = _of_size(options, context.largest_batch)
    settled = settle(options, context.device)
    if settled.skip is not None:
        raise Unsupported(settled.skip)
    _require(settled.options.precision, context.device)
    set_up_torch(settled.options)
    return ModelWorkload(case, settled, context)


def _of_size(options: TorchbenchOptions, rows: int) -> TorchbenchOptions:
    """Return the options with this number of rows."""
    return replace(options, settings=replace(options.settings, batch_size=rows))


class ModelWorkload:
    """Steps of one model, eager and compiled."""

    def __init__(self, case: Case, settled: Settled, context: Context) -> None:
        """Set the case; nothing is loaded yet."""
        self._case = case
        self._elements: dict[int, int] = {}
        self._settled = settled
        self._options = settled.options
        self._context = context
        self._conducted: Conducted | None = None

    def prepare(self) -> None:
        """Find out early whether backend and model exist, and whether eager runs."""
        shared = (
            CompiledArm(backend=layout.backend)
            for layout in self._options.layouts
            if layout.backend is not None
        )
        for candidate in (*self._options.candidates.values(), *shared):
            backend_of(candidate)
        if self._options.settings.largest is not None:
            return  # the search builds it, in a size that fits
        ready = self._build(candidate=None)
        with worded(Word.EAGER_FAIL_TO_RUN, Word.EAGER_1ST_RUN_OOM):
            ready.step(ready.samples[0], no_mark)
        if self._options.layouts:
            look_at_parts(self._options, self._load, self._context.device).write(
                self._context.scratch
            )

    def spans(self, arm: str) -> bool:
        """Return true if all processes share an arm, as in layouts."""
        return self._options.layout_of(arm) is not None

    def follow(self, order: Mapping[str, Any]) -> None:
        """Take part in verification, in a rank other than the first."""
        self._in_ranks().follow(order)

    def open(self, arm: str) -> Program:
        """Build a fresh model of the arm.

        Every arm starts from the same bytes, since loading follows the seed.
        """
        layout = self._options.layout_of(arm)
        if layout is not None:
            loaded, batch_parts = self.load(arm), read_found(self._context.scratch)
            unrefereed = _excused(self._settled) or (OWN_MASKS if batch_parts.is_random else "")
            compiled = layout.backend is not None
            shared = self._shared(layout, loaded, batch_parts)
            return SharedProgram(
                arm,
                self._options,
                loaded,
                shared,
                batch_parts=batch_parts,
                compiled=compiled,
                unrefereed=unrefereed,
            )
        return self.program(arm, self.load(arm))

    def load(self, arm: str) -> Loaded:
        """Load the model of an arm, and its samples."""
        return self._load(
            quantized=arm != REFERENCE_ARM or not self._options.settings.compares_quantization
        )

    def program(self, arm: str, loaded: Loaded) -> Program:
        """Make a program of the model loaded for the arm."""
        ready = self._ready(loaded, candidate=self._options.candidates.get(arm))
        eager = partial(self._build, candidate=None)
        excuse = _excused(self._settled)
        return ModelProgram(arm, self._options, loaded, ready, unrefereed=excuse, eager=eager)

    def open_sized(self, arm: str, rows: int) -> Program:
        """Build the arm in a batch with this number of rows.

        Raises:
            Unsupported: the model has a fixed batch.
            LookupError: its table sets fewer rows.
        """
        settled = settle(_of_size(parse(self._case.params), rows), self._context.device)
        size = settled.options.settings.batch_size
        if size is None:
            raise Unsupported(
                f"a table says that the batch of {self._options.model} is fixed; leave `batch_size:"
                " largest` out"
            )
        if size < rows:
            raise LookupError(f"a table says that {self._options.model} takes at most {size} rows")
        sized = ModelWorkload(self._case, settled, self._context)
        try:
            loaded = sized.load(arm)
        except ModelFailed as error:
            if isinstance(error.__cause__, BadConfig):
                raise Unsupported(str(error.__cause__)) from error
            raise
        self._require_other_inputs(rows, loaded)
        return sized.program(arm, loaded)

    def _require_other_inputs(self, rows: int, loaded: Loaded) -> None:
        """Raise `Unsupported` if another number of rows gives the same inputs.

        The search would then continue to ever larger ones.
        """
        elements = sum(leaf.numel() for sample in loaded.samples for leaf in leaves(sample))
        for other, theirs in self._elements.items():
            if other != rows and theirs == elements:
                same = f"its inputs are the same for {other} and for {rows} rows"
                raise Unsupported(
                    f"{self._options.model}: {same}; have its factory follow a parameter"
                    " `batch_size`"
                )
        self._elements[rows] = elements

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Compare the candidates among `arms` with eager, step by step."""
        candidates = tuple(arm for arm in arms if arm != REFERENCE_ARM)
        if self._options.layouts:
            return shared_evidence(
                self._settled, candidates, self._build, self._context, self._in_ranks().steps
            )
        evidence = accuracy_evidence(self._settled, candidates, self._build, self._context)
        modes = {arm: candidate.mode for arm, candidate in self._options.candidates.items()}
        return replace(
            evidence, facts={**evidence.facts, **without_cuda_graphs(modes, self._context.device)}
        )

    def _in_ranks(self) -> Conducted:
        """Verify layouts in this process."""
        if self._conducted is None:
            assert self._context.ranks is not None, "layouts are verified in several processes"  # noqa: S101 - our own bug if not
            self._conducted = Conducted(self._steps_of, self._context.ranks)
        return self._conducted

    def _steps_of(self, arm: str) -> RankSteps:
        layout = self._options.layout_of(arm)
        assert layout is not None, "only layouts are shared"  # noqa: S101 - our own bug if not
        batch_parts = read_found(self._context.scratch)
        return RankSteps(
            options=self._options, shared=self._shared(layout, self._load(), batch_parts)
        )

    def _shared(self, layout: Layout, loaded: Loaded, batch_parts: FoundParts) -> Shared:
        assert self._context.ranks is not None, "layouts are of several processes"  # noqa: S101 - our own bug if not
        return make_shared(
            self._options,
            loaded,
            layout,
            self._context.ranks,
            batch_parts=batch_parts,
            device=self._context.device,
        )

    def _build(
        self, *, candidate: CompiledArm | None, exact: bool = False, quantized: bool = True
    ) -> Ready:
        return self._ready(self._load(quantized=quantized), candidate=candidate, exact=exact)

    def _ready(
        self, loaded: Loaded, *, candidate: CompiledArm | None, exact: bool = False
    ) -> Ready:
        with worded(Word.FAIL_TO_RUN if candidate else Word.EAGER_FAIL_TO_RUN, Word.OOM):
            return make_ready(
                self._options,
                loaded,
                device=self._context.device,
                candidate=candidate,
                folder=self._context.scratch / PACKAGES,
                exact=exact,
                captured=self._context.cuda_graph,
            )

    def _load(self, *, quantized: bool = True) -> Loaded:
        """Load a fresh model, always from the same seed; quantised if the case requires it."""
        settings = self._options.settings
        assert settings.largest is None or settings.batch_size, (  # noqa: S101 - our own bug
            "the largest batch was not searched for"
        )
        with worded(Word.MODEL_FAIL_TO_LOAD, Word.OOM):
            seed_everything(self._options.settings.seed)
            loaded = find_loader(self._options.source)(self._options, self._context.device)
            if any(map(is_lazy, loaded.module.parameters())):
                raise ValueError(LAZY)
            if self._settled.train_mode is not None:
                loaded = replace(loaded, train_mode=self._settled.train_mode)
            if quantized and self._options.settings.quantization is not None:
                quantize(loaded.module, self._options)
            return transformed(loaded, self._options)


def _excused(settled: Settled) -> str:
    """Return why the timed results of a model are not compared with eager's; else empty."""
    if settled.options.settings.compares_quantization:
        return "it is quantised, and its reference is not"
    if settled.skip_accuracy is not None:
        return f"its table skips accuracy: {settled.skip_accuracy}"
    if settled.expected not in {None, Word.PASS}:
        return f"its table expects {settled.expected}"
    return "its table calls it non-deterministic" if settled.non_deterministic else ""


def _require(precision: TorchbenchPrecision, device: str) -> None:
    """Skip precisions for which the device has no units."""
    on_gpu = device.startswith("cuda")
    modern = on_gpu and torch.cuda.get_device_capability(device)[0] >= AMPERE
    if precision is TorchbenchPrecision.TF32 and not modern:
        raise Unsupported("precision tf32 needs an NVIDIA GPU of compute capability 8.0 or newer")
    if (
        on_gpu
        and not modern
        and precision in {TorchbenchPrecision.BF16, TorchbenchPrecision.AMP_BF16}
    ):
        raise Unsupported(
            f"precision {precision} needs an NVIDIA GPU of compute capability 8.0 or newer"
        )
