"""Transformations of a loaded model from any source: batches of several sizes, checkpointing."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.shared.planning.sizes import Axis, drawn_lengths, drawn_rows
from ci_bench.suites.torchbench.options import TorchbenchOptions
from ci_bench.suites.torchbench.sources.loaded import Loaded, Sample


def transformed(loaded: Loaded, options: TorchbenchOptions) -> Loaded:
    """The model as the case requires it. Raises `Unsupported` if that is impossible."""
    if options.settings.dynamic:
        for axis in options.settings.varies:
            loaded = (varied if axis is Axis.BATCH else varied_in_length)(
                loaded, options.settings.seed
            )
    if options.settings.activation_checkpointing:
        _checkpoint(loaded)
    return loaded


def varied(loaded: Loaded, seed: int) -> Loaded:
    """Batches of several sizes, in a sequence drawn once from the seed: every arm gets the same."""
    if not loaded.batched or loaded.batch_size is None:
        raise Unsupported("dynamic: this model's inputs cannot be cut along a batch dimension")
    sizes = drawn_rows(loaded.batch_size, seed)
    cut = tuple(
        resized(loaded.samples[index % len(loaded.samples)], loaded.batch_size, size)
        for index, size in enumerate(sizes)
    )
    return replace(loaded, samples=cut, rows=sizes)


def varied_in_length(loaded: Loaded, seed: int) -> Loaded:
    """Sequences of several lengths, drawn once, in addition to the batches' other differences."""
    length = loaded.sequence or _length_of(loaded.samples[0])
    if length is None:
        raise Unsupported(
            "varies: no input of this model has a sequence (ids [batch, length], or features"
            " [batch, length, width])"
        )
    lengths = drawn_lengths(length, seed)
    samples = loaded.samples
    count = len(samples) if loaded.rows else max(len(samples), len(lengths))
    cut = (
        resized(samples[index % len(samples)], length, lengths[index % len(lengths)], dim=1)
        for index in range(count)
    )
    return replace(loaded, samples=tuple(cut))


def _length_of(sample: Sample) -> int | None:
    """Dimension 1 of the first input that looks like a sequence."""
    flat, deep = 2, 3
    found = (
        one for one in leaves(sample) if one.dim() == (deep if one.is_floating_point() else flat)
    )
    return next((int(one.shape[1]) for one in found), None)


def resized(sample: Sample, batch: int, size: int, *, dim: int = 0) -> Sample:
    """The sample with `size` rows: the first ones of its `batch`, and again from the first where there are too few.

    With `dim` 1 the same of a sequence: what has `batch` positions gets `size`.

    Raises:
        Unsupported: no tensor has `batch` rows.
    """
    found = 0

    def cut(value: Any) -> Any:
        nonlocal found
        if not isinstance(value, Tensor) or value.dim() <= dim or value.shape[dim] != batch:
            return value
        found += 1
        places = torch.tensor([index % batch for index in range(size)], device=value.device)
        return value.index_select(dim, places)

    args, kwargs = pytree.tree_map(cut, sample.args), pytree.tree_map(cut, dict(sample.kwargs))
    if not found:
        raise Unsupported(
            f"no input has {batch} {'positions' if dim else 'rows'}, so its"
            f" {'sequence' if dim else 'batch'} cannot be cut"
        )
    return Sample(args=args, kwargs=kwargs, target=pytree.tree_map(cut, sample.target))


def _checkpoint(loaded: Loaded) -> None:
    """Transformers' models know how; others would have to be taken apart."""
    enable = getattr(loaded.module, "gradient_checkpointing_enable", None)
    if enable is None:
        raise Unsupported(
            "activation_checkpointing: only models with gradient_checkpointing_enable, as"
            " transformers', can do it"
        )
    enable()


def leaves(sample: Sample) -> Iterator[Tensor]:
    """All tensors of a sample's arguments."""
    yield from (
        one
        for one in pytree.tree_leaves((sample.args, dict(sample.kwargs)))
        if isinstance(one, Tensor)
    )
