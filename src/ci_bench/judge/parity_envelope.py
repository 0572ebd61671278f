"""The rounding envelope: how far rounding drives runs apart step by step, and which runs show it.

Owns the floors of the envelope (the numbers of fp32 and of bf16, the last decimal of a log), the
scales of signals, and the choice of perturbed runs. `parity` judges signals that leave the
envelope.
"""

import math

import numpy as np

from ci_bench.judge.parity_runs import LARGEST, MANTISSA_BITS, Floats, Twins, finite_steps, length, series
from ci_bench.judge.wording import count_of, percent
from ci_bench.records.results import ParityEvidence, Role, Trace

LEAST_STEPS = 10
LIMIT = 10.0
"""Parity holds up to this many widths of the envelope."""
LARGEST_EPSILON = 2.0**-8
"""No precision in use rounds as coarsely: an envelope from larger perturbations would let anything pass."""

_ULPS, _NEIGHBOURS = 4.0, 2.0
_LEAST_NORMAL = 2.0**-126
ROUNDED = "rounding"
"""Prefix of the start of a run in another rounding."""
_MOST_DECIMALS, _DISTINCT = 6, 5
_DOUBLE = 2.0**-50
"""A number of decimals as text and back is equal to itself but for fp64's rounding."""


def envelope_of(twins: Twins, reference: Floats, perturbed: tuple[Trace, ...], signal: str) -> Floats:
    """The envelope around a signal of the reference, scaled, from runs that were perturbed."""
    return envelope(reference, perturbed, signal, as_written=twins.as_written, loss_bits=twins.loss_bits)


def envelope(
    reference: Floats,
    perturbed: tuple[Trace, ...],
    signal: str,
    *,
    as_written: bool = False,
    loss_bits: int = MANTISSA_BITS,
) -> Floats:
    """Return how far rounding may drive the signal from `reference` up to each step.

    Values that a program wrote (`as_written`) may be off by their last decimal, besides. Losses of fewer bits than fp32's may be
    two of their numbers apart: each is rounded, and the mean of several processes' is of numbers that may lie twice as far apart.
    """
    floor = _ULPS * ulp(reference) if signal == "loss" else np.full(reference.shape, _ULPS * 2.0**-MANTISSA_BITS)
    if signal == "loss" and loss_bits < MANTISSA_BITS:
        floor = np.maximum(floor, _NEIGHBOURS * ulp(reference, loss_bits) / (LIMIT - 1))
    if as_written:
        own = unscaled(reference, signal)
        digit = _last_digits(own) / (LIMIT - 1)
        floor = np.maximum(floor, digit if signal == "loss" else digit / np.maximum(own, _LEAST_NORMAL))
    widest = np.zeros(reference.shape)
    for trace in perturbed:
        values = scaled(series(trace, signal, min(length(trace), len(reference))), signal)
        apart = np.abs(values - reference[: len(values)])
        np.fmax(widest[: len(values)], apart, out=widest[: len(values)])  # ignores steps that are not finite
    bound: Floats = np.maximum(floor, np.maximum.accumulate(widest))
    return bound


def _last_digits(values: Floats) -> Floats:
    """The last digit of each number that was written with at most six decimals or significant digits, as logs do; else 0.

    Two runs that differ by next to nothing may be rounded to neighbours: one such digit apart is
    within the limit, two are not. With the same number of significant digits, larger numbers have
    fewer decimals: ``10.6`` and ``9.74``.
    """
    finite = values[np.isfinite(values)]
    sizes = np.floor(np.log10(np.maximum(np.abs(values), _LEAST_NORMAL)))
    by_decimals = by_digits = 0.0
    few = len({*finite.tolist()}) < _DISTINCT  # a norm that is clipped to 1 at every step shows no digits
    for decimals in range(2 if few else 0, _MOST_DECIMALS + 1):
        if np.allclose(finite, np.round(finite, decimals), rtol=_DOUBLE, atol=0):
            by_decimals = float(10.0**-decimals)
            break
    scales = 10.0 ** np.floor(np.log10(np.maximum(np.abs(finite), _LEAST_NORMAL)))
    for digits in range(3 if few else 1, _MOST_DECIMALS + 1):
        if np.allclose(finite / scales, np.round(finite / scales, digits - 1), rtol=_DOUBLE, atol=0):
            by_digits = float(10.0 ** (1 - digits))
            break
    last: Floats = np.maximum(by_decimals, by_digits * 10.0**sizes if by_digits else np.zeros(values.shape))
    return last


