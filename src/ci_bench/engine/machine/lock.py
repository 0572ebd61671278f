"""One run at a time on a device: a lock per GPU, by its UUID, and one per host for the CPU.

Two runs that share a device measure each other. The lock is `flock(2)` on a file: the kernel lets go of it when its holder ends,
however that ends. It holds between all processes, users and containers that see the same folder. Where no lock can be made, that
is said, and measuring goes on: other processes are noticed all the same (see `monitor`).
"""

import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from ci_bench.errors import DeviceBusy
from ci_bench.records.results import Environment

logger = logging.getLogger(__name__)

DEFAULT_FOLDER = Path("/tmp/ci-bench-locks")  # noqa: S108 - shared by all users on purpose, and made safe for that below
LOOK_S = 0.2
MOST_PIDS = 1 << 22
"""What Linux numbers processes up to (proc(5), pid_max); a longer number is none."""
MOST_BYTES = 1000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def device_key(environment: Environment, *, boot_id: Path = BOOT_ID) -> str:
    """What tells devices apart: a GPU's UUID, which is unique, or the host that a CPU is in."""
    if environment.identity.get("device") == "cuda":
        uuid = str(environment.condition.get("gpu_uuid") or environment.identity.get("gpu") or "unknown")
        return "gpu-" + _plain(uuid.removeprefix("GPU-"))
    with suppress(OSError):
        return "cpu-" + _plain(boot_id.read_text())
    return "cpu"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "_", text.strip())[:80]


@contextmanager
def device_lock(
    key: str,
    *,
    folder: Path = DEFAULT_FOLDER,
    limit_s: float,
    say: Callable[[str], None] = logger.warning,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold a device for the block; wait for it at most `limit_s` seconds, and say once that this waits, and for whom.

    Raises:
        DeviceBusy: another run still holds it then.
    """
    descriptor = _open(folder, key)
    if descriptor is None:
        say(
            f"no lock for {key} can be made in {folder}: nothing keeps another run from measuring on this device at the same time"
        )
        yield
        return
    try:
        _take(descriptor, key, limit_s=limit_s, say=say, clock=clock, sleep=sleep)
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def _open(folder: Path, key: str) -> int | None:
    """The lock file: no link of a stranger is followed, and a file that another user made is opened as it is."""
    path = folder / f"{key}.lock"
    with suppress(OSError):
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)  # for every user; sticky, so that none removes another's
        with suppress(FileExistsError):
            made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            os.fchmod(made, 0o666)
            return made
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    return None


def _take(
    descriptor: int,
    key: str,
    *,
    limit_s: float,
    say: Callable[[str], None],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    deadline = clock() + limit_s
    said = False
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        holder = _holder(descriptor)
        if clock() >= deadline:
            raise DeviceBusy(
                f"another run of ci-bench measures on {key} ({holder}), and did not end within {limit_s:g} s; "
                "run again later, or raise run.lock_timeout_s"
            )
        if not said:
            say(f"waiting for {key}: another run of ci-bench measures on it ({holder}); giving up after {limit_s:g} s")
            said = True
        sleep(min(LOOK_S, max(deadline - clock(), 0.0)))


def _sign(descriptor: int) -> None:
    """Say who holds it, for the message of those that wait."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": now}).encode(), 0)


def _holder(descriptor: int) -> str:
    """Who holds it, as far as can be told; the file may be anyone's."""
    with suppress(OSError, ValueError, RecursionError):
        told = json.loads(os.pread(descriptor, MOST_BYTES, 0))
        if (
            isinstance(told, dict)
            and isinstance(pid := told.get("pid"), int)
            and 0 < pid < MOST_PIDS
            and re.fullmatch(r"[0-9T:+-]{1,40}", str(told.get("since")))
        ):
            return f"process {pid}, since {told['since']}"
    return "it does not say which"
