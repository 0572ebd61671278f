"""The cache of set-up (`setup.cache`): kept from job to job, for each branch, on the runner.

The input `cache` is its folder.

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
"""The events of a branch itself: its code was merged, or started by someone with write access."""
FOLDER = "cache"
_BRANCH = "refs/heads/"
_TIMEOUT_S = 1800


def seed(state: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Give this job a copy of the branch's cache.

    Base and head get one each if they are users of their own.
    """
    cache = place(state, environ)
    if cache is None or not cache.is_dir():
        return
    for part in _parts(state):
        if not _copy(cache, _find_copy(state) / part):
            _empty(_find_copy(state))
            say(
                f"the cache of set-up could not be copied from {cache}: this job begins without one"
            )
            return


def keep(state: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Replace the branch's cache by this job's copy, if it is the branch's own job.

    Its files have to be this user's.
    """
    cache = place(state, environ)
    if cache is None or environ.get("GITHUB_EVENT_NAME") not in KEEPING:
        return
    cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh, old = (
        cache.with_name(f"{cache.name}.{word}-{secrets.token_hex(6)}") for word in ("new", "old")
    )
    if not _copy(_find_copy(state) / _parts(state)[-1], fresh):
        say(f"the cache of set-up could not be kept in {cache.parent}")
    else:
        if cache.exists():
            cache.rename(old)
        fresh.rename(cache)
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)


def place(state: Mapping[str, Any], environ: Mapping[str, str]) -> Path | None:
    """Return the folder of the branch's cache, or `None` if nothing is kept.

    The branch of a pull request is its base branch.
    """
    ref = environ.get("GITHUB_REF", "")
    branch = environ.get("GITHUB_BASE_REF") or (
        ref[len(_BRANCH) :] if ref.startswith(_BRANCH) else ""
    )
    if not state["settings"]["cache"] or not branch:
        return None
    identity = (
        f"{environ.get('GITHUB_REPOSITORY_ID', '')} {environ.get('GITHUB_REPOSITORY', '')} {branch}"
    )
    slug = re.sub(r"[^A-Za-z0-9._-]+", "_", branch)[:60]
    return (
        Path(state["settings"]["cache"])
        / f"{slug}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    )


def _find_copy(state: Mapping[str, Any]) -> Path:
    return Path(state["work"]) / FOLDER


def _parts(state: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the folders in a job's copy; the last one is kept.

    It is head's: a branch's own job has its newest commit there.
    """
    return ("base", "head") if containers.apart(state) else (".",)


def _copy(source: Path, target: Path) -> bool:
    """Copy a folder, links as links without their targets; return whether it worked.

    Blocks are shared if the file system can.
    """
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
