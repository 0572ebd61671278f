"""The trend page: what is open now, a table of all series, and a chart of each.

Pure; the shell is the reports' own.

One file that loads nothing. All numbers of the charts travel as data, and a chart is drawn when it
comes into view, so a page of hundreds of series opens quickly. Names and texts may be a stranger's:
they become markup through `tag`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ci_bench.history.alarms import Alarm, drift_pace
from ci_bench.history.lines import HistoryLine
from ci_bench.judge.times.trend import Move
from ci_bench.judge.wording import count_of, percent, quantity
from ci_bench.records.history import Entry
from ci_bench.records.results import Better
from ci_bench.report.html.markup import Html, join, tag
from ci_bench.report.html.page import Assets, render_page
from ci_bench.report.html.tables import figure, identifier, scrolling, word

_HEADERS = (
    "State",
    "Case",
    "Metric",
    "Arm",
    "Machine",
    "Level now",
    "Noise",
    "Last change",
    "When",
    "Runs",
)
_SHORT = 12
_BAND = 2.0
"""Half the width of the noise band, in standard deviations of one run."""
_STATES = {"worse": "bad", "better": "better", "steady": "good", "changed": "unsure"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """Data of the page."""

    title: str
    """Heading."""
    lines: tuple[HistoryLine, ...]
    """All series, in the order of the table."""
    alarms: tuple[Alarm, ...]
    """Open changes for the worse, the most important first."""
    passed: tuple[str, ...] = ()
    """Records that could not be read, each with its reason."""
    commits: str | None = None
    """Address of commits (``https://github.com/owner/name/commit``); `None` if unknown."""


def render(sheet: Sheet, assets: Assets) -> str:
    """Render the page."""
    runs = sorted({(run.at, run.id): run for line in sheet.lines for run in line.runs}.items())
    place = {key: index for index, (key, _) in enumerate(runs)}
    parts = (
        tag("h1", sheet.title),
        _verdict(sheet, [run for _, run in runs]),
        tag("h2", "All series"),
        _table(sheet.lines),
        tag("h2", "Over time"),
        _tools(),
        tag(
            "div",
            *(_section(index, line, sheet) for index, line in enumerate(sheet.lines)),
            id="lines",
        ),
        _passed(sheet.passed),
    )
    data = {
        "runs": [_run(run, sheet.commits) for _, run in runs],
        "lines": [_line(line, place) for line in sheet.lines],
    }
    return render_page(title=sheet.title, body=join(parts), assets=assets, data=data)


def _verdict(sheet: Sheet, runs: Sequence[Entry]) -> Html:
    """Show the verdict, open changes first."""
    alarms = sheet.alarms
    span = f"{count_of(len(runs), 'run')}" + (
        f", {runs[0].at[:10]} to {runs[-1].at[:10]}" if runs else ""
    )
    headline = (
        f"{count_of(len(alarms), 'open change')} for the worse"
        if alarms
        else "No open change for the worse"
    )
    items = [_alarm(alarm, sheet.commits) for alarm in alarms[:50]]
    alarm_list = tag("ul", *items) if items else None
    counted = tag("p", f"{len(sheet.lines)} series over {span}.", class_="muted")
    return tag(
        "div",
        tag("p", headline, class_="headline"),
        counted,
        alarm_list,
        class_=f"verdict {'bad' if alarms else 'good'}",
    )


def _alarm(alarm: Alarm, commits: str | None) -> Html:
    changes = alarm.line.environment_of(alarm.move)
    parts: list[Html | str] = [f"{alarm.text}, ", _range(alarm.line, alarm.move, commits)]
    parts += (
        [tag("div", f"with a change of the environment: {'; '.join(changes)}", class_="muted")]
        if changes
        else []
    )
    parts += [tag("div", alarm.confirmed, class_="muted")] if alarm.confirmed else []
    return tag("li", *parts)


def _table(lines: Sequence[HistoryLine]) -> Html:
    if not lines:
        return tag("p", "The history holds no series yet.", class_="empty")
    heads = (
        tag("th", tag("button", name, type="button"), scope="col", aria_sort="none")
        for name in _HEADERS
    )
    body = tag("tbody", *(_row(index, line) for index, line in enumerate(lines)))
    caption = (
        "One row for each series. The level is that of the runs since the last change; noise is the"
        " spread of one run around it."
    )
    table = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *heads)), body, id="series"
    )
    return join((_filters(), scrolling("All series", table)))


