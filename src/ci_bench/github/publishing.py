"""Telling a pull request: the comment and the check, each with its own outcome, whatever becomes of the other."""

from dataclasses import dataclass
from functools import partial

from ci_bench.github import checks, comments
from ci_bench.github.checks import STATES, CheckRun, CheckStatus, StatusState
from ci_bench.github.client import Client
from ci_bench.github.comments import Sticky
from ci_bench.github.outcomes import PublishOutcome, State, attempt

NO_CHECK = "none is set: a person started this run, or another job reports"


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """Data to publish: the check, and a `sticky` comment on each pull request.

    `check` is `None` if none is to be set. `no_comment` is the reason for a missing comment.
    """

    check: CheckRun | None
    sticky: tuple[Sticky, ...] = ()
    no_comment: PublishOutcome | None = None


def publish(client: Client, publication: Publication) -> tuple[PublishOutcome, ...]:
    """Write the check first: it is what can be required. Never raises `GitHubFailed`."""
    outcomes = [_mark(client, publication.check)]
    outcomes += [attempt(comments.PART, partial(comments.publish_comment, client, one)) for one in publication.sticky]
    if publication.no_comment is not None:
        outcomes.append(publication.no_comment)
    return tuple(outcomes)


def _mark(client: Client, check: CheckRun | None) -> PublishOutcome:
    """Set the check run or, if the token may not, a commit status of its name."""
    if check is None:
        return PublishOutcome(part=checks.PART, state=State.SKIPPED, detail=NO_CHECK)
    marked = attempt(checks.PART, partial(checks.publish_check, client, check))
    if marked.state is not State.REFUSED:
        return marked
    return attempt(checks.STATUS_PART, partial(checks.publish_status, client, status_of(check)))


def status_of(check: CheckRun) -> CheckStatus:
    """Make the commit status that replaces a check. A re-run has a separate address."""
    url, attempt = check.details_url, check.run.attempt
    return CheckStatus(
        context=check.name,
        head_sha=check.head_sha,
        state=StatusState.PENDING if check.conclusion is None else STATES[check.conclusion],
        description=check.title,
        target_url=f"{url}/attempts/{attempt}" if url and attempt > 1 else url,
        report=check.report,
        restates=check.restates,
    )
