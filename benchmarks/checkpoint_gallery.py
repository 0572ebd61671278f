"""Checkpoints of one's own, right or with one planted fault: what `layout_parity` has layouts save and load.

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
    """Whether processes share the model: not so of the one process beside them."""
    return any(hasattr(value, "device_mesh") for value in model.state_dict().values())


def save(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Right: weights and optimizer, each process its shards."""
    weights, kept = get_state_dict(model, optimizer)
    save_sharded(
        {"model": weights, "optimizer": kept}, checkpoint_id=folder, no_dist=not is_shared(model)
    )


def load(
    model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, *, loses: str = ""
) -> None:
    """What `save` saved, but for what the planted fault `loses`, which stays as it is in a training that has not begun."""
    fresh = {name: value.detach().clone() for name, value in model.named_parameters()}
    weights, kept = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": kept}
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
    """This process's shards of one block go back to what they were."""
    sharded: dict[str, Any] = dict(model.named_parameters())
    for name, value in sharded.items():
        if name.startswith("blocks.1."):
            value.to_local().copy_(fresh[name].to_local())


def save_half(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """The second block's weights are saved as rank 0 has them: the shards of the others are lost."""
    weights, kept = get_state_dict(model, optimizer)
    if is_shared(model):
        weights = {
            name: _of_first(value) if name.startswith("blocks.1.") else value
            for name, value in weights.items()
        }
    save_sharded(
        {"model": weights, "optimizer": kept}, checkpoint_id=folder, no_dist=not is_shared(model)
    )


def _of_first(value: Any) -> Any:
    """A sharded tensor, gathered, with zeros where other ranks had theirs."""
    whole = value.full_tensor()
    own = value.to_local().shape[0] if value.to_local().dim() else 0
    if rank() == 0 and own:
        whole[own:] = 0
    torch.distributed.broadcast(whole, 0)
    return whole


load_without_state, load_without_counter, load_without_shard, load_other_rate = (
    partial(load, loses=what) for what in ("optimizer", "counter", "shard", "rate")
)
