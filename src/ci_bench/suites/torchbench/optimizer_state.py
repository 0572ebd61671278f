"""What an optimizer keeps of its parameters: parts of it, and writing it back. Imports torch."""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def state_of(whole: dict[str, Any], numbers: list[int]) -> dict[str, Any]:
    """A copy of an optimizer's state for some of its parameters, by their numbers; of several groups only for all together."""
    if len(whole["param_groups"]) > 1:
        return copy.deepcopy(whole)
    state = {place: whole["state"][number] for place, number in enumerate(numbers) if number in whole["state"]}
    (group,) = whole["param_groups"]
    return copy.deepcopy({"state": state, "param_groups": [{**group, "params": list(range(len(numbers)))}]})


def load_optimizer(optimizer: torch.optim.Optimizer, wanted: dict[str, Any]) -> None:
    """Write the state in place; what has none in it has none afterwards, as a parameter that got no gradient yet."""
    ordered = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    with torch.no_grad():
        for index, parameter in enumerate(ordered):
            theirs, ours = wanted["state"].get(index), optimizer.state.get(parameter)
            if theirs is None:
                optimizer.state.pop(parameter, None)
                continue
            if not ours:
                optimizer.state[parameter] = pytree.tree_map_only(Tensor, partial(_placed, like=parameter), copy.deepcopy(theirs))
                continue
            for name, value in ours.items():
                if isinstance(value, Tensor):
                    value.copy_(theirs[name])


def _placed(value: Tensor, *, like: Tensor) -> Tensor:
    """A count of steps stays on the host, where optimizers begin it."""
    return value.to(like.device) if value.dim() else value


def widen_complex(optimizer: torch.optim.Optimizer) -> None:
    """Have the state of complex parameters in their type, as `load_state_dict` has it for real ones."""
    for parameter, kept in optimizer.state.items():
        if parameter.is_complex():
            kept.update({name: value.to(parameter.dtype) for name, value in kept.items() if _is_complex(value)})


def _is_complex(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_complex()
