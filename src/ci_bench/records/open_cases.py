"""Series of a case that need more launches, and how many would decide them."""

from collections.abc import Mapping
from dataclasses import dataclass

SeriesName = tuple[str, str]
"""The name and the arm of a metric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCase:
    """The metrics of a case that need more launches.

    `worse` is how many more launches would decide the metrics that look worse; 0 without any. If a
    budget does not allow for all cases, these come first: one more launch shows little, all of
    these launches give a verdict.
    """

    metrics: frozenset[SeriesName]
    worse: int = 0


def open_metrics(cases: Mapping[str, OpenCase] | None, case: str) -> frozenset[SeriesName]:
    """Return the open metrics of the case with this id.

    None if it is not open, or was not judged.
    """
    open_case = (cases or {}).get(case)
    return open_case.metrics if open_case else frozenset()
