"""What a case asks to be done to a loaded model, whatever its source: batches of several sizes, checkpointing."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ci_bench.suites.base import Unsupported
from ci_bench.suites.torchbench.options import Options
from ci_bench.suites.torchbench.sources.loaded import Loaded, Sample

SHARES = (1.0, 0.5, 0.75, 1.25, 1.5)


def transformed(loaded: Loaded, options: Options) -> Loaded:
    """The model as the case wants it. Raises `Unsupported` where it cannot be had so."""
    if options.settings.dynamic:
        loaded = varied(loaded, options.settings.seed)
    if options.settings.activation_checkpointing:
        _checkpoint(loaded)
    return loaded


def varied(loaded: Loaded, seed: int) -> Loaded:
    """Batches of several sizes: a sequence drawn once from the seed, so that every arm meets the same one."""
    if not loaded.batched or loaded.batch_size is None:
        raise Unsupported("dynamic: this model's inputs cannot be cut along a batch dimension")
    coin = random.Random(seed)  # noqa: S311 - sizes of batches are no secret
    shares = list(SHARES)
    coin.shuffle(shares)
    sizes = tuple(max(2, round(loaded.batch_size * share)) for share in shares)
    cut = tuple(resized(loaded.samples[index % len(loaded.samples)], loaded.batch_size, size) for index, size in enumerate(sizes))
    return replace(loaded, samples=cut, rows=sizes)


def resized(sample: Sample, batch: int, size: int) -> Sample:
    """The sample with `size` rows: the first ones of its `batch`, and again from the first where there are too few.

    Raises:
        Unsupported: no tensor has `batch` rows.
    """
    found = 0

    def cut(value: Any) -> Any:
        nonlocal found
        if not isinstance(value, Tensor) or not value.dim() or value.shape[0] != batch:
            return value
        found += 1
        return value[[index % batch for index in range(size)]]

    args, kwargs = pytree.tree_map(cut, sample.args), pytree.tree_map(cut, dict(sample.kwargs))
    if not found:
        raise Unsupported(f"no input has {batch} rows, so its batch cannot be cut")
    return Sample(args=args, kwargs=kwargs, target=pytree.tree_map(cut, sample.target))


def _checkpoint(loaded: Loaded) -> None:
    """Transformers' models know how; others would have to be taken apart."""
    enable = getattr(loaded.module, "gradient_checkpointing_enable", None)
    if enable is None:
        raise Unsupported("activation_checkpointing: only models with gradient_checkpointing_enable, as transformers', can do it")
    enable()


def leaves(sample: Sample) -> Iterator[Tensor]:
    """All tensors of a sample's arguments."""
    yield from (one for one in pytree.tree_leaves((sample.args, dict(sample.kwargs))) if isinstance(one, Tensor))
