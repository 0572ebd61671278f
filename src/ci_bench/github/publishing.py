"""Telling a pull request: the comment and the check, each with its own outcome, whatever becomes of the other."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from ci_bench.github import checks, comments
from ci_bench.github.checks import STATES, CheckRun, CheckStatus, StatusState
from ci_bench.github.client import Client
from ci_bench.github.comments import Sticky
from ci_bench.github.outcomes import PublishOutcome, State, attempt


class CheckMode(StrEnum):
    """Mark on the commit.

    It is a check run or, if that is not allowed, a commit status; only one of the two; or none.
    """

    AUTO = "auto"
    CHECK_RUN = "check-run"
    STATUS = "status"
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """Data to publish: the check, and a `sticky` comment on each pull request.

    `no_comment` is the reason for a missing comment.
    """

    check: CheckRun
    check_mode: CheckMode = CheckMode.AUTO
    sticky: tuple[Sticky, ...] = ()
    no_comment: PublishOutcome | None = None


def publish(client: Client, publication: Publication) -> tuple[PublishOutcome, ...]:
    """Write the check first: it is what can be required. Never raises `GitHubFailed`."""
    outcomes = [_mark(client, publication)]
    outcomes += [attempt(comments.PART, partial(comments.publish_comment, client, one)) for one in publication.sticky]
    if publication.no_comment is not None:
        outcomes.append(publication.no_comment)
    return tuple(outcomes)


def _mark(client: Client, publication: Publication) -> PublishOutcome:
    check, mode = publication.check, publication.check_mode
    if mode is CheckMode.NONE:
        return PublishOutcome(part=checks.PART, state=State.SKIPPED, detail="checks are turned off")
    if mode is not CheckMode.STATUS:
        marked = attempt(checks.PART, lambda: checks.publish_check(client, check))
        if mode is CheckMode.CHECK_RUN or marked.state is not State.REFUSED:
            return marked
    return attempt(checks.STATUS_PART, lambda: checks.publish_status(client, status_of(check)))


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
