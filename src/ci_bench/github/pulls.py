"""The pull request that a run is for, as GitHub tells; never by a number out of an artifact, where a fork could write any."""

import logging
from dataclasses import dataclass

from ci_bench.errors import GitHubMissing
from ci_bench.github.client import Client
from ci_bench.github.context import Context
from ci_bench.github.fields import Record

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PullRequest:
    """An open or closed pull request of this repository. `base_branch` is what it wants to get into."""

    number: int
    base_branch: str
    base_sha: str
    from_fork: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPullRequest:
    """That there is none to comment on, and why; not `answered` where GitHub could not be asked."""

    reason: str
    answered: bool = True


def find_pull(client: Client, context: Context) -> PullRequest | NoPullRequest:
    """The pull request whose head is the measured commit. Raises `GitHubFailed`.

    An event of a pull request names it. Otherwise it is looked for by the branch that the commit came from, and has to be the
    only open one that is at this very commit: one that has moved on is none of this run's business.
    """
    if context.pull_number is not None:
        try:
            return _pull(client.get(f"pulls/{context.pull_number}"), context)
        except GitHubMissing as error:
            return NoPullRequest(reason=str(error))
    head = context.head
    if head.owner is None or head.branch is None:
        return NoPullRequest(reason="the repository or branch that the commit came from is gone, or the run is for no branch")
    listing = client.pages("pulls", {"head": f"{head.owner}:{head.branch}", "state": "open"})
    fitting = [record for record in Record.each(listing.items) if _fits(record, context)]
    if len(fitting) == 1:
        return _pull(fitting[0], context)
    found = f"{len(fitting)} open pull requests have" if fitting else "no open pull request has"
    return NoPullRequest(reason=f"{found} {head.owner}:{head.branch} at {head.sha[:12]} as its head")


def _fits(record: Record, context: Context) -> bool:
    """Whether a pull request is about this very commit, out of the repository that the run says, into ours."""
    head = context.head
    same_source = record.number("head", "repo", "id") == head.repository_id
    into_ours = record.number("base", "repo", "id") == context.repository_id or context.repository_id is None
    return record.text("head", "sha") == head.sha and record.text("head", "ref") == head.branch and same_source and into_ours


def _pull(record: Record, context: Context) -> PullRequest:
    source = record.number("head", "repo", "id")
    own = context.repository_id if context.repository_id is not None else record.number("base", "repo", "id")
    return PullRequest(
        number=record.need_number("number"),
        base_branch=record.need_text("base", "ref"),
        base_sha=record.need_text("base", "sha"),
        from_fork=source is None or source != own,
    )
