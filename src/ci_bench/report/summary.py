"""Summary of a run, for any renderer: its mode, its noise, how all times moved; and its badge.

Owns the choice of what is worth saying first. The lines hold text from the document, so renderers
have to escape them. The badge has the form that shields.io reads from an endpoint:
https://shields.io/badges/endpoint-badge
"""

from statistics import median

from ci_bench.records.comparison import (
    BaselineMode,
    Comparison,
    MeanSpeedup,
    Pair,
    Pairing,
    RunVerdict,
    Verdict,
    tally,
)
from ci_bench.records.config import Severity
from ci_bench.records.units import TIMES
from ci_bench.report.changes import is_telling, names_detectable
from ci_bench.report.rows import is_uncalibrated, labels, outcome_mood
from ci_bench.report.text import percent
from ci_bench.report.words import Mood, fine

_NOISY = 1.1
_NAMED = 5
_OTHER_MOMENT = "so only changes larger than the normal drift between runs count."
_WEAKER = {
    BaselineMode.FILE: f"The baseline is an earlier run, {_OTHER_MOMENT}",
    BaselineMode.ARTIFACT: f"The baseline is an earlier run's artifact, {_OTHER_MOMENT}",
}


def summary(comparison: Comparison) -> list[str]:
    """Return the lines under the headline; none if nothing is to report on the whole run."""
    messages = {
        finding.message
        for finding in comparison.judgement.findings
        if finding.severity is not Severity.NOTE
    }
    moved = [shift for shift in comparison.shifts if shift.verdict is not Verdict.UNCHANGED]
    lines = [shift.reason for shift in moved if shift.reason not in messages]
    if comparison.mode in _WEAKER and comparison.base is not None and not comparison.mismatches:
        lines.append(_WEAKER[comparison.mode])
    lines += _edited(comparison)
    lines += _decided(comparison)
    if comparison.mode is BaselineMode.PAIRED and comparison.pairing is not None:
        lines += _paired(comparison, comparison.pairing)
    return lines


def _edited(comparison: Comparison) -> list[str]:
    """Name the benchmarks whose own code differs: their changes may be the benchmark's."""
    names = labels(comparison)
    edited = [names[case.id] for case in comparison.cases if case.edited]
    more = f" and {len(edited) - _NAMED:,} more" if len(edited) > _NAMED else ""
    return [f"The benchmark itself changed: {', '.join(edited[:_NAMED])}{more}."] if edited else []


def _decided(comparison: Comparison) -> list[str]:
    """Describe how many gating metrics are decided, and the detectable change; empty without any.

    An example is ``9 of 12 gating metrics decided; slowdowns below about 2.2 % may go unnoticed.``
    The detectable change is left out if `rest` has it.
    """
    counted = tally(comparison.cases)
    if comparison.base is None or not counted.all:
        return []
    untold = is_telling(counted.resolution) and not names_detectable(comparison)
    sensitivity = (
        f"; slowdowns below about {fine(counted.resolution)} may go unnoticed" if untold else ""
    )
    metrics = f"{counted.all:,} gating metric{'' if counted.all == 1 else 's'}"
    return [f"{counted.decided:,} of {metrics} decided{sensitivity}."]


def _paired(comparison: Comparison, pairing: Pairing) -> list[str]:
    times = [
        pair
        for case in comparison.cases
        for pair in case.pairs
        if pair.unit in TIMES and not pair.detail
    ]
    is_said = is_uncalibrated(comparison) and pairing.calibration.startswith(("none", "not used"))
    new = () if is_said else (_uncalibrated(times),)
    lines = (
        _mean(pairing.mean),
        _devices(pairing),
        _lost(pairing),
        _noise_floor(times, pairing),
        *new,
    )
    return [*filter(None, lines), f"Calibration: {pairing.calibration}."]


def _mean(mean: MeanSpeedup | None) -> str:
    """Describe the mean over several times.

    It is empty for a single time, and for a single launch, which has no interval.
    """
    if mean is None or mean.metrics < 2 or mean.interval is None:  # noqa: PLR2004 - a mean takes two
        return ""
    growth = 1 / mean.speedup - 1
    words = f"{fine(abs(growth))} {'slower' if growth > 0 else 'faster'}" if growth else "no change"
    return f"Geometric mean over {mean.metrics:,} gating times: {words} ({_change(mean)})."


