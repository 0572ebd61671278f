"""Parts of every program: a fresh model, its batches, the arguments of each call, its autocast.

Imports torch. The batches that a program takes in turn are the prepared ones, or one that a referee
has drawn.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn

from ci_bench.suites.contract import Compiler
from ci_bench.suites.shared.planning.sizes import DynamicShapes
from ci_bench.suites.shared.worker.fp32_precision import set_fp32_precision
from ci_bench.suites.shared.worker.freshness import State, altered, copied, overwritten
from ci_bench.suites.shared.worker.marks import MarkShapes, marked, shape_marks
from ci_bench.suites.shared.worker.numerics import shaken
from ci_bench.suites.transformers.inputs import Batch, Inputs, described
from ci_bench.suites.transformers.network import ModelRecipe
from ci_bench.suites.transformers.options import Candidate, TransformersPrecision, Way
from ci_bench.suites.transformers.translate import Forward, compiled, compiler_of, forward_of


class Feed:
    """Batches of the next steps: `following` gives them, without end."""

    def __init__(self, inputs: Inputs, batches: tuple[Batch, ...]) -> None:
        """`batches` are the prepared ones, which `inputs` has drawn."""
        self._inputs, self._batches = inputs, batches
        self._overwritten: tuple[tuple[Batch, Batch], ...] = ()
        self.current = batches
        self.following = cycle(batches)

    def refresh(self, seed: int, target: Batch | None, noise: int) -> bool:
        """Give a batch of another seed from now on: in the memory of `target`, or in new memory.

        Of dynamic batches one of each size, in the memory of the prepared ones. `noise` other than
        0 seeds a rounding's worth of it on floating inputs.
        """
        self.resume()
        batches = self._drawn(seed, noise)
        if target:
            batches = self._written(
                self._batches if self._inputs.options.dynamic else (target,), batches
            )
        self.current, self.following = batches, cycle(batches)
        return True

    def alter(self, seed: int, noise: int, *, all_values: bool) -> Callable[[], None] | None:
        """Prepare a write of a row of another seed, or of all, into the batches of now, where they lie."""
        return altered(
            self.current,
            self._drawn(seed, noise),
            seed,
            rows=self._inputs.options.batch_size,
            all_values=all_values,
        )

    def operands(self) -> list[Tensor]:
        """The tensors of the batches of now."""
        return [value for batch in self.current for value in batch.values()]

    def _drawn(self, seed: int, noise: int) -> tuple[Batch, ...]:
        options = replace(self._inputs.options, seed=seed, prepared_inputs=1)
        batches = replace(self._inputs, options=options).batches()
        if noise:
            epsilon, generator = (
                self._inputs.options.precision.epsilon,
                torch.Generator().manual_seed(noise),
            )
            batches = tuple(shaken(batch, epsilon, generator) for batch in batches)
        return batches

    def _written(self, targets: Sequence[Batch], batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """The targets with the batches' values in their memory; the batches themselves where shapes differ."""
        self._overwritten = tuple((target, copied(target)) for target in targets)
        fits = all(
            overwritten(target, batch) for target, batch in zip(targets, batches, strict=True)
        )
        return tuple(targets) if fits else batches

    def resume(self) -> None:
        """Give the prepared batches again, as they were."""
        for target, before in self._overwritten:
            overwritten(target, before)
        self._overwritten = ()
        self.current, self.following = self._batches, cycle(self._batches)


AUTOCAST = {
    TransformersPrecision.AMP_BF16: torch.bfloat16,
    TransformersPrecision.AMP_FP16: torch.float16,
}

Autocast = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Parts of every program: a model, its batches, the arguments of each call, its autocast."""

    recipe: ModelRecipe
    arm: str
    candidate: Candidate | None
    model: nn.Module
    batches: tuple[Batch, ...]
    feed: Feed
    fixed: dict[str, bool] = field(default_factory=dict)
    mark_shapes: MarkShapes | None = None

    @property
    def symbols(self) -> bool | None:
        """The argument `dynamic` of `torch.compile` for arms that leave it open.

        It makes all sizes symbols, or is not set.
        """
        options = self.recipe.options
        return True if options.dynamic and options.dynamic_shapes is DynamicShapes.SYMBOLS else None

    def forward(self) -> Forward:
        """The forward pass of the arm; eager's, where the candidate takes a whole step."""
        candidate = None if self.candidate is not None and self.candidate.whole else self.candidate
        return forward_of(
            candidate, self.model, self.fixed, dynamic=self.symbols, batches=self.batches
        )

    def whole(self, step: Callable[..., Tensor]) -> Callable[..., Tensor] | None:
        """A whole step as the candidate compiles it; `None` if it does not."""
        if self.candidate is None or not self.candidate.whole:
            return None
        return compiled(self.candidate, step, dynamic=self.symbols)

    def marking(self, batch: Batch) -> AbstractContextManager[object]:
        """Return the context of a step over a batch.

        It marks the sizes that differ, if the case requires that.
        """
        return nullcontext() if self.mark_shapes is None else marked(batch, self.mark_shapes)

    @property
    def autocast(self) -> Autocast:
        """Autocast if the precision has it; the reference in fp64 has none."""
        kind = None if self.recipe.exact else AUTOCAST.get(self.recipe.options.precision)
        device = self.recipe.device.partition(":")[0]
        return nullcontext if kind is None else lambda: torch.autocast(device, dtype=kind)

    @property
    def compiler(self) -> Compiler:
        """The compiler that translates the arm."""
        return compiler_of(self.candidate)


def make_parts(recipe: ModelRecipe, arm: str) -> Parts:
    """Build an arm's model and inputs; the same bytes for every arm."""
    model = recipe.build()
    set_fp32_precision(tf32=recipe.options.precision is TransformersPrecision.TF32)
    inputs = Inputs(
        options=recipe.options,
        model=model,
        dtype=recipe.dtype,
        device=recipe.device,
        exact=recipe.exact,
    )
    batches = inputs.batches()
    candidate = recipe.options.candidate_of(arm)
    marks = recipe.options.dynamic and candidate is not None and candidate.way is Way.DYNAMO
    return Parts(
        recipe=recipe,
        arm=arm,
        candidate=candidate,
        model=model,
        batches=batches,
        feed=Feed(inputs, batches),
        fixed=inputs.fixed(),
        mark_shapes=shape_marks(recipe.options.dynamic_shapes, batches) if marks else None,
    )


class Fed:
    """A program whose steps take the batches of a feed in turn."""

    def __init__(self, parts: Parts) -> None:
        """Nothing is compiled or called yet."""
        self.model: Any = parts.model
        self.compiler = parts.compiler
        self.inputs = described(parts.batches[0])
        self.epsilon = parts.recipe.options.precision.epsilon
        self._parts = parts
        self._feed = parts.feed
        self._batch: Batch = {}
        self._autocast = parts.autocast

    def remember(self) -> None:
        """Nothing: inputs are drawn, and where a step begins is given."""

    def operands(self) -> list[Tensor]:
        """The tensors of the batches that steps take."""
        return self._feed.operands()

    def weights(self) -> State:
        """The parameters."""
        return dict(self.model.named_parameters())

    @property
    def batches(self) -> int:
        """The number of prepared batches that take turns."""
        return len(self._parts.batches)

    def alter(
        self, seed: int, *, shaken: int = 0, all_values: bool = False
    ) -> Callable[[], None] | None:
        """Prepare a write of a row of inputs of `seed`, or of all, into the batch, where it lies."""
        return self._feed.alter(seed, shaken, all_values=all_values)

    def resume(self) -> None:
        """Back to the prepared batches."""
        self._feed.resume()
