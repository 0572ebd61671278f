"""A small repository like a user's: two operations, their suite, a backend, a configuration.

`make` writes it and commits it; `plant` commits one operation that is 5 % slower, one that is
faster, and a backend whose loss is off by 1 %. One operation waits 20 times, as for a device, the
plant 21 times: a busy machine changes that little, so that 5 % can be told on any. The other
repeats a piece of work on the processor 20 times, the plant 8 times. The backend is part of a
training that is measured where `make` is asked for it: that takes torch, and ten times as long.
"""

import subprocess
from pathlib import Path

import yaml

REPEATS, SLOWER, FASTER = 20, 21, 8
OPS = '''
"""The operations that this repository is for."""

import time


def fetch_rows(rows):
    for _ in range({slow}):
        time.sleep(0.0005)
    return rows


def rank_rows(rows):
    for _ in range({fast}):
        ranked = sorted(rows, key=lambda row: row % 97)
    return ranked
'''
COMPILER = '''
"""A compiler backend: it runs the graph as it is, with its gradients."""

from torch import Tensor


def backend(graph, inputs):
    def run(*arguments):
        return tuple({scale} * out if isinstance(out, Tensor) and out.requires_grad else out \
for out in graph.forward(*arguments))

    return run
'''
SUITE = '''
"""A case for each operation."""

from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import Stage, StageKind, Suite


class Operations(Suite):
    name = "operations"
    worker = "operations_worker"

    def plan(self, options):
        due = Due(times=("step_time",))
        return tuple(
            Case(id=f"operations/{op}", suite="operations", name=op, params={}, \
arms=("plain",), reference="plain", due=due)
            for op in ("fetch_rows", "rank_rows")
        )

    def stages(self, case):
        return (Stage(kind=StageKind.TIME, arms=case.arms, launches=None),)


SUITE = Operations()
'''
WORKER = '''
"""Times one operation of this tree."""

import ops

from ci_bench.suites.contract import Compiler, Evidence


class Workload:
    parts, items, compiler = (), None, Compiler.NONE

    def __init__(self, name):
        self.operation, self.rows = getattr(ops, name), list(range(400))

    def prepare(self):
        pass

    def verify(self, arms):
        return Evidence()

    def open(self, arm):
        return self

    def step(self, mark):
        self.operation(self.rows)

    def finish(self):
        return ()


def open_workload(case, context):
    return Workload(case.name)
'''
RUN = {"device": "cpu", "threads": 1, "blocks": 20, "sample_s": 0.004, "warmup_s": 0.5}
TRAINING = {
    "name": "tiny",
    "backend": "compiler:backend",
    "epochs": 1,
    "num_samples": 96,
    "batch_size": 8,
    "max_length": 16,
    "evaluation": False,
}


def make(folder: Path, *, training: bool = False, **run: object) -> None:
    """Write the repository and commit it, with a `training` if requested.

    `run` are further fields of the configuration's `run`.
    """
    folder.mkdir(parents=True)
    _write(folder, slow=REPEATS, fast=REPEATS, scale=1)
    (folder / "operations_suite.py").write_text(SUITE)
    (folder / "operations_worker.py").write_text(WORKER)
    config = {
        "schema_version": 1,
        "baseline": "paired",
        "plugins": {"operations": "operations_suite:SUITE"},
        "run": {**RUN, **run},
        "suites": {"operations": [{}], **({"training_loss": [TRAINING]} if training else {})},
    }
    (folder / "ci-bench.yml").write_text(yaml.safe_dump(config, sort_keys=False))
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "two operations and a backend")


def plant(folder: Path) -> None:
    """Commit one operation that is slower, one that is faster, and a loss that is different."""
    _write(folder, slow=SLOWER, fast=FASTER, scale=1.01)
    commit(folder, "slower, faster, different")


def _write(folder: Path, *, slow: int, fast: int, scale: float) -> None:
    (folder / "ops.py").write_text(OPS.format(slow=slow, fast=fast))
    (folder / "compiler.py").write_text(COMPILER.format(scale=scale))


def commit(folder: Path, message: str) -> None:
    """Commit all files of a repository."""
    author = (
        "-c",
        "user.name=sample",
        "-c",
        "user.email=sample@localhost",
        "-c",
        "commit.gpgsign=false",
    )
    git(folder, "add", "--all")
    git(folder, *author, "commit", "--quiet", f"--message={message}")


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)
