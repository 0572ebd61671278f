"""Feeds every reader: takes bytes, returns whether they were accepted.

Each returns `False` for its reader's own refusal, and for no other error.

The result of a reader is checked if that is cheap: names that came out of an archive, a history
that its own reader would refuse, a message too long to be shown.
"""

import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from ci_bench import __version__
from ci_bench.commands import judging
from ci_bench.commands.sides import policy_of_files
from ci_bench.commands.trusted.machine_results import DOCUMENTS
from ci_bench.configuration.config import load_config, named_plugins
from ci_bench.errors import BadConfig
from ci_bench.formats import training_events, training_log
from ci_bench.formats.catalogue import WRITERS, decode, read
from ci_bench.formats.exporting import from_reading
from ci_bench.formats.github_action_benchmark import read_action_history
from ci_bench.formats.importing import import_results
from ci_bench.formats.measurements import KIND
from ci_bench.formats.recognising import with_full_names
from ci_bench.formats.series import Reading, Unreadable
from ci_bench.github.archive import Contents, UnsafeArchive, read_members
from ci_bench.history.alarms import alarms_of, told
from ci_bench.history.compaction import compact
from ci_bench.history.lines import lines_of
from ci_bench.history.store import FolderStore
from ci_bench.judge.times.calibration import fingerprint
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Policy
from ci_bench.records.faults import schema_faults
from ci_bench.records.results import Results, Run, RunState
from ci_bench.report.markdown import render_report
from ci_bench.starting.proposal import CONFIG, propose
from ci_bench.starting.survey import survey
from ci_bench.suites.functions.plan import Functions

WORKFLOW = Path(__file__).parents[1] / "examples" / "workflows" / "pull-request.yml"
MOST_MESSAGE = 20_000
"""Characters of a refusal."""
_AT = "2030-01-31T12:00:00+00:00"
_RUN = Run(
    id="fuzzed/1",
    started_at=_AT,
    finished_at=_AT,
    state=RunState.COMPLETE,
    config_digest="fuzzed",
    device="unknown",
)
ONE_IN = 100
"""Files of other tools that are judged and converted: it takes a hundred times as long as to read
one.
"""
_FOREIGN_SUITE = {"foreign": {"type": "object"}}
_ROW = {
    "$ref": "#/$defs/case_result",
    "type": "object",
    "required": [],
    "properties": {},
    "additionalProperties": True,
}
"""Instead of the whole document: one row of it."""


class Harmful(Exception):  # noqa: N818 - it names what was found
    """Something came out of a reader or a renderer that no stranger's document may bring there."""


def room() -> Path:
    """Return a name of this process's own for files to read, in memory if there is such a place."""
    folder = Path("/dev/shm")  # noqa: S108 - the name holds the process, and the file is its own
    return (
        folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())
    ) / f"ci-bench-fuzz-{os.getpid()}"


def through_a_file(
    content: bytes, suffix: str, reader: Callable[[Path], object], refusal: type[Exception]
) -> bool:
    """Give a reader of files its input."""
    path = room().with_suffix(suffix)
    path.write_bytes(content)
    try:
        reader(path)
    except refusal as error:
        return refused(error)
    finally:
        path.unlink()
    return True


def refused(error: Exception) -> bool:
    """Return `False` for a refusal; raise `Harmful` if it is too long to be shown."""
    if len(str(error)) > MOST_MESSAGE:
        raise Harmful(f"a refusal of {len(str(error)):,} characters") from error
    return False


def config(path: Path) -> None:
    """Read the configuration as its command does, with the tree's suites looked for first."""
    named_plugins(path)
    load_config(path)


def config_of_plugins(path: Path) -> None:
    """Read a configuration with a suite of a plugin."""
    load_config(path, more_suites=_FOREIGN_SUITE)


def benchmarks(content: bytes) -> bool:
    """Read a file of functions that are benchmarks; results have to be able to hold its cases."""
    return through_a_file(content, ".py", _cases, BadConfig)


def _cases(path: Path) -> None:
    for case in Functions(folder=path.parent).plan({"path": path.name}):
        row = json.loads(
            documents.one_line({"case": msgspec.to_builtins(case), "status": "ok", "reproduce": ""})
        )
        faults = schema_faults(row, {**documents.schema(documents.Kind.RESULTS), **_ROW})
        if fault := next(iter(faults), None):
            raise Harmful(f"a case that no document can hold: {fault}")


def repository(content: bytes) -> bool:
    """Survey a repository whose files all hold the content.

    The configuration proposed for it has to be valid.
    """
    root = room().with_suffix(".repository")
    try:
        for name in (
            "pyproject.toml",
            "setup.py",
            "model.py",
            "train.py",
            "benchmarks/bench_model.py",
            "src/package/__init__.py",
        ):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        project = survey(root)
        (root / CONFIG).write_text(
            propose(project, WORKFLOW.read_text(), "benchmarks/bench_example.py").files[CONFIG]
        )
        load_config(root / CONFIG)
    finally:
        shutil.rmtree(root)
    return project.measures or project.package is not None


def foreign(content: bytes, name: str) -> bool:
    """Read a file of another tool as one of two launches.

    Now and then it is judged against itself and converted.
    """
    try:
        reading = read(decode(content), name)
    except Unreadable as error:
        return refused(error)
    try:
        (renamed,) = with_full_names([reading])
        results = import_results(
            {"one": renamed, "two": reading}, run=_RUN, tool_version=__version__
        ).results
    except Unreadable as error:
        refused(error)
        return True
    if zlib.crc32(content) % ONE_IN == 0:
        _judged(results)
        _converted(reading)
    return True


