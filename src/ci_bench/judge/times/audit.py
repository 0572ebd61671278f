"""Audit of the rule on this machine: its false alarms on past runs of unchanged code.

Owns the count and its interval. Each run is judged by what all others taught, as if it had been a
pull request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ci_bench.judge.times import sequential
from ci_bench.judge.times.calibration import Name, instant, learned
from ci_bench.judge.times.noise import Floats
from ci_bench.judge.times.paired import margins
from ci_bench.judge.times.sequential import Code, Ruling, SequentialRule
from ci_bench.records.calibration import Calibration, PastSeries
from ci_bench.records.comparison import Interval
from ci_bench.records.config import Policy
from ci_bench.statistics.special_functions import betaincinv


@dataclass(frozen=True, kw_only=True, slots=True)
class FalseAlarms:
    """A run of unchanged code with false regressions, and their names."""

    run: str
    names: tuple[Name, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """Share of false alarms in past runs, compared with the promise of the rule."""

    runs: int
    """Past runs that were judged."""
    alarms: tuple[FalseAlarms, ...]
    """Runs with a false regression."""
    improved: int
    """Number of runs with a false improvement, which fails nothing."""
    share: float | None
    """Share of runs with a false regression; `None` without runs."""
    interval: Interval
    """Interval of the share; 0 to 1 without runs."""
    promised: float
    """Share that the rule allows (`SequentialRule.alpha`)."""

    @property
    def holds(self) -> bool:
        """Return whether the interval of the share includes or is below the promised share."""
        return self.interval.low <= self.promised


def audit(calibration: Calibration, *, policy: Policy, rule: SequentialRule | None = None) -> Audit:
    """Judge every past run by the history of all others, and count false alarms.

    The thresholds are those of `policy`. Runs without launches are not counted, and neither are
    gates, whose code may have changed.
    """
    names = [(series.case, series.metric, series.arm) for series in calibration.series]
    thresholds = np.array([policy.threshold(suite=_suite(name), metric=name[1]) for name in names])
    judging_rule = replace(
        rule or SequentialRule(),
        tau=np.log1p(thresholds),
        margin=np.log1p(margins(thresholds)),
        gating=len(names),
    )
    alarms, improved, runs = [], 0, 0
    for number, run in enumerate(calibration.runs):
        ruling = None if run.gate else _judge(calibration, names, number, judging_rule)
        if ruling is None:
            continue
        runs += 1
        improved += bool((ruling.code == Code.IMPROVED).any())
        wrong = np.flatnonzero(ruling.code == Code.REGRESSED).tolist()
        if wrong:
            alarms.append(FalseAlarms(run=run.id, names=tuple(names[row] for row in wrong)))
    low, high = binomial_interval(len(alarms), runs)
    return Audit(
        runs=runs,
        alarms=tuple(alarms),
        improved=improved,
        share=len(alarms) / runs if runs else None,
        interval=Interval(low=low, high=high, level=judging_rule.level),
        promised=judging_rule.alpha,
    )


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share (Clopper & Pearson); all of 0 to 1 without trials.

    https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Clopper%E2%80%93Pearson_interval
    """
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = (
        1.0
        if successes == trials
        else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    )
    return low, high


def _suite(name: Name) -> str:
    return name[0].partition("/")[0]


def _judge(
    calibration: Calibration, names: Sequence[Name], number: int, rule: SequentialRule
) -> Ruling | None:
    """Apply the rule to the runs one after the other; `None` if no run is left to judge."""
    rows = [_launches(series, number) for series in calibration.series]
    most = max((len(launches) for launches, _ in rows), default=0)
    if not most:
        return None
    d, within = (_table([pair[side] for pair in rows], most) for side in (0, 1))
    others = replace(
        calibration, series=tuple(_without(series, number) for series in calibration.series)
    )
    history = learned(others, names, now=_latest(calibration))
    return sequential.replay(d, within, history, rule)


def _latest(calibration: Calibration) -> str:
    return max((run.at for run in calibration.runs), key=instant)


def _launches(
    series: PastSeries, number: int
) -> tuple[tuple[float, ...], tuple[float | None, ...]]:
    places = [place for place, run in enumerate(series.runs) if run == number]
    return tuple(series.ratios[place] for place in places), tuple(
        series.within[place] for place in places
    )


def _without(series: PastSeries, number: int) -> PastSeries:
    places = [place for place, run in enumerate(series.runs) if run != number]
    return replace(
        series,
        ratios=tuple(series.ratios[place] for place in places),
        within=tuple(series.within[place] for place in places),
        runs=tuple(series.runs[place] for place in places),
    )


def _table(rows: Sequence[Sequence[float | None]], width: int) -> Floats:
    table = np.full((len(rows), width), np.nan)
    for index, row in enumerate(rows):
        table[index, : len(row)] = np.array(row, dtype=np.float64)
    return table
