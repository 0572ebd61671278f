"""Find the user's frame on a stack, and name its line for a report.

The tree is the working folder of the worker. A frame in it is the user's own. If the stack has
none, the innermost frame counts that is not of torch, the standard library or the engine, since a
model may come from a library.
"""

import linecache
import re
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import FrameType

from ci_bench.records.profiles import MOST_CODE, MOST_PLACE, SourceLine

_WORKER = Path(__file__).resolve().parent.parent
_OURS = (str(_WORKER), str(_WORKER.with_name("processes")))
"""The folders of what calls the measured code."""
_INSTALLED = ("site-packages", "dist-packages")
_TRACEBACK = re.compile(r'File "([^"\n]{1,500})", line (\d{1,7})')
_FOREIGN, _PACKAGE, _OWN = range(3)


class FrameSources:
    """Lines of the tree at `tree`, and of packages."""

    def __init__(self, tree: Path) -> None:
        """Read files on demand."""
        self._tree = tree.resolve()
        self._nothing = [
            Path(place).resolve() for place in (sysconfig.get_path("stdlib"), *_OURS) if place
        ]
        self.rank = lru_cache(maxsize=4096)(self._rank)
        self.line = lru_cache(maxsize=4096)(self._line)
        self.find = lru_cache(maxsize=4096)(self._find)

    def of_frame(self, frame: FrameType | None) -> SourceLine | None:
        """Return the innermost line that is the user's, of a frame and those that called it."""
        best: tuple[int, str, int] = (_FOREIGN, "", 0)
        while frame is not None and best[0] < _OWN:
            rank = self.rank(frame.f_code.co_filename)
            if rank > best[0]:
                best = rank, frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return self.line(*best[1:]) if best[0] else None

    def within(self, frame: FrameType | None, function: str) -> SourceLine | None:
        """Return the innermost line of the tree's; `None` without one.

        Looks at a frame and its callers up to the function of this name.
        """
        while frame is not None and frame.f_code.co_name != function:
            if self.rank(frame.f_code.co_filename) == _OWN:
                return self.line(frame.f_code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return None

    def of_traceback(self, text: str) -> SourceLine | None:
        """Return the innermost line that is the user's, of a stack as Python prints it."""
        frames = [(self.rank(file), file, int(number)) for file, number in _TRACEBACK.findall(text)]
        best = max((rank for rank, _, _ in frames), default=_FOREIGN)
        return next(
            (
                self.line(file, number)
                for rank, file, number in reversed(frames)
                if best and rank == best
            ),
            None,
        )

    def is_own(self, file: str) -> bool:
        """Return whether a file is in the tree."""
        return self.rank(file) == _OWN

    def _rank(self, file: str) -> int:
        if not file or file.startswith("<"):
            return _FOREIGN
        path = Path(self.find(file))
        if any(part in _INSTALLED for part in path.parts):
            return (
                _FOREIGN if "torch" in path.parts or "ci_bench" in path.parts[-4:-1] else _PACKAGE
            )
        if any(path.is_relative_to(place) for place in self._nothing):
            return _FOREIGN
        return _OWN if path.is_relative_to(self._tree) else _PACKAGE

    def _find(self, file: str) -> str:
        """Return the path of a file.

        Torch's profiler has removed the prefix that is on Python's path.
        """
        if Path(file).is_absolute():
            return file
        places = (Path(place) / file for place in (str(self._tree), *sys.path))
        return str(next((place for place in places if place.is_file()), Path(file)))

    def _line(self, file: str, number: int) -> SourceLine:
        path = Path(self.find(file))
        if path.is_relative_to(self._tree) and not any(part in _INSTALLED for part in path.parts):
            shown = str(path.relative_to(self._tree))
        else:
            place = next(
                (index for index, part in enumerate(path.parts) if part in _INSTALLED),
                len(path.parts) - 4,
            )
            shown = "/".join(path.parts[max(place, 0) + 1 :])
        code = " ".join(linecache.getline(str(path), number).split())
        return SourceLine(place=f"{shown[-(MOST_PLACE - 10) :]}:{number}", code=code[:MOST_CODE])
