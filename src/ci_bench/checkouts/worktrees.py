"""The two trees of a paired run: head as checked out, and base, each in a separate worktree.

Head is copied, too, although it is checked out already. Set-up's builds stay out of the user's
tree, and both sides start alike, without leftovers of an earlier build. Owns the set of trees;
`setup` owns the set-up in them.

Missing parts of the base are fetched into the store, only if set-up may use the network. The
address and the credentials in the clone's own configuration are passed to git through its
environment: they are written nowhere, and no command line shows them. A submodule is one more
repository whose objects are borrowed, with a separate worktree in the tree. So `git submodule`,
which uses addresses that the measured commit names, is needed only for missing parts, and only if
the network is allowed.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.checkouts.bases import NAME_IT, SHORT, Base, choose_base, in_ci
from ci_bench.checkouts.checkout import (
    Checkout,
    ObjectStore,
    borrow,
    make_store,
    open_checkout,
    snapshot,
)
from ci_bench.checkouts.git import LONG_S, Git
from ci_bench.errors import GitFailed, NoBase
from ci_bench.records.config import Setup
from ci_bench.records.results import SideName, Source

LENT = (
    r"^(http|credential|url|protocol)\.|^core\.sshcommand$|"
    r"^remote\.origin\.(url|proxy|uploadpack|promisor|partialclonefilter)$"
)
"""The settings of a clone that fetching needs."""


def connect(checkout: Checkout, store: ObjectStore) -> ObjectStore:
    """Return the store with the checkout's remote `origin`.

    From a partial clone it fetches missing objects on demand.
    """
    settings = (
        checkout.git.ask("config", "--local", "--includes", "--null", "--get-regexp", LENT) or ""
    )
    pairs = [entry.partition("\n")[::2] for entry in settings.split("\0") if entry]
    # A remote may be a path, relative to the checkout.
    place = ("-C", str(checkout.top), *store.git.place)
    environ = {**_with_settings(store.git.environ, pairs), "GIT_NO_LAZY_FETCH": "0"}
    return replace(store, git=Git(place=place, environ=environ, settings={}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetcher:
    """The way from `origin` into a store that is connected with it."""

    checkout: Checkout
    store: ObjectStore

    def fetch_commit(self, commit: str) -> None:
        """Fetch one commit with its files, without its history. Raises `NoBase`."""
        self._fetch("--depth=1", refspecs=(commit,), lacking=f"commit {commit}")

    def fetch_name(self, name: str) -> str:
        """Fetch a branch or tag without its history and return its commit. Raises `NoBase`."""
        if not self.store.git.says("check-ref-format", "--allow-onelevel", name):
            raise NoBase(
                f"base: {name!r} is not a commit, branch or tag in this clone, and not a valid name"
                " for a remote's"
            )
        self._fetch(
            "--depth=1", refspecs=(f"+{name}:refs/ci-bench/base",), lacking=f"base: {name!r}"
        )
        return self.store.git.run("rev-parse", "--verify", "refs/ci-bench/base^{commit}").strip()

    def fetch_history(self, branch: str | None) -> None:
        """Fetch a branch with its history, and cut-off history.

        `None` is the remote's default branch. Raises `NoBase`.
        """
        name = branch or self._default_branch()
        deepen = ("--unshallow",) if self.checkout.is_shallow else ()
        refspec = f"+refs/heads/{name}:refs/remotes/origin/{name}"
        self._fetch(*deepen, refspecs=(refspec,), lacking=f"the history of {name}")
        self.store.git.run(
            "symbolic-ref", "refs/remotes/origin/HEAD", f"refs/remotes/origin/{name}"
        )

    def _default_branch(self) -> str:
        for line in (
            self.store.git.ask("ls-remote", "--symref", "origin", "HEAD") or ""
        ).splitlines():
            if line.startswith("ref: refs/heads/"):
                return line.removeprefix("ref: refs/heads/").partition("\t")[0]
        raise NoBase(
            f"the remote `origin` names no default branch, or cannot be reached; {NAME_IT}"
        )

    def _fetch(self, *options: str, refspecs: Iterable[str], lacking: str) -> None:
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", *options)
        try:
            self.store.git.run("fetch", *options, "origin", *refspecs, timeout_s=LONG_S)
        except GitFailed as error:
            raise NoBase(
                f"{lacking} is not in this clone and could not be fetched from its remote `origin`:"
                f" {error}"
            ) from error


def _with_settings(environ: Mapping[str, str], pairs: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """Return the environment with settings as variables, behind those that are there already."""
    count = int(environ.get("GIT_CONFIG_COUNT") or 0)
    numbered = list(enumerate(pairs, start=count))
    keys = {f"GIT_CONFIG_KEY_{number}": pair[0] for number, pair in numbered}
    values = {f"GIT_CONFIG_VALUE_{number}": pair[1] for number, pair in numbered}
    return {**environ, **keys, **values, "GIT_CONFIG_COUNT": str(count + len(numbered))}


LINK = "160000"
"""The mode of a submodule in a git tree."""
HTTP_PASSWORD = re.compile(r"^(https?://)[^/@]+@")


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """A tree that needs its submodules."""

    checkout: Checkout
    """Checkout that lends its objects."""
    store: ObjectStore
    """Repository that has the commit."""
    commit: str
    """Commit of the tree."""
    folder: Path
    """Folder of the tree."""
    stores: Path
    """Folder for the submodules' repositories."""
    is_live: bool
    """Takes the checked-out files, with uncommitted changes, instead of the commits."""
    network: bool
    """Allows to fetch missing submodules."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """The result of filling submodules: why one is missing, and if one has uncommitted changes."""

    failure: str | None = None
    is_dirty: bool = False


def fill(level: Level, environ: Mapping[str, str]) -> Filled:
    """Check out the submodules of a tree, and theirs.

    Submodules that the user has not initialised stay empty, as in the checkout. Raises `GitFailed`.
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


