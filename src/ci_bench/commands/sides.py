"""A side of a comparison from files.

It is a results document or another tool's output, with the facts that the file lacks.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench import __version__
from ci_bench.commands.inputs import results_path
from ci_bench.commands.output import tell
from ci_bench.errors import BadInput
from ci_bench.formats.tool_files import read_content
from ci_bench.judge.wording import count_of
from ci_bench.records import documents
from ci_bench.records.config import DEFAULT_DRIFT, Policy
from ci_bench.records.forms import Fact
from ci_bench.records.results import Results, Run, RunState

if TYPE_CHECKING:  # a comparison of our own documents loads no format
    from ci_bench.formats.series import Reading

MOST_DRIFT = max(DEFAULT_DRIFT.values())
"""Drift for files without a device: that of the device whose times move most."""
ENOUGH_LAUNCHES = 5
MOST_FILES = 1000
SHOWN = 5
_BEGIN_BYTES, MOST_OF_LOG = 200, 1_000_000
_STDIN = Path("/dev/stdin")
"""Stands for ``-``."""
_RESULTS = re.compile(rb'\s*\{\s*"kind"\s*:\s*"results"')
"""Beginning of a results document: its readers find `kind` first."""
_OURS = re.compile(rb'\s*\{\s*"kind"\s*:\s*"(results|comparison|calibration|history|decision)"')


@dataclass(frozen=True, kw_only=True, slots=True)
class SideRead:
    """One side.

    `launches` is the smallest number of launches of a benchmark; `None` for a results document,
    which contains the number itself. `notes` describe the content, and the parts that are not
    compared.
    """

    name: str
    results: Results
    launches: int | None = None
    notes: tuple[str, ...] = ()


def is_results(content: bytes) -> bool:
    """Return whether a file is a results document."""
    return _RESULTS.match(content) is not None


def read_side(name: str, paths: Sequence[Path], source: str) -> SideRead:
    """Read a side: a results document, a run's folder, or other tools' files, one for each launch.

    Raises:
        BadInput: a file cannot be read, or the files do not belong together.
    """
    (side,) = read_sides({name: paths}, source)
    return side


def read_sides(sides: Mapping[str, Sequence[Path]], source: str) -> list[SideRead]:
    """Read the sides of a comparison, by name, each as `read_side` does.

    A benchmark that one file calls by a shorter name has its full name on both sides.
    """
    opened = {name: _opened(name, paths, source) for name, paths in sides.items()}
    foreign = {name: side for name, side in opened.items() if not isinstance(side, SideRead)}
    readings = _with_full_names(foreign)
    _require_same_units(readings)
    return [
        side if isinstance(side, SideRead) else _imported(name, side, readings[name])
        for name, side in opened.items()
    ]


def _opened(
    name: str, paths: Sequence[Path], source: str
) -> "SideRead | Mapping[Path, tuple[bytes, Reading]]":
    """Read a side of a results document, or return its files with content and reading."""
    files = _files(paths)
    alone = (
        files[0] if len(files) == 1 and files[0].is_file() else None
    )  # a pipe can be read only once
    if (
        alone and source in {"auto", "results"} and _OURS.match(_begin(alone))
    ):  # the formats are not even loaded
        return SideRead(name=name, results=documents.read_results(alone))
    contents = {file: read_content(file) for file in files}
    ours = [
        file
        for file, content in contents.items()
        if source in {"auto", "results"} and _OURS.match(content)
    ]
    if len(files) == 1 and (ours or source == "results"):
        return SideRead(name=name, results=documents.parse_results(contents[files[0]], files[0]))
    if ours:
        raise BadInput(
            f"{name}: {ours[0]} is a ci-bench document, which holds all launches of a run: pass"
            " only this one"
        )
    return {path: (content, _reading(path, content, source)) for path, content in contents.items()}


def _with_full_names(
    sides: "Mapping[str, Mapping[Path, tuple[bytes, Reading]]]",
) -> "Mapping[str, Mapping[str, Reading]]":
    if not sides:
        return {}
    from ci_bench.formats.recognising import with_full_names

    renamed = iter(
        with_full_names([reading for files in sides.values() for _, reading in files.values()])
    )
    return {name: {str(path): next(renamed) for path in files} for name, files in sides.items()}


def _require_same_units(sides: "Mapping[str, Mapping[str, Reading]]") -> None:
    if not sides:
        return
    from ci_bench.formats.importing import require_same_units
    from ci_bench.formats.series import Unreadable

    try:
        require_same_units([file for files in sides.values() for file in files.items()])
    except Unreadable as error:
        raise BadInput(str(error)) from error


def _begin(path: Path) -> bytes:
    """Return the start of a file, enough to recognise ours; nothing if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(_BEGIN_BYTES)
    except OSError:
        return b""


def _files(paths: Sequence[Path]) -> list[Path]:
    """Return the named files; a folder is a run's document, or all of its files."""
    files: list[Path] = []
    for path in (_STDIN if str(path) == "-" else path for path in paths):
        document = results_path(path)
        if not path.is_dir() or document.is_file():
            files.append(document if path.is_dir() else path)
            continue
        entries = sorted(
            file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")
        )
        if not entries:
            folders = sorted(folder.name for folder in path.iterdir() if folder.is_dir())
            instead = f"; name one of its folders: {_join_names(folders)}" if folders else ""
            raise BadInput(f"{path}: this folder has no results.json and no other file{instead}")
        files += entries
    if len(files) > MOST_FILES:
        raise BadInput(f"{len(files):,} files, but one side takes at most {MOST_FILES:,}")
    return files