def _judged(results: Results) -> None:
    """Judge a side against itself.

    Both documents have to be valid for their own readers, and a page is made of them.
    """
    policy = policy_of_files(Policy(), results.environment.identity)
    base = judging.Baseline(mode=BaselineMode.FILE, results=results)
    comparison = judging.judge(results, base, policy=policy, folder=None)
    for document, kind in (
        (results, documents.Kind.RESULTS),
        (comparison, documents.Kind.COMPARISON),
    ):
        if faults := documents.validate(documents.to_json(document), kind):
            raise Harmful(f"nobody could read {kind} again: {faults[:5]}")
    render_report(comparison)


def _converted(reading: Reading) -> None:
    """Convert a reading to every format; read those again that hold all of it."""
    export = from_reading(reading)
    for name, write in WRITERS.items():
        text = write(export).text
        text.encode()  # it has to be one that a file can hold
        if name == KIND and export.series:
            read(text, name)


def archive(content: bytes) -> bool:
    """Read an artifact."""
    try:
        members = read_members(content, Contents(members=DOCUMENTS))
    except UnsafeArchive as error:
        return refused(error)
    if not members.keys() <= {*DOCUMENTS}:
        raise Harmful(f"names of a stranger came out of the archive: {sorted(members)}")
    return True


def action_history(content: bytes) -> bool:
    """Read the store of github-action-benchmark.

    It has to become a history that its own reader accepts.
    """
    try:
        history, _ = read_action_history(
            decode(content), tool_version=__version__, fingerprint=fingerprint
        )
    except Unreadable as error:
        return refused(error)
    if faults := documents.validate(documents.to_json(history), documents.Kind.HISTORY):
        raise Harmful(f"it was read as a history that nobody could read again: {faults[:5]}")
    return True


def store(content: bytes) -> bool:
    """Read a file in the store of a history: join, look through, compact.

    The store can be read with any content.
    """
    root = room().with_suffix(".store")
    try:
        opened = FolderStore(_laid(content, root))
        snapshot = opened.read()
        if len(snapshot.files) + len(snapshot.passed) != 1:
            raise Harmful(f"the one file was read as {snapshot!r:.1000}")
        if not snapshot.files:
            return False
        lines = lines_of(snapshot.history, least=lambda _: 0.01)
        told(alarms_of(lines, Policy()), lines=len(lines), runs=len(snapshot.history.runs))
        if snapshot.history.runs:
            compact(opened)
            after = opened.read()
            if after.passed or len(after.history.runs) != len(snapshot.history.runs):
                raise Harmful(f"compacting lost runs or left what cannot be read: {after.passed}")
    finally:
        shutil.rmtree(root)
    return True


def _laid(content: bytes, root: Path) -> Path:
    """Write the file under the name that its content asks for, in its machine's folder."""
    try:
        machine = msgspec.json.decode(content)["machines"][0]["fingerprint"].partition(":")[2][:32]
    except (
        msgspec.MsgspecError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        machine = ""
    folder = root / (
        machine if len(machine) == 32 and machine.isalnum() and machine.isascii() else "0" * 32  # noqa: PLR2004 - of hex
    )
    folder.mkdir(parents=True, exist_ok=True)
    (
        folder / f"run-20300101T000000-{hashlib.sha256(content).hexdigest()[:16]}.json.gz"
    ).write_bytes(content)
    return root


def training(content: bytes) -> bool:
    """Read a training's log of steps; its ranks have to have the same steps."""
    try:
        ranks = training_log.read(decode(content), {}).ranks
    except Unreadable as error:
        return refused(error)
    if len({len(steps) for steps in ranks}) != 1:
        raise Harmful(f"ranks have {[len(steps) for steps in ranks][:10]} steps")
    return True


def training_events_file(content: bytes) -> bool:
    """Read a file of TensorBoard or W&B: as it is, and with right checksums.

    Nothing behind wrong checksums would ever be reached.
    """
    form = training_events.form_of(content) or training_events.TENSORBOARD
    accepted = [_events(variant, form) for variant in (content, _sealed(content, form))]
    return all(accepted)


def _events(content: bytes, form: str) -> bool:
    """Read a file next to itself in another folder, and by itself.

    The ranks have to have the same steps.
    """
    files = [
        training_events.File(folder=folder, name="file", content=content)
        for folder in ("runs", "more")
    ]
    accepted = False
    for several in (files, files[:1]):
        try:
            ranks = training_events.read(several, {}, form)
        except Unreadable as error:
            accepted = refused(error)
            continue
        accepted = True
        if len({len(steps) for steps in ranks}) != 1:
            raise Harmful(f"ranks have {[len(steps) for steps in ranks][:10]} steps")
    return accepted


def _sealed(content: bytes, form: str) -> bytes:
    """Return the records that their lengths make of it, each with the right checksums."""
    sealed, place = bytearray(content), 0 if form == training_events.TENSORBOARD else 7
    while place + 12 <= len(sealed):
        if form == training_events.TENSORBOARD:
            end = place + 12 + int.from_bytes(sealed[place : place + 8], "little")
            sealed[place + 8 : place + 12] = training_events.checksum(
                bytes(sealed[place : place + 8])
            ).to_bytes(4, "little")
            if end + 4 > len(sealed):
                break
            sealed[end : end + 4] = training_events.checksum(
                bytes(sealed[place + 12 : end])
            ).to_bytes(4, "little")
            place = end + 4
        else:
            end = place + 7 + int.from_bytes(sealed[place + 4 : place + 6], "little")
            sealed[place : place + 4] = zlib.crc32(sealed[place + 6 : end]).to_bytes(4, "little")
            place = end
    return bytes(sealed)
