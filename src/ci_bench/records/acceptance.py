"""Intended changes of a pull request: an entry of ``ci-bench-accepted.yml``, and who made it count.

Owns values only. `ci_bench.configuration.accepting` reads and writes the file,
`judge.policy.accepting` applies entries, and `commands.trusted.granting` decides which of them
count.
"""

from dataclasses import dataclass
from enum import StrEnum


class Accepted(StrEnum):
    """Kind of change that an entry accepts. The values are the file's sections."""

    METRIC = "metrics"
    OUTPUTS = "outputs"
    LEARNING = "learning"


class Direction(StrEnum):
    """Direction in which a metric's value moves."""

    HIGHER = "higher"
    LOWER = "lower"


ANY = "any"
"""The bound of outputs without a size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedChange:
    """One entry. Only the pattern of cases may have a wildcard, never the kind or the metric."""

    kind: Accepted
    """Section of the file: a metric, outputs, or learning."""
    case: str
    """Id of a case, or a pattern of ids."""
    bound: float | str
    """Head's largest value, a share of base's (``6%``), a multiple of rounding, or `ANY`."""
    reason: str
    """Why the change is intended."""
    author: str
    """Who wrote the entry, as information."""
    pull_request: int
    """The only pull request that the entry counts for."""
    expires: str
    """The last day that it counts (ISO 8601)."""
    metric: str | None = None
    """Name of the metric; only for a metric."""
    direction: Direction | None = None
    """Only for a metric."""

    @property
    def share(self) -> float | None:
        """Return the bound as a share of base's value, or `None` if it is a number."""
        text = self.bound if isinstance(self.bound, str) and self.bound != ANY else None
        return None if text is None else float(text.removesuffix("%")) / 100

    @property
    def number(self) -> float | None:
        """Return the bound as a number, or `None` if it is a share or a word."""
        return None if isinstance(self.bound, str) else float(self.bound)

    @property
    def subject(self) -> str:
        """Describe what the entry is for: ``step_time of functions/smooth*``."""
        return f"{self.metric or self.kind.value} of {self.case}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """An entry that counts for the judged run.

    `granted` says in words by whom. One that has `expired` accepts nothing, and is reported.
    """

    change: AcceptedChange
    granted: str
    expired: bool = False
