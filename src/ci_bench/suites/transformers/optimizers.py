"""The optimizer of a training case, by its name in `torch.optim`, and its shadow in fp64, which tells what it should do."""

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ci_bench.suites.transformers.configuration import BadModel
from ci_bench.suites.transformers.options import Options, Precision

SMALLEST_EPS = 1e-4
"""Adam's 1e-8 is zero in fp16, and the first update then 0 / 0."""

ADAFACTOR_EPS2 = 1e-3
"""Torch's default for the second of its two."""
WAYS_TO_RUN = frozenset({"capturable", "foreach", "fused"})
"""Options that change how an optimizer runs, and not what it computes."""


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


class Shadow:
    """The same optimizer on the CPU in fp64, on weights that are a model's at the beginning, again and again."""

    def __init__(self, options: Options, model: nn.Module) -> None:
        """Copies the weights that are trained."""
        trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self._start = {name: value.detach().cpu().clone() for name, value in trained.items()}
        self._weights = {name: nn.Parameter(value.to(torch.float64, copy=True)) for name, value in self._start.items()}
        given = {name: value for name, value in options.optimizer_options.items() if name not in WAYS_TO_RUN}
        if options.optimizer == "Adafactor":  # where no epsilon is given it takes that of the weights' format
            given.setdefault("eps", [torch.finfo(next(iter(self._start.values())).dtype).eps, ADAFACTOR_EPS2])
        holder = nn.ParameterList(self._weights.values())
        self._optimizer = build_optimizer(replace(options, optimizer_options=given), holder, "cpu")

    def restore(self, model: nn.Module) -> None:
        """Put a model's weights back to where they began."""
        with torch.no_grad():
            for name, value in model.named_parameters():
                if name in self._start:
                    value.copy_(self._start[name])

    def changes(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """How far each weight should move after these gradients; the optimizer's state goes on from call to call."""
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(self._start[name])
                weight.grad = gradients[name].double() if name in gradients else None
        self._optimizer.step()
        return {name: weight.detach() - self._start[name].double() for name, weight in self._weights.items()}

    def moved(self, model: nn.Module) -> dict[str, Tensor]:
        """How far each weight of a model is from where it began."""
        values = dict(model.named_parameters())
        return {name: values[name].detach().cpu().double() - start.double() for name, start in self._start.items()}
