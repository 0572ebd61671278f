"""Loss parity step by step: deviations of a candidate, or of head from base, in envelopes.

Owns the numeric tier, for runs whose dropout masks match. The envelope is measured, not assumed:
reference runs from weights perturbed by about one rounding error show how far rounding drives two
runs apart at each step; it grows where training is chaotic. Owns also which tier a candidate is
judged by (the other is in `parity_over_seeds`) and the worst of several seeds; head's reference arm
against base's, in training and in outputs, which detects what changes all arms of a side alike: a
loss function, an optimizer, a factor in the model.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ci_bench.judge.parity.envelope import (
    LEAST_STEPS,
    LIMIT,
    envelope_of,
    scaled,
    unscaled,
    usable,
    why_unknown,
)
from ci_bench.judge.parity.logs import log_finding
from ci_bench.judge.parity.other_masks import finding_of_other_masks
from ci_bench.judge.parity.over_seeds import accuracy_parity, starts_finding
from ci_bench.judge.parity.resumed import first_apart
from ci_bench.judge.parity.runs import (
    Floats,
    Twins,
    as_rank_sees,
    first_of,
    insufficient,
    length,
    match,
    overflowing,
    seed_rule,
    series,
    signals_of,
    step_name,
    stopped,
)
from ci_bench.judge.parity.sensitivity import backed, has_control
from ci_bench.judge.parity.tail import with_tail
from ci_bench.judge.wording import count_of, percent
from ci_bench.records.comparison import Closeness, Parity, ParityFinding, Tier
from ci_bench.records.outputs import (
    OutputsComparison,
    OutputsFinding,
    ReferenceOutputs,
    Sameness,
    TensorError,
    describe_deviation,
)
from ci_bench.records.results import CaseResult, Masks, ParityEvidence, Role, Status, Trace

STEPS = 50
LARGEST_SCORE = 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Largest deviation of a signal in envelopes, and the first step that exceeded the limit."""

    signal: str
    worst: float
    first_step: int | None


def numeric_finding(evidence: ParityEvidence, run: Trace, masks: Masks) -> ParityFinding:
    """Judge one candidate run.

    ``E_t = max(4 ulp(L_t), max over u <= t and perturbed runs j of |L_u^j - L_u^ref|)``, likewise
    for ln(gradient norm) with floor ``4 * 2^-23``; the score is ``max over t < 50 of |L_t -
    L_t^ref| / E_t``, and parity ends at ten envelopes. Losses that are bf16 numbers may be two of
    them apart.
    """
    if evidence.own_program:
        return log_finding(evidence, run, masks, _by_steps)
    return _by_steps(evidence, run, masks)


def _by_steps(evidence: ParityEvidence, run: Trace, masks: Masks) -> ParityFinding:
    twins = match(evidence, run)
    if not isinstance(twins, Twins):
        return stopped(twins, run, masks=masks, tier=Tier.NUMERIC)
    finding = _of_whole_batches(evidence, run, masks, twins)
    return finding if run.ranks is None else _with_ranks(finding, evidence, twins)


def _of_whole_batches(
    evidence: ParityEvidence, run: Trace, masks: Masks, twins: Twins
) -> ParityFinding:
    compared = twins.compared()
    if compared < LEAST_STEPS or 2 * compared < twins.steps or twins.compared(STEPS) < LEAST_STEPS:
        few = f"parity needs {LEAST_STEPS} steps, and {compared} were compared"
        if twins.skipped:
            few = (
                f"only {compared} of {twins.steps} steps have numbers ({twins.compared(STEPS)} of"
                f" the first {STEPS})"
            )
        detail = _joined(few, twins.short, twins.note)
        return stopped(insufficient(detail, compared), run, masks=masks, tier=Tier.NUMERIC)
    if not twins.short and _bitwise(twins):
        return _finding(twins, masks, (), twins.steps)
    perturbed = usable(evidence, twins.reference)
    if not perturbed:
        detail = why_unknown(evidence, twins.reference)
        return stopped(insufficient(detail, twins.steps), run, masks=masks, tier=Tier.NUMERIC)
    steps = min(STEPS, twins.steps, max(map(length, perturbed)))
    scores = tuple(score(twins, perturbed, signal, steps) for signal in _signals(twins))
    finding = _finding(twins, masks, scores, steps)
    if finding.first_step and (stop := overflowing(twins.reference, finding.first_step)):
        return stopped(stop, run, masks=masks, tier=Tier.NUMERIC)
    return with_tail(finding, twins, perturbed, steps) if finding.verdict.holds else finding


