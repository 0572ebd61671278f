"""The optimizer of a training case, and its shadow in fp64, which tells what it should do."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from ci_bench.suites.optimizers import make_optimizer, same_in_fp64
from ci_bench.suites.transformers.options import Options, Precision

SMALLEST_EPS = 1e-4
"""Adam's 1e-8 is zero in fp16, and the first update then 0 / 0."""


def build_optimizer(options: Options, model: nn.Module, device: str) -> torch.optim.Optimizer:
    """The named optimizer over all trained parameters.

    Capturable on a GPU where a candidate compiles the whole step, since CUDA graphs need it; then in both arms.

    Raises:
        BadOptimizer: it does not fit its options.
    """
    return make_optimizer(
        options.optimizer,
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=options.lr,
        options=options.optimizer_options,
        device=device,
        capturable=options.candidate is not None and options.candidate.whole,
        defaults={"eps": SMALLEST_EPS} if options.precision is Precision.FP16 else {},
    )


class Shadow:
    """The same optimizer on the CPU in fp64, on weights that are a model's at the beginning, again and again."""

    def __init__(self, options: Options, model: nn.Module) -> None:
        """Copies the weights that are trained."""
        trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self._start = {name: value.detach().cpu().clone() for name, value in trained.items()}
        self._weights = {name: nn.Parameter(value.to(torch.float64, copy=True)) for name, value in self._start.items()}
        weights = next(iter(self._start.values())).dtype
        given = same_in_fp64(options.optimizer, options.optimizer_options, weights)
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
