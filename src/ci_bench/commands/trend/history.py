"""The commands of a history: add, check, page, compact, import, fetch.

Histories also come from elsewhere: a data.js of github-action-benchmark, an exported file, and
artifacts that earlier runs of a branch left. An artifact never changes, so each run imports the
newest of them, adds its own record, and leaves a new one. Two simultaneous runs leave one each, and
the next run unites them. Only runs of this repository's own branch are trusted: a fork's run can
leave an artifact of any name.
"""

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ci_bench import __version__
from ci_bench.checkouts.checkout import open_checkout
from ci_bench.command_line.settings import TrendSettings
from ci_bench.commands.inputs import results_path
from ci_bench.commands.loading import load
from ci_bench.commands.output import say, tell
from ci_bench.commands.page_assets import page_assets
from ci_bench.commands.trend.commits import confirm
from ci_bench.commands.trend.intended import without_intended
from ci_bench.errors import BadDocument, BadInput, CannotWrite, ExitCode, GitHubMissing
from ci_bench.formats.catalogue import decode
from ci_bench.formats.github_action_benchmark import read_action_history
from ci_bench.formats.series import Unreadable
from ci_bench.formats.tool_files import MAX_BYTES
from ci_bench.github import workflow
from ci_bench.github.archive import ArchiveLimits, Contents, UnsafeArchive
from ci_bench.github.artifacts import Artifact, download, named
from ci_bench.github.client import Client
from ci_bench.github.comments import KEY
from ci_bench.github.context import load_context, server_of
from ci_bench.github.issues import PART, Alert, publish_alert
from ci_bench.github.outcomes import attempt, exit_code
from ci_bench.github.workflow import defused
from ci_bench.history.alarms import Alarm, alarms_of, issue_text, issue_title, told
from ci_bench.history.branch import BranchStore, repository_of
from ci_bench.history.compaction import LOOSE, MOST_RUNS, PACK_RUNS
from ci_bench.history.compaction import compact as shrink
from ci_bench.history.lines import HistoryLine, lines_of
from ci_bench.history.page import Sheet, render
from ci_bench.history.points import chosen, record_of
from ci_bench.history.store import FolderStore, Found, Store, file_of
from ci_bench.judge.times.calibration import fingerprint
from ci_bench.records import documents
from ci_bench.records.config import Policy, Severity
from ci_bench.records.history import History, Points
from ci_bench.records.units import TIMES
from ci_bench.report.text import clean

EXPORT = "history.json.gz"
PATIENCE_S = 120.0
"""Total time to wait for GitHub (s)."""
NEWEST = 10
"""Artifacts that are read."""
MOST_PAIRS = 3
"""Pairs of commits that `--confirm` measures."""
RECENT = 100
"""Runs after which a change is the new normal."""


def fetched(settings: TrendSettings) -> Iterator[History]:
    """Yield the histories in the newest artifacts; report and skip unreadable ones.

    Raises `GitHubFailed`.
    """
    context = load_context(settings.environ)
    branch = settings.from_branch or context.head.branch
    if branch is None:
        message = "cannot infer the branch from this event; pass --from-branch NAME"
        raise BadInput(message)
    contents = Contents(members=(EXPORT,), limits=ArchiveLimits(archive=50_000_000))
    with Client(server_of(settings.environ), patience_s=PATIENCE_S) as client:
        every, _ = named(client, settings.artifact)
        ours = [each for each in every if _is_ours(each, context.repository_id, branch)]
        for artifact in sorted(ours, key=lambda each: (each.created_at, each.id), reverse=True)[
            :NEWEST
        ]:
            try:
                yield _history(download(client, artifact, contents))
            except (UnsafeArchive, BadDocument, GitHubMissing) as error:
                tell(f"skipped artifact {artifact.id}: {' '.join(str(error).split())[:300]}")


def _is_ours(artifact: Artifact, repository: int | None, branch: str) -> bool:
    same_repository = (
        artifact.repository_id == artifact.head_repository_id == repository
        and repository is not None
    )
    return same_repository and artifact.head_branch == branch and not artifact.expired


