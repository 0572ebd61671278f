"""What every program is made of: a fresh model, its batches, the arguments of each call, its autocast. Imports torch.

The batches that a program takes in turn are the prepared ones, or one that a referee has drawn.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import cycle

import torch
from torch import nn

from ci_bench.suites.base import Compiler
from ci_bench.suites.fp32_precision import set_fp32_precision
from ci_bench.suites.freshness import copied, overwritten
from ci_bench.suites.numerics import shaken
from ci_bench.suites.transformers.inputs import Batch, Inputs
from ci_bench.suites.transformers.network import Recipe
from ci_bench.suites.transformers.options import Candidate, Precision
from ci_bench.suites.transformers.translate import compiler_of


class Feed:
    """What the next steps take: `following` gives it, without end."""

    def __init__(self, inputs: Inputs, batches: tuple[Batch, ...]) -> None:
        """`batches` are the prepared ones, which `inputs` has drawn."""
        self._inputs, self._batches = inputs, batches
        self._overwritten: tuple[Batch, Batch] | None = None
        self.following = cycle(batches)

    def refresh(self, seed: int, target: Batch | None, noise: int) -> bool:
        """Give a batch of another seed from now on: in the memory of `target`, or in new memory.

        `noise` other than 0 seeds a rounding's worth of it on floating inputs.
        """
        self.resume()
        options = replace(self._inputs.options, seed=seed, prepared_inputs=1)
        (batch,) = replace(self._inputs, options=options).batches()
        if noise:
            epsilon = self._inputs.options.precision.epsilon
            batch = shaken(batch, epsilon, torch.Generator().manual_seed(noise))
        if target:
            before = copied(target)
            self._overwritten = (target, before)
            batch = target if overwritten(target, batch) else batch
        self.following = cycle((batch,))
        return True

    def resume(self) -> None:
        """Give the prepared batches again, as they were."""
        if self._overwritten is not None:
            overwritten(*self._overwritten)
        self._overwritten = None
        self.following = cycle(self._batches)


AUTOCAST = {Precision.AMP_BF16: torch.bfloat16, Precision.AMP_FP16: torch.float16}

Autocast = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What every program is made of: a fresh model, its batches, the arguments of each call, its autocast."""

    recipe: Recipe
    arm: str
    candidate: Candidate | None
    model: nn.Module
    batches: tuple[Batch, ...]
    feed: Feed
    fixed: dict[str, bool] = field(default_factory=dict)

    @property
    def autocast(self) -> Autocast:
        """Autocast where the precision says so; the reference in fp64 has none."""
        kind = None if self.recipe.exact else AUTOCAST.get(self.recipe.options.precision)
        device = self.recipe.device.partition(":")[0]
        return nullcontext if kind is None else lambda: torch.autocast(device, dtype=kind)

    @property
    def compiler(self) -> Compiler:
        """What translates the arm."""
        return compiler_of(self.candidate)


def make_parts(recipe: Recipe, arm: str) -> Parts:
    """Build an arm's model and inputs; the same bytes for every arm."""
    model = recipe.build()
    set_fp32_precision(tf32=recipe.options.precision is Precision.TF32)
    inputs = Inputs(options=recipe.options, model=model, dtype=recipe.dtype, device=recipe.device, exact=recipe.exact)
    batches = inputs.batches()
    return Parts(
        recipe=recipe,
        arm=arm,
        candidate=recipe.options.candidate_of(arm),
        model=model,
        batches=batches,
        feed=Feed(inputs, batches),
        fixed=inputs.fixed(),
    )
