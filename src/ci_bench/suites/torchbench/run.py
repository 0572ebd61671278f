"""The worker's half of `torchbench`: one case as a workload. Imports torch; never imported by the parent.

Seed, precision and determinism: weights and data follow `Settings.seed`; TF32 is on only for precision `tf32`; torch's
deterministic mode is off unless asked for; with `align_rng`, inductor draws eager's random numbers, in what is timed as in what
is verified.
"""

from dataclasses import replace

import torch

from ci_bench.records.results import Case
from ci_bench.suites.arms import CompiledArm, backend_of, without_cuda_graphs
from ci_bench.suites.base import Context, Evidence, Program, Unsupported, no_mark
from ci_bench.suites.randomness import seed_everything
from ci_bench.suites.torchbench.backends import set_up_torch
from ci_bench.suites.torchbench.evidence import accuracy_evidence
from ci_bench.suites.torchbench.options import REFERENCE_ARM, Precision, parse
from ci_bench.suites.torchbench.program import Ready, make_ready
from ci_bench.suites.torchbench.quantization import quantize
from ci_bench.suites.torchbench.sources.loaded import Loaded, find_loader
from ci_bench.suites.torchbench.sources.transforms import transformed
from ci_bench.suites.torchbench.status import Word, worded
from ci_bench.suites.torchbench.tables import Settled, settle
from ci_bench.suites.torchbench.timed import ModelProgram

AMPERE = 8
PACKAGES = "packages"
"""The folder of compiled models in the case's scratch folder."""


def open_workload(case: Case, context: Context) -> "ModelWorkload":
    """The workload of one case.

    Raises:
        Unsupported: a table skips the model here, or the device lacks the precision.
    """
    settled = settle(parse(case.params), context.device)
    if settled.skip is not None:
        raise Unsupported(settled.skip)
    _require(settled.options.precision, context.device)
    set_up_torch(settled.options)
    return ModelWorkload(settled, context)


class ModelWorkload:
    """Steps of one model, eager and compiled."""

    def __init__(self, settled: Settled, context: Context) -> None:
        """Nothing is loaded yet."""
        self._settled = settled
        self._options = settled.options
        self._context = context

    def prepare(self) -> None:
        """Find out early whether backend and model exist, and whether eager runs."""
        for candidate in self._options.candidates.values():
            backend_of(candidate)
        ready = self._build(candidate=None)
        with worded(Word.EAGER_FAIL_TO_RUN, Word.EAGER_1ST_RUN_OOM):
            ready.step(ready.samples[0], no_mark)

    def open(self, arm: str) -> Program:
        """A fresh model of the arm; every arm starts from the same bytes, since loading follows the seed."""
        loaded = self._load(quantized=arm != REFERENCE_ARM or not self._options.settings.compares_quantization)
        ready = self._ready(loaded, candidate=self._options.candidates.get(arm))
        return ModelProgram(arm, self._options, loaded, ready, unrefereed=_excused(self._settled))

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Compare the candidates among `arms` with eager, step by step."""
        candidates = tuple(arm for arm in arms if arm != REFERENCE_ARM)
        evidence = accuracy_evidence(self._settled, candidates, self._build, self._context)
        modes = {arm: candidate.mode for arm, candidate in self._options.candidates.items()}
        return replace(evidence, facts={**evidence.facts, **without_cuda_graphs(modes, self._context.device)})

    def _build(self, *, candidate: CompiledArm | None, exact: bool = False, quantized: bool = True) -> Ready:
        return self._ready(self._load(quantized=quantized), candidate=candidate, exact=exact)

    def _ready(self, loaded: Loaded, *, candidate: CompiledArm | None, exact: bool = False) -> Ready:
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
        """A fresh model, always from the same seed; quantised where the case asks for that, and the arm is to be."""
        with worded(Word.MODEL_FAIL_TO_LOAD, Word.OOM):
            seed_everything(self._options.settings.seed)
            loaded = find_loader(self._options.source)(self._options, self._context.device)
            if self._settled.train_mode is not None:
                loaded = replace(loaded, train_mode=self._settled.train_mode)
            if quantized and self._options.settings.quantization is not None:
                quantize(loaded.module, self._options)
            return transformed(loaded, self._options)


def _excused(settled: Settled) -> str:
    """What stands against holding the timed results of a model against eager's."""
    if settled.options.settings.compares_quantization:
        return "it is quantised, and its reference is not"
    if settled.skip_accuracy is not None:
        return f"its table skips accuracy: {settled.skip_accuracy}"
    if settled.expected not in {None, Word.PASS}:
        return f"its table expects {settled.expected}"
    return "its table calls it non-deterministic" if settled.non_deterministic else ""


def _require(precision: Precision, device: str) -> None:
    """Skip what the device has no units for."""
    on_gpu = device.startswith("cuda")
    modern = on_gpu and torch.cuda.get_device_capability(device)[0] >= AMPERE
    if precision is Precision.TF32 and not modern:
        raise Unsupported("precision tf32 needs an NVIDIA GPU of compute capability 8.0 or newer")
    if on_gpu and not modern and precision in {Precision.BF16, Precision.AMP_BF16}:
        raise Unsupported(f"precision {precision} needs an NVIDIA GPU of compute capability 8.0 or newer")
