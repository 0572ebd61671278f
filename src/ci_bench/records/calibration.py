"""The calibration document: what past runs of unchanged code taught about the noise of one machine.

Owns the values and the checks that a schema cannot express. `judge.times.calibration` derives
figures from them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ci_bench.records.faults import Fault, not_moments, twice
from ci_bench.records.results import Fact

LARGEST_RATIO = 20.0
"""A log-ratio beyond this (a factor of 5e8) was never measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PastRun:
    """A run of unchanged code against itself: its id, and when it began (ISO 8601, UTC).

    Of a `gate`, base and head are other commits, and only the first launch of each metric is kept.
    """

    id: str
    at: str
    gate: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PastSeries:
    """The launches of one metric of one arm of one case, oldest first; the three lists belong together.

    `ratios` are logarithms of head over base, so head was worse above zero; `within` is the spread
    inside the launch (`None` if it has one value only); `runs` are places in `Calibration.runs`.
    """

    case: str
    metric: str
    arm: str
    ratios: tuple[float, ...]
    within: tuple[float | None, ...]
    runs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Knowledge of one machine from runs of unchanged code, and gates.

    `fingerprint` is the digest of its `identity`.
    """

    kind: Literal["calibration"] = "calibration"
    schema_version: Literal[1] = 1
    tool_version: str
    fingerprint: str
    identity: Mapping[str, Fact]
    runs: tuple[PastRun, ...]
    series: tuple[PastSeries, ...]


def calibration_faults(calibration: Calibration) -> Iterator[Fault]:
    """Yield faults beyond the schema.

    They are duplicate names, lists of unequal length, missing runs, and ratios that were not
    measured.
    """
    yield from twice("$.runs", [run.id for run in calibration.runs])
    yield from not_moments("$.runs", [run.at for run in calibration.runs])
    yield from twice("$.series", [(one.case, one.metric, one.arm) for one in calibration.series])
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
