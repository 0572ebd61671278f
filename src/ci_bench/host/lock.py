"""Locks that allow one run at a time on a device, each with a queue before it.

Each GPU has a lock, by its UUID, and each host has one for the CPU.

Two runs that share a device measure each other. The lock is `flock(2)` on a file: the kernel lets
go of it when its holder ends, however that ends. It holds between all processes, users and
containers that see the same folder, by whatever path.

First come, first served. Each waiter holds a lock on a numbered file, its ticket, and takes the
device once no smaller number is locked. So a killed waiter delays no one. If no lock can be made,
the run reports it and continues: `monitor` still notices other processes. `devices` finds out which
device a run will measure on.
"""

import fcntl
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ci_bench.errors import DeviceBusy
from ci_bench.host.gpus.protocol import Cards
from ci_bench.records.results import Environment

logger = logging.getLogger(__name__)

DEFAULT_FOLDER = Path("/tmp/ci-bench-locks")  # noqa: S108 - shared by all users on purpose, and made safe for that below
LOOK_S = 0.2
TELL_S = 60.0
"""Seconds between two messages about a wait."""
MOST_PIDS = 1 << 22
"""The upper limit of Linux process numbers (proc(5), pid_max); a longer number is invalid."""
MOST_BYTES = 1000
MOST_TICKETS = 100_000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RUN = re.compile(r"[A-Za-z0-9 ._/#@-]{1,120}")
"""The names that a run may use for itself."""


def device_key(
    environment: Environment, gpus: Sequence[Cards] = (), *, boot_id: Path = BOOT_ID
) -> str:
    """Return a device's key from what a worker saw: a GPU's UUID, or the host of a CPU."""
    if environment.identity.get("device") == "cuda":
        return gpu_key(
            str(
                environment.condition.get("gpu_uuid")
                or environment.identity.get("gpu")
                or "unknown"
            ),
            gpus,
        )
    return cpu_key(boot_id=boot_id)


def gpu_key(uuid: str, gpus: Sequence[Cards] = ()) -> str:
    """Return the key of a GPU; torch leaves the UUID's prefix out.

    A part of one of the `gpus` has the whole one's key: power and heat of one part lower the clocks
    of all.
    """
    bare = _bare(uuid)
    parents = (
        card.uuid for cards in gpus for card in cards.cards if bare in map(_bare, card.parts)
    )
    return "gpu-" + _as_file_name(_bare(next(parents, bare)))


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-").removeprefix("MIG-")


def cpu_key(*, boot_id: Path = BOOT_ID) -> str:
    """Return the key of this host's CPU.

    Caches and memory are shared by all its cores, and by all its containers.
    """
    with suppress(OSError):
        return "cpu-" + _as_file_name(boot_id.read_text())
    return "cpu"


def _as_file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "_", text.strip())[:80]


