"""Run git: by argument list, with a time limit, and without hooks, prompts or housekeeping.

Owns the process and its permissions, and the id of the measured commit (`None` if git doesn't know
it). Callers own all other queries.
"""

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ci_bench.errors import GitFailed
from ci_bench.records.results import Source

QUICK_S, LONG_S = 60.0, 900.0
"""Time limits of a query, and of a call that moves a whole tree or uses the network."""
SAID_CHARACTERS = 1500

OF_ONE_REPOSITORY = {
    *(
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_COMMON_DIR",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    ),
    *(
        "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_GRAFT_FILE",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_PREFIX",
    ),
    *("GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_NAMESPACE"),
    *("GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
}
"""Variables that name a hook's repository or change the meaning of paths.

The former are those of ``git rev-parse --local-env-vars``. They would override our arguments.
"""

CALM = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_DEFAULT_REF_FORMAT": "files",
}
"""No question that waits for an answer, no refresh of an index in passing, no large files."""

SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",
    "index.sparse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
    "init.defaultBranch": "main",
}
"""No hook runs, no daemon starts, no housekeeping takes place, and reading an index writes no
objects.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class GitAnswer:
    """The end of a call of git: its exit code, raw stdout, and the end of stderr."""

    code: int
    out: str
    said: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Git:
    """git for one repository, selected by `place` (``-C FOLDER`` or ``--git-dir=FOLDER``).

    `environ` is the caller's environment, to find git and its configuration; `settings` are further
    git settings for each call.
    """

    place: tuple[str, ...]
    environ: Mapping[str, str]
    settings: Mapping[str, str]

    @classmethod
    def at(cls, folder: Path, environ: Mapping[str, str]) -> Self:
        """Return git for the checkout that a folder is in.

        git refuses a repository that belongs to another user ("dubious ownership"), for example in
        a container with another user id than the one that checked out, since its configuration
        could name programs to run. The caller named this checkout, and its code is about to be run
        anyway: it is trusted, by its exact path and for this call only.
        https://git-scm.com/docs/git-config#Documentation/git-config.txt-safedirectory (read from
        `-c` since git 2.38)
        """
        return cls(
            place=("-C", str(folder)),
            environ=environ,
            settings={"safe.directory": str(top_of(folder))},
        )

    @classmethod
    def bare(cls, folder: Path, environ: Mapping[str, str]) -> Self:
        """Return git for a repository of our own."""
        return cls(place=(f"--git-dir={folder}",), environ=environ, settings={})

    def set(self, settings: Mapping[str, str]) -> Self:
        """Return git with more settings."""
        return replace(self, settings={**self.settings, **settings})

    def run(
        self, *arguments: str, timeout_s: float = QUICK_S, more: Mapping[str, str] | None = None
    ) -> str:
        """Return git's stdout. `more` are variables for this call. Raises `GitFailed`."""
        answer = self.call(*arguments, timeout_s=timeout_s, more=more)
        if answer.code:
            raise GitFailed(
                f"`git {arguments[0]}` failed: {answer.said or f'exit code {answer.code}'}"
            )
        return answer.out

    def ask(self, *arguments: str) -> str | None:
        """Return git's stdout; `None` if the exit code is not 0. Raises `GitFailed`."""
        answer = self.call(*arguments)
        return None if answer.code else answer.out.removesuffix("\n")

    def says(self, *arguments: str) -> bool:
        """Return whether git ends with exit code 0. Raises `GitFailed`."""
        return self.ask(*arguments) is not None

    def call(
        self, *arguments: str, timeout_s: float = QUICK_S, more: Mapping[str, str] | None = None
    ) -> GitAnswer:
        """Run git; return its answer for any exit code.

        Raises `GitFailed` if it is not installed or takes longer than `timeout_s`.
        """
        settings = [
            part
            for name, value in {**SETTINGS, **self.settings}.items()
            for part in ("-c", f"{name}={value}")
        ]
        variables = {
            name: value for name, value in self.environ.items() if name not in OF_ONE_REPOSITORY
        }
        try:
            process = subprocess.Popen(
                ["git", *settings, *self.place, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"GIT_NO_LAZY_FETCH": "1", **variables, **CALM, **(more or {})},
                start_new_session=True,
            )
        except OSError as error:
            raise GitFailed(
                f"git cannot be run ({error}); install git, or put it on PATH"
            ) from error
        try:
            out, complaint = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise GitFailed(
                f"`git {arguments[0]}` did not end within {timeout_s:g} s and was ended"
            ) from error
        finally:
            _end(process)
        message = _without_secrets(complaint.decode("utf-8", "replace"))
        return GitAnswer(code=process.returncode, out=os.fsdecode(out), said=message)


def top_of(folder: Path) -> Path:
    """Return the nearest folder with a ``.git``, from `folder` upwards.

    `folder` itself if none exists.
    """
    here = folder.resolve()
    return next((place for place in (here, *here.parents) if (place / ".git").exists()), here)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a running git with all its processes: a fetch is ssh or an HTTP helper, too."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.wait()


def _without_secrets(text: str) -> str:
    """Return the end of git's message, without passwords in addresses."""
    return re.sub(r"://[^/\s@]+@", "://…@", text).strip()[-SAID_CHARACTERS:]


def describe_source(folder: Path, environ: Mapping[str, str]) -> Source:
    """Return commit, branch and whether tracked files differ from the commit.

    `environ` is git's environment.
    """
    git = Git.at(folder, environ)
    with suppress(GitFailed):
        commit = git.ask("rev-parse", "--verify", "--quiet", "HEAD")
        if commit is None:
            return Source()
        branch = git.ask("symbolic-ref", "--short", "--quiet", "HEAD")
        changes = git.ask("status", "--porcelain", "--untracked-files=no")
        return Source(
            commit=commit, branch=branch, dirty=None if changes is None else bool(changes)
        )
    return Source()
