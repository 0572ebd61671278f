"""Losses that a program of the user's wrote: which steps of two logs are the same, and what is compared of them.

Logs are matched by their own step numbers. Steps that only one log has, values that only one side
recorded and evaluations that changed never pass. Steps without a number on both sides are left out.
The others are judged by the rule of all trainings. Pure.
"""

import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ci_bench.judge.parity.envelope import (
    LARGEST_EPSILON,
    LEAST_STEPS,
    LIMIT,
    envelope,
    only_repeats,
    perturbed_runs,
    usable,
    why_unknown,
)
from ci_bench.judge.parity.learning import why_unlearned
from ci_bench.judge.parity.runs import LARGEST, SIGNALS, first_of, insufficient, step_name, stopped
from ci_bench.judge.parity.sensitivity import Sensitivity, figure, with_sensitivity
from ci_bench.judge.wording import percent
from ci_bench.records.comparison import Parity, ParityFinding, Tier
from ci_bench.records.results import MISSING, Masks, NonFinite, ParityEvidence, Role, Trace

CONTROL = 0.01
"""The share by which the control's losses are higher than the reference's."""
LATE = 3
"""The control of a late change begins with the last third."""

Judge = Callable[[ParityEvidence, Trace, Masks], ParityFinding]
Ask = Callable[[ParityEvidence, Trace], ParityFinding]


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """The steps that both logs have, as labels, with what keeps them from passing (`short`) and what is only said (`notes`).

    `losses` and `norms` are the labels at which both sides have a finite value; `recorded` is the
    length of the longer log.
    """

    losses: tuple[str, ...]
    norms: tuple[str, ...]
    recorded: int
    short: str = ""
    notes: str = ""


def log_finding(evidence: ParityEvidence, run: Trace, masks: Masks, judge: Judge) -> ParityFinding:
    """Judge a run against the reference of its seed by `judge`, over the steps that both logs have."""
    reference = first_of(evidence, Role.REFERENCE, run.seed)
    if reference is None or (reference.start, reference.data) != (run.start, run.data):
        return judge(evidence, run, masks)
    if bool(reference.steps) != bool(run.steps):
        reference, run = replace(reference, steps=()), replace(run, steps=())
    if hole := _lone_hole(reference, run):
        return _closed(hole, reference, run)
    matched = _match(reference, run)
    if len(matched.losses) < LEAST_STEPS:
        detail = f"parity needs {LEAST_STEPS} steps, and {len(matched.losses)} were compared"
        stop = insufficient(_joined(detail, matched.short), len(matched.losses))
        return _closed(stopped(stop, run, masks=masks, tier=Tier.NUMERIC), reference, run)
    found = _over(evidence, reference, run, matched, lambda whole, one: judge(whole, one, masks))
    if found.verdict.holds and (reason := why_unlearned(reference.loss, reference.grad_norm)):
        found = replace(
            found, verdict=Parity.INSUFFICIENT_DATA, detail=f"learning unknown: {reason}"
        )
    if found.verdict.holds:
        found = _with_evaluations(found, evidence, reference, run, whole=not matched.short)
    if found.verdict.holds and (matched.short or 2 * len(matched.losses) < matched.recorded):
        few = (
            ""
            if matched.short
            else f"{len(matched.losses)} of {matched.recorded} recorded steps are too few"
        )
        detail = _joined(
            f"no difference in the {len(matched.losses)} steps that both runs have",
            matched.short,
            few,
        )
        found = replace(found, verdict=Parity.INSUFFICIENT_DATA, detail=detail)
    return _closed(replace(found, detail=_joined(found.detail, matched.notes)), reference, run)


def _over(
    evidence: ParityEvidence, reference: Trace, run: Trace, matched: Matched, ask: Ask
) -> ParityFinding:
    """The finding over the matched steps; norms that some of these lack are judged over their own steps."""
    apart = 0 < len(matched.norms) < len(matched.losses)
    cut = _cut_evidence(
        evidence, reference, matched.losses, norms=bool(matched.norms) and not apart
    )
    ours = _cut(run, matched.losses, norms=bool(matched.norms) and not apart)
    found = _certain(ask(cut, ours), cut, ours)
    if found.verdict.holds and not why_unlearned(reference.loss, reference.grad_norm):
        found = _with_sensitivity(found, cut, ask)
    if not apart or len(matched.norms) < LEAST_STEPS or found.verdict.broken:
        return found
    of_norms = _cut_evidence(evidence, reference, matched.norms, norms=True)
    theirs = _cut(run, matched.norms, norms=True)
    second = _certain(ask(of_norms, theirs), of_norms, theirs)
    if second.verdict.holds:
        return replace(found, grad_norm_score=second.grad_norm_score)
    return second if second.verdict.broken or found.verdict.holds else found


