"""Submodules of a tree, from the clones that the checkout has of them.

A submodule is one more repository whose objects are borrowed, with a worktree of its own in the tree. So `git submodule`, which
goes by addresses that the measured commit names, is needed only for what is not here, and only where the network is allowed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.engine.trees.checkout import Checkout, Store, borrow, make_store, open_checkout, snapshot
from ci_bench.engine.trees.git import LONG_S, Git
from ci_bench.errors import GitFailed

LINK = "160000"
"""The mode of a submodule in a git tree."""
HTTP_PASSWORD = re.compile(r"^(https?://)[^/@]+@")


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """A tree whose submodules are wanted: the checkout that lends, the store, and the commit that lies in `folder`.

    `is_live` says that what is checked out is wanted, with uncommitted changes. `stores` is where more stores can be made.
    """

    checkout: Checkout
    store: Store
    commit: str
    folder: Path
    stores: Path
    is_live: bool
    network: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """What came of the submodules: why one is missing, and whether one has uncommitted changes."""

    failure: str | None = None
    is_dirty: bool = False


def fill(level: Level, environ: Mapping[str, str]) -> Filled:
    """Check out the submodules of a tree, and theirs.

    What the user has not initialised stays empty, as it is in the checkout. Raises `GitFailed`.
    """
    links = dict(_links(level.store.git, level.commit))
    at_head = dict(_links(level.store.git, level.checkout.head))
    if not any(_is_initialised(level.checkout.top / path) for path in at_head):
        return Filled()
    is_dirty = False
    for path, commit in links.items():
        if path in at_head and not _is_initialised(level.checkout.top / path):
            continue
        below = _fill_one(level, path, commit, environ)
        is_dirty = is_dirty or below.is_dirty
        if below.failure:
            return Filled(failure=below.failure, is_dirty=is_dirty)
    return Filled(is_dirty=is_dirty)


def _fill_one(level: Level, path: str, commit: str, environ: Mapping[str, str]) -> Filled:
    here = level.checkout.top / path
    own = level.stores / f"{len(list(level.stores.iterdir()))}.git"
    lender = open_checkout(here, environ) if _is_initialised(here) else None
    if lender is not None:
        store = borrow(lender, own)
    elif (kept := _kept_clone(level, path)) is not None:
        store = make_store(own, objects=kept / "objects", shallow=kept / "shallow", like=level.checkout.git)
    else:
        return _by_network(level, path, commit)
    wanted = snapshot(lender, store) if lender is not None and level.is_live else commit
    if not store.has(wanted):
        return _by_network(level, path, commit)
    store.add_worktree(wanted, level.folder / path)
    if lender is None:
        return Filled()
    inner = Level(
        checkout=lender,
        store=store,
        commit=wanted,
        folder=level.folder / path,
        stores=level.stores,
        is_live=level.is_live,
        network=level.network,
    )
    below = fill(inner, environ)
    return Filled(failure=below.failure, is_dirty=below.is_dirty or wanted != commit)


def _by_network(level: Level, path: str, commit: str) -> Filled:
    """What no clone here has: let git fetch it by the address in ``.gitmodules``, if it may."""
    missing = f"commit {commit[:12]} of the submodule {path} is in no clone on this machine"
    if not level.network:
        remedy = "clone submodules with all history (`git submodule update --init --recursive`), or set `setup.network: true`"
        return Filled(failure=f"{missing}; {remedy}")
    try:
        # Relative addresses start from this one; a password in it would be written down.
        url = HTTP_PASSWORD.sub(r"\1", level.checkout.git.ask("remote", "get-url", "origin") or str(level.checkout.top))
        tree = replace(level.store.git, place=("-C", str(level.folder))).set({"remote.origin.url": url})
        tree.run("submodule", "--quiet", "update", "--init", "--recursive", "--", path, timeout_s=LONG_S)
    except GitFailed as error:
        return Filled(failure=f"{missing}, and it could not be fetched: {error}")
    return Filled()


def _links(git: Git, commit: str) -> Iterator[tuple[str, str]]:
    """The submodules of a commit: path and commit of each."""
    for entry in git.run("ls-tree", "-r", "-z", "--full-tree", commit, timeout_s=LONG_S).split("\0"):
        about, _, path = entry.partition("\t")
        if about.startswith(LINK):
            yield path, about.split()[2]


def _is_initialised(folder: Path) -> bool:
    return (folder / ".git").exists()


def _kept_clone(level: Level, path: str) -> Path | None:
    """The clone of a submodule that is no longer checked out: git keeps it under its name, which base's ``.gitmodules`` tells."""
    listed = level.store.git.ask("config", "--blob", f"{level.commit}:.gitmodules", "--null", "--get-regexp", r"\.path$") or ""
    folder = level.checkout.objects.parent / "modules"
    for entry in listed.split("\0"):
        key, _, told = entry.partition("\n")
        kept = folder / key.removeprefix("submodule.").removesuffix(".path")
        if told == path and kept.is_relative_to(folder) and ".." not in kept.parts and (kept / "objects").is_dir():
            return kept
    return None
