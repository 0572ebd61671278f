"""Charts that need no raw samples: the run's changes, medians side by side, and training runs.

Training runs lie above each other, with the noise envelope that parity is judged by and the first
step that left it.
"""

import math
from collections.abc import Iterable

from ci_bench.records.comparison import (
    BESIDE_BASE,
    CaseComparison,
    Closeness,
    Comparison,
    Pair,
    ParityFinding,
    Verdict,
)
from ci_bench.records.metrics import COMPILATION
from ci_bench.records.results import ParityEvidence, Role, SideName, Trace, Unit
from ci_bench.report.charts.samples import Sides, rows_of, sample_charts
from ci_bench.report.charts.values import (
    CaseCharts,
    ChangeChart,
    ChangeRow,
    Curve,
    CurveChart,
    Density,
    DotChart,
    DotRow,
    Material,
    ScoreChart,
    axis,
    short,
)
from ci_bench.report.rows import labels, worst_pairs
from ci_bench.report.words import mood, verdict_word

_DIGITS = 5
_MOST_SEEDS = 2
"""Further seeds are judged, and not drawn."""
_SIGNALS = ("loss", "grad_norm")


def curve_charts(
    sides: Sides,
    closeness: tuple[Closeness, ...],
    findings: tuple[ParityFinding, ...],
    *,
    most: int,
) -> tuple[CurveChart, ...]:
    """Return charts of loss and gradient norm, seed by seed, at about `most` steps.

    They show head's runs, and base's that differ from them. A signal that no run recorded has no
    chart.
    """
    evidence = {side: row.parity for side, row in sides if row.parity is not None}
    head = evidence.get(SideName.HEAD)
    if head is None:
        return ()
    base = evidence.get(SideName.BASE)
    seeds = list(
        dict.fromkeys(trace.seed for trace in head.traces if trace.role is Role.CANDIDATE)
    )[:_MOST_SEEDS]
    charts = []
    for seed in seeds:
        runs = [(_label(trace, "head" if base else None), trace) for trace in _runs(head, seed)]
        runs += [
            (_label(trace, "base"), trace)
            for trace in _runs(base, seed)
            if not _has_same_run(trace, runs)
        ]
        distances = [
            distance
            for distance in closeness
            if distance.seed == seed and distance.arm != BESIDE_BASE
        ]
        recorded = [
            signal for signal in _SIGNALS if any(getattr(trace, signal) for _, trace in runs)
        ]
        charts += [
            _chart(signal, seed, runs, distances, first=_first_step(findings, signal), most=most)
            for signal in recorded
        ]
    return tuple(charts)


def score_charts(
    closeness: tuple[Closeness, ...], findings: tuple[ParityFinding, ...], *, most: int
) -> tuple[ScoreChart, ...]:
    """Return each candidate's distance from the reference, in envelopes, at about `most` steps."""
    seeds = list(dict.fromkeys(distance.seed for distance in closeness))[:_MOST_SEEDS]
    scored = {(distance.seed, distance.signal) for distance in closeness}
    return tuple(
        _score_chart(signal, seed, closeness, findings, most)
        for seed in seeds
        for signal in _SIGNALS
        if (seed, signal) in scored
    )


def _has_same_run(trace: Trace, runs: list[tuple[str, Trace]]) -> bool:
    """Return whether head has the very same run of the same arm.

    One curve would only hide the other.
    """
    return any(
        (other.arm, other.loss, other.grad_norm) == (trace.arm, trace.loss, trace.grad_norm)
        for _, other in runs
    )


def _label(trace: Trace, side: str | None) -> str:
    name = f"{trace.arm} (reference)" if trace.role is Role.REFERENCE else trace.arm
    return f"{side} · {name}" if side else name


def _chart(
    signal: str,
    seed: int,
    runs: list[tuple[str, Trace]],
    distances: list[Closeness],
    *,
    first: int | None,
    most: int,
) -> CurveChart:
    total = max(len(getattr(trace, signal)) for _, trace in runs)
    steps = _steps(total, first, most)
    envelope = max(
        (distance for distance in distances if distance.signal == signal),
        key=lambda distance: len(distance.low),
        default=None,
    )
    curves = (
        Curve(label=label, colour=number, values=_picked(getattr(trace, signal), steps))
        for number, (label, trace) in enumerate(runs)
    )
    return CurveChart(
        signal=signal,
        seed=seed,
        steps=steps,
        curves=tuple(curves),
        low=_bound(envelope.low, steps) if envelope else (),
        high=_bound(envelope.high, steps) if envelope else (),
        first_step=first,
        total=total,
    )


def _score_chart(
    signal: str,
    seed: int,
    closeness: tuple[Closeness, ...],
    findings: tuple[ParityFinding, ...],
    most: int,
) -> ScoreChart:
    distances = [
        distance for distance in closeness if (distance.seed, distance.signal) == (seed, signal)
    ]
    first = _first_step(findings, signal)
    steps = _steps(max(len(distance.scores) for distance in distances), first, most)
    curves = (
        Curve(label=distance.arm, colour=number + 1, values=_picked(distance.scores, steps))
        for number, distance in enumerate(distances)
    )
    return ScoreChart(
        signal=signal,
        seed=seed,
        steps=steps,
        curves=tuple(curves),
        limit=distances[0].limit,
        first_step=first,
    )


