"""What each machine of a run left: its documents, read as untrusted input."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.errors import BadDocument, CannotWrite, CiBenchError, MeasuringFailed

if TYPE_CHECKING:
    from ci_bench.records.results import Results

RESULTS, BASE_RESULTS, CALIBRATION = "results.json", "base/results.json", "calibration.json"
DOCUMENTS = (RESULTS, BASE_RESULTS, CALIBRATION)
"""The files of a machine that are read, the head's results first."""
MAX_BYTES = 25_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredMachine:
    """What one machine left: its name, and the folder with its documents. `fault` says why there are none.

    `declared` is the name that it was declared by, where there are several.
    """

    name: str
    folder: Path
    fault: CiBenchError | None = None
    declared: str | None = None

    def attempt(self) -> int | None:
        """The attempt of the run that its results say they are of; `None` where there are none to be read."""
        try:
            workflow = read_results_of(self.folder / RESULTS).run.workflow
        except CiBenchError:
            return None
        return None if workflow is None else workflow.attempt

    def base_commit(self) -> str | None:
        """The commit that its own base side says it is of; `None` where there is none to be read."""
        try:
            return read_results_of(self.folder / BASE_RESULTS).source.commit
        except CiBenchError:
            return None


def unpack(members: Mapping[str, bytes], folder: Path) -> None:
    """Write the documents of an artifact as they came, under their own few names. Raises `CannotWrite`."""
    for name, content in members.items():
        assert name in DOCUMENTS  # noqa: S101 - nothing else is asked for
        write_bytes(folder / name, content)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file as it came, with its folder. Raises `CannotWrite`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written: {error.strerror or error}; choose another output folder") from error


def read_results_of(path: Path) -> "Results":
    """The results of one side, as untrusted input. Raises `MeasuringFailed` where there are none, and `BadDocument`."""
    from ci_bench.records import documents

    if not path.exists():
        raise MeasuringFailed(f"{path.name} is missing: the run ended before it had measured anything; look at its log")
    return documents.read_results(path, max_bytes=MAX_BYTES)


def complaint_about(members: Mapping[str, bytes], scratch: Path, commit: str | None) -> str | None:
    """What is wrong with the results in an artifact of a `commit` that could be a baseline, in one line; `None` if nothing is."""
    if RESULTS not in members:
        return f"it has no {RESULTS}"
    unpack({RESULTS: members[RESULTS]}, scratch)
    try:
        found = read_results_of(scratch / RESULTS).source.commit
    except BadDocument as error:
        return " ".join(str(error).split())[:200]
    finally:
        (scratch / RESULTS).unlink(missing_ok=True)
    return (
        None if found == commit else f"its results are of the commit {found or 'that nobody recorded'}, and its run of {commit}"
    )
