"""What is said of a run as a whole, in plain lines for any renderer: how it was measured, how noisy it is, how all times moved.

Owns the choice of what is worth saying first. The lines hold text from the document, so renderers have to escape them.
"""

from statistics import median

from ci_bench.records.case import Unit
from ci_bench.records.comparison import BaselineMode, Comparison, MeanSpeedup, Pair, Pairing, Verdict
from ci_bench.records.policy import Severity
from ci_bench.report.text import percent
from ci_bench.report.words import fine

_TIMES = {Unit.SECONDS, Unit.PER_SECOND}
_NOISY = 1.1
_OTHER_MOMENT = "which is weaker than a paired one: times have to differ by more than two moments do."
_WEAKER = {
    BaselineMode.FILE: f"The baseline is an earlier run, {_OTHER_MOMENT}",
    BaselineMode.ARTIFACT: f"The baseline is an earlier run's artifact, {_OTHER_MOMENT}",
}


def summary(comparison: Comparison) -> list[str]:
    """The lines under the headline; none for a run without anything to say of it as a whole."""
    told = {finding.message for finding in comparison.judgement.findings if finding.severity is not Severity.NOTE}
    moved = [shift for shift in comparison.shifts if shift.verdict is not Verdict.UNCHANGED]
    lines = [shift.reason for shift in moved if shift.reason not in told]
    if comparison.mode in _WEAKER and comparison.base is not None and not comparison.mismatches:
        lines.append(_WEAKER[comparison.mode])
    if comparison.mode is BaselineMode.PAIRED and comparison.pairing is not None:
        lines += _paired(comparison, comparison.pairing)
    return lines


def _paired(comparison: Comparison, pairing: Pairing) -> list[str]:
    times = [pair for case in comparison.cases for pair in case.pairs if pair.unit in _TIMES and not pair.detail]
    lines = [_mean(pairing.mean)] if pairing.mean else []
    lines += [line for line in (_noise_floor(times, pairing), _uncalibrated(times)) if line]
    return [*lines, f"Calibration: {pairing.calibration}."]


def _mean(mean: MeanSpeedup) -> str:
    growth = 1 / mean.speedup - 1
    words = f"{fine(abs(growth))} {'slower' if growth > 0 else 'faster'}" if growth else "no change"
    spread = "" if mean.interval is None else f" ({_change(mean)})"
    several = "time" if mean.metrics == 1 else "times"
    return f"Geometric mean over the {mean.metrics:,} gating {several} of this run: {words}{spread}."


def _change(mean: MeanSpeedup) -> str:
    """The interval of the change, from that of the speedup."""
    assert mean.interval is not None  # noqa: S101 - only a bug of ours breaks it
    ends = sorted(1 / end - 1 for end in (mean.interval.low, mean.interval.high))
    low, high = (f"{'+' if end > 0 else '−' if end < 0 else ''}{fine(abs(end))}" for end in ends)
    return f"{percent(mean.interval.level)} interval {low} to {high}"


def _noise_floor(times: list[Pair], pairing: Pairing) -> str:
    """``Noise floor: 0.57 % from launch to launch; a change of 2.2 % would have been found (medians, up to 6 launches).``."""
    noise = [pair.noise for pair in times if pair.noise is not None]
    told = [pair.resolvable for pair in times if pair.resolvable is not None]
    parts = [f"{fine(median(noise))} from launch to launch"] if noise else []
    parts += [f"a change of {fine(median(told))} would be found 9 times in 10"] if told else []
    if not parts:
        return ""
    launches = f"up to {pairing.launches:,} launch{'' if pairing.launches == 1 else 'es'}"
    today = f"; today {pairing.inflation:.1f} times as noisy" if (pairing.inflation or 1) >= _NOISY else ""
    return f"Noise floor: {'; '.join(parts)} (medians, {launches}){today}."


def _uncalibrated(times: list[Pair]) -> str:
    cold = sum(pair.calibrated is False for pair in times)
    return f"Uncalibrated: {cold:,} of {len(times):,} times have no history, and took more launches to judge." if cold else ""
