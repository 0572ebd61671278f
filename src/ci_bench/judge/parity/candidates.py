"""Loss parity of every candidate arm of a case, from its training runs.

Owns the choice of the tier and the worst of several seeds; the tiers are in `parity_numeric` and `parity_statistical`.
"""

from dataclasses import replace

from ci_bench.judge.parity.accuracy import accuracy_parity
from ci_bench.judge.parity.numeric import numeric_finding
from ci_bench.judge.parity.seed_rule import seed_rule
from ci_bench.judge.parity.statistical import statistical_finding
from ci_bench.records.case import Masks, ParityEvidence, Role, Trace
from ci_bench.records.comparison import Parity, ParityFinding

WORST_FIRST = (
    Parity.NON_FINITE,
    Parity.DIFFERENT_MATH,
    Parity.DIFFERENT,
    Parity.INSUFFICIENT_DATA,
    Parity.INCONCLUSIVE,
    Parity.EQUIVALENT,
    Parity.NUMERIC_PARITY,
    Parity.BITWISE,
)
"""What is broken comes before what is undecided, and that before what holds."""


def parity_findings(evidence: ParityEvidence, *, arms: tuple[str, ...] = ()) -> tuple[ParityFinding, ...]:
    """One finding per candidate arm: those the evidence names, and those of `arms` that it should have named."""
    named = [entry.arm for entry in evidence.masks]
    ran = [trace.arm for trace in evidence.traces if trace.role is Role.CANDIDATE]
    return tuple(_arm_finding(evidence, arm) for arm in dict.fromkeys([*named, *ran, *arms]))


def _arm_finding(evidence: ParityEvidence, arm: str) -> ParityFinding:
    masks = next((entry.masks for entry in evidence.masks if entry.arm == arm), None)
    runs = tuple(trace for trace in evidence.traces if trace.role is Role.CANDIDATE and trace.arm == arm)
    finding = _judged(evidence, arm, masks, runs)
    accuracy = accuracy_parity(evidence, arm)
    finding = replace(finding, accuracy=accuracy, seed_rule=seed_rule(evidence, arm))
    if accuracy is not None or evidence.evaluation_rows == 0:
        return finding
    verdict = Parity.INSUFFICIENT_DATA if finding.verdict.holds else finding.verdict
    return replace(finding, verdict=verdict, detail=f"{finding.detail}; evaluation was on, but accuracy is missing")


def _judged(evidence: ParityEvidence, arm: str, masks: Masks | None, runs: tuple[Trace, ...]) -> ParityFinding:
    if not runs:
        return _undecided(arm, masks, "the candidate was never trained")
    if masks is None:
        return _undecided(arm, masks, "whether the dropout masks match was never probed")
    if masks is Masks.DIFFER:
        return statistical_finding(evidence, runs, masks)
    findings = [_of_seed(numeric_finding(evidence, run, masks), run.seed, len(runs)) for run in runs]
    return min(findings, key=_badness)


def _undecided(arm: str, masks: Masks | None, detail: str) -> ParityFinding:
    return ParityFinding(arm=arm, verdict=Parity.INSUFFICIENT_DATA, tier=None, masks=masks, steps=0, detail=detail)


def _of_seed(finding: ParityFinding, seed: int, seeds: int) -> ParityFinding:
    return finding if seeds == 1 else replace(finding, detail=f"worst of {seeds} seeds, {seed}: {finding.detail}")


def _badness(finding: ParityFinding) -> tuple[int, float]:
    return WORST_FIRST.index(finding.verdict), -max(finding.loss_score or 0.0, finding.grad_norm_score or 0.0)
