"""A suite of six kinds of GPU work, timed in every launch. The planning half, no torch here.

`benchmarks.gpu.spread` plans it; it is not an entry of a configuration.
"""

from collections.abc import Mapping
from typing import Any

from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import Stage, StageKind, Suite

WORK = ("products", "copies", "tiny", "mlp_training", "convolution", "lstm")
"""Bound by arithmetic, by memory, by the host; then a training, a convolution, cuDNN's LSTM."""


class CardWork(Suite):
    """One case for each kind of work, with one arm."""

    name = "card_work"
    worker = "benchmarks.gpu.card_work_worker"
    preload: tuple[str, ...] = ("torch",)

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Plan all kinds, or those in `options["only"]`."""
        return tuple(
            Case(
                id=f"{self.name}/{name}",
                suite=self.name,
                name=name,
                params={},
                arms=("eager",),
                reference="eager",
                due=Due(times=("step_time",)),
            )
            for name in options.get("only", WORK)
        )

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Time the case in every launch."""
        return (Stage(kind=StageKind.TIME, arms=case.arms, launches=None),)


SUITE = CardWork()
