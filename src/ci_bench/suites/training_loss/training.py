"""The training step and a whole training run.

The step is zero-grad, forward, backward, optimizer step: all of it is compiled, and all of it is
timed. Gradients stay after the step: their norm can be read outside without changing the compiled
program. They are allocated before the first step, so it has the same guards as all others.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from ci_bench.suites.contract import Ranks
from ci_bench.suites.shared.planning.arms import CompiledArm
from ci_bench.suites.shared.planning.layouts import Layout
from ci_bench.suites.shared.worker.compiling import compiled
from ci_bench.suites.shared.worker.fp32_precision import set_fp32_precision
from ci_bench.suites.shared.worker.optimizers import lost_by_correction
from ci_bench.suites.shared.worker.sharing import gathered
from ci_bench.suites.shared.worker.user_code import load_named
from ci_bench.suites.training_loss.checkpoints import identities, names_in_whole
from ci_bench.suites.training_loss.corpus import Batch, Rows
from ci_bench.suites.training_loss.layouts import (
    ParallelStep,
    PipelineStep,
    WatchedStep,
    Whole,
    distributed,
    global_norm,
    is_pipeline,
    losses_by_rank,
    schedule_of,
    share_of,
    stages_of,
)
from ci_bench.suites.training_loss.model_files import DATA, BadModel
from ci_bench.suites.training_loss.network import State, build_optimizer, model_from
from ci_bench.suites.training_loss.options import TrainingOptions, TrainingPrecision

Step = Callable[[Batch], Tensor]

FIRST_LOSS_SCALE = 2.0**10
"""Below torch's default of 2**16: a training of a few hundred steps should not spend its first ones
searching for the scale.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainee:
    """A model with its optimizer and its step, compiled or not."""

    model: nn.Module
    """The model in training mode; in a layout, as this rank has it."""
    optimizer: torch.optim.Optimizer
    """The optimizer over the model's parameters."""
    step: Step
    """One training step on a batch; returns the loss."""
    logits: Callable[[Batch], Tensor]
    """The model's logits of a batch, [rows, classes]; never compiled."""
    loss: Callable[[Batch], Tensor]
    """The loss of a batch, a scalar with a gradient; never compiled."""
    autocast: Callable[[], AbstractContextManager[object]]
    """Maker of the context for forward passes; without effect unless the precision autocasts."""
    compile: Callable[[Callable[..., Tensor]], Callable[..., Tensor]]
    """Compiles another function as the step was; the identity for eager arms and layouts."""
    scaler: torch.amp.GradScaler | None = None
    """Scaler of the loss; `None` if the precision needs no scaling."""
    norm: Callable[[], float] | None = None
    """The norm of all gradients of several processes; `None` if this process has them all."""
    watched: WatchedStep | None = None
    """Values by process, or for each process's part of this one's batch; `None` if not kept."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The whole model's names of a layout's tensors that differ, if checkpoints are requested."""

    def gradient_norm(self) -> float:
        """Return the global 2-norm of all gradients, accumulated in fp64."""
        if self.norm is not None:
            return self.norm()
        norms = [
            torch.linalg.vector_norm(parameter.grad, dtype=torch.float64)
            for parameter in self.model.parameters()
            if parameter.grad is not None
        ]
        return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0


def rounded_rates(
    name: str,
    optimizer: torch.optim.Optimizer,
    rates: Sequence[float | Tensor],
    step: int,
    generator: torch.Generator,
) -> None:
    """Set the learning rates of step `step`, off by the rounding of the optimizer's divisor.

    Each group of parameters gets its own of `rates`, times ``1 + xi`` of what a compiled step loses
    there (`lost_by_correction`), xi standard normal. Of an optimizer without betas, or with tensors
    for them, the rates stay as they are.
    """
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        share = lost_by_correction(
            name, [beta for beta in group.get("betas", ()) if isinstance(beta, float)], step + 1
        )
        group["lr"] = rate * (
            1 + share * float(torch.randn((), generator=generator, dtype=torch.float64))
        )


def build_trainee(
    options: TrainingOptions,
    state: State,
    *,
    device: str,
    candidate: CompiledArm | None,
    captured: bool = False,
) -> Trainee:
    """Build a trainee that starts from `state`.

    Its step is compiled for the `candidate`; `None` leaves it eager. If `captured`, it has to fit
    into a CUDA graph as it is.
    """
    model = model_from(options, state, device)
    set_fp32_precision(tf32=options.precision is TrainingPrecision.TF32)
    optimizer = build_optimizer(
        options, model, device, capturable=captured or candidate is not None
    )
    autocast = _autocast(options.precision, device)
    scaler = torch.amp.GradScaler(device.partition(":")[0], init_scale=FIRST_LOSS_SCALE)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    step = _scaled_step if options.precision is TrainingPrecision.AMP_FP16 else _plain_step
    compiler = make_compiler(candidate)

    logits = make_logits(options, model)
    loss = make_loss(options, model, logits)

    def run(batch: Batch) -> Tensor:
        return step(loss, optimizer, autocast, scaler, batch)

    return Trainee(
        model=model,
        optimizer=optimizer,
        step=compiler(run),
        logits=logits,
        loss=loss,
        autocast=autocast,
        compile=compiler,
        scaler=scaler if options.precision is TrainingPrecision.AMP_FP16 else None,
    )


