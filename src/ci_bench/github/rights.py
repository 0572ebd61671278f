"""People's rights and pull requests' pushes, as GitHub records and dates them.

Texts give no right: anyone can write a comment, a branch's name or a commit's date. GitHub has no
event for a push, but each push of a pull request starts a run, and GitHub dates the runs.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import quote

from ci_bench.errors import GitHubMissing, GitHubOdd
from ci_bench.github.client import Client
from ci_bench.github.server import ApiRecord

MAY_WRITE = frozenset({"admin", "write"})
"""GitHub reports the role maintain as write, and triage as read."""
_RESET = frozenset({"head_ref_force_pushed", "head_ref_restored", "head_ref_deleted"})
_MOVED = _RESET | {"base_ref_changed", "reopened"}


def may_write(client: Client, login: str) -> bool:
    """Return whether a person may write to the repository.

    Raises `GitHubFailed`.
    """
    try:
        record = client.get(f"collaborators/{quote(login, safe='')}/permission")
    except GitHubMissing:
        return False
    same = (record.text("user", "login") or "").casefold() == login.casefold()
    return same and record.text("permission") in MAY_WRITE


def events_of(client: Client, number: int) -> Sequence[ApiRecord]:
    """Return all events of a pull request.

    Raises `GitHubOdd` if there are more than are read.
    """
    listing = client.pages(f"issues/{number}/events")
    if not listing.complete:
        raise GitHubOdd(f"pull request {number} has too many events to search")
    return [*ApiRecord.each(listing.items)]


def newest_move(events: Sequence[ApiRecord]) -> datetime | None:
    """Return when a pull request last got another base or head by anything but a plain push."""
    return _newest(events, _MOVED)


def newest_reset(events: Sequence[ApiRecord]) -> datetime | None:
    """Return when the head last became another one than a plain push makes it."""
    return _newest(events, _RESET)


def _newest(events: Sequence[ApiRecord], kinds: frozenset[str]) -> datetime | None:
    return max((moment(event) for event in events if event.text("event") in kinds), default=None)


def runs_of(client: Client, sha: str) -> Iterator[ApiRecord]:
    """Yield the runs of all workflows for pull requests at this commit.

    Raises `GitHubOdd` if there are more than are read.
    """
    params = {"head_sha": sha, "event": "pull_request"}
    listing = client.pages("actions/runs", params, key="workflow_runs")
    if not listing.complete:
        raise GitHubOdd(f"{sha[:12]} has too many runs to search")
    return (run for run in ApiRecord.each(listing.items) if run.text("head_sha") == sha)


def workflow_of(run: ApiRecord) -> str:
    """Return the path of a run's workflow file."""
    return (run.text("path") or "").partition("@")[0]


def moment(record: ApiRecord, field: str = "created_at") -> datetime:
    """Return a date of GitHub's, which is in UTC.

    Raises `GitHubOdd`.
    """
    text = record.need_text(field)
    try:
        date = datetime.fromisoformat(text)
    except ValueError as error:
        raise GitHubOdd(f"{text!r:.40} is not a moment of time") from error
    if date.tzinfo is None:
        raise GitHubOdd(f"{text!r:.40} has no time zone")
    return date
