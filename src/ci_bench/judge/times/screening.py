"""Times of two runs of different moments: their verdicts, and their common shift.

Owns the rule for sampled ratios against an earlier run. It screens: the intervals exclude
differences between the two times of measuring, so a small difference is never called a change
(docs/internals/adr/0005). A paired run is judged in `paired`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from ci_bench.judge import wording
from ci_bench.judge.times import ratios
from ci_bench.judge.times.pairing import (
    JudgedTimes,
    Line,
    MetricVerdict,
    oriented,
    single,
    undecided,
)
from ci_bench.judge.times.ratios import Known
from ci_bench.judge.times.suspicion import NoiseSource, Suspicion, suspicion_of_one
from ci_bench.records.comparison import CommonShift, Interval, Verdict
from ci_bench.records.metrics import COMPILATION
from ci_bench.records.results import Better, Unit
from ci_bench.statistics.special_functions import bdtr, ndtri

LEAST_TIMES = 5
"""A common shift cannot be estimated from fewer times of a suite."""

_ALPHA = 0.01
"""The chance that a case of unchanged code moves beyond its share of the drift, where moments
differ as `drift` says.
"""

_SHOWN_SHIFT = 0.005

Logs = tuple[float, float, float]
"""Low end, centre and high end of the logarithm of a speedup."""


def screen(lines: Sequence[Line], facts: Known, *, drift: float) -> JudgedTimes:
    """Judge lines by the ratio of their medians.

    `drift` is how far times move by themselves between two moments.

    The common shift of all times of a suite is removed first and judged separately: a slower moment
    must not fail single metrics, and a general slowdown must not vanish. Without drift nothing is
    removed. Latencies of compilation, of one value per launch, are excluded.
    """
    moved = ratios.ratios([oriented(line.base[0], line.head[0]) for line in lines], facts)
    sharing = [
        line.timed and not (single(line.base[0], facts) or single(line.head[0], facts))
        for line in lines
    ]
    shifts = _common_shifts(
        [of for of, shares in zip(zip(lines, moved, strict=True), sharing, strict=True) if shares],
        drift,
    )
    common = {suite: math.log(shift.speedup) for suite, shift in shifts.items()}
    gating = sum(not line.detail for line in lines)
    cases = len({line.case for line in lines if line.timed and not line.detail})
    outcomes = (
        _by_ratio(
            line,
            ratio,
            drift=shared_drift(drift, cases) if line.timed else 0.0,
            shift=common.get(line.suite, 0.0) if shares else 0.0,
            gating=gating,
        )
        for line, ratio, shares in zip(lines, moved, sharing, strict=True)
    )
    return JudgedTimes(outcomes=outcomes, shifts=tuple(shifts.values()))


def shared_drift(drift: float, cases: int) -> float:
    """Return how far the furthest of `cases` may move by chance; `drift` is the limit for one.

    A limit that one of normal values passes in 1 % of runs, one of fifty passes far more often:
    ``drift z(0.01 / cases) / z(0.01)``. The times of one case move together.
    """
    most = float(ndtri(1 - _ALPHA / max(cases, 1)) / ndtri(1 - _ALPHA))
    return math.expm1(math.log1p(drift) * most)


def _common_shifts(
    lines: Sequence[tuple[Line, ratios.Ratio]], drift: float
) -> dict[str, CommonShift]:
    """Return the median shift of each suite that has enough times, if moments drift at all.

    Details do not count: parts of a step would count twice.
    """
    by_suite: dict[str, list[tuple[float, float]]] = {}
    for line, ratio in lines:
        if ratio.value is not None and ratio.interval and not line.detail and drift > 0:
            by_suite.setdefault(line.suite, []).append((math.log(ratio.value), line.threshold))
    return {
        suite: _common_shift(suite, times, drift)
        for suite, times in by_suite.items()
        if len(times) >= LEAST_TIMES
    }


def _common_shift(suite: str, times: list[tuple[float, float]], drift: float) -> CommonShift:
    logs, threshold = sorted(log for log, _ in times), median(threshold for _, threshold in times)
    low, high, level = median_interval(logs)
    centre = median(logs)
    verdict = _ratio_verdict(
        (low, centre, high), math.log1p(threshold), math.log1p(max(threshold, drift))
    )
    speedup, interval = (
        math.exp(centre),
        Interval(low=math.exp(low), high=math.exp(high), level=level),
    )
    moved = wording.change(speedup, Unit.SECONDS, Better.LOWER)
    reason = f"suite {suite}: all {wording.count_of(len(logs), 'timing')} {moved}"
    if verdict is Verdict.INCONCLUSIVE:
        clear = (
            _ratio_verdict((low, centre, high), math.log1p(threshold), math.log1p(threshold))
            is not verdict
        )
        reason += f"; {_drift_text(drift) if clear else 'they do not agree on it'}"
    return CommonShift(
        suite=suite,
        verdict=verdict,
        reason=reason,
        metrics=len(logs),
        threshold=threshold,
        speedup=speedup,
        interval=interval,
    )


def median_interval(
    ordered: Sequence[float], level: float = ratios.LEVEL
) -> tuple[float, float, float]:
    """Return the distribution-free interval of a median from sorted values, and its true level.

    Between the k-th value from below and from above it misses with ``2 P(B < k)``, B binomial with
    n tries at 1/2; the narrowest that reaches `level`, or all of them where none does.
    https://en.wikipedia.org/wiki/Median#Confidence_intervals
    """
    size = len(ordered)
    rank = 0
    while 1 - 2 * bdtr(rank + 1, size, 0.5) >= level:
        rank += 1
    return ordered[rank], ordered[size - 1 - rank], float(max(1 - 2 * bdtr(rank, size, 0.5), 0.5))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Limits:
    """Limits of a ratio, as logarithms: a change is beyond `size`, unchanged is within `margin`."""

    margin: float
    size: float


@lru_cache(maxsize=1000)
def _limits(threshold: float, drift: float) -> _Limits:
    return _Limits(margin=math.log1p(threshold), size=math.log1p(max(threshold, drift)))


def _by_ratio(
    line: Line, ratio: ratios.Ratio, *, drift: float, shift: float, gating: int
) -> MetricVerdict:
    limits = _limits(line.threshold, drift)
    if ratio.value is None or ratio.interval is None:
        return _of_one_launch(line, ratio, limits.size, shift, gating)
    logs = (
        math.log(ratio.interval.low) - shift,
        math.log(ratio.value) - shift,
        math.log(ratio.interval.high) - shift,
    )
    verdict = _ratio_verdict(logs, limits.margin, limits.size)
    why = _why(verdict, logs, limits, line.threshold, drift)
    reason = f"{_describe_ratio(line, ratio, shift)}{why}"
    possible = verdict is Verdict.INCONCLUSIVE and not line.detail and _looks_worse(logs, limits)
    return MetricVerdict(
        verdict=verdict,
        reason=reason,
        speedup=ratio.value,
        interval=ratio.interval,
        possible=possible,
    )


def _looks_worse(logs: Logs, limits: _Limits) -> bool:
    """Return whether a ratio is worse beyond chance, the threshold and half of the drift.

    Chance is 95 %, two standard errors.
    """
    low_enough = -max(limits.margin, limits.size / 2)
    return logs[2] < 0 and logs[1] < low_enough


def _of_one_launch(
    line: Line, ratio: ratios.Ratio, size: float, shift: float, gating: int
) -> MetricVerdict:
    """Judge a line with too few launches on one side.

    Nothing is certain, but a change for the worse beyond any noise seen is suspected.
    """
    suspicion = Suspicion.NONE
    if ratio.value is not None and not line.detail:
        source = (
            NoiseSource.COMPILATION
            if line.metric.name.startswith(COMPILATION)
            else NoiseSource.RUNS
        )
        suspicion = suspicion_of_one(shift - math.log(ratio.value), size, source, gating=gating)
    change = (
        ""
        if ratio.value is None
        else wording.change(ratio.value, line.metric.unit, line.metric.better)
    )
    return undecided(suspicion, change=change, advice=ratio.reason, speedup=ratio.value)


def _describe_ratio(line: Line, ratio: ratios.Ratio, shift: float) -> str:
    assert ratio.value is not None  # noqa: S101 - only a bug of ours breaks it
    assert ratio.interval is not None  # noqa: S101 - likewise
    unit, better = line.metric.unit, line.metric.better
    figures = f"speedup {ratio.value:.3f}, {wording.interval_text(ratio.interval)}"
    text = f"{wording.change(ratio.value, unit, better)} ({figures})"
    if abs(math.expm1(shift)) < _SHOWN_SHIFT:
        return text
    rest = wording.change(math.exp(math.log(ratio.value) - shift), unit, better)
    return f"{text}; {rest} beyond what all times of {line.suite} share"


def _why(verdict: Verdict, logs: Logs, limits: _Limits, threshold: float, drift: float) -> str:
    limit = f"the threshold of {wording.percent(threshold)}"
    if verdict is Verdict.INCONCLUSIVE:
        drifted = _ratio_verdict(logs, limits.margin, limits.margin) is not Verdict.INCONCLUSIVE
        return f"; {_drift_text(drift) if drifted else _what_to_do(logs, limits.margin, limit)}"
    if drift > threshold and verdict is not Verdict.UNCHANGED:
        limit += f" and of the drift between two runs ({wording.percent(drift)})"
    return f", {'within' if verdict is Verdict.UNCHANGED else 'beyond'} {limit}"


def _ratio_verdict(logs: Logs, margin: float, size: float) -> Verdict:
    """Return the verdict on a ratio.

    A change needs evidence (the interval excludes 1) and size (the ratio is beyond `size`).
    Unchanged needs the entire interval inside the margin.
    """
    low, centre, high = logs
    if high < 0 and centre < -size:
        return Verdict.REGRESSED
    if low > 0 and centre > size:
        return Verdict.IMPROVED
    if -margin <= low and high <= margin:
        return Verdict.UNCHANGED
    return Verdict.INCONCLUSIVE


def _drift_text(drift: float) -> str:
    """Explain that the samples are clear, but of two moments."""
    return (
        f"times of unchanged code move by up to {wording.percent(drift)} between runs at different"
        " moments (policy.drift), so this may be the machine: measure both sides in turns"
        " (baseline: paired), or again, one right after the other"
    )


def _what_to_do(logs: Logs, margin: float, limit: str) -> str:
    """Describe the smallest detectable effect: half the interval, and at least the threshold."""
    resolvable = math.expm1(max(margin, (logs[2] - logs[0]) / 2))
    return (
        f"the interval reaches past {limit}; only changes above {wording.percent(resolvable)} would"
        " show: measure more launches, stop other work on this machine, or raise the threshold"
    )
