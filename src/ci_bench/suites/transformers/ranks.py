"""A training step that several processes share: each has its rows of every batch, and what they leave is one process's.

Imports torch. How the loss of parts makes that of the whole is found out while preparing, by one
process in fp64, without dropout.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ci_bench.records.results import Check
from ci_bench.suites.contract import Compiler, Mark, Ranks
from ci_bench.suites.shared.planning.layouts import Layout
from ci_bench.suites.shared.worker.batch_parts import (
    OWN_MASKS,
    BatchPart,
    FoundParts,
    Together,
    combined,
)
from ci_bench.suites.shared.worker.ddp_modes import optimizing_ddp
from ci_bench.suites.shared.worker.freshness import State, left_by_training
from ci_bench.suites.shared.worker.randomness import generator_states, moved
from ci_bench.suites.shared.worker.sharing import (
    begin_from,
    looked_for_alike_masks,
    replicas,
    shared,
    unsharded,
    whole_state,
)
from ci_bench.suites.transformers.inputs import Batch, task_of
from ci_bench.suites.transformers.network import ModelRecipe
from ci_bench.suites.transformers.options import REFERENCE_ARM, Candidate
from ci_bench.suites.transformers.parts import Parts, make_parts
from ci_bench.suites.transformers.steps import Training, loss_of, nothing
from ci_bench.suites.transformers.translate import compiled

LOSS = "loss"


def look_at_parts(recipe: ModelRecipe) -> FoundParts:
    """Find out how the losses of parts of a batch make that of the whole.

    Raises `Unsupported` if they do not.
    """
    options = recipe.options
    parts = make_parts(
        replace(recipe, options=replace(options, dropout=False), exact=True), REFERENCE_ARM
    )
    own, rows = task_of(parts.model) is not None, options.batch_size

    def left(batch: Batch) -> dict[str, Tensor]:
        with torch.no_grad():
            return {LOSS: loss_of(parts.model(**batch, **parts.fixed), own=own)}

    kinds = combined(
        left, parts.batches[0], rows, options.processes, epsilon=torch.finfo(torch.float64).eps
    )
    return FoundParts(rows=rows, kinds=kinds, is_random=options.dropout and _draws(recipe))


def _draws(recipe: ModelRecipe) -> bool:
    """Return true if a forward pass of a training draws random numbers.

    Not every model has dropout.
    """
    parts = make_parts(recipe, REFERENCE_ARM)
    before = generator_states()
    with torch.no_grad(), parts.autocast():
        parts.model(**parts.batches[0], **parts.fixed)
    return bool(moved(before, generator_states()))


class SharedTraining(Training):
    """One process's part of a training step, again and again.

    All but `step` and `resume` are collectives.
    """

    def __init__(self, parts: Parts, layout: Layout, ranks: Ranks, found: FoundParts) -> None:
        """`items` are the rows of all processes.

        A step has no parts: collectives overlap with them.
        """
        own_loss = task_of(parts.model) is not None
        wrapped: Callable[..., Any] = shared(layout, parts.model, ranks, parts.recipe.device)
        super().__init__(parts)
        if layout.backend is not None:
            wrapped = compiled(
                Candidate(backend=layout.backend), wrapped, key=layout.optimize_ddp or ""
            )
        self.parts = ()
        self.compiler = Compiler.NONE if layout.backend is None else Compiler.DYNAMO
        self.unrefereed = OWN_MASKS if found.is_random else ""
        self._own_loss = own_loss
        self._forward = partial(wrapped, **parts.fixed)
        self._layout, self._ranks, self._device = layout, ranks, parts.recipe.device
        self._part = BatchPart(rows=found.rows, rank=ranks.rank, count=ranks.count)
        self._together = Together(
            ranks=ranks, part=self._part, kinds=found.kinds, device=self._device
        )
        self._factor = self._part.factor(found.kinds[LOSS])

    def _train(self, batch: Batch, mark: Mark) -> Tensor:
        del mark
        self._optimizer.zero_grad(set_to_none=True)
        with optimizing_ddp(self._layout):
            with self._autocast():
                loss = loss_of(self._forward(**self._part.cut(batch)), own=self._own_loss)
            (loss * self._factor).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        self._optimizer.step()
        return loss.detach()

    def loss(self) -> Tensor:
        """That of all rows of the last batch."""
        return self._together.whole({LOSS: self._loss})[LOSS]

    def finish(self) -> tuple[Check, ...]:
        """Check as in one process, and that shared parts are equal and masks differ."""
        arm, ranks, device = self._parts.arm, self._ranks, self._device
        checks = (*super().finish(), replicas(self.model, arm, ranks, device))
        if not self.unrefereed:
            return checks
        seed, even = self._parts.recipe.options.seed, not self._part.rows % ranks.count
        return (
            *checks,
            *looked_for_alike_masks(
                lambda: self.step(nothing), arm, ranks, device, seed=seed, even=even
            ),
        )

    def state(self) -> State:
        """Weights, buffers and optimizer state, whole, on the host."""
        return whole_state(self.model, self._optimizer)

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0
    ) -> bool:
        """Take batches drawn from another seed from now on, the same in all processes, from the state that rank 0 has."""
        if state is not None:
            begin_from(state, self.model, self._optimizer, self._ranks, self._device)
        return super().refresh(seed, moved=moved, shaken=shaken)

    def outputs(self) -> State:
        """The results that one process would have after the last step."""
        left = left_by_training(self.loss(), self.model)
        return {name: unsharded(value) for name, value in left.items()}
