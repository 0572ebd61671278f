"""The optimizer of a training case, and its shadow in fp64, which shows the right updates."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from ci_bench.suites.shared.worker.freshness import WEIGHTS, write_state
from ci_bench.suites.shared.worker.optimizers import (
    SMALLEST_EPS,
    longest_memory,
    make_optimizer,
    same_in_fp64,
    updates_by_known_gradients,
)
from ci_bench.suites.shared.worker.sharing import unsharded
from ci_bench.suites.shared.worker.user_code import is_import_path
from ci_bench.suites.transformers.options import TransformersOptions, TransformersPrecision


def build_optimizer(
    options: TransformersOptions, model: nn.Module, device: str, *, capturable: bool = False
) -> torch.optim.Optimizer:
    """Build the named optimizer over all trained parameters.

    Raises:
        BadOptimizer: it does not fit its options.
    """
    return make_optimizer(
        options.optimizer,
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=options.lr,
        options=options.optimizer_options,
        device=device,
        capturable=capturable,
        defaults={"eps": SMALLEST_EPS} if options.precision is TransformersPrecision.FP16 else {},
    )


class Shadow:
    """The same optimizer on the CPU in fp64.

    Its weights are a model's at the beginning, again and again.
    """

    def __init__(self, options: TransformersOptions, model: nn.Module) -> None:
        """Copy the trained weights, as `starts`: whole ones, also of a sharded model."""
        trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self.starts = {
            name: unsharded(value).detach().cpu().clone() for name, value in trained.items()
        }
        self._weights = {
            name: nn.Parameter(value.to(torch.float64, copy=True))
            for name, value in self.starts.items()
        }
        weights = next(iter(self.starts.values())).dtype
        fp64_options = same_in_fp64(options.optimizer, options.optimizer_options, weights)
        self._options = replace(options, optimizer_options=fp64_options)
        self._optimizer = self._make(self._weights.values())

    def _make(self, weights: Iterable[Tensor]) -> torch.optim.Optimizer:
        return build_optimizer(self._options, nn.ParameterList(weights), "cpu")

    def restore(self, model: nn.Module) -> None:
        """Write a model's start weights back."""
        write_state({f"{WEIGHTS}{name}": value for name, value in self.starts.items()}, model)

    def changes(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the change that each weight should make after these gradients.

        The optimizer keeps its state from call to call.
        """
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(self.starts[name])
                weight.grad = gradients[name].double() if name in gradients else None
        self._optimizer.step()
        return {
            name: weight.detach() - self.starts[name].double()
            for name, weight in self._weights.items()
        }

    def known_updates(self) -> dict[str, Tensor]:
        """Return the optimizer's updates by known gradients, from the start weights."""
        separately = not is_import_path(self._options.optimizer)
        return updates_by_known_gradients(self._make, self.starts, separately=separately)

    @property
    def memory(self) -> float:
        """The optimizer's longest memory: Adam's second beta, 0 without one."""
        return longest_memory(self._options.optimizer, self._optimizer.param_groups)
