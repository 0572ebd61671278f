"""Charts of judged figures, which need no raw samples: the changes of the whole run, and medians side by side."""

import math

from ci_bench.records.case import Unit
from ci_bench.records.comparison import CaseComparison, Comparison, Pair, Verdict
from ci_bench.report.charts.curves import curve_charts, score_charts
from ci_bench.report.charts.samples import rows_of, sample_charts
from ci_bench.report.charts.scaling import axis, short
from ci_bench.report.charts.values import CaseCharts, ChangeChart, ChangeRow, Density, DotChart, DotRow, Material
from ci_bench.report.rows import worst_pairs
from ci_bench.report.words import mood

MOST_CHANGES = 40
FULL = Density()


def change_chart(comparison: Comparison) -> ChangeChart:
    """Every judged metric with an interval, the worst first."""
    judged = [(case, pair) for case, pair in worst_pairs(comparison) if not pair.detail and _judged(pair)]
    rows = tuple(_change_row(case, pair) for case, pair in judged[:MOST_CHANGES])
    return ChangeChart(rows=rows, left_out=len(judged) - len(rows))


def case_charts(case: CaseComparison, material: Material, drawn: Density = FULL) -> CaseCharts:
    """Everything that can be drawn of a case from what is at hand."""
    sides = rows_of(case.id, material)
    closeness = material.closeness.get(case.id, ())
    samples = sample_charts(case, sides, most=drawn.samples)
    return CaseCharts(
        id=case.id,
        samples=samples,
        dots=dot_charts(case, sampled=frozenset(chart.metric for chart in samples)),
        curves=curve_charts(sides, closeness, case.parity, most=drawn.steps),
        scores=score_charts(closeness, case.parity, most=drawn.steps),
    )


def dot_charts(case: CaseComparison, *, sampled: frozenset[str]) -> tuple[DotChart, ...]:
    """Memory and compilation of all arms; times too where their samples aren't at hand."""
    memory = [pair for pair in case.pairs if pair.unit is Unit.BYTES]
    compiling = [pair for pair in case.pairs if pair.metric.startswith("compile") and pair.unit is Unit.SECONDS]
    timed = (pair for pair in case.pairs if pair.unit is Unit.SECONDS and not pair.metric.startswith("compile"))
    times = [pair for pair in timed if pair.metric not in sampled]
    titled = (("Memory", memory), ("Compilation", compiling), ("Times", times))
    return tuple(chart for title, pairs in titled if (chart := _dot_chart(title, pairs)) is not None)


def _dot_chart(title: str, pairs: list[Pair]) -> DotChart | None:
    medians = [side.median for pair in pairs for side in (pair.base, pair.head) if side]
    if not medians:
        return None
    size, unit = axis(medians, pairs[0].unit)
    rows = tuple(
        DotRow(
            label=f"{pair.metric} · {pair.arm}",
            base=short(pair.base.median / size) if pair.base else None,
            head=short(pair.head.median / size) if pair.head else None,
            mood=mood(pair.verdict).name.lower(),
        )
        for pair in pairs
    )
    return DotChart(title=title, unit=unit, rows=rows)


def _judged(pair: Pair) -> bool:
    if pair.speedup is None or pair.interval is None:
        return False
    ratios = (pair.speedup, pair.interval.low, pair.interval.high)
    drawn = all(ratio > 0 and math.isfinite(_worse(ratio)) for ratio in ratios)
    return drawn and pair.verdict in {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.UNCHANGED, Verdict.INCONCLUSIVE}


def _worse(ratio: float) -> float:
    """A speedup as a change in per cent, which may be infinite."""
    return short((1 / ratio - 1) * 100)


def _change_row(case: CaseComparison, pair: Pair) -> ChangeRow:
    """How much worse: the inverse of the speedup, less one, in per cent; for a rate as for a duration."""
    assert pair.speedup is not None  # noqa: S101 - only a bug of ours breaks it
    assert pair.interval is not None  # noqa: S101 - only a bug of ours breaks it
    worse = [_worse(ratio) for ratio in (pair.speedup, pair.interval.high, pair.interval.low)]
    return ChangeRow(
        label=f"{case.id} · {pair.arm} {pair.metric}",
        case=case.id,
        change=worse[0],
        low=worse[1],
        high=worse[2],
        threshold=short(pair.threshold * 100),
        verdict=pair.verdict,
        mood=mood(pair.verdict).name.lower(),
    )
