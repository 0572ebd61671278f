"""A suite of six small CPU workloads with a real plant: what `real_work` measures.

The planning half, no torch here.

With `PLANT` in a side's environment each step does one repetition more than `REPEATS`: the side is
slower by 1 / `REPEATS`.
"""

from collections.abc import Mapping
from typing import Any

from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import Stage, StageKind, Suite

WORK = ("matmul", "dispatch", "mlp_step", "convolution", "lstm_step", "copy")
REPEATS = 20
PLANT = "CI_BENCH_WORK_PLANT"


class WorkSuite(Suite):
    """One case for each workload, with one arm."""

    name = "work"
    worker = "benchmarks.work_suite_worker"
    preload: tuple[str, ...] = ("torch",)

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Plan all workloads; there are no options."""
        return tuple(
            Case(
                id=f"work/{name}",
                suite="work",
                name=name,
                params=dict(options),
                arms=("eager",),
                reference="eager",
                due=Due(times=("step_time",)),
            )
            for name in WORK
        )

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Return only the stage of timing."""
        return (Stage(kind=StageKind.TIME, arms=case.arms, launches=None),)


SUITE = WorkSuite()
