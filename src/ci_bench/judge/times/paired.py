"""Times of a paired run: base and head in turns, judged launch by launch by the sequential rule.

Owns which samples are compared (the log-ratio of the sides in each launch, and the spread inside
it), which figures the rule is given, and the reasons of its verdicts: effect, interval, launches,
and what it would take to decide. The rule is in `sequential`, the estimators in `noise`, the
history in `calibration`. A run whose sides were measured at other times is judged in `screening`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ci_bench.judge.times import aggregates, noise, sequential
from ci_bench.judge.times.devices import Slots
from ci_bench.judge.times.noise import LEAST_HISTORY, Floats, Learned
from ci_bench.judge.times.pairing import JudgedTimes, Line, MetricVerdict
from ci_bench.judge.times.sequential import Code, Counts, Ruling, SequentialRule, Truths
from ci_bench.judge.times.suspicion import (
    PRIORS,
    NoiseSource,
    Suspicion,
    Undecided,
    suspicions,
    wider_scatter,
)
from ci_bench.judge.wording import change, count_of, doubt, interval_text, percent
from ci_bench.records.comparison import Interval, MeanSpeedup, Pairing, SpeedupChange, Verdict
from ci_bench.records.metrics import COMPILATION
from ci_bench.records.open_cases import SeriesName
from ci_bench.records.results import Better, Lane, Launch, Metric, Unit, samples_of
from ci_bench.records.samples import FLOAT_BYTES

_MOST_AT_ONCE = 100_000
"""Samples of a side in one go: memory stays bounded however many metrics there are."""
MOST_LAUNCHES = SequentialRule().looks[-1]
"""The most launches that a run may take; advice to take more would be useless."""

Values = bytes
"""Samples of one launch, `FLOAT_BYTES` each."""
SlotsOfCases = Mapping[str, Mapping[int, int]]
"""The device of each launch, by case: small numbers."""


@dataclass(slots=True)
class _Group:
    """Launches of one shape that both sides have: row, number and samples in order of blocks."""

    rows: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    base: list[Values] = field(default_factory=list)
    head: list[Values] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Figures of each metric's launches, both [metrics, launches]; NaN if a side lacks the launch.

    `d` is the log-ratio of head over base, turned so that above zero head is worse; `within` is NaN
    for a single value. `base` is the logarithm of base's trimmed mean. `slots` is the device of
    each launch, a small number (-1 where unknown); `None` if all were taken on one.
    """

    d: Floats
    within: Floats
    base: Floats
    slots: Slots | None = None

    @property
    def in_turns(self) -> Truths:
        """Return which metrics were sampled in turns, rather than with one value per launch."""
        return np.asarray(np.isfinite(self.within).any(axis=-1), dtype=np.bool_)


