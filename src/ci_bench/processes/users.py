"""Run each side as a separate user: the kernel protects the other side's files, memory and signals.

For a process that is root, usually in a container, with the capabilities to start and end processes
of others (CAP_SETUID, CAP_SETGID, CAP_KILL, CAP_CHOWN, CAP_DAC_OVERRIDE). It runs none of either
side's code itself. Processes of a side have no capabilities, and only their own group.
"""

import os
import re
import signal
import stat
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ci_bench.errors import BadInput
from ci_bench.records.results import SideName

VARIABLE = "CI_BENCH_USERS"
"""``65101:65102``: the numbers of base's user and of head's. Without it both sides run as the
caller.
"""
FORM = re.compile(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,8})")
PRIVATE, PASSABLE = 0o700, 0o711
PATIENCE_S = 5.0
PAUSE_S = 0.01


class Started(TypedDict, total=False):
    """The arguments of `subprocess.Popen` that make a process another user's."""

    user: int
    group: int
    extra_groups: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Users:
    """The numbers of both users; their groups have the same."""

    base: int
    head: int

    def of(self, name: SideName) -> int:
        """Return the user of a side."""
        return self.base if name is SideName.BASE else self.head


def users_of(environ: Mapping[str, str]) -> Users | None:
    """Return the users that the environment names; `None` if it names none.

    Raises:
        BadInput: they are not two separate users, one runs a process already, or only root could
            start their processes.
    """
    text = environ.get(VARIABLE, "")
    if not text:
        return None
    match = FORM.fullmatch(text)
    if match is None or match[1] == match[2]:
        form = "two numbers of users, base's and head's, neither of them root's"
        raise BadInput(f"{VARIABLE} is {form}: 65101:65102; not {text!r}")
    if os.geteuid() != 0:
        raise BadInput(
            f"{VARIABLE} is set, but only root can start processes of other users; run as root, or"
            " without it"
        )
    users = Users(base=int(match[1]), head=int(match[2]))
    for user in (users.base, users.head):
        if others := sorted(living(user)):
            raise BadInput(
                f"{VARIABLE} names user {user}, who already runs process {others[0]}. A run ends"
                " all processes of its users: choose ids that nothing else on this host uses,"
                " including its containers"
            )
    return users


def started_as(user: int | None) -> Started:
    """Return how to start a process as a user; `None` means as the caller."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": ()}


def give(path: Path, user: int | None, mode: int = PRIVATE) -> None:
    """Make a user the owner of a file, or of a folder with all in it, before any of his code runs.

    Other users may not enter. A file with several links keeps its owner: the user may have made the
    link.
    """
    if user is None:
        return
    for place, folders, files in os.walk(path):
        for entry in (Path(place) / name for name in (*folders, *files)):
            status = entry.lstat()
            if status.st_uid != user and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1):
                os.lchown(entry, user, user)
    let_pass(path, mode)
    os.lchown(path, user, user)


def let_pass(folder: Path, mode: int = PASSABLE) -> None:
    """Set the mode of a folder, which must be our own for that (CAP_FOWNER is not needed)."""
    if folder.stat().st_uid != os.geteuid():
        os.chown(folder, os.geteuid(), os.getegid())
    folder.chmod(mode)


def end_all(user: int | None, spared: Container[int] = ()) -> bool:
    """End every process of a user except those of the `spared` sessions.

    Returns whether none is left. No process gets into a session but by being started in it.
    """
    deadline = time.monotonic() + PATIENCE_S
    while user is not None and (
        pids := [pid for pid in living(user) if _session(pid) not in spared]
    ):
        if time.monotonic() > deadline:
            return False
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)
    return True


def _session(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getsid(pid)
    return None


def living(user: int) -> Iterator[int]:
    """Return the living processes of a user, by /proc/PID/status (proc(5)).

    Zombies are not counted.
    """
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            lines = dict(
                line.partition(":")[::2] for line in status.read_text(errors="replace").splitlines()
            )
            if str(user) in lines.get("Uid", "").split() and not lines.get(
                "State", ""
            ).strip().startswith(("Z", "X")):
                yield int(status.parent.name)
