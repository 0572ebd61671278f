"""The worker's half of `torchbench`: one case as a workload. Imports torch; never imported by the parent.

Seed, precision and determinism: weights and data follow `Settings.seed`; TF32 is on only for precision `tf32`; torch's
deterministic mode is off unless asked for; with `align_rng`, inductor draws eager's random numbers, in what is timed as in what
is verified.
"""

import math
from dataclasses import replace
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ci_bench.records.case import Case, Check, Outcome
from ci_bench.suites.base import Compiler, Context, Evidence, Mark, Part, Program, Unsupported, no_mark
from ci_bench.suites.torchbench.backends import set_up_torch
from ci_bench.suites.torchbench.options import REFERENCE_ARM, Mode, Options, Precision, parse
from ci_bench.suites.torchbench.program import Ready, make_ready
from ci_bench.suites.torchbench.report import accuracy_evidence
from ci_bench.suites.torchbench.sources.find import find_loader
from ci_bench.suites.torchbench.sources.loaded import Loaded
from ci_bench.suites.torchbench.sources.transforms import transformed
from ci_bench.suites.torchbench.status import Word, in_words, worded
from ci_bench.suites.torchbench.tables import Settled, settle
from ci_bench.suites.torchbench.verify import seed_everything
from ci_bench.suites.user_code import resolve_backend

AMPERE = 8


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
        resolve_backend(self._options.backend)
        ready = self._build(backend=None)
        with worded(Word.EAGER_FAIL_TO_RUN, Word.EAGER_1ST_RUN_OOM):
            ready.step(ready.samples[0], no_mark)

    def open(self, arm: str) -> Program:
        """A fresh model of the arm; every arm starts from the same bytes, since loading follows the seed."""
        loaded = self._load()
        return ModelProgram(arm, self._options, loaded, self._ready(loaded, backend=self._backend_of(arm)))

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Compare the candidate among `arms` with eager, step by step."""
        (candidate,) = (arm for arm in arms if arm != REFERENCE_ARM)
        return accuracy_evidence(self._settled, self._context.device, candidate, self._build)

    def _build(self, *, backend: str | None, exact: bool = False) -> Ready:
        return self._ready(self._load(), backend=backend, exact=exact)

    def _ready(self, loaded: Loaded, *, backend: str | None, exact: bool = False) -> Ready:
        with worded(Word.FAIL_TO_RUN if backend else Word.EAGER_FAIL_TO_RUN, Word.OOM):
            return make_ready(self._options, loaded, device=self._context.device, backend=backend, exact=exact)

    def _load(self) -> Loaded:
        """A fresh model, always from the same seed."""
        with worded(Word.MODEL_FAIL_TO_LOAD, Word.OOM):
            seed_everything(self._options.settings.seed)
            loaded = find_loader(self._options.source)(self._options, self._context.device)
            if self._settled.train_mode is not None:
                loaded = replace(loaded, train_mode=self._settled.train_mode)
            return transformed(loaded, self._options)

    def _backend_of(self, arm: str) -> str | None:
        return None if arm == REFERENCE_ARM else self._options.backend


class ModelProgram:
    """Steps over the prepared batches, again and again, for the clock.

    With dynamic shapes, a step goes through all of them, so that arms do the same work whatever the number of calls.
    """

    def __init__(self, arm: str, options: Options, loaded: Loaded, ready: Ready) -> None:
        """`ready` is fresh."""
        self.compiler = Compiler.NONE if arm == REFERENCE_ARM else Compiler.DYNAMO
        self._whole = options.settings.dynamic
        self.parts: tuple[Part, ...] = () if self._whole else ready.parts
        self.items: int | None = _rows(loaded, whole=self._whole)
        self._arm = arm
        self._training = options.mode is Mode.TRAINING
        self._ready = ready
        self._before = _fingerprints(ready.module)
        self._samples = cycle(ready.samples)
        self._result: tuple[Tensor | None, Any] = (None, None)
        seed_everything(options.settings.seed)

    def step(self, mark: Mark) -> None:
        """One step on the next batch."""
        try:
            if self._whole:
                for sample in self._ready.samples:
                    self._result = self._ready.step(sample, no_mark)
            else:
                self._result = self._ready.step(next(self._samples), mark)
        except Exception as error:
            eager = self._arm == REFERENCE_ARM
            words = (Word.EAGER_FAIL_TO_RUN, Word.EAGER_1ST_RUN_OOM) if eager else (Word.FAIL_TO_RUN, Word.OOM)
            raise in_words(error, *words) from error

    def finish(self) -> tuple[Check, ...]:
        """What was computed last is made of numbers, and training has moved the weights."""
        loss, outputs = self._result
        if not self._training:
            return (self._numbers(outputs),)
        value = math.nan if loss is None else float(loss)
        finite = Outcome.PASS if math.isfinite(value) else Outcome.FAIL
        moved = sum(one != other for one, other in zip(_fingerprints(self._ready.module), self._before, strict=True))
        updated = Outcome.PASS if moved else Outcome.FAIL
        return (
            Check(name="finite_loss", arm=self._arm, outcome=finite, detail=f"last timed loss: {value:.6g}"),
            Check(name="updates_weights", arm=self._arm, outcome=updated, detail=f"{moved} tensors changed while timed"),
        )

    def _numbers(self, outputs: Any) -> Check:
        """Infinities may be meant, as masks; NaN never is."""
        leaves = [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]
        holes = sum(int(leaf.isnan().sum()) for leaf in leaves if leaf.is_floating_point())
        outcome = Outcome.PASS if leaves and not holes else Outcome.FAIL
        detail = f"{len(leaves)} tensors, {holes} elements not a number"
        return Check(name="finite_outputs", arm=self._arm, outcome=outcome, detail=detail)


def _rows(loaded: Loaded, *, whole: bool) -> int | None:
    """Rows of one step; with dynamic shapes those of all batches."""
    if not whole or loaded.batch_size is None:
        return loaded.batch_size
    return sum(loaded.rows) if loaded.rows else loaded.batch_size * len(loaded.samples)


def _fingerprints(module: nn.Module) -> list[tuple[float, float]]:
    """Sum and sum of squares of each parameter: cheap, and no second copy of the weights stays in memory."""
    return [
        (float(one.detach().double().sum()), float(one.detach().double().square().sum()))
        for one in module.parameters()
        if one.is_floating_point()
    ]


def _require(precision: Precision, device: str) -> None:
    """Skip what the device has no units for."""
    on_gpu = device.startswith("cuda")
    modern = on_gpu and torch.cuda.get_device_capability(device)[0] >= AMPERE
    if precision is Precision.TF32 and not modern:
        raise Unsupported("precision tf32 needs an NVIDIA GPU of compute capability 8.0 or newer")
    if on_gpu and not modern and precision in {Precision.BF16, Precision.AMP_BF16}:
        raise Unsupported(f"precision {precision} needs an NVIDIA GPU of compute capability 8.0 or newer")
