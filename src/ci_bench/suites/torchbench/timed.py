"""One arm of a case for the clock: steps over its prepared batches, their results, refereeing.

Imports torch.
"""

import math
from collections.abc import Callable, Mapping
from itertools import cycle, islice
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Compiler, Mark, Part, Unsupported, no_mark
from ci_bench.suites.shared.worker.casts import real_parts
from ci_bench.suites.shared.worker.digests import plain_parts
from ci_bench.suites.shared.worker.freshness import (
    Fresh,
    State,
    altered,
    copied,
    differs,
    kept_aside,
    left_by_training,
    overwritten,
    read_state,
    write_state,
)
from ci_bench.suites.shared.worker.memory_errors import is_out_of_memory
from ci_bench.suites.shared.worker.optimizers import longest_memory
from ci_bench.suites.shared.worker.randomness import seed_step
from ci_bench.suites.shared.worker.sharing import local_part
from ci_bench.suites.torchbench import COMPILED_AUTOGRAD
from ci_bench.suites.torchbench.options import REFERENCE_ARM, BenchMode, TorchbenchOptions
from ci_bench.suites.torchbench.program import Ready, Result
from ci_bench.suites.torchbench.snapshot import digests_of, flatten, leaves_of
from ci_bench.suites.torchbench.sources.loaded import Loaded, Sample
from ci_bench.suites.torchbench.status import Word, in_words

MOST_REPEATED = 100
"""Eager steps taken to find out if a failed model also fails without the backend."""


