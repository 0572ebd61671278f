"""The optimizer of a training case, by its name in `torch.optim`."""

import difflib
import inspect
from typing import Any

import torch
from torch import nn

from ci_bench.suites.transformers.configuration import BadModel
from ci_bench.suites.transformers.options import Options, Precision

SMALLEST_EPS = 1e-4
"""Adam's 1e-8 is zero in fp16, and the first update then 0 / 0."""


def build_optimizer(options: Options, model: nn.Module, device: str) -> torch.optim.Optimizer:
    """The named optimizer over all trained parameters.

    Capturable on a GPU where a candidate compiles the whole step, since CUDA graphs need it; then in both arms.

    Raises:
        BadModel: an option that this optimizer does not have, or a value that it refuses.
    """
    kind = getattr(torch.optim, options.optimizer)
    known = [name for name in inspect.signature(kind).parameters if name not in {"params", "lr"}]
    arguments: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.optimizer_options.items()
    }
    for name in arguments:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise BadModel(f"optimizer_options.{name}: torch.optim.{options.optimizer} does not take this option ({hint})")
    whole = options.candidate is not None and options.candidate.whole
    if device.startswith("cuda") and whole and "capturable" in known:
        arguments.setdefault("capturable", True)
    if options.precision is Precision.FP16 and "eps" in known:
        arguments.setdefault("eps", SMALLEST_EPS)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        built: torch.optim.Optimizer = kind(trained, lr=options.lr, **arguments)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        message = f"optimizer_options: torch.optim.{options.optimizer} refuses {arguments} with lr {options.lr}: {error}"
        raise BadModel(message) from error
    return built
