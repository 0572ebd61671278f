"""Prepared batches of a model in verification: their tensors, steps, and half blank copies."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ci_bench.suites.contract import no_mark
from ci_bench.suites.shared.worker.digests import checksum
from ci_bench.suites.shared.worker.freshness import HALVES
from ci_bench.suites.torchbench.program import Ready, Result
from ci_bench.suites.torchbench.sources.loaded import Sample


def take_step(ready: Ready, sample: Sample) -> tuple[Result, dict[str, Tensor]]:
    """Take one step, and put back the inputs that it wrote into.

    So the next step begins from the same inputs.

    Returns:
        The step's result, and the inputs it wrote, by names such as ``inputs.0``, on the host.
    """
    tensors = [leaf for leaf in pytree.tree_leaves(parts_of(sample)) if isinstance(leaf, Tensor)]
    before = [(checksum(leaf), leaf.detach().to("cpu", copy=True)) for leaf in tensors]
    result = ready.step(sample, no_mark)
    written = {}
    for place, (leaf, (digest, original)) in enumerate(zip(tensors, before, strict=True)):
        if checksum(leaf) == digest:
            continue
        written[f"inputs.{place}"] = leaf.detach().to("cpu", copy=True)
        if leaf.shape == original.shape:
            with torch.no_grad():
                leaf.copy_(original)
    return result, written


def inputs_of(ready: Ready) -> tuple[Tensor, ...]:
    """Return the tensors of all batches."""
    return tuple(
        leaf
        for leaf in pytree.tree_leaves([parts_of(sample) for sample in ready.samples])
        if isinstance(leaf, Tensor)
    )


def half_blank(sample: Sample, number: int) -> Sample:
    """Copy a sample, with zeros in some rows, or the smallest whole number that comes in it."""
    dim, rows = rows_of(sample)
    place = (*(slice(None),) * dim, HALVES[number](rows))

    def blank(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        copied = value.detach().clone()
        if value.dtype is not torch.bool and value.dim() > dim and value.shape[dim] == rows:
            copied[place] = 0 if value.is_floating_point() or value.is_complex() else value.min()
        return copied

    args, kwargs, target = pytree.tree_map(blank, parts_of(sample))
    return Sample(args=args, kwargs=kwargs, target=target)


def rows_of(sample: Sample) -> tuple[int, int]:
    """Return the largest input's first dimension of size 2 or more, and that size; or 0, 0."""
    leaves = [
        leaf
        for leaf in pytree.tree_leaves((sample.args, dict(sample.kwargs)))
        if isinstance(leaf, Tensor)
    ]
    shape = max((tuple(leaf.shape) for leaf in leaves), key=math.prod, default=())
    return next(((dim, size) for dim, size in enumerate(shape) if size > 1), (0, 0))


def parts_of(sample: Sample) -> tuple[Any, ...]:
    """Return the arguments and the target of a sample, as a tree."""
    return sample.args, dict(sample.kwargs), sample.target
