"""Whether explaining touches what is timed: base explained between its launches, head never, in the same paired launches.

Run as ``python -m benchmarks.explained_launches [--launches N] [--at-most N] [--json FILE [--resume]]``. CPU only, one thread;
small cases, eager and compiled. Both sides run the same code, resident and in turns as in any paired run, so that what a launch
does to times cancels; two gates one after the other are 18 % apart by themselves. A gate explains after its last launch, where
nothing is left to be touched. Here base's arms are explained before every launch but the first, in base's own folder, and base's
workers are told `explain: always`: whatever explaining leaves behind, or its option changes, is in base's samples and not in
head's. The first launch, before which nothing was explained, is told apart.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from benchmarks.referee_cost import Difference, Timed, differences_of, overall, step_times, text_of
from benchmarks.tables import publish, render
from ci_bench import pipeline, planning
from ci_bench.engine import runner
from ci_bench.engine.explaining import Explaining
from ci_bench.engine.process.environ import worker_environment
from ci_bench.engine.runner import Engine
from ci_bench.engine.trees.sides import Side
from ci_bench.records.config import Config, Explain, RunOptions, Sampling
from ci_bench.records.results import Case, CaseResult, Results, SideName, Status
from ci_bench.suites.base import find_suite

LAUNCHES = 7
RUN = RunOptions(device="cpu", threads=1, sampling=Sampling.FIXED, explain=Explain.ALWAYS, explain_s=3600.0)
PLAN: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("torchbench", {"source": "zoo", "models": ["mlp", "encoder"], "mode": "training", "backend": "aot_eager"}),
    ("fastrnns", {"variants": ["aten"], "seq_length": 20, "batch_size": 16, "input_size": 128, "hidden_size": 128}),
    ("torchbench", {"source": "zoo", "models": ["mlp"], "mode": "inference", "backend": "inductor"}),
)


class Own(Timed):
    """A suite whose stages are those of timing alone, run by its own workers."""

    def __init__(self, name: str) -> None:
        """`name` is the suite's."""
        super().__init__(find_suite(name))
        self.worker = self.suite.worker


class Alternating(runner._Jobs):  # noqa: SLF001 - what a launch is preceded by is its own business, and this benchmark's
    """Launches between which base is explained; each side's workers are told whether theirs is."""

    def _launch(self, wanted: runner.Plan) -> None:
        for run in self.runs:
            run.options = replace(run.options, explain=Explain.ALWAYS if is_explained(run.side.name) else Explain.NEVER)
        if self.launch:
            self._explain()
        super()._launch(wanted)


def of_base(**named: Any) -> Explaining:
    """Explains base alone."""
    return Explaining(**{**named, "runs": [run for run in named["runs"] if is_explained(run.side.name)]})


def is_explained(side: SideName) -> bool:
    """Whether it is base."""
    return side is SideName.BASE


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """How many arms of a case were explained on each side, of how many (in the end; each anew before every launch)."""

    case: str
    base: int
    head: int
    arms: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="launches of each case")
    parser.add_argument("--at-most", type=int, default=sys.maxsize, help="cases to measure this time")
    parser.add_argument("--json", type=Path, help="also write the figures here, after every case")
    parser.add_argument("--resume", action="store_true", help="leave out the cases that --json has")
    arguments = parser.parse_args(argv)
    differences, explained = earlier(arguments.json) if arguments.resume else ([], [])
    known = {one.case for one in explained}
    plan = [(suite, case) for suite, case in planned() if case.id not in known]
    for suite, case in plan[: arguments.at_most]:
        base, head = measure(suite, case, launches=arguments.launches)
        explained.append(explained_of(case, base, head))
        differences += differences_of(case.id, step_times(base), step_times(head))
        sys.stderr.write(f"{explained[-1]}\n{differences[-1]}\n")
        if arguments.json:
            arguments.json.write_text(json.dumps(document(differences, explained), indent=1, sort_keys=True) + "\n")
    publish(table(differences, explained), document(differences, explained), arguments.json)
    return 0


def planned() -> list[tuple[Own, Case]]:
    """What is measured."""
    return [(own, case) for name, options in PLAN for own in [Own(name)] for case in own.plan(options)]


def document(differences: Sequence[Difference], explained: Sequence[Explained]) -> dict[str, Any]:
    """All that was measured."""
    return {"differences": [asdict(one) for one in differences], "explained": [asdict(one) for one in explained]}


def earlier(path: Path | None) -> tuple[list[Difference], list[Explained]]:
    """What an interrupted benchmark has written down."""
    if path is None or not path.exists():
        return [], []
    known = json.loads(path.read_text(encoding="utf-8"))
    differences = [Difference(**{**one, "ratios": tuple(one["ratios"])}) for one in known["differences"]]
    return differences, [Explained(**one) for one in known["explained"]]


def table(differences: Sequence[Difference], explained: Sequence[Explained]) -> str:
    """Each arm's ratio after explaining, its launch before it, and whose arms were explained."""
    of = {one.case: one for one in explained}
    after = [replace(one, ratios=one.ratios[1:]) for one in differences]
    rows = [
        {
            "case": one.case,
            "arm": one.arm,
            "explained / not": text_of(later.ratios),
            "launches": str(len(later.ratios)),
            "before it": f"{math.expm1(one.ratios[0]):+.2%}",
            "explained arms": f"{of[one.case].base} of {of[one.case].arms}; head {of[one.case].head}",
        }
        for one, later in zip(differences, after, strict=True)
    ]
    return render(f"Base explained between its launches, head never; {overall(after)}", rows)


def explained_of(case: Case, base: Results, head: Results) -> Explained:
    """Whose arms have a profile with figures in it."""
    counts = [sum(profile.step_s is not None for profile in row_of(side).profiles) for side in (base, head)]
    return Explained(case=case.id, base=counts[0], head=counts[1], arms=len(case.arms))


def row_of(results: Results) -> CaseResult:
    """The one case of a document."""
    (row,) = results.cases
    return row


def measure(suite: Own, case: Case, *, launches: int) -> tuple[Results, Results]:
    """One case as the engine measures it, but for when base is explained: base's document, and head's."""
    environ = worker_environment(os.environ)
    sides = tuple(Side(name=name, environ=environ) for name in (SideName.BASE, SideName.HEAD))
    config = Config(entries=(), run=replace(RUN, launches=launches))
    begun = planning.start(config)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scratch").mkdir()
        engine = Engine(
            options=config.run,
            scratch=folder / "scratch",
            observe=lambda _: None,
            to_explain=lambda _: {case.id: case.arms},
            seed=begun.id,
        )
        with patch.object(runner, "_Jobs", Alternating), patch.object(runner, "Explaining", of_base):
            results = pipeline.measure(
                cast("planning.Plan", ((suite, case),)),
                run=begun,
                sides=sides,
                reproduce={case.id: "python -m benchmarks.explained_launches"},
                engine=engine.measure,
                folder=folder,
            )
    for side in sides:
        row = row_of(results[side.name])
        if row.status is not Status.OK:
            raise SystemExit(f"{case.id} could not be measured on {side.name}: {row.failure or row.status}")
    return results[SideName.BASE], results[SideName.HEAD]


if __name__ == "__main__":
    sys.exit(main())
