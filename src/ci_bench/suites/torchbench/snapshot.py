"""Results of one step as named tensors: outputs, loss, gradients, parameters, buffers.

The optimizer's state is added. Any tree of outputs is walked: mappings, sequences, and objects with
attributes. Its structure is compared as well.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ci_bench.suites.shared.worker.digests import checksum, plain_parts
from ci_bench.suites.torchbench.status import ModelFailed

MAX_DEPTH, MAX_OBJECT_DEPTH = 20, 5
Leaves = dict[str, Tensor]
State = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state after a step, on the host."""

    outputs: Leaves
    """Tensors among the outputs, by path."""
    other: Mapping[str, str]
    """Outputs other than tensors as text, by path, with the structure."""
    loss: Tensor | None
    """The loss, detached; `None` in inference."""
    gradients: Leaves
    """Gradients by parameter; those without one are left out."""
    parameters: State
    """Parameters by name; of quantised ones their parts."""
    buffers: State
    """Buffers by name."""


def take(module: nn.Module, outputs: Any, loss: Tensor | None) -> Snapshot:
    """Copy everything that a step left to the host.

    Raises `ModelFailed` if a gradient is sparse.
    """
    leaves: Leaves = {}
    other: dict[str, str] = {}
    for name, leaf in flatten(outputs, "outputs"):
        if isinstance(leaf, Tensor):
            leaves[name] = _host(leaf)
        else:
            other[name] = leaf
    gradients = {
        name: _host(value.grad)
        for name, value in module.named_parameters()
        if value.grad is not None
    }
    for name, gradient in gradients.items():
        if gradient.layout is not torch.strided:
            raise ModelFailed(
                f"the gradient of {name} is sparse and cannot be compared: build the layer with"
                " `sparse=False`"
            )
    return Snapshot(
        outputs=leaves,
        other=other,
        loss=None if loss is None else _host(loss),
        gradients=gradients,
        parameters=parameters_of(module),
        buffers=buffers_of(module),
    )


def parameters_of(module: nn.Module) -> State:
    """Copy all parameters to the host; of quantised ones the tensors that they are made of."""
    return {
        part: _host(tensor)
        for name, value in module.named_parameters()
        for part, tensor in plain_parts(name, value)
    }


def buffers_of(module: nn.Module) -> State:
    """Copy all buffers to the host, including those that no state dict holds."""
    return {name: _host(value) for name, value in module.named_buffers()}


def digests_of(module: nn.Module) -> dict[str, tuple[Any, ...]]:
    """Return a digest of each buffer, computed on its device.

    Large ones (caches, tables) are not copied to the host.
    """
    parts = (part for name, value in module.named_buffers() for part in plain_parts(name, value))
    return {
        name: (value.dtype, tuple(value.shape), checksum(value.detach())) for name, value in parts
    }


def _host(value: Tensor) -> Tensor:
    return value.detach().to("cpu", copy=True)


def leaves_of(outputs: Any) -> list[Tensor]:
    """Return the tensors of a step's result.

    pytree, which compilers see through, does not know dataclasses.
    """
    tensors = [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]
    return tensors or [leaf for _, leaf in flatten(outputs, "outputs") if isinstance(leaf, Tensor)]


def flatten(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Tensor | str]]:
    """Yield the leaves of a tree by path.

    A tensor is itself. A leaf without tensors becomes its text, a container its length.
    """
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, bool | int | float | str | None):
        yield path, repr(value)
    elif depth >= MAX_DEPTH:
        yield path, f"nested deeper than {MAX_DEPTH}"
    else:
        children = dict(_children(value))
        yield path, f"{_kind(value)} of {len(children)}"
        for name, child in children.items():
            yield from flatten(child, f"{path}.{name}", depth + 1)


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(index), item) for index, item in enumerate(value))
    elif is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    else:
        attributes = getattr(value, "__dict__", {})
        yield from ((name, item) for name, item in attributes.items() if _holds_tensors(item))


def _holds_tensors(value: Any, depth: int = 0) -> bool:
    """Return true if an attribute of a foreign object is worth comparing.

    Its bookkeeping is not.
    """
    if isinstance(value, Tensor):
        return True
    if depth >= MAX_OBJECT_DEPTH or isinstance(
        value, str | bytes | int | float | None | type | nn.Module
    ):
        return False
    if isinstance(value, Mapping):
        return any(_holds_tensors(item, depth + 1) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_tensors(item, depth + 1) for item in value)
    return any(_holds_tensors(item, depth + 1) for item in getattr(value, "__dict__", {}).values())


def _kind(value: Any) -> str:
    """Name the kind of a container; lists and tuples are both sequences.

    Dynamo may give one for the other, and no caller is misled.
    """
    if isinstance(value, list) or type(value) is tuple:
        return "sequence"
    return "mapping" if type(value) is dict else type(value).__name__


def load_state(module: nn.Module, parameters: State, buffers: State) -> None:
    """Write parameters and buffers in place, so compiled code need not notice.

    Casts to the module's own types.
    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            for part, tensor in plain_parts(name, parameter):
                tensor.copy_(parameters[part])
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])


def state_of(state_dict: dict[str, Any], numbers: list[int]) -> dict[str, Any]:
    """Copy an optimizer's state for some of its parameters, by their numbers.

    The state of several groups can only be copied for all together.
    """
    if len(state_dict["param_groups"]) > 1:
        return copy.deepcopy(state_dict)
    state = {
        place: state_dict["state"][number]
        for place, number in enumerate(numbers)
        if number in state_dict["state"]
    }
    (group,) = state_dict["param_groups"]
    return copy.deepcopy(
        {"state": state, "param_groups": [{**group, "params": list(range(len(numbers)))}]}
    )


def load_optimizer(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
    """Write the state in place; a tensor without one has none afterwards, as before a step."""
    ordered = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    with torch.no_grad():
        for index, parameter in enumerate(ordered):
            theirs, ours = state_dict["state"].get(index), optimizer.state.get(parameter)
            if theirs is None:
                optimizer.state.pop(parameter, None)
                continue
            if not ours:
                optimizer.state[parameter] = pytree.tree_map_only(
                    Tensor, partial(_placed, like=parameter), copy.deepcopy(theirs)
                )
                continue
            for name, value in ours.items():
                if isinstance(value, Tensor):
                    value.copy_(theirs[name])


def _placed(value: Tensor, *, like: Tensor) -> Tensor:
    """Move a value to a parameter's device.

    A count of steps stays on the host, where optimizers start it.
    """
    return value.to(like.device) if value.dim() else value


def widen_complex(optimizer: torch.optim.Optimizer) -> None:
    """Convert the state of complex parameters to their type.

    `load_state_dict` does it only for real ones.
    """
    for parameter, state in optimizer.state.items():
        if parameter.is_complex():
            state.update(
                {
                    name: value.to(parameter.dtype)
                    for name, value in state.items()
                    if _is_complex(value)
                }
            )


def _is_complex(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_complex()
