"""The timed steps of inference and training, which verification reads, too.

Inference is a forward pass in eval mode without gradients. A training step is zero-grad, forward,
backward, optimizer. The gradients stay after it: they can be read without changing the step. Inputs
take turns.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ci_bench.records.metrics import STEP_PARTS, ZERO_GRAD
from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Mark, Part, Program, no_mark
from ci_bench.suites.shared.worker.freshness import State, left_by_training, read_state, write_state
from ci_bench.suites.shared.worker.numerics import agree_coarsely
from ci_bench.suites.shared.worker.optimizers import longest_memory, names_of
from ci_bench.suites.shared.worker.sharing import local_part, unsharded
from ci_bench.suites.transformers.agreement import OutputChange, OutputObservation
from ci_bench.suites.transformers.inputs import Batch, described, task_of
from ci_bench.suites.transformers.optimizers import Shadow, build_optimizer
from ci_bench.suites.transformers.options import TIMED_AGREES, TransformersPrecision
from ci_bench.suites.transformers.parts import Fed, Parts
from ci_bench.suites.transformers.translate import tensors_of

PARTS = tuple(Part(metric=part.name, on_host=part is ZERO_GRAD) for part in STEP_PARTS)
"""Gradients are set to None, which launches no kernel."""
UPDATE_ROUNDINGS = 4.0
"""An update should be seen where the gradient times the learning rate is this many roundings of the
weight.
"""
FIRST_LOSS_SCALE = 2.0**10
"""Below torch's default of 2**16: a few timed steps should not be spent on searching for the scale."""


class Observed(Program, Protocol):
    """A program that also gives verification the results of a step."""

    model: nn.Module
    inputs: str
    """The shapes of a batch."""

    def operands(self) -> list[Tensor]:
        """The tensors of the batches that steps take."""

    def weights(self) -> State:
        """The parameters, themselves."""

    def observe(self, *, lightly: bool = False) -> OutputObservation:
        """Take the next step, as timed, and return its results, on the CPU.

        With `lightly`, only the norm of large tensors.
        """


class Inference(Fed):
    """A forward pass, again and again."""

    learns = False
    unrefereed = ""
    memory = 0.0

    def __init__(self, parts: Parts) -> None:
        """`items` are rows."""
        super().__init__(parts)
        self.items: int | None = parts.recipe.options.batch_size
        self.parts: tuple[Part, ...] = ()
        self._forward = parts.forward()
        self._output: Any = None

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - one part is the whole
        """Run one forward pass.

        The previous output is released first: the peak holds only one of them.
        """
        self._output = None
        self._batch = next(self._feed.following)
        with self._parts.marking(self._batch), torch.no_grad(), self._autocast():
            self._output = self._forward(**self._batch)

    def observe(self, *, lightly: bool = False) -> OutputObservation:  # noqa: ARG002 - outputs are small
        """The output tensors, by place."""
        self.step(lambda: None)
        return OutputObservation(
            values={
                f"output: {name}": value.detach().cpu().clone()
                for name, value in tensors_of(self._output).items()
            }
        )

    def finish(self) -> tuple[Check, ...]:
        """The last timed output is finite, and is that of the last timed input: the model itself is asked once more."""
        arm, timed = self._parts.arm, list(tensors_of(self._output).values())
        finite = bool(timed) and all(bool(torch.isfinite(one).all()) for one in timed)
        checks = (
            check(
                "finite_output",
                arm,
                passed=finite,
                detail=f"{len(timed)} tensors of the last timed step",
            ),
        )
        if self._parts.candidate is None:
            return checks
        with torch.no_grad(), self._autocast():
            own = tensors_of(self.model(**self._batch, **self._parts.fixed))
        named = {f"output: {place}": value for place, value in tensors_of(self._output).items()}
        looked = agree_coarsely(
            named,
            {f"output: {place}": value for place, value in own.items()},
            epsilon=self._parts.recipe.options.precision.epsilon,
        )
        told = f"the last timed output against the model's own: {looked.detail}"
        return (
            *checks,
            check(TIMED_AGREES, arm, passed=looked.outcome is Outcome.PASS, detail=told),
        )

    def state(self) -> State:
        """The weights and buffers, on the host."""
        return read_state(self.model)

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0
    ) -> bool:
        """Take inputs drawn from another seed from now on."""
        if state is not None:
            write_state(state, self.model)
        return self._feed.refresh(seed, None if moved else self._batch, shaken)

    def told(self) -> State:
        """Results of one of several passes in a step."""
        return tensors_of(self._output)

    def outputs(self) -> State:
        """The output tensors of the last pass, by place."""
        return {f"outputs.{name}": value for name, value in tensors_of(self._output).items()}

    def results(self) -> State:
        """The same."""
        return self.outputs()


