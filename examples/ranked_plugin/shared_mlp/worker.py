"""The suite's work: what each of several processes does.

Gradients are averaged by DDP, and have to be those of one process.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ci_bench.records.results import Case, Check
from ci_bench.suites.contract import Compiler, Context, Evidence, Mark, Part, Ranks
from ci_bench.suites.shared.worker.batch_parts import BatchKind
from ci_bench.suites.shared.worker.batch_parts import BatchPart as Rows
from ci_bench.suites.shared.worker.numerics import FP32_EPSILON, agree, shaken
from ci_bench.suites.shared.worker.sharing import replicas
from shared_mlp.suite import ONE

ROWS, WIDTH = 48, 64


def open_workload(case: Case, context: Context) -> "Workload":  # noqa: ARG001 - all that differs is how many processes there are
    """Open the workload, once in each process of each worker."""
    return Workload(context)


class Workload:
    """One process of several, or the only one."""

    def __init__(self, context: Context) -> None:
        """Draw the same batch in all processes."""
        self._ranks, self._device = context.ranks, context.device
        generator = torch.Generator().manual_seed(1)
        self._batch = tuple(
            torch.randn(ROWS, width, generator=generator).to(context.device) for width in (WIDTH, 8)
        )

    def prepare(self) -> None:
        """Do nothing: nothing has to be built."""

    def spans(self, arm: str) -> bool:
        """Return whether all processes run an arm together.

        The others wait while the first runs one that they don't.
        """
        return arm != ONE

    def follow(self, order: Mapping[str, Any]) -> None:
        """Do this process's part of the first process's order."""
        self._gradients(order["arm"])

    def open(self, arm: str) -> "Step":
        """Return an arm, ready to be timed; of one that all share, this process's part."""
        ranks = self._ranks if self.spans(arm) else None
        return Step(arm, _model().to(self._device), self._batch, ranks, self._device)

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Take the step with the other processes, and compare its gradients with one process's.

        Only the first process verifies, and orders the others to take part.
        """
        truth = _gradients_of(
            _model().double(), tuple(value.double().cpu() for value in self._batch)
        )
        features, targets = (value.cpu() for value in self._batch)
        moved = shaken({"features": features}, FP32_EPSILON, torch.Generator().manual_seed(2))[
            "features"
        ]
        runs = [_gradients_of(_model(), (each, targets)) for each in (features, moved)]
        return Evidence(
            checks=tuple(self._compared(arm, truth, runs) for arm in arms if self.spans(arm))
        )

    def _compared(
        self, arm: str, truth: dict[str, torch.Tensor], runs: list[dict[str, torch.Tensor]]
    ) -> Check:
        if self._ranks is not None:
            self._ranks.order({"arm": arm})
        agreement = agree(self._gradients(arm), truth=truth, runs=runs, epsilon=FP32_EPSILON)
        return Check(name="accuracy", arm=arm, outcome=agreement.outcome, detail=agreement.detail)

    def _gradients(self, arm: str) -> dict[str, torch.Tensor]:
        """Return the gradients that one step leaves, in every process."""
        step = self.open(arm)
        step.step(lambda: None)
        return _left_by(step.model)


class Step:
    """Forward pass, backward pass and optimizer over the rows of this process."""

    parts: tuple[Part, ...] = ()
    compiler = Compiler.NONE

    def __init__(
        self,
        arm: str,
        model: nn.Module,
        batch: tuple[torch.Tensor, ...],
        ranks: Ranks | None,
        device: str,
    ) -> None:
        """Set `items`: the rows of all processes.

        A loss is weighed so that the mean of all gradients is the whole batch's.
        """
        self.model, self.items = model, ROWS
        self._arm, self._ranks, self._device, self._factor = arm, ranks, device, 1.0
        self._wrapped, self._own = model, batch
        if ranks is not None:
            rows = Rows(rows=ROWS, rank=ranks.rank, count=ranks.count)
            self._wrapped, self._own, self._factor = (
                DistributedDataParallel(model),
                rows.cut(batch),
                rows.factor(BatchKind.MEAN),
            )
        self._optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - a step has no parts to mark
        """Take one step, in all processes together."""
        features, targets = self._own
        self._optimizer.zero_grad()
        loss = (self._wrapped(features) - targets).square().mean()
        (loss * self._factor).backward()
        self._optimizer.step()

    def finish(self) -> tuple[Check, ...]:
        """Check that all processes have the same model."""
        return (
            ()
            if self._ranks is None
            else (replicas(self.model, self._arm, self._ranks, self._device),)
        )


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 8))


def _gradients_of(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    """Return the gradients that one process computes of the entire batch."""
    features, targets = batch
    (model(features) - targets).square().mean().backward()
    return _left_by(model)


def _left_by(model: nn.Module) -> dict[str, torch.Tensor]:
    return {f"gradient: {name}": value.grad.cpu() for name, value in model.named_parameters()}