def _runs(evidence: ParityEvidence | None, seed: int) -> Iterable[Trace]:
    """Return the reference, then the candidates; perturbed runs are in the envelope."""
    roles = (Role.REFERENCE, Role.CANDIDATE)
    traces = evidence.traces if evidence else ()
    return (
        trace for role in roles for trace in traces if trace.role is role and trace.seed == seed
    )


def _first_step(findings: tuple[ParityFinding, ...], signal: str) -> int | None:
    steps = [
        finding.first_step
        for finding in findings
        if finding.first_step is not None and finding.signal in {signal, None}
    ]
    return min(steps, default=None)


def _steps(total: int, first: int | None, most: int) -> tuple[int, ...]:
    """Return the steps to draw: evenly spread, and the first divergent one and the last."""
    stride = max(1, math.ceil(total / most))
    extra = {step for step in (first, total - 1) if step is not None and 0 <= step < total}
    return tuple(sorted({*range(0, total, stride), *extra}))


def _picked(values: tuple[float | None, ...], steps: tuple[int, ...]) -> tuple[float | None, ...]:
    points = (values[step] if step < len(values) else None for step in steps)
    return tuple(
        None if value is None or not math.isfinite(value) else short(value, digits=_DIGITS)
        for value in points
    )


def _bound(values: tuple[float, ...], steps: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(short(values[step], digits=_DIGITS) for step in steps if step < len(values))


MOST_CHANGES = 40
FULL = Density()


def change_chart(comparison: Comparison) -> ChangeChart:
    """Return every judged metric with an interval, the worst first."""
    judged = [
        (case, pair) for case, pair in worst_pairs(comparison) if not pair.detail and _judged(pair)
    ]
    shown = labels(comparison)
    rows = tuple(_change_row(case, pair, shown[case.id]) for case, pair in judged[:MOST_CHANGES])
    return ChangeChart(rows=rows, left_out=len(judged) - len(rows))


def case_charts(case: CaseComparison, material: Material, drawn: Density = FULL) -> CaseCharts:
    """Return all charts of a case that `material` allows."""
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
    """Return memory and compilation of all arms, and times whose samples aren't at hand."""
    memory = [pair for pair in case.pairs if pair.unit is Unit.BYTES]
    compiling = [
        pair
        for pair in case.pairs
        if pair.metric.startswith(COMPILATION) and pair.unit is Unit.SECONDS
    ]
    timed = (
        pair
        for pair in case.pairs
        if pair.unit is Unit.SECONDS and not pair.metric.startswith(COMPILATION)
    )
    times = [pair for pair in timed if pair.metric not in sampled]
    titled = (("Memory", memory), ("Compilation", compiling), ("Times", times))
    return tuple(
        chart for title, pairs in titled if (chart := _dot_chart(title, pairs)) is not None
    )


def _dot_chart(title: str, pairs: list[Pair]) -> DotChart | None:
    medians = [side.figure for pair in pairs for side in (pair.base, pair.head) if side]
    if not medians:
        return None
    size, unit = axis(medians, pairs[0].unit)
    arms = {pair.arm for pair in pairs}
    rows = tuple(
        DotRow(
            label=(pair.title or pair.metric) + (f" · {pair.arm}" if len(arms) > 1 else ""),
            base=short(pair.base.figure / size) if pair.base else None,
            head=short(pair.head.figure / size) if pair.head else None,
            mood=mood(pair.verdict).name.lower(),
        )
        for pair in pairs
    )
    return DotChart(title=title, unit=unit, rows=rows, arm="" if len(arms) > 1 else pairs[0].arm)


def _judged(pair: Pair) -> bool:
    if pair.speedup is None or pair.interval is None:
        return False
    ratios = (pair.speedup, pair.interval.low, pair.interval.high)
    drawn = all(ratio > 0 and math.isfinite(_worse(ratio)) for ratio in ratios)
    return drawn and (
        pair.verdict.moved or pair.verdict in {Verdict.UNCHANGED, Verdict.INCONCLUSIVE}
    )


def _worse(ratio: float) -> float:
    """Return a speedup as a change in per cent, which may be infinite."""
    return short((1 / ratio - 1) * 100)


def _change_row(case: CaseComparison, pair: Pair, called: str) -> ChangeRow:
    """Return the change for the worse: the inverse of the speedup, less one, in per cent.

    It is for a rate as for a duration.
    """
    assert pair.speedup is not None  # noqa: S101 - only a bug of ours breaks it
    assert pair.interval is not None  # noqa: S101 - only a bug of ours breaks it
    worse = [_worse(ratio) for ratio in (pair.speedup, pair.interval.high, pair.interval.low)]
    return ChangeRow(
        label=f"{called} · {pair.arm} {pair.title or pair.metric}",
        case=case.id,
        change=worse[0],
        low=worse[1],
        high=worse[2],
        threshold=short(pair.threshold * 100),
        verdict=verdict_word(pair.verdict),
        mood=mood(pair.verdict).name.lower(),
    )