class Training(Fed):
    """A training step, again and again."""

    learns = True
    unrefereed = ""

    def __init__(self, parts: Parts) -> None:
        """`items` are rows. An arm compiled as a whole has no parts."""
        super().__init__(parts)
        options = parts.recipe.options
        self.items: int | None = options.batch_size
        self._own_loss = task_of(parts.model) is not None
        scaled = options.precision is TransformersPrecision.AMP_FP16 and not parts.recipe.exact
        self._scaler = torch.amp.GradScaler(
            parts.recipe.device.partition(":")[0], FIRST_LOSS_SCALE, enabled=scaled
        )
        candidate = parts.candidate
        whole = candidate is not None and candidate.whole
        capturable = whole or parts.recipe.captured
        self._optimizer = build_optimizer(
            options, parts.model, parts.recipe.device, capturable=capturable
        )
        self.parts: tuple[Part, ...] = () if whole else PARTS
        self._forward = parts.forward()
        self._whole = parts.whole(self._train)
        self._loss = torch.tensor(math.nan)
        self._start = fingerprints(parts.model)
        self._trained = {*names_of(self._optimizer, parts.model)}
        self._shadow: Shadow | None = None

    def step(self, mark: Mark) -> None:
        """One training step on the next batch."""
        self._batch = batch = next(self._feed.following)
        with self._parts.marking(batch):
            self._loss = (
                self._train(batch, mark) if self._whole is None else self._whole(batch, nothing)
            )

    def _train(self, batch: Batch, mark: Mark) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        mark()
        with self._autocast():
            loss = loss_of(self._forward(**batch), own=self._own_loss)
        mark()
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        mark()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        mark()
        return loss.detach()

    def observe(self, *, lightly: bool = False) -> OutputObservation:
        """Loss, every gradient, and what became of every weight, from the weights that training starts from.

        Every observed step starts from those: where they had moved, the rounding of the step before
        would be in all that follows.
        """
        if self._shadow is None:
            self._shadow = Shadow(self._parts.recipe.options, self.model)
        self._shadow.restore(self.model)
        self.step(nothing)
        loss = {"loss: of the step": self.loss().cpu().reshape(1)}
        gradients = {
            name: unsharded(value.grad).detach().cpu().clone()
            for name, value in self.model.named_parameters()
            if value.grad is not None
        }
        if lightly:
            norms = {
                f"gradient norm: {name}": torch.linalg.vector_norm(value).reshape(1)
                for name, value in gradients.items()
            }
            return OutputObservation(values={**loss, **norms})
        values = {**loss, **{f"gradient: {name}": value for name, value in gradients.items()}}
        if self._parts.recipe.exact:
            return OutputObservation(values=values)
        return OutputObservation(values=values, changes=self._changes(gradients))

    def loss(self) -> Tensor:
        """That of the last step's whole batch."""
        return self._loss

    @property
    def memory(self) -> float:
        """The optimizer's longest memory."""
        return longest_memory(self._parts.recipe.options.optimizer, self._optimizer.param_groups)

    def known_updates(self) -> dict[str, Tensor]:
        """The optimizer's updates by known gradients, from the weights that the model has."""
        return Shadow(self._parts.recipe.options, self.model).known_updates()

    def _changes(self, gradients: dict[str, Tensor]) -> dict[str, OutputChange]:
        assert self._shadow is not None, "the weights were put back by it"  # noqa: S101 - our own bug if not
        weights = dict(self.model.named_parameters())
        return {
            f"weight change: {name}": OutputChange(
                start=self._shadow.starts[name],
                after=unsharded(weights[name]).detach().cpu().clone(),
                ideal=ideal,
            )
            for name, ideal in self._shadow.changes(gradients).items()
        }

    def finish(self) -> tuple[Check, ...]:
        """The last loss is a number, gradients exist and are finite, and the weights that have one have moved."""
        arm, loss = self._parts.arm, float(self._loss)
        gradients = {
            name: local_part(one.grad)
            for name, one in self.model.named_parameters()
            if one.grad is not None
        }
        sound = bool(gradients) and all(
            bool(torch.isfinite(one).all()) for one in gradients.values()
        )
        moved, still = self._moved(gradients)
        updated = bool(moved) and not still
        lazy = f"; {still[0]} has a gradient and did not move" if still else ""
        counted = f"{len(gradients)} of {len(self._start)} tensors have a gradient"
        return (
            check(
                "finite_loss",
                arm,
                passed=math.isfinite(loss),
                detail=f"last timed loss: {loss:.6g}",
            ),
            check(
                "gradients",
                arm,
                passed=sound,
                detail=counted + ("" if sound else ", and not all of it is finite"),
            ),
            check(
                "updates_weights",
                arm,
                passed=updated,
                detail=f"{len(moved)} tensors moved while timed{lazy}",
            ),
        )

    def state(self) -> State:
        """Weights, buffers and optimizer state, on the host."""
        return read_state(self.model, self._optimizer)

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0
    ) -> bool:
        """Take batches drawn from another seed from now on, and the next step from `state`, at the first scale of the loss."""
        if state is not None:
            write_state(state, self.model, self._optimizer)
        if self._scaler.is_enabled():
            self._scaler.update(FIRST_LOSS_SCALE)
        return self._feed.refresh(seed, None if moved else self._batch, shaken)

    def told(self) -> State:
        """Results of one of several steps."""
        return {"loss": self._loss}

    def outputs(self) -> State:
        """Loss, gradients and weights after the last step."""
        return left_by_training(self._loss, self.model)

    def results(self) -> State:
        """The same."""
        return self.outputs()

    def _moved(self, gradients: dict[str, Tensor]) -> tuple[list[str], list[str]]:
        """The names of those that have moved, and of those that have not but should."""
        now, weights = fingerprints(self.model), dict(self.model.named_parameters())
        alike = [
            name for name in gradients if name in self._trained and now[name] == self._start[name]
        ]
        lr = self._parts.recipe.options.lr
        still = [
            name
            for name in alike
            if would_move(local_part(weights[name]).detach(), gradients[name], lr)
        ]
        return [name for name, value in now.items() if value != self._start[name]], still


