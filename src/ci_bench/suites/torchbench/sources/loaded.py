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
    """One prepared batch: arguments of the model, and the target of the loss (any tree of tensors)."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    target: Any = None


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model, fresh.

    `loss` of `None` asks for a random projection of the outputs: a mean has no gradient behind a
    normalisation. `batch_size` is `None` where rows mean nothing. `batched` says whether every
    tensor whose first dimension is the batch size can be cut along it; `rows` are the sizes of the
    samples where they differ. `sequence` is the size of dimension 1 of what has a sequence, `None`
    if the source does not say. `train_mode` of `None` follows the case's mode.
    """

    module: nn.Module
    samples: tuple[Sample, ...]
    loss: Loss | None
    batch_size: int | None
    batched: bool = True
    rows: tuple[int, ...] = ()
    sequence: int | None = None
    train_mode: bool | None = None
    grad_in_inference: bool = False


class Loader(Protocol):
    """A source of models, in the worker. Same seed, same bytes."""

    def __call__(self, options: TorchbenchOptions, device: str) -> Loaded:
        """The model of the case. Raises `Unsupported` if it cannot run here by its own word."""


def as_sample(inputs: Any, target: Any = None) -> Sample:
    """Example inputs as a sample: a mapping names arguments, a sequence lists them, anything else is the only one."""
    if isinstance(inputs, Mapping):
        return Sample(kwargs=dict(inputs), target=target)
    return Sample(
        args=tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,), target=target
    )


def leading_rows(sample: Sample) -> int | None:
    """The first dimension of the first tensor that has one, by which users call the batch size."""
    leaves = pytree.tree_leaves((sample.args, dict(sample.kwargs)))
    return next(
        (int(leaf.shape[0]) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()), None
    )


def optional(package: str) -> Any:
    """A package that ci-bench does not ask for. Raises `ImportError` if it is not installed."""
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
