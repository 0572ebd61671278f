"""The engine of one machine: a process for each lease, one at a time on each device."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ci_bench.fleet.protocol import EndedLease, LeaseOrder, Slot

LOG = "lease.log"
DOCUMENTS = ("results.json", "base/results.json")
"""The files that a lease leaves in its folder."""
STARTER = "CI_BENCH_LEASE_STARTER"
"""The process that started a lease, in the lease's environment: it ends with that one."""
TAIL = 600
_PAUSE_S = 0.05
_GRACE_S = 10.0

Command = Callable[[LeaseOrder, Path], Sequence[str]]
"""The command that measures an attempt, and leaves its documents in a folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Running:
    order: LeaseOrder
    process: "subprocess.Popen[bytes]"
    folder: Path
    began_s: float


@dataclass(kw_only=True, slots=True)
class LocalEngine:
    """The engine of this machine."""

    devices: Sequence[str]
    """Slots, each a device as `--device` takes it."""
    command: Command
    """Returns the command of an attempt."""
    folder: Callable[[LeaseOrder], Path]
    """Returns the folder of an attempt's documents."""
    environ: Mapping[str, str]
    """Environment of the leases."""
    here: Path
    """Working folder of the leases."""
    _running: dict[str, _Running] = field(default_factory=dict)
    """Processes in progress, by slot."""
    _failed: list[EndedLease] = field(default_factory=list)
    """Attempts that could not start, and are not reported yet."""

    def slots(self) -> Sequence[Slot]:
        """Return the devices of this machine."""
        return [Slot(name=device) for device in self.devices]

    def submit(self, order: LeaseOrder) -> None:
        """Start the process; it leads its own group, so all its children can be ended."""
        folder = self.folder(order)
        began_s = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / LOG).open("wb") as log:
                process = subprocess.Popen(
                    [*self.command(order, folder)],
                    cwd=self.here,
                    env=started_by_us(self.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            self._failed.append(
                EndedLease(
                    order=order,
                    began_s=began_s,
                    ended_s=time.monotonic(),
                    reason=error.strerror or str(error),
                )
            )
            return
        self._running[order.slot] = _Running(
            order=order, process=process, folder=folder, began_s=began_s
        )

    def finished(self, timeout_s: float) -> Sequence[EndedLease]:
        """Return attempts whose process has ended."""
        until = time.monotonic() + timeout_s
        while True:
            ended, self._failed = self._failed, []
            for running in [
                running for running in self._running.values() if running.process.poll() is not None
            ]:
                del self._running[running.order.slot]
                ended.append(_ended(running))
            if ended or time.monotonic() >= until:
                return ended
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        """End all running processes, first by a request, then by a kill."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for running in self._running.values():
                with suppress(ProcessLookupError):
                    os.killpg(running.process.pid, number)
            until = time.monotonic() + _GRACE_S
            for running in self._running.values():
                with suppress(subprocess.TimeoutExpired):
                    running.process.wait(max(0.0, until - time.monotonic()))
        self._running.clear()


def _ended(running: _Running) -> EndedLease:
    """Return the result of a process.

    It does not decide if the documents may count: a case that failed is a result, too.
    """
    there = (running.folder / "results.json").exists()
    return EndedLease(
        order=running.order,
        began_s=running.began_s,
        ended_s=time.monotonic(),
        folder=running.folder if there else None,
        reason=(
            "" if there else f"exit code {running.process.returncode}: {tail(running.folder / LOG)}"
        ),
    )


def started_by_us(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a lease that this process starts."""
    return {**environ, STARTER: str(os.getpid())}


def run_logged(words: Sequence[str], *, environ: Mapping[str, str], here: Path, log: Path) -> int:
    """Run a lease's command to its end, with all output in the log; return its exit code."""
    with log.open("wb") as stream:
        done = subprocess.run(
            [*words],
            cwd=here,
            env=started_by_us(environ),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return done.returncode


def tail(log: Path) -> str:
    """Return the end of a log, on one line."""
    with suppress(OSError), log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - TAIL))
        return " ".join(stream.read(TAIL).decode(errors="replace").split())
    return "it left no log"
