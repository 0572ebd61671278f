"""Graph breaks and their consequences, as one change: its metric, and the first break's line.

A line that dynamo cannot trace splits a graph, leaves frames to eager and compiles the parts again:
four counts move, and a reader has one line to fix.
"""

import re
from collections.abc import Iterable

from ci_bench.records.comparison import CaseComparison, Pair
from ci_bench.records.metrics import FALLBACKS, GRAPH_BREAKS, GRAPHS, RECOMPILES

COUNTS = tuple(kind.name for kind in (GRAPH_BREAKS, FALLBACKS, RECOMPILES, GRAPHS))
"""Counts that move together; the first of them that moved stands for the others."""
_PLACE = re.compile(r" at (\S{1,300}:\d{1,9}) in ")


def leading(pairs: Iterable[Pair]) -> list[Pair]:
    """Leave out counts that only follow another one of the same arm."""
    every = list(pairs)
    first = {
        pair.arm: pair.metric
        for pair in sorted(
            (count for count in every if count.metric in COUNTS),
            key=lambda count: -COUNTS.index(count.metric),
        )
    }
    return [pair for pair in every if pair.metric not in COUNTS or first[pair.arm] == pair.metric]


def first_break(case: CaseComparison, pair: Pair) -> str:
    """Return the line of the first graph break that only head has (``attend.py:566``), or ""."""
    if pair.metric != GRAPH_BREAKS.name:
        return ""
    explained = (
        graph_break.place
        for cause in case.causes
        if cause.arm == pair.arm
        for graph_break in cause.new_breaks
        if graph_break.place
    )
    return next(explained, "") or _of_check(case, pair)


def _of_check(case: CaseComparison, pair: Pair) -> str:
    """Return the first line that head's check names: surely a new break if base has none."""
    if pair.base is None or pair.base.figure:
        return ""
    details = (
        check.detail for check in case.checks if (check.name, check.arm) == ("compiled", pair.arm)
    )
    match = _PLACE.search(next(details, ""))
    return match[1] if match else ""
