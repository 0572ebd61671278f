"""The command that keeps what runs measured, and looks after it: history add, check, page, compact, import, fetch."""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.inputs import load, results_path
from ci_bench.commands.output import say, tell
from ci_bench.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from ci_bench.history.alarms import Alarm
    from ci_bench.history.lines import Line
    from ci_bench.history.shelf import Found, Shelf
    from ci_bench.records.history import History, Points
    from ci_bench.records.policy import Policy


def history(arguments: argparse.Namespace) -> int:
    """Do what the action says."""
    return ACTIONS[arguments.action](arguments)


def add(arguments: argparse.Namespace) -> int:
    """Keep the numbers of runs; a run that is there already is not added twice."""
    from ci_bench.history.points import record_of
    from ci_bench.history.shelf import file_of
    from ci_bench.records import documents

    shelf = open_shelf(arguments)
    url = arguments.url or _workflow_url(os.environ)
    records = [record_of(documents.read_results(results_path(path)), url=url, report=arguments.report) for path in arguments.runs]
    known = runs_of(read_store(shelf))
    new: dict[str, bytes] = {}
    for path, record in zip(arguments.runs, records, strict=True):
        name = (record.machines[0].fingerprint, record.runs[0].id)
        if not record.series:
            tell(f"{path}: nothing was measured, so that there is nothing to keep")
        elif name in known:
            tell(f"{path}: the run {record.runs[0].id} is there already")
        else:
            new |= file_of(record)
            tell(f"{path}: kept {len(record.series)} series of the run {record.runs[0].id}")
    if new:
        shelf.append(new)
        _tidy(shelf)
    return int(ExitCode.OK)


def _tidy(shelf: "Shelf") -> None:
    """Compact where many single files have gathered: reading them is slow."""
    from ci_bench.history.compaction import LOOSE, compact

    if sum(file.name.rpartition("/")[2].startswith("run-") for file in shelf.read().files) > LOOSE:
        done = compact(shelf)
        tell(f"compacted {done.files_before} files to {done.files_after} ({done.bytes_after:,} bytes)")


def check(arguments: argparse.Namespace) -> int:
    """Tell every open change for the worse, and exit by the policy: 1 where one of them fails it."""
    from ci_bench.history.alarms import alarms_of, told
    from ci_bench.history.second_opinion import opinions
    from ci_bench.records.policy import Severity

    config = load(arguments)
    found = read_store(open_shelf(arguments))
    whole, lines = look(found, config.policy, arguments)
    alarms = alarms_of(lines, config.policy)
    if arguments.confirm:
        alarms = _confirmed(arguments, alarms)
    say(cleaned(told(alarms, lines=len(lines), runs=len(whole.runs))))
    if arguments.otava:
        say(cleaned("\n".join(opinions(lines, arguments.otava)) + "\n"))
    failing = any(alarm.severity is Severity.FAIL for alarm in alarms)
    code = ExitCode.POLICY_NOT_MET if failing else ExitCode.OK
    return _tell_github(arguments, alarms, code) if arguments.issue else int(code)


def _confirmed(arguments: argparse.Namespace, alarms: "Sequence[Alarm]") -> "tuple[Alarm, ...]":
    """The alarms after a paired run of the neighbouring commits of each; what that does not confirm is only noted."""
    from ci_bench.commands.trend.confirming import confirm

    ranges = list(dict.fromkeys(alarm.commits for alarm in alarms))[: max(0, arguments.most)]
    answers = {commits: confirm(arguments, commits, [one for one in alarms if one.commits == commits]) for commits in ranges}
    return tuple(answers[alarm.commits].get(alarm.line.name, alarm) if alarm.commits in answers else alarm for alarm in alarms)


def _tell_github(arguments: argparse.Namespace, alarms: "Sequence[Alarm]", code: ExitCode) -> int:
    """Bring the issue up to date; the verdict's own code wins over what GitHub has against it."""
    from ci_bench.github import workflow
    from ci_bench.github.client import Client
    from ci_bench.github.context import server_of
    from ci_bench.github.issues import PART, Alert, publish_alert
    from ci_bench.github.outcomes import attempt, exit_code
    from ci_bench.history.notice import text, title
    from ci_bench.records.policy import Severity

    grave = [alarm for alarm in alarms if alarm.severity is not Severity.NOTE]
    alert = Alert(
        key=arguments.key,
        worse=bool(grave),
        title=title(grave) if grave else "",
        text=text(grave, page_url=arguments.page_url, run_url=_workflow_url(os.environ)),
        author=arguments.issue_author,
    )
    with Client(server_of(os.environ), patience_s=arguments.patience_s) as client:
        outcome = attempt(PART, lambda: publish_alert(client, alert))
    tell(workflow.defused(f"{outcome.part}: {outcome.state}: {outcome.detail}"))
    return exit_code(code, [outcome], read_only=False)


def page(arguments: argparse.Namespace) -> int:
    """Write the trend page."""
    from ci_bench.history.alarms import alarms_of
    from ci_bench.history.page import Sheet, render
    from ci_bench.page_assets import page_assets
    from ci_bench.records import documents

    config = load(arguments)
    found = read_store(open_shelf(arguments))
    whole, lines = look(found, config.policy, arguments)
    sheet = Sheet(
        title=arguments.title,
        lines=lines,
        alarms=alarms_of(lines, config.policy),
        passed=tuple(map(str, found.passed)),
        commits=(arguments.commits or _commits_url(whole) or "").rstrip("/") or None,
    )
    documents.write_text(render(sheet, page_assets("page.js", package="ci_bench.history")), arguments.output)
    tell(f"wrote {arguments.output}: {len(lines)} series over {len(whole.runs)} runs")
    return int(ExitCode.OK)


