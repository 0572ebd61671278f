"""Answers a person who requests a run in a comment on a pull request. It measures nothing.

Only a person with write access is answered, by GitHub's record of permissions; everyone else is
ignored. The run is granted for the head that the person saw: GitHub dates the comment, the runs
that each push starts, and every other move of the pull request, and the comment has to be the
newest of them. Anything unknown grants nothing.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from ci_bench.command_line.settings import Publishing
from ci_bench.commands.output import tell
from ci_bench.commands.trusted import sources
from ci_bench.commands.trusted.expecting import Expecting, plan_here
from ci_bench.commands.trusted.machine_results import (
    RESULTS,
    MeasuredMachine,
    read_results_of,
    unpack,
)
from ci_bench.commands.trusted.publishing import append_outputs, client_of, defusing
from ci_bench.commands.trusted.sources import PublishContext, fetch_file
from ci_bench.configuration.config import parse
from ci_bench.errors import CiBenchError, ExitCode, GitHubFailed
from ci_bench.github import workflow
from ci_bench.github.archive import Contents, UnsafeArchive
from ci_bench.github.artifacts import Artifact, download, named
from ci_bench.github.client import Client
from ci_bench.github.comments import PART, Marker, Sticky, publish_comment
from ci_bench.github.context import load_context
from ci_bench.github.outcomes import PublishOutcome, State, attempt, exit_code
from ci_bench.github.pulls import NoPullRequest, find_pulls
from ci_bench.github.requests import MOST_WORDS, RunRequest, is_unchanged, read_request
from ci_bench.github.rights import (
    events_of,
    may_write,
    moment,
    newest_move,
    newest_reset,
    runs_of,
    workflow_of,
)
from ci_bench.github.server import ApiRecord
from ci_bench.records.config import Config, fits_filters
from ci_bench.records.results import Status
from ci_bench.report.text import code, plain

SETTLE_S = 10.0
"""GitHub starts runs and writes events a moment after a push. Both are read this long after the
head.
"""
SKEW = timedelta(seconds=5)
"""A force-push may be dated this much later than the run that it started."""
MERGE_ROUNDS = 3
MOST_WORKFLOWS = 10
"""Most workflows that are looked at for the date of a push."""
MOST_ARTIFACTS = 3
"""Most earlier runs that are read for the estimated time."""
MOST_NAMES = 10
"""Most cases that the answer names."""
_SIDES = 2
_LONGEST_S = 1e7
"""Longer runs are nonsense, of results that are untrusted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseSelection:
    """The cases that a request chose."""

    names: tuple[str, ...]
    """Ids of the cases that are known before the tree is measured."""
    number: int
    """How many cases are known, also those that are only declared by number."""
    open: tuple[str, ...]
    """Parts of the configuration whose further cases only the tree can plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """A run that may be measured."""

    publishing: PublishContext
    """The pull request at the granted head."""
    base_sha: str
    """The commit to compare with."""
    filters: tuple[str, ...]
    """The request's filters."""
    selection: CaseSelection
    """The cases."""
    minutes: tuple[int, int] | None
    """The estimated minutes, and the run that they come from."""


@defusing
def answer_request(settings: Publishing) -> int:
    """Check a comment's request for a run, answer it, and write what to measure as outputs."""
    request = read_request(settings.environ)
    if request is None:
        return _ignore(settings, "the comment is not a new request of a person on a pull request")
    with client_of(settings) as client:
        if not may_write(client, request.login):
            return _ignore(settings, "the author of the comment has no write access")
        unchanged = is_unchanged(client, request)
        if unchanged is None:
            return _ignore(settings, "the comment was deleted")
        pull = client.get(f"pulls/{request.number}")
        edited = None if unchanged else "the comment was edited; write a new one"
        decision = edited or _decide(client, settings, request, pull)
        outcome = attempt(
            PART, partial(publish_comment, client, _sticky(settings, request, pull, decision))
        )
    _tell(decision, outcome)
    append_outputs(settings, _outputs(decision if outcome.state is State.DONE else "", request))
    return exit_code(ExitCode.OK, (outcome,), read_only=False)


