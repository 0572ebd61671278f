"""Requests for a run: ``/ci-bench run FILTER`` as the first line of a comment on a pull request.

A comment gives no right. GitHub's record of permissions does, and `rights` reads it. The words of a
request become filters of cases, so each consists of letters that have no meaning to a shell.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ci_bench.errors import GitHubMissing, NotOnGitHub
from ci_bench.github.client import Client
from ci_bench.github.context import COMMENT, read_event
from ci_bench.github.rights import moment
from ci_bench.github.server import ApiRecord

COMMAND = "/ci-bench run"
MOST_WORDS = 20
_LINE = re.compile(rf"{COMMAND}(?: (?P<words>.*))?")
_WORD = re.compile(r"[A-Za-z0-9_./:=,+@\[\]][A-Za-z0-9_./:=,+@\[\]-]{0,199}")
"""A part of a case's id. No word looks like a flag."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """A comment that requests a run, from GitHub's event."""

    number: int
    """Number of the pull request."""
    comment_id: int
    """Id of the comment."""
    login: str
    """Who wrote it."""
    body: str
    """Its whole text."""
    created_at: datetime
    """When it was written."""

    @property
    def line(self) -> str:
        """Return the command, as it was written."""
        return _first_line(self.body)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the filters, unchecked."""
        match = _LINE.fullmatch(self.line)
        return tuple((match["words"] or "").split(" ")) if match and match["words"] else ()

    @property
    def filters(self) -> tuple[str, ...] | None:
        """Return the filters; `None` if a word cannot be one, or if there are too many."""
        words = tuple(word for word in self.words if word)
        return words if len(words) <= MOST_WORDS and all(map(_WORD.fullmatch, words)) else None


def read_request(environ: Mapping[str, str]) -> RunRequest | None:
    """Return the request in the event; `None` if the event is anything else.

    Only a new comment of a person counts, and only on a pull request. Raises `NotOnGitHub` outside
    of a workflow on comments, and `GitHubOdd`.
    """
    if environ.get("GITHUB_EVENT_NAME") != COMMENT:
        raise NotOnGitHub(f"answer-request is for workflows on `{COMMENT}`")
    event = read_event(environ)
    comment, number = event.inner("comment") or ApiRecord({}), event.number("issue", "number")
    comment_id, login, body = (
        comment.number("id"),
        comment.text("user", "login"),
        comment.text("body") or "",
    )
    ours = event.text("action") == "created" and event.inner("issue", "pull_request") is not None
    if not ours or comment.text("user", "type") != "User" or not _LINE.fullmatch(_first_line(body)):
        return None
    if number is None or comment_id is None or login is None:
        return None
    return RunRequest(
        number=number, comment_id=comment_id, login=login, body=body, created_at=moment(comment)
    )


def is_unchanged(client: Client, request: RunRequest) -> bool | None:
    """Return whether the comment is as it was written; `None` if it was deleted.

    Raises `GitHubFailed`.
    """
    try:
        now = client.get(f"issues/comments/{request.comment_id}")
    except GitHubMissing:
        return None
    same = now.text("body") == request.body and now.text("user", "login") == request.login
    return same and moment(now) == moment(now, "updated_at") == request.created_at


def _first_line(body: str) -> str:
    return body.partition("\n")[0].removesuffix("\r").rstrip(" ")
