"""Measures entries of `command` on one side or on two, through the real engine, and has them judged."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ci_bench.checkouts.sides import Side, caller_environment
from ci_bench.commands import judging
from ci_bench.commands.judging import Baseline
from ci_bench.records.comparison import BaselineMode, Comparison
from ci_bench.records.config import Config, Policy, RunOptions, Sampling, SuiteEntry
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import CaseResult, Metric, Results, SideName, Status
from ci_bench.runner import planning
from ci_bench.runner.recording import record_run
from ci_bench.runner.runner import Runner

QUICK = RunOptions(
    device="cpu",
    launches=1,
    blocks=2,
    sample_s=0.001,
    warmup_s=0.05,
    stage_timeout_s=60,
    sampling=Sampling.FIXED,
)


def measure(
    folder: Path,
    *entries: Mapping[str, Any],
    trees: Mapping[SideName, Path],
    options: RunOptions = QUICK,
):
    """The results of each side, whose code lies in `trees`."""
    config = Config(
        entries=tuple(SuiteEntry(suite="command", options=entry) for entry in entries), run=options
    )
    plan = planning.plan(config, ())
    scratch = folder / "scratch"
    scratch.mkdir()
    sides = [
        Side(name=name, environ=caller_environment(tree, os.environ), folder=tree)
        for name, tree in trees.items()
    ]
    runner = Runner(options=options, scratch=scratch, observe=lambda _: None, seed="command")
    return record_run(
        plan,
        run=planning.start(config),
        sides=sides,
        reproduce={case.id: "again" for _, case in plan},
        measure=runner.run,
        folder=folder / "out",
    )


def measure_here(
    tmp_path: Path, *entries: Mapping[str, Any], options: RunOptions = QUICK
) -> list[CaseResult]:
    """The rows of one side whose tree is `tmp_path`/tree."""
    tree = tmp_path / "tree"
    tree.mkdir(exist_ok=True)
    return list(
        measure(tmp_path, *entries, trees={SideName.HEAD: tree}, options=options)[
            SideName.HEAD
        ].cases
    )


def judge(results: Mapping[SideName, Results], policy: Policy | None = None) -> Comparison:
    """Head against base, as of one paired run."""
    head, base = results[SideName.HEAD], results[SideName.BASE]
    baseline = Baseline(
        mode=BaselineMode.PAIRED, results=replace(base, environment=head.environment)
    )
    return judging.judge(head, baseline, policy=policy or Policy(), folder=None)


def fault_beside_same(results: Mapping[SideName, Results]) -> str:
    """What is said of the second of two cases, whose mathematics differ; the first one's are the same. All ran."""
    rows = [row for result in results.values() for row in result.cases]
    assert {row.status for row in rows} == {Status.OK}, [row.failure for row in rows]
    same, fault = (case.learning for case in judge(results).cases)
    assert same is not None
    assert same.verdict.holds, same.detail
    assert fault is not None
    assert str(fault.verdict) == "different_math"
    return fault.detail


def verdicts(comparison: Comparison) -> dict[str, str]:
    """The word for each metric of all cases."""
    return {
        f"{pair.metric} {pair.arm}": str(pair.verdict)
        for case in comparison.cases
        for pair in case.pairs
    }


def step_time(row: CaseResult) -> Metric:
    """The times of the steps of a case with one arm, next to which it has peaks of memory."""
    (found,) = (metric for metric in row.metrics if metric.name == STEP_TIME.name)
    return found
