"""Custom checkpoints for `layout_parity`, right or with one injected fault.

Each function is named in a configuration as a user's own code would be
(``benchmarks.checkpoint_gallery:save``), and is called in every process with model, optimizer and a
folder.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from benchmarks.layout_gallery import rank


def is_shared(model: nn.Module) -> bool:
    """Return whether processes share the model; the single process next to them does not."""
    return any(hasattr(value, "device_mesh") for value in model.state_dict().values())


def save(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Save weights and optimizer, each process its shards (right)."""
    weights, optimizer_state = get_state_dict(model, optimizer)
    save_sharded(
        {"model": weights, "optimizer": optimizer_state},
        checkpoint_id=folder,
        no_dist=not is_shared(model),
    )


def load(
    model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, *, loses: str = ""
) -> None:
    """Load what `save` saved, except for what the fault `loses`.

    That stays as it is in a training that has not started.
    """
    fresh = {name: value.detach().clone() for name, value in model.named_parameters()}
    weights, optimizer_state = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": optimizer_state}
    load_sharded(state, checkpoint_id=folder, no_dist=not is_shared(model))
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    if not is_shared(model):
        return
    if loses == "optimizer":
        optimizer.state.clear()
    if loses == "counter":
        for place in optimizer.state.values():
            place["step"].zero_()
    if loses == "shard" and rank() == 1:
        _unload(model, fresh)
    if loses == "rate":
        for group in optimizer.param_groups:
            group["lr"] *= 0.9


@torch.no_grad()
def _unload(model: nn.Module, fresh: dict[str, Any]) -> None:
    """Reset this process's shards of one block to their earlier values."""
    sharded: dict[str, Any] = dict(model.named_parameters())
    for name, value in sharded.items():
        if name.startswith("blocks.1."):
            value.to_local().copy_(fresh[name].to_local())


def save_half(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Save the second block's weights as rank 0 has them, which loses the others' shards."""
    weights, optimizer_state = get_state_dict(model, optimizer)
    if is_shared(model):
        weights = {
            name: _of_first(value) if name.startswith("blocks.1.") else value
            for name, value in weights.items()
        }
    save_sharded(
        {"model": weights, "optimizer": optimizer_state},
        checkpoint_id=folder,
        no_dist=not is_shared(model),
    )


def _of_first(value: Any) -> Any:
    """Gather a sharded tensor, with zeros instead of the other ranks' shards."""
    gathered = value.full_tensor()
    rows = value.to_local().shape[0] if value.to_local().dim() else 0
    if rank() == 0 and rows:
        gathered[rows:] = 0
    torch.distributed.broadcast(gathered, 0)
    return gathered


load_without_state, load_without_counter, load_without_shard, load_other_rate = (
    partial(load, loses=what) for what in ("optimizer", "counter", "shard", "rate")
)
