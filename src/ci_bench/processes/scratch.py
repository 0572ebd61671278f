"""The private folder of a run, and the leftovers of killed runs: their folders and processes.

A folder is held by a lock that ends with the process, however that ends, and that works in every
container with the same /tmp. An unlocked folder of this user belongs to a dead run. Its processes
are known by the folder's random name in their environment, which every worker and every set-up
command has.
"""

import fcntl
import logging
import os
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ci_bench.errors import ScratchFailed

logger = logging.getLogger(__name__)

PREFIX = "ci-bench-"
HELD = "held.lock"
FOLDER = "CI_BENCH_FOLDER"
"""The variable that names the folder to whatever the run starts."""
MOST_ROUNDS = 200
"""The limit of rounds: processes that a leftover starts before its end must be ended in turn."""
PAUSE_S = 0.01


@contextmanager
def run_folder() -> Iterator[str]:
    """Open a private folder for tasks, logs and caches, removed with the block.

    Leftovers of dead runs are removed first.

    Raises:
        ScratchFailed: it cannot be made.
    """
    with ExitStack() as stack:
        try:
            parent = _parent(Path(tempfile.gettempdir()))
            clear(parent)
            temporary = tempfile.TemporaryDirectory(
                prefix=PREFIX, dir=parent, ignore_cleanup_errors=True
            )
            folder = stack.enter_context(temporary)
            stack.enter_context(_hold(Path(folder)))
        except OSError as error:
            raise scratch_failure(error) from error
        yield folder


def _parent(usual: Path) -> Path:
    """Return the folder for temporary files.

    Another one if its path has a space, which inductor does not quote for its compiler.
    """
    if not any(letter.isspace() for letter in str(usual)):
        return usual
    places = (
        Path("/tmp"),  # noqa: S108 - the folder in it has a random name, and no other user's rights
        Path("/var/tmp"),  # noqa: S108 - likewise
    )
    return next((place for place in places if os.access(place, os.W_OK)), usual)


def _hold(folder: Path) -> BinaryIO:
    """Hold a folder until the stream is closed.

    The lock file gets its name only once it is locked, so it is never mistaken for a dead run's.
    """
    young = folder / f"{HELD}.new"
    stream = young.open("xb")
    fcntl.flock(stream, fcntl.LOCK_EX)
    young.rename(folder / HELD)
    return stream


def make(folder: Path) -> None:
    """Make a folder in a private one, if it is missing. Raises `ScratchFailed`."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise scratch_failure(error) from error


def scratch_failure(error: OSError) -> ScratchFailed:
    """Return the error for a private folder that cannot be written."""
    where = f"{error.filename}: " if error.filename else ""
    advice = "is the disk full, or was the run's private folder removed? (TMPDIR moves it)"
    return ScratchFailed(f"{where}{error.strerror or error}; {advice}")


def clear(parent: Path) -> tuple[Path, ...]:
    """End the processes of dead runs and remove their folders in `parent`. Returns those folders.

    A folder for temporary files may hold a hundred thousand names of others, and may be one that we
    can write to, but not list.
    """
    ours: list[str] = []
    with suppress(PermissionError), os.scandir(parent) as entries:
        ours = sorted(entry.path for entry in entries if entry.name.startswith(PREFIX))
    return tuple(folder for folder in map(Path, ours) if _clear(folder))


def _clear(folder: Path) -> bool:
    with suppress(OSError):
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        descriptor = os.open(folder / HELD, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ended = end_processes(folder)
            _remove(folder)
        finally:
            os.close(descriptor)
        logger.warning(
            "an earlier run was killed: ended %d of its processes and removed %s", ended, folder
        )
        return True
    return False


def _remove(folder: Path) -> None:
    """Remove a folder, even if permissions inside were taken away."""
    import shutil

    for root, names, _ in os.walk(folder):
        for name in names:
            with suppress(OSError):
                Path(root, name).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def end_processes(folder: Path) -> int:
    """End all processes with the folder in their environment, and their new children.

    Returns their number.
    """
    ended: set[int] = set()
    for _ in range(MOST_ROUNDS):
        pids = _users(os.fsencode(folder))
        if not pids:
            break
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        ended.update(pids)
        time.sleep(PAUSE_S)
    return len(ended)


def _users(folder: bytes) -> list[int]:
    """Return this user's living processes that have the folder in a variable.

    A path in the folder counts as well.
    """
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            variables = (entry / "environ").read_bytes()
            if (
                folder in variables
                and entry.stat().st_uid == os.geteuid()
                and int(entry.name) != os.getpid()
            ):
                pids.append(int(entry.name))
    return pids