class EverySize:
    """A step through the batches of every size: arms do the same work with any number of calls.

    Verification observes each size separately, as a step of the underlying program. In a refereed
    call, a step leaves the results of each size.
    """

    parts: tuple[Part, ...] = ()

    def __init__(self, program: "Inference | Training", batches: Sequence[Batch]) -> None:
        """`items` are the rows of all batches."""
        self._program = program
        self._count = len(batches)
        self._left: dict[str, Tensor] | None = None
        self.items: int | None = sum(len(next(iter(batch.values()))) for batch in batches)
        self.inputs = "; ".join(map(described, batches))
        self.compiler, self.model, self.epsilon = program.compiler, program.model, program.epsilon
        self.learns, self.unrefereed, self.memory = (
            program.learns,
            program.unrefereed,
            program.memory,
        )

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - parts of several sizes do not make parts of one step
        """One step of each size."""
        for place in range(self._count):
            self._program.step(no_mark)
            if self._left is not None:
                told = self._program.told().items()
                self._left |= {
                    f"outputs.{place}.{name}": value.detach().clone() for name, value in told
                }

    def observe(self, *, lightly: bool = False) -> OutputObservation:
        """Return the results of the next size."""
        return self._program.observe(lightly=lightly)

    def known_updates(self) -> dict[str, Tensor]:
        """In training, its optimizer's updates by known gradients."""
        return self._program.known_updates() if isinstance(self._program, Training) else {}

    def finish(self) -> tuple[Check, ...]:
        """Of the last size."""
        return self._program.finish()

    def remember(self) -> None:
        """Nothing: inputs are drawn, and where a step begins is given."""

    def state(self) -> State:
        """The tensors that the program computes from."""
        return self._program.state()

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0
    ) -> bool:
        """Take batches of the same sizes drawn from another seed from now on."""
        self._left = {}
        return self._program.refresh(seed, moved=moved, state=state, shaken=shaken)

    def operands(self) -> list[Tensor]:
        """The tensors of the batches of every size."""
        return self._program.operands()

    def alter(
        self, seed: int, *, shaken: int = 0, all_values: bool = False
    ) -> Callable[[], None] | None:
        """Prepare a write of a row of inputs of `seed`, or of all, into the batch of each size, where it lies."""
        return self._program.alter(seed, shaken=shaken, all_values=all_values)

    def weights(self) -> State:
        """The parameters."""
        return self._program.weights()

    def results(self) -> State:
        """Return nothing: a step of several sizes differs from a step of one."""
        return {}

    def outputs(self) -> State:
        """The results of each size; of a training also those of the last one."""
        return {**(self._left or {}), **(self._program.outputs() if self.learns else {})}

    def resume(self) -> None:
        """Back to the prepared batches."""
        self._left = None
        self._program.resume()


