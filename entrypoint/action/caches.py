"""What set-up keeps from job to job (`setup.cache`): each branch's own, on the runner, where the input `cache` says.

A job works on a copy. Only a run of the branch itself (a push, a schedule, by hand) puts its copy
in the old one's place; that of a pull request begins with its base branch's and is thrown away:
what one pull request wrote, no other and no branch ever reads.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import containers
from workflow import say

KEEPING = ("push", "schedule", "workflow_dispatch")
"""The events of a branch itself; its code has been merged, or somebody who may write started it."""
FOLDER = "cache"
_BRANCH = "refs/heads/"
_TIMEOUT_S = 1800


def seed(state: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Give this job a copy of what the branch has: one for each side where base and head are users of their own."""
    kept = place(state, environ)
    if kept is None or not kept.is_dir():
        return
    for part in _parts(state):
        if not _copy(kept, _own(state) / part):
            _empty(_own(state))
            say(f"the cache of set-up could not be copied from {kept}: this job begins without one")
            return


def keep(state: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Put this job's copy in the place of the branch's, if it is the branch's own job.

    Its files have to be this user's.
    """
    kept = place(state, environ)
    if kept is None or environ.get("GITHUB_EVENT_NAME") not in KEEPING:
        return
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh, old = (
        kept.with_name(f"{kept.name}.{word}-{secrets.token_hex(6)}") for word in ("new", "old")
    )
    if not _copy(_own(state) / _parts(state)[-1], fresh):
        say(f"the cache of set-up could not be kept in {kept.parent}")
    else:
        if kept.exists():
            kept.rename(old)
        fresh.rename(kept)
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)


def place(state: Mapping[str, Any], environ: Mapping[str, str]) -> Path | None:
    """Where the cache of this job's branch lies: that of a pull request is its base branch.

    `None` where nothing is kept.
    """
    ref = environ.get("GITHUB_REF", "")
    branch = environ.get("GITHUB_BASE_REF") or (
        ref[len(_BRANCH) :] if ref.startswith(_BRANCH) else ""
    )
    if not state["settings"]["cache"] or not branch:
        return None
    named = (
        f"{environ.get('GITHUB_REPOSITORY_ID', '')} {environ.get('GITHUB_REPOSITORY', '')} {branch}"
    )
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", branch)[:60]
    return (
        Path(state["settings"]["cache"])
        / f"{plain}-{hashlib.sha256(named.encode()).hexdigest()[:16]}"
    )


def _own(state: Mapping[str, Any]) -> Path:
    return Path(state["work"]) / FOLDER


def _parts(state: Mapping[str, Any]) -> tuple[str, ...]:
    """The folders in a job's copy: head's is what is kept, as a branch's own job has its newest commit there."""
    return ("base", "head") if containers.apart(state) else (".",)


def _copy(source: Path, target: Path) -> bool:
    """A copy with links as links, without their targets; blocks are shared where the file system can."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [
        "cp",
        "--archive",
        "--reflink=auto",
        "--no-target-directory",
        "--",
        str(source),
        str(target),
    ]
    try:
        return (
            subprocess.run(
                command, stdin=subprocess.DEVNULL, check=False, timeout=_TIMEOUT_S
            ).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()