def build_parallel(
    options: TrainingOptions,
    state: State,
    layout: Layout,
    ranks: Ranks,
    *,
    device: str,
    watched: bool = False,
) -> Trainee:
    """Build a trainee of a layout, in this rank.

    If `watched`, all ranks know the loss and the norm of every step.
    """
    model = model_from(options, state, device)
    tensors = identities(model)
    set_fp32_precision(tf32=options.precision is TrainingPrecision.TF32)
    logits = make_logits(options, model)
    loss = make_loss(options, model, logits)
    autocast = _autocast(options.precision, device)
    watch = WatchedStep(own_rows=layout.own_rows, sharing=layout.sharing) if watched else None
    step: Step
    if is_pipeline(layout):
        stages = stages_of(layout, model, ranks)
        model = stages[0] if len(stages) == 1 else nn.ModuleList(stages)
        optimizer = build_optimizer(options, model, device)
        loss_function: Callable[[Tensor, Tensor], Tensor] = load_named(
            str(options.loss), option="loss"
        )
        schedule = schedule_of(layout, stages, ranks, device, loss_function)
        step = PipelineStep(
            schedule=schedule, optimizer=optimizer, ranks=ranks, device=device, watched=watch
        )
    else:
        loss_module = distributed(layout, Whole(model, loss), ranks, device)
        optimizer = build_optimizer(options, model, device)
        step = ParallelStep(
            layout=layout,
            whole=loss_module,
            optimizer=optimizer,
            autocast=autocast,
            ranks=ranks,
            device=device,
            watched=watch,
        )
    return Trainee(
        model=model,
        optimizer=optimizer,
        step=step,
        logits=logits,
        loss=loss,
        autocast=autocast,
        compile=make_compiler(None),
        norm=_make_norm(model, layout, ranks, device, watch),
        watched=watch,
        names=(
            {}
            if options.checkpoint is None or options.checkpoint.save
            else names_in_whole(model, tensors)
        ),
    )


def _make_norm(
    model: nn.Module, layout: Layout, ranks: Ranks, device: str, watch: WatchedStep | None
) -> Callable[[], float]:
    """Return a function for the norm of all gradients, which notes each rank's in `watch`."""

    def norm() -> float:
        own_norm = global_norm(
            list(model.parameters()), by_stage=is_pipeline(layout), device=device
        )
        if watch is not None:
            watch.norms.append(
                [rank_norm for (rank_norm,) in gathered([own_norm], ranks.count, device)]
            )
        return own_norm

    return norm


CONTROL_SHARE = 0.01
"""By how much the positive control's updates are too long."""


def with_longer_updates(trainee: Trainee) -> Trainee:
    """Return the same trainee with every update 1 % too long.

    That is a learning rate 1 % off, for any optimizer.
    """

    def step(batch: Batch) -> Tensor:
        before = [parameter.detach().clone() for parameter in trainee.model.parameters()]
        loss = trainee.step(batch)
        with torch.no_grad():
            for parameter, old in zip(trainee.model.parameters(), before, strict=True):
                parameter.add_(parameter - old, alpha=CONTROL_SHARE)
        return loss

    return replace(trainee, step=step)


def watching_ranks(trainee: Trainee, count: int, options: TrainingOptions) -> Trainee:
    """Return a trainee of one process that keeps its loss on the rows of each of `count` ranks.

    If layouts have ranks that share theirs, it also keeps the number of these rows.
    """
    watch = WatchedStep(own_rows=True)

    def loss_of(batch: Batch) -> Tensor:
        with trainee.autocast():
            return trainee.loss(batch)

    def step(batch: Batch) -> Tensor:
        watch.losses.append(losses_by_rank(loss_of, trainee.model, batch, count))
        if options.shares_rows:
            watch.rows.append([share_of(batch, rank, count).rows for rank in range(count)])
        return trainee.step(batch)

    return replace(trainee, step=step, watched=watch)


