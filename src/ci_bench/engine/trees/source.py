"""Which commit is being measured, asked of git. What git doesn't know is `None`."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ci_bench.engine.trees.git import Git
from ci_bench.errors import GitFailed
from ci_bench.records.results import Source


def describe_source(folder: Path, environ: Mapping[str, str] | None = None) -> Source:
    """Commit, branch and whether tracked files differ from the commit. `environ` is what git runs with, `None` for our own."""
    git = Git.at(folder, os.environ if environ is None else environ)
    with suppress(GitFailed):
        commit = git.ask("rev-parse", "--verify", "--quiet", "HEAD")
        if commit is None:
            return Source()
        branch = git.ask("symbolic-ref", "--short", "--quiet", "HEAD")
        changes = git.ask("status", "--porcelain", "--untracked-files=no")
        return Source(commit=commit, branch=branch, dirty=None if changes is None else bool(changes))
    return Source()