def figures(
    pairs: Sequence[tuple[Metric, Metric]],
    *,
    most: int,
    slots: Sequence[Mapping[int, int]] | None = None,
) -> Figures:
    """Return the figures of base and head metrics with positive samples, for up to `most` launches.

    `slots` has the device of each launch.

    Launches are matched by number, samples by block; those without a counterpart are left out. A
    launch's column is its number, so one that failed everywhere leaves a hole; numbers that don't
    fit are replaced by their ranks.
    """
    groups: dict[tuple[int, int, int], _Group] = defaultdict(_Group)
    for row, (base, head) in enumerate(pairs):
        others = {launch.launch: launch for launch in head.launches}
        for launch in base.launches:
            if (other := others.get(launch.launch)) is not None:
                base_samples, head_samples, per_block = _matched(launch, other)
                if base_samples and head_samples:
                    group = groups[
                        len(base_samples) // FLOAT_BYTES,
                        len(head_samples) // FLOAT_BYTES,
                        per_block,
                    ]
                    group.rows.append(row)
                    group.numbers.append(launch.launch)
                    group.base.append(base_samples)
                    group.head.append(head_samples)
    columns = _columns({number for group in groups.values() for number in group.numbers}, most)
    d, within, level = (np.full((len(pairs), most), np.nan) for _ in range(3))
    devices = None if slots is None else np.full((len(pairs), most), -1, dtype=np.intp)
    for row, slot_of in enumerate(slots or ()):
        for number in slot_of.keys() & columns.keys():
            if devices is not None and columns[number] < most:
                devices[row, columns[number]] = slot_of[number]
    for (base_size, head_size, per_block), group in groups.items():
        step = max(1, _MOST_AT_ONCE // max(base_size, head_size))
        for part in (slice(at, at + step) for at in range(0, len(group.rows), step)):
            rows, place = (
                np.array(group.rows[part]),
                np.array([columns[number] for number in group.numbers[part]]),
            )
            fits = place < most
            ratio, spread, base_level = _launches_of(group.base[part], group.head[part], per_block)
            d[rows[fits], place[fits]], within[rows[fits], place[fits]] = ratio[fits], spread[fits]
            level[rows[fits], place[fits]] = base_level[fits]
    worse_is_lower = np.array([head.better is Better.HIGHER for _, head in pairs], dtype=np.bool_)
    d[worse_is_lower] *= -1
    return Figures(d=d, within=within, base=level, slots=devices)


def _columns(numbers: set[int], most: int) -> dict[int, int]:
    fitting = all(0 <= number < most for number in numbers)
    return {number: number if fitting else rank for rank, number in enumerate(sorted(numbers))}


def _launches_of(
    base: list[Values], head: list[Values], per_block: int
) -> tuple[Floats, Floats, Floats]:
    """Return each launch's log-ratio, spread inside it (NaN without blocks), and base's level."""
    sides = _logs(base), _logs(head)
    spread = (
        noise.within_spread(*sides, per_block=per_block)
        if per_block
        else np.full(len(base), np.nan)
    )
    return noise.launch_ratio(*sides), spread, noise.trimmed_mean(sides[0])


def _logs(rows: list[Values]) -> Floats:
    return np.log(np.frombuffer(b"".join(rows))).reshape(len(rows), -1)


def _matched(base: Launch, head: Launch) -> tuple[Values, Values, int]:
    """Return the samples of shared blocks, in the order of the blocks, and the block size.

    Without blocks, return all samples, and 0. The size is 0 also if blocks differ in size, since
    then none represents the others.
    """
    base_samples, head_samples = samples_of((base, head))
    if len(base.blocks) * FLOAT_BYTES != len(base_samples) or len(head.blocks) * FLOAT_BYTES != len(
        head_samples
    ):
        return base_samples, head_samples, 0
    if base.blocks == head.blocks:
        order, size = _layout(base.blocks)
        return (
            (base_samples, head_samples, size)
            if order is None
            else (_picked(base_samples, order), _picked(head_samples, order), size)
        )
    counts = Counter(base.blocks), Counter(head.blocks)
    shared = {block: count for block, count in counts[0].items() if counts[1].get(block) == count}
    base_samples, head_samples = (
        _picked(base_samples, _of_blocks(base.blocks, shared)),
        _picked(head_samples, _of_blocks(head.blocks, shared)),
    )
    sizes = {*shared.values()}
    return base_samples, head_samples, sizes.pop() if len(sizes) == 1 else 0


def _of_blocks(blocks: tuple[int, ...], shared: Container[int]) -> list[int]:
    """Return the indices of the samples whose blocks are shared, in the order of the blocks."""
    return [
        place
        for _, place in sorted(
            (block, place) for place, block in enumerate(blocks) if block in shared
        )
    ]


def _picked(values: Values, places: Sequence[int]) -> Values:
    return np.frombuffer(values)[np.array(places, dtype=np.intp)].tobytes()


@lru_cache(maxsize=256)
def _layout(blocks: tuple[int, ...]) -> tuple[tuple[int, ...] | None, int]:
    """Return the order that sorts samples by block, and the block size.

    The order is `None` if they are sorted, the size 0 if blocks differ in size.
    """
    sizes = {*Counter(blocks).values()}
    order = tuple(sorted(range(len(blocks)), key=blocks.__getitem__))
    return None if order == tuple(range(len(blocks))) else order, (
        sizes.pop() if len(sizes) == 1 else 0
    )


class TimeAnswer(NamedTuple):
    """Decision on one time; fields are `None` if unknown.

    `resolvable`, `threshold` and `margin` are relative.

    `needed` is how many launches in all would tell a change of `margin`; `None` if no number would.
    `scatter` is how many times as widely as base's the launches of head scatter, where that is
    certain.
    """

    verdict: Verdict
    speedup: float | None
    interval: Interval | None
    launches: int
    resolvable: float | None
    needed: float | None
    threshold: float
    margin: float
    calibrated: bool
    possible: bool = False
    scatter: float | None = None


def reason(answer: TimeAnswer, unit: Unit, better: Better, cold_launches: int) -> str:
    """Explain this verdict in one line.

    Without a history, it takes `cold_launches` to decide.
    """
    if answer.speedup is None:
        return "base and head have no launch in common: measure again"
    launches = count_of(answer.launches, "launch")
    if answer.interval is None:
        return (
            f"{change(answer.speedup, unit, better)} in {launches};"
            f" {_doubt(answer)}{_too_few(cold_launches)}"
        )
    figures = f"speedup {answer.speedup:.3f}, {interval_text(answer.interval)}, {launches}"
    return f"{change(answer.speedup, unit, better)} ({figures}){_conclusion(answer)}"


def _conclusion(answer: TimeAnswer) -> str:
    if answer.scatter is not None:
        return (
            f"; head's launches scatter {answer.scatter:.3g} times as widely as base's: see what"
            " differs between them"
        )
    match answer.verdict:
        case Verdict.REGRESSED | Verdict.IMPROVED:
            return f", beyond the threshold of {percent(answer.threshold)}"
        case Verdict.UNCHANGED:
            return f", certainly less than {percent(answer.margin)}"
        case _:
            return f"; {_doubt(answer)}{_what_would_tell(answer)}"


def _would_decide(answer: TimeAnswer, cold_launches: int) -> float | None:
    """Return the total number of launches that would decide an open time.

    `None` if it is decided, or if no number would.
    """
    if answer.verdict is not Verdict.INCONCLUSIVE:
        return None
    if answer.interval is None:
        return float(cold_launches) if answer.launches < cold_launches else None
    return (
        answer.needed
        if answer.needed is not None and answer.launches < answer.needed <= MOST_LAUNCHES
        else None
    )


def _doubt(answer: TimeAnswer) -> str:
    return doubt(suspected=answer.verdict is Verdict.SUSPECTED, possible=answer.possible)


def _too_few(cold_launches: int) -> str:
    """Describe the launches that a verdict takes without a history.

    The first of them only show how noisy the machine is.
    """
    return (
        f"without a calibration of this machine a verdict takes {count_of(cold_launches, 'launch')}"
    )


def _what_would_tell(answer: TimeAnswer) -> str:
    if answer.resolvable is None:
        return "its noise is unknown: measure more launches"
    resolution = f"only changes above {percent(answer.resolvable)} would show"
    twice = math.isclose(answer.margin, 2 * answer.threshold)
    margin = f"{percent(answer.margin)}{' (twice the threshold)' if twice else ''}"
    if answer.needed is None:
        return f"{resolution}; no number of launches would show {margin}"
    if answer.needed > MOST_LAUNCHES:
        return f"{resolution}; {margin} would take more than {MOST_LAUNCHES} launches"
    if answer.needed > answer.launches:
        return f"{resolution}; {margin} would take about {answer.needed:.0f} launches"
    return (
        f"{resolution}; too close to the threshold of {percent(answer.threshold)}, or its launches"
        " disagree"
    )


_COARSE = 1e-4
"""A finer grid than this (0.01 %) is ignored."""

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
class JudgedTurns:
    """Lines of a paired run with their figures and noise; all arrays are in the order of lines."""

    lines: Sequence[Line]
    """Metrics that both sides have."""
    figures: Figures
    """Log-ratios and spreads of their launches: [lines, launches]."""
    learned: Learned
    """Noise of each line from past runs, or the prior of a compilation without any."""
    rule: SequentialRule
    """Rule with the threshold of each line."""
    gating: Truths
    """Lines that can fail the run."""
    measured: Truths
    """Lines whose noise was learned from past runs of this machine."""
    source: Counts
    """`NoiseSource` of each line."""

    def ruling(self) -> Ruling:
        """Return the rule's decisions on all lines."""
        return sequential.replay(
            self.figures.d, self.figures.within, self.learned, self.rule, slots=self.figures.slots
        )


def turns_of(
    lines: Sequence[Line],
    learned: Learned,
    rule: SequentialRule,
    slots: SlotsOfCases = MappingProxyType({}),
) -> JudgedTurns:
    """Prepare lines that have both sides, for `rule` with the threshold of each.

    The threshold is the smallest change that is flagged. A change of twice the threshold must not
    be called unchanged. `slots` come from `devices.slots_of`.
    """
    gating = np.array([not line.detail for line in lines], dtype=np.bool_)
    thresholds = np.array([max(line.threshold, 0.0) for line in lines], dtype=np.float64)
    adapted_rule = replace(
        rule,
        tau=np.log1p(thresholds),
        margin=np.log1p(margins(thresholds)),
        gating=max(1, int(gating.sum())),
    )
    places = [slots.get(line.case, {}) for line in lines] if slots else None
    launch_figures = figures(
        [(line.base[0], line.head[0]) for line in lines], most=rule.looks[-1], slots=places
    )
    compiled = np.array(
        [line.metric.name.startswith(COMPILATION) for line in lines], dtype=np.bool_
    )
    source = np.where(
        compiled,
        NoiseSource.COMPILATION,
        np.where(launch_figures.in_turns, NoiseSource.TURNS, NoiseSource.RUNS),
    ).astype(np.intp)
    measured = np.isfinite(learned.spread) & (learned.freedom >= LEAST_HISTORY)
    history = _with_grid(_with_prior(learned, compiled & ~measured), lines)
    return JudgedTurns(
        lines=lines,
        figures=launch_figures,
        learned=history,
        rule=adapted_rule,
        gating=gating,
        measured=measured,
        source=source,
    )


def _with_prior(learned: Learned, which: Truths) -> Learned:
    """Give the lines of `which` the prior of compilations.

    A compilation may take minutes, so no launches are spent on measuring its noise first.
    """
    prior = PRIORS[NoiseSource.COMPILATION]
    return replace(
        learned,
        spread=np.where(which, prior.spread, learned.spread),
        freedom=np.where(which, prior.freedom, learned.freedom),
    )


def _with_grid(learned: Learned, lines: Sequence[Line]) -> Learned:
    """Add the grid of a clock or of printed figures, a lower bound of the error for any launches.

    A device's clock counts in half microseconds at most, and its times are not printed figures.
    """
    steps = [
        0.0 if line.head[0].lane is Lane.DEVICE else noise.grid_step(*_values_of_sides(line))
        for line in lines
    ]
    coarse = np.array([step if step > _COARSE else 0.0 for step in steps], dtype=np.float64)
    return replace(learned, grid=coarse) if coarse.any() else learned


def _values_of_sides(line: Line) -> list[Floats]:
    return [
        np.frombuffer(b"".join(samples_of(side.launches))) for side in (line.base[0], line.head[0])
    ]


def margins(thresholds: Floats) -> Floats:
    """Return the smallest relative change that must not be called unchanged, for thresholds."""
    return np.maximum(2 * thresholds, LEAST_MARGIN)


def judge_turns(turns: JudgedTurns, *, calibration: str) -> JudgedTimes:
    """Judge all lines together.

    `calibration` describes the source of the noise.
    """
    ruling = turns.ruling()
    pairing = Pairing(
        calibration=calibration,
        gating=int(turns.gating.sum()),
        launches=int(ruling.launches.max(initial=0)),
        inflation=(
            float(np.nanmax(ruling.inflation)) if np.isfinite(ruling.inflation).any() else None
        ),
        mean=_mean(turns),
        devices=(
            1
            if turns.figures.slots is None
            else max(1, len({*turns.figures.slots.ravel().tolist()} - {-1}))
        ),
    )
    return JudgedTimes(outcomes=_outcomes(turns, ruling), pairing=pairing, changes=_changes(turns))


def _outcomes(turns: JudgedTurns, ruling: Ruling) -> Iterator[MetricVerdict]:
    thresholds = np.array([line.threshold for line in turns.lines], dtype=np.float64)
    doubts = [Suspicion(doubt) for doubt in suspicions_of(turns, ruling).tolist()]
    scatters = _scatters(turns, ruling)
    verdicts = [
        Verdict.INCONCLUSIVE if code == Code.UNCHANGED and scatter is not None else _VERDICTS[code]
        for code, scatter in zip(ruling.code.tolist(), scatters, strict=True)
    ]
    answers = map(
        TimeAnswer,
        [
            Verdict.SUSPECTED if doubt is Suspicion.SUSPECTED else word
            for word, doubt in zip(verdicts, doubts, strict=True)
        ],
        _speedups(ruling.mean),
        _intervals(ruling.low, ruling.high, turns.rule.level),
        ruling.launches.tolist(),
        _shares(ruling.resolvable),
        _nan_to_none(ruling.needed),
        [line.threshold for line in turns.lines],
        _same(margins(thresholds).tolist()),
        turns.measured.tolist(),
        [
            doubt is Suspicion.POSSIBLE or (scatter is not None and word is Verdict.INCONCLUSIVE)
            for doubt, scatter, word in zip(doubts, scatters, verdicts, strict=True)
        ],
        [
            None if doubt is Suspicion.SUSPECTED or word is not Verdict.INCONCLUSIVE else scatter
            for doubt, scatter, word in zip(doubts, scatters, verdicts, strict=True)
        ],
    )
    noise = _shares(np.where(turns.measured, turns.learned.spread, np.nan))
    q = _nan_to_none(aggregates.false_discovery(aggregates.p_values(ruling)))
    estimates = _estimates(turns, ruling)
    for line, answer, spread, discovery, sides in zip(
        turns.lines, answers, noise, q, estimates, strict=True
    ):
        yield MetricVerdict(
            verdict=answer.verdict,
            reason=reason(answer, line.metric.unit, line.metric.better, turns.rule.cold_launches),
            speedup=answer.speedup,
            interval=answer.interval,
            calibrated=answer.calibrated,
            noise=spread,
            resolvable=answer.resolvable,
            q=discovery,
            possible=answer.possible,
            needed=_would_decide(answer, turns.rule.cold_launches),
            estimates=sides,
        )


def _same(figures: list[float]) -> list[float]:
    """Return the figures, equal ones as one object."""
    distinct: dict[float, float] = {}
    return [distinct.setdefault(figure, figure) for figure in figures]


def _scatters(turns: JudgedTurns, ruling: Ruling) -> list[float | None]:
    """Return how many times as widely head's launches scatter as base's; `None` if not certain."""
    worse_is_lower = np.array(
        [line.metric.better is Better.HIGHER for line in turns.lines], dtype=np.bool_
    )
    judged = np.cumsum(np.isfinite(turns.figures.d), axis=-1) <= ruling.launches[:, None]
    base = np.where(judged, turns.figures.base, np.nan)
    head = base + np.where(worse_is_lower[:, None], -turns.figures.d, turns.figures.d)
    return _nan_to_none(wider_scatter(base, head, turns.gating))


def _estimates(turns: JudgedTurns, ruling: Ruling) -> Iterator[tuple[float, float] | None]:
    """Yield base's and head's figure over the judged launches; their ratio is the speedup."""
    judged = np.cumsum(np.isfinite(turns.figures.d), axis=-1) <= ruling.launches[:, None]
    used = judged & np.isfinite(turns.figures.d)
    count = used.sum(axis=-1)
    base = np.divide(
        np.sum(turns.figures.base, axis=-1, where=used),
        count,
        out=np.full(count.shape, np.nan),
        where=count > 0,
    )
    worse_is_lower = np.array(
        [line.metric.better is Better.HIGHER for line in turns.lines], dtype=np.bool_
    )
    head = base + np.where(worse_is_lower, -ruling.mean, ruling.mean)
    for base_figure, head_figure in zip(
        _nan_to_none(np.exp(base)), _nan_to_none(np.exp(head)), strict=True
    ):
        yield None if base_figure is None or head_figure is None else (base_figure, head_figure)


def suspicions_of(turns: JudgedTurns, ruling: Ruling) -> Counts:
    """Return a `Suspicion` for each line, of its undecided change."""
    cases = Undecided(
        d=turns.figures.d,
        within=turns.figures.within,
        tau=np.broadcast_to(np.asarray(turns.rule.tau, dtype=np.float64), turns.gating.shape),
        source=turns.source,
        gating=turns.gating,
        excursions=turns.learned.excursions,
    )
    return suspicions(cases, ruling)


def _mean(turns: JudgedTurns) -> MeanSpeedup | None:
    """Return the geometric mean over the gating times that were taken in turns."""
    chosen = turns.gating & turns.figures.in_turns
    if not chosen.any():
        return None
    mean = aggregates.geometric_mean(
        turns.figures.d[chosen], turns.learned.only(chosen), level=turns.rule.level
    )
    if not math.isfinite(mean.value):
        return None
    (interval,) = _intervals(np.array([mean.low]), np.array([mean.high]), turns.rule.level)
    return MeanSpeedup(
        speedup=math.exp(-mean.value), interval=interval, metrics=mean.cases, launches=mean.launches
    )


def _changes(turns: JudgedTurns) -> dict[str, dict[SeriesName, SpeedupChange]]:
    """Return whether head changed each arm's speedup over its reference.

    It is the contrast of both changes.

    Changes that an arm and its reference share cancel. The difference itself has no history.
    """
    place = {
        line.key: row for row, line in enumerate(turns.lines) if line.metric.arm == line.reference
    }
    candidates = (
        (row, line)
        for row, line in enumerate(turns.lines)
        if line.metric.arm != line.reference and turns.gating[row]
    )
    matched = (
        (row, place.get((line.case, line.metric.name, line.reference))) for row, line in candidates
    )
    pairs = [(row, reference) for row, reference in matched if reference is not None]
    if not pairs:
        return {}
    arms, references = np.array(pairs, dtype=np.intp).T
    d = turns.figures.d[arms] - turns.figures.d[references]
    nothing = np.full(d.shape, np.nan)
    rule = replace(
        turns.rule,
        gating=None,
        tau=_rows(turns.rule.tau, arms),
        margin=_rows(turns.rule.margin, arms),
    )
    slots = None if turns.figures.slots is None else turns.figures.slots[arms]
    ruling = sequential.replay(
        d, nothing, _of_contrasts(turns.learned, arms, references), rule, slots=slots
    )
    changes: dict[str, dict[SeriesName, SpeedupChange]] = {}
    columns = (
        arms.tolist(),
        ruling.code.tolist(),
        _speedups(ruling.mean),
        _intervals(ruling.low, ruling.high, rule.level),
    )
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
    """Estimate the noise of differences of two lines: their spreads add up.

    They are treated as independent, which is the safe side.

    The degrees of freedom are the fewer of the two.
    """
    both = learned.only(arms), learned.only(references)
    return Learned(
        spread=np.hypot(both[0].spread, both[1].spread),
        freedom=np.minimum(both[0].freedom, both[1].freedom),
        within=np.full(len(arms), np.nan),
        bound=np.hypot(both[0].bound, both[1].bound),
        grid=np.add(both[0].grid, both[1].grid),
        excursions=np.minimum(2 * np.asarray(learned.excursions), 1.0),
    )


def _speedups(log_ratios: Floats) -> list[float | None]:
    """Return base over head from logarithms of head over base; `None` for NaN."""
    return _nan_to_none(np.exp(np.clip(-log_ratios, -_LONGEST_LOG, _LONGEST_LOG)))


def _shares(log_ratios: Floats) -> list[float | None]:
    """Return relative changes from logarithms; `None` for NaN."""
    return _nan_to_none(np.expm1(np.minimum(log_ratios, _LONGEST_LOG)))


def _intervals(low: Floats, high: Floats, level: float) -> list[Interval | None]:
    """Convert intervals of log-ratios to intervals of speedups; `None` for NaN."""
    ends = zip(_speedups(high), _speedups(low), strict=True)
    return [
        None if low is None or high is None else Interval(low=low, high=high, level=level)
        for low, high in ends
    ]


def _nan_to_none(figures: Floats) -> list[float | None]:
    """Replace figures that are not finite by `None`."""
    finite = np.isfinite(figures)
    if finite.all():
        return list(figures.tolist())
    return [
        figure if there else None
        for figure, there in zip(figures.tolist(), finite.tolist(), strict=True)
    ]
