"""One training in several processes: the rows, the model and the step of one rank, in each layout.

All layouts start from the same state and see the same rows by their place in the global batch. A
mean over rows is what one process would compute, also where ranks have unequally many: each weighs
its loss by its share. So a correct layout differs from one process only by rounding.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
import torch.distributed
from torch import Tensor, nn

from ci_bench.records.results import RankSeries
from ci_bench.suites.contract import Ranks
from ci_bench.suites.shared.planning.layouts import (
    DDP,
    FSDP,
    FSDP_TENSOR,
    HYBRID,
    PIPELINE,
    SCHEDULES,
    TENSOR,
    Layout,
)
from ci_bench.suites.shared.worker.compiling import kept_apart
from ci_bench.suites.shared.worker.ddp_modes import optimizing_ddp
from ci_bench.suites.shared.worker.sharing import (
    drawn_by,
    fully_sharded,
    gathered,
    mesh_of,
    replicated,
    seed_apart,
    unsharded,
)
from ci_bench.suites.shared.worker.user_code import load_named, resolve_backend
from ci_bench.suites.training_loss.corpus import Batch
from ci_bench.suites.training_loss.model_files import BadModel
from ci_bench.suites.training_loss.network import State

USUAL_PLAN = {
    "*.attention.output.dense": "rowwise",
    **dict.fromkeys(
        ("*.query", "*.key", "*.value", "*.q_proj", "*.k_proj", "*.v_proj", "*.q", "*.k", "*.v"),
        "colwise",
    ),
    **dict.fromkeys(
        ("*.intermediate.dense", "*.up_proj", "*.gate_proj", "*.fc1", "*.c_fc"), "colwise"
    ),
    **dict.fromkeys(
        ("*.output.dense", "*.o_proj", "*.out_proj", "*.down_proj", "*.fc2"), "rowwise"
    ),
}
"""By the names of linear modules in transformers' models and most others.

The first pattern that fits counts.
"""


class Whole(nn.Module):
    """A model with its loss, as layouts wrap it: called with a batch, it gives one number."""

    def __init__(self, model: nn.Module, loss_of: Callable[[Batch], Tensor]) -> None:
        """Take a model, and a function of a batch that calls it and returns the loss."""
        super().__init__()
        self.model = model
        self._loss_of = loss_of

    def forward(self, **batch: Tensor) -> Tensor:
        """Return the mean loss of the rows of a batch."""
        return self._loss_of(batch)


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The rows of one rank, and the weight of their mean loss.

    The weights of all ranks average to one. The weight is 0 if the rank has no rows.
    """

    batch: Batch
    weight: float

    @property
    def rows(self) -> int:
        """The number of rows that count."""
        return len(self.batch["labels"]) if self.weight else 0


