"""The calibration document: what past runs of unchanged code taught about the noise of one machine.

Owns the values and the checks that a schema cannot express. `judge.times.calibration` derives
figures from them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from ci_bench.records.faults import Fault, not_moments, twice
from ci_bench.records.forms import (
    ArmName,
    Bounds,
    CaseId,
    Count,
    Facts,
    Fingerprint,
    MetricName,
    Moment,
    NonNegative,
    RunId,
    ToolVersion,
)

LARGEST_RATIO = 20.0
"""A log-ratio beyond this (a factor of 5e8) was never measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PastRun:
    """A run of unchanged code against itself, or a gate."""

    id: RunId
    """Identifies the run."""
    at: Moment
    """Start of the run: ISO 8601, in UTC."""
    gate: bool = False
    """Whether it is a gate: only the first launch of each metric is kept, and counts for less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PastSeries:
    """The launches of one metric of one arm of one case, oldest first.

    The three lists belong together.
    """

    case: CaseId
    """Stable text: cases of two runs are the same case if their ids are equal."""
    metric: MetricName
    """The name of a series of samples."""
    arm: ArmName
    """The measured arm."""
    ratios: Annotated[tuple[float, ...], Bounds(max_items=200)]
    """Logarithms of head over base; above zero, head was worse."""
    within: Annotated[tuple[NonNegative | None, ...], Bounds(max_items=200)]
    """The spread inside each launch; `None` if it has only one value."""
    runs: Annotated[tuple[Count, ...], Bounds(max_items=200)]
    """The index of each launch's run in the list of runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Knowledge of one machine from runs of unchanged code, and gates."""

    kind: Literal["calibration"] = "calibration"
    """The kind of document."""
    schema_version: Literal[1] = 1
    """The version of this schema."""
    tool_version: ToolVersion
    """The version of ci-bench that wrote the document."""
    fingerprint: Fingerprint
    """The digest of the identity."""
    identity: Facts
    """The machine: the properties that decide whether its noise applies to another run."""
    runs: Annotated[tuple[PastRun, ...], Bounds(max_items=1000)]
    """The runs of unchanged code, oldest first."""
    series: Annotated[tuple[PastSeries, ...], Bounds(max_items=100_000)]
    """The past launches of each metric."""


def calibration_faults(calibration: Calibration) -> Iterator[Fault]:
    """Yield faults beyond the schema.

    They are duplicate names, lists of unequal length, missing runs, and ratios that were not
    measured.
    """
    yield from twice("$.runs", [run.id for run in calibration.runs])
    yield from not_moments("$.runs", [run.at for run in calibration.runs])
    yield from twice(
        "$.series", [(past.case, past.metric, past.arm) for past in calibration.series]
    )
    for index, series in enumerate(calibration.series):
        yield from _series_faults(f"$.series[{index}]", series, len(calibration.runs))


def _series_faults(path: str, series: PastSeries, runs: int) -> Iterator[Fault]:
    sizes = (len(series.ratios), len(series.within), len(series.runs))
    if len(set(sizes)) > 1:
        yield Fault(
            path,
            f"{sizes[0]} ratios, {sizes[1]} within and {sizes[2]} runs: the lists belong together",
        )
    if any(abs(ratio) > LARGEST_RATIO for ratio in series.ratios):
        yield Fault(
            f"{path}.ratios",
            f"holds a ratio beyond {LARGEST_RATIO:g}, too large for a measured logarithm",
        )
    if any(spread is not None and spread > LARGEST_RATIO for spread in series.within):
        yield Fault(
            f"{path}.within",
            f"holds a spread beyond {LARGEST_RATIO:g}, too large for a measured logarithm",
        )
    if any(run >= runs for run in series.runs):
        yield Fault(f"{path}.runs", f"names a run that is not one of the {runs} in $.runs")
    if any(later < earlier for earlier, later in zip(series.runs, series.runs[1:], strict=False)):
        yield Fault(f"{path}.runs", "is not in the order of $.runs")
