"""What the referee does to timing: one side with it, the other without, in the same paired launches.

Run as ``python -m benchmarks.referee_cost [--launches N] [--at-most N] [--json FILE [--resume]]``. CPU only, one thread; small
cases of all suites whose calls the referee looks at. Both sides run the same code, resident and in turns as in any paired run;
base has the referee and head has not, so that what a launch does to times cancels. The share of the wall time is that of the
looks and their judgement, read from within by the host's clock.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.tables import publish, render
from ci_bench import pipeline, planning
from ci_bench.engine.process.environ import worker_environment
from ci_bench.engine.runner import Engine
from ci_bench.engine.trees.sides import Side
from ci_bench.judge.paired import figures
from ci_bench.records.config import Config, RunOptions, Sampling
from ci_bench.records.results import Case, Due, Metric, Results, SideName, Status
from ci_bench.suites.base import Stage, StageKind, Suite, find_suite

LAUNCHES = 8
RUN = RunOptions(device="cpu", threads=1, sampling=Sampling.FIXED)
PLAN: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("torchbench", {"source": "zoo", "models": ["mlp", "encoder"], "mode": "training", "backend": "aot_eager"}),
    ("torchbench", {"source": "zoo", "models": ["mlp", "resnet"], "mode": "inference", "backend": "aot_eager"}),
    ("transformers", {"model": "bert", "batch_size": 4, "sequence_length": 64, "candidate": "aot_eager"}),
    (
        "fastrnns",
        {"variants": ["aten", "jit_premul"], "seq_length": 20, "batch_size": 16, "input_size": 128, "hidden_size": 128},
    ),
    ("training_loss", {"name": "reviews", "epochs": 1, "backend": "aot_eager"}),
)
ROOT = Path(__file__).resolve().parents[1]
"""Where the worker of the benchmark is imported from."""
OFF = "CI_BENCH_REFEREE_OFF"
"""In the environment of the side that goes without."""
SPENT = "CI_BENCH_REFEREE_SPENT"
"""A file to which the other side's workers write what their looks and judgements took (s)."""


