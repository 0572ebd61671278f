"""A side: one commit of the user's code, ready to be measured.

The caller's own tree can be a side without copy or set-up. `worktrees` makes the two trees, and
`runner` measures them in turns.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ci_bench.checkouts.git import describe_source
from ci_bench.processes.environ import worker_environment
from ci_bench.records.results import SideName, Source


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side of a run: the place of its code, and the start of its workers."""

    name: SideName
    """Name of the side."""
    environ: Mapping[str, str]
    """Whole environment of its workers."""
    folder: Path | None = None
    """Working folder of its workers, the root of relative paths; `None` for the caller's."""
    python: Path = field(default_factory=lambda: Path(sys.executable))
    """Interpreter whose environment has the side's packages in front of the engine's."""
    source: Source = Source()  # noqa: RUF009 - frozen, so it can be shared
    """Commit of the side, and its origin."""
    failure: str | None = None
    """Reason if its set-up failed and all its cases fail; `None` if it can be measured."""
    user: int | None = None
    """Number of the user that its processes run as; `None` for the caller."""


def caller_environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of code in the tree at `folder`.

    Its own modules come first, and secrets are left out. Programs are found in the engine's
    environment first, activated or not: `python` is the measuring interpreter.
    """
    variables = worker_environment(environ)
    path = [str(place) for place in on_path(folder)] + [environ.get("PYTHONPATH", "")]
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join(part for part in path if part),
        "PATH": program_path(variables.get("PATH", os.defpath)),
    }


def caller_side(
    name: SideName, folder: Path, environ: Mapping[str, str], more: Mapping[str, str] | None = None
) -> Side:
    """Return the tree at `folder` as a side; `more` are variables for its workers."""
    visible = {**caller_environment(folder, environ), **(more or {})}
    return Side(name=name, environ=visible, source=describe_source(folder, environ))


def on_path(folder: Path) -> list[Path]:
    """Return a tree's folders of modules: the folder itself, and ``src`` if it exists."""
    return [folder, *([folder / "src"] if (folder / "src").is_dir() else [])]


def program_path(path: str, venv: Path | None = None) -> str:
    """Return `path` (a value of ``PATH``) behind the engine's programs.

    These are behind those of a side's `venv`.
    """
    first = (
        [Path(sys.executable).parent]
        if venv is None
        else [venv / "bin", Path(sys.executable).parent]
    )
    return os.pathsep.join(
        dict.fromkeys([*map(str, first), *(part for part in path.split(os.pathsep) if part)])
    )