def would_move(weight: Tensor, gradient: Tensor, lr: float) -> bool:
    """Return true if an update is beyond rounding: of the weight, and of Adam's square."""
    if not gradient.numel():
        return False  # a process may have nothing of a small weight that several share
    size, format_ = float(gradient.abs().max()), torch.finfo(weight.dtype)
    rounding = UPDATE_ROUNDINGS * format_.eps * float(weight.abs().max())
    return size**2 > format_.smallest_normal and lr * size > rounding


def loss_of(output: Any, *, own: bool) -> Tensor:
    """The model's own loss; for a bare model, a fixed projection of its main output.

    Not its mean or its size: of a normalised output both are constant, and have no gradient.
    """
    if own:
        loss: Tensor = output["loss"] if isinstance(output, dict) else output[0]
        return loss
    value = next(value for value in tensors_of(output).values() if value.is_floating_point())
    wide = value if value.dtype is torch.float64 else value.float()
    direction = torch.arange(value.shape[-1], dtype=torch.float32, device=value.device).cos()
    return (wide * direction.to(wide.dtype)).sum(dim=-1).mean()


def fingerprints(model: nn.Module) -> dict[str, tuple[float, float]]:
    """Sum and norm of every parameter in fp64.

    They show if it moved, without a second copy in the peak.
    """
    with torch.no_grad():
        return {
            name: (
                float(value.sum(dtype=torch.float64)),
                float(torch.linalg.vector_norm(value, dtype=torch.float64)),
            )
            for name, value in (
                (name, local_part(value)) for name, value in model.named_parameters()
            )
        }


def check(name: str, arm: str, *, passed: bool, detail: str) -> Check:
    """A check that passes or fails."""
    return Check(
        name=name, arm=arm, outcome=Outcome.PASS if passed else Outcome.FAIL, detail=detail
    )


def nothing() -> None:
    """No mark."""
