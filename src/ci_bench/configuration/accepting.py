"""Reads and writes ``ci-bench-accepted.yml``, the file with the intended changes of pull requests.

Owns the way from its text to entries and back. The text may be a stranger's: it is bounded and
checked against ``schemas/accepted.json``. An entry gives no right: which entries count is decided
by `commands.trusted.granting`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from ci_bench.configuration.config import MAX_BYTES, parse
from ci_bench.errors import BadAcceptance
from ci_bench.records.acceptance import Accepted, AcceptedChange, Direction
from ci_bench.records.documents import ACCEPTED_FILE, Kind, validate
from ci_bench.records.faults import Fault, capped

HEADER = """\
# Intended changes, one entry for each, written by `ci-bench accept`. An entry counts only for its
# pull request: once it is on the base branch, or after someone with write access has set the label
# `ci-bench: accept`.
schema_version: 1
"""
_FIELDS = ("case", "metric", "direction", "bound", "reason", "author", "pull_request", "expires")


def load_accepted(path: Path) -> tuple[AcceptedChange, ...]:
    """Return the entries of a file here. Raises `BadAcceptance`."""
    return read_accepted(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """Return the content of a file here. Raises `BadAcceptance`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadAcceptance(
            f"{path}: cannot be read: {error.strerror or error}; check the path"
        ) from error


def read_accepted(content: bytes, name: str = ACCEPTED_FILE) -> tuple[AcceptedChange, ...]:
    """Return the entries of a file. Raises `BadAcceptance` with every fault, one on each line."""
    if len(content) > MAX_BYTES:
        raise BadAcceptance(f"{name}: larger than {MAX_BYTES:,} bytes, the most that is read")
    try:
        parsed = parse(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadAcceptance(f"{name}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    faults = parsed.faults or validate(parsed.value, Kind.ACCEPTED)
    if not faults:
        entries = tuple(_entries(parsed.value))
        faults = tuple(_faults(entries))
    if faults:
        raise BadAcceptance(capped((f"{name}: {fault}" for fault in faults), indent=""))
    return entries


def with_entry(content: bytes, change: AcceptedChange) -> str:
    """Return the text of a file with one more entry, everything else as it was.

    No content is a new file.

    Raises `BadAcceptance` if the file, or the entry, is not sound, or if the entry is there
    already.
    """
    earlier = read_accepted(content) if content.strip() else ()
    if any(_key(entry) == _key(change) for entry in earlier):
        raise BadAcceptance(
            f"{ACCEPTED_FILE}: has an entry for the {change.subject} in pull request"
            f" {change.pull_request}; edit it"
        )
    section = re.compile(rf"(?m)^{change.kind.value}:[ \t]*\n(?P<indent>[ \t]*)(?=-[ \t])")
    body = content.decode("utf-8-sig") if content.strip() else HEADER
    match = section.search(body)
    if match is not None:
        longer = (
            body[: match.start("indent")]
            + _written(change, match["indent"])
            + body[match.start("indent") :]
        )
    else:
        longer = f"{body.rstrip()}\n\n{change.kind.value}:\n{_written(change, '  ')}"
    if {*map(_key, read_accepted(longer.encode()))} != {*map(_key, earlier), _key(change)}:
        raise BadAcceptance(
            f"{ACCEPTED_FILE}: the entry cannot be added to its {change.kind.value}; write it by"
            " hand"
        )
    return longer


def _entries(value: Mapping[str, Any]) -> Iterator[AcceptedChange]:
    for kind in Accepted:
        for fields in value.get(kind.value, ()):
            arguments: dict[str, Any] = {name: fields[name] for name in _FIELDS if name in fields}
            if "direction" in arguments:
                arguments["direction"] = Direction(arguments["direction"])
            yield AcceptedChange(kind=kind, **arguments)


def _faults(entries: tuple[AcceptedChange, ...]) -> Iterator[Fault]:
    """Yield what no schema can say: days that no calendar has, and entries that come twice."""
    keys: set[tuple[object, ...]] = set()
    for entry in entries:
        try:
            date.fromisoformat(entry.expires)
        except ValueError:
            yield Fault(f"$.{entry.kind.value}", f"expires: {entry.expires!r} is not a day")
        if _key(entry) in keys:
            yield Fault(
                f"$.{entry.kind.value}",
                f"the {entry.subject} in pull request {entry.pull_request} comes twice",
            )
        keys.add(_key(entry))


def _key(entry: AcceptedChange) -> tuple[object, ...]:
    return entry.kind, entry.case, entry.metric, entry.direction, entry.pull_request


def _written(change: AcceptedChange, indent: str) -> str:
    """Write an entry. JSON's strings are YAML's, whatever they hold."""
    fields = {name: getattr(change, name) for name in _FIELDS}
    lines = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in fields.items()
        if value is not None
    ]
    return f"{indent}- " + f"\n{indent}  ".join(lines) + "\n"
