"""Documents of each machine of a run, read as untrusted input."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ci_bench.errors import BadDocument, CannotWrite, CiBenchError, MeasuringFailed
from ci_bench.records import documents
from ci_bench.records.results import Results

RESULTS, BASE_RESULTS, CALIBRATION = "results.json", "base/results.json", "calibration.json"
DOCUMENTS = (RESULTS, BASE_RESULTS, CALIBRATION)
"""The files of a machine that are read, the head's results first."""
MAX_BYTES = 25_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredMachine:
    """Documents of one machine: its name, and their folder.

    `fault` is the reason if they are missing. `declared` is its declared name, if there are several
    machines.
    """

    name: str
    folder: Path
    fault: CiBenchError | None = None
    declared: str | None = None

    def attempt(self) -> int | None:
        """Return the attempt of the run that its results name; `None` if they cannot be read."""
        try:
            workflow = read_results_of(self.folder / RESULTS).run.workflow
        except CiBenchError:
            return None
        return None if workflow is None else workflow.attempt

    def base_commit(self) -> str | None:
        """Return the commit that its base side names; `None` if it cannot be read."""
        try:
            return read_results_of(self.folder / BASE_RESULTS).source.commit
        except CiBenchError:
            return None


def unpack(members: Mapping[str, bytes], folder: Path) -> None:
    """Write the documents of an artifact as they came, under their own few names.

    Raises `CannotWrite`.
    """
    for name, content in members.items():
        assert name in DOCUMENTS  # noqa: S101 - nothing else is asked for
        write_bytes(folder / name, content)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file as it came, with its folder. Raises `CannotWrite`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CannotWrite(
            f"{path}: cannot be written: {error.strerror or error}; choose another output folder"
        ) from error


def read_results_of(path: Path) -> Results:
    """Read the results of one side, as untrusted input.

    Raises `MeasuringFailed` if they are missing, and `BadDocument`.
    """
    if not path.exists():
        raise MeasuringFailed(
            f"{path.name} is missing: the run ended before it had measured anything; look at"
            " its log"
        )
    return documents.read_results(path, max_bytes=MAX_BYTES)


def complaint_about(members: Mapping[str, bytes], scratch: Path, commit: str | None) -> str | None:
    """Return the fault of an artifact's results as a baseline, in one line, or `None`.

    They have to be of `commit`.
    """
    if RESULTS not in members:
        return f"it has no {RESULTS}"
    unpack({RESULTS: members[RESULTS]}, scratch)
    try:
        recorded = read_results_of(scratch / RESULTS).source.commit
    except BadDocument as error:
        return " ".join(str(error).split())[:200]
    finally:
        (scratch / RESULTS).unlink(missing_ok=True)
    return (
        None
        if recorded == commit
        else (
            f"its results are of the commit {recorded or 'that nobody recorded'}, and its run of"
            f" {commit}"
        )
    )