@dataclass(frozen=True, kw_only=True, slots=True)
class RankScore:
    """A signal of one rank that left its envelope: first at `step`, by `worst` widths at most."""

    rank: int
    signal: str
    step: int
    worst: float


def _with_ranks(finding: ParityFinding, evidence: ParityEvidence, twins: Twins) -> ParityFinding:
    """Add the ranks that diverged first to the finding.

    A single such rank breaks parity as well.
    """
    diverged = ranks_apart(evidence, twins)
    if not diverged:
        return _with_tails(finding, evidence, twins) if finding.verdict.holds else finding
    step = min(score.step for score in diverged)
    at_first = [score for score in diverged if score.step == step]
    first = [
        score for score in at_first if score.signal == "loss"
    ] or at_first  # all see one norm; a loss is the rank's own
    ranks = sorted({score.rank for score in first})
    count = len(twins.candidate.ranks.loss) if twins.candidate.ranks else 0
    who = (
        f"all {count} ranks"
        if len(ranks) == count
        else f"rank {', '.join(map(str, ranks))} of {count}"
    )
    signal = first[0].signal.replace("grad_norm", "gradient norm")
    summary = f"{who} first, by the {signal} at {step_name(twins.candidate, step)}"
    if not finding.verdict.holds:
        return replace(finding, detail=f"{finding.detail}; {summary}")
    detail = (
        f"{summary}: up to {max(score.worst for score in first):.3g} times the width of its"
        f" rounding envelope (limit {LIMIT:g})"
    )
    return replace(
        finding,
        verdict=Parity.DIFFERENT_MATH,
        detail=detail,
        first_step=step,
        signal=first[0].signal,
    )


def ranks_apart(evidence: ParityEvidence, twins: Twins) -> tuple[RankScore, ...]:
    """Return the signals of ranks that leave the rounding envelope of their reference.

    For the loss of a rank's own rows the scale is their loss in the reference; else it is that of
    the whole batch. The envelope is measured as for the whole. Ranks without a reference to compare
    with are left out.
    """
    scores = []
    for rank, beside, others, steps in _ranks_beside(evidence, twins):
        for signal in _signals(beside):
            if (hole := _first_hole(beside, signal, steps)) is not None:
                scores.append(RankScore(rank=rank, signal=signal, step=hole, worst=LARGEST_SCORE))
                continue
            scored = score(beside, others, signal, steps)
            if scored.first_step is not None:
                scores.append(
                    RankScore(rank=rank, signal=signal, step=scored.first_step, worst=scored.worst)
                )
    return tuple(scores)


def _ranks_beside(
    evidence: ParityEvidence, twins: Twins
) -> Iterator[tuple[int, Twins, tuple[Trace, ...], int]]:
    """Yield each rank, its runs, its perturbed runs, and the number of steps judged one by one."""
    reference, ranks = twins.reference, twins.candidate.ranks
    perturbed = usable(evidence, reference)
    if ranks is None or not perturbed:
        return
    steps = min(STEPS, twins.steps, max(map(length, perturbed)))
    for rank in range(len(ranks.loss)):
        expected = [as_rank_sees(trace, rank, ranks) for trace in (reference, *perturbed)]
        norms = ranks.grad_norm[rank] if rank < len(ranks.grad_norm) else reference.grad_norm
        if (
            any(trace is None for trace in expected)
            or len(ranks.loss[rank]) < steps
            or 0 < len(norms) < steps
        ):
            continue
        first, *others = [trace for trace in expected if trace is not None]
        candidate = replace(twins.candidate, loss=ranks.loss[rank], grad_norm=norms)
        yield rank, replace(twins, reference=first, candidate=candidate), tuple(others), steps


