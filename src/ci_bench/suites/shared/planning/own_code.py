"""Digest of a benchmark's own code: files that a command names, or those of a suite's modules.

Base and head with different digests are compared, and the report says that the benchmark itself
changed. Nothing is run.
"""

import hashlib
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

LENGTH = 16
"""Hexadecimal digits of a digest."""
MOST_FOLDERS, MOST_FILES, MOST_BYTES = 1000, 1000, 4 << 20
"""Limits of what is read: a command may name a folder of data."""
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
SOURCES = (
    *(".py", ".pyx", ".sh", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".rs", ".go"),
    *(".js", ".mjs", ".ts", ".java", ".kt", ".scala", ".jl", ".rb", ".lua"),
)
"""Ends of names of source files in a folder that a command names; data is not a benchmark's own
code.
"""
_BY_PROGRAM = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "just": ("justfile", "Justfile"),
    "npm": ("package.json",),
    "pnpm": ("package.json",),
    "yarn": ("package.json",),
    "cargo": ("benches",),
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
}
"""Files that programs read although no word names them."""


def of_commands(commands: Iterable[str | Sequence[str]], folder: Path) -> str:
    """Return the digest of the files and folders that commands name.

    It is empty if they name none in `folder`.
    """
    return _digest(path for command in commands for path in _find_files(_words(command), folder))


def of_modules(names: Iterable[str], folder: Path) -> str:
    """Return the digest of modules' files; empty if none of them is in `folder` or its ``src``."""
    return _digest(path for name in names for path in _module(name, folder))


def _words(command: str | Sequence[str]) -> list[str]:
    if not isinstance(command, str):
        return list(command)
    try:
        return shlex.split(command)
    except ValueError:  # the shell will complain of a quote that is not closed
        return command.split()


def _find_files(words: Sequence[str], folder: Path) -> Iterator[Path]:
    """Yield the files of each word.

    A word is a path, a test's id, or a module (after ``-m`` or before ``:function``).
    """
    implied = [name for word in words for name in _BY_PROGRAM.get(word.rpartition("/")[2], ())]
    for before, word in zip(("", *words, *("" for _ in implied)), (*words, *implied), strict=False):
        path = folder / word.partition("::")[0].removesuffix("/...")
        if not word or Path(word).is_absolute() or ".." in Path(word).parts or path == folder:
            continue
        if os.path.isdir(path):  # noqa: PTH112 - a word may be too long or have a zero byte, at which `Path` raises
            yield from _sources_below(path)
        elif before == "-m" or ":" in word:
            yield from _module(word.partition(":")[0], folder)
        yield path


def _sources_below(folder: Path) -> Iterator[Path]:
    """Yield the source files in a folder and below, in order; links are not followed."""
    files: list[Path] = []
    for place, folders, names in itertools.islice(os.walk(folder), MOST_FOLDERS):
        folders.sort()
        files += (Path(place, name) for name in sorted(names) if name.endswith(SOURCES))
        if len(files) >= MOST_FILES:
            break
    yield from files[:MOST_FILES]


def _module(name: str, folder: Path) -> Iterator[Path]:
    if _MODULE.fullmatch(name) is None:
        return
    for root in (folder, folder / "src"):
        stem = root.joinpath(*name.split("."))
        yield from (stem.with_suffix(".py"), stem / "__init__.py", stem / "__main__.py")


def _digest(paths: Iterable[Path]) -> str:
    """Digest the contents of those paths that are files, each once."""
    parts = [
        hashlib.sha256(content).hexdigest()
        for path in dict.fromkeys(paths)
        if (content := _content(path)) is not None
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:LENGTH] if parts else ""


def _content(path: Path) -> bytes | None:
    """Return the bytes of a file; `None` without a file, or if it is too large or unreadable."""
    try:
        return path.read_bytes() if path.is_file() and path.stat().st_size <= MOST_BYTES else None
    except (OSError, ValueError):
        return None
