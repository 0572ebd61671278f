"""Start the servers of each launch, one for each side.

On a GPU those of the next launch start while cases of this one warm up.

Owns the rule for loading a server during other work: only while nothing is timed. While sides warm
up on a GPU, or finish, the servers of a next launch import on cores that the active worker leaves
free. While first calls are timed, samples taken or memory is measured, the servers are stopped. On
the CPU, and without `run.overlap`, servers start only with their launch.
"""

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from ci_bench.errors import LauncherFailed
from ci_bench.host import headroom
from ci_bench.processes.addresses import drawn
from ci_bench.processes.forkserver import SUITES
from ci_bench.processes.launch import Launcher
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Case, Phase, SideName, Spent
from ci_bench.runner.side_run import UNSEEN, SideRun
from ci_bench.suites.contract import Suite

logger = logging.getLogger(__name__)

AHEAD = "ahead"
"""The stage of the seconds in which a server loaded during other work."""
TIMING = ("ci_bench.worker.untouched", "ci_bench.worker.referee", "numpy.random", "numpy.ma")
"""Modules that timing workers import.

By default numpy imports its random numbers at their first use, which may coincide with a peak, and
its masked arrays for the first median, in the middle of a warm-up.
"""
BUSY_CORES = 1
"""The number of cores that a case's sides use while they warm up on a GPU, one after the other."""


@dataclass(kw_only=True, slots=True)
class _Spare:
    """A server of the next launch.

    It has loaded for `loaded_s` seconds so far, and does again from `since`, which is `None` while
    it is paused.
    """

    launcher: Launcher
    since: float | None
    loaded_s: float = 0.0
    failed: bool = False

    def has_work(self) -> bool:
        """Return whether something is left to load."""
        return not self.failed and (self.since is not None or self.launcher.is_loading())

    def go_on(self) -> None:
        """Continue to load, if anything is left."""
        if self.has_work():
            self.since = time.monotonic() if self.since is None else self.since
            self.launcher.go_on()

    def pause(self) -> None:
        """Stop loading; the server does nothing else meanwhile.

        A server that was ended already is ignored: ending it again would end all of its user's
        processes, including measured ones.
        """
        self.count()
        try:
            if not self.failed:
                self.launcher.pause()
        except LauncherFailed as error:
            logger.info("a server that was started ahead has failed: %s", error)
            self.failed = True

    def count(self) -> None:
        """Add for how long it has loaded by now."""
        if self.since is not None:
            self.loaded_s, self.since = self.loaded_s + time.monotonic() - self.since, None


