"""The suite: a case for each shape, torch's own kernel against the library's.

Needs no torch.
"""

from collections.abc import Mapping
from typing import Any

from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import Stage, StageKind, Suite

SIZE = {"type": "integer", "minimum": 1}


class RmsNorm(Suite):
    """One case for each entry of ci-bench.yml."""

    name, worker, preload = "rms_norm", "bench.worker", ("torch",)
    options_schema = {  # noqa: RUF012
        "type": "object",
        "additionalProperties": False,
        "properties": {"rows": SIZE, "width": SIZE},
    }

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Plan one case; the shape is its name, and part of its parameters."""
        shape = {"rows": 512, "width": 1024, **options}
        name = f"{shape['rows']}x{shape['width']}"
        due = Due(checks=("accuracy",), times=("step_time",))
        arms = ("torch", "library")
        return (
            Case(
                id=f"rms_norm/{name}",
                suite="rms_norm",
                name=name,
                params=shape,
                arms=arms,
                reference="torch",
                due=due,
            ),
        )

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Check once, time in every launch."""
        verify = Stage(kind=StageKind.VERIFY, arms=case.arms)
        return verify, Stage(kind=StageKind.TIME, arms=case.arms, launches=None)


SUITE = RmsNorm()
