"""Measures the influence of the referee on timing, in paired launches with and without it.

Run as ``python -m benchmarks.referee_cost [--launches N] [--only TEXT] [--at-most N] [--json FILE
[--resume]]``. CPU only, one thread; small cases of all suites whose calls the referee looks at.
Both sides run the same code, resident and in turns as in any paired run; base has the referee and
head has not, so that what a launch does to times cancels. The share of the wall time is that of the
looks and their judgement, read from within by the host's clock.
"""

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.launch_pairs import (
    Difference,
    Timed,
    collect,
    differences_of,
    measure,
    overall,
    step_times,
    text_of,
)
from benchmarks.tables import render
from ci_bench.checkouts.sides import Side
from ci_bench.processes.environ import worker_environment
from ci_bench.records.config import RunOptions, Sampling
from ci_bench.records.results import Case, SideName
from ci_bench.suites.contract import Suite
from ci_bench.suites.registry import find_suite

LAUNCHES = 8
RUN = RunOptions(device="cpu", threads=1, sampling=Sampling.FIXED)
PLAN: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (
        "torchbench",
        {"source": "zoo", "models": ["mlp", "encoder"], "mode": "training", "backend": "aot_eager"},
    ),
    (
        "torchbench",
        {"source": "zoo", "models": ["mlp", "resnet"], "mode": "inference", "backend": "aot_eager"},
    ),
    (
        "transformers",
        {"model": "bert", "batch_size": 4, "sequence_length": 64, "candidate": "aot_eager"},
    ),
    (
        "fastrnns",
        {
            "variants": ["aten", "jit_premul"],
            "seq_length": 20,
            "batch_size": 16,
            "input_size": 128,
            "hidden_size": 128,
        },
    ),
    ("training_loss", {"name": "reviews", "epochs": 1, "backend": "aot_eager"}),
)
ROOT = Path(__file__).resolve().parents[1]
"""The folder that the benchmark's worker is imported from."""
OFF = "CI_BENCH_REFEREE_OFF"
"""In the environment of the side that goes without."""
SPENT = "CI_BENCH_REFEREE_SPENT"
"""A file to which the other side's workers write what their looks and judgements took (s)."""


class Refereed(Timed):
    """A suite whose workers can go without the referee."""

    def __init__(self, suite: Suite) -> None:
        """Wrap the suite whose cases are timed."""
        super().__init__(suite)
        self.worker = "benchmarks.referee_cost_worker"


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Share of the looks at a case in the wall time of measuring it (s).

    It is over both sides and all launches.
    """

    case: str
    referee_s: float
    wall_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON if asked."""
    return collect(
        argv,
        about=__doc__,
        launches=LAUNCHES,
        plan=planned(),
        compare=compare,
        kind=Share,
        table=table,
    )


def planned() -> list[tuple[Refereed, Case]]:
    """Return the measured cases."""
    return [
        (timed, case)
        for name, options in PLAN
        for timed in [Refereed(find_suite(name))]
        for case in timed.plan(options)
    ]


def table(differences: Sequence[Difference], shares: Sequence[Share]) -> str:
    """Render each arm's difference, and its case's share."""
    of = {share.case: f"{share.referee_s / share.wall_s:.2%}" for share in shares}
    rows = [
        {
            "case": difference.case,
            "arm": difference.arm,
            "with / without": text_of(difference.ratios),
            "launches": str(len(difference.ratios)),
            "share of the wall time": of[difference.case],
        }
        for difference in differences
    ]
    return render(f"The referee, on and off in the same launches; {overall(differences)}", rows)


def compare(suite: Timed, case: Case, launches: int) -> tuple[list[Difference], Share]:
    """Measure one case with the referee on base and without it on head."""
    with tempfile.TemporaryDirectory() as folder:
        spent, begun = Path(folder) / "spent", time.monotonic()
        environ = {**worker_environment(os.environ), "PYTHONPATH": str(ROOT)}
        sides = (
            Side(name=SideName.BASE, environ={**environ, SPENT: str(spent)}),
            Side(name=SideName.HEAD, environ={**environ, OFF: "1"}),
        )
        run = replace(RUN, launches=launches)
        base, head = measure(
            suite,
            case,
            run=run,
            sides=sides,
            folder=Path(folder),
            program="benchmarks.referee_cost",
        )
        wall_s = time.monotonic() - begun
        referee_s = sum(map(float, spent.read_text().split())) if spent.exists() else 0.0
    return differences_of(case.id, step_times(base), step_times(head)), Share(
        case=case.id, referee_s=referee_s, wall_s=wall_s
    )


if __name__ == "__main__":
    sys.exit(main())
