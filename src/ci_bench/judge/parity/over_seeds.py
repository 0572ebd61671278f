"""Loss parity over seeds, for runs that cannot be compared step by step.

Owns the statistical tier. Other masks, or another start, change the final loss. Reference runs with
other masks, or from another start, show by how much, and the candidate's differences over seeds are
judged on that scale. So is a start that a pull request changed: whole trainings of head's reference
are compared with base's, and ending lower does not fail. Accuracy has two questions. Did training
lead elsewhere? It is compared with the spread among runs that differ from the reference only by
rounding (or masks). Does the compiled forward pass evaluate wrongly? The same weights, evaluated
both ways, must agree.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ci_bench.judge.parity.runs import (
    Floats,
    Stopped,
    Twins,
    first_of,
    insufficient,
    match,
    series,
    stopped,
)
from ci_bench.judge.times.ratios import LEVEL, t_quantile
from ci_bench.judge.wording import count_of, percent
from ci_bench.records.comparison import AccuracyParity, Interval, Parity, ParityFinding, Tier
from ci_bench.records.results import CaseResult, Masks, ParityEvidence, Role, Trace
from ci_bench.statistics.accuracy import ROUNDING, certain_limit, limit_of, spread_of

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
        """Return the half width of an interval with t quantile `share`."""
        return t_quantile(share, self.freedom) * self.error


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question answered over seeds: its cause, whether ending lower matters, and its wording.

    `apart` is why steps cannot be compared, `chance` the source of random changes of the final
    loss, `lower` the text for a candidate that ends lower than the reference, if that does not
    fail. `settled` says how everything but chance was shown to agree, if it was: chance then
    explains a difference that is not certain.
    """

    apart: str
    chance: str
    lower: str = ""
    settled: str = ""


OF_MASKS = Question(apart="dropout masks differ", chance="other dropout masks")


def seeds_finding(
    matched: Sequence[Twins | Stopped],
    null: Sequence[Twins],
    run: Trace,
    *,
    masks: Masks | None,
    question: Question,
) -> ParityFinding:
    """Compare runs of one arm, such as `run`, with the reference's of their seeds.

    Runs in `null` differ only by chance.

    ``f = mean over the last 50 steps of (L - L_ref)``, relative to the mean reference loss there.
    DIFFERENT if ``|mean f| - t(0.995) se > 0``, EQUIVALENT if ``|mean f| + t(0.95) se < margin``,
    else INCONCLUSIVE. If both hold, the runs are EQUIVALENT: the margin is what matters in
    practice, and a well-measured trifle must not fail. If ending lower does not fail, EQUIVALENT if
    ``mean f + t(0.95) se < margin``. If everything but chance was shown to agree, EQUIVALENT unless
    DIFFERENT.
    """
    twins = [pair for pair in matched if isinstance(pair, Twins)]
    problem = _problem(
        [pair for pair in matched if isinstance(pair, Stopped)], twins, question.apart
    )
    if problem:
        return stopped(problem, run, masks=masks, tier=Tier.STATISTICAL)
    others = usable_twins(null)
    estimate = pooled(
        [_tail_difference(pair) for pair in twins], [_tail_difference(pair) for pair in others]
    )
    margin = _margin(twins)
    verdict, detail = _ruling(estimate, margin, len(twins), question)
    drift = pooled([_drift(pair) for pair in twins], [_drift(pair) for pair in others])
    growth, room = (
        (drift.mean, margin + max(0.0, -estimate.mean))
        if question.lower
        else (abs(drift.mean), margin)
    )
    certainty = _DIFFERENT_LEVEL if question.settled else _EQUIVALENT_LEVEL
    if verdict is Parity.EQUIVALENT and growth - drift.reach(certainty) > room:
        verdict = Parity.INCONCLUSIVE
        detail = (
            f"the difference is still growing, by {percent(drift.mean)} over the run: train longer"
            f" to decide ({detail})"
        )
    return _finding(twins, masks, estimate, margin, (verdict, detail))


def pooled(differences: Sequence[float], null: Sequence[float]) -> Estimate:
    """Return the mean of `differences`, and its error from them and `null`, of true mean zero.

    ``s^2 = (n0 s0^2 + S) / (n0 + r - 1)`` with ``n0 s0^2`` the sum of squares of `null` and S that
    of the differences about their mean: the classical pooled variance,
    https://en.wikipedia.org/wiki/Pooled_variance.
    """
    mean = statistics.fmean(differences)
    squares = sum(value**2 for value in null) + sum((value - mean) ** 2 for value in differences)
    freedom = len(null) + len(differences) - 1.0
    return Estimate(
        mean=mean, error=math.sqrt(squares / freedom / len(differences)), freedom=freedom
    )


