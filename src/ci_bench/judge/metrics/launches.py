"""From two metrics of a paired run to figures per launch: the log-ratio of the sides, and the spread inside the launch.

Owns which samples stand against which. The estimators are in `noise`; what the figures mean is decided in `sequential`.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import numpy as np

from ci_bench.judge.statistics import noise
from ci_bench.judge.statistics.noise import Floats
from ci_bench.judge.statistics.ruling import Truths
from ci_bench.records.case import Better, Launch, Metric

_MOST_AT_ONCE = 500_000
"""Samples of a side in one go: memory stays bounded however many metrics there are."""

Values = tuple[float, ...]


@dataclass(slots=True)
class _Group:
    """Launches of one shape that both sides have: row and number of each, and its samples in the order of their blocks."""

    rows: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    base: list[Values] = field(default_factory=list)
    head: list[Values] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What the launches of each metric showed, both [metrics, launches]; NaN where a side has no such launch.

    `d` is the log-ratio of head over base, turned so that above zero head is worse; `within` is NaN for a single value.
    """

    d: Floats
    within: Floats

    @property
    def in_turns(self) -> Truths:
        """Which metrics were sampled in turns, rather than with one value per launch."""
        return np.asarray(np.isfinite(self.within).any(axis=-1), dtype=np.bool_)


def figures(pairs: Sequence[tuple[Metric, Metric]], *, most: int) -> Figures:
    """The figures of base and head metrics with positive samples, for `most` launches at most.

    Launches are matched by number, samples by block; what has no counterpart is left out. A launch's column is its number, so
    that one which failed everywhere leaves a hole; numbers that don't fit are replaced by their ranks.
    """
    groups: dict[tuple[int, int, int], _Group] = defaultdict(_Group)
    for row, (base, head) in enumerate(pairs):
        others = {launch.launch: launch for launch in head.launches}
        for launch in base.launches:
            if (other := others.get(launch.launch)) is not None:
                one, two, per_block = _matched(launch, other)
                if one and two:
                    group = groups[len(one), len(two), per_block]
                    group.rows.append(row)
                    group.numbers.append(launch.launch)
                    group.base.append(one)
                    group.head.append(two)
    columns = _columns({number for group in groups.values() for number in group.numbers}, most)
    d, within = (np.full((len(pairs), most), np.nan) for _ in range(2))
    for (base_size, head_size, per_block), group in groups.items():
        step = max(1, _MOST_AT_ONCE // max(base_size, head_size))
        for part in (slice(at, at + step) for at in range(0, len(group.rows), step)):
            rows, place = np.array(group.rows[part]), np.array([columns[number] for number in group.numbers[part]])
            kept = place < most
            ratio, spread = _ratio_and_spread(group.base[part], group.head[part], per_block)
            d[rows[kept], place[kept]], within[rows[kept], place[kept]] = ratio[kept], spread[kept]
    worse_is_lower = np.array([head.better is Better.HIGHER for _, head in pairs], dtype=np.bool_)
    d[worse_is_lower] *= -1
    return Figures(d=d, within=within)


def _columns(numbers: set[int], most: int) -> dict[int, int]:
    fitting = all(0 <= number < most for number in numbers)
    return {number: number if fitting else rank for rank, number in enumerate(sorted(numbers))}


def _ratio_and_spread(base: list[Values], head: list[Values], per_block: int) -> tuple[Floats, Floats]:
    sides = _logs(base), _logs(head)
    unknown = np.full(len(base), np.nan)
    return noise.launch_ratio(*sides), noise.within_spread(*sides, per_block=per_block) if per_block else unknown


def _logs(rows: list[Values]) -> Floats:
    return np.log(np.fromiter(chain.from_iterable(rows), dtype=np.float64)).reshape(len(rows), -1)


def _matched(base: Launch, head: Launch) -> tuple[Values, Values, int]:
    """The samples of the blocks that both sides have, in the order of the blocks, and how many of a side make a block.

    Without blocks, all samples, and 0; 0 also where blocks are of different sizes, since then none stands for the others.
    """
    if len(base.blocks) != len(base.values) or len(head.blocks) != len(head.values):
        return base.values, head.values, 0
    if base.blocks == head.blocks:
        order, size = _layout(base.blocks)
        if order is None:
            return base.values, head.values, size
        return tuple(base.values[i] for i in order), tuple(head.values[i] for i in order), size
    counts = Counter(base.blocks), Counter(head.blocks)
    shared = {block: count for block, count in counts[0].items() if counts[1].get(block) == count}
    one, two = (_of_blocks(side, shared) for side in (base, head))
    sizes = {*shared.values()}
    return one, two, sizes.pop() if len(sizes) == 1 else 0


def _of_blocks(launch: Launch, shared: Container[int]) -> Values:
    kept = sorted(((block, i) for i, block in enumerate(launch.blocks) if block in shared))
    return tuple(launch.values[i] for _, i in kept)


@lru_cache(maxsize=256)
def _layout(blocks: tuple[int, ...]) -> tuple[tuple[int, ...] | None, int]:
    """How to sort samples by block (`None` where they are), and the size of the blocks (0 where they differ)."""
    sizes = {*Counter(blocks).values()}
    order = tuple(sorted(range(len(blocks)), key=blocks.__getitem__))
    return None if order == tuple(range(len(blocks))) else order, sizes.pop() if len(sizes) == 1 else 0
