"""Loss parity step by step, for runs whose dropout masks match: within how many rounding envelopes does the candidate stay?

Owns the numeric tier. The envelope is measured, not assumed: reference runs from weights perturbed by about one rounding
error show how far rounding alone drives two runs apart at each step. It grows by itself where training is chaotic.
"""

from dataclasses import dataclass

import numpy as np

from ci_bench.judge.parity.runs import SIGNALS, Floats, Twins, finite_steps, insufficient, length, match, series, stopped
from ci_bench.records.case import Masks, ParityEvidence, Role, Trace
from ci_bench.records.comparison import Parity, ParityFinding, Tier

STEPS = 50
LEAST_STEPS = 10
LIMIT = 10.0
LARGEST_SCORE = 1e9
LARGEST_EPSILON = 2.0**-8
"""No precision in use rounds as coarsely: an envelope from larger perturbations would let anything pass."""

_ULPS = 4.0
_MANTISSA_BITS = 23
_LEAST_NORMAL = 2.0**-126


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """How many envelopes a signal came apart at most, and where it first exceeded the limit."""

    signal: str
    worst: float
    first_step: int | None


def numeric_finding(evidence: ParityEvidence, run: Trace, masks: Masks) -> ParityFinding:
    """Judges one candidate run.

    ``E_t = max(4 ulp(L_t), max over u <= t and perturbed runs j of |L_u^j - L_u^ref|)``, likewise for ln(gradient norm) with
    floor ``4 * 2^-23``; the score is ``max over t < 50 of |L_t - L_t^ref| / E_t``, and parity ends at ten envelopes.
    """
    twins = match(evidence, run)
    if not isinstance(twins, Twins):
        return stopped(twins, run, masks=masks, tier=Tier.NUMERIC)
    if twins.steps < LEAST_STEPS:
        detail = _joined(f"{twins.steps} steps are too few: parity needs {LEAST_STEPS}", twins.short, twins.note)
        return stopped(insufficient(detail, twins.steps), run, masks=masks, tier=Tier.NUMERIC)
    if not twins.short and _bitwise(twins):
        return _finding(twins, masks, (), twins.steps)
    perturbed = usable(evidence, twins.reference)
    if not perturbed:
        detail = f"there is no usable perturbed run of seed {run.seed}: how far rounding drives runs apart is unknown"
        return stopped(insufficient(detail, twins.steps), run, masks=masks, tier=Tier.NUMERIC)
    steps = min(STEPS, twins.steps, max(map(length, perturbed)))
    return _finding(twins, masks, tuple(score(twins, perturbed, signal, steps) for signal in SIGNALS), steps)


def score(twins: Twins, perturbed: tuple[Trace, ...], signal: str, steps: int) -> Score:
    """The score of one signal over the first `steps` steps."""
    reference, candidate = (scaled(series(trace, signal, steps), signal) for trace in (twins.reference, twins.candidate))
    with np.errstate(over="ignore"):
        ratios = np.abs(candidate - reference) / envelope(reference, perturbed, signal)
    beyond = np.flatnonzero(ratios > LIMIT)
    worst = min(LARGEST_SCORE, float(ratios.max()))
    return Score(signal=signal, worst=worst, first_step=int(beyond[0]) if beyond.size else None)


def envelope(reference: Floats, perturbed: tuple[Trace, ...], signal: str) -> Floats:
    """How far rounding may drive the signal from `reference` up to each step."""
    floor = _ULPS * ulp(reference) if signal == "loss" else np.full(reference.shape, _ULPS * 2.0**-_MANTISSA_BITS)
    widest = np.zeros(reference.shape)
    for trace in perturbed:
        values = scaled(series(trace, signal, min(finite_steps(trace), len(reference))), signal)
        np.maximum(widest[: len(values)], np.abs(values - reference[: len(values)]), out=widest[: len(values)])
    bound: Floats = np.maximum(floor, np.maximum.accumulate(widest))
    return bound


def ulp(values: Floats) -> Floats:
    """The distance of neighbouring fp32 numbers at each value: losses are fp32 whatever the precision of the model."""
    _, exponents = np.frexp(np.maximum(np.abs(values), _LEAST_NORMAL))
    spacing: Floats = np.ldexp(1.0, exponents - _MANTISSA_BITS - 1)
    return spacing


def scaled(values: Floats, signal: str) -> Floats:
    """Losses as they are, gradient norms as logarithms (a norm of zero as the smallest normal fp32 number)."""
    return values if signal == "loss" else np.log(np.maximum(values, _LEAST_NORMAL))


def usable(evidence: ParityEvidence, reference: Trace) -> tuple[Trace, ...]:
    """Perturbed runs of the reference's arm, seed and data that did start elsewhere and stayed finite long enough."""
    if evidence.epsilon > LARGEST_EPSILON:
        return ()
    return tuple(
        trace
        for trace in evidence.traces
        if trace.role is Role.PERTURBED
        and (trace.arm, trace.seed, trace.data) == (reference.arm, reference.seed, reference.data)
        and trace.start != reference.start
        and finite_steps(trace) >= LEAST_STEPS
    )


def _bitwise(twins: Twins) -> bool:
    one, two = twins.reference, twins.candidate
    return (one.loss, one.grad_norm) == (two.loss, two.grad_norm)


def _finding(twins: Twins, masks: Masks, scores: tuple[Score, ...], steps: int) -> ParityFinding:
    """Puts the scores (none: equal in every bit) into words."""
    broken = min((s for s in scores if s.first_step is not None), key=lambda s: s.first_step or 0, default=None)
    verdict, detail = _ruling(twins, scores, broken, steps)
    worst = {s.signal: s.worst for s in scores}
    return ParityFinding(
        arm=twins.candidate.arm,
        verdict=verdict,
        tier=Tier.NUMERIC,
        masks=masks,
        steps=steps,
        detail=_joined(detail, twins.short, twins.note),
        limit=LIMIT,
        loss_score=worst.get("loss", 0.0),
        grad_norm_score=worst.get("grad_norm", 0.0),
        first_step=broken.first_step if broken else None,
        signal=broken.signal if broken else None,
    )


def _ruling(twins: Twins, scores: tuple[Score, ...], broken: Score | None, steps: int) -> tuple[Parity, str]:
    if broken:
        apart = max(s.worst for s in scores)
        detail = f"{broken.signal} leaves the rounding envelope at step {broken.first_step}: up to {apart:.3g} times its width"
        return Parity.DIFFERENT_MATH, f"{detail} (limit {LIMIT:g})"
    if twins.short:
        return Parity.INSUFFICIENT_DATA, f"no difference in the {steps} steps that both runs have"
    if not scores:
        return Parity.BITWISE, f"every loss and gradient norm of {steps} steps is equal in every bit"
    apart = max(s.worst for s in scores)
    return Parity.NUMERIC_PARITY, f"{steps} steps within {apart:.2g} rounding envelopes of the reference (limit {LIMIT:g})"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
