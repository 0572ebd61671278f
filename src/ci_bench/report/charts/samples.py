"""Samples of a case, by side and arm, in the order taken, with their place in the run."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ci_bench.records.comparison import ArmSpeedup, CaseComparison, Interval, Pair
from ci_bench.records.metrics import COMPILATION, STEP_TIME
from ci_bench.records.results import CaseResult, Launch, Metric, SideName, samples_of
from ci_bench.records.units import TIMES
from ci_bench.report.charts.values import (
    Material,
    Places,
    SampleChart,
    SampleSeries,
    axis,
    decimals,
    short,
)
from ci_bench.report.columns import title_of

_FEWEST = 2
_MOST_DECIMALS = 15
_LARGEST = 1e280
"""Larger values are drawn as this: they would be infinite in a smaller unit, which JSON lacks."""

Floats = NDArray[np.float64]
_Value = TypeVar("_Value")
Sides = tuple[tuple[SideName, CaseResult], ...]


class _Taken(NamedTuple):
    """The samples of one metric in the order taken: where each was taken, and why it is doubtful.

    `median` is NaN without any.
    """

    places: Places
    values: Floats
    doubts: tuple[str | None, ...]
    median: float


class _FoundSamples(NamedTuple):
    """The judge's findings for a case, the first for each metric and arm, in order of the case."""

    pairs: dict[tuple[str, str], Pair]
    speedups: dict[tuple[str, str], ArmSpeedup]


def rows_of(case: str, material: Material) -> Sides:
    """Return the rows of both sides' results, base first, as far as there are documents."""
    sides = ((SideName.BASE, material.base), (SideName.HEAD, material.head))
    return tuple((side, rows[case]) for side, rows in sides if case in rows)


def sample_charts(case: CaseComparison, sides: Sides, *, most: int) -> tuple[SampleChart, ...]:
    """Return a chart for every duration and rate that some side sampled more than once.

    A series has about `most` samples.
    """
    metrics = (metric for _, row in sides for metric in row.metrics if metric.unit in TIMES)
    names = dict.fromkeys(
        metric.name for metric in metrics if sum(map(_size, metric.launches)) >= _FEWEST
    )
    judged = {pair.metric for pair in case.pairs if not pair.detail}
    ordered = sorted(
        names,
        key=lambda name: (name != STEP_TIME.name, name.startswith(COMPILATION), name not in judged),
    )
    findings = _index_findings(case)
    return tuple(
        _chart(findings, name, sides, most) for name in ordered if not name.startswith(COMPILATION)
    )


def _index_findings(case: CaseComparison) -> _FoundSamples:
    findings = _FoundSamples({}, {})
    for pair in case.pairs:
        findings.pairs.setdefault((pair.metric, pair.arm), pair)
    for speedup in case.speedups:
        findings.speedups.setdefault((speedup.metric, speedup.arm), speedup)
    return findings


def _size(launch: Launch) -> int:
    return len(launch.values)


def _chart(judged: _FoundSamples, name: str, sides: Sides, most: int) -> SampleChart:
    sources = [
        (side, row, metric) for side, row in sides for metric in row.metrics if metric.name == name
    ]
    starts = _starts(metric for _, _, metric in sources)
    every = [_collect_samples(metric, starts, _doubts(row)) for _, row, metric in sources]
    size, unit = axis((samples.median for samples in every), sources[0][2].unit)
    arms = list(dict.fromkeys(metric.arm for _, _, metric in sources))
    both = SideName.BASE in {side for side, _ in sides}
    series, shared = [], dict[Places, int]()
    for (side, _, metric), samples in zip(sources, every, strict=True):
        colour = (
            (0 if side is SideName.BASE else 1) + 2 * arms.index(metric.arm)
            if both
            else arms.index(metric.arm)
        )
        if len(samples.values):
            label = f"{side} · {metric.arm}" if both else metric.arm
            series.append(_series(label, colour, samples, shared, size=size, most=most))
    by_arm = sorted(
        series, key=lambda line: [line.label.endswith(arm) for arm in arms], reverse=True
    )
    better = sources[0][2].better
    return SampleChart(
        metric=name,
        title=next(
            (title_of(pair) for (metric, _), pair in judged.pairs.items() if metric == name), name
        ),
        unit=unit,
        better=better,
        series=_with_intervals(by_arm, judged, name, better),
        places=tuple(shared),
        starts=tuple(sorted(starts.values())[1:]),
    )


def _starts(metrics: Iterable[Metric]) -> dict[int, float]:
    """Return the start of each launch: after the longest one before it.

    Lengths are counted in blocks, or in samples without blocks.
    """
    longest: dict[int, int] = {}
    for metric in metrics:
        for launch in metric.launches:
            length = max(launch.blocks) + 1 if launch.blocks else len(launch.values)
            longest[launch.launch] = max(longest.get(launch.launch, 0), length)
    order = sorted(longest)
    starts = dict.fromkeys(order[:1], 0.0)
    for before, after in pairwise(order):
        starts[after] = starts[before] + longest[before]
    return starts


