"""Implausible figures and floors of a case: observations that its speedups give. Pure.

Owns the floors that candidate arms must reach against their reference (speedup, compression), and
the limits beyond which a speedup is implausible: the policy's, and the roofline of the device. A
replayed or skipped computation exceeds them even if its results were not checked.
"""

import math
from collections.abc import Iterator

from ci_bench.judge.wording import interval_text, place
from ci_bench.records.comparison import ArmSpeedup, CaseComparison, Pair, Verdict
from ci_bench.records.config import Floor, Policy
from ci_bench.records.metrics import COMPILATION, ENGINE, PEAKS, STEP_TIME
from ci_bench.records.results import Status, Unit
from ci_bench.records.units import TIMES


def below_floors(case: CaseComparison, policy: Policy) -> Iterator[tuple[str, float]]:
    """Yield every arm below a floor, or without its figure, of a case that ended well.

    Each comes with its sentence, and how far below it is.

    An interval must be below the floor entirely; a figure without one (a single launch) must not
    be below.
    """
    if case.head_status is not Status.OK:
        return
    speedups = {(figure.metric, figure.arm): figure for figure in case.speedups}
    for floor in Floor:
        limit = policy.floor(floor, suite=case.suite, case=case.id)
        if limit is None:
            continue
        for arm in case.arms:
            if arm != case.reference:
                figures = [
                    (policy.title(name), speedups.get((name, arm)))
                    for name in metrics_of(case, floor)
                ]
                yield from _below(floor, limit, arm, figures)


def _below(
    floor: Floor, limit: float, arm: str, figures: list[tuple[str, ArmSpeedup | None]]
) -> Iterator[tuple[str, float]]:
    if not figures:
        yield (
            f"{arm}: no {floor} is known, and it must reach {limit:g}: nothing was measured for it",
            math.inf,
        )
    for metric, figure in figures:
        if figure is None:
            yield f"{arm}: no {floor} of {metric} is known, and it must reach {limit:g}", math.inf
        elif (figure.interval.high if figure.interval else figure.speedup) < limit:
            interval = interval_text(figure.interval) if figure.interval else "no interval"
            sentence = (
                f"{arm}: the {floor} of {metric} is {figure.speedup:.3f} ({interval}), below the"
                f" floor of {limit:g}"
            )
            yield sentence, math.log(limit / figure.speedup)


def metrics_of(case: CaseComparison, floor: Floor) -> list[str]:
    """Return the metrics that a floor applies to: the step time, else every gating time.

    For compression, it is the first peak of memory.
    """
    if floor is Floor.COMPRESSION:
        names = {pair.metric for pair in case.pairs if pair.unit is Unit.BYTES}
        return [peak.name for peak in PEAKS if peak.name in names][:1]
    times = [pair for pair in case.pairs if pair.unit in TIMES and not pair.detail]
    names_of_times = list(
        dict.fromkeys(pair.metric for pair in times if not pair.metric.startswith(COMPILATION))
    )
    return [STEP_TIME.name] if STEP_TIME.name in names_of_times else names_of_times


ROOFS = (
    ("operations", "model_flops_per_step", ("peak_flops_per_s", "measured_peak_flops_per_s")),
    ("bytes to read", "read_bytes_per_step", ("peak_bytes_per_s", "measured_peak_bytes_per_s")),
)
"""Minimum needs of a step.

Each is given in words, as a fact of the case (the reference's), and as facts of the most per
second.
"""


BEYOND_PEAK = 2.0
"""A step may do this many times the peak: a compiler may leave counted work out, do it in fewer
operations (Winograd's), or keep weights in a narrower format.
"""