def _history(members: Mapping[str, bytes]) -> History:
    if EXPORT not in members:
        raise BadDocument(f"it holds no {EXPORT}")
    with tempfile.TemporaryDirectory(prefix="ci-bench-history-") as folder:
        path = Path(folder) / EXPORT
        path.write_bytes(members[EXPORT])
        history = documents.read_history(path)
    for machine in history.machines:
        if machine.fingerprint != fingerprint(machine.identity):
            raise BadDocument("it names a machine by another fingerprint than its own")
    return history


def imported(path: Path) -> History:
    """Read the history in a file. Raises `BadInput` and `BadDocument`."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be read: {error.strerror or error}; check the path"
        ) from error
    if content.startswith(b"\x1f\x8b") or re.match(rb'\s*\{\s*"kind"\s*:\s*"history"', content):
        return documents.read_history(path)
    try:
        history, left_out = read_action_history(
            decode(content), tool_version=__version__, fingerprint=fingerprint
        )
    except Unreadable as error:
        raise BadInput(
            f"{path}: {error}; it takes a data.js of github-action-benchmark, or {EXPORT}"
        ) from error
    for reason in left_out[:20]:
        tell(f"left out: {cleaned(reason)}")
    if len(left_out) > 20:  # noqa: PLR2004 - as many as were shown
        tell(f"and {len(left_out) - 20} more")
    return history


def keep(store: Store, history: History) -> int:
    """Put a history into a store, without runs that are there already; return how many were new."""
    stored = runs_of(read_store(store))
    files: dict[str, bytes] = {}
    count = 0
    for number, machine in enumerate(history.machines):
        places = [
            place
            for place, run in enumerate(history.runs)
            if run.machine == number and (machine.fingerprint, run.id) not in stored
        ]
        count += len(places)
        for start in range(0, len(places), PACK_RUNS):
            part = chosen(history, places[start : start + PACK_RUNS])
            files.update(file_of(replace(part, tool_version=__version__), pack=True))
    if files:
        store.append(files)
    return count


def history(settings: TrendSettings) -> int:
    """Run the named action."""
    return ACTIONS[settings.action](settings)


def add(settings: TrendSettings) -> int:
    """Keep the numbers of runs; a stored run is not added twice."""
    store = open_store(settings)
    url = settings.url or _workflow_url(settings.environ)
    records = [
        record_of(documents.read_results(results_path(path)), url=url, report=settings.run_report)
        for path in settings.runs
    ]
    stored = runs_of(read_store(store))
    new: dict[str, bytes] = {}
    for path, record in zip(settings.runs, records, strict=True):
        name = (record.machines[0].fingerprint, record.runs[0].id)
        if not record.series:
            tell(f"{path}: nothing was measured, so there is nothing to keep")
        elif name in stored:
            tell(f"{path}: the run {record.runs[0].id} is there already")
        else:
            new |= file_of(record)
            tell(f"{path}: kept {len(record.series)} series of the run {record.runs[0].id}")
    if new:
        store.append(new)
        _tidy(store)
    return int(ExitCode.OK)


def _tidy(store: Store) -> None:
    """Compact if many single files have gathered: reading them is slow."""
    if sum(file.name.rpartition("/")[2].startswith("run-") for file in store.read().files) > LOOSE:
        done = shrink(store)
        tell(
            f"compacted {done.files_before} files to {done.files_after} ({done.bytes_after:,}"
            " bytes)"
        )


def check(settings: TrendSettings) -> int:
    """Report every open change for the worse, and exit by the policy: 1 if one of them fails it."""
    config = load(settings)
    stored = _read_runs(settings)
    history, lines = look(stored, config.policy, settings)
    alarms = alarms_of(lines, config.policy)
    if settings.issue:
        server_of(settings.environ)  # a missing token is reported before commits are measured
    if alarms:
        alarms = without_intended(settings, alarms)
    if settings.confirm:
        intended = tuple(alarm for alarm in alarms if alarm.confirmed)
        alarms = (
            *_confirmed(settings, [alarm for alarm in alarms if not alarm.confirmed]),
            *intended,
        )
    say(cleaned(told(alarms, lines=len(lines), runs=len(history.runs))))
    failing = any(alarm.severity is Severity.FAIL for alarm in alarms)
    code = ExitCode.POLICY_NOT_MET if failing else ExitCode.OK
    return _tell_github(settings, alarms, code) if settings.issue else int(code)


def _confirmed(settings: TrendSettings, alarms: Sequence[Alarm]) -> tuple[Alarm, ...]:
    """Return the alarms after a paired run of the neighbouring commits of each.

    An alarm that the run does not confirm becomes a note.
    """
    ranges = list(dict.fromkeys(alarm.commits for alarm in alarms))[:MOST_PAIRS]
    answers = {
        commits: confirm(settings, commits, [alarm for alarm in alarms if alarm.commits == commits])
        for commits in ranges
    }
    return tuple(
        answers[alarm.commits].get(alarm.line.name, alarm) if alarm.commits in answers else alarm
        for alarm in alarms
    )


def _tell_github(settings: TrendSettings, alarms: Sequence[Alarm], code: ExitCode) -> int:
    """Update the issue; the verdict's own exit code wins over faults of GitHub."""
    grave = [alarm for alarm in alarms if alarm.severity is not Severity.NOTE]
    alert = Alert(
        key=_key(settings.branch or str(settings.store)),
        worse=bool(grave),
        title=issue_title(grave) if grave else "",
        text=issue_text(grave, page_url=settings.page_url, run_url=_workflow_url(settings.environ)),
        author=settings.comment_author,
    )
    with Client(server_of(settings.environ), patience_s=PATIENCE_S) as client:
        outcome = attempt(PART, lambda: publish_alert(client, alert))
    tell(workflow.defused(f"{outcome.part}: {outcome.state}: {outcome.detail}"))
    return exit_code(code, [outcome], read_only=False)


