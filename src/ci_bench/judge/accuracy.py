"""Does the candidate still answer as many evaluation rows rightly as the reference?

Owns the accuracy test of one arm. Where the two runs saw the same dropout masks, the rows on which they disagree are tested
exactly; where masks differ, two runs are two draws, and only their shares can be compared.
"""

import math

from scipy.special import ndtr

from ci_bench.judge.parity_runs import first_of
from ci_bench.judge.stats import two_sided_binomial
from ci_bench.records.case import Masks, ParityEvidence, Role, Trace
from ci_bench.records.comparison import AccuracyParity

ALPHA = 0.01
MARGIN = 0.01
"""Accuracy is broken only when the difference is both unlikely (p < `ALPHA`) and larger than this share."""


def accuracy_parity(evidence: ParityEvidence, arm: str, masks: Masks | None) -> AccuracyParity | None:
    """Accuracy of candidate `arm` against the reference, seeds pooled; `None` where no seed was evaluated on both sides."""
    runs = [trace for trace in evidence.traces if trace.role is Role.CANDIDATE and trace.arm == arm]
    pairs = [(first_of(evidence, Role.REFERENCE, run.seed), run) for run in runs]
    evaluated = [(ref, own) for ref, own in pairs if ref is not None and _evaluated(ref) and _evaluated(own)]
    if not evaluated:
        return None
    reference, candidate = (_mean(side) for side in zip(*evaluated, strict=True))
    p_value, test = _test(evidence, [own for _, own in evaluated], masks, (reference, candidate))
    return _decide(reference, candidate, p_value, test)


def mcnemar(lost: int, won: int) -> float:
    """The exact two-sided p-value of McNemar's test: are rows lost as often as won?

    https://en.wikipedia.org/wiki/McNemar%27s_test
    """
    return two_sided_binomial(lost, lost + won)


def two_proportions(first: float, second: float, rows: int) -> float:
    """The two-sided p-value of the pooled normal test of two shares over `rows` rows each.

    https://en.wikipedia.org/wiki/Two-proportion_Z-test
    """
    pooled = (first + second) / 2
    variance = 2 * pooled * (1 - pooled) / rows
    if variance <= 0:
        return 1.0
    return float(2 * ndtr(-abs(first - second) / math.sqrt(variance)))


def _evaluated(trace: Trace) -> bool:
    return trace.accuracy is not None and 0 <= trace.accuracy <= 1


def _mean(traces: tuple[Trace, ...]) -> float:
    return sum(trace.accuracy or 0.0 for trace in traces) / len(traces)


def _test(
    evidence: ParityEvidence, candidates: list[Trace], masks: Masks | None, shares: tuple[float, float]
) -> tuple[float | None, str]:
    counted = [trace.disagreements for trace in candidates if trace.disagreements is not None]
    if len(counted) == len(candidates) and masks in {Masks.NO_DROPOUT, Masks.ALIGNED}:
        lost, won = (sum(pair[side] for pair in counted) for side in (0, 1))
        if min(lost, won) >= 0:
            return mcnemar(lost, won), f"{lost} rows lost, {won} won (exact McNemar test)"
    rows = evidence.evaluation_rows * len(candidates)
    if rows > 0:
        return two_proportions(*shares, rows), f"{rows} rows (two-proportion test)"
    return None, "the number of rows is unknown, so the difference alone decides"


def _decide(reference: float, candidate: float, p_value: float | None, test: str) -> AccuracyParity:
    difference = candidate - reference
    unlikely = p_value is None or p_value < ALPHA
    p_text = "" if p_value is None else f", p = {p_value:.2g}"
    return AccuracyParity(
        reference=reference,
        candidate=candidate,
        p_value=p_value,
        holds=not (unlikely and abs(difference) > MARGIN),
        detail=f"{100 * difference:+.2f} points over {test}{p_text}",
    )
