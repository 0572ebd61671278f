"""Measures how far the judge scales: time and memory to compare, judge and render metrics.

``python -m benchmarks.judge_scale --json judge_scale.json``

*Arrays*: each case has 4 launches of 20 samples per arm and a history of 20 launches. *Compare*
makes one figure per launch from the samples; *judge* decides, with q values and the geometric mean.
Times are the least of three; memory is numpy's peak allocation beyond the input, by tracemalloc, in
a separate run.

*Documents*: results of 3 launches of 16 samples, ten times per case (five of each arm), one case in
a hundred 40 % slower; compared and judged as an earlier run (`file`) and as a paired run of three
launches (`paired`), then rendered as a comment and as the full report. Each runs in a separate
process; memory is its peak resident set, with the part of the documents in brackets. Seconds of the
processor are the time that it would take on an idle core.

*Command*: ``ci-bench compare`` of two documents on disk, from the start of the process to the
written report; the least of three, after one that leaves compiled modules behind, as an
installation does.
"""

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.tables import publish, render
from ci_bench.cli import SELDOM
from ci_bench.judge import compare as judging
from ci_bench.judge.times import aggregates, noise, sequential
from ci_bench.judge.times.sequential import Ruling, SequentialRule, fixed
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Policy
from ci_bench.records.results import (
    Better,
    Case,
    CaseResult,
    Environment,
    Lane,
    Launch,
    Metric,
    Results,
    Run,
    RunState,
    Source,
    Status,
    Unit,
)
from ci_bench.report.markdown import render_comment, render_report

SIZES = (1_000, 10_000, 100_000)
LAUNCHES, SAMPLES, HISTORY = 4, 20, 20
REPEATS = 3
ARMS = ("eager", "inductor")
METRICS = ("step_time", "forward_time", "backward_time", "optimizer_time", "query_time")
ON_DISK = 1_000
"""Metrics of the documents that the command is given."""
_MIB = 1024**2


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """Log samples of both arms [cases, launches, samples], and what was learned."""

    base: noise.Floats
    head: noise.Floats
    learned: noise.Learned


def draw(cases: int, seed: int) -> Input:
    """Draw white noise of 0.1 to 3 % by case; one case in a hundred is 5 % slower."""
    rng = np.random.Generator(np.random.PCG64(seed))
    spread = np.exp(rng.uniform(np.log(0.001), np.log(0.03), cases))
    shape = (cases, LAUNCHES, SAMPLES)
    slower = np.where(rng.random(cases) < 0.01, np.log(1.05), 0.0)  # noqa: PLR2004 - one in a hundred, as said above
    base, head = (spread[:, None, None] * rng.standard_normal(shape) for _ in range(2))
    past = spread[:, None] * rng.standard_normal((cases, HISTORY)) / np.sqrt(SAMPLES / 2)
    ages = noise.forgetting(rng.uniform(0, 60, (cases, HISTORY)))
    return Input(
        base=base,
        head=head + slower[:, None, None],
        learned=noise.learn(past, np.broadcast_to(spread[:, None], past.shape), ages),
    )


def compare(timings: Input) -> tuple[noise.Floats, noise.Floats]:
    """Return the log-ratio and inner spread of every launch."""
    return noise.launch_ratio(timings.base, timings.head), noise.within_spread(
        timings.base, timings.head
    )


def judge(timings: Input, d: noise.Floats, within: noise.Floats) -> Ruling:
    """Return decisions; compute q values and the geometric mean."""
    ruling = sequential.replay(d, within, timings.learned, SequentialRule())
    aggregates.false_discovery(aggregates.p_values(ruling))
    aggregates.geometric_mean(d, timings.learned)
    return ruling


def measure(cases: int, seed: int) -> dict[str, float]:
    """Return seconds and MiB for one number of cases."""
    timings = draw(cases, seed)
    d, within = compare(timings)
    tracemalloc.start()
    judge(timings, *compare(timings))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "cases": cases,
        "compare_s": _least_s(lambda: compare(timings)),
        "judge_s": _least_s(lambda: judge(timings, d, within)),
        "peak_mib": peak / _MIB,
    }