def _match(reference: Trace, run: Trace) -> Matched:
    ours, theirs = _labels(run), _labels(reference)
    shared = set(ours) & set(theirs)
    common = [label for label in theirs if label in shared]
    losses, norms = (
        _finite_on_both(common, _values(reference, name), _values(run, name)) for name in SIGNALS
    )
    recorded = [
        set(common) - _missing(trace) if trace.grad_norm else set() for trace in (reference, run)
    ]
    shorts = [_lengths(theirs, ours) if len(shared) < max(len(ours), len(theirs)) else ""]
    counts = [0 if trace.ranks is None else len(trace.ranks.loss) for trace in (reference, run)]
    shorts.append(_ranks(*counts) if counts[0] != counts[1] else "")
    shorts.append(_norms(reference, run, *map(len, recorded)) if recorded[0] != recorded[1] else "")
    holes = len(common) - len(losses)
    notes = [f"{holes} steps are not finite on both sides and not compared" if holes else ""]
    if 0 < len(norms) < len(losses):
        few = "" if len(norms) >= LEAST_STEPS else ", which is too few"
        notes.append(f"gradient norms are compared at {len(norms)} of {len(losses)} steps{few}")
    return Matched(
        losses=losses,
        norms=_finite_on_both(norms, set(losses)),
        recorded=max(len(ours), len(theirs)),
        short=_joined(*shorts),
        notes=_joined(*notes),
    )


def _finite_on_both(labels: Iterable[str], *known: Container[str]) -> tuple[str, ...]:
    return tuple(label for label in labels if all(label in values for values in known))


def _labels(trace: Trace) -> tuple[str, ...]:
    return trace.steps or tuple(map(str, range(len(trace.loss))))


def _values(trace: Trace, signal: str) -> dict[str, float]:
    """The finite values of a signal by step."""
    values: Sequence[float | None] = getattr(trace, signal)
    pairs = zip(_labels(trace), values, strict=False)
    return {label: value for label, value in pairs if value is not None and abs(value) < LARGEST}


def _missing(trace: Trace) -> set[str]:
    """The steps whose gradient norm was not recorded."""
    labels = _labels(trace)
    return {
        labels[hole.step]
        for hole in trace.non_finite
        if hole.signal == "grad_norm" and hole.value == MISSING
    }


def _lengths(theirs: Sequence[str], ours: Sequence[str]) -> str:
    if len(theirs) != len(ours):
        return (
            f"the runs have {len(ours):,} (candidate) and {len(theirs):,} (reference) steps: they"
            " must be equally long"
        )
    return (
        f"the candidate's steps are {ours[0]} to {ours[-1]}, and the reference's {theirs[0]} to"
        f" {theirs[-1]}"
    )


def _ranks(theirs: int, ours: int) -> str:
    return (
        f"the logs are of {ours or 1} (candidate) and {theirs or 1} (reference) ranks: both must"
        " have as many"
    )


def _norms(reference: Trace, run: Trace, theirs: int, ours: int) -> str:
    if not (reference.grad_norm and run.grad_norm):
        return (
            f"only the {'reference' if reference.grad_norm else 'candidate'} has gradient norms:"
            " both must have them"
        )
    return (
        f"{ours} (candidate) and {theirs} (reference) steps have a gradient norm: both must have"
        " the same ones"
    )


def _lone_hole(reference: Trace, run: Trace) -> ParityFinding | None:
    """The first step at which only one side has no finite value.

    Two runs that diverge for good may do so a step apart.
    """
    found = []
    for signal in SIGNALS:
        theirs, ours = _holes(reference, signal), _holes(run, signal)
        order = {label: position for position, label in enumerate(_labels(run))}
        shared = [label for label in _labels(reference) if label in order]
        alone = [
            (order[label], label, signal)
            for label in shared
            if (label in ours) != (label in theirs)
        ]
        diverged = shared and shared[-1] in ours and shared[-1] in theirs
        found += alone if len(alone) > 1 or not diverged else []
    if not found:
        return None
    position, label, signal = min(found, key=lambda hole: (hole[0], hole[2] != "loss"))
    name = step_name(run, position)
    if label in (ours := _holes(run, signal)):
        verdict, detail = (
            Parity.NON_FINITE,
            f"{signal} is {ours[label]} at {name}, where the reference is finite",
        )
    else:
        verdict = Parity.INCONCLUSIVE
        detail = (
            f"the reference itself is not finite ({signal} at {name}): lower the learning rate or"
            " fix the model"
        )
    return ParityFinding(
        arm=run.arm,
        verdict=verdict,
        tier=Tier.NUMERIC,
        masks=Masks.ALIGNED,
        steps=position,
        detail=detail,
        first_step=position if verdict is Parity.NON_FINITE else None,
        step=name if run.steps and verdict is Parity.NON_FINITE else "",
        signal=signal if verdict is Parity.NON_FINITE else None,
    )


