"""Seal files of base and the engine before any of head's code runs, and inspect them afterwards.

If both sides run as one user, nothing prevents head from writing to base's tree. Such a write is
noticed, and fails the run with the file's name. A seal holds the result of `lstat` for every file,
and only root can set the time of a file's last change (ctime). So a file that was changed and
restored is noticed, too, without reading its content.

Legitimate changes are allowed. A side's own processes leave new files in its tree (outputs, logs),
so new files count only if something loads them automatically: modules, libraries, settings of
tools. Compiled modules are compared with their sources (`bytecode`). Installers link one file into
several environments, which changes its ctime: such a file counts if its content differs from the
RECORD of its package. `setup.writes` names the files that a benchmark overwrites on purpose.

docs/security.md lists what is not noticed.
"""

import base64
import csv
import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import ci_bench
from ci_bench.checkouts.bytecode import foreign_bytecode
from ci_bench.checkouts.layers import engine_sites

SHOWN_FILES = 3
LOADED = re.compile(r"\.(py|pyc|pyo|pyd|pth|egg|zip|whl)$|\.so(\.\d+)*$")
"""New files that an interpreter or a linker loads because of their names."""
SETTINGS = frozenset(
    {"pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "pyvenv.cfg"}
)
CACHE = "__pycache__"
INSTALLED = frozenset({"site-packages", "dist-packages"})


class FileMark(NamedTuple):
    """The identity of a file; its size in bytes, times in nanoseconds."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    links: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """A sealed folder."""

    owner: str
    """Owner of the folder, in words."""
    folder: Path
    """Path of the folder."""
    grows: bool = False
    """Allows new files, except those that something loads automatically."""
    imports: bool = False
    """Only modules and packages at its top count, as in any entry of PYTHONPATH."""
    shared: bool = False
    """Folder of both sides, which is large."""
    writes: tuple[str, ...] = ()
    """Globs of files, or of folders with all content, that may change in any way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal:
    """The content of folders at one moment.

    Marks by path within each folder, and the RECORD files of the packages in it. `passed` are
    compiled modules that were compared with their sources since; `digests` are the entries of
    RECORD files that were needed.
    """

    marks: Mapping[Ground, Mapping[str, FileMark]]
    records: Mapping[Ground, tuple[bytes, ...]]
    passed: dict[Path, FileMark] = field(default_factory=dict)
    digests: dict[Ground, Mapping[str, str]] = field(default_factory=dict)

    def breaks(self, *, shared: bool = True) -> tuple[str, ...]:
        """Return a sentence for each folder with a change.

        Without `shared`, those of both sides are skipped.
        """
        inspected = [ground for ground in self.marks if shared or not ground.shared]
        return tuple(sentence for ground in inspected if (sentence := self._inspect(ground)))

    def _inspect(self, ground: Ground) -> str:
        then, now = self.marks[ground], dict(_marks(ground))
        names = [
            name for name in sorted(then.keys() | now.keys()) if then.get(name) != now.get(name)
        ]
        names = [name for name in names if not _may_change(name, ground.writes)]
        uncached = [name for name in names if not _is_cached(name)]
        faults = [
            fault
            for name in uncached
            if (fault := self._fault(ground, name, then.get(name), now.get(name)))
        ]
        compiled = {
            ground.folder / name: now[name] for name in names if _is_cached(name) and name in now
        }
        faults += [
            f"{path.relative_to(ground.folder)} is not what its source compiles to"
            for path in self._foreign(compiled)
        ]
        if not faults:
            return ""
        more = f" and {len(faults) - SHOWN_FILES} more" if len(faults) > SHOWN_FILES else ""
        return f"{ground.owner} was changed: {', '.join(faults[:SHOWN_FILES])}{more}"

    def _fault(self, ground: Ground, name: str, then: FileMark | None, now: FileMark | None) -> str:
        """Describe the fault of a changed file; empty if it is legitimate."""
        if now is None:
            return f"{name} was removed"
        if then is None:
            return "" if ground.grows and not _is_loaded(ground.folder / name) else f"{name} is new"
        return "" if self._is_relinked(ground, name, then, now) else f"{name} was written"

    def _is_relinked(self, ground: Ground, name: str, then: FileMark, now: FileMark) -> bool:
        """Return whether only a file's links changed.

        Its content is the one that it was installed with.
        """
        alike = then._replace(ctime_ns=0, links=0) == now._replace(ctime_ns=0, links=0)
        if not alike or max(then.links, now.links) == 1:
            return False
        if ground not in self.digests:
            self.digests[ground] = dict(_recorded(self.records[ground]))
        installed = name.rpartition("/site-packages/")[2]
        return self.digests[ground].get(installed) == _digest(ground.folder / name)

    def _foreign(self, compiled: Mapping[Path, FileMark]) -> tuple[Path, ...]:
        unseen = {path: mark for path, mark in compiled.items() if self.passed.get(path) != mark}
        foreign = foreign_bytecode(tuple(unseen))
        self.passed.update({path: mark for path, mark in unseen.items() if path not in foreign})
        return foreign


def seal(grounds: Iterable[Ground]) -> Seal:
    """Seal folders as they are now. A missing one must stay missing."""
    marks = {ground: dict(_marks(ground)) for ground in grounds}
    return Seal(marks=marks, records={ground: tuple(_records(ground.folder)) for ground in marks})


def base_grounds(
    *, tree: Path, venv: Path | None, engine: Path, writes: Sequence[str] = ()
) -> tuple[Ground, ...]:
    """Return base's folders: its tree, its environment, and the one with the link to the engine."""
    of_tree = Ground(owner="base's tree", folder=tree, grows=True, writes=tuple(writes))
    environment = () if venv is None else (Ground(owner="base's environment", folder=venv),)
    return of_tree, *environment, Ground(owner="the link to the engine", folder=engine)


def engine_grounds(checkout: Path) -> tuple[Ground, ...]:
    """Return the folders that both sides take from the engine's environment.

    They are all that its interpreter finds, except code of the checkout.
    """
    package, prefix = Path(ci_bench.__file__).resolve().parent, Path(sys.prefix).resolve()
    sites = {site.resolve() for site in engine_sites()}
    programs = () if sys.prefix == sys.base_prefix else (prefix / "bin",)
    paths = dict.fromkeys(
        [package, *sites, *programs, *(Path(part).resolve() for part in sys.path if part)]
    )
    folders = [
        folder
        for folder in paths
        if folder.is_dir() and (folder == package or not _is_source(folder, checkout, prefix))
    ]
    library = Path(os.__file__).resolve().parent
    complete = {
        folder
        for folder in folders
        if folder in {package, library, *sites, *programs} or folder.name in INSTALLED
    }
    outer = [folder for folder in folders if not any(_covers(other, folder) for other in complete)]
    return tuple(
        Ground(
            owner="the engine's environment",
            folder=folder,
            grows=folder in {package, library} or folder not in complete,
            imports=folder not in complete,
            shared=True,
        )
        for folder in outer
    )


def _is_source(folder: Path, checkout: Path, prefix: Path) -> bool:
    """Return whether a folder is code of the checkout.

    The engine's environment may be in the checkout, too.
    """
    return folder.is_relative_to(checkout) and not folder.is_relative_to(prefix)


def _covers(outer: Path, inner: Path) -> bool:
    """Return whether marks of one folder include those of another.

    A standard library's do not include packages in it.
    """
    return (
        inner != outer
        and inner.is_relative_to(outer)
        and not INSTALLED.intersection(inner.relative_to(outer).parts)
    )


def _marks(ground: Ground) -> Iterator[tuple[str, FileMark]]:
    """Yield all files in a folder, and links as such.

    Files that disappear meanwhile are skipped.
    """
    top = str(ground.folder)
    waiting, start = [top], len(top) + 1
    passed_over = frozenset() if (ground.folder / "pyvenv.cfg").exists() else INSTALLED
    while waiting:
        place = waiting.pop()
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if ground.imports and place == top and not _is_imported(entry):
                    continue
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if not stat.S_ISDIR(status.st_mode):
                        yield entry.path[start:], _mark(status)
                    elif entry.name not in passed_over:
                        waiting.append(entry.path)


def _is_imported(entry: os.DirEntry[str]) -> bool:
    """Return whether an import finds it at the top of a folder.

    That is a module, a library, or a package that has its own module.
    """
    return (
        bool(LOADED.search(entry.name))
        or entry.name == CACHE
        or Path(entry.path, "__init__.py").exists()
    )


def _mark(status: os.stat_result) -> FileMark:
    return FileMark(
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_nlink,
    )


def _is_cached(name: str) -> bool:
    return PurePosixPath(name).parent.name == CACHE


def _may_change(name: str, writes: Sequence[str]) -> bool:
    path = PurePosixPath(name)
    return any(place.match(glob) for glob in writes for place in (path, *path.parents[:-1]))


def _is_loaded(path: Path) -> bool:
    """Return whether a new file is a module, a library, or settings.

    A link to a folder makes everything there modules.
    """
    return (
        bool(LOADED.search(path.name))
        or path.name in SETTINGS
        or (path.is_symlink() and path.is_dir())
    )


def _records(folder: Path) -> Iterator[bytes]:
    """Yield the installers' records of the packages in a folder, or in an environment."""
    for path in (
        *folder.glob("*.dist-info/RECORD"),
        *folder.glob("lib*/python*/site-packages/*.dist-info/RECORD"),
    ):
        with suppress(OSError):
            yield path.read_bytes()


def _recorded(records: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yield the digests of installed files.

    See https://packaging.python.org/en/latest/specifications/recording-installed-packages/.
    """
    for record in records:
        for row in csv.reader(record.decode("utf-8", "replace").splitlines()):
            if len(row) > 1 and row[1].startswith("sha256="):
                yield row[0], row[1].removeprefix("sha256=")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return (
            base64.urlsafe_b64encode(hashlib.file_digest(stream, "sha256").digest())
            .decode()
            .rstrip("=")
        )