def _ignore(settings: Publishing, reason: str) -> int:
    tell(f"ignored: {reason}")
    append_outputs(settings, {"allowed": "false"})
    return int(ExitCode.OK)


def _tell(decision: Grant | str, outcome: PublishOutcome) -> None:
    """Print the decision and the state of the answer to the log."""
    tell(workflow.defused(f"not measured: {decision}" if isinstance(decision, str) else "granted"))
    tell(workflow.defused(f"{outcome.part}: {outcome.state}: {outcome.detail}"))


def _outputs(decision: Grant | str, request: RunRequest) -> Mapping[str, str]:
    """Return the outputs: numbers, commits, and filters of a plain alphabet, one on each line."""
    if isinstance(decision, str):
        return {"allowed": "false"}
    return {
        "allowed": "true",
        "pull_number": str(request.number),
        "head_sha": decision.publishing.context.head.sha,
        "base_sha": decision.base_sha,
        "filter": "\n".join(decision.filters),
    }


def _decide(
    client: Client, settings: Publishing, request: RunRequest, pull: ApiRecord
) -> Grant | str:
    """Return the granted run, or the reason for a refusal. Raises `GitHubFailed`."""
    filters = request.filters
    if filters is None:
        return (
            "a filter is made of letters, digits and `_./:=,+@[]-`, and a request has at most"
            f" {MOST_WORDS}"
        )
    context = load_context(settings.environ, head=pull.need_text("head", "sha"))
    client.clock.sleep(SETTLE_S)
    pulls = find_pulls(client, context)
    if isinstance(pulls, NoPullRequest):
        return pulls.reason
    publishing = PublishContext(client=client, context=context, pull=pulls[0], settings=settings)
    try:
        return _unseen(publishing, request, pull) or _grant(publishing, filters, pull)
    except GitHubFailed:
        raise
    except CiBenchError as error:
        return str(error)


def _unseen(publishing: PublishContext, request: RunRequest, pull: ApiRecord) -> str | None:
    """Explain why the person may not have seen this head; `None` if GitHub's dates show it.

    Raises `GitHubFailed`.
    """
    head, branch = publishing.context.head.sha[:12], publishing.base_branch
    if not _merges(publishing.client, request.number):
        return f"GitHub cannot merge this into {branch}, and then starts no run that dates a push"
    pushed = _last_push(publishing, pull)
    if pushed is None:
        return (
            f"no run shows when {head} was pushed; a workflow of {branch} has to start on each push"
            " of a pull request, and this one must not change that workflow"
        )
    events = events_of(publishing.client, request.number)
    if request.created_at <= max(filter(None, (pushed, newest_move(events)))):
        return (
            f"the head {head} or its base is newer than the comment; look at it, and comment again"
        )
    reset = newest_reset(events)
    if reset is not None and reset > pushed + SKEW:
        return f"no run shows that {head} came after the last force-push; push again"
    return None


def _merges(client: Client, number: int) -> bool:
    """Return whether GitHub can merge the pull request, which it computes on request."""
    for _ in range(MERGE_ROUNDS):
        mergeable = client.get(f"pulls/{number}").truth("mergeable")
        if mergeable is not None:
            return mergeable
        client.clock.sleep(SETTLE_S)
    return False


