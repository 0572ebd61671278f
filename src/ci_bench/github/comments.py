"""The one sticky comment of a pull request: searched on all pages, written, and kept unique.

A comment is ours if its hidden first line says so and its author is ours, since anyone can paste
such a line:

``<!-- ci-bench:v1 key=default run=17 attempt=1 head=0123…cdef -->``

Its values are of a fixed alphabet, which cannot end the HTML comment. The comment of a newer run is
kept. List and create cannot be one step, so two jobs that write simultaneously may make two; after
writing, each looks again and both settle on the oldest comment with the newest text.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ci_bench.errors import BadInput, GitHubInvalid, GitHubMissing, GitHubOdd
from ci_bench.github.client import Client
from ci_bench.github.clipping import clipped, utf16_units
from ci_bench.github.context import RunId
from ci_bench.github.outcomes import PublishOutcome, State
from ci_bench.github.server import ApiRecord

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MARKER = re.compile(
    r"<!-- ci-bench:v1 key=(?P<key>[A-Za-z0-9][A-Za-z0-9._-]{0,63}) run=(?P<run>[0-9]{1,18})"
    r" attempt=(?P<attempt>[0-9]{1,6})"
    r" head=(?P<head>[0-9a-f]{40,64}) -->"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Marker:
    """Identity of a comment: its gate, run and commit.

    One repository may have several gates, with one `key` each.

    Raises `BadInput` if the key has other letters than it may.
    """

    key: str
    run: RunId
    head: str

    def __post_init__(self) -> None:
        """Check the key: one with a space or ``-->`` in it could not be read back."""
        if not KEY.fullmatch(self.key):
            raise BadInput(
                f"the key is {self.key!r:.80}; it takes letters, digits, `.`, `_` and `-`, 64 at"
                " most"
            )

    def __str__(self) -> str:
        """Return the line."""
        return (
            f"<!-- ci-bench:v1 key={self.key} run={self.run.id} attempt={self.run.attempt}"
            f" head={self.head} -->"
        )


def read_marker(body: str) -> Marker | None:
    """Return the marker in a comment's first line."""
    match = _MARKER.fullmatch(body.partition("\n")[0].strip())
    if match is None:
        return None
    run = RunId(id=int(match["run"]), attempt=int(match["attempt"]))
    return Marker(key=match["key"], run=run, head=match["head"])


logger = logging.getLogger(__name__)

PART = "comment"
ACTIONS_BOT = "github-actions[bot]"
"""The author of what the job's own token writes, as REST names it."""
LIMIT = 65_536
"""GitHub's limit on a comment, in characters; it does not say which, so UTF-16 units are counted,
the larger number.
"""
_SHORT = 30_000
_SETTLE_S = 1.0
_ROUNDS = 3


class CommentMode(StrEnum):
    """Conditions for a comment.

    Always; if something changed, or if there is a comment to update; never.
    """

    ALWAYS = "always"
    ON_CHANGE = "on-change"
    NEVER = "never"


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """A comment of ours."""

    id: int
    marker: Marker
    author: str
    url: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sticky:
    """The comment to write."""

    number: int
    """Number of the pull request."""
    marker: Marker
    """Its identity."""
    text: str
    """The whole comment; its first line is the marker."""
    author: str = ACTIONS_BOT
    """The login that the token writes as, ``my-app[bot]`` for an app."""
    mode: CommentMode = CommentMode.ALWAYS
    """The condition for writing it."""
    changed: bool = True
    """Whether there is a change to report, for `CommentMode.ON_CHANGE`."""


def publish_comment(client: Client, sticky: Sticky) -> PublishOutcome:
    """Write the comment, or say why not.

    Raises `GitHubFailed`.
    """
    if sticky.mode is CommentMode.NEVER:
        return PublishOutcome(part=PART, state=State.SKIPPED, detail="comments are turned off")
    comments = find_own(client, sticky, {sticky.author})
    if any(comment.marker.run > sticky.marker.run for comment in comments):
        return _superseded(comments)
    if not comments and sticky.mode is CommentMode.ON_CHANGE and not sticky.changed:
        return PublishOutcome(part=PART, state=State.SKIPPED, detail="nothing changed")
    written = _write(client, sticky, comments)
    return _settle(client, sticky, written)


def find_own(client: Client, sticky: Sticky, authors: set[str]) -> list[Own]:
    """Return our comments with this key, the oldest first.

    Raises `GitHubOdd` if there are more comments than are read.
    """
    listing = client.pages(f"issues/{sticky.number}/comments")
    if not listing.complete:
        raise GitHubOdd(
            f"pull request {sticky.number} has too many comments to search; cannot determine"
            " whether ours exists"
        )
    names = {author.casefold() for author in authors}
    candidates = (_parse_comment(record) for record in ApiRecord.each(listing.items))
    comments = [
        comment
        for comment in candidates
        if comment is not None
        and comment.marker.key == sticky.marker.key
        and comment.author.casefold() in names
    ]
    return sorted(comments, key=lambda comment: comment.id)