def compact(arguments: argparse.Namespace) -> int:
    """Put records together, thin out beyond the size, and export where that is asked for."""
    from ci_bench.history.compaction import MOST_BYTES
    from ci_bench.history.compaction import compact as shrink

    shelf = open_shelf(arguments)
    read_store(shelf)
    done = shrink(shelf, most_bytes=MOST_BYTES if arguments.most_bytes is None else arguments.most_bytes)
    tell(f"{done.files_before} files, {done.bytes_before:,} bytes → {done.files_after} files, {done.bytes_after:,} bytes")
    if done.dropped:
        tell(f"thinned out {done.dropped} old runs to fit")
    if arguments.export is not None:
        _export(read_store(shelf).history, arguments.export)
    return int(ExitCode.OK)


def _export(whole: "History", path: Path) -> None:
    from ci_bench.errors import CannotWrite
    from ci_bench.history.compaction import MOST_RUNS
    from ci_bench.history.points import chosen
    from ci_bench.records import documents

    runs = len(whole.runs)
    if runs > MOST_RUNS:
        tell(f"{path} takes the newest {MOST_RUNS} of {runs} runs")
    content = documents.packed(chosen(whole, range(max(0, runs - MOST_RUNS), runs)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written: {error.strerror or error}") from error
    tell(f"wrote {path}: {runs} runs, {len(content):,} bytes")


def _take(arguments: argparse.Namespace) -> int:
    """Take over a data.js of github-action-benchmark, or a history that was exported."""
    from ci_bench.commands.trend.taking_over import imported, keep

    taken = imported(arguments.file)
    kept = keep(open_shelf(arguments), taken)
    tell(f"{arguments.file}: took over {kept} of {len(taken.runs)} runs; the others were there already")
    return int(ExitCode.OK)


def _fetch(arguments: argparse.Namespace) -> int:
    """Take over what earlier runs of the branch left in artifacts: several, since two runs may have left one each at once."""
    from ci_bench.commands.trend.artifacts import fetched
    from ci_bench.commands.trend.taking_over import keep

    shelf = open_shelf(arguments)
    kept = sum(keep(shelf, taken) for taken in fetched(arguments, os.environ))
    tell(f"took over {kept} runs from artifacts")
    return int(ExitCode.OK)


ACTIONS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "add": add,
    "check": check,
    "page": page,
    "compact": compact,
    "import": _take,
    "fetch": _fetch,
}


def open_shelf(arguments: argparse.Namespace) -> "Shelf":
    """The store that the flags name: a folder, or a branch. Raises `BadInput`, `BadCheckout` and `GitFailed`."""
    from ci_bench.history.branch import BranchShelf, repository_of
    from ci_bench.history.folder import FolderShelf

    if arguments.branch is None:
        if arguments.remote is not None:
            message = "--remote goes with --branch NAME: which branch of it holds the history?"
            raise BadInput(message)
        return FolderShelf(arguments.store)
    from ci_bench.engine.trees.checkout import open_checkout

    git = open_checkout(Path.cwd(), os.environ).git
    return BranchShelf(git=git, name=repository_of(git, arguments.branch), remote=arguments.remote)


def look(found: "Found", policy: "Policy", arguments: argparse.Namespace) -> "tuple[History, tuple[Line, ...]]":
    """The whole history and its lines. Of times a change of `--least` matters, of anything else what the policy says.

    The policy's thresholds of times are for one pull request; a trend is for what stays below them again and again.
    """
    from ci_bench.history.lines import lines_of
    from ci_bench.judge.cases.lines import TIMES

    def least(points: "Points") -> float:
        timed = points.unit in TIMES
        return float(arguments.least) if timed else policy.threshold(suite=points.suite, metric=points.metric)

    whole = found.history
    return whole, lines_of(whole, least=least, recent=arguments.recent)


def read_store(shelf: "Shelf") -> "Found":
    """What a store holds; what had to be passed over is named."""
    found = shelf.read()
    for passed in found.passed:
        tell(f"passed over {cleaned(str(passed))}")
    return found


def runs_of(found: "Found") -> set[tuple[str, str]]:
    """The fingerprint and the id of each run that a store holds."""
    return {(file.history.machines[run.machine].fingerprint, run.id) for file in found.files for run in file.history.runs}


def cleaned(text: str) -> str:
    """Text that may be a stranger's, line by line, without what a terminal or a workflow would obey."""
    from ci_bench.github.workflow import defused
    from ci_bench.report.text import clean

    ended = "\n" if text.endswith("\n") else ""
    indented = ((line[: len(line) - len(line.lstrip(" "))], line) for line in text.splitlines())
    return defused("\n".join(indent + clean(line, cap=400) for indent, line in indented)) + ended


def _workflow_url(environ: Mapping[str, str]) -> str | None:
    """Where this workflow's run is to be seen; `None` outside of one."""
    server, repository, run = (environ.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    return f"{server}/{repository}/actions/runs/{run}" if server and repository and run else None


def _commits_url(whole: "History") -> str | None:
    """Where commits are to be seen, from the newest run that names a GitHub run."""
    for run in reversed(whole.runs):
        found = re.fullmatch(r"(https://[^/]+/[\w.-]+/[\w.-]+)/actions/runs/[0-9]+", run.url or "")
        if found:
            return f"{found[1]}/commit"
    return None
