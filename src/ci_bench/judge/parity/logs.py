"""Loss parity of logs that a program of the user's wrote.

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
    usable,
    why_unknown,
)
from ci_bench.judge.parity.learning import why_unlearned
from ci_bench.judge.parity.runs import (
    LARGEST,
    SIGNALS,
    Floats,
    first_of,
    insufficient,
    perturbed_runs,
    step_name,
    stopped,
)
from ci_bench.judge.parity.sensitivity import Sensitivity, figure, with_sensitivity
from ci_bench.judge.wording import percent
from ci_bench.records.comparison import Parity, ParityFinding, Tier
from ci_bench.records.results import MISSING, Masks, NonFinite, ParityEvidence, Role, Trace

CONTROL = 0.01
"""The share by which the control's losses are higher than the reference's."""
LATE = 3
"""The control of a late change begins with the last third."""

Evaluations = tuple[float | None, ...]
Judge = Callable[[ParityEvidence, Trace, Masks], ParityFinding]
Ask = Callable[[ParityEvidence, Trace], ParityFinding]


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """Steps that both logs have, as labels."""

    losses: tuple[str, ...]
    """Labels of steps with a finite loss on both sides."""
    norms: tuple[str, ...]
    """Those of them with a finite gradient norm on both sides."""
    recorded: int
    """Steps of the longer log."""
    short: str = ""
    """Reason why the logs can never pass; empty without one."""
    notes: str = ""
    """Remarks for the report; empty without any."""


def log_finding(evidence: ParityEvidence, run: Trace, masks: Masks, judge: Judge) -> ParityFinding:
    """Judge a run against its seed's reference by `judge`, over the steps that both logs have."""
    reference = first_of(evidence, Role.REFERENCE, run.seed)
    if reference is None or (reference.start, reference.data) != (run.start, run.data):
        return judge(evidence, run, masks)
    unnumbered = _unnumbered(reference, run)
    if bool(reference.steps) != bool(run.steps):
        reference, run = replace(reference, steps=()), replace(run, steps=())
    if hole := _lone_hole(reference, run):
        return _closed(hole, reference, run)
    matched = _match(reference, run, unnumbered)
    if len(matched.losses) < LEAST_STEPS:
        detail = f"parity needs {LEAST_STEPS} steps, and {len(matched.losses)} were compared"
        stop = insufficient(_joined(detail, matched.short), len(matched.losses))
        return _closed(stopped(stop, run, masks=masks, tier=Tier.NUMERIC), reference, run)
    finding = _over(evidence, reference, run, matched, lambda cut, trace: judge(cut, trace, masks))
    if finding.verdict.holds and (reason := why_unlearned(reference.loss, reference.grad_norm)):
        finding = replace(
            finding, verdict=Parity.INSUFFICIENT_DATA, detail=f"learning unknown: {reason}"
        )
    if finding.verdict.holds:
        finding = _with_evaluations(finding, evidence, reference, run, short=matched.short)
    if finding.verdict.holds and (matched.short or 2 * len(matched.losses) < matched.recorded):
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
        finding = replace(finding, verdict=Parity.INSUFFICIENT_DATA, detail=detail)
    return _closed(replace(finding, detail=_joined(finding.detail, matched.notes)), reference, run)


def _over(
    evidence: ParityEvidence, reference: Trace, run: Trace, matched: Matched, ask: Ask
) -> ParityFinding:
    """Return the finding over the matched steps.

    If some of these have no norm, the norms are judged separately.
    """
    norms_separate = 0 < len(matched.norms) < len(matched.losses)
    cut = _cut_evidence(
        evidence, reference, matched.losses, norms=bool(matched.norms) and not norms_separate
    )
    ours = _cut(run, matched.losses, norms=bool(matched.norms) and not norms_separate)
    finding = _certain(ask(cut, ours), cut, ours)
    if finding.verdict.holds and not why_unlearned(reference.loss, reference.grad_norm):
        finding = _with_sensitivity(finding, cut, ask)
    if not norms_separate or len(matched.norms) < LEAST_STEPS or finding.verdict.broken:
        return finding
    of_norms = _cut_evidence(evidence, reference, matched.norms, norms=True)
    theirs = _cut(run, matched.norms, norms=True)
    second = _certain(ask(of_norms, theirs), of_norms, theirs)
    if second.verdict.holds:
        return replace(finding, grad_norm_score=second.grad_norm_score)
    return second if second.verdict.broken or finding.verdict.holds else finding


