"""The table of all cases that a reader searches, filters and sorts: one row for each arm of each case, worst first."""

from collections.abc import Mapping

from ci_bench.records.case import Unit
from ci_bench.records.comparison import Comparison, Pair
from ci_bench.report import words
from ci_bench.report.html.markup import Html, join, tag
from ci_bench.report.html.tables import figure, identifier, scrolling, word
from ci_bench.report.rows import Row, main_rows
from ci_bench.report.text import UNKNOWN, ratio
from ci_bench.report.words import Mood

_HEADERS = ("Verdict", "Case", "Arm", "Step time", "Change", "Interval", "Speedup", "Loss parity", "Peak memory")


def case_table(comparison: Comparison, anchors: Mapping[str, str]) -> Html:
    """The tools and the table. `anchors` leads from a case's id to its place in the page."""
    rows = main_rows(comparison)
    if not rows:
        return tag("p", "No case was planned or measured.", class_="empty")
    heads = (tag("th", tag("button", name, type="button"), scope="col", aria_sort="none") for name in _HEADERS)
    body = tag("tbody", *(_row(row, anchors[row.case.id]) for row in rows))
    caption = tag(
        "caption", "One row for each arm of each case, the worst first. Speedup is reference ÷ arm: above 1× is better."
    )
    whole = tag("table", caption, tag("thead", tag("tr", *heads)), body, id="cases")
    return join((_tools(rows), scrolling("Cases", whole)))


def _tools(rows: tuple[Row, ...]) -> Html:
    """Search and filters; `data-column` says which column's `data-filter` a choice is about."""
    verdicts = dict.fromkeys(row.word for row in rows)
    suites = dict.fromkeys(row.case.suite for row in rows)
    search = tag("label", "Search", tag("input", type="search", id="search", placeholder="case, arm, verdict …"))
    parts = (search, _choice("Verdict", "0", list(verdicts)), _choice("Suite", "1", list(suites)))
    told = tag("p", id="count", class_="muted", role="status")
    every = tag("button", "Open all cases", type="button", id="open-all")
    return tag("div", *parts, every, told, class_="tools", role="search")


def _choice(title: str, column: str, values: list[str]) -> Html:
    options = (tag("option", value, value=value) for value in values)
    select = tag("select", tag("option", "all", value=""), *options, data_column=column, class_="filter")
    return tag("label", title, select)


def _row(row: Row, anchor: str) -> Html:
    known = words.parity(row.parity) if row.parity else UNKNOWN
    spread = words.change_interval(row.time) if row.time else UNKNOWN
    mood = row.mood.name.lower()
    cells = (
        tag("td", word(row.word, mood), _marks(row), data_sort=str(int(row.mood)), data_filter=row.word, class_=mood),
        tag("td", tag("a", identifier(row.case.id), href=f"#{anchor}"), data_filter=row.case.suite),
        tag("td", identifier(row.arm) if row.arm else UNKNOWN),
        tag("td", figure(_step_time(row.time)), data_sort=_median(row.time)),
        tag("td", figure(words.change(row.time)) if row.time else UNKNOWN, data_sort=_growth(row.time)),
        tag("td", figure(spread), data_sort=_growth(row.time) if spread != UNKNOWN else None),
        tag(
            "td",
            words.speedup(row.speedup) if row.speedup else ratio(None),
            data_sort=f"{row.speedup.speedup:.5g}" if row.speedup else None,
        ),
        tag("td", word(known, words.parity_mood(row.parity).name.lower()) if row.parity else UNKNOWN),
        tag("td", _memory(row.memory), data_sort=_median(row.memory)),
    )
    return tag("tr", *cells, data_case=anchor, data_bad=row.mood is Mood.BAD)


def _marks(row: Row) -> Html | None:
    """What the word must not hide, under it."""
    return tag("div", row.marks.removeprefix(", "), class_="muted") if row.marks else None


def _memory(pair: Pair | None) -> Html:
    """Both sides, and the change under them."""
    parts = [figure(part) for part in words.peak(pair).split(", ")]
    return join((parts[0], *(tag("div", part) for part in parts[1:])))


def _step_time(pair: Pair | None) -> str:
    if pair is None:
        return UNKNOWN
    return words.both_sides(pair) if pair.metric == "step_time" else f"{pair.metric} {words.both_sides(pair)}"


def _median(pair: Pair | None) -> str | None:
    side = (pair.head or pair.base) if pair else None
    return f"{side.median:.6g}" if side else None


def _growth(pair: Pair | None) -> str | None:
    """How much worse it became; a count by its difference."""
    if pair is None:
        return None
    if pair.unit is Unit.COUNT and pair.base and pair.head:
        return f"{pair.head.median - pair.base.median:.6g}"
    return f"{1 / pair.speedup - 1:.6g}" if pair.speedup else None
