"""Whether explaining touches what was timed: gates of one commit against itself, explained and not explained in turns.

Run as ``python -m benchmarks.explained_gates [--pairs N] [--json FILE [--resume]]``. Each gate is `ci-bench gate` in a process
of its own, with two trees and two launches; `run.explain` is `always` in one of a pair and `never` in the other, first in every
second. A figure is the log-ratio of the step times, explained over not explained, each the mean of logarithms over all samples of
both sides; its standard error is over pairs. Counted are samples, too: there are as many with as without.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.tables import publish, render
from ci_bench.records import documents
from ci_bench.records.results import Results

BENCH = """
import ci_bench
import torch

@ci_bench.benchmark(n=[128, 384])
def attention(n):
    (x,) = ci_bench.inputs(1, (n, n))
    return lambda: torch.softmax(x @ x, -1).sum(-1)
"""
RUN = {"sampling": "fixed", "launches": 2, "blocks": 10, "sample_s": 0.01, "warmup_s": 0.2, "threads": 1, "explain_s": 60}


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """One gate: the mean of the logarithms of all step times (s), how many there were, and how many arms were explained.

    `launches` are such means of one launch of one case each, by case and side.
    """

    explain: str
    step: float
    samples: int
    profiles: int
    launches: Sequence[float] = ()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the pairs that are left, write each gate down at once, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--at-most", type=int, help="measure no more than so many pairs in this call")
    parser.add_argument("--json", type=Path, help="also write the figures here, after every pair")
    parser.add_argument("--resume", action="store_true", help="count the pairs that --json has")
    flags = parser.parse_args(argv)
    gates: list[Gate] = []
    if flags.resume and flags.json and flags.json.exists():
        gates = [Gate(**one) for one in json.loads(flags.json.read_text(encoding="utf-8"))["gates"]]
    first = len(gates) // 2
    with tempfile.TemporaryDirectory() as folder:
        tree = repository(Path(folder) / "tree")
        for number in range(first, min(flags.pairs, first + (flags.at_most or flags.pairs))):
            pair = [gate(tree, explain) for explain in order(number)]
            gates += sorted(pair, key=lambda one: one.explain)
            sys.stderr.write(f"{gates[-2:]}\n")
            if flags.json:
                flags.json.write_text(json.dumps({"gates": list(map(asdict, gates))}))
    publish(table(gates), {"gates": list(map(asdict, gates))}, flags.json)
    return 0


def order(number: int) -> tuple[str, str]:
    """Which comes first, in turn."""
    return ("always", "never") if number % 2 else ("never", "always")


def repository(tree: Path) -> Path:
    """A repository of one commit."""
    tree.mkdir()
    (tree / "bench.py").write_text(BENCH)
    (tree / ".gitignore").write_text("out*\n.noise\n.locks\n__pycache__\nci-bench.yml\n")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *command], cwd=tree, check=True)
    return tree


def gate(tree: Path, explain: str) -> Gate:
    """One gate of the commit against itself."""
    config = {"schema_version": 1, "run": RUN | {"explain": explain}, "suites": {"functions": [{"path": "bench.py"}]}}
    (tree / "ci-bench.yml").write_text(json.dumps(config))
    environ = {**os.environ, "CI_BENCH_NOISE": str(tree / ".noise"), "CI_BENCH_LOCKS": str(tree / ".locks")}
    flags = ("--baseline", "paired", "--base", "HEAD", "-o", "out", "--device", "cpu")
    command = [sys.executable, "-m", "ci_bench.cli", "gate", *flags]
    ended = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=300, check=False)
    sides = [tree / "out" / "results.json", tree / "out" / "base" / "results.json"]
    if not all(path.exists() for path in sides):
        raise SystemExit(f"the gate wrote no results: {ended.stderr[-2000:]}")
    return of(explain, [documents.read_results(path) for path in sides])


def of(explain: str, sides: Sequence[Results]) -> Gate:
    """What both sides of a gate come to."""
    rows = [row for side in sides for row in side.cases]
    if failed := [row for row in rows if row.failure is not None]:
        raise SystemExit(f"{failed[0].case.id} could not be measured: {failed[0].failure}")
    steps = [metric for row in rows for metric in row.metrics if metric.name == "step_time"]
    values = [value for metric in steps for launch in metric.launches for value in launch.values]
    known = [profile for row in rows for profile in row.profiles if profile.step_s is not None]
    launches = [statistics.fmean(map(math.log, launch.values)) for metric in steps for launch in metric.launches]
    step = statistics.fmean(map(math.log, values))
    return Gate(explain=explain, step=step, samples=len(values), profiles=len(known), launches=launches)


def table(gates: Sequence[Gate]) -> str:
    """The log-ratio over pairs, with its standard error, of all samples and of each quickest launch, and counts."""
    pairs = list(zip(gates[::2], gates[1::2], strict=True))
    row = {
        "pairs of gates": str(len(pairs)),
        "explained / not": ratio([always.step - never.step for always, never in pairs]),
        "of quickest launches": ratio([quick(always) - quick(never) for always, never in pairs if always.launches]),
        "samples with": "; ".join(sorted({str(one.samples) for one, _ in pairs})),
        "samples without": "; ".join(sorted({str(two.samples) for _, two in pairs})),
        "profiles with": "; ".join(sorted({str(one.profiles) for one, _ in pairs})),
        "profiles without": "; ".join(sorted({str(two.profiles) for _, two in pairs})),
    }
    return render("Step times of one commit against itself, explained and not, in turns", [row])


def quick(gate: Gate) -> float:
    """The mean over cases and sides of the quicker launch: in the other something else may have had the machine."""
    launches = RUN["launches"]
    assert isinstance(launches, int)  # noqa: S101 - our own
    return statistics.fmean(min(gate.launches[at : at + launches]) for at in range(0, len(gate.launches), launches))


def ratio(ratios: Sequence[float]) -> str:
    """The mean of log-ratios and its standard error."""
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return f"{statistics.fmean(ratios):+.2%} ± {error:.2%}" if ratios else "nan"


if __name__ == "__main__":
    sys.exit(main())
