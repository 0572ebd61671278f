"""A store in a folder: files appear whole or not at all, and are safe on disk before anything else is taken away.

A record is written beside its place, flushed to the disk, and renamed; its name comes from its content, so that renaming over a
file can only heal it. A kill at any moment leaves a file with a leading dot at most, which readers pass by and `tidy` removes.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ci_bench.errors import CannotWrite
from ci_bench.history.shelf import Files, Found, read_folder

_ABANDONED_S = 86_400.0


@dataclass(frozen=True, slots=True)
class FolderShelf:
    """A store in the folder `path`, which need not exist yet."""

    path: Path

    def read(self) -> Found:
        """All that the folder holds. Raises `BadDocument` where it cannot be listed."""
        return read_folder(self.path)

    def append(self, files: Files) -> None:
        """Write files, and return once they are on the disk. Raises `CannotWrite`."""
        for name, content in files.items():
            try:
                _write(self.path / name, content)
            except OSError as error:
                raise CannotWrite(f"{self.path / name}: cannot be written: {error.strerror or error}") from error

    def replace(self, add: Files, remove: Sequence[str], state: str) -> None:  # noqa: ARG002 - files that are there stay as they are
        """Write files first, then remove others, and what was abandoned a day ago. Raises `CannotWrite`."""
        self.append(add)
        for name in remove:
            if name not in add:
                with suppress(FileNotFoundError):
                    os.unlink(self.path / name)  # noqa: PTH108 - what a test of kills replaces
        self.tidy()

    def tidy(self) -> None:
        """Remove what writers that were killed left behind."""
        for path in self.path.glob("*/.*.tmp"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    path.unlink()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(beside, path)  # noqa: PTH105 - likewise
    finally:
        with suppress(OSError):
            os.unlink(beside)  # noqa: PTH108 - likewise
    for folder in (path.parent, path.parent.parent):
        _flush(folder)


def _flush(folder: Path) -> None:
    """The names in a folder reach the disk; not every file system can be asked to."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
