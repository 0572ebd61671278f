"""Store runs' sources on a node: one folder for each bundle, made once for all leases.

Two leases on one node are two processes, so a lock in a file separates them: exclusive while a
folder is made, shared while leases measure in it. An incomplete folder is made again. The oldest
unused ones are removed.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ci_bench.checkouts.worktrees import remove
from ci_bench.errors import ScratchFailed

FOLDER = "CI_BENCH_SOURCES"
"""The variable that names the folder.

By default it is one of this user's in the folder for temporary files.
"""
READY = "ready"
KEPT = 4


def depot_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of sources.

    It is on the node's own disk, since what is built there is built for this machine.
    """
    folder = Path(
        environ.get(FOLDER) or Path(tempfile.gettempdir()) / f"ci-bench-sources-{os.getuid()}"
    ).absolute()
    return folder.parent.resolve() / folder.name


@contextmanager
def place_of(name: str, depot: Path, make: Callable[[Path], bool]) -> Iterator[Path]:
    """Lock the folder of one bundle for the block.

    `make` fills a new one, and returns whether it may be kept for other leases.

    Raises:
        ScratchFailed: the depot is another user's, or cannot be made.
    """
    _require_own(depot)
    place, lock = (
        depot / name,
        os.open(depot / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600),
    )
    try:
        _hold(place, lock, make)
        os.utime(lock)
        _forget(depot, name)
        yield place
    finally:
        os.close(lock)


def _hold(place: Path, lock: int, make: Callable[[Path], bool]) -> None:
    """Wait until the place is ready and locked: shared, or exclusively if it may not be stored."""
    while True:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if (place / READY).exists():
            return
        fcntl.flock(lock, fcntl.LOCK_EX)  # blocks: another process may have made it by now
        if (place / READY).exists():
            continue
        remove(place)
        place.mkdir()
        if not make(place):
            return
        (place / READY).touch()


def _require_own(depot: Path) -> None:
    """Check that no one else can write to the depot: its files are run. Raises `ScratchFailed`."""
    try:
        depot.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = depot.lstat()
    except OSError as error:
        raise ScratchFailed(
            f"{depot}: cannot be made: {error.strerror or error}; name another folder in {FOLDER}"
        ) from error
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise ScratchFailed(
            f"{depot}: others could write there; remove it, or name another folder in {FOLDER}"
        )


def _forget(depot: Path, name: str) -> None:
    """Remove the least recently used places, unless they are in use."""
    with suppress(OSError):
        locks = sorted(depot.glob("*.lock"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        others = [path for path in locks if path.stem != name and (depot / path.stem).exists()]
        for path in others[KEPT - 1 :]:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(depot / path.stem)
            except BlockingIOError:
                continue
            finally:
                os.close(lock)
