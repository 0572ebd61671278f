"""A model made ready to step: cast, placed, compiled or not.

It has its own optimizer and its prepared batches. The step that is timed is the step that is
verified: it is built here, once for both. Zero-grad comes first and outside of the compiled code.
Gradients are allocated before the first step, so no guard sees them change from nothing to
something.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ci_bench.suites.contract import Mark, Part, Unsupported
from ci_bench.suites.shared.planning.arms import CompiledArm
from ci_bench.suites.shared.worker.casts import cast_module, in_type, real_parts, rounded_buffers
from ci_bench.suites.shared.worker.compiling import compile_arguments
from ci_bench.suites.shared.worker.experiments import CapturedProgram, captures, require_forward
from ci_bench.suites.shared.worker.fp32_precision import set_fp32_precision
from ci_bench.suites.shared.worker.marks import MarkShapes, marked, shape_marks
from ci_bench.suites.shared.worker.optimizers import SMALLEST_EPS, make_optimizer
from ci_bench.suites.torchbench.backends import make_compiler
from ci_bench.suites.torchbench.options import (
    TRAINING_PARTS,
    BenchMode,
    ModelScope,
    TorchbenchOptions,
    TorchbenchPrecision,
)
from ci_bench.suites.torchbench.snapshot import buffers_of, leaves_of, load_state, parameters_of
from ci_bench.suites.torchbench.sources.loaded import Loaded, Loss, Sample

Result = tuple[Tensor | None, Any]
"""Loss (detached) and outputs of one step."""

_WEIGHTS = {TorchbenchPrecision.FP16: torch.float16, TorchbenchPrecision.BF16: torch.bfloat16}
_AUTOCAST = {
    TorchbenchPrecision.AMP_BF16: torch.bfloat16,
    TorchbenchPrecision.AMP_FP16: torch.float16,
}


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A model that can step."""

    module: nn.Module
    """The model, on its device."""
    optimizer: torch.optim.Optimizer | None
    """The optimizer of the trained parameters; `None` in inference."""
    samples: tuple[Sample, ...]
    """The prepared batches."""
    step: Callable[[Sample, Mark], Result]
    """Runs one step on a sample and marks the end of each of the `parts`."""
    parts: tuple[Part, ...]
    """Separately timed parts of a step; empty if it has none."""
    form: CapturedProgram | None = None
    """The module as an experiment captured it; `None` for dynamo and for eager."""
    rounded: str = ""
    """The fp32 buffers that the precision rounded, and by how much; empty if none."""