def _unnumbered(reference: Trace, run: Trace) -> str:
    """Explain why steps of logs of other lengths are matched by their order; else empty."""
    lacking = [
        name for name, trace in (("candidate", run), ("reference", reference)) if not trace.steps
    ]
    if not lacking or len(run.loss) == len(reference.loss):
        return ""
    whose = "both logs" if len(lacking) > 1 else f"the {lacking[0]}'s log"
    return (
        f"no number in {whose} counts every step once, so steps are matched by their order, which a"
        " missing or repeated line shifts"
    )


def _match(reference: Trace, run: Trace, unnumbered: str) -> Matched:
    ours, theirs = _labels(run), _labels(reference)
    shared = set(ours) & set(theirs)
    common = [label for label in theirs if label in shared]
    losses, norms = (
        _finite_on_both(common, _values(reference, name), _values(run, name)) for name in SIGNALS
    )
    recorded = [
        set(common) - _missing(trace) if trace.grad_norm else set() for trace in (reference, run)
    ]
    shorts = [_lengths(theirs, ours, len(shared))]
    counts = [0 if trace.ranks is None else len(trace.ranks.loss) for trace in (reference, run)]
    shorts.append(_ranks(*counts) if counts[0] != counts[1] else "")
    shorts.append(_norms(reference, run, *map(len, recorded)) if recorded[0] != recorded[1] else "")
    holes = len(common) - len(losses)
    uneven = f"{holes} steps are not finite on both sides and not compared" if holes else ""
    notes = [unnumbered, uneven]
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


def _finite_on_both(labels: Iterable[str], *finite: Container[str]) -> tuple[str, ...]:
    return tuple(label for label in labels if all(label in values for values in finite))


def _labels(trace: Trace) -> tuple[str, ...]:
    return trace.steps or tuple(map(str, range(len(trace.loss))))


def _values(trace: Trace, signal: str) -> dict[str, float]:
    """Return the finite values of a signal by step."""
    values: Sequence[float | None] = getattr(trace, signal)
    pairs = zip(_labels(trace), values, strict=False)
    return {label: value for label, value in pairs if value is not None and abs(value) < LARGEST}


def _missing(trace: Trace) -> set[str]:
    """Return the steps whose gradient norm was not recorded."""
    labels = _labels(trace)
    return {
        labels[hole.step]
        for hole in trace.non_finite
        if hole.signal == "grad_norm" and hole.value == MISSING
    }


def _lengths(theirs: Sequence[str], ours: Sequence[str], shared: int) -> str:
    """Describe how the steps of the runs differ; empty if they do not."""
    if shared == max(len(ours), len(theirs)):
        return ""
    if shared and len(theirs) != len(ours):
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
    """Return the finding of the first step at which only one side has no finite value.

    Two runs that diverge for good may do so a step apart.
    """
    holes = []
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
        holes += alone if len(alone) > 1 or not diverged else []
    if not holes:
        return None
    position, label, signal = min(holes, key=lambda hole: (hole[0], hole[2] != "loss"))
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
    """Return the recorded values of a signal that are not finite, by step."""
    labels = _labels(trace)
    non_finite = {
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
    return {**dict.fromkeys(huge, "not finite"), **non_finite}


def _cut_evidence(
    evidence: ParityEvidence, reference: Trace, labels: Sequence[str], *, norms: bool
) -> ParityEvidence:
    """Return the reference and the perturbed runs at these steps.

    A perturbed run ends before the first of them that it lacks.
    """
    others = [trace for trace in evidence.traces if trace.role is Role.PERTURBED]
    others = [replace(trace, steps=trace.steps if reference.steps else ()) for trace in others]
    traces = [_cut(trace, labels, norms=norms) for trace in others if trace.grad_norm or not norms]
    return replace(evidence, traces=(_cut(reference, labels, norms=norms), *traces))


def _cut(trace: Trace, labels: Sequence[str], *, norms: bool) -> Trace:
    places = {label: position for position, label in enumerate(_labels(trace))}
    prefix = labels[
        : next((index for index, label in enumerate(labels) if label not in places), len(labels))
    ]
    picked = [places[label] for label in prefix]
    loss = tuple(trace.loss[position] for position in picked)
    norm = tuple(trace.grad_norm[position] for position in picked) if norms else ()
    uncut = list(picked) == list(range(len(trace.loss))) and bool(norm) == bool(trace.grad_norm)
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
        steps=tuple(prefix) if trace.steps or not uncut else (),
        non_finite=tuple(holes),
        ranks=trace.ranks if uncut and None not in loss else None,
    )