def _with_tails(finding: ParityFinding, evidence: ParityEvidence, twins: Twins) -> ParityFinding:
    """Return the finding, or that of the first rank whose later steps broke parity.

    Deviations of ranks may cancel out in the mean.
    """
    for rank, beside, others, steps in _ranks_beside(evidence, twins):
        tail = with_tail(finding, beside, others, steps)
        if not tail.verdict.holds:
            count = len(twins.candidate.ranks.loss) if twins.candidate.ranks else 0
            return replace(tail, detail=f"rank {rank} of {count}: {tail.detail}")
    return finding


def _first_hole(twins: Twins, signal: str, steps: int) -> int | None:
    holes = ~np.isfinite(series(twins.candidate, signal, steps)) & np.isfinite(
        series(twins.reference, signal, steps)
    )
    alone = [step for step in np.flatnonzero(holes).tolist() if step not in twins.skipped]
    return alone[0] if alone else None


def _signals(twins: Twins) -> tuple[str, ...]:
    return signals_of(twins.reference, twins.candidate)


def score(twins: Twins, perturbed: tuple[Trace, ...], signal: str, steps: int) -> Score:
    """Score one signal over the first `steps` steps."""
    reference, candidate = (
        scaled(series(trace, signal, steps), signal) for trace in (twins.reference, twins.candidate)
    )
    with np.errstate(over="ignore"):
        ratios = np.nan_to_num(
            np.abs(candidate - reference) / envelope_of(twins, reference, perturbed, signal)
        )
    beyond = np.flatnonzero(ratios > LIMIT)
    worst = min(LARGEST_SCORE, float(ratios.max()))
    return Score(signal=signal, worst=worst, first_step=int(beyond[0]) if beyond.size else None)


def _bitwise(twins: Twins) -> bool:
    reference, candidate = twins.reference, twins.candidate
    return (reference.loss, reference.grad_norm) == (candidate.loss, candidate.grad_norm)


def _finding(twins: Twins, masks: Masks, scores: tuple[Score, ...], steps: int) -> ParityFinding:
    """Put the scores (none: equal in every bit) into words."""
    broken = min(
        (s for s in scores if s.first_step is not None),
        key=lambda s: s.first_step or 0,
        default=None,
    )
    first, last = (
        _deviation(twins, broken.signal, step) if broken else None
        for step in (_step(broken), steps - 1)
    )
    compared = twins.compared(steps)
    verdict, detail = _ruling(twins, scores, broken, compared, _percents(first, last))
    worst = {**dict.fromkeys(_signals(twins), 0.0), **{s.signal: s.worst for s in scores}}
    return ParityFinding(
        arm=twins.candidate.arm,
        verdict=verdict,
        tier=Tier.NUMERIC,
        masks=masks,
        steps=compared,
        detail=_joined(detail, twins.short, twins.note),
        limit=LIMIT,
        loss_score=worst.get("loss"),
        grad_norm_score=worst.get("grad_norm"),
        first_step=broken.first_step if broken else None,
        step=step_name(twins.candidate, _step(broken)) if broken and twins.candidate.steps else "",
        signal=broken.signal if broken else None,
        apart_first=first,
        apart_last=last,
    )


def _step(broken: Score | None) -> int:
    return (broken.first_step or 0) if broken else 0


def _deviation(twins: Twins, signal: str, step: int) -> float | None:
    """Return the relative deviation of the candidate's signal; `None` if it is not a number."""
    reference, candidate = (
        float(series(trace, signal, step + 1)[step]) for trace in (twins.reference, twins.candidate)
    )
    share = (candidate - reference) / abs(reference) if reference else math.nan
    return share if math.isfinite(share) else None


def _percents(first: float | None, last: float | None) -> str:
    """Return ``off by 0.01 % there, by 3.4 % at the end``; empty if neither is known."""
    parts = [
        f"by {percent(share)} {where}"
        for share, where in ((first, "there"), (last, "at the end"))
        if share is not None
    ]
    return f"off {', '.join(parts)}" if parts else ""


