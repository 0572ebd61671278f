"""Shared parts of one training in several processes, for all suites. Imports torch.

They are wrapped models, whole tensors of shards, and one state for all. Ranks are those of a stage
of several processes (`ci_bench.suites.contract.Ranks`). Functions that are called collectives must
be called in every one of them. `ci_bench.suites.shared.worker.batch_parts` owns the rows of a rank.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed
from torch import Tensor, nn

from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Ranks
from ci_bench.suites.shared.planning.layouts import DDP, FSDP, Layout
from ci_bench.suites.shared.worker.compiling import without_graphs
from ci_bench.suites.shared.worker.ddp_modes import optimizing_ddp
from ci_bench.suites.shared.worker.freshness import State, places, write_state
from ci_bench.suites.shared.worker.randomness import seed_step
from ci_bench.suites.shared.worker.user_code import load_named

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def shared(layout: Layout, module: nn.Module, ranks: Ranks, device: str) -> nn.Module:
    """Wrap a model that `ranks` train together, to be called as `module` is.

    A collective. It is under DDP, `fully_shard`, or the user's own function.

    Raises:
        TypeError: the user's own function gives no module.
    """
    if layout.layout == DDP:
        return replicated(layout, module, ranks, device)
    if layout.layout == FSDP:
        return fully_sharded(module, layout, mesh_of(ranks, device))
    wrapped = load_named(layout.layout, option="layouts")(module)
    if not isinstance(wrapped, nn.Module):
        raise TypeError(
            f"layouts: {layout.layout} gives {type(wrapped).__name__}; it has to give a"
            " torch.nn.Module"
        )
    return wrapped


def replicated(layout: Layout, module: nn.Module, ranks: Ranks, device: str) -> nn.Module:
    """Wrap the model in DDP."""
    from torch.nn.parallel import DistributedDataParallel

    devices = [ranks.rank] if device.startswith("cuda") else None
    with optimizing_ddp(layout):
        return DistributedDataParallel(module, device_ids=devices, static_graph=layout.static_graph)


def mesh_of(ranks: Ranks, device: str) -> Any:
    """Make a mesh of all ranks in a row."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.partition(":")[0], (ranks.count,))


def fully_sharded(module: nn.Module, layout: Layout, mesh: Any) -> nn.Module:
    """Shard each repeated block as a separate group, and the rest as one.

    In a mesh of two dimensions the outer one holds replicas.
    """
    from torch.distributed.fsdp import fully_shard

    for inner in module.modules():
        if isinstance(inner, nn.ModuleList):
            for block in inner:
                fully_shard(block, mesh=mesh, reshard_after_forward=layout.reshard)
    fully_shard(module, mesh=mesh, reshard_after_forward=layout.reshard)
    return module


def gathered(values: Sequence[float], count: int, device: str) -> list[list[float]]:
    """Return the numbers of every rank, fp64, by rank.

    A collective: every rank calls it.
    """
    local = torch.tensor(values, dtype=torch.float64, device=device)
    all_of = [torch.empty_like(local) for _ in range(count)]
    torch.distributed.all_gather(all_of, local)
    return [numbers.tolist() for numbers in all_of]


def unsharded(value: Tensor) -> Tensor:
    """Return a tensor as one process would have it.

    A collective if it is sharded.
    """
    full = getattr(value, "full_tensor", None)
    tensor: Tensor = value if full is None else full()
    return tensor


