"""Loss parity of a candidate whose dropout masks differ from the reference's.

No step of it can be compared with the reference's, so three questions replace that. Without dropout
nothing is random: does every step of the same training in fp32 agree, and would a small fault have
been found? Do other masks explain, over many seeds of one step, all that is left (the worker tests
that, and records the answer with the masks)? Does training end elsewhere (`over_seeds`)? A few
seeds rarely measure a final loss to half a percent, so where the first two hold, the third only has
to find no difference. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace

from ci_bench.judge.parity.over_seeds import OF_MASKS, one_per_seed, other_masks, seeds_finding
from ci_bench.judge.parity.runs import match
from ci_bench.judge.parity.sensitivity import Judge, backed
from ci_bench.records.comparison import Parity, ParityFinding
from ci_bench.records.results import ArmMasks, Masks, ParityEvidence, Role, Trace

EXPLAINED = "other masks explain the rest of a step over many seeds"
SEEN = "dropout missing in the least visible of its places ({}) would have shown"
UNSEEN = (
    "one step over many seeds would not show dropout missing in {}, so it proves nothing: `dropout:"
    " false` compares every step"
)


def finding_of_other_masks(
    evidence: ParityEvidence, runs: Sequence[Trace], judge: Judge
) -> ParityFinding:
    """Judge all runs of a candidate arm with its own masks, one per seed.

    `judge` compares runs step by step.
    """
    arm = runs[0].arm
    still = _without_dropout(evidence, arm, judge)
    masks = next((entry for entry in evidence.masks if entry.arm == arm), None)
    settled = _settled(still, masks)
    finding = seeds_finding(
        [match(evidence, run) for run in one_per_seed(tuple(runs))],
        other_masks(evidence),
        runs[0],
        masks=Masks.DIFFER,
        question=replace(OF_MASKS, settled=settled),
    )
    if finding.verdict.broken:
        return finding
    if still is not None and still.verdict.broken:
        detail = f"without dropout, in fp32: {still.detail}"
        return replace(still, masks=Masks.DIFFER, detail=detail)
    if masks is not None and masks.unexplained:
        detail = f"other dropout masks do not explain that {masks.unexplained}"
        return replace(finding, verdict=Parity.DIFFERENT, detail=detail)
    if settled and finding.verdict.holds and settled not in finding.detail:
        return replace(finding, detail=f"{finding.detail}; {settled}")
    if masks is not None and masks.unseen and finding.verdict is Parity.INCONCLUSIVE:
        return replace(finding, detail=f"{finding.detail}; {UNSEEN.format(masks.unseen)}")
    return finding


def _settled(still: ParityFinding | None, masks: ArmMasks | None) -> str:
    """Say how everything but chance was shown to agree; empty if it was not.

    Ranks run the reference's own layers, so their masks need no test, and no control of it.
    """
    if still is None or not still.verdict.holds:
        return ""
    if masks is None or masks.unexplained != "" or masks.unseen:
        return ""
    sensitivity = f"; {SEEN.format(masks.places)}" if masks.places else ""
    return f"without dropout, in fp32, {still.detail}; {EXPLAINED}{sensitivity}"


def _without_dropout(evidence: ParityEvidence, arm: str, judge: Judge) -> ParityFinding | None:
    """Compare the arm's training without dropout; `None` if it was not trained."""
    rest = evidence.without_dropout
    if rest is None:
        return None
    run = next(
        (trace for trace in rest.traces if (trace.role, trace.arm) == (Role.CANDIDATE, arm)), None
    )
    return None if run is None else backed(judge(rest, run, Masks.NO_DROPOUT), rest, judge)
