"""Analysis of a long series: its level now, noise, steps and drifts, and open regressions.

Owns which way is worse, what counts as recovered, how recent a step has to be to matter, and where
levels moved: a winsorised scan, on many series together. Single wild values are pulled in towards a
running median; then, for each place k of a stretch of n values, the difference of the means left
and right of it is compared with their spread, ``T_k = |left - right| / (s sqrt(1/k + 1/(n - k)))``.
Values that follow each other alike carry less than independent ones, so T is multiplied by
``sqrt((1 - rho) / (1 + rho))``, rho being the lag-1 autocorrelation around the two levels. The
largest T counts as a step beyond what white noise of that length reaches with probability `LEVEL`,
found by simulation (`benchmarks/history_quality.py --thresholds`). Steps that are a slope, by
`drifts`, become one drift. Pure numpy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ci_bench.judge.times.drifts import EVIDENCE, evidence_for, fit_ramp
from ci_bench.judge.times.noise import Floats, nan_median
from ci_bench.records.results import Better

Places = NDArray[np.intp]

EDGE = 3
"""Least points on each side of a step: an alarm waits for the third run after the change."""
WINDOW, PULL = 15, 2.5
"""Width of the running median, and the largest deviation from it in robust standard deviations."""
MOST_RHO = 0.7
LEAST = 2 * EDGE + 2
"""Points of a stretch that is looked at; fewer say nothing about their own spread."""

_NORMAL_MAD = 1.4826
_BIAS = 5.0
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Scans:
    """The strongest step of each series: how strong (`score`), and before which index (`place`).

    Both are [series].
    """

    score: Floats
    place: Places


def winsorised(values: Floats) -> Floats:
    """Limit the values of each row [series, points] to `PULL` from their running median.

    `PULL` is in robust standard deviations.
    Towards either end the window reaches two values further inwards than outwards: three values of
    a new level are followed, a single wild one is not.
    """
    half, places = WINDOW // 2, np.arange(values.shape[1])[:, None]
    back, on = np.minimum(places, half), np.minimum(places[::-1], half)
    away = np.arange(-half, half + 1)
    visible = (away >= -np.minimum(back, on + 2)) & (away <= np.minimum(on, back + 2))
    windows = sliding_window_view(np.pad(values, ((0, 0), (half, half))), WINDOW, axis=1)
    middle = nan_median(np.where(visible, windows, np.nan), axis=-1)
    deviations = values - middle
    reach = PULL * _NORMAL_MAD * np.median(np.abs(deviations), axis=1, keepdims=True)
    return np.asarray(
        middle + np.where(reach > 0, np.clip(deviations, -reach, reach), deviations),
        dtype=np.float64,
    )


def scan(values: Floats) -> Scans:
    """Return the strongest step in each row [series, points].

    Rows hold `LEAST` or more finite values, already winsorised.
    """
    rows, points = values.shape
    centred = values - values.mean(axis=1, keepdims=True)
    points_before = np.arange(EDGE, points - EDGE + 1, dtype=np.float64)
    points_after = points - points_before
    sums = np.cumsum(centred, axis=1)[:, EDGE - 1 : points - EDGE]
    total = np.sum(centred**2, axis=1, keepdims=True)
    # With a mean of zero the right sum is minus the left one, and the squares around both levels
    # are what the step leaves.
    rounding = points * (_ROUNDING * np.abs(values).max(axis=1, keepdims=True)) ** 2
    gain = np.where(total > rounding, sums**2 * (1 / points_before + 1 / points_after), 0.0)
    rest = np.maximum(total - gain, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        square = np.where(gain > 0, gain / (rest / (points - 2)), 0.0)
    best = np.argmax(square, axis=1)
    every, place = np.arange(rows), best + EDGE
    residuals = _around_levels(centred, place, sums[every, best])
    score = np.sqrt(square[every, best]) * _dependence(residuals)
    return Scans(score=np.asarray(score, dtype=np.float64), place=np.asarray(place, dtype=np.intp))


def _around_levels(centred: Floats, place: Places, sums: Floats) -> Floats:
    points = centred.shape[1]
    before = np.arange(points) < place[:, None]
    levels = np.where(before, (sums / place)[:, None], (-sums / (points - place))[:, None])
    return np.asarray(centred - levels, dtype=np.float64)


def _dependence(residuals: Floats) -> Floats:
    """Return ``sqrt((1 - rho) / (1 + rho))``, with rho within 0 and `MOST_RHO`.

    An estimate around the two levels of best fit is too low, by about ``5 (1 + rho) / points`` for
    white noise and for rho = 0.4 (by simulation); without the correction, short series that follow
    themselves alarm falsely.
    """
    points = residuals.shape[1]
    squares = np.sum(residuals**2, axis=1)
    lagged = np.sum(residuals[:, 1:] * residuals[:, :-1], axis=1)
    rho = np.divide(lagged, squares, out=np.zeros_like(squares), where=squares > 0)
    rho = np.clip(rho + _BIAS * (1 + rho) / points, 0.0, MOST_RHO)
    return np.asarray(np.sqrt((1 - rho) / (1 + rho)), dtype=np.float64)


LEVEL = 0.0002
"""False alarm rate of one scan of white noise.

