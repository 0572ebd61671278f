"""Gates one rank of two that works 5 % longer in each step, and the same commit.

Run as ``python -m benchmarks.slow_rank [--ways layouts loop] [--heads slower same] [--work pauses]
[--place optimizer]``. Each gate is `ci-bench gate` in paired mode. The work is 20 products of
matrices in each rank's forward pass, or 20 pauses, as of ranks with a separate device each; in the
slower head, only rank 1 does 21. With ``--place optimizer`` it comes after the exchange of
gradients, in the optimizer's step, when the other rank has nothing else to do. The training is
measured by `training_loss` (DDP next to one process) and as a custom loop under `torchrun`. A
synchronous step takes as long as its slowest rank, so the gate has to find about 5 % of the step,
with rank 1 named. Products need a core for each rank, and an idle machine: the slower of two ranks
waits longer.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.sample_repository import commit, git
from benchmarks.tables import publish, render
from ci_bench.records import documents
from ci_bench.records.comparison import Comparison, Pair
from ci_bench.records.results import Results

LAYOUTS, LOOP = "layouts", "loop"
SAME, SLOWER = "same", "slower"
REPEATS = {SAME: (20, 20), SLOWER: (20, 21)}
WORK = {"products": "MATRIX @ MATRIX", "pauses": "time.sleep(0.005)"}
FORWARD, OPTIMIZER = "forward", "optimizer"
MODEL = '''"""A training whose ranks do a piece of work as often as is said here, and its rows."""

import time

import torch
import torch.distributed
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import ci_bench

REPEATS = {repeats}
PLACE = {place!r}
MATRIX = torch.ones(512, 512)


def rank():
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def work(place):
    for _ in range(REPEATS[rank()] if place == PLACE else 0):
        {work}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 4)

    def forward(self, features):
        work("forward")
        return self.head(features)


class Working(torch.optim.SGD):
    def step(self, closure=None):
        work("optimizer")
        return super().step(closure)


def rows(split, count):
    features = torch.randn(count, 16, generator=torch.Generator().manual_seed(0))
    return {{"features": features, "labels": features[:, :4].argmax(dim=1)}}


def train():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(Net())
    optimizer = Working(model.parameters(), lr=0.05)
    batch = rows("train", 8)
    while True:
        optimizer.zero_grad()
        loss = cross_entropy(model(batch["features"]), batch["labels"])
        loss.backward()
        optimizer.step()
        yield ci_bench.Step(loss=loss)
'''
SUITES = {
    LAYOUTS: {
        "training_loss": [
            {
                "name": "tiny",
                "layouts": ["ddp"],
                "processes": 2,
                "epochs": 2,
                "num_samples": 48,
                "batch_size": 8,
                "lr": 0.05,
                "optimizer": "model:Working",
                "evaluation": False,
                "perturbations": 2,
                "loss": "torch.nn.functional:cross_entropy",
                "dataset": {"factory": "model:rows", "num_labels": 4},
                "model": {"factory": "model:Net"},
            }
        ]
    },
    LOOP: {
        "command": [
            {
                "name": "tiny",
                "loop": "model:train",
                "processes": 2,
                "losses": {"steps": 100, "warmup_steps": 10, "rounding": []},
            }
        ]
    },
}
ARM = {LAYOUTS: "ddp", LOOP: "loop"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """One gate: its exit code, how long it took (s), and its documents."""

    exit_code: int
    seconds: float
    comparison: Comparison
    head: Results

    def pair(self, metric: str, arm: str) -> Pair | None:
        """Return the comparison of head with base in one metric of one arm."""
        (case,) = self.comparison.cases
        return next((pair for pair in case.pairs if (pair.metric, pair.arm) == (metric, arm)), None)

    @property
    def ranks(self) -> str:
        """Facts about ranks in head's results."""
        (row,) = self.head.cases
        return "; ".join(
            f"{name}: {value}" for name, value in row.facts.items() if name.startswith("rank")
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Gate, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=tuple(SUITES), default=tuple(SUITES))
    parser.add_argument("--heads", nargs="+", choices=tuple(REPEATS), default=tuple(REPEATS))
    parser.add_argument("--work", choices=tuple(WORK), default="products")
    parser.add_argument(
        "--place",
        choices=(FORWARD, OPTIMIZER),
        default=FORWARD,
        help="where in a step the work is done",
    )
    parser.add_argument("--launches", type=int, default=6)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--folder", type=Path, help="keep repositories and documents here")
    arguments = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for way in arguments.ways:
            make(
                folder / way,
                way,
                launches=arguments.launches,
                work=arguments.work,
                place=arguments.place,
            )
            for head in arguments.heads:
                plant(folder / way, head, work=arguments.work, place=arguments.place)
                outcome = gate(folder / way, folder / f"out-{way}-{head}")
                rows.append(
                    {
                        "work": arguments.work,
                        "in": arguments.place,
                        **dict(_row(way, head, outcome)),
                    }
                )
                sys.stderr.write(f"{rows[-1]}; {outcome.ranks}\n")
    publish(render("One rank of two that works 5 % longer", rows), {"rows": rows}, arguments.json)
    return 0