class Timed:
    """A suite whose stages are those of timing alone, and whose workers can go without the referee."""

    worker = "benchmarks.referee_cost_worker"

    def __init__(self, suite: Suite) -> None:
        """`suite` is whose cases are timed."""
        self.suite, self.name, self.preload = suite, suite.name, suite.preload

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """The suite's cases, which owe nothing but their times."""
        return tuple(replace(case, due=Due(times=case.due.times)) for case in self.suite.plan(options))

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """What timing takes."""
        return tuple(stage for stage in self.suite.stages(case) if stage.kind in {StageKind.PREPARE, StageKind.TIME})

    def needs_network(self, case: Case) -> bool:
        """As the suite."""
        return self.suite.needs_network(case)


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """What the referee did to the times of one arm in each launch (log-ratio of a step with it over one without)."""

    case: str
    arm: str
    ratios: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What the looks at a case took of the wall time of measuring it, both sides and all launches (s)."""

    case: str
    referee_s: float
    wall_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="launches of each case")
    parser.add_argument("--at-most", type=int, default=sys.maxsize, help="cases to measure this time")
    parser.add_argument("--json", type=Path, help="also write the figures here, after every case")
    parser.add_argument("--resume", action="store_true", help="leave out the cases that --json has")
    arguments = parser.parse_args(argv)
    differences, shares = earlier(arguments.json) if arguments.resume else ([], [])
    known = {share.case for share in shares}
    plan = [(suite, case) for suite, case in planned() if case.id not in known]
    for suite, case in plan[: arguments.at_most]:
        found, share = compare(suite, case, arguments.launches)
        differences, shares = [*differences, *found], [*shares, share]
        sys.stderr.write(f"{share}\n" + "".join(f"{one}\n" for one in found))
        if arguments.json:
            arguments.json.write_text(json.dumps(document(differences, shares), indent=1, sort_keys=True) + "\n")
    title = f"The referee, on and off in the same launches; {overall(differences)}"
    publish(render(title, rows(differences, shares)), document(differences, shares), arguments.json)
    return 0


def planned() -> list[tuple[Timed, Case]]:
    """What is measured."""
    return [(timed, case) for name, options in PLAN for timed in [Timed(find_suite(name))] for case in timed.plan(options)]


def document(differences: Sequence[Difference], shares: Sequence[Share]) -> dict[str, Any]:
    """All that was measured."""
    return {"differences": [asdict(one) for one in differences], "shares": [asdict(one) for one in shares]}


def earlier(path: Path | None) -> tuple[list[Difference], list[Share]]:
    """What an interrupted benchmark has written down."""
    if path is None or not path.exists():
        return [], []
    known = json.loads(path.read_text(encoding="utf-8"))
    differences = [Difference(**{**one, "ratios": tuple(one["ratios"])}) for one in known["differences"]]
    return differences, [Share(**one) for one in known["shares"]]


def rows(differences: Sequence[Difference], shares: Sequence[Share]) -> list[dict[str, str]]:
    """The table: each arm's difference, and its case's share."""
    of = {share.case: f"{share.referee_s / share.wall_s:.2%}" for share in shares}
    return [
        {
            "case": one.case,
            "arm": one.arm,
            "with / without": text_of(one.ratios),
            "launches": str(len(one.ratios)),
            "share of the wall time": of[one.case],
        }
        for one in differences
    ]


def overall(differences: Sequence[Difference]) -> str:
    """Over all arms, each counted alike: arms of one case share their launches, so the error is that over cases."""
    of: dict[str, list[float]] = {}
    for one in differences:
        of.setdefault(one.case, []).append(statistics.fmean(one.ratios))
    return f"over {len(of)} cases: {text_of([statistics.fmean(means) for means in of.values()])}"


def text_of(ratios: Sequence[float]) -> str:
    """The mean of log-ratios as a share, with its standard error."""
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return f"{math.expm1(statistics.fmean(ratios)):+.2%} ± {error:.2%}" if ratios else "nothing measured"


def compare(suite: Timed, case: Case, launches: int) -> tuple[list[Difference], Share]:
    """Measure one case with the referee on base and without it on head."""
    with tempfile.TemporaryDirectory() as folder:
        spent, begun = Path(folder) / "spent", time.monotonic()
        base, head = measure(suite, case, launches=launches, folder=Path(folder), spent=spent)
        wall_s = time.monotonic() - begun
        referee_s = sum(map(float, spent.read_text().split())) if spent.exists() else 0.0
    return differences_of(case.id, step_times(base), step_times(head)), Share(case=case.id, referee_s=referee_s, wall_s=wall_s)


def measure(suite: Timed, case: Case, *, launches: int, folder: Path, spent: Path) -> tuple[Results, Results]:
    """One case as the engine measures it: base's document, and head's."""
    environ = {**worker_environment(os.environ), "PYTHONPATH": str(ROOT)}
    sides = (
        Side(name=SideName.BASE, environ={**environ, SPENT: str(spent)}),
        Side(name=SideName.HEAD, environ={**environ, OFF: "1"}),
    )
    config = Config(entries=(), run=replace(RUN, launches=launches))
    begun = planning.start(config)
    engine = Engine(options=config.run, scratch=folder / "scratch", observe=lambda _: None, still_open=None, seed=begun.id)
    (folder / "scratch").mkdir()
    results = pipeline.measure(
        ((suite, case),),
        run=begun,
        sides=sides,
        reproduce={case.id: "python -m benchmarks.referee_cost"},
        engine=engine.measure,
        folder=folder,
    )
    for side in (SideName.BASE, SideName.HEAD):
        (row,) = results[side].cases
        if row.status is not Status.OK:
            raise SystemExit(f"{case.id} could not be measured on {side}: {row.failure or row.status}")
    return results[SideName.BASE], results[SideName.HEAD]


def differences_of(case: str, base: Mapping[str, Metric], head: Mapping[str, Metric]) -> list[Difference]:
    """The log-ratios of base over head by arm, one for each launch, by the judge's own estimator."""
    arms = [arm for arm in base if arm in head]
    most = max((len(metric.launches) for metric in base.values()), default=0)
    found = figures([(head[arm], base[arm]) for arm in arms], most=most).d
    return [
        Difference(case=case, arm=arm, ratios=tuple(float(one) for one in of if math.isfinite(one)))
        for arm, of in zip(arms, found, strict=True)
    ]


def step_times(results: Results) -> dict[str, Metric]:
    """The step times of the one case of a document, by arm."""
    (row,) = results.cases
    return {metric.arm: metric for metric in row.metrics if metric.name == "step_time"}


if __name__ == "__main__":
    sys.exit(main())