def _collect_samples(
    metric: Metric, starts: Mapping[int, float], doubts: Mapping[tuple[int, int | None], str]
) -> _Taken:
    standing = [
        (launch.launch, starts[launch.launch], launch.blocks or tuple(range(len(launch.values))))
        for launch in metric.launches
    ]
    places = _places(tuple(standing))
    values = np.frombuffer(b"".join(samples_of(metric.launches)))
    numbers = values.tolist()
    if max(map(abs, numbers), default=0.0) > _LARGEST:
        values = np.clip(values, -_LARGEST, _LARGEST)
        numbers = values.tolist()
    middle = median(numbers) if numbers else math.nan
    if not doubts:
        return _Taken(places, values, (None,) * len(values), middle)
    doubted = [
        doubts.get((launch.launch, block))
        for launch in metric.launches
        for block in launch.blocks or [None] * len(launch.values)
    ]
    return _Taken(places, values, tuple(doubted), middle)


@lru_cache(maxsize=1000)
def _places(segments: tuple[tuple[int, float, tuple[int, ...]], ...]) -> Places:
    """Return the places of launches' samples, and their launch.

    They follow from the number, the start and the blocks of each launch.

    Samples of one block lie within it, one after the other. Most metrics of a run were taken in the
    same blocks.
    """
    at, launches = [], []
    for number, start, blocks in segments:
        sizes, positions = Counter(blocks), Counter[int]()
        for block in blocks:
            at.append(round(start + block + (positions[block] + 0.5) / sizes[block], 3))
            launches.append(number)
            positions[block] += 1
    return Places(tuple(at), tuple(launches))


def _doubts(row: CaseResult) -> dict[tuple[int, int | None], str]:
    return {(block.launch, block.block): block.doubt for block in row.blocks if block.doubt}


def _series(
    label: str, colour: int, samples: _Taken, shared: dict[Places, int], *, size: float, most: int
) -> SampleSeries:
    """Return the values of one line, and add their places to `shared`.

    Of very many, a part is drawn, and every doubtful one.
    """
    count = len(samples.values)
    stride = -(-count // most)
    drawn: Sequence[int] = range(count)
    places, doubts = samples.places, dict[int, str]()
    if stride > 1 or any(samples.doubts):
        drawn = [
            place for place, doubt in enumerate(samples.doubts) if doubt or place % stride == 0
        ][: 2 * most]
        places = Places(_drawn(places.at, drawn), _drawn(places.launches, drawn))
        doubts = {
            index: doubt for index, place in enumerate(drawn) if (doubt := samples.doubts[place])
        }
    middle = samples.median / size
    precision = decimals(middle, digits=5)
    return SampleSeries(
        label=label,
        colour=colour,
        places=shared.setdefault(places, len(shared)),
        values=_rounded(
            (samples.values if len(drawn) == count else samples.values[list(drawn)]) / size,
            precision,
        ),
        median=short(middle),
        doubtful=tuple(doubts),
        doubts=tuple(doubts.values()),
        left_out=count - len(drawn),
    )


def _rounded(values: Floats, precision: int) -> tuple[float, ...]:
    """Round values to `precision` decimals.

    numpy multiplies to round, which overflows a float with very many decimals.
    """
    if abs(precision) > _MOST_DECIMALS:
        return tuple([round(value, precision) for value in values.tolist()])
    return tuple(values.round(precision).tolist())


def _drawn(column: tuple[_Value, ...], places: Sequence[int]) -> tuple[_Value, ...]:
    return column if len(places) == len(column) else tuple([column[place] for place in places])


def _with_intervals(
    drawn: Sequence[SampleSeries], judged: _FoundSamples, metric: str, better: str
) -> tuple[SampleSeries, ...]:
    """Return the series with the judged interval, as a range in which the median lies.

    It is that of head around base's median, else of an arm around the reference's.
    """
    by_label = {line.label: line for line in drawn}
    series = []
    for line in drawn:
        arm = line.label.removeprefix("head · ")
        pair, speedup = judged.pairs.get((metric, arm)), judged.speedups.get((metric, arm))
        if line.label != arm and pair and (base := by_label.get(f"base · {arm}")):
            bounds = _range(base.median, pair.interval, better)
        elif speedup and (reference := by_label.get(speedup.reference)):
            bounds = _range(reference.median, speedup.interval, better)
        else:
            bounds = None
        series.append(line if bounds is None else replace(line, interval=bounds))
    return tuple(series)


def _range(median_: float, interval: Interval | None, better: str) -> tuple[float, float] | None:
    if interval is None or interval.low <= 0:
        return None
    low, high = (
        (interval.low, interval.high)
        if better == "higher"
        else (1 / interval.high, 1 / interval.low)
    )
    bounds = short(median_ * low), short(median_ * high)
    return bounds if all(map(math.isfinite, bounds)) else None
