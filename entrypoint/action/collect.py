"""Takes the documents out of the folder that the code under test could write to.

That folder may hold anything: links to the runner's own files, pipes that never end, a file of a
terabyte. Only plain files of a few names are copied, up to a size, opened so that no link is
followed; the rest stays where it is and is never uploaded.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 25_000_000
"""As much of one document as `publish` reads."""
NAMES = ("results.json", "base/results.json", "calibration.json")
"""The documents that are judged.

The report makes its pages of them, and takes none from here: they would be a stranger's.
"""
_LOG = re.compile(r"(?:base|head)-[0-9]{1,3}\.log")
MOST_LOGS = 64


def collect(results: Path, documents: Path) -> list[str]:
    """Copy the documents of a run, and the logs of its set-up; return their names."""
    logs = [f"setup/{name}" for name in _list_names(results / "setup") if _LOG.fullmatch(name)][
        :MOST_LOGS
    ]
    return [name for name in (*NAMES, *logs) if _copy(results, name, documents / name)]


def _list_names(folder: Path) -> list[str]:
    """Return the names in a folder, unless it is a link to somewhere else."""
    try:
        return [] if folder.is_symlink() else sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def _copy(root: Path, name: str, target: Path) -> bool:
    """Copy one plain file without following a link; return whether there was one that fits."""
    with suppress(OSError):
        descriptor = _open(root, name.split("/"))
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_size > MOST_BYTES
                or status.st_nlink != 1
            ):
                return False
            content = stream.read(MOST_BYTES + 1)
        if len(content) <= MOST_BYTES:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            return True
    return False


def _open(root: Path, parts: list[str]) -> int:
    """Open a file below `root`; return its descriptor.

    No part of the path may be a link, and a pipe does not block.
    """
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
