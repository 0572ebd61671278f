"""Histories from elsewhere, into a store: a data.js of github-action-benchmark, an exported file, artifacts."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench import __version__
from ci_bench.commands.output import tell
from ci_bench.commands.trend.artifacts import EXPORT
from ci_bench.commands.trend.history import cleaned, read_store, runs_of
from ci_bench.errors import BadInput

if TYPE_CHECKING:
    from ci_bench.history.shelf import Shelf
    from ci_bench.records.history import History


def imported(path: Path) -> "History":
    """The history in a file. Raises `BadInput` and `BadDocument`."""
    from ci_bench.formats.action_history import read_action_history
    from ci_bench.formats.catalogue import MAX_BYTES, decode
    from ci_bench.formats.series import Unreadable
    from ci_bench.judge.calibration import fingerprint
    from ci_bench.records import documents

    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}; check the path") from error
    if content.startswith(b"\x1f\x8b") or re.match(rb'\s*\{\s*"kind"\s*:\s*"history"', content):
        return documents.read_history(path)
    try:
        whole, left_out = read_action_history(decode(content), tool_version=__version__, fingerprint=fingerprint)
    except Unreadable as error:
        raise BadInput(f"{path}: {error}; it takes a data.js of github-action-benchmark, or {EXPORT}") from error
    for reason in left_out[:20]:
        tell(f"left out: {cleaned(reason)}")
    if len(left_out) > 20:  # noqa: PLR2004 - as many as were shown
        tell(f"and {len(left_out) - 20} more")
    return whole


def keep(shelf: "Shelf", taken: "History") -> int:
    """Put a whole history into a store, without what is there already; how many runs were new."""
    from ci_bench.history.compaction import PACK_RUNS
    from ci_bench.history.points import chosen
    from ci_bench.history.shelf import file_of

    known = runs_of(read_store(shelf))
    files: dict[str, bytes] = {}
    kept = 0
    for machine, one in enumerate(taken.machines):
        places = [
            place for place, run in enumerate(taken.runs) if run.machine == machine and (one.fingerprint, run.id) not in known
        ]
        kept += len(places)
        for start in range(0, len(places), PACK_RUNS):
            part = chosen(taken, places[start : start + PACK_RUNS])
            files.update(file_of(replace(part, tool_version=__version__), pack=True))
    if files:
        shelf.append(files)
    return kept
