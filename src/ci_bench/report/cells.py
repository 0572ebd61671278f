"""Rendering of values in a Markdown report: the cells of its tables, findings and facts, escaped.

Names, reasons and details come from outside and go through `code` or `plain`; which columns there
are is in `columns`.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from ci_bench.records.comparison import CaseComparison, Finding
from ci_bench.records.config import Severity
from ci_bench.records.forms import Fact
from ci_bench.report import columns
from ci_bench.report.columns import Column, ColumnKind
from ci_bench.report.text import NO_BREAK_SPACE, UNKNOWN, code, plain
from ci_bench.report.words import Mood

T = TypeVar("T")

ICONS = {
    Mood.BAD: "❌",
    Mood.OPEN: "❔",
    Mood.UNSURE: "⚠️",
    Mood.NEW: "🆕",
    Mood.BETTER: "🚀",
    Mood.GOOD: "✅",
}

_MARKS = {Severity.FAIL: "- ❌", Severity.WARN: "- ⚠️", Severity.NOTE: "-"}
_ID_CAP = 160


def _unbroken(figures: str) -> str:
    """Join figures with spaces that a narrow column cannot break at."""
    return figures.replace(" ", NO_BREAK_SPACE)


def _id(text: str) -> str:
    return code(text, cap=_ID_CAP)


_FORMS: dict[ColumnKind, Callable[[str], str]] = {
    ColumnKind.WORDS: str,
    ColumnKind.FIGURES: _unbroken,
    ColumnKind.NAME: code,
    ColumnKind.ID: _id,
    ColumnKind.PROSE: plain,
}


def case_id(case: CaseComparison) -> str:
    """Return the title or the id of a case; it may be longer than other names."""
    return _id(case.called)


def cell(column: Column[T]) -> Callable[[T], str]:
    """Return a function that draws the cells of a column: ``✅ unchanged (detail)``."""
    form, form_of_note = _FORMS[column.kind], _FORMS[column.note_kind]
    words, mood, note, strong = column.text, column.mood, column.note, column.strong
    with_icon = column.kind is ColumnKind.WORDS
    if not (with_icon and mood) and note is None and strong is None:
        return _text_alone(words, form)

    def draw(item: T) -> str:
        text = words(item)
        if text == UNKNOWN:
            return UNKNOWN
        shown = form(text)
        if strong is not None and strong(item):
            shown = f"**{shown}**"
        if with_icon and mood is not None and (how := mood(item)) is not None:
            shown = f"{ICONS[how]} {shown}"
        if note is not None and (aside := note(item)):
            shown = f"{shown} ({form_of_note(aside)})"
        return shown

    return draw


def _text_alone(words: Callable[[T], str], form: Callable[[str], str]) -> Callable[[T], str]:
    """Return a function that draws cells without a sign, stress or note, as most are."""

    def draw(item: T) -> str:
        text = words(item)
        return UNKNOWN if text == UNKNOWN else form(text)

    return draw


def fact(field: str, value: Fact) -> str:
    """Render a property of a machine."""
    text, kind = columns.fact(field, value)
    return text if kind is ColumnKind.WORDS else _FORMS[kind](text)


def finding(finding: Finding, labels: Mapping[str, str]) -> str:
    """Render a finding as an item of a list; `labels` are the short forms of the cases' ids."""
    about = "" if finding.case is None else f" · {_id(labels.get(finding.case, finding.case))}"
    return (
        f"{_MARKS[finding.severity]} **{finding.rule.replace('_', ' ')}**:"
        f" {plain(finding.message)}{about}"
    )