def _holes(trace: Trace, signal: str) -> dict[str, str]:
    """The steps at which a signal was recorded and is not finite, with what it was."""
    labels = _labels(trace)
    found = {
        labels[hole.step]: hole.value
        for hole in trace.non_finite
        if hole.signal == signal and hole.value != MISSING
    }
    values: Sequence[float | None] = getattr(trace, signal)
    huge = (
        label
        for label, value in zip(labels, values, strict=False)
        if value is not None and abs(value) >= LARGEST
    )
    return {**dict.fromkeys(huge, "not finite"), **found}


def _cut_evidence(
    evidence: ParityEvidence, reference: Trace, labels: Sequence[str], *, norms: bool
) -> ParityEvidence:
    """The reference and the perturbed runs at these steps; a perturbed run ends where it lacks one."""
    others = [trace for trace in evidence.traces if trace.role is Role.PERTURBED]
    others = [replace(trace, steps=trace.steps if reference.steps else ()) for trace in others]
    traces = [_cut(trace, labels, norms=norms) for trace in others if trace.grad_norm or not norms]
    return replace(evidence, traces=(_cut(reference, labels, norms=norms), *traces))


def _cut(trace: Trace, labels: Sequence[str], *, norms: bool) -> Trace:
    places = {label: position for position, label in enumerate(_labels(trace))}
    kept = labels[
        : next((index for index, label in enumerate(labels) if label not in places), len(labels))
    ]
    picked = [places[label] for label in kept]
    loss = tuple(trace.loss[position] for position in picked)
    norm = tuple(trace.grad_norm[position] for position in picked) if norms else ()
    whole = list(picked) == list(range(len(trace.loss))) and bool(norm) == bool(trace.grad_norm)
    series = {"loss": loss, "grad_norm": norm}
    holes = (
        NonFinite(signal=signal, step=step, value="nan")
        for signal, values in series.items()
        for step, value in enumerate(values)
        if value is None
    )
    return replace(
        trace,
        loss=loss,
        grad_norm=norm,
        steps=tuple(kept) if trace.steps or not whole else (),
        non_finite=tuple(holes),
        ranks=trace.ranks if whole and None not in loss else None,
    )


def _certain(found: ParityFinding, evidence: ParityEvidence, run: Trace) -> ParityFinding:
    """The finding, unless its envelope is that of a program that repeats every bit and the difference may be rounding.

    No precision in use rounds as coarsely as 2^-8, so a larger difference is a change.
    """
    reference = evidence.traces[0]
    if found.verdict is not Parity.DIFFERENT_MATH or not only_repeats(
        usable(evidence, reference), reference
    ):
        return found
    pairs = [(reference.loss, run.loss), (reference.grad_norm, run.grad_norm)]
    shares = [
        abs(one - other) / max(abs(one), abs(other))
        for both in pairs
        for one, other in zip(*both, strict=False)
        if one is not None and other is not None and one != other
    ]
    if max(shares, default=0.0) > LARGEST_EPSILON:
        return found
    return replace(
        found,
        verdict=Parity.INSUFFICIENT_DATA,
        detail=f"{found.detail}; {why_unknown(evidence, reference)}",
        first_step=None,
        step="",
        signal=None,
    )