def _last_push(publishing: PublishContext, pull: ApiRecord) -> datetime | None:
    """Return the time of the last push of head, by runs of a workflow that starts on each push.

    It is `None` if no run shows it. A pull request could change when a workflow starts, so only
    files that base has as well count. Runs of another branch with the same head do not, nor do
    those from before this pull request.
    """
    sha, source = publishing.context.head.sha, pull.number("head", "repo", "id")
    if source is None:
        return None
    runs = [run for run in runs_of(publishing.client, sha) if _is_of(run, pull, source)]
    for path in sorted({workflow_of(run) for run in runs})[:MOST_WORKFLOWS]:
        ours = fetch_file(publishing, publishing.base_branch, path)
        if (
            ours is not None
            and starts_on_pushes(ours)
            and ours == fetch_file(publishing, sha, path)
        ):
            return max(moment(run) for run in runs if workflow_of(run) == path)
    return None


def _is_of(run: ApiRecord, pull: ApiRecord, source: int) -> bool:
    """Return whether a run is of this pull request's branch and no older than the pull request."""
    same = run.number("head_repository", "id") == source
    return (
        same and run.text("head_branch") == pull.text("head", "ref") and moment(run) >= moment(pull)
    )


def starts_on_pushes(workflow: bytes) -> bool:
    """Return whether a workflow file starts a run for each push to a pull request."""
    value = parse(workflow.decode("utf-8-sig", "replace")).value
    events = value.get("on") if isinstance(value, dict) else None
    if not isinstance(events, dict):
        return "pull_request" in _as_list(events)
    trigger = events.get("pull_request")
    types = trigger.get("types") if isinstance(trigger, dict) else None
    return "pull_request" in events and (types is None or "synchronize" in _as_list(types))


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _grant(publishing: PublishContext, filters: tuple[str, ...], pull: ApiRecord) -> Grant | str:
    """Return the run by the base branch's configuration, or the reason for a refusal."""
    rules = sources.base_config(publishing)
    if rules.waits:
        return f"{rules.waits}, and a run on request is measured by that"
    selection = _select(rules.config, filters)
    if not selection.number and not selection.open:
        return (
            f"no case of {publishing.settings.config_path} matches {' '.join(filters)}; `ci-bench"
            " list` prints all ids"
        )
    machine = MeasuredMachine(name="request", folder=publishing.output / "request")
    base = Expecting(publishing=publishing, config=rules.config).base_of(
        publishing.context.head.sha, machine
    )
    if not base.accepted:
        return f"the base commit is unknown: {base.words}"
    return Grant(
        publishing=publishing,
        base_sha=base.accepted[0],
        filters=filters,
        selection=selection,
        minutes=_minutes(publishing, selection.names, filters, pull),
    )


def _select(config: Config, filters: Sequence[str]) -> CaseSelection:
    """Return the chosen cases, as far as they can be planned or are declared without the tree."""
    cases, foreign = plan_here(config)
    ids = [case.id for case in cases]
    ids += [
        name
        for declaration in foreign
        if isinstance(declaration.cases, tuple)
        for name in declaration.cases
    ]
    planned = {*ids}
    names = tuple(name for name in ids if fits_filters(name, filters, planned))
    counts = [declaration.cases for declaration in foreign if isinstance(declaration.cases, int)]
    unplanned = tuple(
        declaration.owner
        for declaration in foreign
        if declaration.cases is None or (filters and isinstance(declaration.cases, int))
    )
    return CaseSelection(
        names=names, number=len(names) + (0 if filters else sum(counts)), open=unplanned
    )


def _minutes(
    publishing: PublishContext, names: Sequence[str], filters: Sequence[str], pull: ApiRecord
) -> tuple[int, int] | None:
    """Estimate the minutes by the newest earlier run of all these cases; return them and the run.

    Its results are untrusted, and only this estimate depends on them.
    """
    with suppress(GitHubFailed):
        for artifact in _earlier(publishing, pull)[:MOST_ARTIFACTS]:
            usual: Mapping[str, float] = {}
            with suppress(CiBenchError, UnsafeArchive):
                usual = _durations(publishing, artifact)
            chosen = [
                seconds for name, seconds in usual.items() if fits_filters(name, filters, usual)
            ]
            if {*names} <= {*usual} and 0 < sum(chosen) < _LONGEST_S:
                return math.ceil(_SIDES * sum(chosen) / 60), artifact.run_id or 0
    return None


