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
    """The control's score by the rule of candidates, and where parity ends.

    `caught` is false too if nothing was trained.
    """

    score: float | None
    limit: float
    caught: bool
    fault: str = CONTROL
    """The fault that the control has."""
    unknown: str = "none was trained"
    """The reason if the score is missing."""

    def __str__(self) -> str:
        """Say what the comparison could have seen."""
        if self.score is None:
            return f"whether {self.fault} would have been found is unknown: {self.unknown}"
        return f"{self.fault} would have scored {figure(self.score)} (limit {self.limit:g})"


def with_sensitivity(found: ParityFinding, seen: Sensitivity, remedy: str) -> ParityFinding:
    """A finding that holds, with what it could have seen; `INSUFFICIENT_SENSITIVITY` if the control was not caught."""
    if seen.caught:
        return replace(found, detail=f"{found.detail}; {seen}")
    detail = f"{seen}, so a small fault would pass: {remedy} ({found.detail})"
    return replace(found, verdict=Parity.INSUFFICIENT_SENSITIVITY, detail=detail)


def backed(found: ParityFinding, evidence: ParityEvidence, judge: Judge) -> ParityFinding:
    """The finding if its training learned, its twin holds as well, and the control was caught; else the reason why not.

    Findings that do not hold and findings over seeds have no control; logs are judged in
    `parity_logs`.
    """
    if not found.verdict.holds or evidence.own_program:
        return found
    if reason := _unlearned(evidence):
        return replace(
            found, verdict=Parity.INSUFFICIENT_SENSITIVITY, detail=f"learning unknown: {reason}"
        )
    if found.tier is not Tier.NUMERIC:
        return found
    masks = found.masks or Masks.ALIGNED
    twin = _of_twin(found, evidence, judge, masks)
    if twin is not None and not twin.verdict.holds:
        detail = f"the same training in fp32: {twin.detail}"
        return replace(
            twin,
            masks=found.masks,
            accuracy=found.accuracy,
            seed_rule=found.seed_rule,
            detail=detail,
        )
    detail = (
        found.detail
        if twin is None
        else f"{found.detail}; the same training in fp32: {twin.detail}"
    )
    sources = [evidence] if twin is None or evidence.twin is None else [evidence.twin, evidence]
    seen = max(
        (sensitivity_of(one, judge, masks) for one in sources),
        key=lambda one: (one.caught, one.score or 0.0),
    )
    return with_sensitivity(replace(found, detail=detail), seen, _remedy(evidence))


def sensitivity_of(
    evidence: ParityEvidence, judge: Judge, masks: Masks = Masks.ALIGNED
) -> Sensitivity:
    """The control's score, as if it were a candidate.

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
    found = judge(
        replace(evidence, traces=traces),
        replace(shortened(control, steps), role=Role.CANDIDATE),
        masks,
    )
    if found.limit is None and not found.verdict.broken:
        return Sensitivity(score=None, limit=0.0, caught=False, unknown=found.detail)
    score = max(found.loss_score or 0.0, found.grad_norm_score or 0.0)
    others = [trace for trace in traces if trace.role is Role.PERTURBED]
    signals = signals_of(reference, control)
    score = min(score, max(digit_score(reference, control, others, signal) for signal in signals))
    limit = found.limit or 0.0
    return Sensitivity(score=score, limit=limit, caught=found.verdict.broken and score > limit)


def shortened(trace: Trace, steps: int) -> Trace:
    """The first steps of a run."""
    holes = tuple(hole for hole in trace.non_finite if hole.step < steps)
    return replace(
        trace,
        loss=trace.loss[:steps],
        grad_norm=trace.grad_norm[:steps],
        non_finite=holes,
        ranks=None,
    )


def _of_twin(
    found: ParityFinding, evidence: ParityEvidence, judge: Judge, masks: Masks
) -> ParityFinding | None:
    twin = evidence.twin
    runs = (
        []
        if twin is None
        else [one for one in twin.traces if one.role is Role.CANDIDATE and one.arm == found.arm]
    )
    return judge(twin, runs[0], masks) if twin is not None and runs else None


def _unlearned(evidence: ParityEvidence) -> str:
    reference = next((trace for trace in evidence.traces if trace.role is Role.REFERENCE), None)
    return "" if reference is None else why_unlearned(reference.loss, reference.grad_norm)


def has_control(evidence: ParityEvidence) -> bool:
    """Return whether a control was trained, in the precision or in fp32."""
    own = any(trace.role is Role.CONTROL for trace in evidence.traces)
    return own or (evidence.twin is not None and has_control(evidence.twin))


def _remedy(evidence: ParityEvidence) -> str:
    if not has_control(evidence):
        return "measure the baseline again with this version"
    precision = "" if evidence.precision == "fp32" else ", use a model that also trains in fp32,"
    return f"train more steps{precision} or lower the learning rate"


def figure(score: float) -> str:
    """A score in three digits, or whole."""
    return f"{score:,.0f}" if score >= _THOUSAND else f"{score:.3g}"
