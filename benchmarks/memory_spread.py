"""Measures how far the memory of unchanged code differs between processes.

Libraries are in the page cache, or were dropped from it.

Run as ``python -m benchmarks.memory_spread [--runs N] [--threads N] [--arm NAME]``. Each line is
one process that has the stage of memory of `training_loss` as embedded, one arm alone: `eager`, or
a backend such as `aot_eager`. Every second one begins after the libraries of the one before were
dropped.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

from ci_bench.suites.contract import Context, Stage, StageKind
from ci_bench.suites.registry import find_suite
from ci_bench.suites.training_loss.options import REFERENCE_ARM
from ci_bench.worker.isolated import measure_alone
from ci_bench.worker.memory import memory_of
from ci_bench.worker.phases import Stopwatch

MIB = 1024**2
ROOT = Path(__file__).resolve().parents[1]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure in processes of their own, a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--arm", default=REFERENCE_ARM, help="eager, or a backend")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        sys.stdout.write(json.dumps(_measure(arguments.child, arguments.threads, arguments.arm)))
        return 0
    libraries: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        flags = ["--threads", str(arguments.threads), "--arm", arguments.arm, "--child", scratch]
        command = [sys.executable, "-m", "benchmarks.memory_spread", *flags]
        for run in range(arguments.runs + 1):
            cold = run % 2 == 0
            if cold:
                _drop(libraries)
            child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            figures, libraries = json.loads(child.stdout)
            if run:  # the first process prepares the data too
                words = ", ".join(
                    f"{name} {value / MIB:.2f} MiB" for name, value in figures.items()
                )
                sys.stdout.write(f"{'cold' if cold else 'warm'}: {words}\n")
    return 0


def _measure(scratch: Path, threads: int, arm: str) -> tuple[dict[str, float], list[str]]:
    """Return the metrics of the stage, and the libraries that the process has mapped."""
    suite = find_suite("training_loss")
    (case,) = suite.plan(
        {"name": "spread", "backend": "aot_eager" if arm == REFERENCE_ARM else arm}
    )
    for module in suite.preload_of(case):
        import_module(module)
    import torch

    torch.set_num_threads(threads)
    context = Context(device="cpu", scratch=scratch, progress=lambda *_: None)
    memory = memory_of("cpu")
    workload = import_module(suite.worker).open_workload(case, context)
    if not any(scratch.iterdir()):
        workload.prepare()
    stage = Stage(kind=StageKind.ALONE, arms=(arm,))
    metrics = measure_alone(
        workload, stage, launch=0, context=context, stopwatch=Stopwatch(), memory=memory
    ).metrics
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {metric.name: metric.launches[0].values[0] for metric in metrics}, sorted(
        {line.split()[-1] for line in maps if ".so" in line}
    )


def _drop(libraries: Iterable[str]) -> None:
    for library in libraries:
        with contextlib.suppress(OSError), Path(library).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    raise SystemExit(main())
