"""Pairing of two training runs of one seed: the steps over which they may be compared.

Owns what must hold before any loss is compared (same start, same data, same length, finite values),
and, for information only, the verdict of PyTorch's training_loss.py on the same runs:
https://github.com/pytorch/pytorch/blob/main/benchmarks/dynamo/training_loss.py (`check_loss` and
the loss history of `model_training_evaluation`), kept with its quirks: windows of 100 batches
inside an epoch whose trailing part is dropped, the last 10 windows at most, divided by 10 even when
there are fewer.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ci_bench.records.comparison import Parity, ParityFinding, SeedRule, Tier
from ci_bench.records.results import Masks, ParityEvidence, RankSeries, Role, Trace

SIGNALS = ("loss", "grad_norm")
LARGEST = 1e100
"""Limit of finite losses and norms: larger ones exceed fp32, and their square would overflow."""
MANTISSA_BITS = 23
"""Mantissa bits of fp32, in which losses are computed unless the whole model has fewer."""
_BITS_OF_PRECISION = {"bf16": 7}

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Twins:
    """Two runs of one seed that may be compared."""

    reference: Trace
    """The reference run of the seed."""
    candidate: Trace
    """The run that is judged."""
    steps: int
    """Steps that both runs recorded."""
    skipped: tuple[int, ...] = ()
    """Steps at which one or both runs have no finite value, which are not compared."""
    note: str = ""
    """Description of the skipped steps; empty without any."""
    short: str = ""
    """Reason why the runs can never pass; empty without one."""
    as_written: bool = False
    """True if a program of the user's wrote the values, rounded to its number of decimals."""
    loss_bits: int = MANTISSA_BITS
    """Mantissa bits of the reference's losses."""

    def compared(self, steps: int | None = None) -> int:
        """Count the steps that both runs have a number for, of the first `steps` or of all."""
        end = self.steps if steps is None else min(steps, self.steps)
        return end - sum(step < end for step in self.skipped)

    def without_holes(self) -> "Twins":
        """Return the same runs without the skipped steps, to take means of."""
        if not self.skipped:
            return self
        reference, candidate = (
            _without(trace, self.skipped, self.steps) for trace in (self.reference, self.candidate)
        )
        return replace(
            self, reference=reference, candidate=candidate, steps=self.compared(), skipped=()
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Stopped:
    """Reason why two runs cannot be compared, or the step at which only one is not finite."""

    verdict: Parity
    """Verdict of the comparison, which never holds."""
    detail: str
    """The reason, for the report."""
    steps: int
    """Steps that were compared."""
    first_step: int | None = None
    """Step at which only the candidate is not finite; `None` for any other reason."""
    signal: str | None = None
    """Signal that is not finite at that step; `None` for any other reason."""


def match(evidence: ParityEvidence, run: Trace) -> Twins | Stopped:
    """Pair `run` with the reference run of its seed."""
    reference = first_of(evidence, Role.REFERENCE, run.seed)
    if reference is None:
        return insufficient(f"no reference run has seed {run.seed}")
    if not run.start or run.start != reference.start:
        return insufficient(f"seed {run.seed} did not start from the same state as the reference")
    if not run.data or run.data != reference.data:
        return insufficient(f"seed {run.seed} did not see the same data as the reference")
    pair = _finite_part(reference, run, _explodes_at(evidence, reference))
    if isinstance(pair, Stopped):
        return pair
    return replace(
        pair, as_written=evidence.own_program, loss_bits=_loss_bits(evidence.precision, reference)
    )


def _loss_bits(precision: str, reference: Trace) -> int:
    """Return the bits of the mantissas of the reference's losses.

    They are those of its weights, unless it computes losses in fp32.

    Only the reference decides: a candidate that rounds its losses to few bits is compared at the
    reference's precision.
    """
    bits = _BITS_OF_PRECISION.get(precision, MANTISSA_BITS)
    losses = series(reference, "loss", length(reference))
    mantissas, _ = np.frexp(losses[np.isfinite(losses)])
    return bits if np.all(np.ldexp(mantissas, bits + 1) % 1 == 0) else MANTISSA_BITS


def first_of(evidence: ParityEvidence, role: Role, seed: int) -> Trace | None:
    """Return the run of lowest index with that role and seed."""
    traces = [trace for trace in evidence.traces if trace.role is role and trace.seed == seed]
    return min(traces, key=lambda trace: trace.index, default=None)


def length(trace: Trace) -> int:
    """Return the number of steps that have both signals, or a loss if no norm was recorded."""
    return min(len(trace.loss), len(trace.grad_norm)) if trace.grad_norm else len(trace.loss)


def signals_of(*traces: Trace) -> tuple[str, ...]:
    """Return the signals that all of these runs have."""
    return SIGNALS if all(trace.grad_norm for trace in traces) else ("loss",)


def finite_steps(trace: Trace) -> int:
    """Count the steps that have a number for every signal."""
    steps = length(trace)
    return steps - sum(step < steps for step in holes_of(trace))


def holes_of(trace: Trace) -> dict[int, str]:
    """Return the steps that have no number, in order, with the signal.

    If both signals lack one, it is the loss.
    """
    signals = {step: signal for signal in reversed(SIGNALS) for step in _holes(trace, signal)}
    return dict(sorted(signals.items()))


def series(trace: Trace, signal: str, steps: int) -> Floats:
    """Return the first `steps` values of a signal; nan if one is missing or not finite."""
    values: tuple[float | None, ...] = getattr(trace, signal)
    numbers = np.asarray(
        [math.nan if value is None else value for value in values[:steps]], dtype=np.float64
    )
    return np.where(np.abs(numbers) < LARGEST, numbers, math.nan)


def step_name(trace: Trace, position: int) -> str:
    """Return ``step 340``, the name of the step at a position in the log of a run.

    It is ``epoch 2, iteration 70`` if the steps restart.
    """
    name = trace.steps[position] if position < len(trace.steps) else str(position)
    return f"step {name}" if name.isdecimal() else name


def stopped(stop: Stopped, run: Trace, *, masks: Masks | None, tier: Tier | None) -> ParityFinding:
    """Return the finding of runs that cannot be compared."""
    return ParityFinding(
        arm=run.arm,
        verdict=stop.verdict,
        tier=tier,
        masks=masks,
        steps=stop.steps,
        detail=stop.detail,
        first_step=stop.first_step,
        signal=stop.signal,
    )


def as_rank_sees(trace: Trace, rank: int, rank_series: RankSeries) -> Trace | None:
    """Return a run of one process restricted to the rows of a rank, as in `rank_series`.

    `None` if the loss of these rows was not recorded.
    """
    if not rank_series.own_rows:
        return trace
    first = rank // rank_series.sharing * rank_series.sharing
    losses = (
        _of_rows_together(trace.ranks, range(first, first + rank_series.sharing))
        if trace.ranks is not None
        else ()
    )
    return (
        replace(trace, loss=losses)
        if len(losses) == len(trace.loss) and None not in losses
        else None
    )


def _of_rows_together(series: RankSeries, ranks: range) -> tuple[float | None, ...]:
    """Return the mean loss of several ranks' rows by step; empty if one of them is unknown."""
    if ranks.stop > len(series.loss):
        return ()
    if len(ranks) == 1:
        return series.loss[ranks.start]
    if ranks.stop > len(series.rows):
        return ()
    of_steps = zip(
        *(zip(series.loss[rank], series.rows[rank], strict=False) for rank in ranks), strict=False
    )
    return tuple(_mean(pairs) for pairs in of_steps)


def _mean(losses_and_rows: Iterable[tuple[float | None, int]]) -> float | None:
    counted = [(loss, rows) for loss, rows in losses_and_rows if rows]
    if not counted or any(loss is None for loss, _ in counted):
        return None
    return sum((loss or 0.0) * rows for loss, rows in counted) / sum(rows for _, rows in counted)


def insufficient(detail: str, steps: int = 0) -> Stopped:
    """Return the reason why there is too little to judge, which never passes."""
    return Stopped(verdict=Parity.INSUFFICIENT_DATA, detail=detail, steps=steps)


def _holes(trace: Trace, signal: str) -> Iterable[int]:
    values: tuple[float | None, ...] = getattr(trace, signal)
    yield from (
        step for step, value in enumerate(values) if value is None or not abs(value) < LARGEST
    )
    yield from (hole.step for hole in trace.non_finite if hole.signal == signal)


def perturbed_runs(evidence: ParityEvidence, reference: Trace) -> tuple[Trace, ...]:
    """Return all perturbed runs of the reference's arm, seed and data, usable or not."""
    of = (reference.arm, reference.seed, reference.data)
    return tuple(
        trace
        for trace in evidence.traces
        if trace.role is Role.PERTURBED and (trace.arm, trace.seed, trace.data) == of
    )


def _explodes_at(evidence: ParityEvidence, reference: Trace) -> float:
    """Return the step from which on some perturbed run has no finite loss; infinity without one.

    A hole that numbers follow does not count: a loss scaler skips a step.
    """
    ends = (
        end
        for trace in perturbed_runs(evidence, reference)
        if (end := _end_of_losses(trace)) < len(trace.loss)
    )
    return min(ends, default=math.inf)


def _end_of_losses(trace: Trace) -> int:
    """Return the step after the last finite loss."""
    holes, end = set(_holes(trace, "loss")), len(trace.loss)
    while end - 1 in holes:
        end -= 1
    return end


def overflowing(reference: Trace, step: int) -> Stopped | None:
    """Return why a deviation at a step says nothing: the loss only grows until it overflows.

    That growth multiplies rounding. `None` if the step is before it, or the losses end in numbers.
    """
    end = _end_of_losses(reference)
    if end == len(reference.loss):
        return None
    losses = series(reference, "loss", end)
    while end > 1 and losses[end - 1] > losses[end - 2]:
        end -= 1
    if step < end - 1:
        return None
    return _reference_not_finite(
        f"the reference itself is not finite (its loss only grows from step {end - 1} on)", end - 1
    )


def _finite_part(reference: Trace, run: Trace, explodes_at: float) -> Twins | Stopped:
    """Return the steps with a number on both sides.

    Only one side without a number is a finding, from the first such step on: the candidate's, or
    the reference's if it, or it perturbed (`explodes_at`), has none either.

    Rounding may move an overflow by one step. If both runs have equally many holes, or both end in
    one, adjacent holes count as the same.
    """
    steps = min(length(reference), length(run))
    ours, theirs = holes_of(run), holes_of(reference)
    moved = len(ours) == len(theirs) or (steps - 1 in ours and steps - 1 in theirs)
    reach = (-1, 0, 1) if moved else (0,)
    alone = [
        step
        for step in ours
        if step < length(reference) and not any(step + by in theirs for by in reach)
    ]
    theirs_alone = [
        step for step in theirs if step < length(run) and not any(step + by in ours for by in reach)
    ]
    if alone and alone[0] <= min(theirs_alone, default=alone[0]):
        if alone[0] < explodes_at - 1:
            return _candidate_not_finite(run, alone[0], ours[alone[0]])
        return _reference_not_finite(
            f"after rounding, the reference is not finite either (loss at step {explodes_at:g})",
            alone[0],
        )
    if theirs_alone:
        first = theirs_alone[0]
        return _reference_not_finite(
            f"the reference itself is not finite ({theirs[first]} at step {first})", first
        )
    skipped = tuple(step for step in range(steps) if step in ours or step in theirs)
    note = (
        f"both runs are not finite at {_steps(skipped)}, which is not compared" if skipped else ""
    )
    return Twins(
        reference=reference,
        candidate=run,
        steps=steps,
        skipped=skipped,
        note=note,
        short=_shortness(reference, run),
    )


def _steps(skipped: tuple[int, ...]) -> str:
    return (
        f"step {skipped[0]}"
        if len(skipped) == 1
        else f"{len(skipped)} steps from step {skipped[0]} on"
    )


def _without(trace: Trace, skipped: tuple[int, ...], steps: int) -> Trace:
    remaining = [step for step in range(steps) if step not in skipped]
    norms = tuple(trace.grad_norm[step] for step in remaining) if trace.grad_norm else ()
    return replace(
        trace, loss=tuple(trace.loss[step] for step in remaining), grad_norm=norms, non_finite=()
    )


def _reference_not_finite(what: str, steps: int) -> Stopped:
    detail = f"{what}: lower the learning rate or fix the model"
    return Stopped(verdict=Parity.INCONCLUSIVE, detail=detail, steps=steps)


def _candidate_not_finite(run: Trace, step: int, signal: str) -> Stopped:
    value = next(
        (hole.value for hole in run.non_finite if (hole.signal, hole.step) == (signal, step)),
        "not finite",
    )
    detail = f"{signal} is {value} at step {step}, where the reference is finite"
    return Stopped(
        verdict=Parity.NON_FINITE, detail=detail, steps=step, first_step=step, signal=signal
    )


def _shortness(reference: Trace, run: Trace) -> str:
    lengths = {len(reference.loss), len(run.loss)}
    if reference.grad_norm or run.grad_norm:
        if not (reference.grad_norm and run.grad_norm):
            return (
                f"only the {'reference' if reference.grad_norm else 'candidate'} has gradient"
                " norms: both must have them"
            )
        lengths |= {len(reference.grad_norm), len(run.grad_norm)}
    if len(lengths) == 1:
        return ""
    return (
        f"the runs have {length(run)} (candidate) and {length(reference)} (reference) steps: they"
        " must be equally long"
    )


WINDOW = 100
TAIL = 10
ALLOWANCE = 0.1


def seed_rule(evidence: ParityEvidence, arm: str) -> SeedRule | None:
    """Apply the rule to the first seed that the reference and `arm` share; `None` without one."""
    references = {trace.seed: trace for trace in _ordered(evidence, Role.REFERENCE)}
    candidates = {
        trace.seed: trace for trace in _ordered(evidence, Role.CANDIDATE) if trace.arm == arm
    }
    shared = sorted(references.keys() & candidates.keys())
    if not shared:
        return None
    sides = [
        window_means(side[shared[0]].loss, steps_per_epoch=evidence.steps_per_epoch)
        for side in (references, candidates)
    ]
    return _decide(sides[0], sides[1])


def window_means(losses: tuple[float | None, ...], *, steps_per_epoch: int) -> tuple[float, ...]:
    """Return the mean of each full window of batches inside an epoch; nan if a loss is missing."""
    epoch = max(1, steps_per_epoch)
    starts = (
        begin + offset
        for begin in range(0, len(losses), epoch)
        for offset in range(0, epoch - WINDOW + 1, WINDOW)
    )
    windows = (losses[start : start + WINDOW] for start in starts)
    return tuple(
        sum(math.nan if loss is None else loss for loss in window) / WINDOW
        for window in windows
        if len(window) == WINDOW
    )


def _ordered(evidence: ParityEvidence, role: Role) -> list[Trace]:
    """Return the traces of a role, a seed's first index last, so a mapping by seed keeps it."""
    return sorted(
        (trace for trace in evidence.traces if trace.role is role),
        key=lambda trace: (trace.seed, -trace.index),
    )


def _decide(reference: tuple[float, ...], candidate: tuple[float, ...]) -> SeedRule:
    if len(reference) != len(candidate):
        return SeedRule(
            passed=False,
            detail=f"{len(reference)} windows in the reference, {len(candidate)} in the candidate",
        )
    if not reference:
        return SeedRule(
            passed=None,
            detail=(
                "no window of 100 batches in an epoch: the rule has nothing to compare (it would"
                " have passed)"
            ),
        )
    expected, actual = (sum(side[-TAIL:]) / TAIL for side in (reference, candidate))
    passed = actual <= expected + ALLOWANCE
    return SeedRule(
        passed=passed,
        detail=(
            f"tail {actual:.4f} against {expected:.4f} + {ALLOWANCE}, from"
            f" {min(TAIL, len(reference))} of {TAIL} windows"
        ),
    )
