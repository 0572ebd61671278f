"""A store on a separate branch, without a working tree: git's plumbing on a private index.

The checkout is never touched.

The branch shares no commit with any other. Adding a run adds a commit; compacting replaces the
branch by one commit without a parent, which lets the repository drop discarded runs. Every change
names the commit that the branch should be on (compare and swap, here or at the remote); if it moved
meanwhile, an addition is made again on top of what is there now.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from ci_bench.errors import CannotWrite, GitFailed
from ci_bench.history.store import Files, Found, Moved, read_folder

logger = logging.getLogger(__name__)

AUTHOR = {
    "GIT_AUTHOR_NAME": "ci-bench",
    "GIT_AUTHOR_EMAIL": "ci-bench@localhost",
    "GIT_COMMITTER_NAME": "ci-bench",
    "GIT_COMMITTER_EMAIL": "ci-bench@localhost",
}
LONG_S = 600.0
TRIES = 12
_PLAIN = "core.symlinks=false"
"""Setting that writes links in the tree as files with their target, so none leaves the folder."""


class Answered(Protocol):
    """Result of a call of git."""

    @property
    def code(self) -> int:
        """Return the exit code."""

    @property
    def said(self) -> str:
        """Return the end of stderr."""


class BranchGit(Protocol):
    """git in one repository, as `checkouts.git` runs it."""

    def run(
        self, *arguments: str, timeout_s: float = ..., more: Mapping[str, str] | None = None
    ) -> str:
        """Return git's output.

        Raises `GitFailed`.
        """

    def ask(self, *arguments: str) -> str | None:
        """Return git's output; `None` if its exit code is not 0."""

    def call(
        self, *arguments: str, timeout_s: float = ..., more: Mapping[str, str] | None = None
    ) -> Answered:
        """Return git's result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BranchStore:
    """A store on branch `name`, of this repository or, with `remote`, of another one.

    `pause` waits before another try.
    """

    git: BranchGit
    name: str
    remote: str | None = None
    pause: Callable[[float], None] = field(default=time.sleep)

    def read(self) -> Found:
        """Return the branch's content now.

        Raises `GitFailed`.
        """
        tip = self._tip()
        if tip is None:
            return Found(files=())
        with self._index(tip) as (index, folder):
            out = folder / "out"
            self.git.run(
                *_IN_PLAIN,
                "checkout-index",
                "--all",
                f"--prefix={out}/",
                timeout_s=LONG_S,
                more=index,
            )
            return replace(read_folder(out), state=tip)

    def append(self, files: Files) -> None:
        """Add a commit with files, on top of whatever others added meanwhile.

        Raises:
            CannotWrite: others kept adding, or the branch cannot be written.
            GitFailed: git failed at something that should work.
        """
        problem = ""
        for tried in range(TRIES):
            tip = self._tip()
            problem = self._swap(self._commit(files, (), tip, parents=tip), tip)
            if not problem:
                return
            logger.info("%s moved meanwhile (%s); trying again", self.name, problem)
            self.pause(min(0.2 * 2**tried, 10.0))
        raise CannotWrite(
            f"the branch {self.name} could not be added to in {TRIES} tries: {problem}"
        )

    def replace(self, add: Files, remove: Sequence[str], state: str) -> None:
        """Make the branch one commit: what was there at `state` without `remove`, and `add`.

        Raises `Moved`.
        """
        problem = self._swap(self._commit(add, remove, state or None, parents=None), state or None)
        if problem:
            raise Moved(problem)

    def _tip(self) -> str | None:
        """Return the branch's commit now, fetched if it is remote; `None` without a branch."""
        if self.remote is None:
            return self.git.ask("rev-parse", "--verify", "--quiet", f"{self._ref}^{{commit}}")
        for tried in range(TRIES):
            refs = self.git.run(
                "ls-remote", "--heads", self.remote, self._ref, timeout_s=LONG_S
            ).split()
            if not refs or self.git.ask("cat-file", "-e", f"{refs[0]}^{{commit}}") is not None:
                return refs[0] if refs else None
            # No name is given to what is fetched: others may be fetching here, too.
            quietly = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
            answer = self.git.call(
                "fetch",
                *quietly,
                self.remote,
                self._ref,
                timeout_s=LONG_S,
                more={"GIT_NO_LAZY_FETCH": "0"},
            )
            if answer.code:
                logger.info("fetching %s: %s", self.name, answer.said)
                self.pause(min(0.2 * 2**tried, 10.0))
        raise GitFailed(
            f"the branch {self.name} of {self.remote} could not be fetched; is it being rewritten"
            " all the time?"
        )

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.name}"

    @contextmanager
    def _index(self, tip: str | None) -> Iterator[tuple[Mapping[str, str], Path]]:
        """Create a private index with a commit's tree, as variables for git, and a folder."""
        with TemporaryDirectory(prefix="ci-bench-history-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index"), "GIT_WORK_TREE": folder}
            self.git.run("read-tree", *([tip] if tip else ["--empty"]), more=index)
            yield index, Path(folder)

    def _commit(
        self, add: Files, remove: Sequence[str], tip: str | None, *, parents: str | None
    ) -> str:
        with self._index(tip) as (index, folder):
            for name in remove:
                if name not in add:
                    self.git.run("update-index", "--force-remove", "--", name, more=index)
            for number, (name, content) in enumerate(add.items()):
                path = folder / f"file-{number}"
                path.write_bytes(content)
                blob = self.git.run("hash-object", "-w", "--no-filters", "--", str(path)).strip()
                self.git.run(
                    "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", more=index
                )
            tree = self.git.run("write-tree", more=index).strip()
        message = "compact the history" if parents is None and tip else "add to the history"
        return self.git.run(
            "commit-tree", tree, *(("-p", parents) if parents else ()), "-m", message, more=AUTHOR
        ).strip()

    def _swap(self, new: str, old: str | None) -> str:
        """Move the branch from `old` to `new`; return git's message if it has moved already.

        `old` is `None` if the branch does not exist yet. Raises `CannotWrite`.
        """
        if self.remote is None:
            done = self.git.call("update-ref", "--no-deref", self._ref, new, old or "")
            return done.said or "it moved" if done.code else ""
        lease = f"--force-with-lease={self._ref}:{old or ''}"
        spec = f"{new}:{self._ref}"  # no `+`: it would win over the lease
        done = self.git.call(
            "push", "--quiet", "--no-verify", lease, self.remote, spec, timeout_s=LONG_S
        )
        if done.code and any(word in done.said for word in _FINAL):
            raise CannotWrite(
                f"the branch {self.name} of {self.remote} cannot be written: {done.said}"
            )
        return done.said or "it moved" if done.code else ""


_IN_PLAIN = ("-c", _PLAIN, "-c", "core.autocrlf=false")
_FINAL = (
    "Permission denied",
    "Permission to",
    "error: 403",
    "Authentication failed",
    "rotected branch",
    "could not read Username",
)
"""Messages of git for errors that a retry cannot fix."""


def repository_of(git: BranchGit, name: str) -> str:
    """Check the name of a branch for the store.

    Raises `GitFailed` if it cannot be one.
    """
    if git.ask("check-ref-format", f"refs/heads/{name}") is None:
        raise GitFailed(f"{name!r} is not a valid branch name")
    return name
