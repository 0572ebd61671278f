"""The cases in the HTML report: the table that a reader searches, filters and sorts, and everything on one case.

The table has one row for each arm of each case, worst first. One case is its tables, a place for its charts, the machine while
it was measured, its log, its command.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from statistics import median

from ci_bench.records.comparison import CaseComparison, Comparison, Pair, ParityFinding, Summary
from ci_bench.records.results import CaseResult, Fact, SideName, Unit
from ci_bench.report import words
from ci_bench.report.charts.samples import Sides
from ci_bench.report.html.markup import Child, Html, join, lines, tag
from ci_bench.report.html.tables import fact, figure, folded, identifier, scrolling, table, titled, word
from ci_bench.report.rows import Row, main_rows
from ci_bench.report.text import UNKNOWN, count, interval, quantity, rate, ratio
from ci_bench.report.words import Mood, check_rank

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


_METRICS = ("Metric", "Arm", "Verdict", "Base", "Head", "Change", "Interval", "Samples", "Noise", "Resolvable", "q", "Reason")
_SPEEDUPS = ("Arm", "Reference", "Metric", "Reference ÷ arm", "Interval", "On base", "Changed by head")
_PARITY = (
    "Arm",
    "Parity",
    "Tier",
    "Masks",
    "Steps",
    "Distance",
    "First step out",
    "Accuracy",
    "training_loss.py’s rule",
    "Detail",
)
_CHECKS = ("Check", "Arm", "Outcome", "Detail")
_OUTPUTS = ("Arm", "Beside base", "Tensors", "Detail")
_WORST = ("Tensor", "Off by", "Rounding explains", "Fault")
_LOG_LINES = 60


def case_fold(case: CaseComparison, *, anchor: str, number: int, mood: Mood, shown: str, opened: bool) -> Html:
    """The line of one case; `opened` shows what is in it. The page's script fills it from the packed data of case `number`."""
    title = tag("summary", word(shown, mood.name.lower()), " ", tag("h3", identifier(case.id)))
    inside = tag("div", class_="inside", data_number=str(number))
    return tag("details", title, inside, class_="case", id=anchor, open=opened)


def case_parts(case: CaseComparison, sides: Sides, *, anchor: str) -> Html:
    """What is in it. The page's script draws the charts where the class says."""
    charts = tag("div", class_="charts")
    return join(
        (
            tag("p", case.reason) if case.reason else None,
            tag("p", f"Base: {_status(case.base_status)} · head: {_status(case.head_status)}", class_="muted"),
            *(tag("p", word("base side", "unsure"), " ", fault) for fault in case.base_faults),
            _reproduce(case, anchor),
            charts,
            titled("Metrics", table("Metrics", _METRICS, _metrics(case), names=2)),
            titled("Arms against their reference", table("Arms", _SPEEDUPS, _speedups(case))),
            titled("Loss parity", table("Loss parity", _PARITY, map(_parity, words.trainings(case)))),
            _outputs(case),
            titled("Checks", table("Checks", _CHECKS, _checks(case))),
            _machine(sides),
            _facts(case),
            _log(case),
        )
    )


def _status(status: object) -> str:
    return "not there" if status is None else str(status).replace("_", " ")


def _metrics(case: CaseComparison) -> Iterator[tuple[Child, ...]]:
    ranked = sorted(case.pairs, key=lambda pair: (pair.detail, words.WORST_FIRST.index(pair.verdict)))
    for pair in ranked:
        verdict = word(pair.verdict, words.mood(pair.verdict).name.lower())
        yield (
            tag("td", pair.metric, " (detail)" if pair.detail else None),
            identifier(pair.arm),
            verdict,
            figure(_side(pair.base, pair)),
            figure(_side(pair.head, pair)),
            figure(words.change(pair)),
            figure(words.change_interval(pair)),
            figure(words.samples(pair)),
            figure(words.noise(pair)),
            figure(words.fine(pair.resolvable)),
            figure(words.discovery(pair)),
            pair.reason,
        )


def _side(side: Summary | None, pair: Pair) -> str:
    shown = quantity(side.median if side else None, pair.unit)
    if side is None or pair.items is None or pair.unit is not Unit.SECONDS or side.median <= 0:
        return shown
    return f"{shown} ({rate(pair.items / side.median)})"


