"""Interface of all model sources: a module on the CPU, its samples, a loss, its peculiarities.

This module also lists which module loads which source.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ci_bench.suites.torchbench.options import ModelSource, TorchbenchOptions

Loss = Callable[[Any, Any], Tensor]
"""Outputs and target to a scalar."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One prepared batch: arguments of the model, and the loss's target (any tree of tensors)."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    target: Any = None


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A fresh model from a source."""

    module: nn.Module
    """The model, on the CPU or the device."""
    samples: tuple[Sample, ...]
    """The prepared batches."""
    loss: Loss | None
    """The loss of outputs and target; `None` for a random projection of the outputs."""
    batch_size: int | None
    """The number of rows of a batch; `None` if rows mean nothing."""
    batched: bool = True
    """True if every tensor whose first dimension is the batch size can be cut along it."""
    rows: tuple[int, ...] = ()
    """The sizes of the samples if they differ; else empty."""
    sequence: int | None = None
    """The size of dimension 1 of sequences; `None` if the source does not know it."""
    train_mode: bool | None = None
    """True for the training mode, false for evaluation; `None` follows the case's mode."""
    grad_in_inference: bool = False
    """True if the forward pass needs autograd in inference, too."""


class Loader(Protocol):
    """A source of models, in the worker. Same seed, same bytes."""

    def __call__(self, options: TorchbenchOptions, device: str) -> Loaded:
        """Load the model of the case.

        Raises `Unsupported` if the model reports that it cannot run here.
        """


def as_sample(inputs: Any, target: Any = None) -> Sample:
    """Convert example inputs to a sample.

    A mapping names arguments, a sequence lists them, anything else is the only one.
    """
    if isinstance(inputs, Mapping):
        return Sample(kwargs=dict(inputs), target=target)
    return Sample(
        args=tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,), target=target
    )


def leading_rows(sample: Sample) -> int | None:
    """Return the first dimension of the first tensor that has one, known as the batch size."""
    leaves = pytree.tree_leaves((sample.args, dict(sample.kwargs)))
    return next(
        (int(leaf.shape[0]) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()), None
    )


def optional(package: str) -> Any:
    """Import a package that ci-bench does not require.

    Raises `ImportError` without it.
    """
    return importlib.import_module(package)


_MODULES = {
    ModelSource.ZOO: "zoo",
    ModelSource.TORCHBENCH: "checkout",
    ModelSource.HUGGINGFACE: "huggingface",
    ModelSource.TIMM: "timm_models",
    ModelSource.OWN: "own",
}


def find_loader(source: ModelSource) -> Loader:
    """Return the `load` of a source's module, imported on request."""
    loader: Loader = import_module(f"ci_bench.suites.torchbench.sources.{_MODULES[source]}").load
    return loader
