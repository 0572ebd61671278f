"""Notice a worker of head that reads base's tree, next to its own if both sides are one user.

If head's code loads base's, base is measured as head. In containers the folders belong to two
users, and the kernel refuses that. Elsewhere loaded modules and libraries are checked when a stage
ends, and files are watched while they are opened. Timing stages are not watched: the hook of
Python's audit events would be called within samples. Reads without Python are not noticed.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci_bench.records.results import UNTOUCHED, Check, Outcome, SideName

EVENTS = frozenset({"open", "os.listdir", "os.scandir"})
SHOWN = 3


@dataclass(kw_only=True, slots=True)
class Foreign:
    """The tree of the other side, if this worker is head's, and the files opened in it."""

    folder: str = ""
    opened: dict[str, None] = field(default_factory=dict)

    def watch(self) -> None:
        """Note opened files from now on, until the process ends."""
        if self.folder:
            sys.addaudithook(self._hear)

    def checks(self, arm: str) -> Iterator[Check]:
        """Yield a failed check that names the files read in the other tree."""
        if self.folder and (files := [*dict.fromkeys((*self.opened, *self._loaded()))]):
            more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
            names = ", ".join(os.path.relpath(path, self.folder) for path in files[:SHOWN])
            detail = (
                "head's code read base's tree, so it may have measured base's code: "
                f"{names}{more}; load files only from head's tree"
            )
            yield Check(name=UNTOUCHED, arm=arm, outcome=Outcome.FAIL, detail=detail[:1000])

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and arguments and isinstance(arguments[0], str | bytes | os.PathLike):
            with contextlib.suppress(OSError, ValueError):  # the caller that opens it gets it
                path = os.path.realpath(os.fsdecode(arguments[0]))
                if self._is_inside(path):
                    self.opened[path] = None

    def _loaded(self) -> Iterator[str]:
        """Yield files of modules and of mapped libraries."""
        files = [getattr(module, "__file__", None) for module in [*sys.modules.values()]]
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        files += [line.partition("/")[1] + line.partition("/")[2] for line in maps if "/" in line]
        for file in files:
            if isinstance(file, str) and self._is_inside(path := os.path.realpath(file)):
                yield path

    def _is_inside(self, path: str) -> bool:
        return path == self.folder or path.startswith(f"{self.folder}{os.sep}")


def foreign_of(tree: Path) -> Foreign:
    """Return the folder that a worker in `tree` must not read.

    That is base's, if it is next to head's (`checkouts.worktrees`).
    """
    side = tree.resolve().parent
    other = side.parent / str(SideName.BASE.value)  # the root's own name is empty
    return (
        Foreign(folder=str(other)) if side.name == SideName.HEAD and other.is_dir() else Foreign()
    )
