"""Does the candidate still answer as many evaluation rows rightly as the reference?

Owns the accuracy test of one arm. Two questions, answered apart. Did training lead elsewhere? Small models amplify rounding
over hundreds of steps, so the candidate's accuracy is held against the spread among runs that differ from the reference by
rounding (or masks) alone. Does the compiled forward pass evaluate wrongly? The same weights, evaluated both ways, must agree.
"""

import math
import statistics

from ci_bench.judge.parity.runs import first_of
from ci_bench.judge.statistics.ratios import t_quantile
from ci_bench.records.case import ParityEvidence, Role, Trace
from ci_bench.records.comparison import AccuracyParity

LEVEL = 0.995
MARGIN = 0.01
"""A difference up to this share never counts."""
FLIPPED = 0.005
"""The share of rows that may flip when the same weights are evaluated both ways: ties broken by rounding."""

_ROUNDING = 1e-9
"""The last bits of a difference of two shares: 0.61 - 0.60 is more than 0.01."""
_PEERS = (Role.REFERENCE, Role.PERTURBED, Role.OTHER_MASKS)


def accuracy_parity(evidence: ParityEvidence, arm: str) -> AccuracyParity | None:
    """Accuracy of candidate `arm` against its peers, seeds pooled; `None` where no seed was evaluated on both sides.

    Per seed ``d = a_cand - mean(a_peers)``; the spread s is pooled over seeds from the peers (reference, perturbed and
    other-mask runs), with f degrees of freedom. Broken if ``|mean d| > max(1 point, t(0.995, f) s sqrt(sum(1 + 1/n)) / S)``,
    or if more than 0.5 % of rows flip between the two ways of evaluating the same weights.
    """
    runs = [trace for trace in evidence.traces if trace.role is Role.CANDIDATE and trace.arm == arm and _evaluated(trace)]
    groups = [(run, peers) for run in runs if (peers := _peers(evidence, run.seed))]
    if not groups:
        return None
    deviations = [_share(run) - statistics.fmean(peers) for run, peers in groups]
    spread = _spread([peers for _, peers in groups])
    limit = _limit([peers for _, peers in groups], spread)
    flipped, rows = _flipped(evidence, [run for run, _ in groups])
    difference = statistics.fmean(deviations)
    return AccuracyParity(
        reference=statistics.fmean(statistics.fmean(peers) for _, peers in groups),
        candidate=statistics.fmean(_share(run) for run, _ in groups),
        spread=spread,
        limit=limit,
        holds=abs(difference) <= limit + _ROUNDING and flipped <= max(1.0, FLIPPED * rows),
        detail=_detail(difference, limit, spread, flipped, rows),
    )


def _evaluated(trace: Trace) -> bool:
    return trace.accuracy is not None and 0 <= trace.accuracy <= 1


def _share(trace: Trace) -> float:
    return trace.accuracy or 0.0


def _peers(evidence: ParityEvidence, seed: int) -> list[float]:
    """Accuracies of all runs of a seed that differ from the reference by rounding or masks alone."""
    reference = first_of(evidence, Role.REFERENCE, seed)
    if reference is None or not _evaluated(reference):
        return []
    same = (reference.arm, seed, reference.data)
    return [
        _share(trace)
        for trace in evidence.traces
        if trace.role in _PEERS and (trace.arm, trace.seed, trace.data) == same and _evaluated(trace)
    ]


def _spread(groups: list[list[float]]) -> float | None:
    """The pooled standard deviation within seeds: https://en.wikipedia.org/wiki/Pooled_variance."""
    freedom = _freedom(groups)
    if freedom == 0:
        return None
    squares = sum((value - statistics.fmean(peers)) ** 2 for peers in groups for value in peers)
    return math.sqrt(squares / freedom)


def _freedom(groups: list[list[float]]) -> int:
    return sum(len(peers) - 1 for peers in groups)


def _limit(groups: list[list[float]], spread: float | None) -> float:
    if spread is None:
        return MARGIN
    scale = math.sqrt(sum(1 + 1 / len(peers) for peers in groups)) / len(groups)
    return min(1.0, max(MARGIN, t_quantile(LEVEL, _freedom(groups)) * spread * scale))


def _flipped(evidence: ParityEvidence, runs: list[Trace]) -> tuple[float, int]:
    counted = [run.disagreements for run in runs if run.disagreements is not None]
    return float(sum(sum(map(abs, pair)) for pair in counted)), evidence.evaluation_rows * len(counted)


def _detail(difference: float, limit: float, spread: float | None, flipped: float, rows: int) -> str:
    noise = "rounding's own spread is unknown" if spread is None else f"rounding alone spreads runs by {100 * spread:.2f}"
    flips = f"; {flipped:.0f} of {rows} rows flip when the same weights are evaluated both ways" if rows else ""
    return f"{100 * difference:+.2f} points, limit {100 * limit:.2f} ({noise}){flips}"