def implausible(case: CaseComparison, policy: Policy) -> Iterator[tuple[str, float]]:
    """Yield every implausibly fast candidate arm: its sentence, and how far it is beyond the limit.

    An interval has to exceed the limit entirely. A limit that a pattern of `policy.cases` sets
    explains the roofline, too.
    """
    if case.head_status is not Status.OK:
        return
    explained = policy.explained_speedup(case.id)
    limit = policy.implausible_speedup if explained is None else explained
    sure = (
        (figure, figure.interval.low if figure.interval else figure.speedup)
        for figure in case.speedups
    )
    beyond = [(figure, least) for figure, least in sure if least > limit]
    metrics = metrics_of(case, Floor.SPEEDUP) if beyond else []
    for figure, least in beyond:
        if figure.metric in metrics:
            title = policy.title(figure.metric)
            sentence = (
                f"{figure.arm}: {title} is {figure.speedup:.1f} times as fast as"
                f" {figure.reference}'s (at most {limit:g})"
            )
            yield (
                (
                    f"{sentence}: was it computed? If so, raise implausible_speedup for this case"
                    " in policy.cases"
                ),
                math.log(least / limit),
            )
    if explained is None:
        yield from _beyond_roofline(case)


def beyond_belief(case: CaseComparison, policy: Policy) -> Iterator[tuple[str, float]]:
    """Yield every arm so much faster than base that its unit or work may have changed.

    Each comes with its sentence and size.

    Memory, counts of the engine and compilations may improve by any factor: a cache or a smaller
    model explains that.
    """
    explained = policy.explained_speedup(case.id)
    limit = policy.implausible_speedup if explained is None else explained
    for pair in case.pairs:
        if (
            pair.verdict is Verdict.IMPROVED
            and not pair.detail
            and pair.speedup
            and pair.speedup > limit
            and not _may_vanish(pair)
        ):
            sentence = (
                f"{place(pair)}: {pair.speedup:.1f} times as good as base's, and more than"
                f" {limit:g} is hard to believe"
            )
            yield (
                (
                    f"{sentence}: has its unit or its work changed? If not, raise"
                    " implausible_speedup for this case in policy.cases"
                ),
                math.log(pair.speedup / limit),
            )
        elif explained is None and _takes_no_time(pair):
            yield (
                (
                    f"{place(pair)}: {pair.reason}: was it run? If so, set implausible_speedup for"
                    " this case in policy.cases"
                ),
                math.inf,
            )


def _takes_no_time(pair: Pair) -> bool:
    """Return whether another tool measured no time on head, and some on base."""
    return (
        pair.verdict is Verdict.IMPROVED
        and pair.unit is Unit.SECONDS
        and pair.speedup is None
        and not pair.detail
    )


def _may_vanish(pair: Pair) -> bool:
    engine_count = pair.unit is Unit.COUNT and pair.metric in ENGINE
    return engine_count or pair.unit is Unit.BYTES or pair.metric.startswith(COMPILATION)


def _beyond_roofline(case: CaseComparison) -> Iterator[tuple[str, float]]:
    for words, fact, rates in ROOFS:
        amount = case.facts.get(fact)
        peak = next(
            (
                value
                for value in map(case.facts.get, rates)
                if isinstance(value, int | float) and value > 0
            ),
            None,
        )
        if isinstance(amount, int | float) and peak is not None:
            yield from _beyond(case, f"{amount:.3g} {words}", amount, peak)


def _beyond(
    case: CaseComparison, work: str, amount: float, peak: float
) -> Iterator[tuple[str, float]]:
    for pair in case.pairs:
        if (
            pair.metric != STEP_TIME.name
            or pair.unit is not Unit.SECONDS
            or pair.head is None
            or pair.head.median <= 0
        ):
            continue
        share = amount / pair.head.median / peak
        if share > BEYOND_PEAK:
            sentence = (
                f"{pair.arm}: {work} in {pair.head.median:.3g} s are {share:.1f} times this"
                " device's peak"
            )
            yield (
                (
                    f"{sentence} of {peak:.3g} per second: not all was computed, or policy.cases"
                    " explains it"
                ),
                math.log(share),
            )
