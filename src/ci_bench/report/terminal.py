"""The verdict for a person at a terminal; the only module that prints.

Owns the layout at 80 columns. If the console is not a terminal, rich leaves out colours and the
text stays the same. Names and reasons go through `clean`, so a document cannot send sequences to
the terminal.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ci_bench.records.comparison import Comparison, Verdict
from ci_bench.records.config import Severity
from ci_bench.report.case_columns import MAIN
from ci_bench.report.causes import explained, reproduced
from ci_bench.report.changes import RUN, SHOWN, changes, first_regressions, of_run, rest
from ci_bench.report.columns import Column, of_modes
from ci_bench.report.modes import modes
from ci_bench.report.next_step import next_step
from ci_bench.report.rows import Row, labels, main_rows, outcome_mood
from ci_bench.report.summary import summary
from ci_bench.report.text import UNKNOWN, clean
from ci_bench.report.time_spent import TimeSpent
from ci_bench.report.words import Mood, parity_mood, training, trainings

_MARKS = {
    Mood.BAD: "✘",
    Mood.OPEN: "?",
    Mood.UNSURE: "!",
    Mood.NEW: "+",
    Mood.BETTER: "▲",
    Mood.GOOD: "✔",
}
_STYLES = {
    Mood.BAD: "bold red",
    Mood.OPEN: "magenta",
    Mood.UNSURE: "yellow",
    Mood.NEW: "cyan",
    Mood.BETTER: "green",
    Mood.GOOD: "green",
}
_SEVERITY_MOODS = {Severity.FAIL: Mood.BAD, Severity.WARN: Mood.UNSURE}
_COLUMNS = tuple(column for column in MAIN if column.width)
_SHOWN_CASES = 30

T = TypeVar("T")

_SHOWN_FINDINGS = 10
_ARMS_ABREAST = 3


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the whole report.

    It has the headline, changes with their causes, the rest in a sentence, statistics, every case,
    and the next step.
    """
    how = outcome_mood(comparison)
    console.print(_marked(how, clean(comparison.judgement.headline, cap=300), coloured=True))
    if (
        comparison.base is None
        and comparison.absence
        and comparison.absence not in comparison.judgement.headline
    ):
        console.print(
            f"No baseline: {clean(comparison.absence, cap=300)}", markup=False, highlight=False
        )
    _print_mismatches(comparison, console)
    _print_changes(comparison, console)
    for line in (rest(comparison), *summary(comparison)[:_SHOWN_FINDINGS]):
        if line:
            console.print(Text(clean(line, cap=300)))
    _print_cases(comparison, console)
    _print_modes(comparison, console)
    _print_parity(comparison, console)
    _print_next_step(comparison, console)


def _print_mismatches(comparison: Comparison, console: Console) -> None:
    for mismatch in comparison.mismatches:
        base, head = (
            "unknown" if fact is None else clean(str(fact))
            for fact in (mismatch.base, mismatch.head)
        )
        text = f"{clean(mismatch.field)}: {base} on base, {head} on head"
        console.print(_item(Mood.UNSURE, text))


def _print_cases(comparison: Comparison, console: Console) -> None:
    """Print a line for each case and a table under it; the columns of all tables are aligned."""
    grouped = {
        case: list(rows)
        for case, rows in groupby(main_rows(comparison), key=lambda row: row.case.id)
    }
    for rows in list(grouped.values())[:_SHOWN_CASES]:
        console.print()
        console.print(_heading(rows))
        if any(row.time or row.memory for row in rows):
            console.print(Padding(_arms_table(rows), (0, 0, 0, 2), expand=False))
            if rows[0].case.verdict in {Verdict.INCONCLUSIVE, Verdict.SUSPECTED}:
                console.print(
                    Padding(Text(clean(rows[0].case.reason, cap=300)), (0, 0, 0, 2), expand=False)
                )
        elif rows[0].case.reason:
            console.print(
                Padding(Text(clean(rows[0].case.reason, cap=300)), (0, 0, 0, 2), expand=False)
            )
    _print_hidden(len(grouped) - _SHOWN_CASES, "cases", console)


def _heading(rows: list[Row]) -> Table:
    """Return the case and its verdict; a long name continues under itself."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    name = f"{clean(rows[0].label, cap=160)}: {rows[0].word}{_marks(rows)}"
    grid.add_row(
        Text(_MARKS[rows[0].mood], _STYLES[rows[0].mood]), Text(name, "bold", overflow="fold")
    )
    return grid


def _marks(rows: list[Row]) -> str:
    """Return the marks of all arms of a case, each once."""
    return "".join(f", {marks}" for marks in dict.fromkeys(row.marks for row in rows) if marks)


def _arms_table(rows: list[Row]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    for column in _COLUMNS:
        table.add_column(column.title, width=column.width, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(column, row) for column in _COLUMNS))
    return table


def _cell(column: Column[T], row: T) -> Text:
    """Return a column's text, and its note under it."""
    note = column.note(row) if column.note else ""
    lines = [column.text(row), *([note] if note else [])]
    how = column.mood(row) if column.mood else None
    return Text(
        "\n".join(_short(line, 2 * column.width) for line in lines),
        "" if how is None else _STYLES[how],
    )


def _short(text: str, width: int) -> str:
    """Shorten a text to two lines, from its start.

    Of a long name, such as a function's path, the end tells most.
    """
    shown = clean(text, cap=200)
    return shown if len(shown) <= width else f"…{shown[1 - width :]}"