def one_per_seed(runs: tuple[Trace, ...]) -> list[Trace]:
    """Return the first run of each seed: repeats share their start, so they are not replicates."""
    first = {run.seed: run for run in sorted(runs, key=lambda run: -run.index)}
    return [first[seed] for seed in sorted(first)]


def _problem(stops: list[Stopped], twins: list[Twins], reason: str) -> Stopped | None:
    """Return the worst reason why the seeds cannot be judged together."""
    order = (Parity.NON_FINITE, Parity.INSUFFICIENT_DATA, Parity.INCONCLUSIVE)
    if stops:
        return min(stops, key=lambda stop: order.index(stop.verdict))
    steps = min(pair.steps for pair in twins)
    if len(twins) < LEAST_SEEDS:
        return insufficient(
            f"{reason}, and {count_of(len(twins), 'seed')} cannot decide: it needs {LEAST_SEEDS}",
            steps,
        )
    for pair in twins:
        if pair.short:
            return insufficient(f"seed {pair.candidate.seed}: {pair.short}", steps)
    if steps < LEAST_STEPS:
        notes = "".join(f"; {pair.note}" for pair in twins if pair.note)
        return insufficient(
            f"{reason}, and {steps} steps are too few: it needs {LEAST_STEPS}{notes}", steps
        )
    if not all(_tail_loss(pair) > 0 for pair in twins):
        return Stopped(
            verdict=Parity.INCONCLUSIVE,
            detail="the reference's loss is not positive: no relative size",
            steps=steps,
        )
    return None


def other_masks(evidence: ParityEvidence) -> list[Twins]:
    """Pair reference runs with other masks with the reference run of their seed."""
    pairs = [match(evidence, run) for run in evidence.traces if run.role is Role.OTHER_MASKS]
    return [pair for pair in pairs if isinstance(pair, Twins)]


def usable_twins(pairs: Sequence[Twins]) -> list[Twins]:
    """Select complete pairs that are long enough to show how far chance moves a final loss."""
    usable = [pair for pair in pairs if not pair.short and pair.steps >= LEAST_STEPS]
    return [pair for pair in usable if _tail_loss(pair) > 0]


def _tail_loss(pair: Twins) -> float:
    return float(series(pair.reference, "loss", pair.steps)[-WINDOW:].mean())


def _relative(pair: Twins) -> Floats:
    """Return the relative difference of every step, clipped.

    At the bound it is different anyway, and its square cannot overflow.
    """
    candidate, reference = (
        series(trace, "loss", pair.steps) for trace in (pair.candidate, pair.reference)
    )
    with np.errstate(over="ignore"):
        return np.clip((candidate - reference) / _tail_loss(pair), -_LARGEST, _LARGEST)


def _tail_difference(pair: Twins) -> float:
    return float(_relative(pair)[-WINDOW:].mean())