def _earlier(publishing: PublishContext, pull: ApiRecord) -> list[Artifact]:
    """Return artifacts of this pull request's branch, then of base's, each the newest first."""
    settings, ours = publishing.settings, publishing.context.repository_id
    source = (pull.number("head", "repo", "id"), pull.text("head", "ref"))
    places = [source, (ours, publishing.base_branch)]
    artifacts = [
        artifact
        for name in (settings.artifact, settings.baseline_artifact)
        for artifact in named(publishing.client, name)[0]
    ]
    fitting = [
        artifact
        for artifact in artifacts
        if not artifact.expired and (artifact.head_repository_id, artifact.head_branch) in places
    ]
    newest_first = sorted(
        fitting, key=lambda artifact: (artifact.created_at, artifact.id), reverse=True
    )
    return sorted(
        newest_first,
        key=lambda artifact: places.index((artifact.head_repository_id, artifact.head_branch)),
    )


def _durations(publishing: PublishContext, artifact: Artifact) -> Mapping[str, float]:
    """Return the seconds of each case that ended well, on head's side of a run.

    Raises `CiBenchError`, `UnsafeArchive`.
    """
    folder = publishing.output / "earlier" / str(artifact.id)
    unpack(download(publishing.client, artifact, Contents(members=(RESULTS,))), folder)
    rows = read_results_of(folder / RESULTS).cases
    return {
        row.case.id: row.duration_s
        for row in rows
        if row.status is Status.OK and row.duration_s is not None
    }


def _sticky(
    settings: Publishing, request: RunRequest, pull: ApiRecord, decision: Grant | str
) -> Sticky:
    """Return the answer. Each request has one; running its workflow again updates it."""
    context = load_context(settings.environ, head=pull.need_text("head", "sha"))
    marker = Marker(key=f"answer-{request.comment_id}", run=context.run, head=context.head.sha)
    text = (
        _declined(request, decision) if isinstance(decision, str) else _granted(request, decision)
    )
    return Sticky(
        number=request.number,
        marker=marker,
        text=f"{marker}\n\n{text}\n",
        author=settings.comment_author,
    )


def _declined(request: RunRequest, reason: str) -> str:
    return (
        f"### Not measured\n\n{code(request.line, cap=200)} by {code(request.login)}:"
        f" {plain(reason, cap=700)}."
    )


def _granted(request: RunRequest, grant: Grant) -> str:
    """Return the answer to a granted request: the cases, both commits, and the expected time."""
    selection, context = grant.selection, grant.publishing.context
    number = f"{selection.number:,} {'case' if selection.number == 1 else 'cases'}"
    cases = [number] if selection.number else []
    if selection.open:
        cases.append(
            f"the cases of {', '.join(map(code, selection.open))} that only the tree plans"
        )
    names = [f"- {code(name, cap=200)}" for name in selection.names[:MOST_NAMES]]
    rest = selection.number - len(names)
    names += [f"- and {rest:,} more"] if names and rest > 0 else []
    paragraphs = [
        f"### Measuring on request: {' and '.join(cases)}",
        "\n".join(names),
        (
            f"{code(context.head.sha)} is compared with {code(grant.base_sha)} in [this"
            f" run]({context.run_url}). {_time(grant)}"
        ),
        (
            f"Requested by {code(request.login)}. The verdict follows in another comment. It gates"
            " nothing."
        ),
    ]
    return "\n\n".join(filter(None, paragraphs))


def _time(grant: Grant) -> str:
    if grant.minutes is None:
        base = code(grant.publishing.base_branch or "the default branch")
        return f"No earlier run of this pull request or of {base} shows how long this takes."
    minutes, run = grant.minutes
    number = f"{minutes:,} {'minute' if minutes == 1 else 'minutes'}"
    return f"It takes about {number}, as in run {run}, and the set-up."