def _ruling(
    twins: Twins, scores: tuple[Score, ...], broken: Score | None, steps: int, size: str
) -> tuple[Parity, str]:
    if broken:
        worst = max(s.worst for s in scores)
        signal = broken.signal.replace("grad_norm", "gradient norm")
        where = step_name(twins.candidate, _step(broken))
        detail = (
            f"{signal} leaves the rounding envelope at {where}: {_joined_by_comma(size, worst)}"
        )
        return Parity.DIFFERENT_MATH, f"{detail} (limit {LIMIT:g})"
    if twins.short:
        return Parity.INSUFFICIENT_DATA, f"no difference in the {steps} steps that both runs have"
    if not scores:
        norms = " and gradient norm" if "grad_norm" in _signals(twins) else ""
        return Parity.BITWISE, f"every loss{norms} of {steps} steps is equal in every bit"
    worst = max(s.worst for s in scores)
    compared = f"{steps} of {twins.steps} steps" if steps < twins.compared() else f"{steps} steps"
    return (
        Parity.NUMERIC_PARITY,
        f"{compared} within {worst:.2g} rounding envelopes of the reference (limit {LIMIT:g})",
    )


def _joined_by_comma(size: str, envelopes: float) -> str:
    return f"{size}{', ' if size else ''}up to {envelopes:.3g} times its width"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def closeness(evidence: ParityEvidence) -> tuple[Closeness, ...]:
    """Return both signals of every candidate run that may be compared with its reference."""
    candidates = (trace for trace in evidence.traces if trace.role is Role.CANDIDATE)
    return tuple(entry for run in candidates for entry in _of_run(evidence, run))


def _of_run(evidence: ParityEvidence, run: Trace) -> tuple[Closeness, ...]:
    twins = match(evidence, run)
    perturbed = usable(evidence, twins.reference) if isinstance(twins, Twins) else ()
    if not isinstance(twins, Twins) or not perturbed:
        return ()
    steps = min(twins.steps, max(map(length, perturbed)))
    return tuple(_of_signal(twins, perturbed, signal, steps) for signal in _signals(twins))


def _of_signal(twins: Twins, perturbed: tuple[Trace, ...], signal: str, steps: int) -> Closeness:
    reference = _filled(scaled(series(twins.reference, signal, steps), signal))
    candidate = scaled(series(twins.candidate, signal, steps), signal)
    candidate = np.where(np.isfinite(candidate), candidate, reference)
    widths = envelope_of(twins, reference, perturbed, signal)
    with np.errstate(over="ignore"):
        scores = np.minimum(np.abs(candidate - reference) / widths, LARGEST_SCORE)
        low, high = (unscaled(reference + sign * LIMIT * widths, signal) for sign in (-1, 1))
    return Closeness(
        arm=twins.candidate.arm,
        seed=twins.candidate.seed,
        signal=signal,
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        scores=tuple(scores.tolist()),
        limit=LIMIT,
    )


def _filled(values: Floats) -> Floats:
    """Replace values that are not finite by the last finite one before them, or by 0."""
    last_finite = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
    return np.where(last_finite < 0, 0.0, values[last_finite])


SHOWN = 3
_OF_LATER_CALL = re.compile(r" of the \w+ call\b")
NO_BASE = "base's tensors were not at hand when head was measured"


def _has_evidence(row: CaseResult) -> bool:
    """Return whether a case's evidence counts: it ended well, or the budget ran out afterwards."""
    return row.status is Status.OK or row.out_of_budget


