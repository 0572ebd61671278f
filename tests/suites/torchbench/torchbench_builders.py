"""Ways to open and verify one case."""

from pathlib import Path
from typing import Any

from ci_bench.records.results import Check
from ci_bench.suites.contract import Context, Evidence
from ci_bench.suites.torchbench.plan import SUITE
from ci_bench.suites.torchbench.run import open_workload

HERE = Path(__file__).parent
FIXTURES = HERE.parents[1] / "fixtures"
QUICK = {"backend": "aot_eager", "perturbations": 1}


def context(folder: Path | None = None) -> Context:
    return Context(device="cpu", scratch=folder or HERE, progress=lambda arm, done, total: None)


def opened(**entry: Any):
    """The one case of an entry, and its workload."""
    (case,) = SUITE.plan({**QUICK, **entry})
    return case, open_workload(case, context())


def verified(**entry: Any) -> Evidence:
    case, workload = opened(**entry)
    return workload.verify(case.arms)


def own(model: str, **entry: Any) -> dict[str, Any]:
    return {"source": "own", "models": [f"planted_models:{model}"], "mode": "training", **entry}


def checks_of(evidence: Evidence) -> dict[str, Check]:
    return {check.name: check for check in evidence.checks}


def accuracy(**entry: Any) -> Check:
    return checks_of(verified(**entry))["accuracy"]


def word(check: Check) -> str:
    return check.detail.partition(":")[0]
