"""The label that accepts a pull request's entries: whether it counts, and who set it.

A label counts if it is on the pull request now, if a person with write access set it last, by
GitHub's own record of permissions, and if that was after everything that could have changed what it
was set for: each run of the measuring workflow for the head commit, a force-push, another base. A
push is not among GitHub's events, and dates of commits are their author's to choose. The start of a
run is GitHub's, and every push that is measured has one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from ci_bench.github.client import Client
from ci_bench.github.rights import events_of, may_write, moment, newest_move, runs_of, workflow_of
from ci_bench.github.server import ApiRecord

ACCEPT = "ci-bench: accept"


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """The label counts; `login` set it."""

    login: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NotGranted:
    """The label does not count, and why."""

    reason: str


def accepting_label(client: Client, number: int, *, workflow: str) -> Granted | NotGranted:
    """Return whether the label counts for the head of pull request `number`.

    `workflow` is the file of the workflow that measures. The pull request must not have changed it.
    Raises `GitHubFailed`.
    """
    pull = client.get(f"pulls/{number}")
    labels = pull.fields.get("labels")
    names = [
        label.text("name") for label in ApiRecord.each(labels if isinstance(labels, list) else [])
    ]
    events = events_of(client, number)
    of_label = [
        event
        for event in events
        if event.text("event") in {"labeled", "unlabeled"} and _names_it(event)
    ]
    last = max(of_label, key=lambda event: (moment(event), event.need_number("id")), default=None)
    if ACCEPT not in names or last is None or last.text("event") != "labeled":
        return NotGranted(reason="the label is not set")
    login = last.text("actor", "login")
    if login is None or last.text("actor", "type") != "User" or not may_write(client, login):
        return NotGranted(
            reason=f"{login or 'an unknown user'} set the label, who has no write access"
        )
    newest = newest_move(events)
    starts = [
        *_starts(client, pull.need_text("head", "sha"), workflow),
        *([newest] if newest else []),
    ]
    if not starts:
        return NotGranted(
            reason="no run of this commit is known, so it is unknown what the label was set for"
        )
    if moment(last) <= max(starts):
        return NotGranted(
            reason="the label is older than the last push or run; remove it and set it again"
        )
    return Granted(login=login)


def _names_it(event: ApiRecord) -> bool:
    return event.text("label", "name") == ACCEPT


def _starts(client: Client, sha: str, workflow: str) -> Iterator[datetime]:
    """Yield when each run of the workflow for a pull request of this commit was created."""
    return (moment(run) for run in runs_of(client, sha) if workflow_of(run) == workflow)
