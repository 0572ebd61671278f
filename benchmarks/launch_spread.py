"""Measures the spread between launches of unchanged code.

The priors of `judge.statistics.suspicion` are based on it.

Run as ``python -m benchmarks.launch_spread [--launches N] [--compilations N] [--json FILE]``.
Everything is the product's own: six CPU workloads sampled in turns, commands that measure
themselves, peaks of memory, compilations from a cold cache. Each launch of a metric gives one
log-ratio of two sides of the same code; the table holds them against the prior of their kind.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from benchmarks.tables import publish, render
from benchmarks.work_suite import SUITE as WORK
from ci_bench.checkouts.sides import Side
from ci_bench.judge.times.noise import NORMAL_MAD, Floats
from ci_bench.judge.times.paired import figures
from ci_bench.judge.times.pairing import lines_of_both
from ci_bench.judge.times.suspicion import PRIORS, NoiseSource
from ci_bench.processes.environ import worker_environment
from ci_bench.records.config import Config, MetricPolicy, RunOptions, Sampling
from ci_bench.records.results import Case, SideName
from ci_bench.runner import planning
from ci_bench.runner.recording import record_run
from ci_bench.runner.runner import Plan, Runner
from ci_bench.suites.contract import Cache, Stage, StageKind, Suite
from ci_bench.suites.registry import find_suite

ROOT = Path(__file__).resolve().parents[1]
RUN = RunOptions(
    device="cpu", threads=1, sampling=Sampling.FIXED, compile_budget_s=1e9, warmup_s=0.5
)
HEAD = (
    "import json, sys, time\ndef timed(f):\n    s = time.perf_counter(); f(); return"
    " time.perf_counter() - s\n"
)
TAIL = """print(json.dumps({"kind": "measurements", "schema_version": 1,
    "series": [{"name": "it", "unit": "s", "better": "lower", "values": \
[timed(work) for _ in range(20)]}]}))
"""
COMMANDS = {
    "sleep": "def work():\n    time.sleep(0.002)\n",
    "loop": "def work():\n    sum(i * i for i in range(20_000))\n",
    "dictionary": "def work():\n    d = {str(i): i for i in range(5_000)}; sorted(d)\n",
    "microseconds": "def work():\n    [i for i in range(100)]\n",
}


class Stages(Suite):
    """A suite whose cases have the stages of one kind only, in every launch."""

    def __init__(self, *, suite: Suite, kind: StageKind, cache: Cache = Cache.SHARED) -> None:
        """Leave all else to the suite."""
        self.suite, self.kind, self.cache = suite, kind, cache
        self.name, self.worker = suite.name, suite.worker

    def preload_of(self, case: Case) -> tuple[str, ...]:
        """Return the suite's."""
        return self.suite.preload_of(case)

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Return the suite's cases."""
        return self.suite.plan(options)

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Return the stage of preparing, and the requested one."""
        due = [
            stage
            for stage in self.suite.stages(case)
            if (stage.kind, stage.cache) == (self.kind, self.cache)
        ]
        prepare = [stage for stage in self.suite.stages(case) if stage.kind is StageKind.PREPARE]
        return (*prepare, *(replace(stage, launches=None) for stage in due))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=30)
    parser.add_argument("--compilations", type=int, default=8)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    by_title: dict[str, tuple[NoiseSource, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for title, source, plan, launches in _plans(
            Path(folder), arguments.launches, arguments.compilations
        ):
            by_title[title] = source, _ratios(plan, launches, Path(folder))
            sys.stderr.write(f"{title}: {len(by_title[title][1])} ratios\n")
    rows = [_row(title, source, np.array(ratios)) for title, (source, ratios) in by_title.items()]
    figures_of = {title: ratios for title, (_, ratios) in by_title.items()}
    publish(
        render("Launches of unchanged code against the priors", rows),
        {"ratios": figures_of},
        arguments.json,
    )
    return 0


def _plans(
    folder: Path, launches: int, compilations: int
) -> Iterator[tuple[str, NoiseSource, Plan, int]]:
    for name, code in COMMANDS.items():
        (folder / f"{name}.py").write_text(HEAD + code + TAIL)
    command, bench = find_suite("command"), find_suite("torchbench")
    read = [_entry(folder, name, format="measurements", output="stdout") for name in COMMANDS]
    unparsed = [_entry(folder, name) for name in COMMANDS]
    models = {"models": ["mlp"], "backend": "inductor"}
    yield (
        "in turns: six workloads",
        NoiseSource.TURNS,
        _plan(Stages(suite=WORK, kind=StageKind.TIME), [{}]),
        launches,
    )
    yield (
        "read: four commands",
        NoiseSource.RUNS,
        _plan(Stages(suite=command, kind=StageKind.RUN), read),
        launches,
    )
    yield (
        "peak of memory: four commands",
        NoiseSource.RUNS,
        _plan(Stages(suite=command, kind=StageKind.RUN), unparsed),
        launches,
    )
    cold = Stages(suite=bench, kind=StageKind.ALONE, cache=Cache.COLD)
    yield (
        "compiled from cold: mlp, inductor",
        NoiseSource.COMPILATION,
        _plan(cold, [models]),
        compilations,
    )


def _entry(folder: Path, name: str, **more: str) -> Mapping[str, Any]:
    return {"name": name, "command": [sys.executable, str(folder / f"{name}.py")], **more}


def _plan(suite: Stages, entries: Sequence[Mapping[str, Any]]) -> Plan:
    return tuple((suite, case) for entry in entries for case in suite.plan(entry))


def _ratios(plan: Plan, launches: int, folder: Path) -> list[float]:
    """Return the log-ratios of all launches of all times and peaks."""
    environ = {**worker_environment(os.environ), "PYTHONPATH": str(ROOT)}
    sides = tuple(Side(name=name, environ=environ) for name in (SideName.BASE, SideName.HEAD))
    config = Config(entries=(), run=replace(RUN, launches=launches))
    begun = planning.start(config)
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(
            options=config.run, scratch=Path(scratch), observe=lambda _: None, seed=begun.id
        )
        results = record_run(
            plan,
            run=begun,
            sides=sides,
            reproduce=dict.fromkeys(
                (case.id for _, case in plan), "python -m benchmarks.launch_spread"
            ),
            measure=runner.run,
            folder=folder / "results",
        )
    metrics = ("step_time", "peak_rss", "peak_anonymous", "compile_cold")
    lines = lines_of_both(
        results[SideName.BASE], results[SideName.HEAD], lambda _, __: MetricPolicy(threshold=0.0)
    )
    chosen = [line for line in lines if line.metric.name in metrics or line.suite == "command"]
    d = figures([(line.base[0], line.head[0]) for line in chosen], most=launches).d
    return [float(ratio) for ratio in d[np.isfinite(d)]]


def _row(title: str, source: NoiseSource, ratios: Floats) -> dict[str, str]:
    prior = PRIORS[source]
    beyond = {
        level: float(stdtrit(prior.freedom, 1 - (1 - level) / 2)) * prior.spread
        for level in (0.95, 0.99)
    }
    return {
        "launches of": title,
        "ratios": str(ratios.size),
        "sd": f"{ratios.std():.2%}",
        "robust sd": f"{NORMAL_MAD * np.median(np.abs(ratios)):.2%}",
        "largest": f"{np.abs(ratios).max(initial=0.0):.1%}",
        "prior": f"{prior.spread:.0%}, {prior.freedom:g} launches",
        **{
            f"beyond {level:.0%}": f"{float((np.abs(ratios) > limit).mean()):.1%}"
            for level, limit in beyond.items()
        },
    }


if __name__ == "__main__":
    raise SystemExit(main())
