"""Measures whether explaining base between its launches changes its timings.

Head is never explained, in the same paired launches.

Run as ``python -m benchmarks.explained_launches [--launches N] [--only TEXT] [--at-most N] [--json
FILE [--resume]]``. CPU only, one thread; small cases, eager and compiled. Both sides run the same
code, resident and in turns, so that the influence of a launch cancels; two gates one after the
other differ by 18 %. A gate explains after its last launch, when no timing can change any more.
Here base's arms are explained before every launch but the first, in base's own folder, and base's
workers get `explain: always`: anything that explaining leaves behind, or its option changes, is in
base's samples and not in head's. The first launch has no explanation before it, and is shown
separately.
"""

import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

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
from ci_bench.records.config import Explain, RunOptions, Sampling
from ci_bench.records.results import Case, CaseResult, Results, SideName
from ci_bench.runner import runner
from ci_bench.runner.explaining import Explaining
from ci_bench.suites.registry import find_suite

LAUNCHES = 7
RUN = RunOptions(
    device="cpu", threads=1, sampling=Sampling.FIXED, explain=Explain.ALWAYS, explain_s=3600.0
)
PLAN: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (
        "torchbench",
        {"source": "zoo", "models": ["mlp", "encoder"], "mode": "training", "backend": "aot_eager"},
    ),
    (
        "fastrnns",
        {
            "variants": ["aten"],
            "seq_length": 20,
            "batch_size": 16,
            "input_size": 128,
            "hidden_size": 128,
        },
    ),
    (
        "torchbench",
        {"source": "zoo", "models": ["mlp"], "mode": "inference", "backend": "inductor"},
    ),
)


class Alternating(runner._Jobs):  # noqa: SLF001 - what a launch is preceded by is its own business, and this benchmark's
    """Launches between which base is explained; each side's workers know whether theirs is."""

    def _launch(self, plan: runner.Plan) -> None:
        for run in self.runs:
            run.options = replace(
                run.options,
                explain=Explain.ALWAYS if is_explained(run.side.name) else Explain.NEVER,
            )
        if self.launch:
            self._explain()
        super()._launch(plan)


def of_base(**options: Any) -> Explaining:
    """Explain only base."""
    return Explaining(
        **{**options, "runs": [run for run in options["runs"] if is_explained(run.side.name)]}
    )


def is_explained(side: SideName) -> bool:
    """Return whether it is base."""
    return side is SideName.BASE


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """Number of arms of a case that were explained on each side at the end, and of all arms.

    Each is explained again before every launch.
    """

    case: str
    base: int
    head: int
    arms: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON if asked."""
    return collect(
        argv,
        about=__doc__,
        launches=LAUNCHES,
        plan=planned(),
        compare=compare,
        kind=Explained,
        table=table,
    )


def planned() -> list[tuple[Timed, Case]]:
    """Return the measured cases."""
    return [
        (timed, case)
        for name, options in PLAN
        for timed in [Timed(find_suite(name))]
        for case in timed.plan(options)
    ]


def table(differences: Sequence[Difference], explained: Sequence[Explained]) -> str:
    """Render each arm's ratio after explaining, its launch before it, and the explained arms."""
    of = {counts.case: counts for counts in explained}
    after = [replace(difference, ratios=difference.ratios[1:]) for difference in differences]
    rows = [
        {
            "case": difference.case,
            "arm": difference.arm,
            "explained / not": text_of(later.ratios),
            "launches": str(len(later.ratios)),
            "before it": f"{math.expm1(difference.ratios[0]):+.2%}",
            "explained arms": (
                f"{of[difference.case].base} of {of[difference.case].arms};"
                f" head {of[difference.case].head}"
            ),
        }
        for difference, later in zip(differences, after, strict=True)
    ]
    return render(f"Base explained between its launches, head never; {overall(after)}", rows)


def explained_of(case: Case, base: Results, head: Results) -> Explained:
    """Count the arms that have a profile with figures in it."""
    counts = [
        sum(profile.step_s is not None for profile in row_of(side).profiles)
        for side in (base, head)
    ]
    return Explained(case=case.id, base=counts[0], head=counts[1], arms=len(case.arms))


def row_of(results: Results) -> CaseResult:
    """Return the one case of a document."""
    (row,) = results.cases
    return row


def compare(suite: Timed, case: Case, launches: int) -> tuple[list[Difference], Explained]:
    """Measure one case, whose base is explained between its launches."""
    environ = worker_environment(os.environ)
    sides = tuple(Side(name=name, environ=environ) for name in (SideName.BASE, SideName.HEAD))
    run = replace(RUN, launches=launches)
    program, arms = "benchmarks.explained_launches", {case.id: case.arms}
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(runner, "_Jobs", Alternating),
        patch.object(runner, "Explaining", of_base),
    ):
        base, head = measure(
            suite,
            case,
            run=run,
            sides=sides,
            folder=Path(folder),
            program=program,
            to_explain=lambda _: arms,
        )
    return differences_of(case.id, step_times(base), step_times(head)), explained_of(
        case, base, head
    )


if __name__ == "__main__":
    sys.exit(main())
