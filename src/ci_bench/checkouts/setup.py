"""Prepare one side: its own environment, and the set-up commands in its tree.

Owns the environment of a side's commands and workers, and the names of failures. The environment
has no variable that could be a secret (`environ.worker_environment`). Without commands nothing is
installed: the engine's interpreter suffices, with the tree on its path.

Only reusable files are kept between runs (`setup.cache`): downloads, wheels of other projects, a
folder for a compiler's cache. Environments are not: an editable install points to a tree that is
gone, and an installed copy of the code under test would be measured instead of the present code.
"""

import hashlib
import json
import logging
import os
import platform
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath

from ci_bench.checkouts.git import LONG_S, Git
from ci_bench.checkouts.layers import Layer, engine_sites, link_engine, make_environment
from ci_bench.checkouts.overlap import find_shadowed
from ci_bench.checkouts.shell import Finished, run_command
from ci_bench.checkouts.sides import Side, on_path, program_path
from ci_bench.checkouts.worktrees import Tree
from ci_bench.errors import GitFailed
from ci_bench.processes.environ import worker_environment
from ci_bench.processes.users import Users, give
from ci_bench.records.config import Setup
from ci_bench.records.results import SideName, Source

logger = logging.getLogger(__name__)

SHOWN_CHARACTERS = 100
ENGINE = "engine"
"""The folder, next to the trees, with the link to the engine."""
DIVERTING = {
    "PYTHONHOME",
    "PIP_USER",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_PYTHON",
    "UV_SYSTEM_PYTHON",
}
"""Variables that make a command install somewhere else, or the interpreter look elsewhere."""
PROXIES = re.compile(r"(https?|ftp|all)_proxy", re.IGNORECASE)
OFFLINE = {
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
    "CARGO_NET_OFFLINE": "true",
    "HF_HUB_OFFLINE": "1",
}
"""Variables that ask tools not to use the network.

Only a container without a network stops tools that ignore them.
"""
QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "GIT_TERMINAL_PROMPT": "0"}
NO_NETWORK = re.compile(
    r"No matching distribution|could not find a version|name resolution|network is"
    r" unreachable|connection|"
    r"could not resolve|no index|offline|--no-index",
    re.IGNORECASE,
)
MOST_REASON = 300
END_OF_OUTPUT = "[end of output]"
COMPLAINS = re.compile(
    r"\b(?:\w*error|fatal|fail(?:ed|ure)|cannot|can't|could not|no such|not"
    r" found|denied|needs?|require[sd]?|missing|undefined|"
    r"unknown|unsupported|invalid|aborted)\b",
    re.IGNORECASE,
)
MAKES_OWN = re.compile(
    r"g?make(\[\d+\])?: |ninja: build stopped|note: |hint: |\[notice\]|WARNING: ", re.IGNORECASE
)
"""Lines that only report a failed step, or something else, but never a reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparing:
    """Progress while a side is prepared: `done` of `total` commands, and the current one."""

    side: SideName
    command: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Workshop:
    """The dependencies of set-up.

    With `users`, only a side's user has access to its files, including its part of the cache.
    """

    setup: Setup
    """Set-up of the configuration."""
    environ: Mapping[str, str]
    """Caller's environment."""
    checkout: Path
    """Top of the user's checkout."""
    prefix: str
    """Caller's folder in the checkout; empty for its top."""
    folder: Path
    """Folder for environments and home folders."""
    logs: Path
    """Folder for the output of commands."""
    cache: Path
    """Folder that is kept between runs, if possible."""
    layer: Layer
    """Engine's packages for a side."""
    observe: Callable[[Preparing], None]
    """Called with the progress before each command."""
    users: Users | None = None
    """Separate users of the sides; `None` for the caller."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """The paths of a side."""

    tree: Path
    """Folder of its tree."""
    here: Path
    """Folder in the tree where its workers start."""
    venv: Path | None
    """Folder of its environment; `None` for the engine's."""
    user: int | None = None
    """Number of the user that its processes run as; `None` for the caller."""
    own: Path | None = None
    """Home folder of that user; `None` without one."""

    def hand_over(self) -> None:
        """Give the side's user the files made for it so far, before anything of the side runs."""
        if self.user is not None and self.own is not None:
            for folder in (self.own, self.own / "tmp"):
                folder.mkdir(exist_ok=True)
            for folder in (self.tree.parent, self.own, *([self.venv] if self.venv else [])):
                give(folder, self.user)


