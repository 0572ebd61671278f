"""One metric of one arm, base against head: the word for it and why.

Owns the three rules (sampled ratios, exact counts, memory). What a word means for the run is decided in `findings`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ci_bench.judge import stats, wording
from ci_bench.records.case import Better, Metric, Unit
from ci_bench.records.comparison import Pair, Verdict

LEAST_BYTES = 1024**2
"""Memory differences up to one MiB are never flagged: the allocator's own granularity (measurement of peaks)."""

_RANGES = 2.0
_FIELDS = ("unit", "better", "lane")
_TIMES = {Unit.SECONDS, Unit.PER_SECOND}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What the pairs of one case stand on.

    `missing` and `missing_reason` are the word for a metric that only base has, `new_reason` for one that only head has.
    `barrier` says why nothing can be compared, where that is so. `drift` is how far times move by themselves between the
    moments at which the two sides were measured.
    """

    missing: Verdict = Verdict.REMOVED
    missing_reason: str = "was measured in the baseline and is missing now"
    new_reason: str = "not in the baseline"
    barrier: str | None = None
    drift: float = 0.0


Ruling = tuple[Verdict, str]
Keyed = dict[tuple[str, str], tuple[Metric, ...]]


def compare_metric(base: tuple[Metric, ...], head: tuple[Metric, ...], *, threshold: float, ground: Ground) -> Pair:
    """The pair of one metric and arm.

    Each side holds every metric of that name and arm: none, one, or (a fault of the document) several. At least one side
    holds one. `threshold` is relative.
    """
    pair = _undecided(base, head, threshold)
    ruling = _before_comparing(base, head, ground)
    if ruling:
        return replace(pair, verdict=ruling[0], reason=ruling[1])
    if pair.unit is Unit.COUNT:
        return _by_count(pair, base[0], head[0])
    if pair.unit is Unit.BYTES and _single(base[0]) and _single(head[0]):
        return _by_memory(pair, base[0], head[0])
    return _by_ratio(pair, base[0], head[0], drift=ground.drift if pair.unit in _TIMES else 0.0)


def speedup_of(base: Metric, head: Metric, *, paired: bool = False) -> stats.Ratio:
    """The speedup of head over base (> 1 is better) with its interval; `paired` where both ran in the same launches."""
    return stats.ratio_interval(*oriented(base, head), paired=paired)


def oriented(base: Metric, head: Metric) -> tuple[stats.Series, stats.Series]:
    """Numerator and denominator of the speedup of head over base."""
    if head.better is Better.LOWER:
        return base.launches, head.launches
    return head.launches, base.launches


def _undecided(base: tuple[Metric, ...], head: tuple[Metric, ...], threshold: float) -> Pair:
    metric = (head or base)[0]
    return Pair(
        metric=metric.name,
        arm=metric.arm,
        unit=metric.unit,
        better=metric.better,
        verdict=Verdict.INCONCLUSIVE,
        reason="",
        threshold=max(0.0, threshold),
        base=stats.summary(base[0].launches) if len(base) == 1 else None,
        head=stats.summary(head[0].launches) if len(head) == 1 else None,
        items=metric.items,
    )


def _before_comparing(base: tuple[Metric, ...], head: tuple[Metric, ...], ground: Ground) -> Ruling | None:
    if ground.barrier:
        return Verdict.INCOMPARABLE, ground.barrier
    if not head:
        return ground.missing, ground.missing_reason
    if not base:
        return Verdict.NEW, ground.new_reason
    if len(base) > 1 or len(head) > 1:
        return Verdict.INCONCLUSIVE, "the document holds this metric twice"
    differing = [field for field in _FIELDS if getattr(base[0], field) != getattr(head[0], field)]
    if differing:
        return Verdict.INCOMPARABLE, f"base and head differ in {', '.join(differing)}"
    return _faulty(base[0], head[0])


def _faulty(base: Metric, head: Metric) -> Ruling | None:
    exact = head.unit in {Unit.COUNT, Unit.BYTES}
    for side, metric in (("base", base), ("head", head)):
        if wrong := stats.fault(metric.launches, zero_allowed=exact and _single(metric)):
            return Verdict.INCONCLUSIVE, f"{side} {wrong}: measure again"
    return None


def _single(metric: Metric) -> bool:
    return metric.unit is Unit.COUNT or all(len(launch.values) <= 1 for launch in metric.launches)


def _by_ratio(pair: Pair, base: Metric, head: Metric, *, drift: float) -> Pair:
    ratio = speedup_of(base, head)
    pair = replace(pair, speedup=ratio.value, interval=ratio.interval)
    if ratio.value is None or ratio.interval is None:
        return replace(pair, reason=ratio.reason)
    margin = math.log1p(pair.threshold)
    logs = (math.log(ratio.interval.low), math.log(ratio.value), math.log(ratio.interval.high))
    verdict = _ratio_verdict(logs, margin, math.log1p(max(pair.threshold, drift)))
    figures = f"speedup {ratio.value:.3f}, {wording.interval_text(ratio.interval)}"
    seen = f"{wording.change(ratio.value, pair.unit, pair.better)} ({figures})"
    limit = f"the threshold of {wording.percent(pair.threshold)}"
    if verdict is Verdict.INCONCLUSIVE:
        drifted = _ratio_verdict(logs, margin, margin) is not Verdict.INCONCLUSIVE
        return replace(pair, reason=f"{seen}; {_drift_text(drift) if drifted else _what_to_do(logs, margin, limit)}")
    relation = "within" if verdict is Verdict.UNCHANGED else "beyond"
    if drift > pair.threshold and verdict is not Verdict.UNCHANGED:
        limit += f" and of what moves by itself between two moments ({wording.percent(drift)})"
    return replace(pair, verdict=verdict, reason=f"{seen}, {relation} {limit}")


def _ratio_verdict(logs: tuple[float, float, float], margin: float, size: float) -> Verdict:
    """Evidence (the interval excludes 1) and size (the ratio is beyond `size`), both, or it is not a change.

    Unchanged needs the whole interval inside the margin.
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
    """The samples are clear, but they are of two moments."""
    return (
        f"times of unchanged code move by up to {wording.percent(drift)} between runs at different moments (policy.drift), "
        "so this may be the machine: measure both sides again, one right after the other"
    )


