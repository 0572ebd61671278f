"""Checkpoints of a training in one layout that another layout, or one process, resumes from.

torch's distributed checkpoint saves and loads them, each process its own shards of weights, buffers
and optimizer state (https://docs.pytorch.org/docs/stable/distributed.checkpoint.html), or the
user's own functions do. The names in a checkpoint are those of the whole model, even if a layout or
the stage of a pipeline uses other names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from ci_bench.suites.contract import Ranks
from ci_bench.suites.shared.worker.user_code import load_named
from ci_bench.suites.training_loss.model_files import BadModel
from ci_bench.suites.training_loss.options import Checkpointing


@dataclass(frozen=True, kw_only=True, slots=True)
class Shelf:
    """Checkpoints of a case, a folder for each arm that saves one; saves and loads them."""

    options: Checkpointing
    folder: Path
    arms: tuple[str, ...]

    def of(self, arm: str) -> Path:
        """Return the folder of an arm's checkpoint."""
        return self.folder / str(self.arms.index(arm))

    def save(
        self,
        arm: str,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        names: Mapping[str, str],
        ranks: Ranks | None,
    ) -> None:
        """Save this process's part.

        A collective if several `ranks` share the training.
        """
        self.of(arm).mkdir(parents=True, exist_ok=True)
        if self.options.save is not None:
            load_named(self.options.save, option="checkpoint.save")(model, optimizer, self.of(arm))
        else:
            from torch.distributed.checkpoint.state_dict_saver import save

            save(
                state_of(model, optimizer, names), checkpoint_id=self.of(arm), no_dist=ranks is None
            )
        if ranks is not None:
            torch.distributed.barrier()

    def load(
        self,
        arm: str,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        names: Mapping[str, str],
        ranks: Ranks | None,
    ) -> None:
        """Load the state of an arm's training into a model and an optimizer that have not trained.

        A collective likewise.

        A collective likewise.
        """
        # torch takes an optimizer whose parameters have gradients for one that has trained.
        optimizer.zero_grad(set_to_none=True)
        if self.options.load is not None:
            load_named(self.options.load, option="checkpoint.load")(model, optimizer, self.of(arm))
            return
        from torch.distributed.checkpoint.state_dict_loader import load

        state = state_of(model, optimizer, names)
        load(state, checkpoint_id=self.of(arm), no_dist=ranks is None)
        put_back(state, model, optimizer, names)


MODEL, OPTIMIZER = "model", "optimizer"


def state_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, names: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return the contents of a checkpoint, by the whole model's names.

    Sharded tensors stay sharded. The optimizer's state has a separate entry for each place.
    """
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
    )

    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    return {
        MODEL: _renamed(get_model_state_dict(model), names),
        OPTIMIZER: {
            f"{kind}.{_renamed_place(place, names)}": value
            for key, value in get_optimizer_state_dict(model, optimizer, options=flat).items()
            for kind, _, place in [key.partition(".")]
        },
    }


def put_back(
    state: Mapping[str, Mapping[str, Any]],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    names: Mapping[str, str],
) -> None:
    """Write a state of `state_of`, filled in by a checkpoint, into model and optimizer."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    layout_names = {full_name: name for name, full_name in names.items()}
    set_model_state_dict(model, _renamed(state[MODEL], layout_names))
    flat = {
        f"{kind}.{_renamed_place(place, layout_names)}": value
        for key, value in state[OPTIMIZER].items()
        for kind, _, place in [key.partition(".")]
    }
    set_optimizer_state_dict(
        model, optimizer, flat, options=StateDictOptions(flatten_optimizer_state_dict=True)
    )


def names_in_whole(model: nn.Module, full_ids: Mapping[str, int]) -> dict[str, str]:
    """Return the whole model's name of each parameter and buffer of a layout's model.

    Equal names are left out. `full_ids` has the `id` of each tensor of the whole model, by name,
    from before the layout was made. A tensor is matched by identity, else by its name: layouts
    replace parameters with shards.

    Raises:
        BadModel: the whole model has no such tensor.
    """
    by_id = {identity: name for name, identity in full_ids.items()}
    renames, unknown = {}, []
    for name, value in _tensors(model):
        there = by_id.get(id(value), name)
        if there not in full_ids:
            unknown.append(name)
        elif there != name:
            renames[name] = there
    if unknown:
        examples = ", ".join(unknown[:3])
        raise BadModel(
            "checkpoint: the layout trains tensors that the model does not have, so no other"
            f" layout can load them: {examples}; set your own `checkpoint.save` and"
            " `checkpoint.load`, or remove `checkpoint`"
        )
    return renames


def identities(model: nn.Module) -> dict[str, int]:
    """Return the `id` of each tensor that a checkpoint of a model holds, by name."""
    return {name: id(value) for name, value in _tensors(model)}


def _tensors(model: nn.Module) -> Iterable[tuple[str, Tensor]]:
    state = model.state_dict(keep_vars=True)
    return ((name, value) for name, value in state.items() if isinstance(value, Tensor))


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in values.items()}


def _renamed_place(place: str, names: Mapping[str, str]) -> str:
    """Rename the parameter in a place of an optimizer's state, ``blocks.0.weight.exp_avg``.

    The longest name that fits counts.
    """
    parts = place.split(".")
    for end in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:end])
        if name in names:
            return ".".join([names[name], *parts[end:]])
    return place
