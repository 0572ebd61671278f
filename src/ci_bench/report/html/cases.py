"""Cases in the HTML report: the table that a reader searches and sorts, and all on one case.

The table has one row for each arm of each case, worst first. One case is its tables, a place for
its charts, the machine while it was measured, its log, its command.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TypeVar

from ci_bench.records.causes import Cause, KernelChange
from ci_bench.records.comparison import CaseComparison, Comparison, Pair
from ci_bench.records.forms import Fact
from ci_bench.records.labels import WORST_FIRST
from ci_bench.records.results import CaseResult, SideName
from ci_bench.report import columns, words
from ci_bench.report.case_columns import MAIN
from ci_bench.report.causes import reproducing
from ci_bench.report.charts.samples import Sides
from ci_bench.report.columns import ColumnKind, Columns, of_one_case
from ci_bench.report.html.icicles import icicle
from ci_bench.report.html.markup import Child, Html, join, lines, tag
from ci_bench.report.html.tables import (
    drawer,
    drawn,
    fact,
    folded,
    identifier,
    scrolling,
    table,
    titled,
    word,
)
from ci_bench.report.rows import Row, main_rows
from ci_bench.report.text import UNKNOWN, count, percent, seconds
from ci_bench.report.words import Mood, check_rank


def case_table(comparison: Comparison, anchors: Mapping[str, str]) -> Html:
    """Return the tools and the table.

    `anchors` leads from a case's id to its place in the page.
    """
    rows = main_rows(comparison)
    if not rows:
        return tag("p", "No case was planned or measured.", class_="empty")
    titles = (tag("button", column.title, type="button") for column in MAIN)
    heads = (tag("th", title, scope="col", aria_sort="none") for title in titles)
    body = tag("tbody", *(_row(row, anchors[row.case.id]) for row in rows))
    caption = tag(
        "caption",
        "One row for each arm of each case, the worst first. Speedup is reference ÷ arm: above 1×"
        " is better.",
    )
    element = tag("table", caption, tag("thead", tag("tr", *heads)), body, id="cases")
    return join((_tools(rows), scrolling("Cases", element)))


def _tools(rows: tuple[Row, ...]) -> Html:
    """Return search and filters.

    `data-column` is the column whose `data-filter` a choice is compared with.
    """
    verdicts = dict.fromkeys(row.word for row in rows)
    suites = dict.fromkeys(row.case.suite for row in rows)
    search = tag(
        "label",
        "Search",
        tag("input", type="search", id="search", placeholder="case, arm, verdict …"),
    )
    parts = (search, _choice("Verdict", "0", list(verdicts)), _choice("Suite", "1", list(suites)))
    counter = tag("p", id="count", class_="muted", role="status")
    every = tag("button", "Open all cases", type="button", id="open-all")
    return tag("div", *parts, every, counter, class_="tools", role="search")


def _choice(title: str, column: str, values: list[str]) -> Html:
    options = (tag("option", value, value=value) for value in values)
    select = tag(
        "select", tag("option", "all", value=""), *options, data_column=column, class_="filter"
    )
    return tag("label", title, select)


def _row(row: Row, anchor: str) -> Html:
    """Return a row of `MAIN`; the case leads to its place in the page."""
    cells = []
    for column in MAIN:
        shown = drawer(column)(row)
        content = tag("a", shown, href=f"#{anchor}") if column.kind is ColumnKind.ID else shown
        key = column.key(row) if column.key else None
        cells.append(
            tag(
                "td",
                content,
                data_sort=None if key is None else f"{key:.6g}",
                data_filter=column.group(row) if column.group else None,
                class_=row.mood.name.lower() if column is MAIN[0] else None,
            )
        )
    return tag("tr", *cells, data_case=anchor, data_bad=row.mood is Mood.BAD)


_LOG_LINES = 60

T = TypeVar("T")


def case_fold(
    case: CaseComparison, *, anchor: str, number: int, mood: Mood, shown: str, opened: bool
) -> Html:
    """Return the line of one case, open if `opened`.

    The page's script fills it from the packed data of case `number`.
    """
    title = tag("summary", word(shown, mood.name.lower()), " ", tag("h3", identifier(case.called)))
    inside = tag("div", class_="inside", data_number=str(number))
    return tag("details", title, inside, class_="case", id=anchor, open=opened)


def case_parts(case: CaseComparison, sides: Sides, *, anchor: str) -> Html:
    """Return the content of a case.

    The page's script draws the charts where the class says.
    """
    charts = tag("div", class_="charts")
    return join(
        (
            tag("p", case.reason) if case.reason else None,
            tag(
                "p",
                f"Base: {_status(case.base_status)} · head: {_status(case.head_status)}",
                class_="muted",
            ),
            *(tag("p", word("base side", "unsure"), " ", fault) for fault in case.base_faults),
            _reproduce(case, anchor),
            charts,
            titled("Metrics", _table("Metrics", columns.METRICS, case, _ranked(case))),
            *(_cause(cause, sides) for cause in case.causes),
            titled(
                "Arms against their reference", _table("Arms", columns.ARMS, case, case.speedups)
            ),
            titled(
                "Loss parity", _table("Loss parity", columns.PARITY, case, words.trainings(case))
            ),
            _outputs(case),
            titled(
                "Checks",
                _table("Checks", columns.CHECKS, case, sorted(case.checks, key=check_rank)),
            ),
            _machine(sides),
            _facts(case),
            _log(case),
        )
    )


def _status(status: object) -> str:
    return "not there" if status is None else str(status).replace("_", " ")


def _table(
    label: str, shown: Columns[tuple[CaseComparison, T]], case: CaseComparison, items: Iterable[T]
) -> Html | None:
    """Return a table about one case."""
    return drawn(label, of_one_case(shown), ((case, item) for item in items), names=2)


def _ranked(case: CaseComparison) -> list[Pair]:
    return sorted(case.pairs, key=lambda pair: (pair.detail, WORST_FIRST.index(pair.verdict)))


def _outputs(case: CaseComparison) -> Html | None:
    """Return the comparison of head's outputs with base's, and the tensors nearest to their limit.

    Tensors beyond their limit come first.
    """
    finding = case.outputs
    if finding is None:
        return None
    title = "Outputs against base"
    return titled(
        title,
        _table(title, columns.OUTPUTS, case, [finding]),
        drawn("The worst tensors", columns.TENSORS, finding.worst),
    )


def _cause(cause: Cause, sides: Sides) -> Html | None:
    """Return the profile of an arm's step.

    It has pictures of both sides at one scale, and a table of all changes.
    """
    profiles = {
        side: profile
        for side, row in sides
        for profile in row.profiles
        if profile.arm == cause.arm and profile.step_s
    }
    scale_s = max((profile.step_s or 0.0 for profile in profiles.values()), default=0.0)
    pictures = (
        [icicle(profile, scale_s=scale_s, side=side.value) for side, profile in profiles.items()]
        if scale_s
        else []
    )
    kernels = [
        tag("p", f"Kernels that only {side} has: ", *_join_names(names))
        for side, names in (("head", cause.new_kernels), ("base", cause.gone_kernels))
        if names
    ]
    breaks = [
        tag(
            "li",
            f"{kind} graph break: {broken.reason}",
            f" at {broken.place}" if broken.place else "",
            f" ({broken.times:,}×)",
        )
        for kind, graph_breaks in (("new", cause.new_breaks), ("gone", cause.gone_breaks))
        for broken in graph_breaks
    ]
    recompiles = [tag("li", f"compiles again: {reason}") for reason in cause.new_recompiles]
    notes = dict.fromkeys(note for profile in profiles.values() for note in profile.notes)
    return titled(
        f"Where a step of {cause.arm} spends its time",
        tag("p", _attributed(cause)),
        _bundle(cause),
        tag("figure", *pictures, class_="icicles") if pictures else None,
        drawn("Changes by operator", columns.PARTS, cause.parts),
        folded(
            "Memory at the peak of a step",
            drawn("Memory at the peak", columns.MEMORY_PARTS, cause.memory),
        ),
        tag("ul", *breaks, *recompiles) if breaks or recompiles else None,
        *kernels,
        (
            folded("Generated kernels that changed", *map(_kernel, cause.kernels))
            if cause.kernels
            else None
        ),
        *(tag("p", f"Note: {note}", class_="muted") for note in notes),
    )


def _kernel(change: KernelChange) -> Html:
    """Return the names of a generated kernel, and the changes of its source."""
    names = " → ".join(name for name in dict.fromkeys((change.before, change.after)) if name)
    kind = "" if change.before and change.after else ", new" if change.after else ", gone"
    shown = tag(
        "pre",
        tag("code", lines(change.diff)),
        tabindex="0",
        role="group",
        aria_label=f"Source of {names}",
    )
    return tag("div", tag("p", identifier(names), kind), shown)


def _bundle(cause: Cause) -> Html | None:
    if cause.bundle is None:
        return None
    command = reproducing(cause.bundle)
    run = (" Reproduce: ", tag("code", command), ".") if command else (" Its file was not kept.",)
    return tag(
        "p", f"One of its compiled graphs fails in a fresh process: {cause.bundle.says}.", *run
    )


def _join_names(names: Sequence[str]) -> Iterator[Child]:
    for place, name in enumerate(names):
        yield join((", " if place else "", identifier(name)))


def _attributed(cause: Cause) -> str:
    """Describe how much of the change the table explains."""
    if cause.unknown or cause.base_s is None or cause.head_s is None:
        return f"Not explained: {cause.unknown or 'nothing is known'}."
    took = (
        f"Under the profiler a step took {seconds(cause.base_s)} on base, {seconds(cause.head_s)}"
        " on head"
    )
    extent = (
        "nothing changed"
        if cause.attributed is None
        else f"{percent(cause.attributed)} of the change attributed"
    )
    return (
        f"{took}: {extent}. Means over the quickest quarter of steps, in a separate process; no"
        " sample comes from it."
    )


def _machine(sides: Sides) -> Html | None:
    """Return the condition of the machine while the case was measured.

    It has medians over the case's blocks, and lists blocks that were doubtful or taken again.
    """
    fields = dict.fromkeys(name for _, row in sides for block in row.blocks for name in block.facts)
    rows: list[tuple[Child, ...]] = [
        (name, *_both(sides, partial(_typical, name))) for name in fields
    ]
    if any(row.blocks for _, row in sides):
        rows.append(("blocks", *_both(sides, lambda row: count(len(row.blocks)))))
        rows.append(
            (
                "doubtful blocks",
                *_both(sides, lambda row: count(sum(bool(block.doubt) for block in row.blocks))),
            )
        )
        rows.append(
            (
                "taken again",
                *_both(sides, lambda row: count(sum(len(block.redone) for block in row.blocks))),
            )
        )
    marked = [(row[0], *_marked(row[1:])) for row in rows]
    title = "The machine while this was measured"
    reasons = dict.fromkeys(
        text
        for _, row in sides
        for block in row.blocks
        for text in (block.doubt, *block.redone)
        if text
    )
    reason_list = (
        tag("ul", *(tag("li", reason) for reason in list(reasons)[:10])) if reasons else None
    )
    return folded(title, table(title, ("Condition", "Base", "Head"), marked), reason_list)


def _both(sides: Sides, describe: Callable[[CaseResult], str]) -> tuple[str, str]:
    texts = {side: describe(row) for side, row in sides}
    return texts.get(SideName.BASE, UNKNOWN), texts.get(SideName.HEAD, UNKNOWN)


def _marked(values: Iterable[Child]) -> tuple[Child, ...]:
    """Return both values, marked if they are known and differ."""
    base, head = values
    differ = base != head and UNKNOWN not in {base, head}
    return (base, tag("td", head, class_="differs" if differ else None))


def _typical(name: str, row: CaseResult) -> str:
    values: list[Fact] = [block.facts[name] for block in row.blocks if name in block.facts]
    numbers = [
        value for value in values if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if numbers and len(numbers) == len(values):
        return fact(name, float(median(numbers)))
    return ", ".join(dict.fromkeys(fact(name, value) for value in values)) or UNKNOWN


def _facts(case: CaseComparison) -> Html | None:
    rows = ((name, fact(name, value)) for name, value in case.facts.items())
    return folded("Facts", table("Facts", ("Fact", "Value"), rows, names=2))


def _log(case: CaseComparison) -> Html | None:
    if not case.log_tail.strip():
        return None
    text = tag("code", lines(case.log_tail, last=_LOG_LINES))
    return titled(
        "End of the log", tag("pre", text, tabindex="0", role="group", aria_label="End of the log")
    )


def _reproduce(case: CaseComparison, anchor: str) -> Html | None:
    if not case.reproduce:
        return None
    name = f"{anchor}-command"
    shown = tag(
        "pre",
        tag("code", lines(case.reproduce), id=name),
        tabindex="0",
        role="group",
        aria_label="Command",
    )
    button = tag(
        "button",
        "Copy",
        type="button",
        class_="copy",
        data_copies=name,
        aria_label="Copy the command",
    )
    return titled("Run it again", tag("div", shown, button, class_="command"))
