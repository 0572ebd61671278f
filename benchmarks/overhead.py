"""Measures the cost of the harness: the timing fence, and a forked child.

The fence is compared with a bare loop and torch's own timer, the child with a fresh Python.

Run as ``python -m benchmarks.overhead [--json FILE]``. CPU only; the work is a matrix product of
about 20 ms on one thread.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.tables import publish, render
from ci_bench.processes.environ import worker_environment
from ci_bench.processes.launch import Launcher
from ci_bench.processes.protocol import TOUCH_FROM_CALLS, Task
from ci_bench.records.config import RunOptions
from ci_bench.records.results import SideName
from ci_bench.runner.turns import Opener, Turns
from ci_bench.suites.reference_kernels.plan import SUITE
from ci_bench.worker.fence import hold_garbage_collector, synchronizer, time_calls

SIZE = 900
ROUNDS = 60
EMPTY_CALLS = 20000
STARTS = 7
TURN_BLOCKS = 100
TOUCHES = 3 / 4
"""Of the four turns of a block, three come after the other process's; with many calls in a sample
they begin with one untimed.
"""
WORK = "matmul"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    figures = {**fence(), **turns(), **starts()}
    rows = [{"what": name, "value": f"{value:.4g}"} for name, value in figures.items()]
    publish(render("Overhead of the harness", rows), {"figures": figures}, arguments.json)
    return 0


def fence() -> dict[str, float]:
    """Return the cost of an empty fence, and the bias of a fenced sample.

    Samples are in turns with a bare loop and with `torch.utils.benchmark`.
    """
    import torch
    from torch.utils.benchmark import Timer

    torch.set_num_threads(1)
    first, second = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)

    def work() -> None:
        torch.mm(first, second)

    synchronize = synchronizer("cpu")
    timer = Timer("work()", globals={"work": work}, num_threads=1)
    ways: dict[str, Callable[[], float]] = {
        "fence": lambda: time_calls(work, calls=1, synchronize=synchronize),
        "bare loop": lambda: _bare(work),
        "torch.utils.benchmark": lambda: timer.timeit(1).mean,
    }
    samples = _in_turns(ways)
    empty = statistics.median(
        time_calls(_nothing, calls=1, synchronize=synchronize) for _ in range(EMPTY_CALLS)
    )
    medians = {name: statistics.median(values) for name, values in samples.items()}
    ratios = {
        name: statistics.median(
            ours / theirs for ours, theirs in zip(samples["fence"], samples[name], strict=True)
        )
        for name in ("bare loop", "torch.utils.benchmark")
    }
    return {
        "sample, fenced, median (ms)": medians["fence"] * 1e3,
        "empty fence, median (us)": empty * 1e6,
        "empty fence, share of a 20 ms sample (%)": empty / 0.02 * 100,
        "bias against a bare loop (%)": (ratios["bare loop"] - 1) * 100,
        "bias against torch.utils.benchmark (%)": (ratios["torch.utils.benchmark"] - 1) * 100,
    }


def turns() -> dict[str, float]:
    """Return the cost of giving turns to two resident processes, besides their samples.

    It consists of orders, answers, and calls that touch caches.
    """
    options = RunOptions(device="cpu", threads=1, blocks=TURN_BLOCKS, warmup_s=1.0)
    case = next(case for case in SUITE.plan({}) if case.name == WORK)
    spent: dict[str, float] = {}

    def tell(done: int, total: int) -> None:
        spent["first" if done == 2 else "last" if done == total else "between"] = (  # noqa: PLR2004 - one block
            time.perf_counter()
        )

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        openers: dict[SideName, Opener] = {}
        for name in SideName:
            scratch = Path(folder) / name
            scratch.mkdir()
            environ = worker_environment({"PATH": "/usr/bin:/bin"})
            launcher = stack.enter_context(
                Launcher(preload=("torch",), environ=environ, folder=scratch)
            )
            task = Task(
                launch=0,
                device="cpu",
                options=options,
                scratch=str(scratch),
                worker=SUITE.worker,
                case=case,
                stage=SUITE.stages(case)[0],
            )
            openers[name] = partial(launcher.begin, task, timeout_s=120.0, on_answer=lambda _: None)
        played = Turns(arms=1, launch=0, options=options, coin=random.Random(0), tell=tell).play(  # noqa: S311 - an order
            openers
        )
    samples_s, touches_s = 0.0, 0.0
    for ended in played.ended.values():
        (step,) = (
            metric
            for answer in ended.answers
            if answer.evidence
            for metric in answer.evidence.metrics
        )
        values = step.launches[0].values[2:]
        samples_s += step.calls * sum(values)
        touches_s += TOUCHES * sum(values) if step.calls >= TOUCH_FROM_CALLS else 0.0
    turns_taken = 2 * 2 * (TURN_BLOCKS - 1)
    wall_s = spent["last"] - spent["first"]
    harness_s = wall_s - samples_s - touches_s
    return {
        "turns of two processes: sample (ms)": samples_s / turns_taken * 1e3,
        "turns of two processes: calls that touch caches, beside a sample (ms)": (
            touches_s / turns_taken * 1e3
        ),
        "turns of two processes: orders and answers, beside a sample (ms)": (
            harness_s / turns_taken * 1e3
        ),
        "turns of two processes: orders and answers (% of wall time)": harness_s / wall_s * 100,
    }


def starts() -> dict[str, float]:
    """Return the seconds from ordering a case to its first line of work.

    It is forked from a preloaded server, or runs in a fresh interpreter.
    """
    with tempfile.TemporaryDirectory() as folder:
        task = Task(launch=0, device="cpu", options=RunOptions(threads=1), scratch=folder)
        environ = worker_environment({"PATH": "/usr/bin:/bin"})
        with Launcher(
            preload=("torch", "transformers"), environ=environ, folder=Path(folder) / "launch"
        ) as launcher:
            ends = [
                launcher.run(task, timeout_s=60, on_answer=lambda _: None).duration_s
                for _ in range(STARTS)
            ]
    command = [
        sys.executable,
        "-c",
        (
            "import torch, transformers; from ci_bench.worker.probe import probe_environment as p;"
            " p('cpu')"
        ),
    ]
    fresh = [_seconds(lambda: subprocess.run(command, check=True)) for _ in range(STARTS)]
    forked_s, fresh_s = statistics.median(ends), statistics.median(fresh)
    return {
        "a worker from the forkserver, with the machine probed (s)": forked_s,
        "the same in a fresh interpreter (s)": fresh_s,
        "share (%)": forked_s / fresh_s * 100,
    }


def _in_turns(ways: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in ways}
    with hold_garbage_collector():
        for number in range(ROUNDS):
            order = list(ways)[:: 1 if number % 2 else -1]
            for name in order:
                samples[name].append(ways[name]())
    return samples


def _bare(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _nothing() -> None:
    return None


if __name__ == "__main__":
    sys.exit(main())