def outputs_of(base: CaseResult | None, head: CaseResult) -> OutputsFinding | None:
    """Compare the outputs of head's reference arm with base's.

    `None` if the cases are not compared, the suite keeps no outputs, or neither side returns any.
    """
    if (
        base is None
        or not (_has_evidence(base) and _has_evidence(head))
        or base.case.params != head.case.params
    ):
        return None
    theirs, ours = base.outputs if base.outputs and base.outputs.tensors else None, head.outputs
    if theirs is None and not (ours and ours.tensors):
        return None
    if theirs is None or ours is None:
        lacking = "base" if theirs is None else "head"
        return _unknown(
            head.case.reference, f"nothing that {lacking}'s computed was kept", ours or theirs
        )
    if (ours.arm, ours.digest) == (theirs.arm, theirs.digest):
        detail = f"{count_of(ours.tensors, 'tensor')} equal base bit for bit"
        return OutputsFinding(
            arm=ours.arm, verdict=Sameness.BITWISE, detail=detail, tensors=ours.tensors
        )
    reason = ours.apart_from(theirs)
    return _unknown(ours.arm, reason, ours) if reason else _by_figures(theirs, ours)


def _by_figures(theirs: ReferenceOutputs, ours: ReferenceOutputs) -> OutputsFinding:
    beside = ours.beside
    if beside is None or beside.base != theirs.digest:
        why = ours.remark or theirs.remark or NO_BASE
        return _unknown(
            ours.arm, f"the bytes differ from base's, and how far is unknown: {why}", ours
        )
    wrong = list(_distinct(error for error in beside.worst if error.wrong))
    if beside.unknown:
        return _conclude(ours, Sameness.UNKNOWN, beside.unknown, beside)
    if not wrong:
        closest = next(iter(beside.worst), None)
        figures = f"; the worst: {_figures(closest)}" if closest else ""
        matching = f"{count_of(beside.tensors, 'tensor')} match base{figures}"
        return _conclude(ours, Sameness.WITHIN_ROUNDING, matching, beside)
    if ours.drawn != theirs.drawn and theirs.drawn is not None:
        return _conclude(
            ours,
            Sameness.UNKNOWN,
            f"head draws other random numbers than base does; {_list_errors(wrong)}",
            beside,
        )
    return _conclude(ours, Sameness.CHANGED, f"differs from base: {_list_errors(wrong)}", beside)


def _conclude(
    ours: ReferenceOutputs, verdict: Sameness, detail: str, beside: OutputsComparison
) -> OutputsFinding:
    full_detail = f"{detail}; {beside.remark}" if beside.remark else detail
    return OutputsFinding(
        arm=ours.arm,
        verdict=verdict,
        detail=full_detail,
        tensors=beside.tensors,
        worst=beside.worst,
    )


def _unknown(arm: str, why: str, outputs: ReferenceOutputs | None) -> OutputsFinding:
    return OutputsFinding(
        arm=arm, verdict=Sameness.UNKNOWN, detail=why, tensors=outputs.tensors if outputs else 0
    )


def _distinct(wrong: Iterable[TensorError]) -> Iterator[TensorError]:
    """Yield each error once: a later call of the same program mostly repeats the first one's."""
    previous = set()
    for error in wrong:
        normalized = replace(error, name=_OF_LATER_CALL.sub("", error.name))
        if normalized not in previous:
            previous.add(normalized)
            yield error


def _list_errors(wrong: list[TensorError]) -> str:
    more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return "; ".join(map(_figures, wrong[:SHOWN])) + more


def _figures(error: TensorError) -> str:
    if error.fault:
        return f"{error.name}: {error.fault}"
    if error.error is None or error.allowed is None:
        return f"{error.name}: off by more than can be written"
    return f"{error.name} is {describe_deviation(error.error, error.allowed)}"


WORST_FIRST = (
    Parity.NON_FINITE,
    Parity.DIFFERENT_MATH,
    Parity.DIFFERENT,
    Parity.INSUFFICIENT_DATA,
    Parity.INSUFFICIENT_SENSITIVITY,
    Parity.INCONCLUSIVE,
    Parity.EQUIVALENT,
    Parity.NUMERIC_PARITY,
    Parity.BITWISE,
)
"""Broken findings come before undecided ones, and those before parity that holds."""


