"""The suite's first half: plans the cases, and needs no torch."""

from collections.abc import Mapping
from typing import Any

from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import Stage, StageKind, Suite

ARMS = ("torch", "kernel")
SIZE = {"type": "integer", "minimum": 1, "maximum": 65536}


class RowSoftmaxSuite(Suite):
    """A case for each size: our kernel against torch's."""

    name = "row_softmax"
    worker = "row_softmax.worker"
    preload = ("torch",)
    options_schema = {  # noqa: RUF012
        "type": "object",
        "additionalProperties": False,
        "properties": {"rows": SIZE, "columns": SIZE},
    }

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Plan one case for each entry of ci-bench.yml."""
        sizes = {"rows": 256, "columns": 1024, **options}
        name = f"{sizes['rows']}x{sizes['columns']}"
        due = Due(checks=("accuracy",), times=("step_time",))
        return (
            Case(
                id=f"row_softmax/{name}",
                suite=self.name,
                name=name,
                params=sizes,
                arms=ARMS,
                reference=ARMS[0],
                due=due,
            ),
        )

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Build once, check once, time in every launch."""
        return (
            Stage(kind=StageKind.PREPARE, arms=()),
            Stage(kind=StageKind.VERIFY, arms=case.arms),
            Stage(kind=StageKind.TIME, arms=case.arms, launches=None),
        )


SUITE = RowSoftmaxSuite()
