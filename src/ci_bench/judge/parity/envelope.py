"""Rounding envelope: the deviation that rounding causes at each step, and the runs that show it.

Owns the floors of the envelope (the numbers of fp32 and of bf16, the last decimal of a log), the
scales of signals, and the choice of perturbed runs. `parity` judges signals that leave the
envelope.
"""

import math
from collections.abc import Iterable

import numpy as np

from ci_bench.judge.parity.runs import (
    LARGEST,
    MANTISSA_BITS,
    Floats,
    Twins,
    finite_steps,
    length,
    perturbed_runs,
    series,
)
from ci_bench.judge.wording import count_of, percent
from ci_bench.records.results import ParityEvidence, Trace

LEAST_STEPS = 10
LIMIT = 10.0
"""Parity holds up to this many widths of the envelope."""
LARGEST_EPSILON = 2.0**-8
"""No precision in use rounds as coarsely: an envelope from larger perturbations would let anything
pass.
"""

_ULPS, _NEIGHBOURS = 4.0, 2.0
_LEAST_NORMAL = 2.0**-126
ROUNDED = "rounding"
"""Prefix of the start of a run in another rounding."""
_MOST_DECIMALS, _DISTINCT = 6, 5
_MOST_OF_FP32, _SINGLE = 4, 2.0**-24
_DOUBLE = 2.0**-50
"""A number of decimals as text and back is equal to itself but for fp64's rounding."""


def envelope_of(
    twins: Twins, reference: Floats, perturbed: tuple[Trace, ...], signal: str
) -> Floats:
    """Return the envelope around a scaled signal of the reference, from perturbed runs."""
    return envelope(
        reference, perturbed, signal, as_written=twins.as_written, loss_bits=twins.loss_bits
    )


def envelope(
    reference: Floats,
    perturbed: tuple[Trace, ...],
    signal: str,
    *,
    as_written: bool = False,
    loss_bits: int = MANTISSA_BITS,
) -> Floats:
    """Return how far rounding may drive the signal from `reference` up to each step.

    Values that a program wrote (`as_written`) may be off by their last decimal, besides. Losses of
    fewer bits than fp32's may be two of their numbers apart: each is rounded, and the mean of
    several processes' is of numbers that may lie twice as far apart.
    """
    floor = (
        _ULPS * ulp(reference)
        if signal == "loss"
        else np.full(reference.shape, _ULPS * 2.0**-MANTISSA_BITS)
    )
    if signal == "loss" and loss_bits < MANTISSA_BITS:
        floor = np.maximum(floor, _NEIGHBOURS * ulp(reference, loss_bits) / (LIMIT - 1))
    if as_written:
        raw = unscaled(reference, signal)
        digit = _last_digits(raw, signal) / (LIMIT - 1)
        floor = np.maximum(
            floor, digit if signal == "loss" else digit / np.maximum(raw, _LEAST_NORMAL)
        )
    widest = np.zeros(reference.shape)
    for trace in perturbed:
        values = scaled(series(trace, signal, min(length(trace), len(reference))), signal)
        deviations = np.abs(values - reference[: len(values)])
        np.fmax(
            widest[: len(values)], deviations, out=widest[: len(values)]
        )  # ignores steps that are not finite
    bound: Floats = np.maximum(floor, np.maximum.accumulate(widest))
    return bound


def _last_digits(values: Floats, signal: str, *, as_written: bool = True) -> Floats:
    """Return the last digit of each number with at most six decimals or significant digits; else 0.

    Logs write such numbers.

    Two runs that differ by next to nothing may be rounded to neighbours: one such digit apart is
    within the limit, two are not. With the same number of significant digits, larger numbers have
    fewer decimals: ``10.6`` and ``9.74``. Numbers of a suite are fp32, so more than four of its
    digits are not distinguishable from chance. A norm that is clipped to 1 at every step shows no
    digits.
    """
    finite = values[np.isfinite(values)]
    most, close = (_MOST_DECIMALS, _DOUBLE) if as_written else (_MOST_OF_FP32, _SINGLE)
    sizes = np.floor(np.log10(np.maximum(np.abs(values), _LEAST_NORMAL)))
    few = signal != "loss" and len({*finite.tolist()}) < _DISTINCT
    scales = 10.0 ** np.floor(np.log10(np.maximum(np.abs(finite), _LEAST_NORMAL)))
    digits = _fewest(finite / scales, range(2 if few else 0, most), close)
    decimals = _fewest(finite, range(2 if few else 0, most + 1), close)
    by_decimals = (
        0.0
        if decimals is None or not _shown(finite, decimals, as_written=as_written)
        else 10.0**-decimals
    )
    last: Floats = np.maximum(
        by_decimals, np.zeros(values.shape) if digits is None else 10.0 ** (sizes - digits)
    )
    return last


def digit_score(reference: Trace, run: Trace, perturbed: Iterable[Trace], signal: str) -> float:
    """Return the largest deviation of a suite's run if its last digit counts as in a log.

    Infinite if some number of these runs has more digits than a model would round to.
    """
    steps = min(length(reference), length(run))
    every = [series(trace, signal, steps) for trace in (reference, run, *perturbed)]
    values, others = every[:2]
    digits = _last_digits(np.concatenate(every), signal, as_written=False)[:steps]
    deviations = np.abs(others - values)
    comparable = np.isfinite(deviations) & (digits > 0)
    return (
        float((deviations[comparable] * (LIMIT - 1) / digits[comparable]).max())
        if comparable.any()
        else math.inf
    )


