"""What the referee costs: launches with it and without it in turns, their wall time and what their samples say.

Run as ``python -m benchmarks.referee_cost [--launches N] [--json FILE]``. CPU only, one thread; models of the embedded zoo with
the backend `aot_eager`. A pair is two launches of the same case, one with the referee and one without, in random order, each in
a process of its own. The share of the wall time counts from the start of the launch's server to its end; that of the looks
themselves is read from within, by the host's clock around them, since the noise of a launch is larger than what they cost.
"""

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.tables import publish, render
from ci_bench.engine.process.environ import worker_environment
from ci_bench.engine.process.launch import Launcher
from ci_bench.engine.process.protocol import Task
from ci_bench.engine.turns import Turns
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Case, SideName
from ci_bench.suites.base import StageKind
from ci_bench.suites.torchbench.plan import SUITE

LAUNCHES = 6
MODELS = ("mlp", "resnet")
ENTRY = {"source": "zoo", "models": list(MODELS), "backend": "aot_eager"}
TIMEOUT_S = 600.0
ROOT = Path(__file__).parents[1]
"""Where the worker below is imported from."""
SPENT = "CI_BENCH_REFEREE_SPENT"
"""A file to which the worker of a launch writes what its looks and their judgement took (s)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """One launch: its wall time, what the referee took of it (s), and the median step of each arm (s)."""

    wall_s: float
    referee_s: float
    steps_s: dict[str, float]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="pairs of launches of each case")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    figures = {case.id: compare(case, arguments.launches) for case in SUITE.plan(ENTRY)}
    rows = [{"case": name, **{what: f"{value:.3g}" for what, value in of.items()}} for name, of in figures.items()]
    publish(render("The referee, on and off in turns", rows), {"figures": figures}, arguments.json)
    return 0


def compare(case: Case, launches: int) -> dict[str, float]:
    """The referee's share of the wall time, and how steps with it differ from those without (%), with the standard error."""
    taken: dict[bool, list[Taken]] = {True: [], False: []}
    for number in range(launches):
        ways = [True, False]
        random.Random(number).shuffle(ways)  # noqa: S311 - an order
        for on in ways:
            taken[on].append(launch(case, number, referee=on))
    with_s = [one.wall_s for one in taken[True]]
    shares = [one.referee_s / one.wall_s * 100 for one in taken[True]]
    figures = {
        "wall (s)": statistics.median(with_s),
        "referee (ms)": statistics.median(one.referee_s for one in taken[True]) * 1e3,
        "share (%)": statistics.fmean(shares),
    }
    pairs = list(zip(taken[True], taken[False], strict=True))
    ratios = [math.log(speedup(one) / speedup(other)) * 100 for one, other in pairs]
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return {**figures, "speedup, on over off (%)": statistics.fmean(ratios), "standard error (%)": error}


def speedup(taken: Taken) -> float:
    """Of the candidate over the reference in one launch: what a launch does to both cancels."""
    reference_s, candidate_s = taken.steps_s.values()
    return reference_s / candidate_s


def launch(case: Case, number: int, *, referee: bool) -> Taken:
    """Time a case in one launch as the engine does."""
    options = RunOptions(device="cpu", threads=1, warmup_s=2.0, referee=referee)
    stage = next(stage for stage in SUITE.stages(case) if stage.kind is StageKind.TIME)
    with tempfile.TemporaryDirectory() as folder:
        spent = Path(folder) / "spent"
        given = {"PATH": "/usr/bin:/bin", "HOME": folder, "PYTHONPATH": str(ROOT)}
        environ = worker_environment(given)
        begun = time.perf_counter()
        with Launcher(preload=SUITE.preload, environ=environ, folder=Path(folder) / "launch") as launcher:
            task = Task(
                launch=number,
                device="cpu",
                options=options,
                scratch=folder,
                worker="benchmarks.referee_cost_worker",
                case=case,
                stage=stage,
                environ={SPENT: str(spent)},
            )
            opener = partial(launcher.begin, task, timeout_s=TIMEOUT_S, on_answer=lambda _: None)
            coin = random.Random(number)  # noqa: S311 - an order
            played = Turns(arms=len(case.arms), launch=number, options=options, coin=coin).play({SideName.HEAD: opener})
        wall_s = time.perf_counter() - begun
        evidence = next(answer.evidence for answer in played.ended[SideName.HEAD].answers if answer.evidence)
        steps = {metric.arm: metric for metric in evidence.metrics if metric.name == "step_time"}
        medians = {arm: statistics.median(steps[arm].launches[0].values) for arm in case.arms}
        took_s = sum(map(float, spent.read_text().split())) if spent.exists() else 0.0
        return Taken(wall_s=wall_s, referee_s=took_s, steps_s=medians)


if __name__ == "__main__":
    sys.exit(main())
