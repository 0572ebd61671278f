"""From lines to pairs: each metric of an arm, base against head, with the word for it and why.

Owns which rule applies to which metric. The rules are in `exact`, `screening` and `paired`; what a word means for the run is
decided in `findings`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ci_bench.judge.cases.lines import Line, settled, single
from ci_bench.judge.cases.outcome import Judged, Outcome
from ci_bench.judge.metrics.exact import by_count, by_memory
from ci_bench.judge.metrics.screening import screen
from ci_bench.judge.statistics.series import Known
from ci_bench.records.case import Metric, Unit
from ci_bench.records.comparison import Pair, Summary

TimedRule = Callable[[Sequence[Line], Known], Judged]
"""Judges all times of a run at once, in their order; it is handed the facts of all series."""


def judge_lines(lines: Sequence[Line], known: Known, timed: TimedRule) -> tuple[list[Pair], Judged]:
    """The pair of each line, in their order, and what `timed` saw over all times."""
    outcomes = [_without_statistics(line, known) for line in lines]
    waiting = [place for place, outcome in enumerate(outcomes) if outcome is None]
    times = [place for place in waiting if lines[place].timed]
    sampled = [place for place in waiting if not lines[place].timed]
    judged = timed([lines[place] for place in times], known)
    plain = screen([lines[place] for place in sampled], known, drift=0.0)
    for places, of in ((times, judged), (sampled, plain)):
        for place, outcome in zip(places, of.outcomes, strict=True):
            outcomes[place] = outcome
    found = [outcome for outcome in outcomes if outcome is not None]
    return [_pair(line, outcome, known) for line, outcome in zip(lines, found, strict=True)], replace(judged, outcomes=())


def _without_statistics(line: Line, known: Known) -> Outcome | None:
    """The outcome of a line with nothing to compare, or with what is exact."""
    if word := settled(line, known):
        return Outcome(verdict=word[0], reason=word[1])
    base, head = line.base[0], line.head[0]
    if head.unit is Unit.COUNT:
        return by_count(base, head, line.threshold)
    if head.unit is Unit.BYTES and single(base, known) and single(head, known):
        return by_memory(base, head, line.threshold)
    return None


def _pair(line: Line, outcome: Outcome, known: Known) -> Pair:
    metric = line.metric
    return Pair(
        metric=metric.name,
        arm=metric.arm,
        unit=metric.unit,
        better=metric.better,
        verdict=outcome.verdict,
        reason=outcome.reason,
        threshold=max(0.0, line.threshold),
        base=_summary(line.base, known),
        head=_summary(line.head, known),
        speedup=outcome.speedup,
        interval=outcome.interval,
        items=metric.items,
        detail=line.detail,
        calibrated=outcome.calibrated,
        noise=outcome.noise,
        resolvable=outcome.resolvable,
        q=outcome.q,
    )


def _summary(metrics: tuple[Metric, ...], known: Known) -> Summary | None:
    """The summary of a side that has its metric once."""
    return known[id(metrics[0].launches)].summary if len(metrics) == 1 else None