@dataclass(kw_only=True, slots=True)
class Servers:
    """The servers of the launches of one run."""

    runs: tuple[SideRun, ...]
    """All sides of the run."""
    options: RunOptions
    """Options of the run."""
    current: dict[SideName, Launcher] = field(default_factory=dict)
    """Servers of the open launch, by side."""
    foreseen: tuple[str, tuple[str, ...]] | None = None
    """Name of the next launch and its imports; `None` if none is prepared."""
    spares: dict[SideName, _Spare] = field(default_factory=dict)
    """Servers of the next launch, by side."""
    _key: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    """The key that the launches' addresses are drawn with, unique to the run."""

    def open(
        self, stack: ExitStack, name: str, plan: Sequence[tuple[Suite, Case]]
    ) -> dict[SideName, Launcher]:
        """Open the servers of a launch of some cases, ready, by side. They all end with the stack.

        A server started ahead is used if it imports all that this launch needs, and stopped
        otherwise.

        Raises:
            LauncherFailed: a server cannot be started.
        """
        preload = preload_of(plan)
        if (
            self.foreseen is None
            or self.foreseen[0] != name
            or not {*preload} <= {*self.foreseen[1]}
        ):
            self.close()
        runs = [run for run in self.runs if run.side.failure is None]
        preloaded = {
            run.side.name: self._take(run, stack) for run in runs if run.side.name in self.spares
        }
        started = [
            preloaded.get(run.side.name) or self._launcher(run, name, preload) for run in runs
        ]
        self.current, self.foreseen = {}, None
        for run, launcher in zip(runs, started, strict=True):
            with run.spending(Phase.START):
                failed = launcher is preloaded.get(run.side.name) and not _is_ready(launcher)
                usable = self._launcher(run, name, preload) if failed else launcher
                self.current[run.side.name] = stack.enter_context(usable)
        stack.callback(_let_go, tuple(self.current.values()))
        return self.current

    def foresee(self, name: str, plan: Sequence[tuple[Suite, Case]]) -> None:
        """Announce that a launch of this name may follow the open one.

        It has no cases other than these. If nothing in it computes with torch, there is little to
        load, and nothing uses the GPU.
        """
        preload = preload_of(plan)
        self.foreseen = (name, preload) if "torch" in preload and self._has_room() else None

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Mark a block in which nothing is timed.

        Servers may load on the cores that it leaves free.
        """
        self._load(headroom.cores() - BUSY_CORES)
        try:
            yield
        finally:
            for spare in self.spares.values():
                spare.pause()

    def go_on(self) -> None:
        """Note that all cases of the launch are measured: loading may now use all cores."""
        for spare in self.spares.values():
            spare.go_on()

    def close(self) -> None:
        """End unneeded servers that were started ahead.

        Not while a launch is open: all of a side's user end with it.
        """
        for run in self.runs:
            if spare := self.spares.pop(run.side.name, None):
                spare.launcher.close()
                _enter(run, spare)
        self.foreseen = None

    def _launcher(self, run: SideRun, name: str, preload: tuple[str, ...]) -> Launcher:
        """Return a server of a launch: those of both sides have their memory in the same place."""
        return run.launcher(name, preload, offline=True, addresses=drawn(f"{self._key}/{name}"))

    def _load(self, most: int) -> None:
        """Let up to `most` servers load simultaneously, those first that have loaded least.

        Missing servers are started. All servers finish loading simultaneously once the launch is
        over: this ends soonest if each has the same amount left.
        """
        for run in sorted(self.runs, key=self._loaded_s) if self.foreseen is not None else ():
            if most <= 0:
                return
            if run.side.name not in self.spares:
                self._start(run)
            if (spare := self.spares.get(run.side.name)) is not None and spare.has_work():
                spare.go_on()
                most -= 1

    def _loaded_s(self, run: SideRun) -> float:
        spare = self.spares.get(run.side.name)
        return spare.loaded_s if spare is not None else 0.0

    def _start(self, run: SideRun) -> None:
        current = self.current.get(run.side.name)
        if current is None or self.foreseen is None:
            return
        try:
            current.successor = self._launcher(run, *self.foreseen)
        except LauncherFailed as error:
            logger.info("no server could be started ahead: %s", error)
            self.foreseen = None
            return
        self.spares[run.side.name] = _Spare(launcher=current.successor, since=time.monotonic())

    def _take(self, run: SideRun, stack: ExitStack) -> Launcher:
        """Return the server of a side that was started ahead; it loads the rest."""
        spare = self.spares.pop(run.side.name)
        stack.callback(spare.launcher.close)
        spare.count()
        spare.launcher.go_on()
        _enter(run, spare)
        return spare.launcher

    def _has_room(self) -> bool:
        """Return whether another server of each side may load during a launch.

        It may on a GPU, with enough cores and memory.
        """
        device = next(
            (str((run.environment or UNSEEN).identity.get("device")) for run in self.runs), ""
        )
        if (
            not self.options.overlap
            or not device.startswith("cuda")
            or headroom.cores() <= BUSY_CORES
        ):
            return False
        if any(launcher.has_touched_gpu for launcher in self.current.values()):
            return False
        free = headroom.available_bytes()
        needed = sum(launcher.resident_bytes() for launcher in self.current.values())
        return free is not None and needed <= (1.0 - headroom.LEFT) * free


def _let_go(launchers: tuple[Launcher, ...]) -> None:
    """Make the servers of all sides end before waiting for one.

    Freeing its memory takes each a while.
    """
    for launcher in launchers:
        launcher.let_go()


def _is_ready(launcher: Launcher) -> bool:
    """Wait for a server that was started ahead. Returns true if it can be used."""
    try:
        launcher.wait_until_ready()
    except LauncherFailed as error:
        logger.info(
            "a server that was started ahead has failed, a fresh one takes its place: %s", error
        )
        return False
    return True


def preload_of(plan: Sequence[tuple[Suite, Case]]) -> tuple[str, ...]:
    """Return the modules that a launch's server imports for these cases, each once.

    If they compute with torch, this includes our own modules that their workers need: these cost
    each worker a fifth of a second otherwise.
    """
    modules = [module for suite, case in plan for module in suite.preload_of(case)]
    workers = [suite.worker for suite, _ in plan if suite.worker.startswith(SUITES)]
    return (
        tuple(dict.fromkeys((*modules, *workers, *TIMING)))
        if "torch" in modules
        else tuple(dict.fromkeys(modules))
    )


def _enter(run: SideRun, spare: _Spare) -> None:
    run.ledger = run.ledger.with_spent(
        Spent(stage=AHEAD, phase=Phase.START, seconds=spare.loaded_s)
    )
