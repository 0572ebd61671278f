"""Tables of the HTML report: rows of texts in, one element out.

Columns that nothing is known about are left out.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from html import escape
from typing import TypeVar

from ci_bench.records.forms import Fact
from ci_bench.report import columns
from ci_bench.report.columns import Column, ColumnKind, Columns
from ci_bench.report.html.markup import Child, Html, join, table_row, tag
from ci_bench.report.text import UNKNOWN

Row = Sequence[Child]
T = TypeVar("T")


def table(
    label: str, headers: Sequence[str], rows: Iterable[Row], *, names: int = 1
) -> Html | None:
    """Return a table that scrolls separately; `None` without rows.

    The first `names` columns always stay; the first names its row.
    """
    every = [list(row) for row in rows]
    if not every:
        return None
    indices = [
        index
        for index in range(len(headers))
        if index < names or any(_is_known(row[index]) for row in every)
    ]
    head = tag("thead", tag("tr", *(tag("th", headers[index], scope="col") for index in indices)))
    body = tag("tbody", *(table_row([row[index] for index in indices]) for row in every))
    return scrolling(label, tag("table", head, body))


def _is_known(content: Child) -> bool:
    return content is not None and content != UNKNOWN


def drawn(label: str, shown: Columns[T], items: Iterable[T], *, names: int = 1) -> Html | None:
    """Return a table of these columns, a row for each item; `None` without items."""
    cells = [drawer(column) for column in shown]
    return table(
        label,
        [column.title for column in shown],
        ([draw(item) for draw in cells] for item in items),
        names=names,
    )


def drawer(column: Column[T]) -> Callable[[T], Child]:
    """Return a function that draws a column's cells: the text, with the note under it."""
    form, form_of_note = _FORMS[column.kind], _FORMS[column.note_kind]
    text, mood, note = column.text, column.mood, column.note
    coloured = column.kind is ColumnKind.WORDS

    def draw(item: T) -> Child:
        words = text(item)
        if words == UNKNOWN:
            return UNKNOWN
        how = mood(item) if coloured and mood is not None else None
        shown = form(words) if how is None else word(words, how.name.lower())
        aside = note(item) if note is not None else ""
        return join((shown, tag("div", form_of_note(aside), class_="muted"))) if aside else shown

    return draw


def scrolling(label: str, content: Html) -> Html:
    """Wrap content that may be wider than the page; the keyboard can scroll it."""
    return tag("div", content, class_="wide", role="group", aria_label=label, tabindex="0")


@lru_cache(maxsize=1000)
def word(text: str, mood: str) -> Html:
    """Return a verdict: the word has the meaning, and the colour repeats it."""
    return tag("span", text, class_=f"word {mood}")


def figure(text: str) -> Child:
    """Return a cell of figures, which a narrow column must not tear apart."""
    return text if text == UNKNOWN else Html(escape(text).replace(" ", "\N{NO-BREAK SPACE}"))


@lru_cache(maxsize=5_000)
def identifier(text: str) -> Html:
    """Return a name from outside, in a fixed-width face that wraps anywhere."""
    return tag("span", text, class_="id")


_FORMS: dict[ColumnKind, Callable[[str], Child]] = {
    ColumnKind.WORDS: str,
    ColumnKind.FIGURES: figure,
    ColumnKind.NAME: identifier,
    ColumnKind.ID: identifier,
    ColumnKind.PROSE: str,
}


def folded(title: str, *content: Child) -> Html | None:
    """Return reference content, behind a line to open; nothing for no content."""
    children = [child for child in content if child is not None]
    return tag("details", tag("summary", title), *children) if children else None


def titled(title: str, *content: Child) -> Html | None:
    """Return a part of a case under its title; nothing for no content."""
    children = [child for child in content if child is not None]
    return join((tag("h4", title), *children)) if children else None


def fact(field: str, value: Fact) -> str:
    """Return a property of a machine or a case, as text."""
    return columns.fact(field, value)[0]