def _print_modes(comparison: Comparison, console: Console) -> None:
    """Print compiled arms side by side, up to `_ARMS_ABREAST` in a table."""
    for suite_modes in modes(comparison):
        _print_title(
            f"Compile modes of {clean(suite_modes.suite)}: speedup over the reference", console
        )
        case, _, *arms = of_modes(suite_modes.arms)
        for part in (
            arms[place : place + _ARMS_ABREAST] for place in range(0, len(arms), _ARMS_ABREAST)
        ):
            table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
            for column in (case, *part):
                table.add_column(Text(clean(column.title)), width=column.width, overflow="fold")
            for row in suite_modes.rows[-_SHOWN_CASES:]:
                table.add_row(*(_cell(column, row) for column in (case, *part)))
            console.print(Padding(table, (0, 0, 0, 2), expand=False))
        _print_hidden(len(suite_modes.rows) - _SHOWN_CASES, "cases", console)


def _print_parity(comparison: Comparison, console: Console) -> None:
    short = labels(comparison)
    items = sorted(
        ((case, p) for case in comparison.cases for p in trainings(case)),
        key=lambda item: parity_mood(item[1]),
    )
    if items:
        _print_title("Loss parity", console)
    for case, finding in items[:_SHOWN_CASES]:
        text = f"{clean(finding.arm)} of {clean(short[case.id], cap=160)}: {training(finding)}"
        console.print(_item(parity_mood(finding), text))
        if (
            finding.recorded is not None
        ):  # a log: what was read of it, and what a change would have scored
            console.print(Padding(Text(clean(finding.detail, cap=600)), (0, 0, 0, 4), expand=False))
    _print_hidden(len(items) - _SHOWN_CASES, "arms", console)


def _print_changes(comparison: Comparison, console: Console) -> None:
    """Print the rows of the comment's first table as lines.

    Causes follow the first row of a case.
    """
    run_findings = of_run(comparison)
    for finding in run_findings[:_SHOWN_FINDINGS]:
        console.print(_item(_SEVERITY_MOODS[finding.severity], clean(finding.message, cap=300)))
    _print_hidden(len(run_findings) - _SHOWN_FINDINGS, "findings", console)
    rows = changes(comparison)
    explained_cases = {case.id for case in first_regressions(rows)}
    for row in rows[:SHOWN]:
        arm = f" ({row.arm})" if row.arm else ""
        figures = f"{row.base} → {row.head}, " if UNKNOWN not in {row.base, row.head} else ""
        text = f"{row.label}: {row.subject}{arm} {figures}{row.change}"
        if row.word not in {"regressed", "improved", "undecided", "may be worse"}:
            subject = "" if row.subject == RUN else f"{row.subject}{arm}: "
            text = f"{row.label}: {row.word}: {subject}{figures}{row.change}"
        console.print(_item(row.mood, clean(text, cap=500)))
        if row.case is not None and row.case.id in explained_cases:
            explained_cases.discard(row.case.id)
            why = (
                *explained(row.case, name=clean, prose=clean),
                *reproduced(row.case, name=clean, prose=clean),
            )
            for line in why:
                console.print(Padding(Text(clean(line, cap=600)), (0, 0, 0, 4), expand=False))
    _print_hidden(len(rows) - SHOWN, "changes", console)


def _print_next_step(comparison: Comparison, console: Console) -> None:
    step = next_step(comparison)
    if step is None:
        return
    _print_title("Next", console)
    console.print(Padding(Text(clean(step.text, cap=400)), (0, 0, 0, 2), expand=False))
    if step.command:
        console.print(Text(f"  {clean(step.command, cap=2000)}"), soft_wrap=True)


def _print_title(title: str, console: Console) -> None:
    console.print()
    console.print(Text(title, "bold"))


def _print_hidden(number: int, what: str, console: Console) -> None:
    if number > 0:
        console.print(f"  … and {number:,} more {what}; report.md has them all.", highlight=False)


def _marked(how: Mood, text: str, *, coloured: bool = False) -> Text:
    return Text.assemble(
        (f"{_MARKS[how]} ", _STYLES[how]), (text, _STYLES[how] if coloured else "bold")
    )


def _item(how: Mood, text: str) -> Padding:
    """Return an item of a list, its further lines indented."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(Text(_MARKS[how], _STYLES[how]), Text(text, overflow="fold"))
    return Padding(grid, (0, 0, 0, 2), expand=False)


_BAR = 16
"""Characters of the longest; with the names before it a row fits into 80."""


def print_time(names: Sequence[str], spent: TimeSpent, console: Console) -> None:
    """Print where the time of a run went.

    It is a table with a bar for each row, and the useful share under it.
    """
    if not spent.rows:
        console.print(
            "These results don't say where the time went: they are of an earlier ci-bench, or of"
            " another tool."
        )
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for title in ("Stage", "Phase", *(f"{name} (s)" for name in names), ""):
        table.add_column(title, justify="right" if title.endswith("(s)") else "left", no_wrap=True)
    longest = max(sum(seconds) for _, _, seconds in spent.rows) or 1.0
    for stage, phase, seconds in spent.rows:
        bar = "█" * round(_BAR * sum(seconds) / longest)
        table.add_row(stage, phase, *(f"{side_s:.1f}" for side_s in seconds), bar)
    console.print(table)
    if spent.share:
        console.print(spent.share)
