"""Training runs of a case above each other, with the noise envelope that parity is judged by and the first step that left it."""

import math
from collections.abc import Iterable

from ci_bench.records.case import ParityEvidence, Role, SideName, Trace
from ci_bench.records.closeness import Closeness
from ci_bench.records.comparison import ParityFinding
from ci_bench.report.charts.samples import Sides
from ci_bench.report.charts.scaling import short
from ci_bench.report.charts.values import Curve, CurveChart, ScoreChart

_DIGITS = 5
_MOST_SEEDS = 2
"""Further seeds are judged, and not drawn."""
_SIGNALS = ("loss", "grad_norm")


def curve_charts(
    sides: Sides, closeness: tuple[Closeness, ...], found: tuple[ParityFinding, ...], *, most: int
) -> tuple[CurveChart, ...]:
    """Loss and gradient norm of head's runs, and of base's that aren't just the same, seed by seed; about `most` steps."""
    evidence = {side: row.parity for side, row in sides if row.parity is not None}
    head = evidence.get(SideName.HEAD)
    if head is None:
        return ()
    base = evidence.get(SideName.BASE)
    seeds = list(dict.fromkeys(trace.seed for trace in head.traces if trace.role is Role.CANDIDATE))[:_MOST_SEEDS]
    charts = []
    for seed in seeds:
        runs = [(_label(trace, "head" if base else None), trace) for trace in _runs(head, seed)]
        runs += [(_label(trace, "base"), trace) for trace in _runs(base, seed) if not _told(trace, runs)]
        own = [one for one in closeness if one.seed == seed]
        charts += [_chart(signal, seed, runs, own, first=_first_step(found, signal), most=most) for signal in _SIGNALS]
    return tuple(charts)


def score_charts(closeness: tuple[Closeness, ...], found: tuple[ParityFinding, ...], *, most: int) -> tuple[ScoreChart, ...]:
    """How far each candidate is from the reference, in envelopes, at about `most` steps."""
    seeds = list(dict.fromkeys(one.seed for one in closeness))[:_MOST_SEEDS]
    return tuple(_score_chart(signal, seed, closeness, found, most) for seed in seeds for signal in _SIGNALS)


def _told(trace: Trace, runs: list[tuple[str, Trace]]) -> bool:
    """Whether head has the very same run of the same arm: one curve would only hide the other."""
    return any((one.arm, one.loss, one.grad_norm) == (trace.arm, trace.loss, trace.grad_norm) for _, one in runs)


def _label(trace: Trace, side: str | None) -> str:
    name = f"{trace.arm} (reference)" if trace.role is Role.REFERENCE else trace.arm
    return f"{side} · {name}" if side else name


def _chart(
    signal: str, seed: int, runs: list[tuple[str, Trace]], own: list[Closeness], *, first: int | None, most: int
) -> CurveChart:
    total = max(len(getattr(trace, signal)) for _, trace in runs)
    steps = _steps(total, first, most)
    envelope = max((one for one in own if one.signal == signal), key=lambda one: len(one.low), default=None)
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
    signal: str, seed: int, closeness: tuple[Closeness, ...], found: tuple[ParityFinding, ...], most: int
) -> ScoreChart:
    own = [one for one in closeness if (one.seed, one.signal) == (seed, signal)]
    first = _first_step(found, signal)
    steps = _steps(max(len(one.scores) for one in own), first, most)
    curves = (Curve(label=one.arm, colour=number + 1, values=_picked(one.scores, steps)) for number, one in enumerate(own))
    return ScoreChart(signal=signal, seed=seed, steps=steps, curves=tuple(curves), limit=own[0].limit, first_step=first)


def _runs(evidence: ParityEvidence | None, seed: int) -> Iterable[Trace]:
    """The reference, then the candidates; perturbed runs are in the envelope."""
    wanted = (Role.REFERENCE, Role.CANDIDATE)
    traces = evidence.traces if evidence else ()
    return (trace for role in wanted for trace in traces if trace.role is role and trace.seed == seed)


def _first_step(found: tuple[ParityFinding, ...], signal: str) -> int | None:
    steps = [one.first_step for one in found if one.first_step is not None and one.signal in {signal, None}]
    return min(steps, default=None)


def _steps(total: int, first: int | None, most: int) -> tuple[int, ...]:
    """The steps that are drawn: evenly spread where there are very many, and always the first divergent one and the last."""
    stride = max(1, math.ceil(total / most))
    extra = {step for step in (first, total - 1) if step is not None and 0 <= step < total}
    return tuple(sorted({*range(0, total, stride), *extra}))


def _picked(values: tuple[float | None, ...], steps: tuple[int, ...]) -> tuple[float | None, ...]:
    kept = (values[step] if step < len(values) else None for step in steps)
    return tuple(None if value is None or not math.isfinite(value) else short(value, digits=_DIGITS) for value in kept)


def _bound(values: tuple[float, ...], steps: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(short(values[step], digits=_DIGITS) for step in steps if step < len(values))