def _imported(
    name: str, files: "Mapping[Path, tuple[bytes, Reading]]", readings: "Mapping[str, Reading]"
) -> SideRead:
    from ci_bench.formats.importing import import_results
    from ci_bench.formats.series import Unreadable

    run = _run({path: content for path, (content, _) in files.items()})
    try:
        imported = import_results(readings, run=run, tool_version=__version__)
    except Unreadable as error:
        raise BadInput(f"{', '.join(list(readings)[:SHOWN])}: {error}") from error
    cases, first = imported.results.cases, next(iter(readings.values()))
    single = all(
        len(launch.values) == 1
        for case in cases
        for metric in case.metrics
        for launch in metric.launches
    )
    notes = [
        f"{name}: {count_of(len(cases), 'benchmark')} of {first.tool or first.form},"
        f" {count_of(imported.launches, 'launch')}" + (" of one number each" if single else "")
    ]
    if imported.gaps:
        notes.append(f"{name}: not in every file: {_join_names(imported.gaps)}")
    notes += [
        f"{name}: {note}"
        for note in dict.fromkeys(note for reading in readings.values() for note in reading.notes)
    ]
    if imported.incomparable:
        notes.append(f"{name}: not compared: {_join_names(imported.incomparable)}")
    if imported.undirected:
        notes.append(
            f"{name}: not compared, because it is unknown whether more is better:"
            f" {_join_names(imported.undirected)}"
        )
    if imported.counters:
        notes.append(
            f"{name}: counters are not compared, because their file gives no direction:"
            f" {_join_names(imported.counters)}"
        )
    return SideRead(
        name=name, results=imported.results, launches=imported.launches, notes=tuple(notes)
    )


def _reading(path: Path, content: bytes, source: str) -> "Reading":
    from ci_bench.formats.catalogue import decode, read
    from ci_bench.formats.series import Unreadable

    try:
        return read(decode(content), source)
    except Unreadable as error:
        if source == "auto" and _is_training_log(content):
            raise BadInput(
                f"{path}: a training log; compare it with the option `losses` of the suite"
                f" `command`, and `ci-bench show {path}` prints what that reads"
            ) from error
        raise BadInput(f"{path}: {error}") from error


def _is_training_log(content: bytes) -> bool:
    from ci_bench.formats import training_log
    from ci_bench.formats.catalogue import decode
    from ci_bench.formats.series import Unreadable

    begin = content if len(content) <= MOST_OF_LOG else content[:MOST_OF_LOG].rpartition(b"\n")[0]
    try:
        training_log.read(decode(begin), {})
    except Unreadable:
        return False
    return True


def _run(contents: dict[Path, bytes]) -> Run:
    """Describe the run: its files, and the time when the first of them was written."""
    digest = hashlib.sha256(
        b"\0".join(hashlib.sha256(content).digest() for content in contents.values())
    ).hexdigest()[:12]
    written = [
        datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).isoformat(timespec="seconds")
        for path in contents
    ]
    return Run(
        id=f"imported/{digest}",
        started_at=min(written),
        finished_at=max(written),
        state=RunState.COMPLETE,
        config_digest="imported",
        device="unknown",
    )


def policy_of_files(policy: Policy, identity: Mapping[str, Fact]) -> Policy:
    """Return the policy for files of other tools.

    Few name their device, so the drift is that of any device.
    """
    drift = (
        MOST_DRIFT
        if policy.drift is None and identity.get("device") not in DEFAULT_DRIFT
        else policy.drift
    )
    return replace(policy, drift=drift)


def tell_limits(base: SideRead, head: SideRead) -> None:
    """Report both sides' contents, benchmarks of only one side, and facts that the files lack."""
    for line in (*base.notes, *head.notes):
        tell(line)
    ids = {
        side.name: {row.case.id: row.case.title or row.case.id for row in side.results.cases}
        for side in (base, head)
    }
    for first, other in ((base.name, head.name), (head.name, base.name)):
        if alone := [title for name, title in ids[first].items() if name not in ids[other]]:
            tell(f"only in {first}: {_join_names(alone)}")
    few = [
        side
        for side in (base, head)
        if side.launches is not None and side.launches < ENOUGH_LAUNCHES
    ]
    single = [side.name for side in few if side.launches == 1]
    if single:
        verb = "has" if len(single) == 1 else "have"
        tell(
            f"{' and '.join(single)} {verb} one launch: the noise between runs of unchanged code is"
            " unknown. Only a very large change is suspected, and none is excluded"
        )
    if few:
        tell(
            f"measure each side {ENOUGH_LAUNCHES} times, in turns, and name all files: "
            "ci-bench compare --base base1.json base2.json … --head head1.json head2.json …"
        )
    if all(len(side.results.environment.identity) == 1 for side in (base, head)):
        tell(
            "no file names the machine that it was measured on: both sides are assumed to be"
            " from one"
        )


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(name[:200] for name in names[:SHOWN]) + more
