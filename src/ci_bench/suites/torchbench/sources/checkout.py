"""A checkout of the TorchBench repository, or a folder laid out like it.

A model is ``torchbenchmark.models.<name>.Model``. The checkout is put in front of ``sys.path``;
nothing is installed and nothing downloaded: a model whose packages or data are missing fails to
load, by name. The special cases are the dynamo runner's.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.torchbench.catalogue import FOLDERS, PACKAGE
from ci_bench.suites.torchbench.options import BenchMode, TorchbenchOptions
from ci_bench.suites.torchbench.sources.loaded import Loaded, as_sample

DETECTOR = "vision_maskrcnn"
UNTRAINED_WITH_GRADIENTS = ("maml",)
"""Models whose forward pass needs autograd in inference as well."""


def load(options: TorchbenchOptions, device: str) -> Loaded:
    """Construct a model of the checkout.

    Raises:
        Unsupported: the model refuses this mode, device or batch size.
        LookupError: the checkout has no such model.
    """
    root = Path(options.path or ".").expanduser().resolve()
    with _inside(root):
        benchmark = _construct(_model_class(options.model, root), options, device)
        module, inputs = benchmark.get_module()
    _mend(options.model, module)
    batch = _batch_size(options.model, benchmark)
    sample = as_sample(_inputs(options.model, inputs, batch, device))
    return Loaded(
        module=module,
        samples=(sample,),
        loss=None,
        batch_size=batch,
        train_mode=(
            False if options.model == DETECTOR and options.mode is BenchMode.TRAINING else None
        ),
        grad_in_inference=options.model in UNTRAINED_WITH_GRADIENTS,
    )


def _model_class(name: str, root: Path) -> Any:
    for folder in FOLDERS:
        module = _import(f"{PACKAGE}.{folder}.{name}")
        if module is not None:
            model_class = getattr(module, "Model", None)
            if model_class is None:
                raise LookupError(f"{PACKAGE}.{folder}.{name} has no class Model")
            return model_class
    raise LookupError(f"the checkout {root} has no model {name!r} under {' or '.join(FOLDERS)}")


def _import(name: str) -> ModuleType | None:
    """Import the module; `None` if it is missing.

    A failing import inside of it is its own error.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (error.name == name or name.startswith(error.name + ".")):
            return None
        raise


def _construct(model: Any, options: TorchbenchOptions, device: str) -> Any:
    """Construct the model; without a batch size, its constructor decides.

    It takes that of the GPU's metadata, then the class's default.
    """
    batch_size = options.settings.batch_size
    if not getattr(model, "ALLOW_CUSTOMIZE_BSIZE", True):
        batch_size = None
    if not hasattr(model, "name"):
        model.name = options.model
    more = (
        {"model_kwargs": {"box_detections_per_img": 4}}
        if options.model == DETECTOR and options.mode is BenchMode.TRAINING
        else {}
    )
    test = "train" if options.mode is BenchMode.TRAINING else "eval"
    try:
        return model(
            test=test, device=device.partition(":")[0], batch_size=batch_size, extra_args=[], **more
        )
    except NotImplementedError as error:
        raise Unsupported(
            f"{options.model} does not do {test} on {device}: {str(error) or 'not implemented'}"
        ) from error


def _batch_size(name: str, benchmark: Any) -> int | None:
    """Return the batch size in effect; two models do not report it."""
    fixed = {"maml_omniglot": 5, DETECTOR: 1}
    size = fixed.get(name, getattr(benchmark, "batch_size", None))
    return None if size is None else int(size)


def _inputs(name: str, inputs: Any, batch: int | None, device: str) -> Any:
    """Return example inputs; those of one model do not fit its module."""
    if name == "yolov3":
        return (torch.rand(batch or 1, 3, 384, 512, device=device),)
    return inputs


def _mend(name: str, module: nn.Module) -> None:
    """Change settings of a model that would make two of its steps differ."""
    config: Any = getattr(module, "config", None)
    if name.startswith("hf") and hasattr(config, "use_cache"):
        config.use_cache = False
    if name.startswith("basic_gnn_"):
        for inner in module.modules():
            loose = {
                key: value
                for key, value in vars(inner).items()
                if isinstance(value, Tensor) and value.requires_grad
            }
            for key, value in loose.items():
                delattr(inner, key)
                inner.register_parameter(key, nn.Parameter(value.detach()))


@contextmanager
def _inside(root: Path) -> Iterator[None]:
    """Enter the checkout's folder, with it in front of the path, as its models expect."""
    before = Path.cwd()
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    os.chdir(root)
    try:
        yield
    finally:
        os.chdir(before)