Every run scans almost the same values again: at this level, one series of white noise in forty
raises an alarm at some time in two thousand runs; at 0.005, every second one does.
"""
_POINTS = (8, 9, 10, 12, 16, 20, 30, 40, 60, 100, 200, 400, 800)
_THRESHOLDS = (8.36, 8.98, 7.85, 7.27, 6.40, 6.02, 5.40, 5.12, 5.00, 4.82, 4.78, 4.72, 4.72)
"""The score that white noise exceeds with probability `LEVEL`, by number of points.

Values that follow themselves with rho = 0.4 exceed it in 0.5 % of scans at most
(``python -m benchmarks.history_quality --thresholds``). Up to 20 points counted in 1,000,000 draws,
beyond by the tail of fewer.
"""
MOST_POINTS = 800
"""Points of a scan: what is older than that tells nothing new about a level."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrendStep:
    """A change of level: its first place that is off the old level, and how strong it is.

    Of a drift, `until` is the first place of the new level, `score` the evidence that it is a slope
    and no steps, and `levels` are those at its ends, as they were fitted.
    """

    place: int
    score: float
    until: int | None = None
    levels: tuple[float, float] | None = None

    @property
    def rise(self) -> float:
        """Return the rise of a drift."""
        return self.levels[1] - self.levels[0] if self.levels else 0.0


def threshold(points: int) -> float:
    """Return the score beyond which a step among `points` points counts; infinite for too few."""
    return (
        float(np.interp(math.log(points), np.log(_POINTS), _THRESHOLDS))
        if points >= LEAST
        else math.inf
    )


def find_steps(values: Floats, *, least: float) -> tuple[TrendStep, ...]:
    """Return the steps of one series [points], in order.

    Stretches are split until no step counts, or none is as large as `least`. `values` are finite.
    Steps that only stood out next to a larger one, found later, are withdrawn.
    """
    places: set[int] = set()
    open_stretches = _overlapping(len(values))
    while open_stretches:
        start, stop = open_stretches.pop()
        step = _step(values, start, stop, least)
        if step is not None:
            places.add(step.place)
            open_stretches += [(start, step.place), (step.place, stop)]
    return _confirmed(values, sorted(places), least)


