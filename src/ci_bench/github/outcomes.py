"""Results of publishing, as values, since a missing permission may be expected.

The exit code follows from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ci_bench.errors import ExitCode, GitHubClosed, GitHubFailed, GitHubRefused


class State(StrEnum):
    """State of a publication. Nothing of it hides the verdict.

    `closed` is a place that takes no writing, such as a locked conversation; `refused` is a missing
    permission; `failed` is anything else that went wrong.
    """

    DONE = "done"
    SKIPPED = "skipped"
    CLOSED = "closed"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishOutcome:
    """Result of one `part` (``comment``, ``check``); `url` is its page for readers."""

    part: str
    state: State
    detail: str
    url: str | None = None


def attempt(part: str, publish: Callable[[], PublishOutcome]) -> PublishOutcome:
    """Publish one part; what GitHub has against it becomes its outcome."""
    try:
        return publish()
    except GitHubClosed as error:
        return PublishOutcome(part=part, state=State.CLOSED, detail=str(error))
    except GitHubRefused as error:
        return PublishOutcome(part=part, state=State.REFUSED, detail=str(error))
    except GitHubFailed as error:
        return PublishOutcome(part=part, state=State.FAILED, detail=str(error))


def exit_code(verdict: int, outcomes: Sequence[PublishOutcome], *, read_only: bool) -> int:
    """Return the verdict's own code if it fails.

    A pass that was not published is `ExitCode.GITHUB`.

    `read_only` says that the token can't write and isn't meant to, as for a fork's pull request:
    then a refusal does not fail. Nor does a closed place, which the workflow cannot change.
    """
    excused = {State.DONE, State.SKIPPED, State.CLOSED} | ({State.REFUSED} if read_only else set())
    return verdict or (
        ExitCode.OK if all(outcome.state in excused for outcome in outcomes) else ExitCode.GITHUB
    )
