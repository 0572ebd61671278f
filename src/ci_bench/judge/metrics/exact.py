"""The rules for what is counted, not sampled: numbers of things, and peaks of memory."""

from statistics import median

from ci_bench.judge import wording
from ci_bench.judge.cases.outcome import Outcome
from ci_bench.judge.statistics.ratios import LEAST_LAUNCHES
from ci_bench.judge.statistics.series import LARGEST, samples
from ci_bench.records.case import Better, Metric, Unit
from ci_bench.records.comparison import Verdict

LEAST_BYTES = 1024**2
"""Memory differences up to one MiB are never flagged: the allocator's own granularity (measurement of peaks)."""

_RANGES = 2.0


def by_count(base: Metric, head: Metric, threshold: float) -> Outcome:
    """Counts are exact: the worst value of any launch is compared, without statistics."""
    worst = max if head.better is Better.LOWER else min
    before, after = worst(samples(base.launches)), worst(samples(head.launches))
    speedup = _speedup(before, after, head.better)
    shown = wording.quantity(after, Unit.COUNT)
    reason = f"{wording.quantity(before, Unit.COUNT)} to {shown}"
    if max(before, after) <= min(before, after) * (1 + threshold):
        reason = f"{shown} on both sides" if before == after else f"{reason}, within the threshold"
        return Outcome(verdict=Verdict.UNCHANGED, reason=reason, speedup=speedup)
    return Outcome(verdict=_direction(before, after, head.better), reason=reason, speedup=speedup)


def by_memory(base: Metric, head: Metric, threshold: float) -> Outcome:
    """Peaks: exact where each side repeats exactly; otherwise beyond twice the range that a side shows by itself."""
    sides = [samples(metric.launches) for metric in (base, head)]
    before, after = (median(side) for side in sides)
    speedup = _speedup(before, after, head.better)
    if min(map(len, sides)) < LEAST_LAUNCHES:
        reason = "a peak of one launch may not repeat: measure at least 2 launches on each side"
        return Outcome(verdict=Verdict.INCONCLUSIVE, reason=reason, speedup=speedup)
    floor = max(float(LEAST_BYTES), threshold * min(before, after))
    noise = _RANGES * max(max(side) - min(side) for side in sides)
    reason = f"{wording.quantity(before, Unit.BYTES)} to {wording.quantity(after, Unit.BYTES)}"
    if abs(after - before) > max(floor, noise):
        share = "" if speedup is None else f", {wording.change(speedup, head.unit, head.better)}"
        return Outcome(verdict=_direction(before, after, head.better), reason=f"{reason}{share}", speedup=speedup)
    if noise <= floor:
        reason = f"{reason}, within {wording.quantity(floor, Unit.BYTES)}"
        return Outcome(verdict=Verdict.UNCHANGED, reason=reason, speedup=speedup)
    unclear = f"{reason}; launches of one side differ by up to {wording.quantity(noise / _RANGES, Unit.BYTES)}"
    reason = f"{unclear}, so only more than {wording.quantity(noise, Unit.BYTES)} can be told here"
    return Outcome(verdict=Verdict.INCONCLUSIVE, reason=reason, speedup=speedup)


def _speedup(before: float, after: float, better: Better) -> float | None:
    """The ratio, or `None` where one side is zero: there is no factor from or to nothing."""
    if before <= 0 or after <= 0:
        return None
    ratio = before / after if better is Better.LOWER else after / before
    return ratio if 0 < ratio < LARGEST else None


def _direction(before: float, after: float, better: Better) -> Verdict:
    improved = after < before if better is Better.LOWER else after > before
    return Verdict.IMPROVED if improved else Verdict.REGRESSED