def _overlapping(points: int) -> list[tuple[int, int]]:
    """Return stretches of `MOST_POINTS` that overlap by half, the first up to the end."""
    starts = range(max(0, points - MOST_POINTS), -MOST_POINTS // 2, -MOST_POINTS // 2)
    return [(max(0, start), min(points, max(0, start) + MOST_POINTS)) for start in starts]


def _confirmed(values: Floats, places: Sequence[int], least: float) -> tuple[TrendStep, ...]:
    """Find each step again between its neighbours, and remove those that fail, the first one first.

    A step may turn out to be elsewhere. One that is where the next one is was that one.
    """
    remaining = list(places)
    while remaining:
        ends = [0, *remaining, len(values)]
        steps = [
            _step(values, ends[index], ends[index + 2], least, about=place)
            for index, place in enumerate(remaining)
        ]
        lost = next((index for index, step in enumerate(steps) if step is None), None)
        if lost is None:
            lost = next(
                (
                    index
                    for index, (step, following) in enumerate(pairwise(steps))
                    if step and following and following.place <= step.place
                ),
                None,
            )
        if lost is None:
            return tuple(step for step in steps if step is not None)
        del remaining[lost]
    return ()


def _step(
    values: Floats, start: int, stop: int, least: float, *, about: int | None = None
) -> TrendStep | None:
    """Return the strongest step of a stretch, if it counts; of a long one, only around `about`."""
    if about is not None:
        start, stop = max(start, about - MOST_POINTS // 2), min(stop, about + MOST_POINTS // 2)
    if stop - start < LEAST:
        return None
    stretch = winsorised(values[None, start:stop])
    scans = scan(stretch)
    place = start + int(scans.place[0])
    before, after = values[start:place], values[place:stop]
    if (
        not scans.score[0] > threshold(stop - start)
        or abs(float(np.median(after)) - float(np.median(before))) < least
    ):
        return None
    if not (_keeps(after, before) and _keeps(before, after)):
        return None
    return TrendStep(place=place, score=float(scans.score[0]))


def _keeps(part: Floats, other: Floats) -> bool:
    """Return whether a part of `EDGE` values is on its own side throughout.

    Otherwise it has one value less, and is too short to judge.
    """
    level, other_level = float(np.median(part)), float(np.median(other))
    return len(part) > EDGE or bool(np.all(np.abs(part - level) < np.abs(part - other_level)))


def with_drifts(
    values: Floats, steps: Sequence[TrendStep], *, least: float
) -> tuple[TrendStep, ...]:
    """Merge the steps of one series that a slope explains clearly better, and add drifts between.

    Neighbouring steps to one side are tried together, as many of them as possible first. A drift
    over most of a stretch shows no step there, since the values around two levels follow each
    other. Clearly is `drifts.EVIDENCE`.
    """
    ends = [0, *(step.place for step in steps), len(values)]
    levels = [
        float(np.median(values[start:stop])) for start, stop in pairwise(ends) if stop > start
    ]
    merged: list[TrendStep] = []
    first = 0
    while first < len(steps):
        rises = levels[first + 1] > levels[first]
        last = next(
            (
                at
                for at in range(first + 1, len(steps))
                if (levels[at + 1] > levels[at]) is not rises
            ),
            len(steps),
        )
        tried = ((_drift(values, ends[first : stop + 2]), stop) for stop in range(last, first, -1))
        drift, after = next(
            ((fitted, stop) for fitted, stop in tried if fitted is not None), (None, first + 1)
        )
        merged.append(drift or steps[first])
        first = after
        ends[first] = merged[-1].until or ends[first]
    bounds = [
        0,
        *(bound for step in merged for bound in (step.place, step.until or step.place)),
        len(values),
    ]
    between = [_drift(values, stretch) for stretch in zip(bounds[::2], bounds[1::2], strict=True)]
    more = [drift for drift in between if drift is not None and abs(drift.rise) >= least]
    return tuple(sorted([*merged, *more], key=lambda step: step.place))


def _drift(values: Floats, ends: Sequence[int]) -> TrendStep | None:
    """Return the drift that replaces the steps between `ends`, if it fits them clearly better."""
    start, stop = (
        max(ends[0], ends[1] - MOST_POINTS // 2),
        min(ends[-1], ends[-2] + MOST_POINTS // 2),
    )
    if len(ends) == 2:  # noqa: PLR2004 - no step is between them
        start, stop = max(ends[0], ends[1] - MOST_POINTS), ends[1]
    stretch = winsorised(values[None, start:stop])[0] if stop > start else values[start:stop]
    ramp = fit_ramp(stretch)
    if ramp is None:
        return None
    residuals = stretch - ramp.along(len(stretch))
    independent = len(stretch) * float(_dependence(residuals[None])[0]) ** 2
    score = evidence_for(
        ramp, stretch, [place - start for place in ends[1:-1]], independent=independent
    )
    if not score > EVIDENCE:
        return None
    return TrendStep(
        place=start + ramp.start + 1,
        score=score,
        until=start + ramp.stop,
        levels=(ramp.before, ramp.after),
    )


RECENT = 100
"""Runs after which a step that was not fixed counts as the new normal."""

_TINY = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A change of level, a step or a drift."""

    place: int
    """First run off the old level."""
    before: float
    """Old level, in the metric's unit."""
    after: float
    """New level, in the metric's unit."""
    worse: float
    """Relative change, above zero for the worse; infinite if the old level was zero."""
    score: float
    """Strength of the evidence: of `scan` for a step, of `evidence_for` for a drift."""
    until: int | None = None
    """First run with the new level of a drift; `None` for a step."""

    @property
    def end(self) -> int:
        """Return the first run with the new level."""
        return self.place if self.until is None else self.until

    @property
    def runs(self) -> int:
        """Return the number of runs that it took."""
        return self.end - self.place + 1

    @property
    def per_run(self) -> float:
        """Return the relative change of one run, with the sign of `worse`.

        It is the same factor each time, if the levels have a ratio.
        """
        ratio = self.after / self.before if self.before else 0.0
        if ratio <= 0 or not math.isfinite(ratio):
            return self.worse / self.runs
        return math.copysign(abs(ratio ** (1 / self.runs) - 1), self.worse)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """Moves of a series in order, the level of each stretch between, and the noise of one run.

    `alarm` is the move for the worse that is still open: the level has not come back, and it is
    recent.
    """

    moves: tuple[Move, ...]
    levels: tuple[float, ...]
    noise: float
    alarm: Move | None


def look(values: Sequence[float], *, better: Better, least: float, recent: int = RECENT) -> Trend:
    """Find the moves of a series of finite values, in the order of the runs.

    `least` is the smallest relative change that matters, `recent` how many runs back an alarm
    reaches. Positive values are compared by ratio; where one is zero or less, by difference.
    """
    table = np.asarray(values, dtype=np.float64)
    ratios = bool(table.size) and bool(np.all(table > 0))
    scale = np.log(table) if ratios else table
    smallest = math.log1p(least) * (1 - _TINY) if ratios else 0.0
    steps = with_drifts(scale, find_steps(scale, least=smallest), least=smallest)
    flats = _flats([(step.place, step.until) for step in steps], len(table))
    levels = _levels(table, steps, flats, ratios=ratios)
    moves = [
        Move(
            place=step.place,
            before=levels[index],
            after=levels[index + 1],
            worse=worsening(levels[index], levels[index + 1], better),
            score=step.score,
            until=step.until,
        )
        for index, step in enumerate(steps)
    ]
    significant = tuple(move for move in moves if abs(move.worse) >= least and move.worse)
    return Trend(
        moves=significant,
        levels=tuple(levels),
        noise=_noise(table, flats, moves),
        alarm=_open(significant, levels, len(table), better=better, least=least, recent=recent),
    )


def _flats(changes: Sequence[tuple[int, int | None]], points: int) -> list[tuple[int, int]]:
    """Return the stretches of one level, between the changes."""
    starts = [0, *(place if until is None else until for place, until in changes)]
    return [
        (start, stop)
        for start, stop in zip(starts, [*(place for place, _ in changes), points], strict=True)
        if stop > start
    ]


def _levels(
    table: Floats, steps: Sequence[TrendStep], flats: Sequence[tuple[int, int]], *, ratios: bool
) -> list[float]:
    """Return the median of each stretch; the fitted level if one next to a drift is too short."""
    levels = [float(np.median(table[start:stop])) for start, stop in flats]
    for index, step in enumerate(steps):
        for at, fitted in zip((index, index + 1), step.levels or (), strict=False):
            start, stop = flats[at]
            if stop - start < EDGE:
                levels[at] = math.exp(fitted) if ratios else fitted
    return levels


def worsening(before: float, after: float, better: Better) -> float:
    """Return the relative change from one level to another, above zero for the worse."""
    if before == after:
        return 0.0
    sign = 1.0 if better is Better.LOWER else -1.0
    return sign * ((after - before) / abs(before) if before else math.copysign(math.inf, after))


def _open(
    moves: Sequence[Move],
    levels: Sequence[float],
    points: int,
    *,
    better: Better,
    least: float,
    recent: int,
) -> Move | None:
    """Return the first of the recent moves for the worse whose old level has not come back."""
    for move in moves:
        lasting = worsening(move.before, levels[-1], better) >= max(least, _TINY)
        if move.worse > 0 and lasting and move.end >= points - recent:
            return move
    return None


def _noise(table: Floats, flats: Sequence[tuple[int, int]], moves: Sequence[Move]) -> float:
    """Return the relative standard deviation of one run around its level or slope, by the MAD."""
    if not flats:
        return 0.0
    expected = [np.full(stop - start, np.median(table[start:stop])) for start, stop in flats]
    slopes = [
        (
            np.linspace(move.before, move.after, move.runs + 1)[1:-1]
            if move.until is not None
            else np.empty(0)
        )
        for move in moves
    ]
    along = np.concatenate(
        [part for pair in zip(expected, [*slopes, np.empty(0)], strict=True) for part in pair]
    )
    scale = np.where(along == 0, 1.0, np.abs(along))
    return float(_NORMAL_MAD * np.median(np.abs(table - along) / scale))