def home_of(tree: Tree, shop: Workshop) -> Home:
    """Return the paths of a side.

    A separate environment also hides the engine's packages from the checkout itself.
    """
    needs_own = shop.setup.commands or shop.layer.own
    venv = shop.folder / f"{tree.name}-env" if needs_own else None
    user = shop.users.of(tree.name) if shop.users else None
    user_home = shop.folder / f"{tree.name}-home" if shop.users else None
    return Home(
        tree=tree.folder, here=tree.folder / shop.prefix, venv=venv, user=user, own=user_home
    )


def set_up(tree: Tree, git: Git, shop: Workshop) -> Side:
    """Prepare one side for measuring.

    `git` is aimed at the repository that has the tree's commit. If a set-up fails, hangs or spoils
    the engine's environment, the side records it; nothing is raised.
    """
    home = home_of(tree, shop)
    environ = side_environment(shop.environ, home, checkout=shop.checkout, folder=shop.folder)
    failure = tree.failure or (
        None if home.here.is_dir() else f"the folder {shop.prefix} does not exist on this side"
    )
    if failure is None and home.venv is not None:
        failure = make_environment(home.venv, shop.layer, on_path(home.here))
    home.hand_over()
    if failure is None and shop.setup.commands and home.venv is not None:
        failure = _run_commands(tree, home, git, shop, environ)
        failure = failure or find_shadowed(
            home.venv, shop.layer.sites, environ, home.here, home.user
        )
    return make_side(tree.name, home, environ, source=tree.source, failure=failure)


def make_side(
    name: SideName, home: Home, environ: Mapping[str, str], *, source: Source, failure: str | None
) -> Side:
    """Return the side with these paths."""
    python = home.venv / "bin" / "python" if home.venv is not None else Path(sys.executable)
    return Side(
        name=name,
        environ=environ,
        folder=home.here,
        python=python,
        source=source,
        failure=failure,
        user=home.user,
    )


def side_environment(
    environ: Mapping[str, str], home: Home, *, checkout: Path, folder: Path
) -> dict[str, str]:
    """Return the environment of a side's workers.

    The engine is first (linked in `folder`), then the side's packages, then the engine's. Folders
    of the checkout on the caller's path are replaced by those of the tree. A virtual environment
    has the tree on its own path, behind the installed packages.
    """
    variables = {
        name: value
        for name, value in worker_environment(environ).items()
        if name not in DIVERTING and not name.startswith("GIT_")
    }
    callers = [
        _moved(Path(part), checkout, home.tree)
        for part in variables.get("PYTHONPATH", "").split(os.pathsep)
        if part
    ]
    path = [link_engine(folder / ENGINE), *([] if home.venv else on_path(home.here)), *callers]
    variables["PYTHONPATH"] = os.pathsep.join(map(str, path))
    if home.venv is not None:
        variables["VIRTUAL_ENV"] = str(home.venv)
    variables["PATH"] = program_path(variables.get("PATH", os.defpath), home.venv)
    return variables if home.own is None else {**variables, **_home_environment(home.own)}


def _home_environment(home: Path) -> dict[str, str]:
    """Return variables that name a user and his folders, compilers' caches among them.

    By default those depend on HOME, TMPDIR and USER.
    """
    cache = home / "cache"
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": "triton",
        "MPLCONFIGDIR": "matplotlib",
    }
    variables = {
        "HOME": home,
        "TMPDIR": home / "tmp",
        "XDG_CACHE_HOME": cache,
        "USER": home.name,
        "LOGNAME": home.name,
    }
    return {
        name: str(value)
        for name, value in {
            **variables,
            **{key: cache / folder for key, folder in caches.items()},
        }.items()
    }


