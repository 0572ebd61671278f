"""A commit status: what is left of a check where check runs are not allowed. Posting it again does no harm."""

from dataclasses import dataclass
from enum import StrEnum

from ci_bench.github.client import Client
from ci_bench.github.clipping import clipped_line
from ci_bench.github.outcomes import Outcome, State

PART = "status"
DESCRIPTION_LIMIT = 140


class StatusState(StrEnum):
    """GitHub's words for a commit status."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """A commit status under a `context`, the name that a branch's protection can require."""

    context: str
    head_sha: str
    state: StatusState
    description: str
    target_url: str | None = None


def publish_status(client: Client, status: Status) -> Outcome:
    """Set the status. Raises `GitHubFailed`."""
    body = {
        "state": status.state.value,
        "context": status.context,
        "description": clipped_line(status.description, DESCRIPTION_LIMIT),
        **({"target_url": status.target_url} if status.target_url else {}),
    }
    client.write("POST", f"statuses/{status.head_sha}", body, seek=lambda: None)  # sent twice, it says the same
    return Outcome(part=PART, state=State.DONE, detail="the commit status is set", url=status.target_url)