def _speedups(case: CaseComparison) -> Iterator[tuple[Child, ...]]:
    for found in case.speedups:
        earlier = UNKNOWN if found.base_speedup is None else ratio(found.base_speedup)
        names = (identifier(found.arm), identifier(found.reference), found.metric)
        yield (*names, ratio(found.speedup), interval(found.interval), earlier, words.speedup_change(found))


def _parity(found: ParityFinding) -> tuple[Child, ...]:
    first = UNKNOWN if found.first_step is None else f"{count(found.first_step)} ({found.signal or 'unknown'})"
    accuracy = found.accuracy
    accurate = UNKNOWN if accuracy is None else f"{accuracy.reference * 100:.1f} → {accuracy.candidate * 100:.1f} %"
    rule = UNKNOWN if found.seed_rule is None else found.seed_rule.detail
    return (
        identifier(found.arm),
        word(words.parity(found), words.parity_mood(found).name.lower()),
        found.tier or UNKNOWN,
        (found.masks or UNKNOWN).replace("_", " "),
        count(found.steps),
        words.distance(found),
        first,
        accurate,
        rule,
        found.detail,
    )


def _outputs(case: CaseComparison) -> Html | None:
    """Whether head computes what base computes, and the tensors that come nearest to their limit or are farthest beyond."""
    found = case.outputs
    if found is None:
        return None
    title = "What head computes beside base"
    shown = word(words.outputs(found), words.outputs_mood(found).name.lower())
    whole = table(title, _OUTPUTS, [(identifier(found.arm), shown, count(found.tensors), found.detail)])
    rows = ((identifier(one.name), _error(one.error), _error(one.allowed), one.fault) for one in found.worst)
    return titled(title, whole, table("The worst tensors", _WORST, rows) if found.worst else None)


def _error(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"


def _checks(case: CaseComparison) -> Iterator[tuple[Child, ...]]:
    for found in sorted(case.checks, key=check_rank):
        mood = words.check_mood(found).name.lower()
        remark = " for information" if found.informative else None
        yield found.name, identifier(found.arm), tag("td", word(found.outcome, mood), remark), found.detail


def _machine(sides: Sides) -> Html | None:
    """The condition of the machine while the case was measured: medians over its blocks, and what was doubtful or taken again."""
    fields = dict.fromkeys(name for _, row in sides for block in row.blocks for name in block.facts)
    rows: list[tuple[Child, ...]] = [(name, *_both(sides, partial(_typical, name))) for name in fields]
    if any(row.blocks for _, row in sides):
        rows.append(("blocks", *_both(sides, lambda row: count(len(row.blocks)))))
        rows.append(("doubtful blocks", *_both(sides, lambda row: count(sum(bool(block.doubt) for block in row.blocks)))))
        rows.append(("taken again", *_both(sides, lambda row: count(sum(len(block.redone) for block in row.blocks)))))
    marked = [(row[0], *_marked(row[1:])) for row in rows]
    title = "The machine while this was measured"
    reasons = dict.fromkeys(text for _, row in sides for block in row.blocks for text in (block.doubt, *block.redone) if text)
    told = tag("ul", *(tag("li", reason) for reason in list(reasons)[:10])) if reasons else None
    return folded(title, table(title, ("Condition", "Base", "Head"), marked), told)


def _both(sides: Sides, told: Callable[[CaseResult], str]) -> tuple[str, str]:
    known = {side: told(row) for side, row in sides}
    return known.get(SideName.BASE, UNKNOWN), known.get(SideName.HEAD, UNKNOWN)


def _marked(values: Iterable[Child]) -> tuple[Child, ...]:
    """Both values, marked where they are known and differ."""
    base, head = values
    differ = base != head and UNKNOWN not in {base, head}
    return (base, tag("td", head, class_="differs" if differ else None))


def _typical(name: str, row: CaseResult) -> str:
    values: list[Fact] = [block.facts[name] for block in row.blocks if name in block.facts]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
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
    return titled("End of the log", tag("pre", text, tabindex="0", role="group", aria_label="End of the log"))


def _reproduce(case: CaseComparison, anchor: str) -> Html | None:
    if not case.reproduce:
        return None
    name = f"{anchor}-command"
    shown = tag("pre", tag("code", lines(case.reproduce), id=name), tabindex="0", role="group", aria_label="Command")
    button = tag("button", "Copy", type="button", class_="copy", data_copies=name, aria_label="Copy the command")
    return titled("Run it again", tag("div", shown, button, class_="command"))
