"""Times of a paired run: base and head measured in turns, judged launch by launch by the sequential rule.

Owns which figures the rule is given and what its answers become. The rule is in `sequential`, the samples in `launches`, the
history in `calibration`, the words in `paired_wording`. A run of other moments is judged in `screening`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ci_bench.judge.cases.lines import Key, Line
from ci_bench.judge.cases.outcome import Judged, Outcome
from ci_bench.judge.metrics.launches import Figures, figures
from ci_bench.judge.metrics.paired_wording import Answer, reason
from ci_bench.judge.statistics import aggregates, sequential
from ci_bench.judge.statistics.noise import Floats, Learned
from ci_bench.judge.statistics.ruling import Code, Counts, Rule, Ruling, Truths
from ci_bench.records.comparison import Interval, MeanSpeedup, Pairing, SpeedupChange, Verdict

LEAST_MARGIN = 0.002
"""No change below 0.2 % can be certain to be none, so a threshold of 0 does not ask for it."""

_VERDICTS: Mapping[int, Verdict] = {
    Code.IMPROVED: Verdict.IMPROVED,
    Code.OPEN: Verdict.INCONCLUSIVE,
    Code.REGRESSED: Verdict.REGRESSED,
    Code.UNCHANGED: Verdict.UNCHANGED,
}
_LONGEST_LOG = 700.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """The lines of a paired run with the figures of their launches and what past runs taught of each, in the same order.

    `gating` marks those that can fail the run.
    """

    lines: Sequence[Line]
    figures: Figures
    learned: Learned
    rule: Rule
    gating: Truths

    def ruling(self) -> Ruling:
        """What the rule says of every line."""
        return sequential.replay(self.figures.d, self.figures.within, self.learned, self.rule)


def turns_of(lines: Sequence[Line], learned: Learned, rule: Rule) -> Turns:
    """Prepares lines that have both sides, for `rule` with the thresholds of each.

    The threshold is the smallest change that is flagged, and twice of it what must not be called unchanged.
    """
    gating = np.array([not line.detail for line in lines], dtype=np.bool_)
    thresholds = np.array([max(line.threshold, 0.0) for line in lines], dtype=np.float64)
    own = replace(
        rule,
        tau=np.log1p(thresholds),
        margin=np.log1p(margins(thresholds)),
        gating=max(1, int(gating.sum())),
    )
    found = figures([(line.base[0], line.head[0]) for line in lines], most=rule.looks[-1])
    return Turns(lines=lines, figures=found, learned=learned, rule=own, gating=gating)


def margins(thresholds: Floats) -> Floats:
    """The smallest relative change that must not be called unchanged, for thresholds."""
    return np.maximum(2 * thresholds, LEAST_MARGIN)


def judge_turns(turns: Turns, *, calibration: str) -> Judged:
    """Judges all lines at once. `calibration` says in words where the noise is known from."""
    ruling = turns.ruling()
    pairing = Pairing(
        calibration=calibration,
        gating=int(turns.gating.sum()),
        launches=int(ruling.launches.max(initial=0)),
        inflation=float(np.nanmax(ruling.inflation)) if np.isfinite(ruling.inflation).any() else None,
        mean=_mean(turns),
    )
    return Judged(outcomes=tuple(_outcomes(turns, ruling)), pairing=pairing, changes=_changes(turns))


def _outcomes(turns: Turns, ruling: Ruling) -> Iterator[Outcome]:
    thresholds = np.array([line.threshold for line in turns.lines], dtype=np.float64)
    answers = map(
        Answer,
        [_VERDICTS[code] for code in ruling.code.tolist()],
        _speedups(ruling.mean),
        _intervals(ruling.low, ruling.high, turns.rule.level),
        ruling.launches.tolist(),
        _shares(ruling.resolvable),
        _known(ruling.needed),
        thresholds.tolist(),
        margins(thresholds).tolist(),
        ruling.calibrated.tolist(),
    )
    noise = _shares(np.where(ruling.calibrated, turns.learned.spread, np.nan))
    q = _known(aggregates.false_discovery(aggregates.p_values(ruling)))
    for line, answer, spread, discovery in zip(turns.lines, answers, noise, q, strict=True):
        yield Outcome(
            verdict=answer.verdict,
            reason=reason(answer, line.metric.unit, line.metric.better, turns.rule.cold_launches),
            speedup=answer.speedup,
            interval=answer.interval,
            calibrated=answer.calibrated,
            noise=spread,
            resolvable=answer.resolvable,
            q=discovery,
        )


def _mean(turns: Turns) -> MeanSpeedup | None:
    """The geometric mean over the gating times that were taken in turns."""
    chosen = turns.gating & turns.figures.in_turns
    if not chosen.any():
        return None
    mean = aggregates.geometric_mean(turns.figures.d[chosen], turns.learned.only(chosen), level=turns.rule.level)
    if not math.isfinite(mean.value):
        return None
    (interval,) = _intervals(np.array([mean.low]), np.array([mean.high]), turns.rule.level)
    return MeanSpeedup(speedup=math.exp(-mean.value), interval=interval, metrics=mean.cases, launches=mean.launches)


def _changes(turns: Turns) -> dict[str, dict[Key, SpeedupChange]]:
    """Whether head changed the speedup of each arm over its reference, by the rule that judges times: the contrast of both.

    Of an arm's change and the reference's, what both share cancels. Nothing was learned of the difference by itself.
    """
    place = {line.key: row for row, line in enumerate(turns.lines)}
    found = [(row, place.get((line.case, line.metric.name, line.reference))) for row, line in enumerate(turns.lines)]
    pairs = [(row, reference) for row, reference in found if reference is not None and row != reference and turns.gating[row]]
    if not pairs:
        return {}
    arms, references = np.array(pairs, dtype=np.intp).T
    d = turns.figures.d[arms] - turns.figures.d[references]
    nothing = np.full(d.shape, np.nan)
    rule = replace(turns.rule, gating=None, tau=_rows(turns.rule.tau, arms), margin=_rows(turns.rule.margin, arms))
    ruling = sequential.replay(d, nothing, _of_contrasts(turns.learned, arms, references), rule)
    changes: dict[str, dict[Key, SpeedupChange]] = {}
    columns = (arms.tolist(), ruling.code.tolist(), _speedups(ruling.mean), _intervals(ruling.low, ruling.high, rule.level))
    for row, code, ratio, interval in zip(*columns, strict=True):
        if ratio is not None:
            case, metric, arm = turns.lines[row].key
            change = SpeedupChange(verdict=_VERDICTS[code], ratio=ratio, interval=interval)
            changes.setdefault(case, {})[metric, arm] = change
    return changes


def _rows(figure: Floats | float, rows: Counts) -> Floats:
    every: Floats = np.asarray(figure, dtype=np.float64)
    return every[rows]


def _of_contrasts(learned: Learned, arms: Counts, references: Counts) -> Learned:
    """What is known of differences of two lines: their spreads add up, as if they shared nothing, which is the safe side.

    The degrees of freedom are the fewer of the two.
    """
    both = learned.only(arms), learned.only(references)
    return Learned(
        spread=np.hypot(both[0].spread, both[1].spread),
        freedom=np.minimum(both[0].freedom, both[1].freedom),
        within=np.full(len(arms), np.nan),
        bound=learned.bound,
    )


def _speedups(log_ratios: Floats) -> list[float | None]:
    """Base over head from logarithms of head over base; `None` for NaN."""
    return _known(np.exp(np.clip(-log_ratios, -_LONGEST_LOG, _LONGEST_LOG)))


def _shares(log_ratios: Floats) -> list[float | None]:
    """Relative changes from logarithms; `None` for NaN."""
    return _known(np.expm1(np.minimum(log_ratios, _LONGEST_LOG)))


def _intervals(low: Floats, high: Floats, level: float) -> list[Interval | None]:
    """The intervals of speedups from those of the log-ratios; `None` where there is none."""
    ends = zip(_speedups(high), _speedups(low), strict=True)
    return [None if low is None or high is None else Interval(low=low, high=high, level=level) for low, high in ends]


def _known(figures: Floats) -> list[float | None]:
    """`None` for what isn't a finite number."""
    finite = np.isfinite(figures)
    if finite.all():
        return list(figures.tolist())
    return [figure if there else None for figure, there in zip(figures.tolist(), finite.tolist(), strict=True)]
