"""The spread between launches of unchanged code on a GPU, with every sample kept.

Run as ``python -m benchmarks.gpu.spread FOLDER [--launches N] [--blocks N] [--until SECONDS]``.
Each launch measures all six kinds of work of `card_work` in two resident processes, in turns, with
the runner of ci-bench. ``FOLDER/spread.jsonl`` has the samples of each launch; noise models can be
fitted to it. The last line gives the spread of the log-ratios of launches.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.card_work import SUITE, WORK
from benchmarks.gpu.measuring import MILLISECONDS, this_trial
from ci_bench.checkouts.sides import Side
from ci_bench.host.monitor import Monitor, open_monitor
from ci_bench.judge.times.noise import NORMAL_MAD
from ci_bench.processes.environ import worker_environment
from ci_bench.records.config import Config, RunOptions, Sampling
from ci_bench.records.metrics import DEVICE_TIME, STEP_TIME
from ci_bench.records.results import Block, CaseResult, Environment, SideName, Status
from ci_bench.runner import planning
from ci_bench.runner.recording import record_run
from ci_bench.runner.runner import Runner

ROOT = Path(__file__).resolve().parents[2]
SIDES = (SideName.BASE, SideName.HEAD)
Row = Mapping[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure launch after launch, write each, and print the spread."""
    arguments = parse_arguments(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    options = RunOptions(
        device=this_trial().device,
        threads=1,
        sampling=Sampling.FIXED,
        launches=1,
        blocks=arguments.blocks,
        warmup_s=2.0,
        referee=False,
        stage_timeout_s=60.0 * this_trial().patience,
    )
    begun, rows = time.monotonic(), []
    with (arguments.folder / "spread.jsonl").open("w", encoding="utf-8") as stream:
        for launch in range(arguments.launches):
            elapsed_s = time.monotonic() - begun
            if launch and elapsed_s * (launch + 1) / launch > arguments.until:
                break
            for row in _launch(options, arguments.only, launch):
                rows.append(row)
                stream.write(json.dumps(row) + "\n")
            stream.flush()
    _report(rows, time.monotonic() - begun)
    return int(not rows or any("failure" in row for row in rows))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--launches", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--until", type=float, default=100.0, help="seconds for all launches")
    parser.add_argument("--only", nargs="*", choices=WORK, default=WORK, metavar="KIND")
    return parser.parse_args(argv)


def _launch(options: RunOptions, only: Sequence[str], launch: int) -> Iterator[Row]:
    """Yield a row for each metric of each side, and for each failure."""
    config = Config(entries=(), run=options)
    plan = tuple((SUITE, case) for case in SUITE.plan({"only": only}))
    environ = worker_environment(os.environ)
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), environ.get("PYTHONPATH", "")])
    run = replace(planning.start(config), id=f"spread-{launch}-{os.getpid()}")
    with tempfile.TemporaryDirectory() as top:
        scratch = Path(top) / "scratch"
        scratch.mkdir()
        runner = Runner(
            options=options,
            scratch=scratch,
            observe=lambda _: None,
            seed=run.id,
            watch=_monitor,
        )
        results = record_run(
            plan,
            run=run,
            sides=tuple(Side(name=name, environ=environ) for name in SIDES),
            reproduce=dict.fromkeys((case.id for _, case in plan), "benchmarks.gpu.spread"),
            measure=runner.run,
            folder=Path(top) / "results",
        )
    for name in SIDES:
        for row in results[name].cases:
            yield from _rows(row, name, launch)


def _monitor(machine: Environment) -> Monitor:
    return open_monitor(
        str(machine.identity["device"]), str(machine.condition.get("gpu_uuid") or "")
    )


def _rows(row: CaseResult, side: SideName, launch: int) -> Iterator[Row]:
    of = {"case": row.case.name, "side": str(side), "launch": launch}
    if row.status is not Status.OK:
        reason = row.failure.reason if row.failure else str(row.status)
        sys.stdout.write(f"{row.case.id} on {side}: {row.status}: {reason}\n")
        yield {**of, "failure": reason}
    machine = [{**block.facts, **_disturbances(block)} for block in row.blocks]
    for metric in row.metrics:
        for samples in metric.launches:
            yield {
                **of,
                "metric": metric.name,
                "calls": metric.calls,
                "values": list(samples.values),
                "warmup": list(samples.warmup),
                "blocks": list(samples.blocks),
                "steady": samples.steady,
                "machine": machine,
                "spent": [[spent.phase, spent.seconds] for spent in row.spent],
            }


def _disturbances(block: Block) -> Row:
    return {"doubt": block.doubt, "redone": list(block.redone)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Spread of one metric of one case: between launches, and within the samples of a side."""

    case: str
    """The name of the case."""
    metric: str
    """The name of the metric."""
    level_s: float
    """The median of all samples of both sides (s)."""
    between: float
    """The root mean square of the launches' log-ratios."""
    largest: float
    """The largest absolute log-ratio of a launch."""
    within: float
    """The median over sides and launches of the samples' relative deviation (from the MAD)."""


def _report(rows: Sequence[Row], seconds: float) -> None:
    all_spreads = list(spreads(rows))
    for spread in all_spreads:
        sys.stdout.write(
            f"{spread.case:<14} {spread.metric:<12} {MILLISECONDS * spread.level_s:9.4f} ms  "
            f"launches {spread.between:7.3%} (largest {spread.largest:.3%})  "
            f"within {spread.within:7.3%}\n"
        )
    launches = len({row["launch"] for row in rows})
    steps = [
        f"{spread.case} {spread.between:.2%}"
        for spread in all_spreads
        if spread.metric == STEP_TIME.name
    ]
    summary = f"{launches} launches in {seconds:.0f} s; between launches: {', '.join(steps)}"
    sys.stdout.write(f"FIGURE: {summary}\n")


def spreads(rows: Sequence[Row]) -> Iterator[Spread]:
    """Yield the spread of both times of each case, over launches with both sides."""
    for metric in (STEP_TIME.name, DEVICE_TIME.name):
        of_metric = [row for row in rows if row.get("metric") == metric]
        by_launch = {(row["case"], row["launch"], row["side"]): row["values"] for row in of_metric}
        for case in dict.fromkeys(case for case, _, _ in by_launch):
            launches = sorted({launch for name, launch, _ in by_launch if name == case})
            pairs = [[by_launch.get((case, launch, side)) for side in SIDES] for launch in launches]
            both = [(base, head) for base, head in pairs if base and head]
            if both:
                yield _spread(case, metric, both)


def _spread(case: str, metric: str, pairs: Sequence[tuple[list[float], list[float]]]) -> Spread:
    medians = [(statistics.median(base), statistics.median(head)) for base, head in pairs]
    ratios = [math.log(head / base) for base, head in medians]
    sides = [values for pair in pairs for values in pair]
    return Spread(
        case=case,
        metric=metric,
        level_s=statistics.median(value for values in sides for value in values),
        between=math.sqrt(sum(ratio**2 for ratio in ratios) / len(ratios)),
        largest=max(map(abs, ratios)),
        within=statistics.median(map(_relative_deviation, sides)),
    )


def _relative_deviation(values: Sequence[float]) -> float:
    """Return the robust standard deviation, relative to the median."""
    level = statistics.median(values)
    return NORMAL_MAD * statistics.median(abs(value / level - 1) for value in values)


if __name__ == "__main__":
    sys.exit(main())
