"""The timed steps of inference and training, and what verification reads from the very same steps.

Inference is a forward pass in eval mode without gradients. A training step is zero-grad, forward, backward, optimizer; the
gradients stay after it, so that they can be read without changing it. Inputs take turns.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ci_bench.records.case import Check, Outcome
from ci_bench.suites.base import Compiler, Mark, Part, Program
from ci_bench.suites.transformers.agreement import Observation, coarse_limit, relative_error
from ci_bench.suites.transformers.inputs import Batch, Inputs, described, task_of
from ci_bench.suites.transformers.network import Recipe
from ci_bench.suites.transformers.optimizers import Shadow, build_optimizer
from ci_bench.suites.transformers.options import STEP_PARTS, TIMED_AGREES, Candidate, Precision
from ci_bench.suites.transformers.translate import compiled, compiler_of, forward_of, tensors_of

AUTOCAST = {Precision.AMP_BF16: torch.bfloat16, Precision.AMP_FP16: torch.float16}
UPDATE_ROUNDINGS = 4.0
"""An update should be seen where the gradient times the learning rate is this many roundings of the weight."""
FIRST_LOSS_SCALE = 2.0**10
"""Below torch's default of 2**16: a few timed steps should not be spent on searching for the scale."""

Autocast = Callable[[], AbstractContextManager[object]]


class Observed(Program, Protocol):
    """A program that also tells verification what came of a step."""

    model: nn.Module
    inputs: str
    """The shapes of a batch."""

    def observe(self) -> Observation:
        """Take the next step, as timed, and return what came of it, on the CPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What every program is made of: a fresh model, its batches, the arguments of each call, its autocast."""

    recipe: Recipe
    arm: str
    candidate: Candidate | None
    model: nn.Module
    batches: tuple[Batch, ...]
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
    inputs = Inputs(options=recipe.options, model=model, dtype=recipe.dtype, device=recipe.device, exact=recipe.exact)
    return Parts(
        recipe=recipe,
        arm=arm,
        candidate=recipe.options.candidate_of(arm),
        model=model,
        batches=inputs.batches(),
        fixed=inputs.fixed(),
    )


class Inference:
    """A forward pass, again and again."""

    def __init__(self, parts: Parts) -> None:
        """`items` are rows."""
        self.items: int | None = parts.recipe.options.batch_size
        self.parts: tuple[Part, ...] = ()
        self.compiler = parts.compiler
        self.model = parts.model
        self.inputs = described(parts.batches[0])
        self._parts = parts
        self._batches = cycle(parts.batches)
        self._batch: Batch = {}
        self._forward = forward_of(parts.candidate, parts.model, parts.fixed)
        self._autocast = parts.autocast
        self._output: Any = None

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - one part is the whole
        """One forward pass. The output before it is let go first, so that no two of them are in the peak."""
        self._output = None
        self._batch = next(self._batches)
        with torch.no_grad(), self._autocast():
            self._output = self._forward(**self._batch)

    def observe(self) -> Observation:
        """The output tensors, by place."""
        self.step(lambda: None)
        return Observation(
            values={f"output: {name}": value.detach().cpu().clone() for name, value in tensors_of(self._output).items()}
        )

    def finish(self) -> tuple[Check, ...]:
        """The last timed output is finite, and is that of the last timed input: the model itself is asked once more."""
        arm, timed = self._parts.arm, list(tensors_of(self._output).values())
        finite = bool(timed) and all(bool(torch.isfinite(one).all()) for one in timed)
        checks = (check("finite_output", arm, passed=finite, detail=f"{len(timed)} tensors of the last timed step"),)
        if self._parts.candidate is None:
            return checks
        with torch.no_grad(), self._autocast():
            own = list(tensors_of(self.model(**self._batch, **self._parts.fixed)).values())
        limit = coarse_limit(self._parts.recipe.options.precision.epsilon)
        worst = max((relative_error(one, two) for one, two in zip(timed, own, strict=False)), default=math.inf)
        same = len(timed) == len(own) and worst <= limit
        told = f"the last timed output is off the model's own by {worst:.2g} of its norm (limit {limit:.2g})"
        return (*checks, check(TIMED_AGREES, arm, passed=same, detail=told))