def _change(mean: MeanSpeedup) -> str:
    """Describe the interval of the change, from that of the speedup.

    It has no signs if the words before it have the direction.
    """
    assert mean.interval is not None  # noqa: S101 - only a bug of ours breaks it
    ends = sorted(1 / end - 1 for end in (mean.interval.low, mean.interval.high))
    if ends[0] * ends[1] > 0:
        low, high = map(fine, sorted(map(abs, ends)))
    else:
        low, high = (
            f"{'+' if end > 0 else '−' if end < 0 else ''}{fine(abs(end))}" for end in ends
        )
    return f"{percent(mean.interval.level)} interval {low} to {high}"


def _devices(pairing: Pairing) -> str:
    """Describe the number of devices: ``Measured on 3 identical devices, …``; empty for one."""
    if pairing.devices < 2:  # noqa: PLR2004 - what differs between devices takes two
        return ""
    return (
        f"Measured on {pairing.devices:,} identical devices; intervals include the variance between"
        " them."
    )


def _lost(pairing: Pairing) -> str:
    """Describe lost leases: ``3 leases of the fleet were lost …``; empty without any.

    The reasons are slots' own words, and stay in the document.
    """
    if not pairing.lost:
        return ""
    leases = (
        "1 lease of the fleet was"
        if pairing.lost == 1
        else f"{pairing.lost:,} leases of the fleet were"
    )
    return f"{leases} lost and retried (losses in results.json)."


def _noise_floor(times: list[Pair], pairing: Pairing) -> str:
    """Describe the noise.

    An example is ``Launch-to-launch noise 0.57 % (median, up to 6 launches).``
    """
    noise = [pair.noise for pair in times if pair.noise is not None]
    if not noise:
        return ""
    launches = f"up to {pairing.launches:,} launch{'' if pairing.launches == 1 else 'es'}"
    today = (
        f"; today {pairing.inflation:.1f}× the calibrated level"
        if (pairing.inflation or 1) >= _NOISY
        else ""
    )
    return f"Launch-to-launch noise {fine(median(noise))} (median, {launches}){today}."


def _uncalibrated(times: list[Pair]) -> str:
    cold = sum(pair.calibrated is False for pair in times)
    verb = "is" if cold == 1 else "are"
    words = f"{cold:,} of {len(times):,} timings {verb} uncalibrated and may need more launches."
    return words if cold else ""


_COLOURS = {
    Mood.BAD: "red",
    Mood.OPEN: "blueviolet",
    Mood.UNSURE: "yellow",
    Mood.GOOD: "brightgreen",
}


def badge(comparison: Comparison) -> dict[str, str | int | bool]:
    """Return the badge's document; red is also an error.

    An example is ``{"schemaVersion": 1, "label": "ci-bench", "message": "passing", "color":
    "brightgreen"}``.
    """
    mood = outcome_mood(comparison)
    failed = mood is Mood.BAD
    return {
        "schemaVersion": 1,
        "label": "ci-bench",
        "message": _message(comparison),
        "color": _COLOURS[mood],
        "isError": failed,
    }


def _message(comparison: Comparison) -> str:
    """Return the badge's message.

    It is ``2 regressed`` if cases are why the run failed, else ``failing``, ``3 of 12 undecided``
    or ``passing``.
    """
    findings = comparison.judgement.findings
    if comparison.judgement.verdict is RunVerdict.FAILED:
        cases = {
            finding.case
            for finding in findings
            if finding.severity is Severity.FAIL and finding.case is not None
        }
        regressed = [
            case
            for case in comparison.cases
            if case.id in cases and case.verdict is Verdict.REGRESSED
        ]
        if len(regressed) == len(cases) > 0:
            return f"{len(regressed):,} regressed"
        return f"{len(cases):,} failing" if cases else "failing"
    if comparison.judgement.verdict is RunVerdict.UNDECIDED:
        counted = tally(comparison.cases)
        return (
            f"{counted.undecided:,} of {counted.all:,} undecided"
            if counted.undecided
            else "undecided"
        )
    warned = sum(finding.severity is Severity.WARN for finding in findings)
    improved = sum(case.verdict is Verdict.IMPROVED for case in comparison.cases)
    if warned:
        return f"passing, {warned:,} warning{'' if warned == 1 else 's'}"
    return f"passing, {improved:,} improved" if improved else "passing"