class ModelProgram:
    """Steps over the prepared batches, again and again, for the clock.

    With dynamic shapes, a step goes through all of them, so arms do the same work with any number
    of calls. Refereed, it goes over fresh inputs made of the first batch (of all, where a step goes
    through all), and training steps from a given state.
    """

    def __init__(
        self,
        arm: str,
        options: TorchbenchOptions,
        loaded: Loaded,
        ready: Ready,
        *,
        unrefereed: str = "",
        eager: Callable[[], Ready] | None = None,
    ) -> None:
        """Take a fresh `ready`.

        A table may list results that differ by design; `unrefereed` explains why they are not
        compared with the reference. `eager` builds the model without the candidate, to find the
        cause of a failure.
        """
        self._eager = eager
        self._taken = 0
        self.unrefereed = unrefereed
        self.compiler = _compiler_of(arm, ready)
        self._whole = options.settings.dynamic
        self.parts: tuple[Part, ...] = () if self._whole else ready.parts
        self.items: int | None = _rows(loaded, all_batches=self._whole)
        self._arm = arm
        self._candidate = options.candidates.get(arm)
        self._training = options.mode is BenchMode.TRAINING
        self.epsilon = options.precision.epsilon
        self.memory = longest_memory(
            options.settings.optimizer, ready.optimizer.param_groups if ready.optimizer else ()
        )
        self._ready = ready
        self._before = _fingerprints(ready.module)
        self._each = ready.samples
        self._samples = cycle(ready.samples)
        self._last = ready.samples[0]
        self._rows = loaded.batch_size if loaded.batched else None
        self._pristine: tuple[Sample, ...] = ()
        self._overwritten: tuple[tuple[Sample, Sample], ...] = ()
        self._buffers: dict[str, tuple[Any, ...]] | None = None
        self._results: list[Result] | None = None
        self._result: Result = (None, None)
        seed_step(options.settings.seed)

    def step(self, mark: Mark) -> None:
        """Run one step on the next batch."""
        try:
            if self._whole:
                for sample in self._each:
                    self._taken += 1
                    self._result = self._ready.step(sample, no_mark)
                    if self._results is not None:
                        self._results.append(copied(self._result))
            else:
                self._last = next(self._samples)
                self._taken += 1
                self._result = self._ready.step(self._last, mark)
        except Unsupported:
            raise
        except Exception as error:
            raise in_words(error, *self._words(error)) from error

    def _words(self, error: Exception) -> tuple[Word, Word]:
        """Return the words for a failed step, and for one without memory."""
        if self._arm == REFERENCE_ARM:
            return Word.EAGER_FAIL_TO_RUN, Word.EAGER_1ST_RUN_OOM
        return Word.EAGER_1ST_RUN_FAIL if self._fails_eagerly(error) else Word.FAIL_TO_RUN, Word.OOM

    def _fails_eagerly(self, error: Exception) -> bool:
        """Return true if as many steps of a fresh eager model fail as well.

        They prove nothing without memory, or after an error that the GPU does not recover from.
        """
        lost = is_out_of_memory(error) or "cuda" in str(error).lower()
        if self._eager is None or lost:
            return False
        try:
            ready = self._eager()
            for sample in islice(cycle(ready.samples), min(self._taken, MOST_REPEATED)):
                ready.step(sample, no_mark)
        except Exception as eager_error:  # noqa: BLE001 - benched code may raise anything
            return not is_out_of_memory(eager_error)
        return False

    def finish(self) -> tuple[Check, ...]:
        """Check that the last results are finite, and that training has moved the weights."""
        loss, outputs = self._result
        captured = () if self._ready.form is None else self._ready.form.checks(self._arm)
        candidate = self._candidate
        captured = (
            (*captured, captured_backward(self._arm))
            if candidate and candidate.compiled_autograd
            else captured
        )
        if not self._training:
            return (*captured, self._numbers(outputs))
        value = math.nan if loss is None else float(loss)
        finite = Outcome.PASS if math.isfinite(value) else Outcome.FAIL
        moved = sum(
            after != before
            for after, before in zip(_fingerprints(self._ready.module), self._before, strict=True)
        )
        updated = Outcome.PASS if moved else Outcome.FAIL
        return (
            *captured,
            Check(
                name="finite_loss",
                arm=self._arm,
                outcome=finite,
                detail=f"last timed loss: {value:.6g}",
            ),
            Check(
                name="updates_weights",
                arm=self._arm,
                outcome=updated,
                detail=f"{moved} tensors changed while timed",
            ),
        )

    @property
    def learns(self) -> bool:
        """Return true if steps change what later ones compute from.

        They do in training, and if the first step changed a buffer.
        """
        return self._training or (
            self._buffers is not None and digests_of(self._ready.module) != self._buffers
        )

    def remember(self) -> None:
        """Keep the batches as they are now, and digests of the model's buffers.

        A model may write to its inputs.
        """
        self._buffers = digests_of(self._ready.module)
        every = self._ready.samples if self._whole else self._ready.samples[:1]
        self._pristine = tuple(_of_tensors(kept_aside(_tensors(sample))) for sample in every)

    def state(self) -> State:
        """Return weights, buffers and optimizer state, on the host."""
        return read_state(self._ready.module, self._ready.optimizer)

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0
    ) -> bool:
        """Step over fresh batches from now on, from `state` if one is given.

        They are in new memory (`moved`) or in that of the previous batch.
        """
        self.resume()
        if state is not None:
            write_state(state, self._ready.module, self._ready.optimizer)
        fresh = tuple(
            self._fresh(seed + index, sample, shaken) for index, sample in enumerate(self._pristine)
        )
        changed = any(
            differs(_tensors(fresh_sample), _tensors(pristine))
            for fresh_sample, pristine in zip(fresh, self._pristine, strict=True)
        )
        if not moved:
            fresh = self._written(self._each if self._whole else (self._last,), fresh)
        self._each, self._samples = fresh, cycle(fresh)
        self._results = [] if self._whole else None
        return changed

    def operands(self) -> list[Tensor]:
        """Return the tensors of the batches that steps go over, prepared or fresh."""
        return [
            leaf
            for leaf in pytree.tree_leaves([_tensors(sample) for sample in self._each])
            if isinstance(leaf, Tensor)
        ]

    @property
    def batches(self) -> int:
        """The number of prepared batches that take turns."""
        return 1 if self._whole else len(self._ready.samples)

    def alter(
        self, seed: int, *, shaken: int = 0, all_values: bool = False
    ) -> Callable[[], None] | None:
        """Prepare a write of a few other values of `seed`, or of all, into the fresh batches.

        The write is in place.
        """
        fresh = tuple(
            self._fresh(seed + index, sample, shaken) for index, sample in enumerate(self._pristine)
        )
        target, values = ([_tensors(sample) for sample in every] for every in (self._each, fresh))
        return altered(target, values, seed, rows=self._rows, all_values=all_values)

    def outputs(self) -> State:
        """Return all tensors of the last step's outputs, and in training its other results.

        If a step goes through all batches, it has the outputs of every batch.
        """
        results = [self._result] if self._results is None else self._results
        state: State = {}
        for index, (_, outputs) in enumerate(results):
            place = "outputs" if len(results) == 1 else f"outputs.{index}"
            state |= {
                name: leaf for name, leaf in flatten(outputs, place) if isinstance(leaf, Tensor)
            }
        return state | (
            left_by_training(self._result[0], self._ready.module) if self._training else {}
        )

    def weights(self) -> State:
        """Return the parameters."""
        return dict(self._ready.module.named_parameters())

    def results(self) -> State:
        """Return the results of the first step; empty if it went through all batches."""
        return {} if self._whole else self.outputs()

    def resume(self) -> None:
        """Return to the prepared batches, with their original values."""
        for sample, before in self._overwritten:
            overwritten(_tensors(sample), _tensors(before))
        self._overwritten = ()
        self._each, self._samples = self._ready.samples, cycle(self._ready.samples)
        self._results = None

    def _fresh(self, seed: int, sample: Sample, shaken: int) -> Sample:
        fresh = Fresh(seed, rows=self._rows, shaken=shaken, epsilon=self.epsilon)
        args, kwargs = fresh.inputs((sample.args, dict(sample.kwargs)))
        return Sample(args=args, kwargs=kwargs, target=fresh.targets(sample.target))

    def _written(
        self, targets: tuple[Sample, ...], fresh: tuple[Sample, ...]
    ) -> tuple[Sample, ...]:
        """Write fresh values into the targets' memory, and return the targets.

        If shapes differ, return the fresh samples themselves.
        """
        originals = tuple((target, _of_tensors(copied(_tensors(target)))) for target in targets)
        fits = all(
            overwritten(_tensors(target), _tensors(replacement))
            for target, replacement in zip(targets, fresh, strict=True)
        )
        self._overwritten = originals
        return targets if fits else fresh

    def _numbers(self, outputs: Any) -> Check:
        """Check for NaN.

        Infinities may be meant, as masks; NaN never is.
        """
        leaves = leaves_of(outputs)
        holes = sum(
            int(leaf.isnan().sum())
            for leaf in leaves
            if leaf.is_floating_point() or leaf.is_complex()
        )
        outcome = Outcome.PASS if leaves and not holes else Outcome.FAIL
        without = (
            f"the outputs ({type(outputs).__name__}) hold no tensor, so nothing is compared;"
            " return one"
        )
        detail = f"{len(leaves)} tensors, {holes} elements not a number" if leaves else without
        return Check(name="finite_outputs", arm=self._arm, outcome=outcome, detail=detail)


