"""Does head learn what base learns? The reference arm of both sides, step by step, from the same start on the same data.

Loss parity within a side compares a compiled training with the eager one, and cannot see what changes both: a loss function, an
optimizer, a layer of the model. This does. The rule is that of the numeric tier: how far rounding alone may drive two trainings
apart is measured on base.
"""

from dataclasses import replace

from ci_bench.judge.parity.numeric import numeric_finding
from ci_bench.judge.parity.runs import first_of
from ci_bench.records.case import CaseResult, Masks, ParityEvidence, Role, Status, Trace
from ci_bench.records.comparison import Parity, ParityFinding, Tier


def learning_of(base: CaseResult | None, head: CaseResult) -> ParityFinding | None:
    """Head's reference training beside base's; `None` where one of the two was not trained."""
    if base is None or base.parity is None or head.parity is None or {base.status, head.status} != {Status.OK}:
        return None
    arm = head.case.reference
    anchors = tuple(trace for trace in base.parity.traces if trace.arm == arm and trace.role in {Role.REFERENCE, Role.PERTURBED})
    seed = next((trace.seed for trace in anchors if trace.role is Role.PERTURBED), None)
    ours = None if seed is None else first_of(_only(head.parity, arm), Role.REFERENCE, seed)
    theirs = None if seed is None else first_of(replace(base.parity, traces=anchors), Role.REFERENCE, seed)
    if ours is None or theirs is None:
        return None
    if (ours.start, ours.data) != (theirs.start, theirs.data):
        return _not_told(arm, ours, theirs)
    found = numeric_finding(replace(base.parity, traces=anchors), replace(ours, role=Role.CANDIDATE), Masks.ALIGNED)
    return replace(found, masks=None, detail=f"head beside base: {found.detail}")


def _only(evidence: ParityEvidence, arm: str) -> ParityEvidence:
    return replace(evidence, traces=tuple(trace for trace in evidence.traces if trace.arm == arm))


def _not_told(arm: str, ours: Trace, theirs: Trace) -> ParityFinding:
    apart = {"the start weights": ours.start != theirs.start, "the data": ours.data != theirs.data}
    changed = " and ".join(what for what, differ in apart.items() if differ)
    return ParityFinding(
        arm=arm,
        verdict=Parity.INSUFFICIENT_DATA,
        tier=Tier.NUMERIC,
        masks=None,
        steps=0,
        detail=f"{changed} differ from base's, so that the losses cannot be compared with base's",
    )