def _what_to_do(logs: tuple[float, float, float], margin: float, limit: str) -> str:
    """The smallest effect that this much noise lets us see: half the interval, and never below the threshold."""
    resolvable = math.expm1(max(margin, (logs[2] - logs[0]) / 2))
    return (
        f"the interval reaches past {limit}; only changes of about {wording.percent(resolvable)} or more can be told here: "
        "measure more launches, quieten the machine, or raise the threshold"
    )


def _by_count(pair: Pair, base: Metric, head: Metric) -> Pair:
    """Counts are exact: the worst value of any launch is compared, without statistics."""
    worst = max if pair.better is Better.LOWER else min
    before, after = worst(stats.samples(base.launches)), worst(stats.samples(head.launches))
    pair = replace(pair, speedup=_speedup(before, after, pair.better))
    shown = wording.quantity(after, Unit.COUNT)
    reason = f"{wording.quantity(before, Unit.COUNT)} to {shown}"
    if max(before, after) <= min(before, after) * (1 + pair.threshold):
        reason = f"{shown} on both sides" if before == after else f"{reason}, within the threshold"
        return replace(pair, verdict=Verdict.UNCHANGED, reason=reason)
    return replace(pair, verdict=_direction(before, after, pair.better), reason=reason)


def _by_memory(pair: Pair, base: Metric, head: Metric) -> Pair:
    """Peaks: exact where each side repeats exactly; otherwise beyond twice the range that a side shows by itself."""
    sides = [stats.samples(metric.launches) for metric in (base, head)]
    before, after = (summary.median if summary else 0.0 for summary in (pair.base, pair.head))
    pair = replace(pair, speedup=_speedup(before, after, pair.better))
    if min(map(len, sides)) < stats.LEAST_LAUNCHES:
        return replace(pair, reason="a peak of one launch may not repeat: measure at least 2 launches on each side")
    floor = max(float(LEAST_BYTES), pair.threshold * min(before, after))
    noise = _RANGES * max(max(side) - min(side) for side in sides)
    difference = abs(after - before)
    reason = f"{wording.quantity(before, Unit.BYTES)} to {wording.quantity(after, Unit.BYTES)}"
    if difference > max(floor, noise):
        return replace(pair, verdict=_direction(before, after, pair.better), reason=f"{reason}{_share(pair)}")
    if noise <= floor:
        return replace(pair, verdict=Verdict.UNCHANGED, reason=f"{reason}, within {wording.quantity(floor, Unit.BYTES)}")
    unclear = f"{reason}; launches of one side differ by up to {wording.quantity(noise / _RANGES, Unit.BYTES)}"
    return replace(pair, reason=f"{unclear}, so only more than {wording.quantity(noise, Unit.BYTES)} can be told here")


def _share(pair: Pair) -> str:
    return "" if pair.speedup is None else f", {wording.change(pair.speedup, pair.unit, pair.better)}"


def _speedup(before: float, after: float, better: Better) -> float | None:
    """The ratio, or `None` where one side is zero: there is no factor from or to nothing."""
    if before <= 0 or after <= 0:
        return None
    ratio = before / after if better is Better.LOWER else after / before
    return ratio if 0 < ratio < stats.LARGEST else None


def _direction(before: float, after: float, better: Better) -> Verdict:
    improved = after < before if better is Better.LOWER else after > before
    return Verdict.IMPROVED if improved else Verdict.REGRESSED


def keyed(metrics: Iterable[Metric]) -> Keyed:
    """Metrics by name and arm. One without any sample counts as absent: emptying a series must not hide its loss."""
    groups: Keyed = {}
    for metric in metrics:
        if any(launch.values for launch in metric.launches):
            key = (metric.name, metric.arm)
            groups[key] = (*groups.get(key, ()), metric)
    return groups