def submodules_here(checkout: Checkout, store: ObjectStore) -> list[str]:
    """Return the paths of a checkout's submodules that are checked out there."""
    return [
        path for path, _ in _links(store.git, checkout.head) if _is_initialised(checkout.top / path)
    ]


def _fill_one(level: Level, path: str, commit: str, environ: Mapping[str, str]) -> Filled:
    here = level.checkout.top / path
    place = level.stores / f"{len(list(level.stores.iterdir()))}.git"
    lender = open_checkout(here, environ) if _is_initialised(here) else None
    if lender is not None:
        store = borrow(lender, place)
    elif (clone := _kept_clone(level, path)) is not None:
        store = make_store(
            place, objects=clone / "objects", shallow=clone / "shallow", like=level.checkout.git
        )
    else:
        return _by_network(level, path, commit)
    target = snapshot(lender, store) if lender is not None and level.is_live else commit
    if not store.has(target):
        return _by_network(level, path, commit)
    store.add_worktree(target, level.folder / path)
    if lender is None:
        return Filled()
    inner = Level(
        checkout=lender,
        store=store,
        commit=target,
        folder=level.folder / path,
        stores=level.stores,
        is_live=level.is_live,
        network=level.network,
    )
    below = fill(inner, environ)
    return Filled(failure=below.failure, is_dirty=below.is_dirty or target != commit)


def _by_network(level: Level, path: str, commit: str) -> Filled:
    """Let git fetch a submodule that no local clone has.

    It uses the address in ``.gitmodules``, if permitted.
    """
    missing = f"commit {commit[:12]} of the submodule {path} is in no clone on this machine"
    if not level.network:
        remedy = (
            "clone submodules with all history (`git submodule update --init --recursive`), or set"
            " `setup.network: true`"
        )
        return Filled(failure=f"{missing}; {remedy}")
    try:
        # Relative addresses start from this one; a password in it would be written down.
        url = HTTP_PASSWORD.sub(
            r"\1", level.checkout.git.ask("remote", "get-url", "origin") or str(level.checkout.top)
        )
        tree = replace(level.store.git, place=("-C", str(level.folder))).set(
            {"remote.origin.url": url}
        )
        tree.run(
            "submodule", "--quiet", "update", "--init", "--recursive", "--", path, timeout_s=LONG_S
        )
    except GitFailed as error:
        return Filled(failure=f"{missing}, and it could not be fetched: {error}")
    return Filled()