def _filters() -> Html:
    search = tag(
        "label",
        "Search",
        tag("input", type="search", id="search", placeholder="case, metric, machine …"),
    )
    options = (tag("option", state, value=state) for state in _STATES)
    state = tag(
        "label",
        "State",
        tag("select", tag("option", "all", value=""), *options, data_column="0", class_="filter"),
    )
    return tag(
        "div",
        search,
        state,
        tag("p", id="count", class_="muted", role="status"),
        class_="tools",
        role="search",
    )


def _tools() -> Html:
    choices = (tag("option", "by commit", value="run"), tag("option", "by time", value="at"))
    label = tag("label", "Horizontal axis", tag("select", *choices, id="axis"))
    legend = (
        "A dot is a run, a line the level between two changes or the slope of a drift, the band"
        " where nineteen of twenty runs lie. A solid upright marks a change, a tinted stretch a"
        " drift, a dashed upright a change of the software."
    )
    return tag("div", label, tag("p", legend, class_="muted"), class_="tools")


def _row(index: int, line: HistoryLine) -> Html:
    state = state_of(line)
    last = line.trend.moves[-1] if line.trend.moves else None
    unit = line.points.unit
    level = line.trend.levels[-1] if line.trend.levels else None
    cells = (
        tag("td", word(state, _STATES[state]), data_filter=state, class_=_STATES[state]),
        tag("td", tag("a", identifier(line.points.case), href=f"#line-{index}")),
        tag("td", line.title, title=line.points.metric),
        tag("td", identifier(line.points.arm)),
        tag("td", line.hardware, title=line.machine),
        tag(
            "td",
            figure("–" if level is None else quantity(level, unit)),
            data_sort=None if level is None else f"{level:.6g}",
        ),
        tag("td", figure(percent(line.trend.noise)), data_sort=f"{line.trend.noise:.4g}"),
        tag(
            "td",
            figure(_size(last) if last else "–"),
            data_sort=f"{min(last.worse, 1e9):.5g}" if last else None,
        ),
        tag("td", line.runs[last.place].at[:10] if last else "–"),
        tag("td", str(len(line.runs))),
    )
    return tag("tr", *cells, data_line=f"line-{index}")


def state_of(line: HistoryLine) -> str:
    """Return the state of a series: worse (an alarm), better or changed (its last move), steady."""
    if line.trend.alarm is not None:
        return "worse"
    if not line.trend.moves:
        return "steady"
    return "better" if line.trend.moves[-1].worse < 0 else "changed"


def _section(index: int, line: HistoryLine, sheet: Sheet) -> Html:
    heading = tag("h3", identifier(line.points.case), f" {line.title} ({line.points.arm})")
    moves = [_move(line, move, sheet.commits) for move in reversed(line.trend.moves)]
    move_list = tag("ul", *moves[:20]) if moves else tag("p", "No change was seen.", class_="muted")
    holder = tag("div", data_line=str(index), class_="trend")
    runs = tag(
        "details",
        tag("summary", "The newest runs"),
        tag("ol"),
        data_line=str(index),
        class_="listing",
    )
    parts = (
        heading,
        tag("p", line.hardware, class_="muted", title=line.machine),
        tag("figure", holder),
        move_list,
        runs,
    )
    return tag("section", *parts, id=f"line-{index}")


def _move(line: HistoryLine, move: Move, commits: str | None) -> Html:
    """Describe a move: its size, its commits and runs, and the changes of the software."""
    unit = line.points.unit
    levels = f"{quantity(move.before, unit)} → {quantity(move.after, unit)}"
    drift = f", drifting {drift_pace(move)}" if move.until is not None else ""
    parts: list[Html | str] = [
        tag("strong", _size(move)),
        f" ({levels}{drift}), ",
        _range(line, move, commits),
    ]
    changes = line.environment_of(move)
    parts += (
        [tag("div", f"The environment changed: {'; '.join(changes)}", class_="muted")]
        if changes
        else []
    )
    return tag("li", *parts)


