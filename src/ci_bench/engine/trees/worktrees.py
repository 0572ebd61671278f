"""The two trees of a paired run: head as it is checked out, and the base commit, each in a worktree of its own.

Head is copied, too, although it lies there already: what set-up builds stays out of the user's tree, and both sides start alike,
without what an earlier build left behind. Owns which trees there are; what is set up in them is in `setup`.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.engine.trees.bases import SHORT, Base, choose_base
from ci_bench.engine.trees.checkout import Checkout, Store, borrow, open_checkout, snapshot
from ci_bench.engine.trees.fetching import Fetcher, connect
from ci_bench.engine.trees.submodules import Level, fill
from ci_bench.errors import GitFailed, NoBase
from ci_bench.records.case import SideName
from ci_bench.records.config import Setup
from ci_bench.records.results import Source

STORE = "repository"
"""The folder of the repository that both trees are worktrees of, beside them."""
MOST_CHARACTERS = 600
"""Of the words that say how the base was chosen, which repeat what the user gave."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """One side's tree: the worktree's folder, its commit in the store, what of the user's repository it is.

    `failure` says why it is not complete.
    """

    name: SideName
    folder: Path
    commit: str
    source: Source
    failure: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Trees:
    """Both trees, and where they come from."""

    base: Tree
    head: Tree
    checkout: Checkout
    store: Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What trees are wanted: of which checkout, compared with which commit (`None`: what head started from).

    `leave_out` are files and folders of the checkout that are no part of head, such as our own output.
    """

    repository: Path
    base: str | None
    setup: Setup
    environ: Mapping[str, str]
    leave_out: tuple[Path, ...] = ()


def make_trees(wanted: Wanted, folder: Path) -> Trees:
    """Make both trees in `folder`, a new one.

    Raises:
        BadCheckout: there is no checkout, or it cannot be measured as it is.
        NoBase: the base cannot be told, or is not in this clone.
        GitFailed: git is missing, or failed.
    """
    folder.mkdir(parents=True)
    checkout = open_checkout(wanted.repository, wanted.environ)
    store = borrow(checkout, folder / STORE)
    if wanted.setup.network:
        store = connect(checkout, store)
    head = snapshot(checkout, store, leave_out=[path.resolve() for path in wanted.leave_out])
    base = _find_base(checkout, store, head, wanted)
    maker = _Maker(checkout=checkout, store=store, setup=wanted.setup, environ=wanted.environ, folder=folder)
    branch = checkout.branch or wanted.environ.get("GITHUB_HEAD_REF") or None
    base_source = Source(commit=base.commit, branch=base.branch, dirty=False, chosen_by=base.rule[:MOST_CHARACTERS])
    head_source = Source(commit=checkout.head, branch=branch, dirty=head != checkout.head)
    return Trees(
        base=maker.make(SideName.BASE, base.commit, base_source),
        head=maker.make(SideName.HEAD, head, head_source),
        checkout=checkout,
        store=store,
    )


def remove(folder: Path) -> None:
    """Remove a folder with everything in it, also where set-up took away the permission to."""
    with suppress(OSError):
        shutil.rmtree(folder)
        return
    for place, _, _ in os.walk(folder):
        with suppress(OSError):
            Path(place).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Maker:
    checkout: Checkout
    store: Store
    setup: Setup
    environ: Mapping[str, str]
    folder: Path

    def make(self, name: SideName, commit: str, source: Source) -> Tree:
        # The last part of the path is that of the checkout; both paths are equally long.
        # A colon would part it in PYTHONPATH.
        folder = self.folder / name / (self.checkout.top.name.replace(os.pathsep, "_") or "tree")
        folder.mkdir(parents=True)
        try:
            self.store.add_worktree(commit, folder)
        except GitFailed as error:
            if self.checkout.is_partial and not self.setup.network:
                missing = f"this clone is partial (--filter), and files of {name} are not in it"
                raise NoBase(f"{missing}; {_remedy(self.checkout)}") from error
            raise
        if not self.setup.submodules:
            return Tree(name=name, folder=folder, commit=commit, source=source)
        stores = self.folder / f"{name}-submodules"
        stores.mkdir()
        level = Level(
            checkout=self.checkout,
            store=self.store,
            commit=commit,
            folder=folder,
            stores=stores,
            is_live=name is SideName.HEAD,
            network=self.setup.network,
        )
        filled = fill(level, self.environ)
        source = replace(source, dirty=bool(source.dirty) or filled.is_dirty)
        return Tree(name=name, folder=folder, commit=commit, source=source, failure=filled.failure)


def _find_base(checkout: Checkout, store: Store, head: str, wanted: Wanted) -> Base:
    """Choose the base and see to it that it is here. New files alone, as a job may leave them lying about, change no base."""
    is_dirty = bool(store.git.run("diff-tree", "-r", "--name-only", "--diff-filter=a", checkout.head, head))
    network = wanted.setup.network
    try:
        base = choose_base(checkout.git, checkout.head, given=wanted.base, is_dirty=is_dirty, environ=wanted.environ)
    except NoBase as error:
        if not network:
            raise NoBase(f"{error}; {_remedy(checkout)}" if checkout.is_shallow else str(error)) from error
        base = _fetch_base(checkout, store, wanted, is_dirty=is_dirty)
    if store.has(base.commit):
        return base
    if not network:
        missing = f"the base is {base.rule}, commit {base.commit[:SHORT]}, but that commit is not in this clone"
        raise NoBase(f"{missing}; {_remedy(checkout)}")
    Fetcher(checkout=checkout, store=store).fetch_commit(base.commit)
    return base


def _fetch_base(checkout: Checkout, store: Store, wanted: Wanted, *, is_dirty: bool) -> Base:
    fetcher = Fetcher(checkout=checkout, store=store)
    if wanted.base is not None and "..." not in wanted.base:
        return Base(commit=fetcher.fetch_name(wanted.base), branch=None, rule=f"{wanted.base}, as given")
    fetcher.fetch_history(wanted.environ.get("GITHUB_BASE_REF") or None)
    return choose_base(store.git, checkout.head, given=wanted.base, is_dirty=is_dirty, environ=wanted.environ)


def _remedy(checkout: Checkout) -> str:
    """What to do about a commit that is not here."""
    if checkout.is_shallow:
        said = "it is a shallow clone: check out with all history (`fetch-depth: 0`; here: `git fetch --unshallow`)"
    elif checkout.is_partial:
        said = "clone without --filter"
    else:
        said = "fetch it (`git fetch`)"
    return f"{said}, or set `setup.network: true` to have what is missing fetched"
