"""What a long series says: its level now, the noise around it, its steps, and whether one for the worse is still open. Pure.

Owns which way is worse, what counts as recovered, and how recent a step has to be to matter. The scan is in `changes`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ci_bench.judge.statistics.changes import find_steps
from ci_bench.judge.statistics.noise import Floats
from ci_bench.records.case import Better

RECENT = 100
"""Runs after which a step that nobody mended is taken for the new normal."""
_NORMAL_MAD = 1.4826
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A change of level between two neighbouring runs: `place` is the first with the new level.

    `before` and `after` are the levels, in the metric's unit. `worse` is the relative change, above zero for the worse; infinite
    where the level was zero. `score` says how far it stands out; `drift` that it came slowly, so that its place is a rough one.
    """

    place: int
    before: float
    after: float
    worse: float
    score: float
    drift: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """A series looked at: its moves in order, the level of each stretch between them, and the relative noise of one run.

    `alarm` is the move for the worse that is still open: the level has not come back, and it is recent.
    """

    moves: tuple[Move, ...]
    levels: tuple[float, ...]
    noise: float
    alarm: Move | None


def look(values: Sequence[float], *, better: Better, least: float, recent: int = RECENT) -> Trend:
    """Find the moves of a series of finite values, in the order of the runs.

    `least` is the smallest relative change that matters, `recent` how many runs back an alarm reaches. Positive values are
    compared by ratio; where one is zero or less, by difference.
    """
    table = np.asarray(values, dtype=np.float64)
    ratios = bool(table.size) and bool(np.all(table > 0))
    scale = np.log(table) if ratios else table
    smallest = math.log1p(least) * (1 - _TINY) if ratios else 0.0
    steps = find_steps(scale, least=smallest)
    edges = [0, *(step.place for step in steps), len(table)]
    levels = [float(np.median(table[start:stop])) for start, stop in pairwise(edges) if stop > start]
    moves = [
        Move(
            place=step.place,
            before=levels[index],
            after=levels[index + 1],
            worse=worsening(levels[index], levels[index + 1], better),
            score=step.score,
            drift=step.drift,
        )
        for index, step in enumerate(steps)
    ]
    kept = tuple(move for move in moves if abs(move.worse) >= least and move.worse)
    return Trend(
        moves=kept,
        levels=tuple(levels),
        noise=_noise(table, edges),
        alarm=_open(kept, levels, len(table), better=better, least=least, recent=recent),
    )


def worsening(before: float, after: float, better: Better) -> float:
    """The relative change from one level to another, above zero for the worse."""
    if before == after:
        return 0.0
    sign = 1.0 if better is Better.LOWER else -1.0
    return sign * ((after - before) / abs(before) if before else math.copysign(math.inf, after))


def _open(
    moves: Sequence[Move], levels: Sequence[float], points: int, *, better: Better, least: float, recent: int
) -> Move | None:
    """The first of the recent moves for the worse whose old level has not come back."""
    for move in moves:
        lasting = worsening(move.before, levels[-1], better) >= max(least, _TINY)
        if move.worse > 0 and lasting and move.place >= points - recent:
            return move
    return None


def _noise(table: Floats, edges: Sequence[int]) -> float:
    """The relative standard deviation of one run around the level of its stretch, from the median absolute deviation."""
    parts = [table[start:stop] for start, stop in pairwise(edges) if stop > start]
    if not parts:
        return 0.0
    apart = np.concatenate([np.abs(part - np.median(part)) / (abs(float(np.median(part))) or 1.0) for part in parts])
    return float(_NORMAL_MAD * np.median(apart))