def cache_key(git: Git, commit: str, setup: Setup) -> str:
    """Return the name of the per-key folder of the cache.

    It changes with commands, interpreter, torch and the files of `cache_key`. Files count by the id
    that git gives their content, so no file is read; a glob without a slash matches at any depth.
    """
    lines = git.run("ls-tree", "-r", "-z", "--full-tree", commit, timeout_s=LONG_S).split("\0")
    entries = (entry.partition("\t")[::2] for entry in lines if entry)
    files = [
        (path, about)
        for about, path in entries
        if any(PurePosixPath(path).match(glob) for glob in setup.cache_key)
    ]
    torch = None
    with suppress(PackageNotFoundError):
        torch = version("torch")
    parts = [
        setup.commands,
        sys.implementation.cache_tag,
        platform.python_version(),
        platform.machine(),
        torch,
        sorted(files),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _moved(path: Path, checkout: Path, tree: Path) -> Path:
    return (
        tree / path.relative_to(checkout)
        if path.is_absolute() and path.is_relative_to(checkout)
        else path
    )


def _run_commands(
    tree: Tree, home: Home, git: Git, shop: Workshop, environ: Mapping[str, str]
) -> str | None:
    """Run the commands in turn; return why the side cannot be measured, or `None`."""
    setup, before = shop.setup, _installed(engine_sites())
    commands = tuple(enumerate(setup.commands, start=1))
    left_s = setup.timeout_s
    try:
        visible = _command_environment(tree, git, shop, environ, home.user)
        for number, command in commands:
            shop.observe(
                Preparing(side=tree.name, command=command, done=number - 1, total=len(commands))
            )
            log = shop.logs / f"{tree.name}-{number}.log"
            ended = run_command(
                command,
                folder=home.here,
                environ=visible,
                timeout_s=left_s,
                log=log,
                user=home.user,
            )
            left_s -= ended.duration_s
            logger.info(
                "set-up of %s: command %d: %d after %.1f s",
                tree.name,
                number,
                ended.code,
                ended.duration_s,
            )
            if ended.timed_out or ended.code:
                return _failure(number, command, ended, setup, log)
    except (OSError, GitFailed) as error:
        return f"set-up could not be run: {error}"
    added = sorted(_installed(engine_sites()) ^ before)
    if added:
        names = ", ".join(added[:5])
        return (
            f"set-up changed the engine's own environment ({names}), which both sides share;"
            " install with this side's `pip`"
        )
    return None


def _command_environment(
    tree: Tree, git: Git, shop: Workshop, environ: Mapping[str, str], user: int | None
) -> dict[str, str]:
    """Return the environment of commands, which see more than workers do."""
    cache = shop.cache if user is None else shop.cache / tree.name
    key_folder = cache / "keys" / cache_key(git, tree.commit, shop.setup)
    key_folder.mkdir(parents=True, exist_ok=True)
    give(cache, user)
    visible = {
        **environ,
        **QUIET,
        "PIP_CACHE_DIR": str(cache / "pip"),
        "UV_CACHE_DIR": str(cache / "uv"),
        "CI_BENCH_SETUP_CACHE": str(key_folder),
        "CI_BENCH_SIDE": tree.name,
        "CI_BENCH_CHECKOUT": str(shop.checkout),
    }
    if shop.setup.network:
        return visible
    return {name: value for name, value in visible.items() if not PROXIES.fullmatch(name)} | OFFLINE


def reason_of(tail: str) -> str:
    """Return the line of a command's last output with the reason.

    It is the end of pip's quotation, else the last complaint. pip puts a build's own output before
    ``[end of output]`` and explains itself after it; make and shells name the target last.
    """
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    quoted = next(
        (number for number in reversed(range(len(lines))) if lines[number] == END_OF_OUTPUT), None
    )
    if quoted:
        return lines[quoted - 1]
    reasons = [line for line in lines if not MAKES_OWN.match(line)] or lines
    complaints = [line for line in reasons if COMPLAINS.search(line)]
    return [*reasons, *complaints][-1] if lines else ""


def _failure(number: int, command: str, ended: Finished, setup: Setup, log: Path) -> str:
    """Describe the command, its end and the reason, in one line; then quote its last output."""
    line = " ".join(command.split())
    shown = line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"
    which = f"set-up command {number} of {len(setup.commands)} (`{shown}`)"
    if ended.timed_out:
        how = (
            "was ended, as set-up of this side took longer than setup.timeout_s"
            f" ({setup.timeout_s:g} s)"
        )
    elif ended.code < 0:
        how = f"was ended by {signal.Signals(-ended.code).name}"
    else:
        how = f"ended with exit code {ended.code}"
    hint = ""
    if not setup.network and NO_NETWORK.search(ended.tail):
        hint = " (set-up has no network here; `setup.network: true` gives it, see docs/paired.md)"
    reason = reason_of(ended.tail)
    shown = reason if len(reason) <= MOST_REASON else f"{reason[:MOST_REASON]}…"
    text = f"{which} {how}: {shown or 'it printed nothing'}{hint} (log: {log.name})\n{ended.tail}"
    return text.rstrip()


def _installed(sites: Sequence[Path]) -> set[str]:
    """Return the names in the engine's folders, which include versions.

    Those that pip is about to remove start with `~`.
    """
    return {
        entry.name
        for folder in sites
        for entry in folder.iterdir()
        if not entry.name.startswith(("~", "__pycache__"))
    }
