"""Layout of a store and writing to it.

There is one file per run, or packs of many, in one folder per machine.

A file is named after the moment of its (first) run and a digest of its content. So two runs that
append simultaneously write two files, no file ever changes, and one that was cut short or tampered
with does not fit its name. In a folder a record is written next to its final name, flushed to the
disk, and renamed: it appears whole or not at all, and a kill at any moment leaves a file with a
leading dot at most, which readers pass by and `tidy` removes. A store on a branch is in `branch`.
"""

import hashlib
import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ci_bench import __version__
from ci_bench.errors import BadDocument, CannotWrite
from ci_bench.history.points import joined
from ci_bench.judge.times.calibration import fingerprint
from ci_bench.records import documents
from ci_bench.records.history import History

MOST_FILE_BYTES = 50_000_000
"""Size limit of one file, unpacked."""
MOST_FILES = 20_000
_MACHINE = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"(?:run|pack)-[0-9]{8}T[0-9]{6}-([0-9a-f]{16})\.json\.gz")
_TEMPORARY = re.compile(r"\..+\.tmp")

Files = Mapping[str, bytes]
"""Contents by name below the store (``<machine>/<file>``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A file that was read: its name below the store, its stored size in bytes, and its content."""

    name: str
    size: int
    history: History


@dataclass(frozen=True, kw_only=True, slots=True)
class Passed:
    """A file that was skipped, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        """Return the name for messages: it may be a stranger's."""
        return f"{ascii(self.name)[:160]}: {self.reason}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Content of a store when it was read.

    `state` is the store's own mark of that moment (a branch's commit).
    """

    files: tuple[Stored, ...]
    passed: tuple[Passed, ...] = ()
    state: str = ""

    @property
    def history(self) -> History:
        """Return all runs, each once."""
        return joined((file.history for file in self.files), tool_version=__version__)

    @property
    def size(self) -> int:
        """Return the bytes of all files that were read."""
        return sum(file.size for file in self.files)


class Moved(Exception):  # noqa: N818 - caught where the store is changed
    """Change of a store since it was read."""


class Store(Protocol):
    """A store."""

    def read(self) -> Found:
        """Read the whole store; one that doesn't exist yet is empty."""

    def append(self, files: Files) -> None:
        """Add files.

        Returns once they are safe. Raises `CannotWrite` or `GitFailed`.
        """

    def replace(self, add: Files, remove: Sequence[str], state: str) -> None:
        """Add files, and only then take others away.

        Raises `Moved` if the store cannot tell that nothing is lost.
        """


def file_of(history: History, *, pack: bool = False) -> Files:
    """Return the file of a history of one machine, by its name.

    Raises `BadDocument` if it cannot be written.
    """
    content = documents.packed(history)
    moment = re.sub(r"[^0-9T]", "", history.runs[0].at)[:15]
    name = f"{'pack' if pack else 'run'}-{moment}-{_digest(content)}.json.gz"
    return {f"{folder_of(history.machines[0].fingerprint)}/{name}": content}


def folder_of(digest: str) -> str:
    """Return the folder of a machine, by its fingerprint."""
    return digest.partition(":")[2][:32]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def read_folder(root: Path, *, state: str = "") -> Found:
    """Read every record below a folder; unsound records are named and skipped.

    Links are never followed.
    """
    files: list[Stored] = []
    passed: list[Passed] = []
    for folder, name in _names(root):
        shown = f"{folder}/{name}" if folder else name
        if _TEMPORARY.fullmatch(name):
            continue
        if len(files) >= MOST_FILES:
            passed.append(
                Passed(
                    name=shown,
                    reason=(
                        f"there are more than {MOST_FILES:,} files; run `ci-bench history compact`"
                    ),
                )
            )
            break
        try:
            files.append(_read(root, folder, name))
        except BadDocument as error:
            passed.append(
                Passed(name=shown, reason=str(error).replace(f"{root / folder / name}: ", "", 1))
            )
    return Found(files=tuple(files), passed=tuple(passed), state=state)


def _names(root: Path) -> list[tuple[str, str]]:
    """List folder and name of each file, sorted.

    Files outside a machine's folder have an empty folder.
    """
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadDocument(
            f"{root}: cannot be read: {error.strerror or error}; check the path"
        ) from error
    names: list[tuple[str, str]] = []
    for entry in entries:
        if _MACHINE.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            names += [
                (entry.name, name)
                for name in sorted(path.name for path in Path(entry.path).iterdir())
            ]
        elif entry.name not in {".git", "README.md"}:
            names.append(("", entry.name))
    return names


def _read(root: Path, folder: str, name: str) -> Stored:
    path = root / folder / name
    match = _FILE.fullmatch(name)
    if not folder or match is None:
        raise BadDocument("not a record of ci-bench; remove it")
    content = _content(path)
    if _digest(content) != match[1]:
        raise BadDocument(
            "its content does not fit the digest in its name: it was cut short or changed"
        )
    history = documents.read_history(path, max_bytes=MOST_FILE_BYTES)
    for machine in history.machines:
        if (
            machine.fingerprint != fingerprint(machine.identity)
            or folder_of(machine.fingerprint) != folder
        ):
            raise BadDocument("the machine that it names is not the one whose folder it is in")
    return Stored(name=f"{folder}/{name}", size=len(content), history=history)


def _content(path: Path) -> bytes:
    """Read a plain file; opening a pipe or a link would hang, or lead elsewhere."""
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise BadDocument("not a plain file")
        if about.st_size > MOST_FILE_BYTES:
            raise BadDocument(f"larger than {MOST_FILE_BYTES:,} bytes, the most that is read")
        return path.read_bytes()
    except OSError as error:
        raise BadDocument(f"cannot be read: {error.strerror or error}") from error


_ABANDONED_S = 86_400.0


@dataclass(frozen=True, slots=True)
class FolderStore:
    """A store in the folder `path`, which need not exist yet."""

    path: Path

    def read(self) -> Found:
        """Read the whole folder.

        Raises `BadDocument` if it cannot be listed.
        """
        return read_folder(self.path)

    def append(self, files: Files) -> None:
        """Write files, and return once they are on the disk.

        Raises `CannotWrite`.
        """
        for name, content in files.items():
            try:
                _write(self.path / name, content)
            except OSError as error:
                raise CannotWrite(
                    f"{self.path / name}: cannot be written: {error.strerror or error}"
                ) from error

    def replace(self, add: Files, remove: Sequence[str], state: str) -> None:  # noqa: ARG002 - files that are there stay as they are
        """Write files first, then remove others, and what was abandoned a day ago.

        Raises `CannotWrite`.
        """
        self.append(add)
        for name in remove:
            if name not in add:
                with suppress(FileNotFoundError):
                    os.unlink(self.path / name)  # noqa: PTH108 - what a test of kills replaces
        self.tidy()

    def tidy(self) -> None:
        """Remove temporary files of writers that were killed."""
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
    """Flush the names in a folder to the disk; not every file system supports that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
