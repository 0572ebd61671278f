"""Graph breaks and what they bring with them, as one change: its metric, and the line of the first break. Pure.

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
            (one for one in every if one.metric in COUNTS),
            key=lambda one: -COUNTS.index(one.metric),
        )
    }
    return [pair for pair in every if pair.metric not in COUNTS or first[pair.arm] == pair.metric]


def first_break(case: CaseComparison, pair: Pair) -> str:
    """Return the line of the first graph break that base does not have: ``attend.py:566``; empty if it is unknown."""
    if pair.metric != GRAPH_BREAKS.name:
        return ""
    explained = (
        one.place
        for cause in case.causes
        if cause.arm == pair.arm
        for one in cause.new_breaks
        if one.place
    )
    return next(explained, "") or _of_check(case, pair)


def _of_check(case: CaseComparison, pair: Pair) -> str:
    """The first line that head's check names: a new break for certain if base has none."""
    if pair.base is None or pair.base.figure:
        return ""
    details = (
        check.detail for check in case.checks if (check.name, check.arm) == ("compiled", pair.arm)
    )
    found = _PLACE.search(next(details, ""))
    return found[1] if found else ""
