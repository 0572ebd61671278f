"""Sensitivity of a loss parity verdict: a known fault, and the same training in fp32.

The positive control is the reference with every update 1 % too long, that is, a learning rate 1 %
off. It is scored by the rule that judges candidates; a comparison that would pass it does not pass.
In lower precision rounding hides small faults, so the same training in fp32 (the twin) is compared
as well. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ci_bench.judge.parity.envelope import digit_score
from ci_bench.judge.parity.learning import why_unlearned
from ci_bench.judge.parity.runs import first_of, signals_of
from ci_bench.records.comparison import Parity, ParityFinding, Tier
from ci_bench.records.results import Masks, ParityEvidence, Role, Trace

CONTROL = "a learning rate 1 % off"
_THOUSAND = 1000

Judge = Callable[[ParityEvidence, Trace, Masks], ParityFinding]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """Score of the control by the rule of candidates."""

    score: float | None
    """Largest deviation of the control, in envelopes; `None` if unknown."""
    limit: float
    """Score up to which parity holds; 0 if the score is unknown."""
    caught: bool
    """True if the score exceeds the limit; false too if no control was trained."""
    fault: str = CONTROL
    """The fault that the control has."""
    unknown: str = "none was trained"
    """The reason if the score is missing."""

    def __str__(self) -> str:
        """Describe the score of the fault, and the limit."""
        if self.score is None:
            return f"whether {self.fault} would have been found is unknown: {self.unknown}"
        return f"{self.fault} would have scored {figure(self.score)} (limit {self.limit:g})"


def with_sensitivity(
    finding: ParityFinding, sensitivity: Sensitivity, remedy: str
) -> ParityFinding:
    """Add the sensitivity to a finding that holds.

    `INSUFFICIENT_SENSITIVITY` if the control was not caught.
    """
    if sensitivity.caught:
        return replace(finding, detail=f"{finding.detail}; {sensitivity}")
    detail = f"{sensitivity}, so a small fault would pass: {remedy} ({finding.detail})"
    return replace(finding, verdict=Parity.INSUFFICIENT_SENSITIVITY, detail=detail)


def backed(finding: ParityFinding, evidence: ParityEvidence, judge: Judge) -> ParityFinding:
    """Return the finding if its training learned, its twin holds, and the control was caught.

    Else it gives the reason why not.

    Findings that do not hold and findings over seeds have no control; logs are judged in
    `parity_logs`.
    """
    if not finding.verdict.holds or evidence.own_program:
        return finding
    if reason := _unlearned(evidence):
        return replace(
            finding, verdict=Parity.INSUFFICIENT_SENSITIVITY, detail=f"learning unknown: {reason}"
        )
    if finding.tier is not Tier.NUMERIC:
        return finding
    masks = finding.masks or Masks.ALIGNED
    twin = _of_twin(finding, evidence, judge, masks)
    if twin is not None and not twin.verdict.holds:
        detail = f"the same training in fp32: {twin.detail}"
        return replace(
            twin,
            masks=finding.masks,
            accuracy=finding.accuracy,
            seed_rule=finding.seed_rule,
            detail=detail,
        )
    detail = (
        finding.detail
        if twin is None
        else f"{finding.detail}; the same training in fp32: {twin.detail}"
    )
    sources = [evidence] if twin is None or evidence.twin is None else [evidence.twin, evidence]
    best = max(
        (sensitivity_of(source, judge, masks) for source in sources),
        key=lambda sensitivity: (sensitivity.caught, sensitivity.score or 0.0),
    )
    return with_sensitivity(replace(finding, detail=detail), best, _remedy(evidence))


def sensitivity_of(
    evidence: ParityEvidence, judge: Judge, masks: Masks = Masks.ALIGNED
) -> Sensitivity:
    """Score the control as if it were a candidate.

    If a model rounds its losses and norms to few digits, the last one counts as in a log.
    """
    control = next((trace for trace in evidence.traces if trace.role is Role.CONTROL), None)
    reference = None if control is None else first_of(evidence, Role.REFERENCE, control.seed)
    if control is None or reference is None:
        return Sensitivity(score=None, limit=0.0, caught=False)
    steps = min(len(control.loss), len(reference.loss))
    traces = tuple(
        shortened(trace, steps)
        for trace in evidence.traces
        if trace.role in {Role.REFERENCE, Role.PERTURBED}
    )
    finding = judge(
        replace(evidence, traces=traces),
        replace(shortened(control, steps), role=Role.CANDIDATE),
        masks,
    )
    if finding.limit is None and not finding.verdict.broken:
        return Sensitivity(score=None, limit=0.0, caught=False, unknown=finding.detail)
    score = max(finding.loss_score or 0.0, finding.grad_norm_score or 0.0)
    others = [trace for trace in traces if trace.role is Role.PERTURBED]
    signals = signals_of(reference, control)
    score = min(score, max(digit_score(reference, control, others, signal) for signal in signals))
    limit = finding.limit or 0.0
    return Sensitivity(score=score, limit=limit, caught=finding.verdict.broken and score > limit)


def shortened(trace: Trace, steps: int) -> Trace:
    """Return the first steps of a run."""
    holes = tuple(hole for hole in trace.non_finite if hole.step < steps)
    return replace(
        trace,
        loss=trace.loss[:steps],
        grad_norm=trace.grad_norm[:steps],
        non_finite=holes,
        ranks=None,
    )


def _of_twin(
    finding: ParityFinding, evidence: ParityEvidence, judge: Judge, masks: Masks
) -> ParityFinding | None:
    twin = evidence.twin
    runs = (
        []
        if twin is None
        else [
            trace
            for trace in twin.traces
            if trace.role is Role.CANDIDATE and trace.arm == finding.arm
        ]
    )
    return judge(twin, runs[0], masks) if twin is not None and runs else None


def _unlearned(evidence: ParityEvidence) -> str:
    reference = next((trace for trace in evidence.traces if trace.role is Role.REFERENCE), None)
    return "" if reference is None else why_unlearned(reference.loss, reference.grad_norm)


def has_control(evidence: ParityEvidence) -> bool:
    """Return whether a control was trained, in the precision or in fp32."""
    trained = any(trace.role is Role.CONTROL for trace in evidence.traces)
    return trained or (evidence.twin is not None and has_control(evidence.twin))


def _remedy(evidence: ParityEvidence) -> str:
    if not has_control(evidence):
        return "measure the baseline again with this version"
    precision = "" if evidence.precision == "fp32" else ", use a model that also trains in fp32,"
    return f"train more steps{precision} or lower the learning rate"


def figure(score: float) -> str:
    """Format a score with three digits, or as an integer from 1,000 on."""
    return f"{score:,.0f}" if score >= _THOUSAND else f"{score:.3g}"
