"""Tables of the HTML report: rows of texts in, one element out. Columns that nothing is known about are left out."""

from collections.abc import Iterable, Sequence
from html import escape

from ci_bench.records.results import Fact
from ci_bench.report.html.markup import Child, Html, join, tag
from ci_bench.report.text import UNKNOWN, bytes_

Row = Sequence[Child]


def table(label: str, headers: Sequence[str], rows: Iterable[Row], *, names: int = 1) -> Html | None:
    """A table that scrolls by itself; `None` without rows. The first `names` columns always stay; the first names its row."""
    every = [list(row) for row in rows]
    if not every:
        return None
    kept = [index for index in range(len(headers)) if index < names or any(row[index] not in {UNKNOWN, None} for row in every)]
    head = tag("thead", tag("tr", *(tag("th", headers[index], scope="col") for index in kept)))
    body = tag("tbody", *(tag("tr", *(cell(row[index]) for index in kept)) for row in every))
    return scrolling(label, tag("table", head, body))


def cell(content: Child) -> Html:
    """A cell; one that is already an element of a table stays as it is."""
    is_cell = isinstance(content, Html) and content.markup.startswith(("<td", "<th"))
    return content if is_cell and isinstance(content, Html) else tag("td", content)


def scrolling(label: str, content: Html) -> Html:
    """What may be wider than the page; the keyboard can scroll it."""
    return tag("div", content, class_="wide", role="group", aria_label=label, tabindex="0")


def word(text: str, mood: str) -> Html:
    """A verdict: the word says it, the colour only repeats it."""
    return tag("span", text, class_=f"word {mood}")


def figure(text: str) -> Child:
    """A cell of figures, which a narrow column must not tear apart."""
    return text if text == UNKNOWN else Html(escape(text).replace(" ", "\N{NO-BREAK SPACE}"))


def identifier(text: str) -> Html:
    """A name from outside, in a fixed-width face that wraps anywhere."""
    return tag("span", text, class_="id")


def folded(title: str, *content: Child) -> Html | None:
    """What is only looked up, behind a line to open; nothing for no content."""
    kept = [one for one in content if one is not None]
    return tag("details", tag("summary", title), *kept) if kept else None


def titled(title: str, *content: Child) -> Html | None:
    """A part of a case under its title; nothing for no content."""
    kept = [one for one in content if one is not None]
    return join((tag("h4", title), *kept)) if kept else None


def fact(field: str, value: Fact) -> str:
    """A property of a machine or a case, as text."""
    if value is None or isinstance(value, bool):
        return {None: UNKNOWN, True: "yes", False: "no"}[value]
    if isinstance(value, str):
        return value
    if field.endswith("_bytes"):
        return bytes_(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
