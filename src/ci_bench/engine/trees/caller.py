"""The caller's own tree as a side: where it lies, without a copy and without set-up."""

import os
from collections.abc import Mapping
from pathlib import Path

from ci_bench.engine.process.environ import worker_environment
from ci_bench.engine.trees.sides import Side
from ci_bench.engine.trees.source import describe_source
from ci_bench.records.case import SideName


def caller_environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What code of the tree at `folder` sees of a caller's environment: its own modules first, and nothing that is secret."""
    path = [str(place) for place in on_path(folder)] + [environ.get("PYTHONPATH", "")]
    return {**worker_environment(environ), "PYTHONPATH": os.pathsep.join(part for part in path if part)}


def caller_side(name: SideName, folder: Path, environ: Mapping[str, str], more: Mapping[str, str] | None = None) -> Side:
    """The tree at `folder` as a side; `more` are variables for its workers."""
    return Side(name=name, environ={**caller_environment(folder, environ), **(more or {})}, source=describe_source(folder))


def on_path(folder: Path) -> list[Path]:
    """Where a tree has its modules: in the folder itself, and in ``src`` if there is one."""
    return [folder, *([folder / "src"] if (folder / "src").is_dir() else [])]
