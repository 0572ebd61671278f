"""The judge's answer to the engine's one question: which series of a case need more launches, and how many would decide them."""

from collections.abc import Mapping
from dataclasses import dataclass

SeriesName = tuple[str, str]
"""The name and the arm of a metric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCase:
    """The metrics of a case that need more launches.

    `worse` is how many more launches would decide those that look changed for the worse; 0 where none does. Where a budget does
    not allow for all cases, they come first: one launch more tells little of them, all of these launches a verdict.
    """

    metrics: frozenset[SeriesName]
    worse: int = 0


def open_metrics(cases: Mapping[str, OpenCase] | None, case: str) -> frozenset[SeriesName]:
    """The open metrics of the case with this id; none where it is not open, or nobody was asked."""
    one = (cases or {}).get(case)
    return one.metrics if one else frozenset()
