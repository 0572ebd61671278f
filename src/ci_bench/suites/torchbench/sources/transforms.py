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
    """Transform the model as the case requires.

    Raises `Unsupported` if that is impossible.
    """
    if options.settings.dynamic:
        for axis in options.settings.varies:
            loaded = (varied if axis is Axis.BATCH else varied_in_length)(
                loaded, options.settings.seed
            )
    if options.settings.activation_checkpointing:
        _checkpoint(loaded)
    return loaded


def varied(loaded: Loaded, seed: int) -> Loaded:
    """Make batches of several sizes, in a sequence drawn once from the seed.

    Every arm gets the same.
    """
    if not loaded.batched or loaded.batch_size is None:
        raise Unsupported("dynamic: this model's inputs cannot be cut along a batch dimension")
    sizes = drawn_rows(loaded.batch_size, seed)
    cut = tuple(
        resized(loaded.samples[index % len(loaded.samples)], loaded.batch_size, size)
        for index, size in enumerate(sizes)
    )
    return replace(loaded, samples=cut, rows=sizes)


def varied_in_length(loaded: Loaded, seed: int) -> Loaded:
    """Make sequences of several lengths, drawn once.

    This is in addition to the batches' other differences.
    """
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
    """Return dimension 1 of the first input that looks like a sequence."""
    flat, deep = 2, 3
    sequences = (
        leaf
        for leaf in leaves(sample)
        if leaf.dim() == (deep if leaf.is_floating_point() else flat)
    )
    return next((int(leaf.shape[1]) for leaf in sequences), None)


def resized(sample: Sample, batch: int, size: int, *, dim: int = 0) -> Sample:
    """Return the sample with `size` rows.

    They are the first ones of its `batch`, and again from the first if there are too few. With
    `dim` 1, a sequence of `batch` positions gets `size` positions in the same way.

    Raises:
        Unsupported: no tensor has `batch` rows.
    """
    resized_count = 0

    def cut(value: Any) -> Any:
        nonlocal resized_count
        if not isinstance(value, Tensor) or value.dim() <= dim or value.shape[dim] != batch:
            return value
        resized_count += 1
        places = torch.tensor([index % batch for index in range(size)], device=value.device)
        return value.index_select(dim, places)

    args, kwargs = pytree.tree_map(cut, sample.args), pytree.tree_map(cut, dict(sample.kwargs))
    if not resized_count:
        raise Unsupported(
            f"no input has {batch} {'positions' if dim else 'rows'}, so its"
            f" {'sequence' if dim else 'batch'} cannot be cut"
        )
    return Sample(args=args, kwargs=kwargs, target=pytree.tree_map(cut, sample.target))


def _checkpoint(loaded: Loaded) -> None:
    """Turn on activation checkpointing.

    Transformers' models have a method for it; others would have to be taken apart.
    """
    enable = getattr(loaded.module, "gradient_checkpointing_enable", None)
    if enable is None:
        raise Unsupported(
            "activation_checkpointing: only models with gradient_checkpointing_enable, as"
            " transformers', can do it"
        )
    enable()


def leaves(sample: Sample) -> Iterator[Tensor]:
    """Yield all tensors of a sample's arguments."""
    yield from (
        leaf
        for leaf in pytree.tree_leaves((sample.args, dict(sample.kwargs)))
        if isinstance(leaf, Tensor)
    )
