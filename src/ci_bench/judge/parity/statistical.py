"""Loss parity over seeds, for runs whose dropout masks cannot match: does the candidate end at the same loss?

Owns the statistical tier. Other masks alone move the final loss; reference runs with other masks show by how much, and the
candidate's differences over seeds are judged on that scale.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ci_bench.judge.parity.runs import Floats, Stopped, Twins, insufficient, match, series, stopped
from ci_bench.judge.statistics.ratios import LEVEL, t_quantile
from ci_bench.judge.wording import count_of, percent
from ci_bench.records.case import Masks, ParityEvidence, Role, Trace
from ci_bench.records.comparison import Interval, Parity, ParityFinding, Tier

WINDOW = 50
LEAST_STEPS = 100
LEAST_SEEDS = 2
LEAST_MARGIN, LARGEST_MARGIN = 0.0025, 0.005

_DIFFERENT_LEVEL, _EQUIVALENT_LEVEL = 0.995, 0.95
_SEED_SHARE = 0.5
_LARGEST = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean over seeds, its standard error, and the degrees of freedom behind that."""

    mean: float
    error: float
    freedom: float

    def reach(self, share: float) -> float:
        """The half width of an interval with t quantile `share`."""
        return t_quantile(share, self.freedom) * self.error


def statistical_finding(evidence: ParityEvidence, runs: tuple[Trace, ...], masks: Masks) -> ParityFinding:
    """Judges all runs of one candidate arm, one per seed.

    ``f = mean over the last 50 steps of (L - L_ref)``, relative to the mean reference loss there. DIFFERENT if
    ``|mean f| - t(0.995) se > 0``, EQUIVALENT if ``|mean f| + t(0.95) se < margin``, else INCONCLUSIVE. Where both hold the
    runs are EQUIVALENT: the margin is what matters in practice, and a well-measured trifle must not fail.
    """
    matched = [match(evidence, run) for run in _one_per_seed(runs)]
    twins = [pair for pair in matched if isinstance(pair, Twins)]
    problem = _problem([pair for pair in matched if isinstance(pair, Stopped)], twins)
    if problem:
        return stopped(problem, runs[0], masks=masks, tier=Tier.STATISTICAL)
    others = _other_masks(evidence)
    estimate = pooled([_tail_difference(pair) for pair in twins], [_tail_difference(pair) for pair in others])
    margin = _margin(twins)
    verdict, detail = _ruling(estimate, margin)
    drift = pooled([_drift(pair) for pair in twins], [_drift(pair) for pair in others])
    if verdict is Parity.EQUIVALENT and abs(drift.mean) - drift.reach(_EQUIVALENT_LEVEL) > margin:
        verdict = Parity.INCONCLUSIVE
        detail = f"the difference is still growing, by {percent(drift.mean)} over the run: train longer to decide ({detail})"
    return _finding(twins, masks, estimate, margin, (verdict, detail))


def pooled(differences: Sequence[float], null: Sequence[float]) -> Estimate:
    """The mean of `differences`, with a spread pooled from them and from `null`, whose true mean is zero.

    ``s^2 = (n0 s0^2 + S) / (n0 + r - 1)`` with ``n0 s0^2`` the sum of squares of `null` and S that of the differences about
    their mean: the classical pooled variance, https://en.wikipedia.org/wiki/Pooled_variance.
    """
    mean = statistics.fmean(differences)
    squares = sum(value**2 for value in null) + sum((value - mean) ** 2 for value in differences)
    freedom = len(null) + len(differences) - 1.0
    return Estimate(mean=mean, error=math.sqrt(squares / freedom / len(differences)), freedom=freedom)


def _one_per_seed(runs: tuple[Trace, ...]) -> list[Trace]:
    """Repeats of a seed share their start, so they are not replicates: the first of each seed counts."""
    first = {run.seed: run for run in sorted(runs, key=lambda run: -run.index)}
    return [first[seed] for seed in sorted(first)]


