"""Heat maps of each case of a name over two parameters of its grid.

They are tables whose cells are coloured, with the figures in them.

A cell is the median change of the cases that have its two values, whatever their other parameters,
and says how many of them moved: the colour only repeats it. The parameters are those of the largest
group (`report.groups`), else those with most values. Names with few cases, or with less than two
such parameters, have no map.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci_bench.records.comparison import Comparison, Pair, Verdict
from ci_bench.records.labels import WORST_FIRST, parted
from ci_bench.records.metrics import STEP_TIME
from ci_bench.report import words
from ci_bench.report.groups import Group
from ci_bench.report.html.markup import Html, join, tag
from ci_bench.report.html.tables import identifier, scrolling
from ci_bench.report.text import UNKNOWN, percent

LEAST_CASES = 12
"""Fewest cases of a map; for fewer, the list of cases is enough."""
MOST_VALUES = 20
"""Most values of a parameter; a map with more is unreadable."""
MOST_MAPS = 12
STEPS = (0.01, 0.02, 0.05, 0.1)
"""Changes from which a cell is coloured, and coloured more strongly."""

Values = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatMap:
    """The step times of one arm over the values of two parameters."""

    name: str
    """The name that the cases share, without their brackets."""
    arm: str
    """The arm whose times are shown."""
    several_arms: bool
    """Whether cases of this name have other arms as well."""
    down: str
    """The parameter with a row for each value."""
    across: str
    """The parameter with a column for each value."""
    rows: tuple[str, ...]
    """Values of `down`, in natural order."""
    columns: tuple[str, ...]
    """Values of `across`, in natural order."""
    cells: Mapping[tuple[str, str], tuple[Pair, ...]]
    """The pairs of the cases by their values of `down` and `across`; no entry without cases."""


def heat_maps(comparison: Comparison, groups: Sequence[Group]) -> tuple[HeatMap, ...]:
    """Return a map of every name and arm that has a grid to show, those with a group first."""
    timed: dict[tuple[str, str], list[tuple[Values, Pair]]] = {}
    arms: dict[str, set[str]] = {}
    for case in comparison.cases:
        name, parameters = parted(case.id)
        for pair in case.pairs:
            if pair.metric == STEP_TIME.name and words.growth(pair) is not None:
                timed.setdefault((name, pair.arm), []).append((dict(parameters), pair))
                arms.setdefault(name, set()).add(pair.arm)
    ranks = {(group.name, group.arm): -place for place, group in reversed([*enumerate(groups)])}
    drawn = [
        heat_map
        for (name, arm), cases in timed.items()
        if (heat_map := _map(name, arm, cases, groups, several_arms=len(arms[name]) > 1))
        is not None
    ]
    return tuple(
        sorted(drawn, key=lambda heat_map: -ranks.get((heat_map.name, heat_map.arm), -len(groups)))
    )


def _map(
    name: str,
    arm: str,
    cases: Sequence[tuple[Values, Pair]],
    groups: Sequence[Group],
    *,
    several_arms: bool,
) -> HeatMap | None:
    values: dict[str, set[str]] = {}
    for parameters, _ in cases:
        for parameter, value in parameters.items():
            values.setdefault(parameter, set()).add(value)
    everywhere = [
        parameter for parameter in values if all(parameter in parameters for parameters, _ in cases)
    ]
    fitting = sorted(
        (
            parameter
            for parameter in everywhere
            if len(values[parameter]) in range(2, MOST_VALUES + 1)
        ),
        key=lambda parameter: -len(values[parameter]),
    )
    group = next((group for group in groups if (group.name, group.arm) == (name, arm)), None)
    first = (
        [parameter for parameter, _ in group.conditions if parameter in fitting] if group else []
    )
    match sorted(
        [*dict.fromkeys([*first, *fitting])][:2], key=lambda parameter: -len(values[parameter])
    ):
        case [down, across] if len(cases) >= LEAST_CASES:
            pass
        case _:
            return None
    cells: dict[tuple[str, str], tuple[Pair, ...]] = {}
    for parameters, pair in cases:
        place = parameters[down], parameters[across]
        cells[place] = (*cells.get(place, ()), pair)
    rows, columns = (tuple(sorted(values[parameter], key=_natural)) for parameter in (down, across))
    return HeatMap(
        name=name,
        arm=arm,
        several_arms=several_arms,
        down=down,
        across=across,
        rows=rows,
        columns=columns,
        cells=cells,
    )


def drawn_maps(maps: Sequence[HeatMap]) -> Html | None:
    """Return the part of the page with all maps, the first of them open; `None` without any."""
    if not maps:
        return None
    caption = (
        "Change of the step time, base to head: the median of the cases with both values, and how"
        " many of them moved."
    )
    hidden = len(maps) - MOST_MAPS
    more = tag("p", f"{hidden:,} more grids are not drawn.", class_="muted") if hidden > 0 else None
    folds = (_fold(heat_map, opened=place == 0) for place, heat_map in enumerate(maps[:MOST_MAPS]))
    return join((tag("h2", "Over the grid"), tag("p", caption, class_="muted"), *folds, more))


def _fold(heat_map: HeatMap, *, opened: bool) -> Html:
    arm = f", {heat_map.arm}" if heat_map.several_arms else ""
    title = f"{heat_map.name}{arm}, over {heat_map.down} and {heat_map.across}"
    corner = tag("th", f"{heat_map.down} \\ {heat_map.across}", scope="col")
    head = tag(
        "thead",
        tag(
            "tr", corner, *(tag("th", identifier(value), scope="col") for value in heat_map.columns)
        ),
    )
    rows = (
        tag(
            "tr",
            tag("th", identifier(row), scope="row"),
            *(_cell(heat_map.cells.get((row, column), ())) for column in heat_map.columns),
        )
        for row in heat_map.rows
    )
    table = tag("table", head, tag("tbody", *rows), class_="heat")
    return tag("details", tag("summary", title), scrolling(title, table), open=opened)


def _cell(pairs: Sequence[Pair]) -> Html:
    """Return the median change, and the number of cases that moved."""
    if not pairs:
        return tag("td", UNKNOWN)
    growths = sorted((words.growth(pair) or 0.0, pair.better) for pair in pairs)
    share, better = growths[len(growths) // 2]
    text = percent(share, signed=True)
    return tag("td", text, *_moved(pairs), class_=_shade(share if better == "lower" else -share))


def _moved(pairs: Sequence[Pair]) -> list[Html]:
    """Summarise the cases' changes, unless all of them are unchanged."""
    verdicts = [verdict for verdict in WORST_FIRST if verdict is not Verdict.UNCHANGED]
    counts = [
        (words.verdict_word(verdict), sum(pair.verdict is verdict for pair in pairs))
        for verdict in verdicts
    ]
    return [
        tag(
            "div",
            word if number == len(pairs) else f"{word}: {number:,} of {len(pairs):,}",
            class_="muted",
        )
        for word, number in counts
        if number
    ]


def _shade(worse_by: float) -> str | None:
    """Return a cell's class: ``w1`` to ``w4`` for worse, ``b1`` to ``b4`` for better, by size."""
    size = sum(abs(worse_by) >= step for step in STEPS)
    return f"{'w' if worse_by > 0 else 'b'}{size}" if size else None


def _natural(value: str) -> tuple[tuple[int, float, str], ...]:
    """Return a sort key that orders numbers within a text by their size."""
    parts = re.split(r"(\d+)", value)
    return tuple(
        (0, float(part), "") if part.isdigit() and part.isascii() else (1, 0.0, part)
        for part in parts
    )