def make(folder: Path, way: str, *, launches: int, work: str, place: str = FORWARD) -> None:
    """Create a repository whose base has ranks that do the same."""
    folder.mkdir(parents=True)
    config = {
        "schema_version": 1,
        "baseline": "paired",
        "run": {"device": "cpu", "threads": 1, "launches": launches, "warmup_s": 1.0},
        "suites": SUITES[way],
    }
    (folder / "ci-bench.yml").write_text(yaml.safe_dump(config, sort_keys=False))
    git(folder, "init", "--quiet", "--initial-branch=main")
    _commit(folder, SAME, work, place)
    git(folder, "tag", "base")


def plant(folder: Path, head: str, *, work: str, place: str = FORWARD) -> None:
    """Check out a head with these ranks; of the same ones another file is new."""
    git(folder, "checkout", "--quiet", "base")
    (folder / "NOTES").write_text(head)
    _commit(folder, head, work, place)


def gate(folder: Path, out: Path) -> Gate:
    """Gate the checkout against base; write the documents to `out`.

    Raises:
        RuntimeError: nothing was compared; it has the gate's output.
    """
    started = time.monotonic()
    environ = {**os.environ, "CI_BENCH_NOISE": str(folder.parent / "noise")}
    command = [sys.executable, "-m", "ci_bench.cli", "gate", "--base", "base", "--output", str(out)]
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    if not (out / "comparison.json").exists():
        raise RuntimeError(done.stdout + done.stderr)
    return Gate(
        exit_code=done.returncode,
        seconds=time.monotonic() - started,
        comparison=documents.read_comparison(out / "comparison.json"),
        head=documents.read_results(out / "results.json"),
    )


def _row(way: str, head: str, outcome: Gate) -> Iterator[tuple[str, str]]:
    step, skew = outcome.pair("step_time", ARM[way]), outcome.pair("rank_skew", ARM[way])
    if step is None or step.speedup is None:
        raise RuntimeError(
            f"{way}, {head}: no step was timed: {[row.failure for row in outcome.head.cases]}"
        )
    yield "training", way
    yield "head", "rank 1 alone: 21 in place of 20" if head == SLOWER else "the same"
    yield "verdict", str(step.verdict)
    yield "step", f"{1 / step.speedup - 1:+.1%}"
    yield "could be told", "–" if step.resolvable is None else f"{step.resolvable:.1%}"
    yield "skew, base → head", "–" if skew is None else f"{_ms(skew.base)} → {_ms(skew.head)}"
    yield "exit code", str(outcome.exit_code)
    yield "s", f"{outcome.seconds:.0f}"


def _ms(summary: object) -> str:
    median = getattr(summary, "median", None)
    return "–" if median is None else f"{1e3 * median:.2f} ms"


def _commit(folder: Path, head: str, work: str, place: str) -> None:
    (folder / "model.py").write_text(
        MODEL.format(repeats=REPEATS[head], work=WORK[work], place=place)
    )
    commit(folder, head)


if __name__ == "__main__":
    sys.exit(main())