@contextmanager
def device_lock(
    key: str,
    *,
    folder: Path = DEFAULT_FOLDER,
    limit_s: float,
    run: str = "",
    say: Callable[[str], None] = logger.warning,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold a device for the block; wait for it at most `limit_s` seconds.

    Earlier waiters come first.

    A wait is reported immediately and each minute: the holder, the time so far, and the place in
    the queue. `run` is the name that other waiters see.

    Raises:
        DeviceBusy: another run still holds it then.
    """
    descriptor = _open(folder, key)
    if descriptor is None:
        say(
            f"no lock for {key} can be made in {folder}: nothing keeps another run from measuring"
            " on this device at the same time"
        )
        yield
        return
    queue = _Queue(folder=folder, key=key, device=descriptor)
    try:
        _take(queue, limit_s=limit_s, say=say, clock=clock, sleep=sleep)
        _sign(queue.device, run)
        yield
    finally:
        os.close(queue.device)


def _open(folder: Path, key: str) -> int | None:
    """Open the lock file.

    Links of others are not followed, and another user's file is opened as it is.
    """
    path = folder / f"{key}.lock"
    with suppress(OSError):
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)  # for every user; sticky: only owners remove files
        with suppress(FileExistsError):
            return _create_lock_file(path)
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    return None


def _create_lock_file(path: Path) -> int:
    """Create a new file that every user can lock; return its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    os.fchmod(descriptor, 0o666)
    return descriptor


@dataclass(kw_only=True, slots=True)
class _Queue:
    """The waiters for one device."""

    folder: Path
    """Folder of the locks."""
    key: str
    """Key of the device."""
    device: int
    """Descriptor of the device's open lock file."""
    ticket: int | None = None
    """Descriptor of this run's ticket; `None` if it does not wait, or could not get one."""
    number: int = 0
    """Number of this run's ticket; without one, a number behind all waiters."""

    def ahead(self) -> int:
        """Return how many live runs came before this one."""
        return sum(self._is_held(number) for number in self._numbers() if number < self.number)

    def take(self) -> bool:
        """Take the device if it is free.

        A lock on a file that someone has removed is invalid: the new file counts.
        """
        try:
            fcntl.flock(self.device, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if self._is_there():
            return True
        another = _open(self.folder, self.key)
        if another is None:
            return True  # the best available
        os.close(self.device)
        self.device = another
        return False

    def join(self) -> None:
        """Take the next number.

        If that fails (for example on a full disk), this run waits without a place. The file is
        locked before it gets its number, so others never see a number without a lock.
        """
        with suppress(OSError):
            unnumbered = self.folder / f"{self.key}.{secrets.token_hex(8)}"
            ticket = _create_lock_file(unnumbered)
            try:
                fcntl.flock(ticket, fcntl.LOCK_EX)
                number = max(self._numbers(), default=0) + 1
                while True:
                    with suppress(FileExistsError):
                        self._path(number).hardlink_to(unnumbered)
                        break
                    number += 1
            except OSError:
                os.close(ticket)
                raise
            finally:
                unnumbered.unlink()
            self.ticket, self.number = ticket, number

    def leave(self) -> None:
        """Give the number back."""
        if self.ticket is not None:
            with suppress(OSError):
                self._path(self.number).unlink()
            os.close(self.ticket)
            self.ticket = None

    def _is_there(self) -> bool:
        """Return whether the open lock file is the one that others will open."""
        with suppress(OSError):
            return os.path.samestat(
                os.fstat(self.device), (self.folder / f"{self.key}.lock").lstat()
            )
        return False

    def _numbers(self) -> list[int]:
        """Return all tickets in the folder, in order."""
        with suppress(OSError):
            names = (
                entry.name.split(".")
                for entry in os.scandir(self.folder)
                if entry.name.startswith(f"{self.key}.")
            )
            numbers = (parts[-2] for parts in names if len(parts) == 3 and parts[-1] == "ticket")  # noqa: PLR2004 - key, number, kind
            return sorted(int(number) for number in numbers if re.fullmatch(r"[0-9]{1,9}", number))[
                :MOST_TICKETS
            ]
        return []

    def _is_held(self, number: int) -> bool:
        """Return whether the holder of a ticket lives; remove a dead one's ticket if permitted."""
        with suppress(OSError):
            other = os.open(self._path(number), os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self._path(number).unlink()
            except BlockingIOError:
                return True
            finally:
                os.close(other)
        return False

    def _path(self, number: int) -> Path:
        return self.folder / f"{self.key}.{number:09d}.ticket"


def _take(
    queue: _Queue,
    *,
    limit_s: float,
    say: Callable[[str], None],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    begun = clock()
    deadline, tell_at = begun + limit_s, begun
    queue.number = 1 << 30  # behind all waiters
    joined = False
    try:
        while queue.ahead() or not queue.take():
            now = clock()
            if not joined:
                queue.join()
                joined = True
            holder = _holder(queue.device)
            if now >= deadline:
                raise DeviceBusy(
                    f"another run of ci-bench measures on {queue.key} ({holder}), and did not end"
                    f" within {limit_s:g} s; run again later, or raise run.lock_timeout_s"
                )
            if now >= tell_at:
                say(_wait(queue, holder, waited_s=now - begun, limit_s=limit_s))
                tell_at = now + TELL_S
            sleep(min(LOOK_S, max(deadline - now, 0.0)))
    finally:
        queue.leave()


def _wait(queue: _Queue, holder: str, *, waited_s: float, limit_s: float) -> str:
    """Return the message about a wait."""
    ahead = queue.ahead()
    before = (
        f"; {ahead} more {'runs wait' if ahead > 1 else 'run waits'} before this one"
        if ahead
        else ""
    )
    so_far = f" for {waited_s:.0f} s so far" if waited_s >= TELL_S / 2 else ""
    return (
        f"waiting for {queue.key}{so_far}: another run of ci-bench measures on it"
        f" ({holder}){before}; giving up after {limit_s:g} s"
    )


def _sign(descriptor: int, run: str) -> None:
    """Write the holder's name for the message of the waiters."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"pid": os.getpid(), "since": now} | ({"run": run} if _RUN.fullmatch(run) else {})
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode(), 0)


def _holder(descriptor: int) -> str:
    """Return the holder, as far as detectable; the file may be anyone's."""
    with suppress(OSError, ValueError, RecursionError):
        record = json.loads(os.pread(descriptor, MOST_BYTES, 0))
        if (
            isinstance(record, dict)
            and isinstance(pid := record.get("pid"), int)
            and 0 < pid < MOST_PIDS
            and re.fullmatch(r"[0-9T:+-]{1,40}", str(record.get("since")))
        ):
            run = f", {record['run']}" if _RUN.fullmatch(str(record.get("run", ""))) else ""
            return f"process {pid}{run}, since {record['since']}"
    return "it does not say which"