def share_of(batch: Batch, rank: int, count: int) -> Share:
    """Return the rank's rows of a global batch, in their order.

    A rank that would have none gets a row that counts 0.
    """
    rows = len(batch["labels"])
    bounds = [rows * place // count for place in (rank, rank + 1)]
    row_count = bounds[1] - bounds[0]
    selection = slice(*bounds) if row_count else slice(0, 1)
    return Share(
        batch={name: values[selection] for name, values in batch.items()},
        weight=row_count * count / rows,
    )


def own_share(layout: Layout, batch: Batch, ranks: Ranks) -> Share:
    """Return a rank's part of a global batch.

    It is the whole batch, the rank's own rows, or those of its group.
    """
    if not layout.own_rows:
        return Share(batch=batch, weight=1.0)
    return share_of(batch, ranks.rank // layout.sharing, ranks.count // layout.sharing)


def distributed(layout: Layout, loss_module: Whole, ranks: Ranks, device: str) -> nn.Module:
    """Return the model in its layout, in this rank; it is called as `loss_module` is.

    Raises:
        BadModel: the user's own function gives no module, or no module of the model fits the plan.
    """
    wrapped = _wrapped(layout, loss_module, ranks, device)
    if layout.backend is None:
        return wrapped
    backend = resolve_backend(layout.backend)
    return cast(
        "nn.Module", torch.compile(wrapped, backend=kept_apart(backend, layout.optimize_ddp or ""))
    )


def _wrapped(layout: Layout, loss_module: Whole, ranks: Ranks, device: str) -> nn.Module:
    if layout.layout == DDP:
        return replicated(layout, loss_module, ranks, device)
    if layout.layout in {FSDP, HYBRID}:
        mesh = mesh_of(ranks, device) if layout.layout == FSDP else _meshed(layout, ranks, device)
        return fully_sharded(loss_module, layout, mesh)
    if layout.layout == TENSOR:
        return _tensor_parallel(loss_module, layout, mesh_of(ranks, device))
    if layout.layout == FSDP_TENSOR:
        mesh = _meshed(layout, ranks, device)
        return fully_sharded(
            _tensor_parallel(loss_module, layout, mesh[INNER]), layout, mesh[OUTER]
        )
    wrapped = load_named(layout.layout, option="layouts")(loss_module)
    if not isinstance(wrapped, nn.Module):
        raise BadModel(
            f"layouts: {layout.layout} gives {type(wrapped).__name__}; it has to give a"
            " torch.nn.Module"
        )
    return wrapped


OUTER, INNER = "outer", "inner"


def _meshed(layout: Layout, ranks: Ranks, device: str) -> Any:
    """Return groups of `inner` processes in a row: [outer, inner]."""
    from torch.distributed.device_mesh import init_device_mesh

    shape = (ranks.count // layout.inner, layout.inner)
    return init_device_mesh(device.partition(":")[0], shape, mesh_dim_names=(OUTER, INNER))


def _tensor_parallel(loss_module: Whole, layout: Layout, mesh: Any) -> Whole:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    styles = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
    plan = dict(planned(loss_module.model, layout.plan or USUAL_PLAN))
    if not plan:
        raise BadModel(
            f"layouts: no linear module of the model fits the plan of {layout.layout}; set its"
            " `plan`"
        )
    parallelize_module(
        loss_module.model, mesh, {name: styles[style]() for name, style in plan.items()}
    )
    return loss_module


def planned(model: nn.Module, plan: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the linear modules that are split, by name, each with its style."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            style = next(
                (style for pattern, style in plan.items() if fnmatchcase(f".{name}", pattern)), None
            )
            if style is not None:
                yield name, style


@dataclass(kw_only=True, slots=True)
class WatchedStep:
    """Values of each rank, step by step: gathered in every rank, for rank 0 to keep."""

    own_rows: bool
    """True if each rank, or each group of `sharing` ranks, has its own rows."""
    sharing: int = 1
    """The number of ranks that share rows."""
    losses: list[list[float]] = field(default_factory=list)
    """The loss of each rank, [steps][ranks]."""
    norms: list[list[float]] = field(default_factory=list)
    """The norm of all gradients as each rank has it, [steps][ranks]; one process keeps none."""
    rows: list[list[int]] = field(default_factory=list)
    """The number of each rank's rows, [steps][ranks]; one process keeps it if ranks share rows."""
    draws: list[list[float]] = field(default_factory=list)
    """Draws of each rank in the first step (`drawn_by`), [ranks][draws]."""

    def series(self) -> RankSeries:
        """Return the values by rank and step."""
        return RankSeries(
            own_rows=self.own_rows,
            loss=_by_rank(self.losses),
            grad_norm=_by_rank(self.norms),
            rows=tuple(zip(*self.rows, strict=True)),
            sharing=self.sharing,
        )


def _by_rank(steps: Sequence[Sequence[float]]) -> tuple[tuple[float | None, ...], ...]:
    if not steps:
        return ()
    return tuple(
        tuple(value if abs(value) < float("inf") else None for value in rank)
        for rank in zip(*steps, strict=True)
    )


@dataclass(kw_only=True, slots=True)
class ParallelStep:
    """One rank's part of a step."""

    layout: Layout
    """The layout, whose `accumulate` is the number of parts of a step."""
    whole: nn.Module
    """The model with its loss in the layout: called with a batch, it gives one number."""
    optimizer: torch.optim.Optimizer
    """The optimizer over this rank's parameters, sharded ones included."""
    autocast: Callable[[], AbstractContextManager[object]]
    """Maker of the context in which the forward pass runs."""
    ranks: Ranks
    """The processes that share the step."""
    device: str
    """The device of this rank."""
    watched: WatchedStep | None = None
    """Values of all ranks; `None` if only this rank's loss is needed."""
    loss_dtype: torch.dtype = torch.float32
    """Type of the model's own loss in the last step: it is summed in fp32."""

    def __call__(self, batch: Batch) -> Tensor:
        """Train on a global batch.

        Returns the mean loss of this rank's rows; of all rows if it is `watched`.

        Returns the mean loss of this rank's rows; of all, where it is `watched`.
        """
        share = own_share(self.layout, batch, self.ranks)
        if self.layout.own_rows and self.watched is not None:
            seed_apart(self.ranks, self.layout.sharing)
        self.optimizer.zero_grad(set_to_none=True)
        with optimizing_ddp(self.layout):
            loss = self._forward_and_back(share)
        self.optimizer.step()
        return loss if self.watched is None else self._of_all(float(loss), share)

    def _forward_and_back(self, share: Share) -> Tensor:
        # As many in all ranks, however few rows one has: each part has collectives.
        parts = self.layout.accumulate
        total = torch.zeros((), device=self.device)
        for place in range(parts):
            part = share_of(share.batch, place, parts)
            with self._exchanging(last=place == parts - 1), self.autocast():
                loss = self.whole(**part.batch)
                (loss * (share.weight * part.weight / parts)).backward()
            self.loss_dtype = loss.dtype
            total += loss.detach() * (part.weight / parts)
        return total

    @contextmanager
    def _exchanging(self, *, last: bool) -> Iterator[None]:
        """Exchange gradients only with the last part.

        DDP and its kin have `no_sync` for this, FSDP2 its own switch.
        """
        switch = getattr(self.whole, "set_requires_gradient_sync", None)
        if switch is not None:
            switch(last)
        no_sync = getattr(self.whole, "no_sync", None)
        with nullcontext() if last or no_sync is None else no_sync():
            yield

    def _of_all(self, loss: float, share: Share) -> Tensor:
        assert self.watched is not None, "asked for by the caller"  # noqa: S101 - our own bug if not
        rank_values = gathered([loss, float(share.rows)], self.ranks.count, self.device)
        self.watched.losses.append([rank_loss for rank_loss, _ in rank_values])
        if not self.watched.draws:
            even = len({rows for _, rows in rank_values}) == 1
            self.watched.draws = gathered(
                [drawn_by(self.device, even=even)], self.ranks.count, self.device
            )
        if not self.layout.own_rows:
            return torch.tensor(rank_values[0][0], dtype=torch.float64)
        rows = sum(rows for _, rows in rank_values)
        return torch.tensor(
            sum(rank_loss * rows for rank_loss, rows in rank_values if rows) / rows,
            dtype=torch.float64,
        )


@dataclass(kw_only=True, slots=True)
class PipelineStep:
    """One process's part of a step of a pipeline, by its schedule.

    The batch's inputs go to the first stage by position, its labels to the last; each micro-batch's
    loss is a mean.
    """

    schedule: Any
    """The schedule from `torch.distributed.pipelining`, over this process's stages."""
    optimizer: torch.optim.Optimizer
    """The optimizer over the parameters of this process's stages."""
    ranks: Ranks
    """The processes of the pipeline."""
    device: str
    """The device of this process."""
    watched: WatchedStep | None = None
    """Values of all ranks; `None` if only the last stage has to know the loss."""

    def __call__(self, batch: Batch) -> Tensor:
        """Train on a global batch.

        Returns its mean loss in the last stage, 0 in others; the mean loss in all if it is
        `watched`.
        """
        inputs = (
            [values for name, values in batch.items() if name != "labels"]
            if self.ranks.rank == 0
            else []
        )
        losses: list[Tensor] = []
        self.optimizer.zero_grad(set_to_none=True)
        last = self.ranks.rank == self.ranks.count - 1
        self.schedule.step(
            *inputs, target=batch["labels"] if last else None, losses=losses if last else None
        )
        self.optimizer.step()
        loss = (
            torch.stack(losses).mean().detach() if losses else torch.zeros((), device=self.device)
        )
        if self.watched is None:
            return loss
        rank_losses = gathered([float(loss)], self.ranks.count, self.device)
        self.watched.losses.append([rank_losses[-1][0]] * self.ranks.count)
        return torch.tensor(rank_losses[-1][0], dtype=torch.float64)


def stages_of(layout: Layout, model: nn.Module, ranks: Ranks) -> list[nn.Module]:
    """Return the stages of this rank, in their order.

    The user's own function cuts them out of the model. Rank r of n has the stages r, n + r, 2 n +
    r, …, so the last rank has the last stage.

    Raises:
        BadModel: the function gives something else than a module.
    """
    split = load_named(str(layout.split), option="layouts.split")
    count = ranks.count * layout.stages
    stages = [split(model, place, count) for place in range(ranks.rank, count, ranks.count)]
    bad_stage = next((stage for stage in stages if not isinstance(stage, nn.Module)), None)
    if bad_stage is not None:
        raise BadModel(
            f"layouts.split: {layout.split} gives {type(bad_stage).__name__}; it has to give a"
            " torch.nn.Module"
        )
    return stages


def schedule_of(
    layout: Layout,
    stages: Sequence[nn.Module],
    ranks: Ranks,
    device: str,
    loss_of: Callable[[Tensor, Tensor], Tensor],
) -> Any:
    """Return the layout's schedule over `accumulate` micro-batches."""
    from torch.distributed import pipelining

    count, schedule = ranks.count * layout.stages, SCHEDULES[layout.schedule]
    placed = [
        pipelining.PipelineStage(
            stage, ranks.rank + ranks.count * place, count, torch.device(device)
        )
        for place, stage in enumerate(stages)
    ]
    schedule_class = getattr(pipelining, schedule.named)
    return schedule_class(
        placed if schedule.looped else placed[0], n_microbatches=layout.accumulate, loss_fn=loss_of
    )


def global_norm(parameters: Sequence[Tensor], *, by_stage: bool, device: str) -> float:
    """Return the 2-norm of all gradients, fp64.

    A collective if gradients are sharded, or if each process has those of its stages (`by_stage`).
    """
    squares = torch.zeros((), dtype=torch.float64, device=device)
    for parameter in parameters:
        if parameter.grad is not None:
            squares += torch.linalg.vector_norm(unsharded(parameter.grad), dtype=torch.float64) ** 2
    if by_stage:
        torch.distributed.all_reduce(squares)
    return float(squares.sqrt())


def full_state(model: nn.Module) -> State:
    """Return weights and buffers as one process would have them, on the CPU.

    A collective.
    """
    return {name: unsharded(value).detach().cpu() for name, value in model.state_dict().items()}


def is_pipeline(layout: Layout) -> bool:
    """Return true if the processes are stages, none of which has the whole model."""
    return layout.layout == PIPELINE


def losses_by_rank(
    loss_of: Callable[[Batch], Tensor], model: nn.Module, batch: Batch, count: int
) -> list[float]:
    """Return one process's loss on each rank's rows, before its step.

    Leaves buffers and generators as they were.
    """
    buffers = [value.clone() for value in model.buffers()]
    with torch.no_grad(), torch.random.fork_rng():
        losses = [float(loss_of(share_of(batch, rank, count).batch)) for rank in range(count)]
        for value, before in zip(model.buffers(), buffers, strict=True):
            value.copy_(before)
    return losses
