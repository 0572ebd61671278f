"""Fresh inputs like the prepared ones, and the state at a step's start: for refereed programs.

This module makes other values of given ones without knowing their meaning. In a batch, every
element is drawn from the values at its place in all rows, with replacement. So no row stays, every
sum changes, and the prepared inputs look like any other draw. Ranges, class ids and the values of a
column stay valid. Tensors whose rows mean something as a whole (`_is_structured`: masks, sorted
offsets, one-hot rows, paddings) only have their rows permuted. Without a batch, floating inputs are
scaled by random shares in 0.5..1 by row and by last dimension. Zeros, infinities, signs and ranges
around zero then stay, and a listing of ids is permuted. The program decides what must differ
between steps.
"""

import ctypes
import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

WEIGHTS, BUFFERS, OPTIMIZER, GRADIENTS = "weights.", "buffers.", "optimizer.", "gradients."
HALVES: tuple[Callable[[int], slice], ...] = (
    lambda rows: slice(rows // 2, None),
    lambda rows: slice(rows // 2),
    lambda _: slice(None, None, 2),
)
"""Halves of a number of rows, to be blank if results of all rows say little about each."""
MOVE = ctypes.memmove
"""Held from the start: replacing it in `ctypes` announces no look."""
_ALIGNMENT = 64
"""Bytes of alignment of torch's allocations on the host."""
_FEW = 1024
"""Elements of each tensor that `altered` writes at most: about a microsecond, as a loop of calls
varies by.
"""
_MOST_TOGETHER = 1 << 16
"""Integers of one row that it writes at most."""
_MANY_VALUES = 3
"""Fewer distinct values are marks, such as those of a mask."""
_LOOKED_AT = 1 << 14
"""Elements that are read at most to decide if rows are structured."""

State = dict[str, Tensor]


class Fresh:
    """Makes inputs of one seed: the same tensors get the same values in every program."""

    def __init__(
        self, seed: int, *, rows: int | None, shaken: int = 0, epsilon: float = 0.0
    ) -> None:
        """Seed the values; `rows` is the batch size, `None` if rows mean nothing.

        `shaken` seeds noise of one rounding (`epsilon`); 0: none.
        """
        self._generator = torch.Generator().manual_seed(seed)
        self._seed, self._shaken = seed, shaken
        self._generators = {"cpu": self._generator}
        self._keeps_first = bool(seed % 2)
        self._rows = rows if rows is not None and rows > 1 else None
        self._order = torch.randperm(self._rows, generator=self._generator) if self._rows else None
        self._noises: dict[str, torch.Generator] = {}
        self._epsilon = epsilon

    def inputs(self, tree: Any) -> Any:
        """Return a tree of tensors with other values in new memory; other leaves stay the same."""
        return pytree.tree_map(self._other, tree)

    def targets(self, tree: Any) -> Any:
        """Return a tree of tensors in new memory, with rows permuted as those of the inputs.

        Other values might mean nothing.
        """
        return pytree.tree_map(
            lambda value: self._permuted(value) if _is_plain(value) else value, tree
        )

    def _other(self, value: Any) -> Any:
        if not _is_plain(value):
            return value
        mixed = self._is_batch(value) and not _is_structured(value)
        fresh = self._mixed(value) if mixed else self._permuted(value)
        if value.is_floating_point() and value.dim():
            if not mixed:
                self._scale(fresh)
            if self._keeps_first and value.numel():
                fresh[(0,) * value.dim()] = value[(0,) * value.dim()]
            self._shake(fresh)
        return fresh

    def _is_batch(self, value: Tensor) -> bool:
        return self._order is not None and value.dim() > 0 and value.shape[0] == self._rows

    def _mixed(self, value: Tensor) -> Tensor:
        """Return a copy with its own strides, whose elements are drawn with replacement.

        Each is drawn from those at the same place in all rows.
        """
        generator = _of_device(self._generators, value.device, self._seed)
        places = torch.randint(
            value.shape[0], value.shape, generator=generator, device=generator.device
        )
        return torch.empty_like(value).copy_(value.gather(0, places.to(value.device)))

    def _permuted(self, value: Tensor) -> Tensor:
        """Return a copy with its own strides; permute its rows if it has as many as the batch."""
        fresh = torch.empty_like(value)
        if self._order is not None and self._is_batch(value):
            return fresh.copy_(value[self._order.to(value.device)])
        if self._order is None and _is_listing(value):
            order = torch.randperm(value.shape[-1], generator=self._generator)
            return fresh.copy_(value[..., order.to(value.device)])
        return fresh.copy_(value)

    def _scale(self, fresh: Tensor) -> None:
        """Scale in place by a share for each row and one for each place of the last dimension."""
        for dim in {0, fresh.dim() - 1}:
            shape = [1] * fresh.dim()
            shape[dim] = fresh.shape[dim]
            shares = 1 - torch.rand(shape, generator=self._generator, dtype=torch.float32) / 2
            fresh.mul_(shares.to(fresh.device, fresh.dtype))

    def _shake(self, fresh: Tensor) -> None:
        if self._shaken:
            generator = _of_device(self._noises, fresh.device, self._shaken)
            noise = torch.randn(
                fresh.shape, generator=generator, dtype=torch.float32, device=generator.device
            )
            fresh.copy_(fresh.double() * (1 + self._epsilon * noise.to(fresh.device).double()))


def _of_device(
    generators: dict[str, torch.Generator], device: torch.device, seed: int
) -> torch.Generator:
    """Return the generator of a device, seeded at its first use.

    Values are drawn on the device where they are needed.
    """
    name = str(device)
    if name not in generators:
        generators[name] = torch.Generator(device).manual_seed(seed)
    return generators[name]


def _is_plain(value: Any) -> bool:
    return type(value) is Tensor


def _is_structured(value: Tensor) -> bool:
    """Return true if the rows of a batch mean something as a whole.

    Elements of different rows then make no valid row. Such tensors are marks of few values (masks,
    one-hot rows, token types), infinities (masks that are added), integer rows that ascend or
    descend (offsets, positions), and integer rows that end or start in runs of one value (paddings,
    which a mask may refer to).
    """
    if value.dtype is torch.bool or value.is_complex() or value.dim() == 1:
        return True
    rows = value.detach().reshape(value.shape[0], -1)
    rows = rows[:, : max(2, _LOOKED_AT // value.shape[0])]
    if value.is_floating_point():
        flat = rows.float()
        return not bool(flat.isfinite().all()) or len(torch.unique(flat)) <= _MANY_VALUES
    if len(torch.unique(rows)) <= _MANY_VALUES or rows.shape[1] < 2:  # noqa: PLR2004 - one column is like a label
        return True
    steps = rows.long().diff(dim=1)
    return bool(((steps >= 0).all(dim=1) | (steps <= 0).all(dim=1)).all()) or _is_padded(rows)


def _is_padded(rows: Tensor) -> bool:
    """Return true if one value fills the ends, or the starts, of some rows.

    It must not come between other values.
    """
    for view in (rows, rows.flip(1)):
        last = view[:, -1:]
        runs = (view == last).flip(1).long().cumprod(dim=1).sum(dim=1)
        if bool((runs > 1).any()) and len(torch.unique(view[runs > 1][:, -1])) == 1:
            mark = view[runs > 1][0, -1]
            inside = (view == mark).sum(dim=1) - torch.where(
                last[:, 0] == mark, runs, torch.zeros_like(runs)
            )
            if not bool(inside.any()):
                return True
    return False


def altered(
    target: Any, values: Any, seed: int, *, rows: int | None, all_values: bool = False
) -> Callable[[], None] | None:
    """Prepare a write of a few `values` into the tensors of `target`, a tree of the same form.

    The returned function writes in place, in a few microseconds for each tensor. It writes part of
    one row of the batch, or of any other dimension, drawn by `seed`; of integers a whole row, since
    their elements may belong together. `all_values` writes all. `None`: nothing fits.
    """
    old, new = (
        [leaf for leaf in pytree.tree_leaves(tree) if _is_plain(leaf)] for tree in (target, values)
    )
    if [leaf.shape for leaf in old] != [leaf.shape for leaf in new]:
        return None
    coin = torch.Generator().manual_seed(seed)
    row = int(torch.randint(rows, (), generator=coin)) if rows is not None and rows > 1 else None
    pairs = []
    for before, after in zip(old, new, strict=True):
        in_batch = row is not None and before.dim() > 0 and before.shape[0] == rows
        place = () if all_values else part_of(before, coin, row=row if in_batch else None)
        if place is not None and before.numel():
            pairs.append((before.data[place], after.data[place].clone()))
    return prepared_write(pairs) if pairs else None


def part_of(
    value: Tensor, coin: torch.Generator, *, row: int | None = None, independent: bool = False
) -> tuple[Any, ...] | None:
    """Return an index of a random part of at most `_FEW` elements.

    It is `None` if no part would make a valid tensor. Integers of a `row` may belong together, and
    of no row all of them may, unless elements are `independent` draws.
    """
    together = not (independent or value.is_floating_point() or value.is_complex())
    if together and row is None:
        return () if value.numel() <= _FEW else None
    place: list[Any] = [] if row is None else [row]
    shape = list(value.shape[len(place) :])
    most = _MOST_TOGETHER if together else _FEW
    while shape and math.prod(shape) > most:
        size, inner = shape.pop(0), math.prod(shape)
        count = max(1, most // inner)
        begin = int(torch.randint(size - count + 1, (), generator=coin))
        place.append(slice(begin, begin + count) if inner < most else begin)
        if inner < most:
            break
    return tuple(place)


def prepared_write(pairs: Sequence[tuple[Tensor, Tensor]]) -> Callable[[], None]:
    """Prepare a write of the second of each pair into the first.

    Host memory is moved without torch, which takes half the time: code that computes only after a
    pause must not notice one.
    """
    fast = [
        (target, value.to(target.dtype).contiguous())
        for target, value in pairs
        if _is_movable(target)
    ]
    slow = [pair for pair in pairs if not _is_movable(pair[0])]
    moves = [
        partial(MOVE, to.data_ptr(), value.data_ptr(), to.numel() * to.element_size())
        for to, value in fast
    ]
    return partial(_write_all, moves, slow, fast)


def _write_all(
    moves: Sequence[Callable[[], object]],
    slow: Sequence[tuple[Tensor, Tensor]],
    memory: object,  # noqa: ARG001 - it keeps the memory of `moves`
) -> None:
    for move in moves:
        move()
    for target, value in slow:
        target.copy_(value)


def _is_movable(value: Tensor) -> bool:
    dense = value.layout is torch.strided and value.device.type == "cpu" and value.is_contiguous()
    return dense and not value.is_conj() and not value.is_neg() and not value.is_quantized


def _is_listing(value: Tensor) -> bool:
    """Return true if the last dimension lists ids, of any order.

    Masks, ranges and few repeated marks are not listings.
    """
    integral = value.dtype in {torch.int64, torch.int32}
    if not integral or not value.dim() or value.shape[-1] < 4 or value.numel() != value.shape[-1]:  # noqa: PLR2004 - too few to permute
        return False
    row = value.reshape(-1)
    return len(torch.unique(row)) > 2 and not bool((row[1:] >= row[:-1]).all())  # noqa: PLR2004 - marks such as 0 and 1


def copied(tree: Any) -> Any:
    """Return a tree whose tensors are copies, with their own strides, on the same device."""
    return pytree.tree_map(
        lambda value: torch.empty_like(value).copy_(value) if _is_plain(value) else value, tree
    )


def set_aside(values: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors to the host, with their own strides, in pages outside malloc's heap.

    These copies are kept while steps are timed. In the heap they would decide where later steps
    find memory: steps of a small training took about 1 % longer then. Tensors other than plain
    strided ones are copied as torch copies them.
    """
    simple = [value for value in values if _is_strided(value)]
    sizes = [
        -(-value.numel() * value.element_size() // _ALIGNMENT) * _ALIGNMENT for value in simple
    ]
    if not sum(sizes):
        return [value.detach().to("cpu", copy=True) for value in values]
    pages = mmap.mmap(-1, sum(sizes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    parts = iter(torch.split(torch.frombuffer(pages, dtype=torch.uint8), sizes))
    return [
        (
            _written_to(next(parts), value)
            if _is_strided(value)
            else value.detach().to("cpu", copy=True)
        )
        for value in values
    ]


def kept_aside(tree: Any) -> Any:
    """Copy like `copied`, but set copies of host tensors aside."""
    leaves, form = pytree.tree_flatten(tree)
    hosts = [_is_plain(leaf) and leaf.device.type == "cpu" for leaf in leaves]
    aside = iter(set_aside([leaf for leaf, host in zip(leaves, hosts, strict=True) if host]))
    return pytree.tree_unflatten(
        [next(aside) if host else copied(leaf) for leaf, host in zip(leaves, hosts, strict=True)],
        form,
    )


def _is_strided(value: Tensor) -> bool:
    strided = type(value) in {Tensor, nn.Parameter} and value.layout is torch.strided
    return strided and not value.is_quantized and not value.is_meta and value.numel() > 0


def _written_to(place: Tensor, value: Tensor) -> Tensor:
    """Copy a tensor into the bytes of another one, and return the copy."""
    strides = torch.empty_like(value, device="meta", requires_grad=False).stride()
    size = value.numel() * value.element_size()
    return place[:size].view(value.dtype).as_strided(value.shape, strides).copy_(value.detach())


def overwritten(target: Any, values: Any) -> bool:
    """Write a tree of values into the tensors of another one.

    Returns `False`, and writes nothing, if the two are not of one form.
    """
    old, new = (
        [leaf for leaf in pytree.tree_leaves(tree) if _is_plain(leaf)] for tree in (target, values)
    )
    if [leaf.shape for leaf in old] != [leaf.shape for leaf in new]:
        return False
    with torch.no_grad():
        for before, after in zip(old, new, strict=True):
            before.copy_(after)
    return True


def differs(tree: Any, other: Any) -> bool:
    """Return true if two trees of one form differ in any value."""
    leaves = (
        [leaf for leaf in pytree.tree_leaves(each) if _is_plain(leaf)] for each in (tree, other)
    )
    return any(not torch.equal(first, second) for first, second in zip(*leaves, strict=True))


def read_state(module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> State:
    """Copy weights, buffers, and the optimizer's state of each parameter to the host."""
    tensors = _name_tensors(module)
    state = {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}
    return state | ({} if optimizer is None else _read_optimizer(optimizer))


def write_state(
    state: Mapping[str, Tensor], module: nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Write a state in place, so compiled code need not notice.

    Weights and buffers outside it stay. A tensor that processes share takes its own part of the
    whole one in `state`.
    """
    tensors = _name_tensors(module)
    with torch.no_grad():
        for name, value in tensors.items():
            if name in state:
                _write(value, state[name])
    if optimizer is not None:
        _write_optimizer(state, optimizer)


def _write_optimizer(state: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Write the optimizer's state.

    A parameter that has none in `state` has none afterwards, as before its first gradient. With
    `capturable` its state stays: a CUDA graph may write to its memory.
    """
    for place, name, entries in _list_entries(optimizer):
        stored = state.get(place)
        if stored is None:
            continue
        if isinstance(entries[name], Tensor):
            _write(entries[name], stored)
        else:
            entries[name] = type(entries[name])(stored.item())
    stored_states: dict[int, dict[str, Tensor]] = {}
    for place, stored in state.items():
        if place.startswith(OPTIMIZER):
            number, _, name = place.removeprefix(OPTIMIZER).partition(".")
            stored_states.setdefault(int(number), {})[name] = stored
    groups = [
        (parameter, group) for group in optimizer.param_groups for parameter in group["params"]
    ]
    examples = {name: entries[name] for _, name, entries in _list_entries(optimizer)}
    for index, (parameter, group) in enumerate(groups):
        if index not in stored_states and not group.get("capturable"):
            optimizer.state.pop(parameter, None)
        elif index in stored_states and not optimizer.state.get(parameter):
            new = {
                name: _new(stored, examples.get(name), parameter, group)
                for name, stored in stored_states[index].items()
            }
            optimizer.state[parameter] = new


def _new(stored: Tensor, example: object, parameter: Tensor, group: Mapping[str, Any]) -> Any:
    """Make an entry of a parameter's state, of the kind that other parameters have.

    A count of steps stays on the host, except for capturable and fused optimizers.
    """
    if isinstance(example, int | float):
        return type(example)(stored.item())
    on_device = stored.dim() or group.get("capturable") or group.get("fused")
    if getattr(parameter, "device_mesh", None) is not None and stored.shape == parameter.shape:
        new = torch.empty_like(parameter, dtype=stored.dtype)
        _write(new, stored)
        return new
    return stored.to(parameter.device if on_device else "cpu", copy=True)


def _write(value: Tensor, stored: Tensor) -> None:
    mesh = getattr(value, "device_mesh", None)
    if mesh is not None:
        from torch.distributed.tensor import DTensor, distribute_tensor

        sharded = cast("DTensor", value)
        stored = distribute_tensor(
            stored.to(value.device, value.dtype), mesh, sharded.placements, src_data_rank=None
        )
    with torch.no_grad():
        value.copy_(stored)


def places(module: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Return weights, buffers and optimizer state by their place in a state, not copies.

    Sharded ones stay sharded.
    """
    entries = {
        place: of[name] if isinstance(of[name], Tensor) else torch.tensor(of[name])
        for place, name, of in _list_entries(optimizer)
    }
    return _name_tensors(module) | entries


def _name_tensors(module: nn.Module) -> State:
    weights: State = {f"{WEIGHTS}{name}": value for name, value in module.named_parameters()}
    return weights | {f"{BUFFERS}{name}": value for name, value in module.named_buffers()}


def _read_optimizer(optimizer: torch.optim.Optimizer) -> State:
    """Read tensors, and counts that an optimizer keeps as plain numbers."""
    return {
        place: (
            entries[name].detach().to("cpu", copy=True)
            if isinstance(entries[name], Tensor)
            else torch.tensor(entries[name])
        )
        for place, name, entries in _list_entries(optimizer)
    }


def _list_entries(optimizer: torch.optim.Optimizer) -> list[tuple[str, str, dict[str, Any]]]:
    """List each entry's place in a state, its name, and the mapping that holds it."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return [
        (f"{OPTIMIZER}{index}.{name}", name, optimizer.state[parameter])
        for index, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
        or (isinstance(value, int | float) and not isinstance(value, bool))
    ]


def left_by_training(loss: Tensor | None, module: nn.Module) -> State:
    """Return the loss, gradients and weights that a training step left, not copies."""
    state: State = {} if loss is None else {"loss": loss}
    for name, value in module.named_parameters():
        if value.grad is not None:
            state[f"{GRADIENTS}{name}"] = value.grad
        if value.requires_grad:
            state[f"{WEIGHTS}{name}"] = value
    return state