def _fewest(values: Floats, decimals: Iterable[int], close: float) -> int | None:
    """Return the fewest decimals with which all values can be written."""
    rounded = ((number, np.round(values, number)) for number in decimals)
    return next(
        (number for number, those in rounded if np.allclose(values, those, rtol=close, atol=0)),
        None,
    )


def _shown(values: Floats, decimals: int, *, as_written: bool) -> bool:
    """Return whether the decimals are digits of the numbers.

    fp32 numbers of 1,000 and more have no four.
    """
    largest = float(np.abs(values).max()) if values.size else 0.0
    return as_written or largest * 10.0**decimals < 10.0**_MOST_OF_FP32


def ulp(values: Floats, bits: int = MANTISSA_BITS) -> Floats:
    """Return the distance of neighbouring numbers at each value, for a mantissa of `bits` bits."""
    _, exponents = np.frexp(np.maximum(np.abs(values), _LEAST_NORMAL))
    spacing: Floats = np.ldexp(1.0, exponents - bits - 1)
    return spacing


def scaled(values: Floats, signal: str) -> Floats:
    """Return losses unchanged, and gradient norms as logarithms.

    A norm of zero counts as the smallest normal fp32 number.
    """
    return values if signal == "loss" else np.log(np.maximum(values, _LEAST_NORMAL))


def usable(evidence: ParityEvidence, reference: Trace) -> tuple[Trace, ...]:
    """Return perturbed runs of the reference's arm, seed and data that can show rounding.

    They started elsewhere and stayed finite long enough.

    No run is usable if weights were perturbed by more than any precision rounds, or not at all. Of
    repeated runs of a program, a run that repeats full numbers bit by bit shows no rounding, and
    one whose first loss deviates by more than any rounding has another seed. A run that repeats
    them in another rounding has an envelope of only the floor.
    """
    if evidence.epsilon > LARGEST_EPSILON or (evidence.epsilon == 0 and not evidence.own_program):
        return ()
    runs = (
        trace for trace in perturbed_runs(evidence, reference) if trace.start != reference.start
    )
    enough = tuple(trace for trace in runs if finite_steps(trace) >= LEAST_STEPS)
    if not evidence.own_program:
        return enough
    if any(_first_apart(trace, reference) > LARGEST_EPSILON for trace in enough):
        return ()
    return tuple(
        trace
        for trace in enough
        if trace.start.startswith(ROUNDED) or _tells_of_rounding(trace, reference)
    )


def only_repeats(perturbed: tuple[Trace, ...], reference: Trace) -> bool:
    """Return whether all perturbed runs of a program repeat full numbers bit by bit.

    Then rounding may do more than they show.
    """
    return not any(_tells_of_rounding(trace, reference) for trace in perturbed)


def _tells_of_rounding(trace: Trace, reference: Trace) -> bool:
    """Return whether a program's run adds to the envelope.

    It does if it came out differently, or if its log is too coarse to show that.

    A log of four decimals may well be the same in another rounding: then rounding moves none of
    them. Full fp32 numbers are not.
    """
    if (trace.loss, trace.grad_norm) != (reference.loss, reference.grad_norm):
        return True
    losses = series(reference, "loss", length(reference))
    last = _last_digits(losses, "loss")
    return trace.start.startswith(ROUNDED) and bool(np.any(last > LIMIT * _ULPS * ulp(losses)))


def _first_apart(trace: Trace, reference: Trace) -> float:
    """Return the relative deviation of the first loss from the reference's."""
    ours, theirs = trace.loss[0], reference.loss[0]
    if ours is None or theirs is None:
        return math.inf
    return abs(ours - theirs) / max(abs(theirs), _LEAST_NORMAL) if ours != theirs else 0.0


def unscaled(values: Floats, signal: str) -> Floats:
    """Return the inverse of `scaled`, at most `LARGEST`."""
    raw: Floats = values if signal == "loss" else np.exp(np.minimum(values, math.log(LARGEST)))
    return raw


def why_unknown(evidence: ParityEvidence, reference: Trace) -> str:
    """Explain why no envelope is available: the fault of the perturbed runs, and what to do."""
    runs = perturbed_runs(evidence, reference)
    deviation = max(
        (_first_apart(trace, reference) for trace in runs if trace.loss and reference.loss),
        default=0.0,
    )
    if evidence.own_program and deviation > LARGEST_EPSILON:
        return (
            f"the command does not repeat itself: run again, its first loss is {percent(deviation)}"
            " off; have it set its seeds"
        )
    if evidence.own_program and runs:
        return (
            "the losses differ, and how far rounding drives them apart is unknown:"
            f" {count_of(len(runs), 'run')} in other environments repeated every bit; name some"
            " under `losses.rounding` that do not"
        )
    return (
        f"no usable perturbed run has seed {reference.seed}: how far rounding drives runs apart is"
        " unknown"
    )
