"""Read the results of an earlier run: a document, a folder, or a downloaded artifact."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from ci_bench.commands.inputs import results_path
from ci_bench.commands.judging import Baseline
from ci_bench.errors import BadDocument
from ci_bench.github.archive import Contents, UnsafeArchive, read_members
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.results import Results

OUTCOME = "baseline.json"
"""File next to a fetched baseline, or instead of it: its origin, or why it is missing."""


def read_baseline(path: Path | None, *, is_artifact: bool = False, alone: bool = False) -> Baseline:
    """Read the results of an earlier run.

    `path` is a document, a run's folder, or an artifact as it was downloaded (``.zip``). With
    `is_artifact`, an earlier `fetch-baseline` has written that folder; with `alone`, no baseline
    was requested. Missing results are an absence with its reason; broken ones raise `BadDocument`
    before measuring.
    """
    mode = BaselineMode.ARTIFACT if is_artifact else BaselineMode.FILE
    if alone:
        return Baseline(mode=BaselineMode.NONE, absence="none was requested")
    if path is None:
        return Baseline(mode=mode, absence="none was named (--baseline PATH, paired or none)")
    file = results_path(path)
    if not file.exists():
        reason = absence(path) if path.suffix not in {".json", ".zip"} else None
        return Baseline(mode=mode, absence=reason or f"there is nothing at {file} yet")
    if file.suffix == ".zip":
        return Baseline(mode=BaselineMode.ARTIFACT, results=_from_archive(file))
    return Baseline(mode=mode, results=documents.read_results(file))


def absence(folder: Path) -> str | None:
    """Explain why `fetch_baseline` left no results; `None` if it left some or never ran."""
    try:
        document = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    message = (
        document.get("message")
        if isinstance(document, dict) and document.get("outcome") == "none"
        else None
    )
    return message if isinstance(message, str) else None


def _from_archive(path: Path) -> Results:
    """Read the results in an artifact, with the checks for archives of strangers."""
    name = "results.json"
    try:
        members = read_members(path.read_bytes(), Contents(members=(name,)))
    except (UnsafeArchive, OSError) as error:
        raise BadDocument(f"{path}: the artifact cannot be read: {error}") from error
    if name not in members:
        raise BadDocument(
            f"{path}: the artifact has no {name}, which `ci-bench run` and `gate` write"
        )
    with TemporaryDirectory(prefix="ci-bench-") as folder:
        (Path(folder) / name).write_bytes(members[name])
        return documents.read_results(Path(folder) / name)