def _parse_comment(record: ApiRecord) -> Own | None:
    marker, author, number = (
        read_marker(record.text("body") or ""),
        record.text("user", "login"),
        record.number("id"),
    )
    if marker is None or author is None or number is None:
        return None
    return Own(id=number, marker=marker, author=author, url=record.text("html_url"))


def _superseded(comments: Sequence[Own]) -> PublishOutcome:
    newest = max(comments, key=lambda comment: comment.marker.run)
    detail = (
        f"run {newest.marker.run.id}, attempt {newest.marker.run.attempt}, is newer and has"
        " commented already"
    )
    return PublishOutcome(part=PART, state=State.SKIPPED, detail=detail, url=newest.url)


def _write(client: Client, sticky: Sticky, comments: Sequence[Own]) -> Own:
    """Update the oldest of our comments that is still there, or create one."""
    for comment in comments:
        try:
            return _put(client, sticky, "PATCH", f"issues/comments/{comment.id}")
        except GitHubMissing:
            logger.info("comment %d was deleted meanwhile", comment.id)
    return _put(client, sticky, "POST", f"issues/{sticky.number}/comments")


def _put(client: Client, sticky: Sticky, method: str, path: str) -> Own:
    """Write the text; once more and shorter, should GitHub count differently."""

    def landed() -> ApiRecord | None:
        listing = client.pages(f"issues/{sticky.number}/comments")
        marker = str(sticky.marker)
        return next(
            (
                record
                for record in ApiRecord.each(listing.items)
                if _is_ours(record, marker, sticky.author)
            ),
            None,
        )

    seek = landed if method == "POST" else None
    text = clipped(sticky.text, LIMIT, utf16_units)
    try:
        record = client.write(method, path, {"body": text}, seek=seek)
    except GitHubInvalid as error:
        if "too long" not in str(error):
            raise
        record = client.write(
            method, path, {"body": clipped(sticky.text, _SHORT, utf16_units)}, seek=seek
        )
    author = record.text("user", "login") or sticky.author
    return Own(
        id=record.need_number("id"),
        marker=sticky.marker,
        author=author,
        url=record.text("html_url"),
    )


def _is_ours(record: ApiRecord, marker: str, author: str) -> bool:
    is_author = (record.text("user", "login") or "").casefold() == author.casefold()
    return is_author and (record.text("body") or "").partition("\n")[0].strip() == marker


def _settle(client: Client, sticky: Sticky, written: Own) -> PublishOutcome:
    """Look again until there is one comment of ours, with the newest text.

    GitHub's answer names the token's user, so a wrong `author` makes one comment too many for a
    moment, not for ever.
    """
    if written.author.casefold() != sticky.author.casefold():
        logger.warning(
            "this token comments as %s, not as %s; set the comment's author to it",
            written.author,
            sticky.author,
        )
    for _ in range(_ROUNDS):
        client.clock.sleep(_SETTLE_S * (1.0 + client.clock.chance()))
        comments = find_own(client, sticky, {written.author})
        newest = max((comment.marker.run for comment in comments), default=sticky.marker.run)
        if newest > sticky.marker.run:
            _withdraw(client, sticky, comments)
            return _superseded(comments)
        if len(comments) == 1 and comments[0].marker.run == sticky.marker.run:
            return PublishOutcome(
                part=PART, state=State.DONE, detail="the comment is up to date", url=comments[0].url
            )
        _merge(client, sticky, comments)
    return PublishOutcome(
        part=PART,
        state=State.DONE,
        detail="written, while others were writing too",
        url=written.url,
    )


def _withdraw(client: Client, sticky: Sticky, comments: Sequence[Own]) -> None:
    """Delete our comments after the oldest one, because a newer run has written as well.

    The newer run makes the oldest comment its own. Both delete by the same rule, so they can't
    delete each other's.
    """
    for comment in comments[1:]:
        if comment.marker.run == sticky.marker.run:
            client.delete(f"issues/comments/{comment.id}")


def _merge(client: Client, sticky: Sticky, comments: Sequence[Own]) -> None:
    """Keep the oldest with our text and delete the others; write it again if all are gone."""
    if not comments or comments[0].marker.run < sticky.marker.run:
        _write(client, sticky, comments[:1])
    for comment in comments[1:]:
        client.delete(f"issues/comments/{comment.id}")
