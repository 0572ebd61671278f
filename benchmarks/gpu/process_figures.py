"""Figures of processes: handing the GPU over, and starting a worker."""

import json
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.gpu.measuring import Finding, Trial, middle, quantiles, run_module

ROUNDS, CALLS, REPEATS = 40, 6, 5
START_LIMIT_S = 55
Rounds = Sequence[Sequence[float]]


class Resident:
    """A process that stays on the GPU (`benchmarks.gpu.resident`)."""

    def __init__(self) -> None:
        """Start it; it is warm at its first answer."""
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "benchmarks.gpu.resident"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def work(self, kind: str, calls: int = CALLS) -> list[float]:
        """Return the seconds of each call."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None  # noqa: S101 - it is a pipe
        assert answers is not None  # noqa: S101 - likewise
        questions.write(f"{kind} {REPEATS} {calls}\n")
        questions.flush()
        answer = answers.readline()
        if not answer:
            message = f"a process on the GPU ended with {self._process.wait()}"
            raise RuntimeError(message)
        return list(map(float, answer.split()))

    def end(self) -> None:
        """End it."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()


def measure_hand_over(trial: Trial) -> Finding:
    """Time the first and later calls of a turn, without and with a second process."""
    rounds = trial.size(ROUNDS, 8)
    first = Resident()
    by_name: dict[str, Rounds] = {}
    for kind in ("heavy", "tiny"):
        first.work(kind, 50)
        by_name[f"{kind}, only process"] = [first.work(kind) for _ in range(rounds)]
    second = Resident()
    second.work("heavy", 50)
    for kind in ("heavy", "tiny"):
        by_name[f"{kind}, idle second process"] = [first.work(kind) for _ in range(rounds)]
        by_name[f"{kind}, in turns"] = [_turn(first, second, kind) for _ in range(rounds)]
    for process in (first, second):
        process.end()
    values = {
        f"{name}, call {place} us": quantiles([calls[place] for calls in every])
        for name, every in by_name.items()
        for place in (0, 1, CALLS - 1)
    }
    first_us = values["heavy, in turns, call 0 us"]["p50"]
    later_us = values[f"heavy, in turns, call {CALLS - 1} us"]["p50"]
    only_us = values[f"heavy, only process, call {CALLS - 1} us"]["p50"]
    summary = f"first call of a turn {first_us:.0f} us, later {later_us:.0f}, alone {only_us:.0f}"
    return Finding(values=values, summary=summary)


def _turn(first: Resident, second: Resident, kind: str) -> list[float]:
    second.work(kind)
    return first.work(kind)


def measure_start(trial: Trial) -> Finding:
    """Time a worker from its fork to its first kernel, and its end."""
    environ = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    done = run_module(trial, "worker_start", limit_s=START_LIMIT_S, environ=environ)
    if done.returncode:
        return Finding(values={"error": done.stderr[-800:]}, summary="failed", failed=True)
    rows = json.loads(done.stdout.splitlines()[-1])
    names = ("to a context s", "to a product s", "to its end s", "status")
    values = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    context_s, product_s, end_s = (middle(values[name]) for name in names[:3])
    summary = f"context {context_s:.2f} s, first product {product_s:.2f} s, end {end_s:.2f} s"
    return Finding(values=values, summary=summary, failed=any(values["status"]))
