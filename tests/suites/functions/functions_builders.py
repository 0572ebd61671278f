"""Trees with benchmarks, their cases, and what the worker's half says of one."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from ci_bench.records.results import Case, Check
from ci_bench.suites.contract import Computed, Context, Evidence
from ci_bench.suites.functions.plan import Functions

HEAD = "import torch\nimport ci_bench\n"
QUICK = ("--device", "cpu", "--launches", "1")
RUN = {
    "sampling": "fixed",
    "blocks": 2,
    "sample_s": 0.002,
    "warmup_s": 0.1,
    "overlap": False,
    "explain": "never",
}


def write(folder: Path, source: str, *, file: str = "bench.py", head: str = HEAD) -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + textwrap.dedent(source))
    for name in [name for name in sys.modules if name.startswith("ci_bench_own_")]:
        del sys.modules[name]
    return path


def plan(folder: Path, **options: object) -> tuple[Case, ...]:
    return Functions(folder=folder).plan({"path": "bench.py", **options})


def ids(folder: Path, **options: object) -> list[str]:
    return [case.id for case in plan(folder, **options)]


def context(folder: Path, keep: Callable[[Computed], None] = lambda _: None) -> Context:
    return Context(device="cpu", scratch=folder, progress=lambda *_: None, keep=keep)


def evidence(
    folder: Path, source: str, *, keep: Callable[[Computed], None] = lambda _: None
) -> Evidence:
    """What verifying the first case says."""
    from ci_bench.suites.functions.run import open_workload

    write(folder, source)
    case = plan(folder)[0]
    return open_workload(case, context(folder, keep)).verify(case.arms)


def agrees(folder: Path, source: str) -> dict[str, Check]:
    """The check `agrees` of each arm of the first case."""
    return {check.arm: check for check in evidence(folder, source).checks if check.name == "agrees"}


def ci_bench(folder, *arguments):
    environ = {
        **os.environ,
        "CI_BENCH_NOISE": str(folder / ".noise"),
        "CI_BENCH_LOCKS": str(folder / ".locks"),
    }
    command = [sys.executable, "-m", "ci_bench.cli", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


def commit(tree, message):
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    for arguments in (("add", "--all"), ("commit", "--quiet", f"--message={message}")):
        subprocess.run(["git", *identity, *arguments], cwd=tree, check=True)
