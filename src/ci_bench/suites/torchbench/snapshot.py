"""What one step left behind, as named tensors: outputs, loss, gradients, parameters and buffers.

Any tree of outputs is walked: mappings, sequences, and objects with attributes. Its structure is compared as well.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ci_bench.suites.digests import checksum, plain_parts

MAX_DEPTH, MAX_OBJECT_DEPTH = 20, 5
Leaves = dict[str, Tensor]
State = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state after a step, on the host. `other` are leaves that are no tensors, as text."""

    outputs: Leaves
    other: Mapping[str, str]
    loss: Tensor | None
    gradients: Leaves
    parameters: State
    buffers: State


def take(module: nn.Module, outputs: Any, loss: Tensor | None) -> Snapshot:
    """Copy everything that a step left to the host."""
    leaves: Leaves = {}
    other: dict[str, str] = {}
    for name, leaf in flatten(outputs, "outputs"):
        if isinstance(leaf, Tensor):
            leaves[name] = _host(leaf)
        else:
            other[name] = leaf
    gradients = {name: _host(value.grad) for name, value in module.named_parameters() if value.grad is not None}
    return Snapshot(
        outputs=leaves,
        other=other,
        loss=None if loss is None else _host(loss),
        gradients=gradients,
        parameters=parameters_of(module),
        buffers=buffers_of(module),
    )


def parameters_of(module: nn.Module) -> State:
    """Copies of all parameters, on the host; of quantised ones the tensors that they are made of."""
    return {part: _host(plain) for name, value in module.named_parameters() for part, plain in plain_parts(name, value)}


def buffers_of(module: nn.Module) -> State:
    """Copies of all buffers, on the host, those that no state dict holds included."""
    return {name: _host(value) for name, value in module.named_buffers()}


def digests_of(module: nn.Module) -> dict[str, tuple[Any, ...]]:
    """Return a digest of each buffer, computed where the buffer lies: large ones (caches, tables) are not copied to the host."""
    parts = (part for name, value in module.named_buffers() for part in plain_parts(name, value))
    return {name: (value.dtype, tuple(value.shape), checksum(value.detach())) for name, value in parts}


def _host(value: Tensor) -> Tensor:
    return value.detach().to("cpu", copy=True)


def leaves_of(outputs: Any) -> list[Tensor]:
    """The tensors of what a step returned; pytree, which compilers see through, does not know dataclasses."""
    plain = [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]
    return plain or [leaf for _, leaf in flatten(outputs, "outputs") if isinstance(leaf, Tensor)]


def flatten(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Tensor | str]]:
    """The leaves of a tree by path. A tensor is itself; what holds no tensor is told by its text; containers by their length."""
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
        yield from ((one.name, getattr(value, one.name)) for one in fields(value))
    else:
        found = getattr(value, "__dict__", {})
        yield from ((name, item) for name, item in found.items() if _holds_tensors(item))


def _holds_tensors(value: Any, depth: int = 0) -> bool:
    """Whether an attribute of a foreign object is worth comparing: its bookkeeping is not."""
    if isinstance(value, Tensor):
        return True
    if depth >= MAX_OBJECT_DEPTH or isinstance(value, str | bytes | int | float | None | type | nn.Module):
        return False
    if isinstance(value, Mapping):
        return any(_holds_tensors(item, depth + 1) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_tensors(item, depth + 1) for item in value)
    return any(_holds_tensors(item, depth + 1) for item in getattr(value, "__dict__", {}).values())


def _kind(value: Any) -> str:
    """Lists and tuples alike are sequences: dynamo may give one for the other, and no caller is misled."""
    if isinstance(value, list) or type(value) is tuple:
        return "sequence"
    return "mapping" if type(value) is dict else type(value).__name__


def load_state(module: nn.Module, parameters: State, buffers: State) -> None:
    """Write parameters and buffers in place, so that nothing compiled has to notice; casts to the module's own types."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            for part, plain in plain_parts(name, parameter):
                plain.copy_(parameters[part])
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