def _drift(pair: Twins) -> float:
    """Return the change of the relative difference over a run, by the slope of its last half.

    The slope is of least squares.
    """
    last_half = _relative(pair)[pair.steps // 2 :]
    steps = np.arange(len(last_half)) - (len(last_half) - 1) / 2
    return float((steps @ last_half) / (steps @ steps)) * pair.steps


def _margin(twins: list[Twins]) -> float:
    """Return half of the spread of final losses over seeds, at least 0.25 % and at most 0.5 %."""
    losses = [_tail_loss(pair) for pair in twins]
    spread = statistics.stdev(losses) / statistics.fmean(losses)
    return max(LEAST_MARGIN, min(LARGEST_MARGIN, _SEED_SHARE * spread))


def _ruling(
    estimate: Estimate, margin: float, seeds: int, question: Question
) -> tuple[Parity, str]:
    size = abs(estimate.mean)
    differs = size - estimate.reach(_DIFFERENT_LEVEL) > 0
    summary = f"final loss differs by {100 * estimate.mean:+.3f} % (margin {percent(margin)})"
    if size + estimate.reach(_EQUIVALENT_LEVEL) < margin:
        return Parity.EQUIVALENT, (
            f"{summary}; statistically a difference, but inside the margin" if differs else summary
        )
    if question.lower and estimate.mean + estimate.reach(_EQUIVALENT_LEVEL) < margin:
        return Parity.EQUIVALENT, f"{summary}; {question.lower}" if differs else summary
    if differs and not (question.lower and estimate.mean < 0):
        return Parity.DIFFERENT, f"{summary}, more than {question.chance} explain"
    if question.settled and not differs:
        half = 100 * estimate.reach((1 + LEVEL) / 2)
        low, high = 100 * estimate.mean - half, 100 * estimate.mean + half
        return Parity.EQUIVALENT, (
            f"{summary}, {100 * LEVEL:.0f} % interval {low:+.3g} to {high:+.3g} %;"
            f" {question.settled}"
        )
    needed_seeds = _seeds_to_decide(estimate, margin, seeds)
    return (
        Parity.INCONCLUSIVE,
        (
            f"{summary}; too uncertain to decide: train more seeds (about {needed_seeds:,} for a"
            " difference of the margin)"
        ),
    )


def _seeds_to_decide(estimate: Estimate, margin: float, seeds: int) -> int:
    """Return the number of seeds that makes the interval as narrow as the margin.

    Its width shrinks as one over the root of their number.
    """
    return math.ceil(seeds * min(_LARGEST, estimate.reach(_EQUIVALENT_LEVEL) / margin) ** 2)


def _finding(
    twins: list[Twins],
    masks: Masks | None,
    estimate: Estimate,
    margin: float,
    ruling: tuple[Parity, str],
) -> ParityFinding:
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


FLIPPED = 0.005
"""The share of rows that may flip when the same weights are evaluated both ways: ties broken by
rounding.
"""

_PEERS = (Role.REFERENCE, Role.PERTURBED, Role.OTHER_MASKS)


def accuracy_parity(evidence: ParityEvidence, arm: str) -> AccuracyParity | None:
    """Compare the accuracy of candidate `arm` with its peers', seeds pooled.

    `None` if no seed was evaluated on both sides.

    Per seed ``d = a_cand - mean(a_peers)``; the spread s is pooled over seeds from the peers
    (reference, perturbed and other-mask runs), with f degrees of freedom. Broken if
    ``|mean d| > max(1 point, t(0.995, f) s sqrt(sum(1 + 1/n)) / S)``, or if more than 0.5 % of rows
    flip between the two ways of evaluating the same weights. If perturbed runs of the only seed
    were cut short, parity is broken unless it holds for any outcome of theirs (`certain_limit`).
    """
    runs = [
        trace
        for trace in evidence.traces
        if trace.role is Role.CANDIDATE and trace.arm == arm and _evaluated(trace)
    ]
    groups = [(run, peers) for run in runs if (peers := _peers(evidence, run.seed))]
    if not groups:
        return None
    deviations = [_share(run) - statistics.fmean(peers) for run, peers in groups]
    spread = spread_of([peers for _, peers in groups])
    missing = _cut_short(evidence, groups[0][0].seed) if len(groups) == 1 else 0
    limit = (
        max(0.0, certain_limit(groups[0][1], missing=missing))
        if missing
        else limit_of([peers for _, peers in groups])
    )
    flipped, rows = _flipped(evidence, [run for run, _ in groups])
    difference = statistics.fmean(deviations)
    return AccuracyParity(
        reference=statistics.fmean(statistics.fmean(peers) for _, peers in groups),
        candidate=statistics.fmean(_share(run) for run, _ in groups),
        spread=spread,
        limit=limit,
        holds=abs(difference) <= limit + ROUNDING and flipped <= max(1.0, FLIPPED * rows),
        detail=_detail(difference, limit, _noise(spread, missing), _flips(flipped, rows)),
    )


def _evaluated(trace: Trace) -> bool:
    return trace.accuracy is not None and 0 <= trace.accuracy <= 1


def _share(trace: Trace) -> float:
    return trace.accuracy or 0.0


def _peers(evidence: ParityEvidence, seed: int) -> list[float]:
    """Return accuracies of a seed's runs that only rounding or masks part from the reference."""
    reference = first_of(evidence, Role.REFERENCE, seed)
    if reference is None or not _evaluated(reference):
        return []
    same = (reference.arm, seed, reference.data)
    return [
        _share(trace)
        for trace in evidence.traces
        if trace.role in _PEERS
        and (trace.arm, trace.seed, trace.data) == same
        and _evaluated(trace)
    ]


def _cut_short(evidence: ParityEvidence, seed: int) -> int:
    """Count the perturbed runs of a seed that were not evaluated: they ended with the envelope."""
    reference = first_of(evidence, Role.REFERENCE, seed)
    same = None if reference is None else (reference.arm, seed, reference.data)
    perturbed = [
        trace
        for trace in evidence.traces
        if trace.role is Role.PERTURBED and (trace.arm, trace.seed, trace.data) == same
    ]
    return sum(1 for trace in perturbed if not _evaluated(trace))


def _flipped(evidence: ParityEvidence, runs: list[Trace]) -> tuple[float, int]:
    counted = [run.disagreements for run in runs if run.disagreements is not None]
    return float(sum(sum(map(abs, pair)) for pair in counted)), evidence.evaluation_rows * len(
        counted
    )


def _detail(difference: float, limit: float, noise: str, flips: str) -> str:
    return f"{100 * difference:+.2f} points, limit {100 * limit:.2f} ({noise}){flips}"


def _noise(spread: float | None, missing: int) -> str:
    if missing:
        return f"whatever {count_of(missing, 'perturbed run')}, cut short, would have shown"
    return (
        "rounding's own spread is unknown"
        if spread is None
        else f"rounding spreads runs by {100 * spread:.2f}"
    )


def _flips(flipped: float, rows: int) -> str:
    return (
        f"; {flipped:.0f} of {rows} rows flip when the same weights are evaluated both ways"
        if rows
        else ""
    )


OF_STARTS = Question(
    apart="the start weights differ from base's",
    chance="other start weights",
    lower="head ends lower than base, beyond what other start weights explain",
)


def starts_differ(base: CaseResult, head: CaseResult) -> bool:
    """Return whether both reference arms were trained on the same data from other weights.

    Then only seeds can compare them.
    """
    pair = _first_runs(base, head)
    return pair is not None and pair[0].data == pair[1].data and pair[0].start != pair[1].start


def starts_finding(base: CaseResult, head: CaseResult) -> ParityFinding | None:
    """Return the finding over the seeds that both sides have; `None` if these are too few.

    The effect of chance is estimated from trainings of each side that only drew their start again.
    """
    arm = head.case.reference
    if base.parity is None or head.parity is None:
        return None
    theirs, ours = _references(base.parity, arm), _references(head.parity, arm)
    shared = [seed for seed in theirs if seed in ours and theirs[seed].data == ours[seed].data]
    if len(shared) < LEAST_SEEDS:
        return None
    runs = [replace(ours[seed], role=Role.CANDIDATE, start=theirs[seed].start) for seed in shared]
    matched = [match(base.parity, run) for run in runs]
    finding = seeds_finding(
        matched,
        [*_drawn_again(base.parity, arm), *_drawn_again(head.parity, arm)],
        runs[0],
        masks=None,
        question=OF_STARTS,
    )
    first = _first_apart(matched)
    if first is None:
        return replace(finding, detail=f"the start weights differ from base's; {_beside(finding)}")
    step, share = first
    off = f" ({percent(share)} off)" if share is not None else ""
    return replace(
        finding,
        detail=(
            f"the start weights differ from base's, and so do the losses from step {step} on{off};"
            f" {_beside(finding)}"
        ),
        first_step=step,
        signal="loss",
        apart_first=share,
    )


def _first_apart(matched: Sequence[Twins | Stopped]) -> tuple[int, float | None] | None:
    """Return the first step whose losses differ, and their difference relative to base's.

    It is of the first seed that has such a step.
    """
    for pair in matched:
        if isinstance(pair, Twins):
            theirs, ours = (
                series(trace, "loss", pair.steps) for trace in (pair.reference, pair.candidate)
            )
            differing = np.flatnonzero(theirs != ours)
            if differing.size:
                step = int(differing[0])
                share = (
                    float((ours[step] - theirs[step]) / abs(theirs[step]))
                    if theirs[step]
                    else math.nan
                )
                return step, share if math.isfinite(share) else None
    return None


def _beside(finding: ParityFinding) -> str:
    """Describe the finding, with the interval of the difference."""
    if finding.interval is None:
        return f"head against base: {finding.detail}"
    low, high = (f"{100 * value:+.3g}" for value in (finding.interval.low, finding.interval.high))
    outcome = (
        "head learns as well as base"
        if finding.verdict is Parity.EQUIVALENT
        else "head against base"
    )
    level = f"{100 * finding.interval.level:.0f} %"
    return f"{outcome}: {finding.detail}; {level} interval {low} to {high} %"


def _first_runs(base: CaseResult, head: CaseResult) -> tuple[Trace, Trace] | None:
    """Return the reference runs (base, head) of the first seed that both sides have."""
    if base.parity is None or head.parity is None or base.case.reference != head.case.reference:
        return None
    theirs, ours = (_references(side, head.case.reference) for side in (base.parity, head.parity))
    return next(((theirs[seed], ours[seed]) for seed in theirs if seed in ours), None)


def _references(evidence: ParityEvidence, arm: str) -> dict[int, Trace]:
    """Return the reference run of each seed."""
    runs = tuple(
        trace for trace in evidence.traces if trace.role is Role.REFERENCE and trace.arm == arm
    )
    return {run.seed: run for run in one_per_seed(runs)}


def _drawn_again(evidence: ParityEvidence, arm: str) -> list[Twins]:
    """Pair trainings from other start weights with the reference of their seed.

    The code is the same, so they differ only by chance.
    """
    of_arm = replace(evidence, traces=tuple(trace for trace in evidence.traces if trace.arm == arm))
    pairs = []
    for run in of_arm.traces:
        reference = first_of(of_arm, Role.REFERENCE, run.seed)
        if run.role is Role.OTHER_START and reference is not None and run.start != reference.start:
            pairs.append(match(of_arm, replace(run, start=reference.start)))
    return [pair for pair in pairs if isinstance(pair, Twins)]