def _key(place: str) -> str:
    """Return the key of a history: its branch or folder, in the letters that a marker may have."""
    return (
        place
        if KEY.fullmatch(place)
        else f"history-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
    )


def page(settings: TrendSettings) -> int:
    """Write the trend page."""
    config = load(settings)
    stored = _read_runs(settings)
    history, lines = look(stored, config.policy, settings)
    sheet = Sheet(
        title="Trend",
        lines=lines,
        alarms=alarms_of(lines, config.policy),
        passed=tuple(map(str, stored.passed)),
        commits=_commits_url(history),
    )
    documents.write_text(
        render(sheet, page_assets("page.js", package="ci_bench.history")), settings.output
    )
    tell(f"wrote {settings.output}: {len(lines)} series over {len(history.runs)} runs")
    return int(ExitCode.OK)


def compact(settings: TrendSettings) -> int:
    """Pack single records, thin out a store that is too large, and export it if requested."""
    store = open_store(settings)
    _read_runs(settings)
    done = shrink(store)
    tell(
        f"{done.files_before} files, {done.bytes_before:,} bytes → {done.files_after} files,"
        f" {done.bytes_after:,} bytes"
    )
    if done.dropped:
        tell(f"thinned out {done.dropped} old runs to fit")
    if settings.export is not None:
        _export(read_store(store).history, settings.export)
    return int(ExitCode.OK)