def _with_sensitivity(found: ParityFinding, evidence: ParityEvidence, ask: Ask) -> ParityFinding:
    """The finding with the score of a loss 1 % off; no pass if that is within the limit."""
    reference = evidence.traces[0]
    steps = len(reference.loss)
    score = _control_score(evidence, reference, ask, first=0)
    fault = f"a loss {percent(CONTROL)} off"
    seen = Sensitivity(score=score, limit=LIMIT, caught=score > LIMIT, fault=fault)
    found = with_sensitivity(found, seen, "log more digits or train more steps")
    late = _control_score(evidence, reference, ask, first=steps - steps // LATE)
    if not found.verdict.holds or found.verdict is Parity.BITWISE or late > LIMIT:
        return found
    return replace(found, detail=f"{found.detail}, and {figure(late)} in the last third only")


def _control_score(evidence: ParityEvidence, reference: Trace, ask: Ask, *, first: int) -> float:
    """The score of the reference with losses 1 % higher from a step on.

    Without an envelope the scale is that of the log's digits, and of runs that do not repeat
    themselves: they hide such a loss.
    """
    raised = tuple(
        loss if loss is None or step < first else loss + CONTROL * abs(loss)
        for step, loss in enumerate(reference.loss)
    )
    control = replace(reference, role=Role.CANDIDATE, loss=raised, ranks=None)
    found = ask(evidence, control)
    if found.loss_score is not None:
        return found.loss_score
    losses = np.asarray([math.nan if loss is None else loss for loss in reference.loss])
    higher = np.asarray([math.nan if loss is None else loss for loss in raised])
    runs = perturbed_runs(evidence, reference)
    return float(
        np.nanmax(np.abs(higher - losses) / envelope(losses, runs, "loss", as_written=True))
    )


def _with_evaluations(
    found: ParityFinding, evidence: ParityEvidence, reference: Trace, run: Trace, *, whole: bool
) -> ParityFinding:
    """Return the finding, or that of the evaluation losses, a separate series.

    For runs that are not `whole`, return the first.
    """
    ours, theirs = run.evaluations, reference.evaluations
    if not whole:
        ours, theirs = (one[: min(len(ours), len(theirs))] for one in (ours, theirs))
    if ours == theirs:
        return found
    if len(ours) != len(theirs):
        detail = (
            f"the training is equal, but there are {len(ours)} (candidate) and {len(theirs)}"
            " (reference) evaluations"
        )
        return replace(found, verdict=Parity.INSUFFICIENT_DATA, detail=detail)
    runs = [
        trace.evaluations[: len(theirs)]
        for trace in usable(evidence, reference)
        if len(trace.evaluations) >= len(theirs)
    ]
    base, head, *others = (
        np.asarray([math.nan if value is None else value for value in one])
        for one in (theirs, ours, *runs)
    )
    width = np.nan_to_num(envelope(np.nan_to_num(base), (), "loss", as_written=True))
    for other in others:
        width = np.fmax(width, np.abs(other - base))
    apart = np.isnan(head) != np.isnan(base)
    scores = np.where(
        apart, np.inf, np.nan_to_num(np.abs(head - base)) / np.maximum.accumulate(width)
    )
    beyond = np.flatnonzero(scores > LIMIT)
    if not beyond.size:
        return found
    first = int(beyond[0])
    share = (head[first] - base[first]) / abs(base[first]) if base[first] else math.nan
    size = f"off by {percent(share)}" if math.isfinite(share) else "not finite on one side"
    detail = (
        f"the training is equal, but the loss of evaluation {first + 1} of {len(theirs)} is {size}"
    )
    unknown = not runs
    why = f"; {why_unknown(evidence, reference)}" if unknown else ""
    verdict = Parity.INSUFFICIENT_DATA if unknown else Parity.DIFFERENT_MATH
    if unknown:
        return replace(found, verdict=verdict, detail=detail + why, signal=None)
    return replace(
        found,
        verdict=verdict,
        detail=detail + why,
        signal="evaluation_loss",
        step=f"evaluation {first + 1}",
        apart_first=float(share) if math.isfinite(share) else None,
    )


def _closed(found: ParityFinding, reference: Trace, run: Trace) -> ParityFinding:
    """The finding with what was read of both logs."""
    recorded = max(len(reference.loss), len(run.loss))
    return replace(found, detail=_joined(found.detail, _reading(reference, run)), recorded=recorded)


def _reading(reference: Trace, run: Trace) -> str:
    """``read 120 steps of rank 0; loss fell from 10.4 to 7.1 on both sides``."""
    theirs, ours = len(reference.loss), len(run.loss)
    steps = f"{ours:,}" if ours == theirs else f"{ours:,} (candidate) and {theirs:,} (reference)"
    of, left = (
        one if one == other else f"{other or 'nothing'} (candidate), {one or 'nothing'} (reference)"
        for one, other in zip(_parts(reference.reading), _parts(run.reading), strict=True)
    )
    course, other = _course(reference), _course(run)
    sides = (
        f"loss {course} on both sides"
        if course == other
        else f"loss {other} (candidate), {course} (reference)"
    )
    return _joined(f"read {steps} steps{f' of {of}' if of else ''}", sides, left)


def _parts(reading: str) -> tuple[str, str]:
    """The ranks that were read, and what was not."""
    of, _, left = reading.partition("; ")
    return of, left


def _course(trace: Trace) -> str:
    values = [value for value in trace.loss if value is not None]
    if not values:
        return "is never finite"
    first, last = values[0], values[-1]
    verb = "fell" if last < first else "rose" if last > first else "went"
    return f"{verb} from {first:.4g} to {last:.4g}"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