def captured_backward(arm: str) -> Check:
    """Check that dynamo captured a backward pass in this process, as compiled autograd does."""
    from torch._dynamo.utils import counters

    captures = int(counters["compiled_autograd"]["captures"])
    outcome = Outcome.PASS if captures else Outcome.FAIL
    return Check(
        name=COMPILED_AUTOGRAD,
        arm=arm,
        outcome=outcome,
        detail=f"{captures} backward passes captured",
    )


def _compiler_of(arm: str, ready: Ready) -> Compiler:
    """Return the arm's compiler for the engine.

    For an experiment without dynamo the engine counts nothing.
    """
    if arm == REFERENCE_ARM:
        return Compiler.NONE
    return Compiler.DYNAMO if ready.form is None else Compiler.OTHER


def _rows(loaded: Loaded, *, all_batches: bool) -> int | None:
    """Return the rows of one step; with dynamic shapes those of all batches."""
    if not all_batches or loaded.batch_size is None:
        return loaded.batch_size
    return sum(loaded.rows) if loaded.rows else loaded.batch_size * len(loaded.samples)


def _fingerprints(module: nn.Module) -> list[tuple[float, float]]:
    """Return sum and sum of squares of each parameter, or of this rank's shard.

    This is cheap, and no second copy stays in memory.
    """
    tensors = (
        part.detach()
        for name, value in module.named_parameters()
        for _, part in plain_parts(name, local_part(value))
    )
    real = [
        real_parts(tensor).double()
        for tensor in tensors
        if tensor.is_floating_point() or tensor.is_complex()
    ]
    return [(float(tensor.sum()), float(tensor.square().sum())) for tensor in real]


def _tensors(sample: Sample) -> Any:
    """Return the tensors of a sample that can be written over, as a tree."""
    return sample.args, dict(sample.kwargs), sample.target


def _of_tensors(tree: Any) -> Sample:
    args, kwargs, target = tree
    return Sample(args=args, kwargs=kwargs, target=target)
