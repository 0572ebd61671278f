"""The suite: a training step by one process, and by several that share its batch.

Needs no torch.
"""

from collections.abc import Mapping
from typing import Any

from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import Stage, StageKind, Suite

ONE, SHARED = "one", "shared"
ARMS = (ONE, SHARED)


class SharedMlpSuite(Suite):
    """A case for each number of processes."""

    name = "shared_mlp"
    worker = "shared_mlp.worker"
    preload = ("torch",)
    options_schema = {  # noqa: RUF012
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "processes": {"type": "array", "items": {"type": "integer", "minimum": 2, "maximum": 8}}
        },
    }

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Plan a case for each number of processes: it is other work in each."""
        return tuple(self._case(count) for count in options.get("processes", [2]))

    def _case(self, count: int) -> Case:
        due = Due(checks=("accuracy", "replicas"), times=("step_time",))
        name, params = f"{self.name}/mlp[processes={count}]", {"processes": count}
        return Case(
            id=name, suite=self.name, name="mlp", params=params, arms=ARMS, reference=ONE, due=due
        )

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Return the stages; one with `processes` is done by that many, which the engine starts."""
        count = case.params["processes"]
        return (
            Stage(kind=StageKind.VERIFY, arms=case.arms, processes=count),
            Stage(kind=StageKind.TIME, arms=case.arms, launches=None, processes=count),
        )


SUITE = SharedMlpSuite()