def parity_findings(
    evidence: ParityEvidence, *, arms: tuple[str, ...] = ()
) -> tuple[ParityFinding, ...]:
    """Return one finding per candidate arm: those in the evidence, and those of `arms`."""
    probed = [entry.arm for entry in evidence.masks]
    ran = [trace.arm for trace in evidence.traces if trace.role is Role.CANDIDATE]
    findings = {arm: _arm_finding(evidence, arm) for arm in dict.fromkeys([*probed, *ran, *arms])}
    broken = {arm for arm, finding in findings.items() if not finding.verdict.holds}
    return tuple(
        finding if arm in broken else _with_resumed(finding, evidence, arm, broken=broken)
        for arm, finding in findings.items()
    )


def _with_resumed(
    finding: ParityFinding, evidence: ParityEvidence, arm: str, *, broken: set[str]
) -> ParityFinding:
    """Return the finding of an arm that holds, or that of its first resumed run that does not."""
    masks = finding.masks
    if finding.tier is not Tier.NUMERIC or masks is None:
        return finding
    resumed = first_apart(
        evidence, arm, lambda spliced, run: numeric_finding(spliced, run, masks), broken=broken
    )
    return (
        finding
        if resumed is None
        else replace(resumed, arm=arm, accuracy=finding.accuracy, seed_rule=finding.seed_rule)
    )


def _arm_finding(evidence: ParityEvidence, arm: str) -> ParityFinding:
    probed = next((entry for entry in evidence.masks if entry.arm == arm), None)
    masks = probed.masks if probed else None
    runs = tuple(
        trace for trace in evidence.traces if trace.role is Role.CANDIDATE and trace.arm == arm
    )
    finding = _judged(evidence, arm, masks, runs)
    if probed and probed.detail and finding.tier is Tier.STATISTICAL:
        finding = replace(finding, detail=f"{finding.detail}; {probed.detail}")
    finding = backed(finding, evidence, numeric_finding)
    accuracy = accuracy_parity(evidence, arm)
    finding = replace(finding, accuracy=accuracy, seed_rule=seed_rule(evidence, arm))
    if accuracy is not None or evidence.evaluation_rows == 0:
        return finding
    verdict = Parity.INSUFFICIENT_DATA if finding.verdict.holds else finding.verdict
    return replace(
        finding,
        verdict=verdict,
        detail=f"{finding.detail}; evaluation was on, but accuracy is missing",
    )


def _judged(
    evidence: ParityEvidence, arm: str, masks: Masks | None, runs: tuple[Trace, ...]
) -> ParityFinding:
    if not runs:
        return _undecided(arm, masks, "the candidate was never trained")
    if masks is None:
        return _undecided(arm, masks, "whether the dropout masks match was never probed")
    if masks is Masks.DIFFER:
        return finding_of_other_masks(evidence, runs, numeric_finding)
    findings = [
        _of_seed(numeric_finding(evidence, run, masks), run.seed, len(runs)) for run in runs
    ]
    return min(findings, key=_badness)


def _undecided(arm: str, masks: Masks | None, detail: str) -> ParityFinding:
    return ParityFinding(
        arm=arm, verdict=Parity.INSUFFICIENT_DATA, tier=None, masks=masks, steps=0, detail=detail
    )


def _of_seed(finding: ParityFinding, seed: int, seeds: int) -> ParityFinding:
    return (
        finding
        if seeds == 1
        else replace(finding, detail=f"worst of {seeds} seeds, {seed}: {finding.detail}")
    )


def _badness(finding: ParityFinding) -> tuple[int, float]:
    return WORST_FIRST.index(finding.verdict), -max(
        finding.loss_score or 0.0, finding.grad_norm_score or 0.0
    )


def beside_base(base: CaseResult, head: CaseResult) -> ParityEvidence | None:
    """Return head's reference training as a candidate of base's, or `None` without such a pair."""
    return _beside(base.parity, head.parity, head.case.reference)


