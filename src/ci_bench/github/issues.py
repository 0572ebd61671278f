"""The one issue about a trend: opened when something got worse, updated, closed once all is well.

An issue is ours if its first line is our marker and its author is ours: anyone can paste a marker.
A human may close it; the next alarm opens a new one. Two jobs that open one at the same time both
look again, and the oldest stays.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ci_bench.errors import BadInput, GitHubOdd
from ci_bench.github.client import Client
from ci_bench.github.clipping import clipped, clipped_line, utf16_units
from ci_bench.github.comments import ACTIONS_BOT, KEY, LIMIT
from ci_bench.github.outcomes import PublishOutcome, State
from ci_bench.github.server import ApiRecord

logger = logging.getLogger(__name__)

PART = "issue"
MOST_TITLE = 250
_MARKER = re.compile(r"<!-- ci-bench-trend:v1 key=([A-Za-z0-9][A-Za-z0-9._-]{0,63}) -->")
_SETTLE_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """Text for the issue.

    Raises `BadInput` if the key has other letters than it may.
    """

    key: str
    """The name of one of several trends of a repository."""
    worse: bool
    """Whether something is worse; if not, an open issue is closed."""
    title: str
    """The title, of one line."""
    text: str
    """The text below the marker; without `worse` the closing comment."""
    author: str = ACTIONS_BOT
    """The login that the token writes as, ``my-app[bot]`` for an app."""

    def __post_init__(self) -> None:
        """Check the key: one with a space or ``-->`` in it could not be read back."""
        if not KEY.fullmatch(self.key):
            raise BadInput(
                f"the key is {self.key!r:.80}; it takes letters, digits, `.`, `_` and `-`, 64 at"
                " most"
            )

    @property
    def body(self) -> str:
        """Return the text below the marker, as long as GitHub takes."""
        return clipped(
            f"<!-- ci-bench-trend:v1 key={self.key} -->\n{self.text}", LIMIT, utf16_units
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenIssue:
    """An open issue of ours."""

    number: int
    """Its number."""
    title: str
    """Its title; may be empty."""
    body: str
    """Its text, which starts with the marker."""
    author: str
    """The login that opened it."""
    url: str | None
    """Its page; `None` if GitHub does not say."""


def publish_alert(client: Client, alert: Alert) -> PublishOutcome:
    """Open, update or close the issue.

    Raises `GitHubFailed`.
    """
    issues = find_open(client, alert)
    if not alert.worse:
        for issue in issues:
            _close(client, issue, alert.text, reason="completed")
        detail = (
            f"closed issue {issues[0].number}: nothing is worse any longer"
            if issues
            else "nothing is open"
        )
        return PublishOutcome(
            part=PART,
            state=State.DONE if issues else State.SKIPPED,
            detail=detail,
            url=issues[0].url if issues else None,
        )
    if issues:
        return _update(client, alert, issues)
    return _open(client, alert)


def find_open(client: Client, alert: Alert) -> list[OpenIssue]:
    """Return our open issues with this key, the oldest first.

    Raises `GitHubOdd` if there are more issues than are read.
    """
    listing = client.pages("issues", {"state": "open", "sort": "created", "direction": "desc"})
    issues = [
        issue
        for issue in map(_parse_issue, ApiRecord.each(listing.items))
        if issue is not None and _is_ours(issue, alert)
    ]
    if not listing.complete and not issues:
        raise GitHubOdd("too many open issues to search; cannot determine whether ours exists")
    return sorted(issues, key=lambda issue: issue.number)


def _parse_issue(record: ApiRecord) -> OpenIssue | None:
    """Return an issue; `None` for a pull request, which the listing has, too."""
    number, author = record.number("number"), record.text("user", "login")
    if number is None or author is None or record.inner("pull_request") is not None:
        return None
    body = record.text("body") or ""
    return OpenIssue(
        number=number,
        title=record.text("title") or "",
        body=body,
        author=author,
        url=record.text("html_url"),
    )


def _is_ours(issue: OpenIssue, alert: Alert) -> bool:
    match = _MARKER.fullmatch(issue.body.partition("\n")[0].strip())
    return (
        match is not None
        and match[1] == alert.key
        and issue.author.casefold() == alert.author.casefold()
    )


def _open(client: Client, alert: Alert) -> PublishOutcome:
    def landed() -> ApiRecord | None:
        issues = find_open(client, alert)
        return client.get(f"issues/{issues[0].number}") if issues else None

    record = client.write(
        "POST", "issues", {"title": _title(alert), "body": alert.body}, seek=landed
    )
    author = record.text("user", "login") or alert.author
    if author.casefold() != alert.author.casefold():
        logger.warning(
            "this token writes as %s, not as %s; pass it as --comment-author, or the next run opens"
            " another",
            author,
            alert.author,
        )
    client.clock.sleep(_SETTLE_S * (1.0 + client.clock.chance()))
    issues = find_open(client, alert)
    for other in issues[1:]:
        _close(
            client,
            other,
            f"The same as issue {issues[0].number}, which was opened at the same time.",
            reason="not_planned",
        )
    number, url = (
        (issues[0].number, issues[0].url)
        if issues
        else (record.need_number("number"), record.text("html_url"))
    )
    return PublishOutcome(part=PART, state=State.DONE, detail=f"opened issue {number}", url=url)


def _update(client: Client, alert: Alert, issues: Sequence[OpenIssue]) -> PublishOutcome:
    first, *others = issues
    if (first.title, _normalize_body(first.body)) != (_title(alert), _normalize_body(alert.body)):
        client.write(
            "PATCH", f"issues/{first.number}", {"title": _title(alert), "body": alert.body}
        )
    for other in others:
        _close(client, other, f"The same as issue {first.number}.", reason="not_planned")
    return PublishOutcome(
        part=PART, state=State.DONE, detail=f"issue {first.number} is up to date", url=first.url
    )


def _close(client: Client, issue: OpenIssue, why: str, *, reason: str) -> None:
    """Say why first: a closed issue without a word is a riddle."""
    client.write(
        "POST",
        f"issues/{issue.number}/comments",
        {"body": clipped(why, LIMIT, utf16_units)},
        seek=lambda: ApiRecord({}),
    )
    client.write("PATCH", f"issues/{issue.number}", {"state": "closed", "state_reason": reason})


def _title(alert: Alert) -> str:
    return clipped_line(alert.title, MOST_TITLE)


def _normalize_body(body: str) -> str:
    """Normalize line ends, which GitHub changes."""
    return body.replace("\r\n", "\n").strip()