def _certain(finding: ParityFinding, evidence: ParityEvidence, run: Trace) -> ParityFinding:
    """Return the finding, or insufficient data if the difference may be rounding.

    That is so if all perturbed runs of the program repeated every bit.

    No precision in use rounds as coarsely as 2^-8, so a larger difference is a change.
    """
    reference = evidence.traces[0]
    if finding.verdict is not Parity.DIFFERENT_MATH or not only_repeats(
        usable(evidence, reference), reference
    ):
        return finding
    pairs = [(reference.loss, run.loss), (reference.grad_norm, run.grad_norm)]
    shares = [
        abs(theirs - ours) / max(abs(theirs), abs(ours))
        for both in pairs
        for theirs, ours in zip(*both, strict=False)
        if theirs is not None and ours is not None and theirs != ours
    ]
    if max(shares, default=0.0) > LARGEST_EPSILON:
        return finding
    return replace(
        finding,
        verdict=Parity.INSUFFICIENT_DATA,
        detail=f"{finding.detail}; {why_unknown(evidence, reference)}",
        first_step=None,
        step="",
        signal=None,
    )


def _with_sensitivity(finding: ParityFinding, evidence: ParityEvidence, ask: Ask) -> ParityFinding:
    """Add the score of a loss 1 % off to the finding; no pass if that is within the limit."""
    reference = evidence.traces[0]
    steps = len(reference.loss)
    score = _control_score(evidence, reference, ask, first=0)
    fault = f"a loss {percent(CONTROL)} off"
    sensitivity = Sensitivity(score=score, limit=LIMIT, caught=score > LIMIT, fault=fault)
    finding = with_sensitivity(finding, sensitivity, "log more digits or train more steps")
    late = _control_score(evidence, reference, ask, first=steps - steps // LATE)
    if not finding.verdict.holds or finding.verdict is Parity.BITWISE or late > LIMIT:
        return finding
    return replace(finding, detail=f"{finding.detail}, and {figure(late)} in the last third only")


def _control_score(evidence: ParityEvidence, reference: Trace, ask: Ask, *, first: int) -> float:
    """Return the score of the reference with losses 1 % higher from step `first` on.

    Without an envelope the scale is that of the log's digits, and of runs that do not repeat
    themselves: they hide such a loss.
    """
    raised = tuple(
        loss if loss is None or step < first else loss + CONTROL * abs(loss)
        for step, loss in enumerate(reference.loss)
    )
    control = replace(reference, role=Role.CANDIDATE, loss=raised, ranks=None)
    finding = ask(evidence, control)
    if finding.loss_score is not None:
        return finding.loss_score
    losses = np.asarray([math.nan if loss is None else loss for loss in reference.loss])
    higher = np.asarray([math.nan if loss is None else loss for loss in raised])
    runs = perturbed_runs(evidence, reference)
    return float(
        np.nanmax(np.abs(higher - losses) / envelope(losses, runs, "loss", as_written=True))
    )


def _with_evaluations(
    finding: ParityFinding,
    evidence: ParityEvidence,
    reference: Trace,
    run: Trace,
    *,
    short: str,
) -> ParityFinding:
    """Extend the finding by the evaluation losses, a separate series.

    Of runs that do not have the same steps, which `short` describes, the evaluations that belong to
    the same steps are compared.
    """
    ours, theirs = run.evaluations, reference.evaluations
    equal = (
        f"the steps that both runs have are equal ({short})" if short else "the training is equal"
    )
    if short:
        ours, theirs = _shared_evaluations(reference, run)
    if ours == theirs:
        return finding
    if len(ours) != len(theirs):
        detail = (
            f"{equal}, but there are {len(ours)} (candidate) and {len(theirs)}"
            " (reference) evaluations"
        )
        return replace(finding, verdict=Parity.INSUFFICIENT_DATA, detail=detail)
    runs = [
        trace.evaluations[: len(theirs)]
        for trace in usable(evidence, reference)
        if len(trace.evaluations) >= len(theirs)
    ]
    base, head, *others = (
        np.asarray([math.nan if value is None else value for value in losses])
        for losses in (theirs, ours, *runs)
    )
    beyond = np.flatnonzero(_evaluation_scores(base, head, others) > LIMIT)
    if not beyond.size:
        return finding
    first = int(beyond[0])
    share = (head[first] - base[first]) / abs(base[first]) if base[first] else math.nan
    size = f"off by {percent(share)}" if math.isfinite(share) else "not finite on one side"
    detail = f"{equal}, but the loss of evaluation {first + 1} of {len(theirs)} is {size}"
    unknown = not runs
    why = f"; {why_unknown(evidence, reference)}" if unknown else ""
    verdict = Parity.INSUFFICIENT_DATA if unknown else Parity.DIFFERENT_MATH
    if unknown:
        return replace(finding, verdict=verdict, detail=detail + why, signal=None)
    return replace(
        finding,
        verdict=verdict,
        detail=detail + why,
        signal="evaluation_loss",
        step=f"evaluation {first + 1}",
        apart_first=float(share) if math.isfinite(share) else None,
    )


def _shared_evaluations(reference: Trace, run: Trace) -> tuple[Evaluations, Evaluations]:
    """Return the evaluations of both runs that belong to the same steps.

    That is known if one run ended earlier. Its last evaluation may be the one at its end.
    """
    ours, theirs = _labels(run), _labels(reference)
    common = min(len(ours), len(theirs))
    if ours[:common] != theirs[:common]:
        return (), ()
    count = min(len(run.evaluations), len(reference.evaluations)) - (len(ours) != len(theirs))
    return run.evaluations[: max(count, 0)], reference.evaluations[: max(count, 0)]


def _evaluation_scores(base: Floats, head: Floats, others: Iterable[Floats]) -> Floats:
    """Score the deviation of each evaluation loss in envelopes; infinite if one side lacks it."""
    width = np.nan_to_num(envelope(np.nan_to_num(base), (), "loss", as_written=True))
    for other in others:
        width = np.fmax(width, np.abs(other - base))
    one_sided = np.isnan(head) != np.isnan(base)
    return np.where(
        one_sided, np.inf, np.nan_to_num(np.abs(head - base)) / np.maximum.accumulate(width)
    )


def _closed(finding: ParityFinding, reference: Trace, run: Trace) -> ParityFinding:
    """Add what was read of both logs to the finding."""
    recorded = max(len(reference.loss), len(run.loss))
    return replace(
        finding, detail=_joined(finding.detail, _reading(reference, run)), recorded=recorded
    )


def _reading(reference: Trace, run: Trace) -> str:
    """``read 120 steps of rank 0; loss fell from 10.4 to 7.1 on both sides``."""
    theirs, ours = len(reference.loss), len(run.loss)
    steps = f"{ours:,}" if ours == theirs else f"{ours:,} (candidate) and {theirs:,} (reference)"
    of, unread = (
        theirs_part
        if theirs_part == ours_part
        else f"{ours_part or 'nothing'} (candidate), {theirs_part or 'nothing'} (reference)"
        for theirs_part, ours_part in zip(
            _parts(reference.reading), _parts(run.reading), strict=True
        )
    )
    course, other = _course(reference), _course(run)
    sides = (
        f"loss {course} on both sides"
        if course == other
        else f"loss {other} (candidate), {course} (reference)"
    )
    return _joined(f"read {steps} steps{f' of {of}' if of else ''}", sides, unread)


def _parts(reading: str) -> tuple[str, str]:
    """Return the ranks that were read, and the parts that were not."""
    of, _, unread = reading.partition("; ")
    return of, unread


def _course(trace: Trace) -> str:
    values = [value for value in trace.loss if value is not None]
    if not values:
        return "is never finite"
    first, last = values[0], values[-1]
    verb = "fell" if last < first else "rose" if last > first else "went"
    return f"{verb} from {first:.4g} to {last:.4g}"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