def _links(git: Git, commit: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the commit of each submodule of a commit."""
    for entry in git.run("ls-tree", "-r", "-z", "--full-tree", commit, timeout_s=LONG_S).split(
        "\0"
    ):
        about, _, path = entry.partition("\t")
        if about.startswith(LINK):
            yield path, about.split()[2]


def _is_initialised(folder: Path) -> bool:
    return (folder / ".git").exists()


def _kept_clone(level: Level, path: str) -> Path | None:
    """Return the clone of a submodule that is no longer checked out.

    It is under its name, which base's ``.gitmodules`` has.
    """
    modules = (
        level.store.git.ask(
            "config", "--blob", f"{level.commit}:.gitmodules", "--null", "--get-regexp", r"\.path$"
        )
        or ""
    )
    folder = level.checkout.objects.parent / "modules"
    for entry in modules.split("\0"):
        key, _, module_path = entry.partition("\n")
        clone = folder / key.removeprefix("submodule.").removesuffix(".path")
        if (
            module_path == path
            and clone.is_relative_to(folder)
            and ".." not in clone.parts
            and (clone / "objects").is_dir()
        ):
            return clone
    return None


STORE = "repository"
"""The folder of the repository of both trees, which are its worktrees, next to them."""
SHOWN_FILES = 5
MOST_CHARACTERS = 600
"""The limit of the text on the choice of the base, which repeats the user's input."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """One side's tree."""

    name: SideName
    """Name of the side."""
    folder: Path
    """Folder of the worktree."""
    commit: str
    """Commit in the store; for head, it includes uncommitted changes."""
    source: Source
    """Commit of the checkout or of base, and its origin."""
    failure: str | None = None
    """Reason if the tree is incomplete; `None` if it is complete."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trees:
    """Both trees and their origin."""

    base: Tree
    head: Tree
    checkout: Checkout
    store: ObjectStore


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedTrees:
    """A request for both trees."""

    repository: Path
    """Folder in the user's checkout."""
    base: str | None
    """Commit to compare with; `None` for the start of head's work."""
    setup: Setup
    """Set-up of the configuration."""
    environ: Mapping[str, str]
    """Caller's environment."""
    leave_out: tuple[Path, ...] = ()
    """Files and folders of the checkout that are not part of head, such as our output."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The commits of a paired run."""

    checkout: Checkout
    """Checkout of the user."""
    store: ObjectStore
    """Repository that has both commits."""
    base: str
    """Commit of base."""
    head: str
    """HEAD, or a snapshot of the changes to it."""
    sources: Mapping[SideName, Source]
    """Commits of the sides and their origins."""


def choose_commits(request: WantedTrees, folder: Path) -> Chosen:
    """Choose both commits, and make the store in `folder` that has them.

    Raises:
        BadCheckout: no checkout exists, or it cannot be measured as it is.
        NoBase: the base cannot be determined, or is not in this clone.
        GitFailed: git is missing, or failed.
    """
    checkout = open_checkout(request.repository, request.environ)
    store = borrow(checkout, folder / STORE)
    if request.setup.network:
        store = connect(checkout, store)
    head = snapshot(checkout, store, leave_out=[path.resolve() for path in request.leave_out])
    base = _find_base(checkout, store, head, request)
    branch = checkout.branch or request.environ.get("GITHUB_HEAD_REF") or None
    sources = {
        SideName.BASE: Source(
            commit=base.commit,
            branch=base.branch,
            dirty=False,
            chosen_by=base.rule[:MOST_CHARACTERS],
        ),
        SideName.HEAD: Source(commit=checkout.head, branch=branch, dirty=head != checkout.head),
    }
    return Chosen(checkout=checkout, store=store, base=base.commit, head=head, sources=sources)


def make_trees(request: WantedTrees, folder: Path) -> Trees:
    """Make both trees in `folder`, a new one. Raises the errors of `choose_commits`."""
    folder.mkdir(parents=True)
    chosen = choose_commits(request, folder)
    maker = _TreeMaker(
        checkout=chosen.checkout,
        store=chosen.store,
        setup=request.setup,
        environ=request.environ,
        folder=folder,
    )
    return Trees(
        base=maker.make(SideName.BASE, chosen.base, chosen.sources[SideName.BASE]),
        head=maker.make(SideName.HEAD, chosen.head, chosen.sources[SideName.HEAD]),
        checkout=chosen.checkout,
        store=chosen.store,
    )


def remove(folder: Path) -> None:
    """Remove a folder with all its content, even if set-up took away the permission to."""
    with suppress(OSError):
        shutil.rmtree(folder)
        return
    for place, _, _ in os.walk(folder):
        with suppress(OSError):
            Path(place).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class _TreeMaker:
    checkout: Checkout
    """Checkout of the user."""
    store: ObjectStore
    """Repository that has both commits."""
    setup: Setup
    """Set-up of the configuration."""
    environ: Mapping[str, str]
    """Caller's environment."""
    folder: Path
    """Folder for both trees."""

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


def _find_base(checkout: Checkout, store: ObjectStore, head: str, request: WantedTrees) -> Base:
    """Choose the base and make it available.

    New untracked files, which a job may leave, change no base.
    """
    output = store.git.run(
        "diff-tree", "-r", "-z", "--name-only", "--diff-filter=a", checkout.head, head
    )
    changed = [name for name in output.split("\0") if name]
    base = _base_here(checkout, store, request, is_dirty=bool(changed))
    if not changed or not in_ci(request.environ):
        return base
    more = f" and {len(changed) - SHOWN_FILES} more" if len(changed) > SHOWN_FILES else ""
    return replace(
        base,
        rule=f"{base.rule}; modified in this checkout: {', '.join(changed[:SHOWN_FILES])}{more}",
    )


def _base_here(
    checkout: Checkout, store: ObjectStore, request: WantedTrees, *, is_dirty: bool
) -> Base:
    network = request.setup.network
    try:
        base = choose_base(
            checkout.git,
            checkout.head,
            base=request.base,
            is_dirty=is_dirty,
            environ=request.environ,
        )
    except NoBase as error:
        if not network:
            raise NoBase(
                f"{error}; {_remedy(checkout)}" if checkout.is_shallow else str(error)
            ) from error
        base = _fetch_base(checkout, store, request, is_dirty=is_dirty)
    if store.has(base.commit):
        return base
    if not network:
        missing = (
            f"the base is {base.rule}, commit {base.commit[:SHORT]}, but that commit is not in this"
            " clone"
        )
        raise NoBase(f"{missing}; {_remedy(checkout)}")
    Fetcher(checkout=checkout, store=store).fetch_commit(base.commit)
    return base


def _fetch_base(
    checkout: Checkout, store: ObjectStore, request: WantedTrees, *, is_dirty: bool
) -> Base:
    fetcher = Fetcher(checkout=checkout, store=store)
    if request.base is not None and "..." not in request.base:
        return Base(
            commit=fetcher.fetch_name(request.base), branch=None, rule=f"{request.base}, as given"
        )
    fetcher.fetch_history(request.environ.get("GITHUB_BASE_REF") or None)
    return choose_base(
        store.git, checkout.head, base=request.base, is_dirty=is_dirty, environ=request.environ
    )


def _remedy(checkout: Checkout) -> str:
    """Return the advice for a missing commit."""
    if checkout.is_shallow:
        advice = (
            "it is a shallow clone: check out with all history (`fetch-depth: 0`; here: `git fetch"
            " --unshallow`)"
        )
    elif checkout.is_partial:
        advice = "clone without --filter"
    else:
        advice = "fetch it (`git fetch`)"
    return f"{advice}, or set `setup.network: true` to have what is missing fetched"
