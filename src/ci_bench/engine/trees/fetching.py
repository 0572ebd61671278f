"""Fetches what a clone lacks of the base, into the store: the clone itself stays as it is.

Runs only where set-up may use the network. The address and the credentials that the clone's own configuration holds are lent to
git through its environment: they are written nowhere, and no command line shows them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ci_bench.engine.trees.bases import NAME_IT
from ci_bench.engine.trees.checkout import Checkout, Store
from ci_bench.engine.trees.git import LONG_S, Git
from ci_bench.errors import GitFailed, NoBase

LENT = (
    r"^(http|credential|url|protocol)\.|^core\.sshcommand$|"
    r"^remote\.origin\.(url|proxy|uploadpack|promisor|partialclonefilter)$"
)
"""The settings of a clone that fetching needs."""


def connect(checkout: Checkout, store: Store) -> Store:
    """The store with the checkout's remote `origin`. From a partial clone it fetches what it lacks when that is needed."""
    listed = checkout.git.ask("config", "--local", "--includes", "--null", "--get-regexp", LENT) or ""
    pairs = [entry.partition("\n")[::2] for entry in listed.split("\0") if entry]
    # A remote may be a path, relative to the checkout.
    place = ("-C", str(checkout.top), *store.git.place)
    environ = {**_with_settings(store.git.environ, pairs), "GIT_NO_LAZY_FETCH": "0"}
    return replace(store, git=Git(place=place, environ=environ, settings={}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetcher:
    """Fetches from `origin` into a store that is connected with it."""

    checkout: Checkout
    store: Store

    def fetch_commit(self, commit: str) -> None:
        """Fetch one commit with its files, without its history. Raises `NoBase`."""
        self._fetch("--depth=1", refspecs=(commit,), lacking=f"commit {commit}")

    def fetch_name(self, name: str) -> str:
        """Fetch a branch or tag without its history and return its commit. Raises `NoBase`."""
        if not self.store.git.says("check-ref-format", "--allow-onelevel", name):
            raise NoBase(f"base: {name!r} is no commit, branch or tag of this clone, and no name that a remote could know")
        self._fetch("--depth=1", refspecs=(f"+{name}:refs/ci-bench/base",), lacking=f"base: {name!r}")
        return self.store.git.run("rev-parse", "--verify", "refs/ci-bench/base^{commit}").strip()

    def fetch_history(self, branch: str | None) -> None:
        """Fetch a branch (`None` for the remote's default one) with its history, and what was cut off. Raises `NoBase`."""
        name = branch or self._default_branch()
        deepen = ("--unshallow",) if self.checkout.is_shallow else ()
        refspec = f"+refs/heads/{name}:refs/remotes/origin/{name}"
        self._fetch(*deepen, refspecs=(refspec,), lacking=f"the history of {name}")
        self.store.git.run("symbolic-ref", "refs/remotes/origin/HEAD", f"refs/remotes/origin/{name}")

    def _default_branch(self) -> str:
        for line in (self.store.git.ask("ls-remote", "--symref", "origin", "HEAD") or "").splitlines():
            if line.startswith("ref: refs/heads/"):
                return line.removeprefix("ref: refs/heads/").partition("\t")[0]
        raise NoBase(f"the remote `origin` names no default branch, or cannot be reached; {NAME_IT}")

    def _fetch(self, *options: str, refspecs: Iterable[str], lacking: str) -> None:
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", *options)
        try:
            self.store.git.run("fetch", *options, "origin", *refspecs, timeout_s=LONG_S)
        except GitFailed as error:
            raise NoBase(f"{lacking} is not in this clone and could not be fetched from its remote `origin`: {error}") from error


def _with_settings(environ: Mapping[str, str], pairs: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """Settings as variables, behind those that are there already."""
    count = int(environ.get("GIT_CONFIG_COUNT") or 0)
    numbered = list(enumerate(pairs, start=count))
    keys = {f"GIT_CONFIG_KEY_{number}": pair[0] for number, pair in numbered}
    values = {f"GIT_CONFIG_VALUE_{number}": pair[1] for number, pair in numbered}
    return {**environ, **keys, **values, "GIT_CONFIG_COUNT": str(count + len(numbered))}
