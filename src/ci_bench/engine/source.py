"""Which commit is being measured, asked of git. What git doesn't know is `None`."""

import subprocess
from contextlib import suppress
from pathlib import Path

from ci_bench.records.results import Source

TIMEOUT_S = 20.0


def describe_source(folder: Path) -> Source:
    """Commit, branch and whether tracked files differ from the commit."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return Source()
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    branch = _git(folder, "symbolic-ref", "--short", "--quiet", "HEAD")
    return Source(commit=commit, branch=branch, dirty=None if changes is None else bool(changes))


def _git(folder: Path, *arguments: str) -> str | None:
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        return told.stdout.strip()
    return None
