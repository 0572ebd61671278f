"""Who set the label that accepts a pull request's entries, with which right, and for which commit.

A label counts if it is on the pull request now, if a person with write access set it last, by
GitHub's own record of permissions, and if that was after everything that could have changed what it
was set for: each run of the measuring workflow for the head commit, a force-push, another base. A
push is not among GitHub's events, and dates of commits are their author's to choose. The start of a
run is GitHub's, and every push that is measured has one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from ci_bench.errors import GitHubMissing, GitHubOdd
from ci_bench.github.client import Client
from ci_bench.github.server import Record

ACCEPT = "ci-bench: accept"
MAY_WRITE = frozenset({"admin", "write"})
"""GitHub reports the role maintain as write, and triage as read."""
_MOVED = frozenset({"head_ref_force_pushed", "head_ref_restored", "base_ref_changed"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """The label counts; `login` set it."""

    login: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NotGranted:
    """The label does not count, and why."""

    reason: str


def accepting_label(client: Client, number: int, *, workflow: str) -> Granted | NotGranted:
    """Return whether the label counts for the head of pull request `number`. Raises `GitHubFailed`.

    `workflow` is the file of the workflow that measures. The pull request must not have changed it.
    """
    pull = client.get(f"pulls/{number}")
    labels = pull.fields.get("labels")
    names = [label.text("name") for label in Record.each(labels if isinstance(labels, list) else [])]
    listing = client.pages(f"issues/{number}/events")
    if not listing.complete:
        raise GitHubOdd(f"pull request {number} has too many events to search")
    events = [*Record.each(listing.items)]
    of_label = [event for event in events if event.text("event") in {"labeled", "unlabeled"} and _names_it(event)]
    last = max(of_label, key=lambda event: (_moment(event), event.need_number("id")), default=None)
    if ACCEPT not in names or last is None or last.text("event") != "labeled":
        return NotGranted(reason="the label is not set")
    login = last.text("actor", "login")
    if login is None or last.text("actor", "type") != "User" or not _may_write(client, login):
        return NotGranted(reason=f"{login or 'an unknown user'} set the label, who has no write access")
    newest = max((_moment(event) for event in events if event.text("event") in _MOVED), default=None)
    starts = [*_starts(client, pull.need_text("head", "sha"), workflow), *([newest] if newest else [])]
    if not starts:
        return NotGranted(reason="no run of this commit is known, so it is unknown what the label was set for")
    if _moment(last) <= max(starts):
        return NotGranted(reason="the label is older than the last push or run; remove it and set it again")
    return Granted(login=login)


def _names_it(event: Record) -> bool:
    return event.text("label", "name") == ACCEPT


def _may_write(client: Client, login: str) -> bool:
    try:
        found = client.get(f"collaborators/{quote(login, safe='')}/permission")
    except GitHubMissing:
        return False
    same = (found.text("user", "login") or "").casefold() == login.casefold()
    return same and found.text("permission") in MAY_WRITE


def _starts(client: Client, sha: str, workflow: str) -> Iterator[datetime]:
    """Yield when each run of the workflow for a pull request of this commit was created."""
    listing = client.pages("actions/runs", {"head_sha": sha, "event": "pull_request"}, key="workflow_runs")
    if not listing.complete:
        raise GitHubOdd(f"{sha[:12]} has too many runs to search")
    for run in Record.each(listing.items):
        if run.text("head_sha") == sha and (run.text("path") or "").partition("@")[0] == workflow:
            yield _moment(run)


def _moment(record: Record) -> datetime:
    """Return `created_at`, which GitHub writes in UTC. Raises `GitHubOdd`."""
    text = record.need_text("created_at")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise GitHubOdd(f"{text!r:.40} is not a moment of time") from error
    if moment.tzinfo is None:
        raise GitHubOdd(f"{text!r:.40} has no time zone")
    return moment