class Training:
    """A training step, again and again."""

    def __init__(self, parts: Parts) -> None:
        """`items` are rows. An arm compiled as a whole has no parts."""
        options = parts.recipe.options
        self.items: int | None = options.batch_size
        self.compiler = parts.compiler
        self.model = parts.model
        self.inputs = described(parts.batches[0])
        self._parts = parts
        self._batches = cycle(parts.batches)
        self._autocast = parts.autocast
        self._own_loss = task_of(parts.model) is not None
        self._optimizer = build_optimizer(options, parts.model, parts.recipe.device)
        scaled = options.precision is Precision.AMP_FP16 and not parts.recipe.exact
        self._scaler = torch.amp.GradScaler(parts.recipe.device.partition(":")[0], FIRST_LOSS_SCALE, enabled=scaled)
        candidate = parts.candidate
        whole = candidate is not None and candidate.whole
        self.parts: tuple[Part, ...] = () if whole else tuple(Part(metric=name) for name in STEP_PARTS)
        self._forward = forward_of(None if whole else candidate, parts.model, parts.fixed)
        self._whole = compiled(candidate, self._train) if candidate is not None and whole else None
        self._loss = torch.tensor(math.nan)
        self._start = fingerprints(parts.model)
        self._shadow: Shadow | None = None

    def step(self, mark: Mark) -> None:
        """One training step on the next batch."""
        batch = next(self._batches)
        self._loss = self._train(batch, mark) if self._whole is None else self._whole(batch, nothing)

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

    def observe(self) -> Observation:
        """Loss, every gradient, and how far every weight moved, from the weights that training starts from.

        Every observed step starts from those: where they had moved, the rounding of the step before would be in all that follows.
        What the optimizer should have done is told by the same optimizer in fp64 from the arm's own gradients: Adam makes a whole
        update of the rounding of a tiny gradient, and that is not the optimizer's fault.
        """
        if self._shadow is None:
            self._shadow = Shadow(self._parts.recipe.options, self.model)
        self._shadow.restore(self.model)
        self.step(nothing)
        values, gradients = {"loss: of the step": self._loss.cpu().reshape(1)}, {}
        for name, value in self.model.named_parameters():
            if value.grad is not None:
                gradients[name] = value.grad.detach().cpu().clone()
                values[f"gradient: {name}"] = gradients[name]
        expected = {f"weight change: {name}": value for name, value in self._shadow.changes(gradients).items()}
        moved = self._shadow.moved(self.model)
        return Observation(
            values={**values, **{f"weight change: {name}": value for name, value in moved.items()}}, expected=expected
        )

    def finish(self) -> tuple[Check, ...]:
        """The last loss is a number, gradients exist and are finite, and the weights that have one have moved."""
        arm, loss = self._parts.arm, float(self._loss)
        gradients = {name: one.grad for name, one in self.model.named_parameters() if one.grad is not None}
        sound = bool(gradients) and all(bool(torch.isfinite(one).all()) for one in gradients.values())
        moved, still = self._moved(gradients)
        updated = bool(moved) and not still
        lazy = f"; {still[0]} has a gradient and did not move" if still else ""
        counted = f"{len(gradients)} of {len(self._start)} tensors have a gradient"
        return (
            check("finite_loss", arm, passed=math.isfinite(loss), detail=f"last timed loss: {loss:.6g}"),
            check("gradients", arm, passed=sound, detail=counted + ("" if sound else ", and not all of it is finite")),
            check("updates_weights", arm, passed=updated, detail=f"{len(moved)} tensors moved while timed{lazy}"),
        )

    def _moved(self, gradients: dict[str, Tensor]) -> tuple[list[str], list[str]]:
        """The names of those that have moved, and of those that have not but should."""
        now, weights = fingerprints(self.model), dict(self.model.named_parameters())
        alike = [name for name in gradients if now[name] == self._start[name]]
        lr = self._parts.recipe.options.lr
        still = [name for name in alike if would_move(weights[name].detach(), gradients[name], lr)]
        return [name for name, value in now.items() if value != self._start[name]], still


def would_move(weight: Tensor, gradient: Tensor, lr: float) -> bool:
    """Whether an update is beyond rounding: of the weight, and of the squared gradient that Adam keeps."""
    size, format_ = float(gradient.abs().max()), torch.finfo(weight.dtype)
    rounding = UPDATE_ROUNDINGS * format_.eps * float(weight.abs().max())
    return size**2 > format_.smallest_normal and lr * size > rounding


def loss_of(output: Any, *, own: bool) -> Tensor:
    """The model's own loss; for a bare model, which has none, a fixed projection of its main output stands in.

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
    """Sum and norm of every parameter in fp64: what tells whether it moved, without a second copy in the peak."""
    with torch.no_grad():
        return {
            name: (float(value.sum(dtype=torch.float64)), float(torch.linalg.vector_norm(value, dtype=torch.float64)))
            for name, value in model.named_parameters()
        }


def check(name: str, arm: str, *, passed: bool, detail: str) -> Check:
    """A check that passes or fails."""
    return Check(name=name, arm=arm, outcome=Outcome.PASS if passed else Outcome.FAIL, detail=detail)


def nothing() -> None:
    """No mark."""
