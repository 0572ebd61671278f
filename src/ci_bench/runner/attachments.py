"""Files that a case attaches to its figures, such as a timeline of allocations.

A workload writes them into `Context.attachments`; they are stored next to `results.json`. Code
under test wrote them, so only plain files with plain names are taken, up to the size that a run's
artifact may have (`github.archive.Limits`, which leaves room for the documents). Each file taken,
or the reason it was not, is a fact of the case.
"""

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ci_bench.records.forms import Fact
from ci_bench.records.results import Case
from ci_bench.suites.contract import ATTACHMENTS

FOLDER = "files"
MOST_BYTES = 4_000_000
MOST_BYTES_IN_ALL = 10_000_000
MOST_FILES = 24
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")
DIGEST = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachments:
    """The files of one side's cases, stored in `folder`, next to the side's results."""

    folder: Path

    def clear(self) -> None:
        """Forget the files of an earlier run."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def take(self, case: Case, scratch: Path) -> Mapping[str, Fact]:
        """Store the files that a stage of the case left in its scratch folder.

        A file of the same name is replaced. Returns the facts.
        """
        source = scratch / ATTACHMENTS
        if source.is_symlink() or not source.is_dir():
            return {}
        names = sorted(entry.name for entry in os.scandir(source))[:MOST_FILES]
        facts = {
            fact_name(name): self._keep(source / name, self.folder / folder_name(case) / name)
            for name in names
        }
        shutil.rmtree(source, ignore_errors=True)
        return facts

    def _keep(self, source: Path, place: Path) -> str:
        """Copy one file.

        Returns its path from the results' folder, or the reason why it was not stored.
        """
        if not NAME.fullmatch(source.name):
            return "not kept: a name has letters, digits, dots, dashes and underscores"
        try:
            content = _read(source)
            others = [
                path.stat().st_size
                for path in self.folder.rglob("*")
                if path.is_file() and path != place
            ]
            if len(others) >= MOST_FILES or sum(others) + len(content) > MOST_BYTES_IN_ALL:
                return (
                    f"not kept: a run keeps {MOST_FILES} files and {MOST_BYTES_IN_ALL:,} bytes at"
                    " most"
                )
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except (OSError, ValueError) as error:
            return f"not kept: {error}"[:500]
        return str(place.relative_to(self.folder.parent))


def folder_name(case: Case) -> str:
    """Return the folder of a case's files: its id as far as a path can have it, and a digest.

    Without the digest two ids could be alike.
    """
    digest = hashlib.sha256(case.id.encode()).hexdigest()[:DIGEST]
    return f"{PLAIN.sub('_', case.id).strip('_')[:80]}-{digest}"


def _read(path: Path) -> bytes:
    """Read a plain file. Raises `ValueError` if it is not plain or too large, and `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            content = stream.read(MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES:,} bytes")
    return content


def fact_name(name: str) -> str:
    """Return the name of a file's fact: `file.time_line.gz` for ``time-line.gz``."""
    return f"file.{re.sub('[^a-z0-9_.]', '_', name.lower())}"[:60]
