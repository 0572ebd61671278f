"""The half of `reference_kernels` that needs no torch.

The suite has no entry in a configuration: `doctor` measures it.
"""

from collections.abc import Mapping
from typing import Any

from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import Stage, StageKind, Suite

ARM = "eager"
WORK = ("matmul", "dispatch", "copy")
"""Workloads: one computes, one only launches, and one only moves bytes."""


class ReferenceKernels(Suite):
    """One case for each kind of work, with one arm."""

    name = "reference_kernels"
    worker = "ci_bench.suites.reference_kernels.run"
    preload: tuple[str, ...] = ("torch",)

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Return all kinds of work; the suite has no options."""
        return tuple(
            Case(
                id=f"reference_kernels/{name}",
                suite="reference_kernels",
                name=name,
                params=dict(options),
                arms=(ARM,),
                reference=ARM,
                due=Due(times=(STEP_TIME.name,)),
            )
            for name in WORK
        )

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Time in every launch; no other stage."""
        return (Stage(kind=StageKind.TIME, arms=case.arms, launches=None),)


SUITE = ReferenceKernels()
