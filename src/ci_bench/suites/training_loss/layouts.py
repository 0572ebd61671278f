"""One training in several processes: the rows, the model and the step of one rank, in each layout.

All layouts start from the same state and see the same rows by their place in the global batch. A mean over rows is what one
process would compute, also where ranks have unequally many: each weighs its loss by its share. So a layout that is right differs
from one process by rounding alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed
from torch import Tensor, nn

from ci_bench.records.results import RankSeries
from ci_bench.suites.base import Ranks
from ci_bench.suites.freshness import places
from ci_bench.suites.training_loss.corpus import Batch
from ci_bench.suites.training_loss.network import BadModel, State
from ci_bench.suites.training_loss.options import DDP, FSDP, FSDP_TENSOR, HYBRID, PIPELINE, SCHEDULES, TENSOR, Layout
from ci_bench.suites.user_code import load_named, resolve_backend

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

USUAL_PLAN = {
    "*.attention.output.dense": "rowwise",
    **dict.fromkeys(("*.query", "*.key", "*.value", "*.q_proj", "*.k_proj", "*.v_proj", "*.q", "*.k", "*.v"), "colwise"),
    **dict.fromkeys(("*.intermediate.dense", "*.up_proj", "*.gate_proj", "*.fc1", "*.c_fc"), "colwise"),
    **dict.fromkeys(("*.output.dense", "*.o_proj", "*.out_proj", "*.down_proj", "*.fc2"), "rowwise"),
}
"""By the names that transformers' models and most others have; the first pattern that fits counts."""


class Whole(nn.Module):
    """A model together with its loss: called with a batch, it gives one number. What layouts wrap."""

    def __init__(self, model: nn.Module, loss_of: Callable[[Batch], Tensor]) -> None:
        """`loss_of` calls the model."""
        super().__init__()
        self.model = model
        self._loss_of = loss_of

    def forward(self, **batch: Tensor) -> Tensor:
        """The mean loss of the rows of a batch."""
        return self._loss_of(batch)


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The rows of one rank, and the weight of their mean loss: ranks' weights average to one. 0 where it has no rows."""

    batch: Batch
    weight: float

    @property
    def rows(self) -> int:
        """How many rows count."""
        return len(self.batch["labels"]) if self.weight else 0