def ulp(values: Floats, bits: int = MANTISSA_BITS) -> Floats:
    """Return the distance of neighbouring numbers at each value, for a mantissa of `bits` bits."""
    _, exponents = np.frexp(np.maximum(np.abs(values), _LEAST_NORMAL))
    spacing: Floats = np.ldexp(1.0, exponents - bits - 1)
    return spacing


def scaled(values: Floats, signal: str) -> Floats:
    """Losses as they are, gradient norms as logarithms (a norm of zero as the smallest normal fp32 number)."""
    return values if signal == "loss" else np.log(np.maximum(values, _LEAST_NORMAL))


def usable(evidence: ParityEvidence, reference: Trace) -> tuple[Trace, ...]:
    """Perturbed runs of the reference's arm, seed and data that did start elsewhere and stayed finite long enough.

    No run is usable if weights were perturbed by more than any precision rounds, or not at all. Of
    repeated runs of a program, a run that repeats full numbers bit by bit shows no rounding, and
    one whose first loss deviates by more than any rounding has another seed. A run that repeats
    them in another rounding has an envelope of only the floor.
    """
    if evidence.epsilon > LARGEST_EPSILON or (evidence.epsilon == 0 and not evidence.own_program):
        return ()
    runs = (trace for trace in _perturbed(evidence, reference) if trace.start != reference.start)
    enough = tuple(trace for trace in runs if finite_steps(trace) >= LEAST_STEPS)
    if not evidence.own_program:
        return enough
    if any(_first_apart(trace, reference) > LARGEST_EPSILON for trace in enough):
        return ()
    return tuple(trace for trace in enough if trace.start.startswith(ROUNDED) or _tells_of_rounding(trace, reference))


def only_repeats(perturbed: tuple[Trace, ...], reference: Trace) -> bool:
    """Return whether all perturbed runs of a program repeat full numbers bit by bit.

    Then rounding may do more than they show.
    """
    return not any(_tells_of_rounding(trace, reference) for trace in perturbed)


def _tells_of_rounding(trace: Trace, reference: Trace) -> bool:
    """Return whether a program's run adds to the envelope.

    It does if it came out differently, or if its log is too coarse to show that.

    A log of four decimals may well be the same in another rounding: then rounding moves none of them. Full fp32 numbers are not.
    """
    if (trace.loss, trace.grad_norm) != (reference.loss, reference.grad_norm):
        return True
    losses = series(reference, "loss", length(reference))
    return trace.start.startswith(ROUNDED) and bool(np.any(_last_digits(losses) > LIMIT * _ULPS * ulp(losses)))


def _perturbed(evidence: ParityEvidence, reference: Trace) -> tuple[Trace, ...]:
    of = (reference.arm, reference.seed, reference.data)
    return tuple(one for one in evidence.traces if one.role is Role.PERTURBED and (one.arm, one.seed, one.data) == of)


def _first_apart(trace: Trace, reference: Trace) -> float:
    """Return the relative deviation of the first loss from the reference's."""
    ours, theirs = trace.loss[0], reference.loss[0]
    if ours is None or theirs is None:
        return math.inf
    return abs(ours - theirs) / max(abs(theirs), _LEAST_NORMAL) if ours != theirs else 0.0


def unscaled(values: Floats, signal: str) -> Floats:
    """The inverse of `scaled`, kept finite."""
    own: Floats = values if signal == "loss" else np.exp(np.minimum(values, math.log(LARGEST)))
    return own


def why_unknown(evidence: ParityEvidence, reference: Trace) -> str:
    """Explain why no envelope is available: the fault of the perturbed runs, and what to do."""
    runs = _perturbed(evidence, reference)
    apart = max((_first_apart(trace, reference) for trace in runs if trace.loss and reference.loss), default=0.0)
    if evidence.own_program and apart > LARGEST_EPSILON:
        return f"the command does not repeat itself: run again, its first loss is {percent(apart)} off; have it set its seeds"
    if evidence.own_program and runs:
        return (
            f"the losses differ, and how far rounding drives them apart is unknown: {count_of(len(runs), 'run')} in other "
            "environments repeated every bit; name some under `losses.rounding` that do not"
        )
    return f"no usable perturbed run has seed {reference.seed}: how far rounding drives runs apart is unknown"