def _beside(
    base: ParityEvidence | None, head: ParityEvidence | None, arm: str
) -> ParityEvidence | None:
    """Do the same for evidence: the control is base's, or head's if base trained none."""
    if base is None or head is None:
        return None
    roles = {Role.REFERENCE, Role.PERTURBED}
    anchors = tuple(trace for trace in base.traces if trace.arm == arm and trace.role in roles)
    seed = next((trace.seed for trace in anchors if trace.role is Role.PERTURBED), None)
    ours = None if seed is None else first_of(_only(head, arm), Role.REFERENCE, seed)
    if ours is None:
        return None
    controls = [trace for trace in (*base.traces, *head.traces) if trace.role is Role.CONTROL][:1]
    traces = (*anchors, replace(ours, role=Role.CANDIDATE), *controls)
    return replace(base, traces=traces, twin=_beside(base.twin, head.twin, arm))


def _references(base: CaseResult, head: CaseResult) -> tuple[ParityEvidence, Trace, Trace] | None:
    """Return head's reference training with base's, then head's trace and base's.

    `None` if one of them was not trained.
    """
    both = beside_base(base, head)
    if both is None:
        return None
    ours = next(trace for trace in both.traces if trace.role is Role.CANDIDATE)
    theirs = first_of(both, Role.REFERENCE, ours.seed)
    return None if theirs is None else (both, ours, theirs)


def learning_of(base: CaseResult | None, head: CaseResult) -> ParityFinding | None:
    """Compare head's reference training with base's; `None` if one of the two was not trained."""
    if base is None or not (_has_evidence(base) and _has_evidence(head)):
        return None
    references = _references(base, head)
    if references is None:
        return None
    both, ours, theirs = references
    if (ours.start, ours.data) != (theirs.start, theirs.data):
        over_seeds = starts_finding(base, head) if ours.data == theirs.data else None
        return over_seeds or _not_told(ours.arm, ours, theirs)
    finding = backed(numeric_finding(both, ours, Masks.ALIGNED), both, numeric_finding)
    if finding.verdict is Parity.INSUFFICIENT_SENSITIVITY and not (
        both.own_program or has_control(both)
    ):
        finding = replace(
            finding, verdict=Parity.INSUFFICIENT_DATA
        )  # a baseline of an earlier version
    narrow = (
        NARROW
        if _perturbed_runs(both) == 1 and not (finding.verdict.holds or both.own_program)
        else ""
    )
    return replace(
        finding, masks=None, detail=_joined(f"head against base: {finding.detail}", narrow)
    )


NARROW = (
    "only one training shows how far rounding drives base apart: measure base again with more"
    " `perturbations`"
)


def _perturbed_runs(evidence: ParityEvidence) -> int:
    return sum(trace.role is Role.PERTURBED for trace in evidence.traces)


def rounding_is_open(base: CaseResult, head: CaseResult) -> bool:
    """Return whether more perturbed runs, if available, may change a verdict of loss parity.

    An envelope only widens with more runs: parity within the envelope of one run holds in that of
    several. Otherwise the worker is asked for more; only it knows whether there are any.
    """
    sides = [row.parity for row in (base, head) if row.parity is not None]
    if not any(map(_perturbed_runs, sides)):
        return False
    findings = [finding for evidence in sides for finding in parity_findings(evidence)]
    if (references := _references(base, head)) is not None:
        both, ours, theirs = references
        if (theirs.start, theirs.data) == (ours.start, ours.data):
            findings.append(
                backed(numeric_finding(both, ours, Masks.ALIGNED), both, numeric_finding)
            )
    settled = {Parity.INSUFFICIENT_SENSITIVITY}  # a wider envelope sees less
    return not all(finding.verdict.holds or finding.verdict in settled for finding in findings)


def _only(evidence: ParityEvidence, arm: str) -> ParityEvidence:
    return replace(evidence, traces=tuple(trace for trace in evidence.traces if trace.arm == arm))


def _not_told(arm: str, ours: Trace, theirs: Trace) -> ParityFinding:
    differences = {
        "the start weights": ours.start != theirs.start,
        "the data": ours.data != theirs.data,
    }
    changed = " and ".join(what for what, differ in differences.items() if differ)
    return ParityFinding(
        arm=arm,
        verdict=Parity.INSUFFICIENT_DATA,
        tier=Tier.NUMERIC,
        masks=None,
        steps=0,
        detail=f"{changed} differ from base's, so the losses are not comparable",
    )