def _range(line: HistoryLine, move: Move, commits: str | None) -> Html:
    """Return the commits around a move and their runs, as links if the addresses are known."""
    before, after = line.between(move)
    parts: list[Html | str] = [
        "after ",
        _commit(before, commits),
        " up to ",
        _commit(after, commits),
        f" ({after.at[:10]})",
    ]
    for name, run in (("run before", before), ("run after", after)):
        parts += [" · ", tag("a", name, href=run.url, rel="noreferrer")] if run.url else []
        parts += (
            [" · ", tag("a", f"report of the {name}", href=run.report, rel="noreferrer")]
            if run.report
            else []
        )
    return tag("span", *parts)


def _commit(run: Entry, commits: str | None) -> Html | str:
    if run.commit is None:
        return f"the run of {run.at}"
    shown = identifier(run.commit[:_SHORT])
    return (
        tag("a", shown, href=f"{commits}/{quote(run.commit)}", rel="noreferrer")
        if commits
        else shown
    )


def _size(move: Move) -> str:
    """Return ``2.1 % worse``; a change from zero has no size."""
    size = percent(move.worse) if math.isfinite(move.worse) else "from nothing,"
    return f"{size} {'worse' if move.worse > 0 else 'better'}"


def _passed(passed: Sequence[str]) -> Html | None:
    """List records that could not be read."""
    if not passed:
        return None
    return join(
        (tag("h2", "Passed over"), tag("ul", *(tag("li", reason) for reason in passed[:50])))
    )


def _run(run: Entry, commits: str | None) -> list[Any]:
    """Return time, commit and page of a run, for its dot and link."""
    link = (
        run.report
        or run.url
        or (f"{commits}/{quote(run.commit)}" if commits and run.commit else None)
    )
    return [run.at, (run.commit or "")[:_SHORT], link]


def _line(line: HistoryLine, place: dict[tuple[str, str], int]) -> dict[str, Any]:
    """Return a series' data for the chart.

    Levels and slopes are (first, last, level, half of the band, level at the end).

    A move is (place, in words, whether for the worse, and of a drift the place where it ends, its
    pace in a run).
    """
    moves = line.trend.moves
    starts, stops = (
        [0, *(move.end for move in moves)],
        [
            *(move.place for move in moves),
            len(line.runs),
        ],
    )
    levels = [
        _level(line, start, stop) for start, stop in zip(starts, stops, strict=True) if stop > start
    ]
    drifts = [move for move in moves if move.until is not None]
    return {
        "name": line.name,
        "title": line.called,
        "unit": line.points.unit.value,
        "runs": [place[run.at, run.id] for run in line.runs],
        "values": [float(f"{value:.5g}") for value in line.values],
        "levels": levels,
        "slopes": [_slope(line, move) for move in drifts],
        "moves": [_drawn(move) for move in moves],
        "changes": [[change.place, "; ".join(change.differences)] for change in line.changes],
        "better": "lower is better" if line.points.better is Better.LOWER else "higher is better",
    }


def _drawn(move: Move) -> list[Any]:
    step: list[Any] = [move.place, _size(move), move.worse > 0]
    if move.until is None:
        return step
    pace = float(f"{move.per_run:.4g}") if math.isfinite(move.per_run) else None
    return [move.place, f"drift, {_size(move)}", move.worse > 0, move.until, pace]


def _slope(line: HistoryLine, move: Move) -> list[float]:
    """Describe the range from the last run on the old level to the first on the new one."""
    half = _BAND * line.trend.noise * (abs(move.before) + abs(move.after)) / 2
    before, after = (float(f"{level:.6g}") for level in (move.before, move.after))
    return [move.place - 1, move.end, before, float(f"{half:.4g}"), after]


def _level(line: HistoryLine, start: int, stop: int) -> list[float]:
    ordered = sorted(line.values[start:stop])
    level = ordered[len(ordered) // 2]
    return [
        start,
        stop - 1,
        float(f"{level:.6g}"),
        float(f"{_BAND * line.trend.noise * abs(level):.4g}"),
    ]
