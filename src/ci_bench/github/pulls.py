"""Open pull requests that a run is for, from GitHub's records.

Never by a number out of an artifact, where a fork could write any.
"""

import logging
from dataclasses import dataclass, field

from ci_bench.errors import GitHubMissing
from ci_bench.github.client import Client
from ci_bench.github.context import EventContext
from ci_bench.github.server import ApiRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PullRequest:
    """An open pull request of this repository."""

    number: int
    """Its number."""
    base_branch: str
    """The branch that it is to be merged into."""
    base_sha: str
    """The commit of that branch, by GitHub's record of the pull request."""
    from_fork: bool
    """Whether its commits are in another repository, or in a deleted one."""
    merge_sha: str | None = field(default=None, compare=False)
    """GitHub's newest test merge of it; `None` if GitHub has not made one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPullRequest:
    """The reason why there is nothing to comment on.

    Not `answered` if GitHub could not be asked.
    """

    reason: str
    answered: bool = True


def find_pulls(client: Client, context: EventContext) -> tuple[PullRequest, ...] | NoPullRequest:
    """Return the open pull requests whose head is the measured commit, the event's own first.

    Several may have the same head, for example one branch into two others. Each of them is at this
    very commit, from the repository that the run names; closed ones, or those that have moved on,
    are ignored. Raises `GitHubFailed`.
    """
    number = context.pull_number
    if number is not None:
        try:
            record = client.get(f"pulls/{number}")
        except GitHubMissing as error:
            return NoPullRequest(reason=str(error))
        if record.text("state") != "open":
            return NoPullRequest(reason=f"pull request {number} is closed")
        if record.text("head", "sha") != context.head.sha:
            return NoPullRequest(
                reason=(
                    f"pull request {number} has moved on to another commit than"
                    f" {context.head.sha[:12]}"
                )
            )
        others = [pull for pull in _find_matching(client, context) if pull.number != number]
        return (_pull(record, context), *others)
    head = context.head
    if head.owner is None or head.branch is None:
        return NoPullRequest(
            reason=(
                "the repository or branch that the commit came from is gone, or the run is for no"
                " branch"
            )
        )
    reason = f"no open pull request has {head.owner}:{head.branch} at {head.sha[:12]} as its head"
    return tuple(_find_matching(client, context)) or NoPullRequest(reason=reason)


def _find_matching(client: Client, context: EventContext) -> list[PullRequest]:
    head = context.head
    if head.owner is None or head.branch is None:
        return []
    listing = client.pages("pulls", {"head": f"{head.owner}:{head.branch}", "state": "open"})
    pulls = [
        _pull(record, context) for record in ApiRecord.each(listing.items) if _fits(record, context)
    ]
    return sorted(pulls, key=lambda pull: pull.number)


def _fits(record: ApiRecord, context: EventContext) -> bool:
    """Return whether a pull request is at this very commit, from the run's repository to ours."""
    head = context.head
    same_source = record.number("head", "repo", "id") == head.repository_id
    into_ours = (
        record.number("base", "repo", "id") == context.repository_id
        or context.repository_id is None
    )
    return (
        record.text("head", "sha") == head.sha
        and record.text("head", "ref") == head.branch
        and same_source
        and into_ours
    )


def _pull(record: ApiRecord, context: EventContext) -> PullRequest:
    source = record.number("head", "repo", "id")
    repository_id = (
        context.repository_id
        if context.repository_id is not None
        else record.number("base", "repo", "id")
    )
    return PullRequest(
        number=record.need_number("number"),
        base_branch=record.need_text("base", "ref"),
        base_sha=record.need_text("base", "sha"),
        from_fork=source is None or source != repository_id,
        merge_sha=record.text("merge_commit_sha"),
    )
