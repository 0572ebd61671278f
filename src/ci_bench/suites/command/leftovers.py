"""Work that a timed command leaves to other processes: its time lacks it.

A command may leave a server running that waits for work (ccache, a build daemon): such a server is
reported, and passes. If a process still computes after the command has ended, no clock saw that
work.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.records.results import Check, Outcome

WATCH_S = 1.0
"""Seconds for which leftovers are watched outside of the clock.

An interpreter with torch takes less than that to end.
"""
BUSY = 0.5
"""Leftovers that use this share of a processor until the watch ends are not about to end."""
LACKING, LACKING_S = 0.25, 0.1
"""Work that makes a time wrong: a share of the command's seconds, and the least seconds."""
NOTICEABLE, NOTICEABLE_S = 0.02, 0.05
"""The same for work that puts a time in doubt."""
MOST_NAMES = 5
WATCH_EVERY_S = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedProcesses:
    """A run that succeeded: its seconds, and the processes that it left running, by name.

    `worked_s` is the CPU time that the leftovers used in the `watched_s` after the run, before they
    were ended.
    """

    seconds: float
    left: tuple[str, ...] = ()
    worked_s: float = 0.0
    watched_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """Leftovers that used CPU time while they were watched, that time, and the time watched."""

    names: tuple[str, ...] = ()
    worked_s: float = 0.0
    watched_s: float = 0.0


def watch(spared: frozenset[int], watch_s: float) -> Watched:
    """Watch a command's leftovers until all have ended or `watch_s` is over."""
    before = _descendants(spared) if watch_s > 0 else {}
    if not any(process.alive for process in before.values()):
        return Watched()
    begun = time.monotonic()
    processes = dict(before)
    while (
        any(process.alive for process in processes.values()) and time.monotonic() < begun + watch_s
    ):
        time.sleep(WATCH_EVERY_S)
        now = _descendants(spared)
        processes = {
            **{pid: replace(process, alive=False) for pid, process in processes.items()},
            **now,
        }
    ticks = {
        pid: process.ticks - (before[pid].ticks if pid in before else 0)
        for pid, process in processes.items()
    }
    return Watched(
        names=tuple(processes[pid].name for pid, used in ticks.items() if used),
        worked_s=sum(ticks.values()) / os.sysconf("SC_CLK_TCK"),
        watched_s=time.monotonic() - begun,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Process:
    """One line of /proc/PID/stat (proc(5)); `ticks` of CPU time are its own."""

    name: str
    parent: int
    alive: bool
    ticks: int


def _descendants(spared: frozenset[int]) -> dict[int, _Process]:
    """Return all processes below this one, except the `spared` ones and their own descendants."""
    processes: dict[int, _Process] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            head, _, rest = stat.read_text(errors="replace").rpartition(")")
            fields = rest.split()
            processes[int(stat.parent.name)] = _Process(
                name=printable(head.partition("(")[2]),
                parent=int(fields[1]),
                alive=fields[0] not in "ZX",
                ticks=int(fields[11]) + int(fields[12]),
            )
    below, edge = set[int](), {os.getpid()}
    while edge:
        edge = {
            pid
            for pid, process in processes.items()
            if process.parent in edge and pid not in spared and pid not in below
        }
        below |= edge
    return {pid: processes[pid] for pid in below}


def printable(name: str) -> str:
    """Return the name of a process with invisible characters replaced."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def leftovers_check(arm: str, runs: Iterable[EndedProcesses]) -> Check | None:
    """Judge the leftovers of watched runs of one arm; `None` without leftovers."""
    worst = max((run for run in runs if run.left), key=lambda run: run.worked_s, default=None)
    if worst is None:
        return None
    names = list(dict.fromkeys(worst.left))
    shown_names = ", ".join(names[:MOST_NAMES]) + (
        f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    )
    finding = f"left {shown_names} running, which was ended"
    used = (
        f"it used {worst.worked_s:.2g} s of CPU time in the {worst.watched_s:.2g} s after the"
        f" command of {worst.seconds:.2g} s"
    )
    endless = worst.worked_s > max(NOTICEABLE_S, BUSY * worst.watched_s)
    if not endless and worst.worked_s <= max(NOTICEABLE_S, NOTICEABLE * worst.seconds):
        return Check(
            name="leftovers", arm=arm, outcome=Outcome.PASS, detail=f"{finding}: it was idle"
        )
    lacking = worst.worked_s > max(LACKING_S, LACKING * worst.seconds)
    outcome = Outcome.FAIL if endless or lacking else Outcome.UNKNOWN
    return Check(
        name="leftovers",
        arm=arm,
        outcome=outcome,
        detail=f"{finding}: {used}; have the command wait for it",
    )
