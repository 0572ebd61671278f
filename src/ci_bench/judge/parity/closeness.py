"""The numeric tier's figures at every step, for drawing: the very envelope and the very scores that parity is judged by."""

import math

import numpy as np

from ci_bench.judge.parity.numeric import LARGEST_SCORE, LIMIT, envelope, scaled, usable
from ci_bench.judge.parity.runs import LARGEST, SIGNALS, Floats, Twins, length, match, series
from ci_bench.records.case import ParityEvidence, Role, Trace
from ci_bench.records.closeness import Closeness


def closeness(evidence: ParityEvidence) -> tuple[Closeness, ...]:
    """Both signals of every candidate run that may be compared with its reference; nothing for those that may not."""
    candidates = (trace for trace in evidence.traces if trace.role is Role.CANDIDATE)
    return tuple(found for run in candidates for found in _of_run(evidence, run))


def _of_run(evidence: ParityEvidence, run: Trace) -> tuple[Closeness, ...]:
    twins = match(evidence, run)
    perturbed = usable(evidence, twins.reference) if isinstance(twins, Twins) else ()
    if not isinstance(twins, Twins) or not perturbed:
        return ()
    steps = min(twins.steps, max(map(length, perturbed)))
    return tuple(_of_signal(twins, perturbed, signal, steps) for signal in SIGNALS)


def _of_signal(twins: Twins, perturbed: tuple[Trace, ...], signal: str, steps: int) -> Closeness:
    reference, candidate = (scaled(series(trace, signal, steps), signal) for trace in (twins.reference, twins.candidate))
    widths = envelope(reference, perturbed, signal)
    with np.errstate(over="ignore"):
        scores = np.minimum(np.abs(candidate - reference) / widths, LARGEST_SCORE)
        low, high = (_unscaled(reference + sign * LIMIT * widths, signal) for sign in (-1, 1))
    return Closeness(
        arm=twins.candidate.arm,
        seed=twins.candidate.seed,
        signal=signal,
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        scores=tuple(scores.tolist()),
        limit=LIMIT,
    )


def _unscaled(values: Floats, signal: str) -> Floats:
    """The inverse of `scaled`, kept finite."""
    own: Floats = values if signal == "loss" else np.exp(np.minimum(values, math.log(LARGEST)))
    return own