def _problem(stops: list[Stopped], twins: list[Twins]) -> Stopped | None:
    """The worst reason why the seeds cannot be judged together."""
    order = (Parity.NON_FINITE, Parity.INSUFFICIENT_DATA, Parity.INCONCLUSIVE)
    if stops:
        return min(stops, key=lambda stop: order.index(stop.verdict))
    steps = min(pair.steps for pair in twins)
    if len(twins) < LEAST_SEEDS:
        return insufficient(
            f"dropout masks differ, and {count_of(len(twins), 'seed')} cannot decide: it needs {LEAST_SEEDS}", steps
        )
    for pair in twins:
        if pair.short:
            return insufficient(f"seed {pair.candidate.seed}: {pair.short}", steps)
    if steps < LEAST_STEPS:
        notes = "".join(f"; {pair.note}" for pair in twins if pair.note)
        return insufficient(f"dropout masks differ, and {steps} steps are too few: it needs {LEAST_STEPS}{notes}", steps)
    if not all(_tail_loss(pair) > 0 for pair in twins):
        return Stopped(verdict=Parity.INCONCLUSIVE, detail="the reference's loss is not positive: no relative size", steps=steps)
    return None


def _other_masks(evidence: ParityEvidence) -> list[Twins]:
    """Reference runs with other masks beside the reference run of their seed."""
    pairs = [match(evidence, run) for run in evidence.traces if run.role is Role.OTHER_MASKS]
    usable = [pair for pair in pairs if isinstance(pair, Twins) and not pair.short and pair.steps >= LEAST_STEPS]
    return [pair for pair in usable if _tail_loss(pair) > 0]


def _tail_loss(pair: Twins) -> float:
    return float(series(pair.reference, "loss", pair.steps)[-WINDOW:].mean())


def _relative(pair: Twins) -> Floats:
    """The relative difference of every step, cut at a size where it is different anyway and its square cannot overflow."""
    candidate, reference = (series(trace, "loss", pair.steps) for trace in (pair.candidate, pair.reference))
    with np.errstate(over="ignore"):
        return np.clip((candidate - reference) / _tail_loss(pair), -_LARGEST, _LARGEST)


def _tail_difference(pair: Twins) -> float:
    return float(_relative(pair)[-WINDOW:].mean())


def _drift(pair: Twins) -> float:
    """The change of the relative difference over a whole run, at the slope of its last half (least squares)."""
    last_half = _relative(pair)[pair.steps // 2 :]
    steps = np.arange(len(last_half)) - (len(last_half) - 1) / 2
    return float((steps @ last_half) / (steps @ steps)) * pair.steps


def _margin(twins: list[Twins]) -> float:
    """Half of what another seed does to the final loss, at least 0.25 % and at most 0.5 %."""
    losses = [_tail_loss(pair) for pair in twins]
    spread = statistics.stdev(losses) / statistics.fmean(losses)
    return max(LEAST_MARGIN, min(LARGEST_MARGIN, _SEED_SHARE * spread))


def _ruling(estimate: Estimate, margin: float) -> tuple[Parity, str]:
    size = abs(estimate.mean)
    differs = size - estimate.reach(_DIFFERENT_LEVEL) > 0
    seen = f"final loss differs by {100 * estimate.mean:+.3f} % (margin {percent(margin)})"
    if size + estimate.reach(_EQUIVALENT_LEVEL) < margin:
        return Parity.EQUIVALENT, f"{seen}; statistically a difference, but inside the margin" if differs else seen
    if differs:
        return Parity.DIFFERENT, f"{seen}, more than other dropout masks explain"
    return Parity.INCONCLUSIVE, f"{seen}; too uncertain to decide: train more seeds"


def _finding(twins: list[Twins], masks: Masks, estimate: Estimate, margin: float, ruling: tuple[Parity, str]) -> ParityFinding:
    verdict, detail = ruling
    notes = "".join(f"; seed {pair.candidate.seed}: {pair.note}" for pair in twins if pair.note)
    half = estimate.reach((1 + LEVEL) / 2)
    return ParityFinding(
        arm=twins[0].candidate.arm,
        verdict=verdict,
        tier=Tier.STATISTICAL,
        masks=masks,
        steps=min(pair.steps for pair in twins),
        detail=f"{len(twins)} seeds: {detail}{notes}",
        limit=margin,
        difference=estimate.mean,
        interval=Interval(low=estimate.mean - half, high=estimate.mean + half, level=LEVEL),
    )
