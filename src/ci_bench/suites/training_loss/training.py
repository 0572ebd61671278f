"""The training step and a whole training run.

The step is zero-grad, forward, backward, optimizer step: all of it is what gets compiled, and all of it is what is timed.
Gradients are left in place after the step, so that their norm can be read outside without changing the compiled program; they
are allocated before the first step, so that the first step has the same guards as all others.
"""

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ci_bench.suites.training_loss.corpus import Batch
from ci_bench.suites.training_loss.network import State, build_optimizer, model_from
from ci_bench.suites.training_loss.options import Options, Precision

Step = Callable[[Batch], Tensor]

FIRST_LOSS_SCALE = 2.0**10
"""Below torch's default of 2**16: a training of a few hundred steps should not spend its first ones searching for the scale."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainee:
    """A model with its optimizer and its step, compiled or not."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Step
    autocast: Callable[[], AbstractContextManager[object]]
    compile: Callable[[Callable[..., Tensor]], Callable[..., Tensor]]

    def gradient_norm(self) -> float:
        """The global 2-norm of all gradients, accumulated in fp64."""
        norms = [
            torch.linalg.vector_norm(parameter.grad, dtype=torch.float64)
            for parameter in self.model.parameters()
            if parameter.grad is not None
        ]
        return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0


def build_trainee(options: Options, state: State, *, device: str, backend: str | None) -> Trainee:
    """A fresh trainee that starts from `state`; `backend` compiles its step, `None` leaves it eager."""
    model = model_from(options, state, device)
    optimizer = build_optimizer(options, model, device)
    autocast = _autocast(options.precision, device)
    scaler = torch.amp.GradScaler(device.partition(":")[0], init_scale=FIRST_LOSS_SCALE)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    step = _scaled_step if options.precision is Precision.AMP_FP16 else _plain_step
    compiler = make_compiler(backend)

    def run(batch: Batch) -> Tensor:
        return step(model, optimizer, autocast, scaler, batch)

    return Trainee(model=model, optimizer=optimizer, step=compiler(run), autocast=autocast, compile=compiler)


def make_compiler(backend: str | None) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """`torch.compile` with a backend, or the identity for `None`."""
    if backend is None:
        return lambda function: function
    resolved = resolve_backend(backend)
    return lambda function: torch.compile(function, backend=resolved)


def resolve_backend(backend: str) -> str | Callable[..., object]:
    """A registered backend's name as it is, or the function behind ``package.module:function``.

    Raises:
        LookupError: no such backend; the message lists the registered ones.
    """
    module, colon, attribute = backend.partition(":")
    if colon:
        try:
            function: Callable[..., object] = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            message = f"backend: {backend!r} cannot be imported: {error}"
            raise LookupError(message) from error
        return function
    known = torch.compiler.list_backends(exclude_tags=())
    if backend not in known:
        message = f"backend: {backend!r} is not registered with torch {torch.__version__} (registered: {', '.join(known)})"
        raise LookupError(message)
    return backend


def _plain_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    autocast: Callable[[], AbstractContextManager[object]],
    _: torch.amp.GradScaler,
    batch: Batch,
) -> Tensor:
    optimizer.zero_grad(set_to_none=True)
    with autocast():
        loss: Tensor = model(**batch).loss
    loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
    optimizer.step()
    return loss.detach()


def _scaled_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    autocast: Callable[[], AbstractContextManager[object]],
    scaler: torch.amp.GradScaler,
    batch: Batch,
) -> Tensor:
    optimizer.zero_grad(set_to_none=True)
    with autocast():
        loss: Tensor = model(**batch).loss
    scaler.scale(loss).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _autocast(precision: Precision, device: str) -> Callable[[], AbstractContextManager[object]]:
    kinds = {Precision.AMP_BF16: torch.bfloat16, Precision.AMP_FP16: torch.float16}
    kind = kinds.get(precision)
    if kind is None:
        return nullcontext
    device_type = device.partition(":")[0]
    return lambda: torch.autocast(device_type, dtype=kind)