def _export(history: History, path: Path) -> None:
    runs = len(history.runs)
    if runs > MOST_RUNS:
        tell(f"{path} takes the newest {MOST_RUNS} of {runs} runs")
    content = documents.packed(chosen(history, range(max(0, runs - MOST_RUNS), runs)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written: {error.strerror or error}") from error
    tell(f"wrote {path}: {runs} runs, {len(content):,} bytes")


def _take(settings: TrendSettings) -> int:
    """Import a data.js of github-action-benchmark, or an exported history."""
    assert settings.file is not None  # noqa: S101 - the flag is required
    history = imported(settings.file)
    count = keep(open_store(settings), history)
    tell(
        f"{settings.file}: imported {count} of {len(history.runs)} runs; the others were there"
        " already"
    )
    return int(ExitCode.OK)


def _fetch(settings: TrendSettings) -> int:
    """Import the artifacts that earlier runs of the branch left.

    There may be several, one from each of two simultaneous runs.
    """
    store = open_store(settings)
    count = sum(keep(store, history) for history in fetched(settings))
    tell(f"imported {count} runs from artifacts")
    return int(ExitCode.OK)


ACTIONS: Mapping[str, Callable[[TrendSettings], int]] = {
    "add": add,
    "check": check,
    "page": page,
    "compact": compact,
    "import": _take,
    "fetch": _fetch,
}


def open_store(settings: TrendSettings) -> Store:
    """Open the store that the flags name: a folder, or a branch.

    Raises `BadInput`, `BadCheckout` and `GitFailed`.
    """
    if settings.branch is None:
        if settings.remote is not None:
            message = "--remote needs --branch NAME, the branch that holds the history"
            raise BadInput(message)
        return FolderStore(settings.store)

    git = open_checkout(settings.here, settings.environ).git
    return BranchStore(git=git, name=repository_of(git, settings.branch), remote=settings.remote)


def _read_runs(settings: TrendSettings) -> Found:
    """Return the store's content, for actions on runs.

    Raises `BadInput` if it is empty: changes need runs.
    """
    stored = read_store(open_store(settings))
    if stored.files:
        return stored
    if settings.branch is None:
        place = str(settings.store)
        why = (
            "the folder does not exist"
            if not settings.store.exists()
            else "the folder holds no run that can be read"
        )
    else:
        place = f"branch {settings.branch}" + (f" of {settings.remote}" if settings.remote else "")
        why = "it does not exist" if not stored.state else "it holds no run that can be read"
    raise BadInput(
        f"history at {place}: {why}; keep runs there with `ci-bench history add RUN`, or name"
        " another place (--store, --branch)"
    )


def look(
    stored: Found, policy: Policy, settings: TrendSettings
) -> tuple[History, tuple[HistoryLine, ...]]:
    """Return the whole history and its lines.

    A change of a time matters from `--least`, any other change from the policy's threshold. The
    policy's thresholds of times are for one pull request; a trend is for repeated changes below
    them.
    """

    def least(points: Points) -> float:
        timed = points.unit in TIMES
        return (
            settings.least
            if timed
            else policy.threshold(suite=points.suite, metric=points.metric, unit=points.unit)
        )

    history = stored.history
    return history, lines_of(history, least=least, recent=RECENT, title=policy.title)


def read_store(store: Store) -> Found:
    """Read a store's content; report the skipped files."""
    stored = store.read()
    for passed in stored.passed:
        tell(f"skipped {cleaned(str(passed))}")
    return stored


def runs_of(stored: Found) -> set[tuple[str, str]]:
    """Return the fingerprint and the id of each run in a store."""
    return {
        (file.history.machines[run.machine].fingerprint, run.id)
        for file in stored.files
        for run in file.history.runs
    }


def cleaned(text: str) -> str:
    """Return text without sequences that a terminal or a workflow would obey, line by line.

    The text may be a stranger's.
    """
    ended = "\n" if text.endswith("\n") else ""
    indented = ((line[: len(line) - len(line.lstrip(" "))], line) for line in text.splitlines())
    return defused("\n".join(indent + clean(line, cap=400) for indent, line in indented)) + ended


def _workflow_url(environ: Mapping[str, str]) -> str | None:
    """Return the address of this workflow's run; `None` outside of one."""
    server, repository, run = (
        environ.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID")
    )
    return f"{server}/{repository}/actions/runs/{run}" if server and repository and run else None


def _commits_url(history: History) -> str | None:
    """Return the address of commits, from the newest run that names a GitHub run."""
    for run in reversed(history.runs):
        match = re.fullmatch(r"(https://[^/]+/[\w.-]+/[\w.-]+)/actions/runs/[0-9]+", run.url or "")
        if match:
            return f"{match[1]}/commit"
    return None
