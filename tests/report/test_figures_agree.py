"""What is printed of base and head, and of the change between them, says one thing: by documents of any samples."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import judged, launches, metric, result, results

from ci_bench.records.comparison import BaselineMode, Pair
from ci_bench.records.results import Better, Lane, Launch, Unit
from ci_bench.records.units import UNITS
from ci_bench.report import words

SKEWED = st.sampled_from([1.0, 1.0, 1.0, 1.01, 1.05, 1.4, 6.0])
"""Most samples lie close together, some far above: medians, trimmed means and means of such samples
differ.
"""


@st.composite
def documents(draw):
    """Base and head with one metric: launches and samples of any number, with blocks or without."""
    unit, better = draw(
        st.sampled_from(
            [
                (Unit.SECONDS, Better.LOWER),
                (Unit.PER_SECOND, Better.HIGHER),
                (Unit.BYTES, Better.LOWER),
                (Unit.COUNT, Better.LOWER),
            ]
        )
    )
    count, size = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    scale = {Unit.SECONDS: 0.1, Unit.PER_SECOND: 300.0, Unit.BYTES: 3e9, Unit.COUNT: 40}[unit]
    sides = []
    for _ in range(2):
        level = scale * draw(st.sampled_from([1.0, 1.0, 1.02, 0.97, 1.3]))
        groups = [
            [
                level * draw(st.sampled_from([1.0, 1.01, 0.98, 1.2])) * draw(SKEWED)
                for _ in range(2 * size)
            ]
            for _ in range(count)
        ]
        series = launches(
            *(
                [round(value) for value in group] if unit is Unit.COUNT else group
                for group in groups
            )
        )
        if draw(st.booleans()):
            blocks = tuple(index // 2 for index in range(2 * size))
            series = tuple(
                Launch(launch=one.launch, values=one.values, blocks=blocks) for one in series
            )
        lane = Lane.WALL if unit in {Unit.SECONDS, Unit.PER_SECOND} else Lane.COUNTERS
        sides.append(
            results(result(metric(series, name="own", unit=unit, better=better, lane=lane)))
        )
    return sides


def numbers(text: str) -> list[float]:
    return [
        float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*\.?\d*(?:e[+-]\d+)?", text)
    ]


def disagreement(pair: Pair) -> str:
    """How what is printed of a pair contradicts itself; empty where it doesn't."""
    if pair.base is None or pair.head is None or pair.speedup is None:
        return ""
    ratio = pair.head.figure / pair.base.figure
    judged_ratio = 1 / pair.speedup if pair.better is Better.LOWER else pair.speedup
    if abs(ratio / judged_ratio - 1) > 1e-6:
        return f"{pair.base.figure} to {pair.head.figure} is no speedup of {pair.speedup}"
    if pair.interval is not None and not pair.interval.low <= pair.speedup <= pair.interval.high:
        return f"{pair.speedup} is outside of {pair.interval}"
    printed, change = words.both_sides(pair), words.change(pair)
    shown = numbers(printed)
    if len(shown) == 2 and "→" in printed and len({*re.findall(r"[A-Za-zµ/]+", printed)}) <= 1:
        facts = UNITS[pair.unit]
        grown = change.startswith("+") or change.endswith(facts.grown)
        shrunk = change.startswith("−") or change.endswith(facts.shrunk)
        if (shown[1] > shown[0] and shrunk) or (shown[1] < shown[0] and grown):
            return f"{printed}, {change}"
    return ""


@pytest.mark.parametrize("mode", [BaselineMode.PAIRED, BaselineMode.FILE])
@given(sides=documents())
@settings(max_examples=120, deadline=None)
def test_sign_and_size_of_the_change_are_those_of_the_pair(mode, sides):
    head, base = sides
    (case,) = judged(head, base, mode=mode).cases
    for pair in case.pairs:
        assert disagreement(pair) == ""


def test_medians_beside_trimmed_means_would_be_seen():
    """Of a base whose median is above its trimmed mean, and a head the other way round."""
    base = launches(*([0.130, 0.131, 0.131, 0.100, 0.100, 0.132] for _ in range(4)))
    head = launches(*([0.128, 0.128, 0.127, 0.131, 0.190, 0.200] for _ in range(4)))
    both = (results(result(metric(series, name="own"))) for series in (head, base))
    (case,) = judged(*both, mode=BaselineMode.PAIRED).cases
    (pair,) = case.pairs
    assert disagreement(pair) == ""
    medians = replace(
        pair, base=replace(pair.base, estimate=None), head=replace(pair.head, estimate=None)
    )
    assert disagreement(medians) != ""