def make_compiler(
    candidate: CompiledArm | None,
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Return `torch.compile` for a candidate, or the identity for `None`."""
    return (lambda function: function) if candidate is None else partial(compiled, candidate)


def make_logits(options: TrainingOptions, model: nn.Module) -> Callable[[Batch], Tensor]:
    """Return a function for the model's logits of a batch.

    A model whose loss is the user's own function is not given the labels.
    """

    def logits(batch: Batch) -> Tensor:
        inputs = (
            batch
            if options.loss is None
            else {name: values for name, values in batch.items() if name != "labels"}
        )
        output = model(**inputs)
        out: Tensor = output if isinstance(output, Tensor) else output.logits
        return out

    return logits


def make_loss(
    options: TrainingOptions, model: nn.Module, logits: Callable[[Batch], Tensor]
) -> Callable[[Batch], Tensor]:
    """Return a function for the loss of a batch.

    It is the model's own, or the user's function of its logits and the labels.
    """
    if options.loss is None:

        def model_loss(batch: Batch) -> Tensor:
            loss: Tensor = model(**batch).loss
            return loss

        return model_loss
    loss_function: Callable[[Tensor, Tensor], Tensor] = load_named(options.loss, option="loss")
    return lambda batch: loss_function(logits(batch), batch["labels"])


def check_own_code(options: TrainingOptions, trainee: Trainee, batch: Batch) -> None:
    """Try the user's own model and loss on one batch: errors then name the option.

    Raises:
        BadModel: the loss is not a scalar with a gradient, or evaluation finds no logits of its
            classes.
    """
    option = (
        f"loss: {options.loss}"
        if options.loss is not None
        else f"model.factory: {options.model.factory}"
    )
    remedy = "return an object with .loss and .logits, or name a `loss` of logits and labels"
    try:
        loss: object = trainee.loss(batch)
        logits: object = trainee.logits(batch) if options.evaluation else None
    except (AttributeError, TypeError) as error:
        raise BadModel(f"{option} does not fit: {error}; {remedy}") from error
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        shown = (
            f"a tensor of shape {tuple(loss.shape)}"
            if isinstance(loss, Tensor)
            else type(loss).__name__
        )
        raise BadModel(f"{option} gives {shown}; a loss is one number with a gradient")
    rows = len(batch["labels"])
    if options.evaluation and not (
        isinstance(logits, Tensor) and logits.ndim == 2 and len(logits) == rows  # noqa: PLR2004
    ):
        raise BadModel(
            f"{option}: accuracy needs logits of [rows, classes]; without them, set evaluation:"
            " false"
        )


def _plain_step(
    loss_of: Callable[[Batch], Tensor],
    optimizer: torch.optim.Optimizer,
    autocast: Callable[[], AbstractContextManager[object]],
    _: torch.amp.GradScaler,
    batch: Batch,
) -> Tensor:
    optimizer.zero_grad(set_to_none=True)
    with autocast():
        loss = loss_of(batch)
    loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
    optimizer.step()
    return loss.detach()


def _scaled_step(
    loss_of: Callable[[Batch], Tensor],
    optimizer: torch.optim.Optimizer,
    autocast: Callable[[], AbstractContextManager[object]],
    scaler: torch.amp.GradScaler,
    batch: Batch,
) -> Tensor:
    optimizer.zero_grad(set_to_none=True)
    with autocast():
        loss = loss_of(batch)
    scaler.scale(loss).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _autocast(
    precision: TrainingPrecision, device: str
) -> Callable[[], AbstractContextManager[object]]:
    kinds = {TrainingPrecision.AMP_BF16: torch.bfloat16, TrainingPrecision.AMP_FP16: torch.float16}
    kind = kinds.get(precision)
    if kind is None:
        return nullcontext
    device_type = device.partition(":")[0]
    return lambda: torch.autocast(device_type, dtype=kind)


def predict(trainee: Trainee, rows: Rows, *, batch_size: int, compiled: bool = True) -> Tensor:
    """Return the predicted class of every row, int64 [rows], on the CPU.

    The forward pass is compiled as the training step was, unless `compiled` is off. The last batch
    is filled up with repeated rows, so one shape serves all.
    """
    trainee.model.eval()

    def forward(batch: Batch) -> Tensor:
        with trainee.autocast():
            return trainee.logits(batch)

    run: Callable[[Batch], Tensor] = trainee.compile(forward) if compiled else forward
    classes = []
    with torch.no_grad():
        for indices in torch.arange(len(rows)).split(batch_size):  # type: ignore[no-untyped-call] # torch leaves it unannotated
            filled = torch.cat([indices, indices[:1].expand(batch_size - len(indices))])
            classes.append(
                run(rows.batch(filled.to(rows.labels.device))).argmax(dim=-1)[: len(indices)].cpu()
            )
    trainee.model.train()
    return torch.cat(classes)


def accuracy(predictions: Tensor, labels: Tensor, *, cache: Path) -> float:
    """Return the share of right predictions, 0..1."""
    import evaluate

    metric = evaluate.load(str(DATA / "accuracy"), cache_dir=str(cache), keep_in_memory=True)
    return float(
        metric.compute(predictions=predictions.tolist(), references=labels.tolist())["accuracy"]
    )


def disagreements(eager: Tensor, compiled: Tensor, labels: Tensor) -> tuple[int, int]:
    """Count the rows that only the eager forward pass got right, and only the compiled one."""
    eager_right, compiled_right = eager == labels, compiled == labels
    return int((eager_right & ~compiled_right).sum()), int((~eager_right & compiled_right).sum())