def state_of_first(
    state: Mapping[str, Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks,
    device: str,
) -> State:
    """Return rank 0's `state` of each place of model and optimizer, unsharded, in every rank.

    A collective. The `state` of other ranks is not read. Places that rank 0 lacks are left out.
    """
    local = places(model, optimizer)
    there = torch.tensor([name in state for name in local], dtype=torch.uint8, device=device)
    torch.distributed.broadcast(there, 0)
    shared_state: State = {}
    for (name, value), is_there in zip(local.items(), there.tolist(), strict=True):
        if is_there:
            tensor = (
                state[name].to(device, value.dtype)
                if ranks.rank == 0
                else torch.empty(value.shape, dtype=value.dtype).to(device)
            )
            torch.distributed.broadcast(tensor, 0)
            shared_state[name] = tensor
    return shared_state


def whole_state(module: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Return weights, buffers and optimizer state, as one process would have them, on the host.

    A collective.
    """
    return {
        name: unsharded(value).detach().to("cpu", copy=True)
        for name, value in places(module, optimizer).items()
    }


def begin_from(
    state: Mapping[str, Tensor],
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks,
    device: str,
) -> None:
    """Make all ranks start from rank 0's `state`, as of `whole_state`.

    A collective.
    """
    write_state(state_of_first(state, module, optimizer, ranks, device), module, optimizer)


Differing = Mapping[tuple[int, int], Sequence[str]]
"""By a rank, and the first one that holds the same part of them, the tensors that these two have
otherwise.
"""


def differing_replicas(model: nn.Module, ranks: Ranks, device: str) -> Differing:
    """Find tensors in which ranks differ from an earlier rank: whole ones and replicated shards.

    A collective.
    """
    tensors = model.state_dict()
    if not tensors:
        return {}
    shards = gathered([_shard_number(value) for value in tensors.values()], ranks.count, device)
    sums = gathered(
        [fingerprint(local_part(value)) for value in tensors.values()], ranks.count, device
    )
    return differing_parts(list(tensors), shards, sums)


def differing_parts(
    names: Sequence[str], shards: Sequence[Sequence[float]], sums: Sequence[Sequence[float]]
) -> Differing:
    """Return the names of differing tensors, by pair of ranks.

    By rank and place in `names`, `shards` has the rank's part of a tensor, `sums` a number of its
    bytes.
    """
    differing: dict[tuple[int, int], list[str]] = {}
    for place, name in enumerate(names):
        holders: dict[float, int] = {}
        for rank, (parts, total) in enumerate(zip(shards, sums, strict=True)):
            first = holders.setdefault(parts[place], rank)
            if sums[first][place] != total[place]:
                differing.setdefault((first, rank), []).append(name)
    return differing


def local_part(value: Tensor) -> Tensor:
    """Return this rank's part of a tensor."""
    to_local = getattr(value, "to_local", None)
    part: Tensor = value if to_local is None else to_local()
    return part


NOWHERE = -1.0
"""The part of a rank that has none of a tensor: its mesh is of other ranks."""


def _shard_number(value: Tensor) -> float:
    """Return the number of this rank's part of a tensor.

    It is the same in all ranks that hold the same part, 0 for a whole tensor.
    """
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


def fingerprint(value: Tensor) -> float:
    """Return a number that differs if bytes do, but for accidents.

    It has 48 bits of their digest, exact in fp64.
    """
    import hashlib

    raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return float(int.from_bytes(hashlib.sha256(raw).digest()[:6], "big"))


def replicas(module: nn.Module, arm: str, ranks: Ranks, device: str) -> Check:
    """Check that shared parts of a model are the same in all ranks after the timed steps.

    A collective.
    """
    differing = differing_replicas(module, ranks, device)
    if not differing:
        return Check(
            name="replicas",
            arm=arm,
            outcome=Outcome.PASS,
            detail="what ranks share is the same in all",
        )
    detail = (
        f"after the timed steps weights are not those of {'; nor of '.join(_describe(differing))}"
    )
    return Check(name="replicas", arm=arm, outcome=Outcome.FAIL, detail=detail[:1000])


EXACT = 2**52
"""Whole numbers below it are exact in fp64."""


def seed_apart(ranks: Ranks, sharing: int = 1) -> None:
    """Make ranks that were seeded alike draw different masks from here on.

    Each `sharing` consecutive ranks share theirs.
    """
    torch.manual_seed(torch.initial_seed() + ranks.rank // sharing)


def drawn_by(device: str, *, even: bool) -> float:
    """Return a number of this rank's last draw: its generator's state.

    If rows are not `even`, it is the generator's seed: from one seed ranks with other numbers of
    rows start with the same masks, and end in other states.
    """
    if even:
        return fingerprint(_generator(device))
    seed = torch.cuda.initial_seed() if device.startswith("cuda") else torch.initial_seed()
    return float(seed % EXACT)


def _generator(device: str) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.startswith("cuda") else torch.get_rng_state()


def alike_draws(draws: Sequence[Sequence[float]], sharing: int = 1) -> list[int]:
    """Return the ranks that drew (`drawn_by`) the same as an earlier rank with other rows.

    Each `sharing` consecutive ranks have the same rows.
    """
    return [rank for rank, state in enumerate(draws) if state in draws[: rank // sharing * sharing]]


def own_masks(arm: str, draws: Sequence[Sequence[float]], *, where: str, sharing: int = 1) -> Check:
    """Check that ranks with different rows draw different masks, by their draws (`drawn_by`)."""
    alike = alike_draws(draws, sharing)
    if not alike:
        return Check(
            name="own_masks", arm=arm, outcome=Outcome.PASS, detail="each rank draws its own masks"
        )
    detail = (
        f"rank {', '.join(map(str, alike))} draws the same masks as another rank, although its rows"
        f" differ, {where}"
    )
    return Check(name="own_masks", arm=arm, outcome=Outcome.FAIL, detail=detail)


def looked_for_alike_masks(
    step: Callable[[], object], arm: str, ranks: Ranks, device: str, *, seed: int, even: bool
) -> tuple[Check, ...]:
    """Check `own_masks` of one more step, untimed, before which each rank gets a separate seed.

    A collective. Returns no check if no rank drew. `even` means that all ranks have equally many
    rows.
    """
    seed_step(seed)
    seed_apart(ranks)
    before = _generator(device)
    step()
    draws = gathered(
        [drawn_by(device, even=even), float(not torch.equal(before, _generator(device)))],
        ranks.count,
        device,
    )
    if not any(moved for _, moved in draws):
        return ()
    return (
        own_masks(arm, [[drawn] for drawn, _ in draws], where="in a step after the timed ones"),
    )


def forget_graphs() -> None:
    """Reset dynamo: `really_compiled` counts from here."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()


def really_compiled(arm: str) -> Check:
    """Check that dynamo captured a graph of an arm in this process.

    An arm without one runs uncompiled.
    """
    from torch._dynamo.utils import counters

    graphs, operations = (
        int(counters["stats"][name]) for name in ("unique_graphs", "calls_captured")
    )
    if not graphs:
        reasons = counters["unimplemented"]
        detail = "; ".join(["no graph was captured: the step ran uncompiled", *reasons])
        outcome = without_graphs(reasons)
        return Check(name="compiled", arm=arm, outcome=outcome, detail=detail[:1000])
    return Check(
        name="compiled",
        arm=arm,
        outcome=Outcome.PASS,
        detail=f"{graphs} graphs of {operations} operations in rank 0",
    )


def _describe(differing: Differing) -> Iterator[str]:
    """Describe the ranks whose tensors the others should have, with these others and the names."""
    for first in sorted({first for first, _ in differing}):
        others = sorted((rank, names) for (of, rank), names in differing.items() if of == first)
        descriptions = (
            f"rank {rank}: {', '.join(names[:3])}{_more(names[3:])}" for rank, names in others
        )
        yield f"rank {first}: {'; '.join(descriptions)}"


def _more(names: Sequence[str]) -> str:
    return f" and {len(names)} more" if names else ""