def share_of(batch: Batch, rank: int, count: int) -> Share:
    """The rank's rows of a global batch, in their order. A rank that would have none gets a row that counts 0."""
    rows = len(batch["labels"])
    bounds = [rows * place // count for place in (rank, rank + 1)]
    own = bounds[1] - bounds[0]
    taken = slice(*bounds) if own else slice(0, 1)
    return Share(batch={name: values[taken] for name, values in batch.items()}, weight=own * count / rows)


def own_share(layout: Layout, batch: Batch, ranks: Ranks) -> Share:
    """What of a global batch a rank trains on: all of it, its own rows, or those of its group."""
    if not layout.own_rows:
        return Share(batch=batch, weight=1.0)
    return share_of(batch, ranks.rank // layout.sharing, ranks.count // layout.sharing)


def distributed(layout: Layout, whole: Whole, ranks: Ranks, device: str) -> nn.Module:
    """The model in its layout, in this rank; called as `whole` is.

    Raises:
        BadModel: the user's own function gives no module, or no module of the model fits the plan.
    """
    wrapped = _wrapped(layout, whole, ranks, device)
    if layout.backend is None:
        return wrapped
    return cast("nn.Module", torch.compile(wrapped, backend=resolve_backend(layout.backend)))


def _wrapped(layout: Layout, whole: Whole, ranks: Ranks, device: str) -> nn.Module:
    if layout.layout == DDP:
        from torch.nn.parallel import DistributedDataParallel

        devices = [ranks.rank] if device.startswith("cuda") else None
        return DistributedDataParallel(whole, device_ids=devices, static_graph=layout.static_graph)
    if layout.layout in {FSDP, HYBRID}:
        mesh = _mesh(ranks, device) if layout.layout == FSDP else _meshed(layout, ranks, device)
        return _fully_sharded(whole, layout, mesh)
    if layout.layout == TENSOR:
        return _tensor_parallel(whole, layout, _mesh(ranks, device))
    if layout.layout == FSDP_TENSOR:
        mesh = _meshed(layout, ranks, device)
        return _fully_sharded(_tensor_parallel(whole, layout, mesh[INNER]), layout, mesh[OUTER])
    own = load_named(layout.layout, option="layouts")(whole)
    if not isinstance(own, nn.Module):
        raise BadModel(f"layouts: {layout.layout} gives {type(own).__name__}; it has to give a torch.nn.Module")
    return own


def _mesh(ranks: Ranks, device: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.partition(":")[0], (ranks.count,))


OUTER, INNER = "outer", "inner"


def _meshed(layout: Layout, ranks: Ranks, device: str) -> Any:
    """Groups of `inner` processes in a row: [outer, inner]."""
    from torch.distributed.device_mesh import init_device_mesh

    shape = (ranks.count // layout.inner, layout.inner)
    return init_device_mesh(device.partition(":")[0], shape, mesh_dim_names=(OUTER, INNER))


def _fully_sharded(whole: Whole, layout: Layout, mesh: Any) -> nn.Module:
    """Each repeated block a group of its own, and the rest one. Of a mesh of two dimensions the outer one holds replicas."""
    from torch.distributed.fsdp import fully_shard

    for module in whole.modules():
        if isinstance(module, nn.ModuleList):
            for block in module:
                fully_shard(block, mesh=mesh, reshard_after_forward=layout.reshard)
    fully_shard(whole, mesh=mesh, reshard_after_forward=layout.reshard)
    return whole


def _tensor_parallel(whole: Whole, layout: Layout, mesh: Any) -> Whole:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    styles = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
    plan = dict(planned(whole.model, layout.plan or USUAL_PLAN))
    if not plan:
        raise BadModel(f"layouts: no linear module of the model fits the plan of {layout.layout}; give it a `plan` of its own")
    parallelize_module(whole.model, mesh, {name: styles[style]() for name, style in plan.items()})
    return whole


def planned(model: nn.Module, plan: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The linear modules that are split, by name, and how."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            style = next((style for pattern, style in plan.items() if fnmatchcase(f".{name}", pattern)), None)
            if style is not None:
                yield name, style


@dataclass(kw_only=True, slots=True)
class Watched:
    """What each rank saw, step by step: gathered in every rank, for rank 0 to keep."""

    own_rows: bool
    sharing: int = 1
    losses: list[list[float]] = field(default_factory=list)
    norms: list[list[float]] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    """Of one process, how many of its rows are each rank's, where layouts have ranks that share theirs."""
    draws: list[list[float]] = field(default_factory=list)
    """Of each rank, where its generator stood after the first step: a fingerprint."""

    def series(self) -> RankSeries:
        """By rank and step."""
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
    return tuple(tuple(value if abs(value) < float("inf") else None for value in rank) for rank in zip(*steps, strict=True))


def gathered(values: Sequence[float], count: int, device: str) -> list[list[float]]:
    """The numbers of every rank, fp64, by rank. A collective: every rank calls it."""
    own = torch.tensor(values, dtype=torch.float64, device=device)
    all_of = [torch.empty_like(own) for _ in range(count)]
    torch.distributed.all_gather(all_of, own)
    return [one.tolist() for one in all_of]


@dataclass(kw_only=True, slots=True)
class ParallelStep:
    """One rank's part of a step. `watched` keeps what each rank saw, where that is asked for."""

    layout: Layout
    whole: nn.Module
    optimizer: torch.optim.Optimizer
    autocast: Callable[[], AbstractContextManager[object]]
    ranks: Ranks
    device: str
    watched: Watched | None = None
    loss_dtype: torch.dtype = torch.float32
    """What the model's own loss was in, in the last step: it is summed in fp32."""

    def __call__(self, batch: Batch) -> Tensor:
        """Train on a global batch. Returns the mean loss of this rank's rows; of all, where it is `watched`."""
        share = own_share(self.layout, batch, self.ranks)
        if self.layout.own_rows and self.watched is not None:
            torch.manual_seed(torch.initial_seed() + self.ranks.rank // self.layout.sharing)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._forward_and_back(share)
        self.optimizer.step()
        return loss if self.watched is None else self._of_all(float(loss), share)

    def _forward_and_back(self, share: Share) -> Tensor:
        parts = self.layout.accumulate  # as many in all ranks, however few rows one has: each part has collectives
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
        """Gradients are exchanged with the last part alone: by `no_sync` of DDP and what is like it, or FSDP2's own switch."""
        switch = getattr(self.whole, "set_requires_gradient_sync", None)
        if switch is not None:
            switch(last)
        no_sync = getattr(self.whole, "no_sync", None)
        with nullcontext() if last or no_sync is None else no_sync():
            yield

    def _of_all(self, loss: float, share: Share) -> Tensor:
        assert self.watched is not None, "asked for by the caller"  # noqa: S101 - our own bug if not
        told = gathered([loss, float(share.rows)], self.ranks.count, self.device)
        self.watched.losses.append([one for one, _ in told])
        if not self.watched.draws:
            on_gpu = self.device.startswith("cuda")
            state = torch.cuda.get_rng_state(self.device) if on_gpu else torch.get_rng_state()
            self.watched.draws = gathered([_fingerprint(state)], self.ranks.count, self.device)
        if not self.layout.own_rows:
            return torch.tensor(told[0][0], dtype=torch.float64)
        rows = sum(rows for _, rows in told)
        return torch.tensor(sum(one * rows for one, rows in told if rows) / rows, dtype=torch.float64)


@dataclass(kw_only=True, slots=True)
class PipelineStep:
    """One process's part of a step of a pipeline, by its schedule.

    The batch's inputs go to the first stage by position, its labels to the last; each micro-batch's loss is a mean.
    """

    schedule: Any
    optimizer: torch.optim.Optimizer
    ranks: Ranks
    device: str
    watched: Watched | None = None

    def __call__(self, batch: Batch) -> Tensor:
        """Train on a global batch. Returns its mean loss in the last stage, 0 in others; in all, where it is `watched`."""
        inputs = [values for name, values in batch.items() if name != "labels"] if self.ranks.rank == 0 else []
        losses: list[Tensor] = []
        self.optimizer.zero_grad(set_to_none=True)
        last = self.ranks.rank == self.ranks.count - 1
        self.schedule.step(*inputs, target=batch["labels"] if last else None, losses=losses if last else None)
        self.optimizer.step()
        loss = torch.stack(losses).mean().detach() if losses else torch.zeros((), device=self.device)
        if self.watched is None:
            return loss
        told = gathered([float(loss)], self.ranks.count, self.device)
        self.watched.losses.append([told[-1][0]] * self.ranks.count)
        return torch.tensor(told[-1][0], dtype=torch.float64)


def stages_of(layout: Layout, model: nn.Module, ranks: Ranks) -> list[nn.Module]:
    """The stages of this rank, as the user's own function cuts them out of the model, in their order. Raises `BadModel`.

    Rank r of n has the stages r, n + r, 2 n + r, …: the last of them all is the last rank's.
    """
    split = load_named(str(layout.split), option="layouts.split")
    count = ranks.count * layout.stages
    stages = [split(model, place, count) for place in range(ranks.rank, count, ranks.count)]
    odd = next((stage for stage in stages if not isinstance(stage, nn.Module)), None)
    if odd is not None:
        raise BadModel(f"layouts.split: {layout.split} gives {type(odd).__name__}; it has to give a torch.nn.Module")
    return stages


def schedule_of(
    layout: Layout, stages: Sequence[nn.Module], ranks: Ranks, device: str, loss_of: Callable[[Tensor, Tensor], Tensor]
) -> Any:
    """The layout's schedule over as many micro-batches as `accumulate` says."""
    from torch.distributed import pipelining

    count, schedule = ranks.count * layout.stages, SCHEDULES[layout.schedule]
    placed = [
        pipelining.PipelineStage(stage, ranks.rank + ranks.count * place, count, torch.device(device))
        for place, stage in enumerate(stages)
    ]
    made = getattr(pipelining, schedule.named)
    return made(placed if schedule.looped else placed[0], n_microbatches=layout.accumulate, loss_fn=loss_of)


def global_norm(parameters: Sequence[Tensor], *, apart: bool, device: str) -> float:
    """The 2-norm of all gradients, fp64. A collective where gradients are sharded, or the stages' own (`apart`)."""
    squares = torch.zeros((), dtype=torch.float64, device=device)
    for parameter in parameters:
        if parameter.grad is not None:
            squares += torch.linalg.vector_norm(unsharded(parameter.grad), dtype=torch.float64) ** 2
    if apart:
        torch.distributed.all_reduce(squares)
    return float(squares.sqrt())


def unsharded(value: Tensor) -> Tensor:
    """A tensor as one process would have it. A collective where it is sharded."""
    full = getattr(value, "full_tensor", None)
    whole: Tensor = value if full is None else full()
    return whole


def state_of_first(
    state: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer, ranks: Ranks, device: str
) -> State:
    """What rank 0 has in `state` of each place of model and optimizer, whole, in every rank. A collective.

    Other ranks' `state` is not read. What rank 0 lacks, all leave out.
    """
    own = places(model, optimizer)
    there = torch.tensor([name in state for name in own], dtype=torch.uint8, device=device)
    torch.distributed.broadcast(there, 0)
    found: State = {}
    for (name, value), is_there in zip(own.items(), there.tolist(), strict=True):
        if is_there:
            whole = (
                state[name].to(device, value.dtype) if ranks.rank == 0 else torch.empty(value.shape, dtype=value.dtype).to(device)
            )
            torch.distributed.broadcast(whole, 0)
            found[name] = whole
    return found


def full_state(model: nn.Module) -> State:
    """Weights and buffers as one process would have them, on the CPU. A collective."""
    return {name: unsharded(value).detach().cpu() for name, value in model.state_dict().items()}


Differing = Mapping[tuple[int, int], Sequence[str]]
"""By a rank, and the first one that holds the same part of them, the tensors that these two have otherwise."""


def differing_replicas(model: nn.Module, ranks: Ranks, device: str) -> Differing:
    """What ranks should have as one before them has it, and have otherwise: whole tensors, and shards that are replicas.

    A collective.
    """
    tensors = model.state_dict()
    if not tensors:
        return {}
    shards = gathered([_shard_number(value) for value in tensors.values()], ranks.count, device)
    sums = gathered([_fingerprint(local_part(value)) for value in tensors.values()], ranks.count, device)
    return differing_parts(list(tensors), shards, sums)


def differing_parts(names: Sequence[str], shards: Sequence[Sequence[float]], sums: Sequence[Sequence[float]]) -> Differing:
    """Which of the tensors differ, by rank and place in `names`: which part of it a rank holds, and a number of its bytes."""
    found: dict[tuple[int, int], list[str]] = {}
    for place, name in enumerate(names):
        holders: dict[float, int] = {}
        for rank, (own, total) in enumerate(zip(shards, sums, strict=True)):
            first = holders.setdefault(own[place], rank)
            if sums[first][place] != total[place]:
                found.setdefault((first, rank), []).append(name)
    return found


def local_part(value: Tensor) -> Tensor:
    """What of a tensor this rank holds."""
    to_local = getattr(value, "to_local", None)
    own: Tensor = value if to_local is None else to_local()
    return own


NOWHERE = -1.0
"""The part of a rank that has none of a tensor: its mesh is of other ranks."""


def _shard_number(value: Tensor) -> float:
    """Which part of a tensor this rank holds: the same number in all ranks that hold the same part, 0 for a whole one."""
    mesh = getattr(value, "device_mesh", None)
    if mesh is None:
        return 0.0
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return NOWHERE
    number = 0
    placements = cast("DTensor", value).placements
    for size, place, placement in zip(mesh.shape, coordinate, placements, strict=True):
        if not placement.is_replicate():
            number = number * size + place
    return float(number)


def _fingerprint(value: Tensor) -> float:
    """A number that differs where bytes do, but for accidents: 48 bits of their digest, exact in fp64."""
    import hashlib

    raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return float(int.from_bytes(hashlib.sha256(raw).digest()[:6], "big"))


def alike_draws(draws: Sequence[Sequence[float]], sharing: int = 1) -> list[int]:
    """The ranks whose generator stands where that of a rank with other rows does: they draw the same masks for their own.

    So many ranks in a row (`sharing`) have the same rows.
    """
    return [rank for rank, state in enumerate(draws) if state in draws[: rank // sharing * sharing]]


def is_pipeline(layout: Layout) -> bool:
    """Whether the processes are stages, none of which has the whole model."""
    return layout.layout == PIPELINE


def losses_by_rank(loss_of: Callable[[Batch], Tensor], model: nn.Module, batch: Batch, count: int) -> list[float]:
    """What the rows of each rank cost one process, before its step. Leaves buffers and generators as they were."""
    buffers = [value.clone() for value in model.buffers()]
    with torch.no_grad(), torch.random.fork_rng():
        found = [float(loss_of(share_of(batch, rank, count).batch)) for rank in range(count)]
        for value, before in zip(model.buffers(), buffers, strict=True):
            value.copy_(before)
    return found