def _least_s(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def results(metrics: int, seed: int, *, slower: bool) -> Results:
    """Return results with so many times; `slower` plants the slowdowns."""
    rng = np.random.Generator(np.random.PCG64(seed + slower))
    cases = tuple(
        _case(rng, number, slower=slower) for number in range(metrics // (len(ARMS) * len(METRICS)))
    )
    return Results(
        tool_version="1",
        run=Run(
            id="r",
            started_at="2030-01-31T12:00:00Z",
            state=RunState.COMPLETE,
            config_digest="c",
            device="cuda",
        ),
        source=Source(),
        environment=Environment(identity={"device": "cuda", "gpu": "simulated"}, condition={}),
        cases=cases,
    )


def _case(rng: np.random.Generator, number: int, *, slower: bool) -> CaseResult:
    by = 1.4 if slower and number % 100 == 0 else 1.0
    metrics = tuple(_metric(rng, name, arm, by=by) for name in METRICS for arm in ARMS)
    case = Case(
        id=f"suite/c{number}",
        suite="suite",
        name=f"c{number}",
        params={},
        arms=ARMS,
        reference=ARMS[0],
    )
    return CaseResult(
        case=case,
        status=Status.OK,
        reproduce=f"ci-bench run --filter suite/c{number}",
        metrics=metrics,
    )


def _metric(rng: np.random.Generator, name: str, arm: str, *, by: float) -> Metric:
    values = (0.02 * by * np.exp(0.005 * rng.standard_normal((3, 16)))).tolist()
    launches = tuple(
        Launch(launch=number, values=tuple(row), blocks=BLOCKS) for number, row in enumerate(values)
    )
    return Metric(
        name=name,
        arm=arm,
        unit=Unit.SECONDS,
        better=Better.LOWER,
        lane=Lane.WALL,
        launches=launches,
        items=16,
    )


BLOCKS = tuple(sample // 2 for sample in range(16))


def measure_documents(metrics: int, mode: str, seed: int) -> dict[str, float | str]:
    """Return seconds and MiB for documents of one size, from a process of their own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_judge_documents, metrics, mode, seed).result()


def _judge_documents(metrics: int, mode: str, seed: int) -> dict[str, float | str]:
    gc.set_threshold(*SELDOM)
    base, head = results(metrics, seed, slower=False), results(metrics, seed, slower=True)
    loaded_mib, start = _peak_mib(), time.process_time()
    marks = [time.perf_counter()]
    comparison = judging.compare(
        base=base,
        head=head,
        policy=Policy(),
        mode=BaselineMode(mode),
        absence=None,
        tool_version="1",
        rule=fixed(3),
    )
    marks.append(time.perf_counter())
    render_comment(comparison)
    marks.append(time.perf_counter())
    render_report(comparison)
    marks.append(time.perf_counter())
    compare_s, comment_s, report_s = (after - before for before, after in pairwise(marks))
    return {
        "metrics": metrics,
        "mode": mode,
        "compare_s": compare_s,
        "comment_s": comment_s,
        "report_s": report_s,
        "processor_s": time.process_time() - start,
        "documents_mib": loaded_mib,
        "peak_mib": _peak_mib(),
    }


def _peak_mib() -> float:
    """Return the peak memory of this process (MiB).

    `getrusage` would return that of the process that started it.
    """
    status = Path("/proc/self/status").read_text()
    return (
        next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
        / 1024
    )


def measure_command(metrics: int, seed: int) -> tuple[float, float]:
    """Return the least seconds of the command for two documents on disk.

    These are wall time, and seconds of the processor.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("base.json", "head.json")]
        for path, slower in zip(paths, (False, True), strict=True):
            documents.write(results(metrics, seed, slower=slower), path)
        written = Path(folder) / "out"
        command = [
            sys.executable,
            "-m",
            "ci_bench.cli",
            "compare",
            *map(str, paths),
            "--output",
            str(written),
        ]
        compiled = {
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled"),
        }
        runs = [_run(command, os.environ | compiled) for _ in range(1 + REPEATS)][1:]
        missing = {"comparison.json", "report.md", "report.html"} - {
            entry.name for entry in written.iterdir()
        }
        if missing:
            raise RuntimeError(f"ci-bench compare did not write {missing}")
    return min(wall_s for wall_s, _ in runs), min(processor_s for _, processor_s in runs)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode not in {0, 1}:  # a tenth of head is slower: the policy is not met
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    after = os.times()
    used = (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    return time.perf_counter() - start, used


def row(result: Mapping[str, float]) -> dict[str, str]:
    """Return a row of the table of arrays."""
    return {
        "cases": f"{result['cases']:,.0f}",
        "compare, s": f"{result['compare_s']:.4f}",
        "judge, s": f"{result['judge_s']:.4f}",
        "both, s": f"{result['compare_s'] + result['judge_s']:.4f}",
        "peak, MiB": f"{result['peak_mib']:.0f}",
    }


def document_row(result: Mapping[str, float | str]) -> dict[str, str]:
    """Return a row of the table of documents."""
    steps = [float(result[name]) for name in ("compare_s", "comment_s", "report_s")]
    return {
        "metrics": f"{result['metrics']:,}",
        "mode": str(result["mode"]),
        "compare and judge, s": f"{steps[0]:.2f}",
        "comment, s": f"{steps[1]:.2f}",
        "report, s": f"{steps[2]:.2f}",
        "all, s": f"{sum(steps):.2f}",
        "of the processor, s": f"{result['processor_s']:.2f}",
        "peak, MiB (documents)": f"{result['peak_mib']:.0f} ({result['documents_mib']:.0f})",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.judge_scale", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--cases",
        type=int,
        nargs="+",
        default=SIZES,
        help="cases of arrays, and metrics of documents",
    )
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    arrays = [measure(cases, options.seed) for cases in options.cases]
    modes = (BaselineMode.FILE.value, BaselineMode.PAIRED.value)
    judged = [
        measure_documents(metrics, mode, options.seed)
        for metrics in options.cases
        for mode in modes
    ]
    command_s, processor_s = measure_command(ON_DISK, options.seed)
    texts = [
        render(
            f"Scale of the judge: {LAUNCHES} launches of {SAMPLES} samples per arm",
            [row(result) for result in arrays],
        ),
        render(
            "Documents, compared, judged and rendered", [document_row(result) for result in judged]
        ),
        (
            f"ci-bench compare of {ON_DISK:,} metrics, from start to end: {command_s:.2f} s,"
            f" {processor_s:.2f} s of the processor"
        ),
    ]
    document = {
        "benchmark": "judge_scale",
        "seed": options.seed,
        "results": arrays,
        "documents": judged,
        "command": {"metrics": ON_DISK, "seconds": command_s, "processor_s": processor_s},
    }
    publish("\n\n".join(texts), document, options.json)


if __name__ == "__main__":
    main()