def make_ready(
    options: TorchbenchOptions,
    loaded: Loaded,
    *,
    device: str,
    candidate: CompiledArm | None,
    folder: Path,
    exact: bool = False,
    captured: bool = False,
) -> Ready:
    """Build a stepping model.

    `candidate` sets its compilation; `exact` makes it the fp64 reference. The reference has no
    autocast. `captured` means that its steps have to fit into a CUDA graph as they are. `folder` is
    for files of compiled models, which all processes of the case find there.
    """
    training = options.mode is BenchMode.TRAINING
    placed = place(options, loaded, device=device, exact=exact)
    module, samples, loss, autocast = placed.module, placed.samples, placed.loss, placed.autocast
    form = _form(options, candidate, module, samples, folder)
    compiler = make_compiler(options, candidate) if form is None else lambda _: form
    mark_shapes = _marks(options, samples) if candidate is not None and form is None else None
    if not training:
        keeps_gradients = loaded.grad_in_inference
        step = _with_marks(
            _inference(module, autocast, compiler, grad=keeps_gradients), mark_shapes
        )
        return Ready(
            module=module,
            optimizer=None,
            samples=samples,
            step=step,
            parts=(),
            form=form,
            rounded=placed.rounded,
        )
    assert loss is not None, "a training without a loss takes a projection"  # noqa: S101 - our own bug if not
    trained = trained_of(options, module)
    compiled = candidate is not None and options.settings.scope is ModelScope.STEP
    optimizer = build_optimizer(options, trained, device, capturable=captured or compiled)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    trained_model = _Trained(module=module, optimizer=optimizer, loss=loss, autocast=autocast)
    if options.settings.scope is ModelScope.STEP:
        step, parts = _whole_step(trained_model, compiler)
    else:
        step, parts = _model_step(trained_model, compiler, _backward_of(candidate))
    step = _with_marks(step, mark_shapes)
    return Ready(
        module=module,
        optimizer=optimizer,
        samples=samples,
        step=step,
        parts=parts,
        form=form,
        rounded=placed.rounded,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A model with its samples and loss, cast and on its device."""

    module: nn.Module
    """The model."""
    samples: tuple[Sample, ...]
    """The prepared batches, with a target for the loss."""
    loss: Loss | None
    """The loss function; `None` in inference if the model has none."""
    autocast: Callable[[], AbstractContextManager[object]]
    """Makes the context of a forward pass."""
    rounded: str = ""
    """The fp32 buffers that the precision rounded, and by how much; empty if none."""


def place(
    options: TorchbenchOptions, loaded: Loaded, *, device: str, exact: bool = False
) -> Placed:
    """Put the loaded model on its device, in the case's precision, in the measured mode."""
    training = options.mode is BenchMode.TRAINING
    set_fp32_precision(tf32=options.precision is TorchbenchPrecision.TF32)
    cast = _Cast(
        device=device,
        rounded=_WEIGHTS.get(options.precision),
        exact=exact,
        images=options.settings.channels_last,
    )
    rounded = "" if cast.rounded is None else rounded_buffers(loaded.module, cast.rounded)
    module = cast.module(loaded.module).train(
        training if loaded.train_mode is None else loaded.train_mode
    )
    samples = tuple(map(cast.sample, loaded.samples))
    loss, samples = (
        (loaded.loss, samples)
        if loaded.loss or not training
        else _projected(module, samples, options.settings.seed)
    )
    autocast = nullcontext if exact else _autocast(options.precision, device)
    return Placed(module=module, samples=samples, loss=loss, autocast=autocast, rounded=rounded)


def trained_of(options: TorchbenchOptions, module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained.

    Raises `Unsupported` if the model has none.
    """
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        raise Unsupported(f"{options.model} has no parameters to train; use `mode: inference`")
    return trained


def _form(
    options: TorchbenchOptions,
    candidate: CompiledArm | None,
    module: nn.Module,
    samples: Sequence[Sample],
    folder: Path,
) -> CapturedProgram | None:
    """Return the object that captures the module, for experiments that capture one.

    Raises `Unsupported`.
    """
    if candidate is None or not captures(candidate):
        return None
    training = options.mode is BenchMode.TRAINING
    require_forward(
        candidate,
        training=training,
        whole_step=training and options.settings.scope is ModelScope.STEP,
    )
    calls = [(sample.args, sample.kwargs) for sample in samples]
    return CapturedProgram(candidate, module, calls=calls, folder=folder)


def build_optimizer(
    options: TorchbenchOptions,
    parameters: Sequence[Tensor],
    device: str,
    *,
    capturable: bool = False,
) -> torch.optim.Optimizer:
    """Build the case's optimizer.

    Raises:
        BadOptimizer: it does not fit its options.
    """
    settings = options.settings
    return make_optimizer(
        settings.optimizer,
        parameters,
        lr=settings.lr,
        options=settings.optimizer_options,
        device=device,
        capturable=capturable,
        defaults={"eps": SMALLEST_EPS} if options.precision is TorchbenchPrecision.FP16 else {},
    )


Step = Callable[[Sample, Mark], Result]


def _marks(options: TorchbenchOptions, samples: Sequence[Sample]) -> MarkShapes | None:
    settings = options.settings
    return (
        shape_marks(settings.dynamic_shapes, list(map(_tree, samples)))
        if settings.dynamic
        else None
    )


def _with_marks(step: Step, mark_shapes: MarkShapes | None) -> Step:
    """Return a step whose batches are marked first; the same step without marks."""
    if mark_shapes is None:
        return step

    def run(sample: Sample, mark: Mark) -> Result:
        with marked(_tree(sample), mark_shapes):
            return step(sample, mark)

    return run


def _tree(sample: Sample) -> Any:
    return sample.args, dict(sample.kwargs), sample.target


@dataclass(frozen=True, kw_only=True)
class _Trained:
    module: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Loss
    autocast: Callable[[], AbstractContextManager[object]]

    def forward(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Any
    ) -> tuple[Tensor, Any]:
        with self.autocast():
            outputs = self.module(*args, **kwargs)
            return self.loss(outputs, target), outputs

    def clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)


Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def _whole_step(
    trained: _Trained, compiler: Compile
) -> tuple[Callable[[Sample, Mark], Result], tuple[Part, ...]]:
    """Pass forward, loss, backward and optimizer through the backend together."""

    def train(args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Any) -> Result:
        loss, outputs = trained.forward(args, kwargs, target)
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        trained.optimizer.step()
        return loss.detach(), outputs

    compiled = compiler(train)

    def step(sample: Sample, _: Mark) -> Result:
        trained.clear()
        result: Result = compiled(sample.args, sample.kwargs, sample.target)
        return result

    return step, ()


def _backward_of(candidate: CompiledArm | None) -> Callable[[], AbstractContextManager[object]]:
    """Return the context of a backward pass.

    With compiled autograd, dynamo captures the pass as it runs.
    """
    if candidate is None or not candidate.compiled_autograd:
        return nullcontext
    from torch._dynamo import compiled_autograd

    compiler = torch.compile(**compile_arguments(candidate))
    return lambda: compiled_autograd._enable(compiler)  # noqa: SLF001 - torch has no other way in for only a backward pass


def _model_step(
    trained: _Trained, compiler: Compile, backward: Callable[[], AbstractContextManager[object]]
) -> tuple[Callable[[Sample, Mark], Result], tuple[Part, ...]]:
    """Return a step in which only the model is compiled, so its parts can be timed separately."""
    compiled: nn.Module = cast("nn.Module", compiler(trained.module))
    with_model = replace(trained, module=compiled)

    def step(sample: Sample, mark: Mark) -> Result:
        trained.clear()
        loss, outputs = with_model.forward(sample.args, sample.kwargs, sample.target)
        mark()
        with backward():
            loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        mark()
        trained.optimizer.step()
        mark()
        return loss.detach(), outputs

    return step, tuple(Part(metric=name) for name in TRAINING_PARTS)


def _inference(
    module: nn.Module,
    autocast: Callable[[], AbstractContextManager[object]],
    compiler: Compile,
    *,
    grad: bool,
) -> Callable[[Sample, Mark], Result]:
    compiled = compiler(module)

    def step(sample: Sample, _: Mark) -> Result:
        with torch.set_grad_enabled(grad), autocast():
            outputs = compiled(*sample.args, **sample.kwargs)
            # a generator has done nothing yet; a compiler may have turned it into another iterator
            return None, [*outputs] if isinstance(outputs, Iterator) else outputs

    return step


@dataclass(frozen=True, kw_only=True)
class _Cast:
    """Puts modules and samples on a device.

    `rounded` is the type of weights and inputs, `None` to leave it.

    With `exact`, fp64 on top of it: the reference sees the numbers that the arms see, not those
    before they were rounded.
    """

    device: str
    rounded: torch.dtype | None
    exact: bool
    images: bool

    def module(self, module: nn.Module) -> nn.Module:
        placed = module.to(self.device)
        placed = placed if self.rounded is None else cast_module(placed, self.rounded)
        placed = cast_module(placed, torch.float64) if self.exact else placed
        return placed.to(memory_format=torch.channels_last) if self.images else placed  # type: ignore[call-overload] # no stub for layouts

    def sample(self, sample: Sample) -> Sample:
        """Copy the sample; its floating tensors get the weights' type."""
        return Sample(
            args=pytree.tree_map(self._tensor, sample.args),
            kwargs=pytree.tree_map(self._tensor, dict(sample.kwargs)),
            target=pytree.tree_map(self._tensor, sample.target),
        )

    def _tensor(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        moved = value.detach().to(self.device, copy=True)
        moved = moved if self.rounded is None else in_type(moved, self.rounded)
        moved = in_type(moved, torch.float64) if self.exact else moved
        image = self.images and moved.dim() == 4  # noqa: PLR2004 - batch, channels, height, width
        return moved.contiguous(memory_format=torch.channels_last) if image else moved


def _projected(
    module: nn.Module, samples: tuple[Sample, ...], seed: int
) -> tuple[Loss, tuple[Sample, ...]]:
    """Return a loss for models without one: the outputs' product with fixed random numbers.

    The numbers are the same in every precision. A mean of outputs would have no gradient behind a
    normalisation, and the gradient check would check nothing.
    """
    parameters, buffers = parameters_of(module), buffers_of(module)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        targets = [
            _draw_like(module(*sample.args, **sample.kwargs), generator) for sample in samples
        ]
    load_state(module, parameters, buffers)
    return projection, tuple(
        replace(sample, target=target) for sample, target in zip(samples, targets, strict=True)
    )


def _draw_like(outputs: Any, generator: torch.Generator) -> tuple[Tensor, ...]:
    real = _real(outputs)
    if not real:
        raise ValueError(
            f"the outputs ({type(outputs).__name__}) hold no tensor of floating-point numbers to "
            "make a loss of; return one, give the model a `loss`, or use `mode: inference`"
        )
    drawn = (torch.randn(leaf.shape, generator=generator).bfloat16() for leaf in real)
    return tuple(noise.to(leaf.device, leaf.dtype) for noise, leaf in zip(drawn, real, strict=True))


def projection(outputs: Any, weights: tuple[Tensor, ...]) -> Tensor:
    """Sum ``<leaf, weights> / sqrt(n)`` over floating leaves, accumulated at least in fp32.

    Both parts of complex leaves count.
    """
    terms = []
    for leaf, weight in zip(_real(outputs), weights, strict=True):
        wide = torch.promote_types(leaf.dtype, torch.float32)
        terms.append((leaf.to(wide) * weight.to(wide)).sum() / math.sqrt(max(leaf.numel(), 1)))
    return torch.stack(terms).sum()


def _real(outputs: Any) -> list[Tensor]:
    leaves = (leaf for leaf in leaves_of(outputs) if leaf.is_floating_point() or leaf.is_complex())
    return [real_parts(leaf) for leaf in leaves]


def _autocast(
    precision: TorchbenchPrecision, device: str
) -> Callable[[], AbstractContextManager[object]]:
    kind = _AUTOCAST.get(precision)
    if kind is None:
        return nullcontext
    device_type = device.partition(":")[0]
    return lambda: torch.autocast(device_type, dtype=kind)
