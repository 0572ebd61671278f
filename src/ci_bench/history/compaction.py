"""Compaction of a store: one pack for the records of each machine, and thinned old runs.

A pack takes `BYTES_PER_VALUE` bytes for each value or less, plus `BYTES_PER_RUN` for each run.
Nothing is dropped as long as the store is within the requested size; beyond it, every second of the
older runs goes, as often as needed, and in the end of the newest, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ci_bench import __version__
from ci_bench.errors import CannotWrite
from ci_bench.history.points import chosen, joined
from ci_bench.history.store import Files, Found, Moved, Store, file_of
from ci_bench.records.history import History

MOST_BYTES = 32_000_000
"""Size of a whole store after compaction, by default."""
BYTES_PER_VALUE, BYTES_PER_RUN = 8, 200
PACK_RUNS, MOST_RUNS = 2_000, 5_000
"""Runs of one pack, and of any document."""
LOOSE = 64
"""Single files beyond which adding a run compacts: reading many small files is slow."""
KEPT_WHOLE = 200
"""Newest runs of a machine that thinning keeps, as long as that suffices."""
_TRIES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Compaction:
    """Result of compacting."""

    bytes_before: int
    """Size of all files before."""
    bytes_after: int
    """Size of all packs after it."""
    files_before: int
    """Number of files before."""
    files_after: int
    """Number of packs after it."""
    dropped: int
    """Number of runs that were thinned out."""


def compact(store: Store, *, most_bytes: int = MOST_BYTES) -> Compaction:
    """Make one pack per machine, and thin out until the store fits `most_bytes`.

    Broken files are left where they are.

    Raises:
        CannotWrite: others kept changing the store.
    """
    for _ in range(_TRIES):
        content = store.read()
        packs, dropped = _packed(content, most_bytes)
        try:
            store.replace(
                packs,
                [file.name for file in content.files if file.name not in packs],
                content.state,
            )
        except Moved:
            continue
        return Compaction(
            bytes_before=content.size,
            bytes_after=sum(map(len, packs.values())),
            files_before=len(content.files),
            files_after=len(packs),
            dropped=dropped,
        )
    raise CannotWrite(
        f"others changed the store in each of {_TRIES} tries to compact it; nothing is lost, try"
        " again later"
    )


def _packed(content: Found, most_bytes: int) -> tuple[Files, int]:
    """Return the packs of all runs, or of those that fit, and the number of dropped runs."""
    parts: dict[str, list[History]] = {}
    for file in content.files:
        parts.setdefault(file.name.partition("/")[0], []).append(file.history)
    complete = [joined(parts[name], tool_version=__version__) for name in sorted(parts)]
    histories, newest = complete, KEPT_WHOLE
    packs = _packs(histories)
    while sum(map(len, packs.values())) > most_bytes and newest:
        thinner = [_thinned(history, newest) for history in histories]
        if thinner == histories:
            newest //= 2
        histories = thinner
        packs = _packs(histories)
    return packs, sum(
        len(before.runs) - len(after.runs)
        for before, after in zip(complete, histories, strict=True)
    )


def _packs(histories: Sequence[History]) -> Files:
    packs: dict[str, bytes] = {}
    for history in histories:
        for start in range(0, len(history.runs), PACK_RUNS):
            part = chosen(history, range(start, min(start + PACK_RUNS, len(history.runs))))
            packs |= file_of(replace(part, tool_version=__version__), pack=True)
    return packs


def _thinned(history: History, newest: int) -> History:
    """Drop every second run before the newest ones; the oldest run stays."""
    old = max(0, len(history.runs) - newest)
    places = [*range(0, old, 2), *range(old, len(history.runs))]
    return chosen(history, places)
