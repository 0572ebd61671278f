"""HTML that is safe by construction: text becomes markup only through `tag`, which escapes it.

Owns escaping. Nothing else in the package writes an angle bracket around a value.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from html import escape
from typing import NamedTuple

from ci_bench.report.text import clean

LONGEST = 4000
"""Characters of one text; a log line or a command is shorter."""

_NO_END_NEEDED = {"td", "th", "tr", "li", "dt", "dd", "option", "thead", "tbody"}
"""HTML lets their end tags be left out, which keeps a page of many tables small."""
_BARE = re.compile(r"[A-Za-z0-9.:_-]+")
"""Characters of an attribute that needs no quotation marks."""
_WITHOUT_END = {*_NO_END_NEEDED, "input", "meta", "br"}


class Html(NamedTuple):
    """Markup that may be put into a page as it is. `str(html)` is its text."""

    markup: str

    def __str__(self) -> str:
        """Return the markup."""
        return self.markup


Child = Html | str | None
"""Markup stays as it is, text is escaped, `None` is nothing."""


def tag(name: str, *children: Child, **attributes: str | bool | None) -> Html:
    """Make an element.

    ``class_`` becomes ``class``, ``aria_label`` ``aria-label``; `True` gives an attribute without a
    value, `False` is left out.

    Text comes out as one line of visible characters (`report.text.clean`), escaped; a space at an
    end stays.
    """
    words = ""
    if attributes:
        words = "".join(
            [
                _attribute(key, value)
                for key, value in attributes.items()
                if value not in {None, False}
            ]
        )
    end = "" if name in _WITHOUT_END else f"</{name}>"
    return Html(f"<{name}{words}>{''.join(map(_child, children))}{end}")


def table_row(contents: Iterable[Child]) -> Html:
    """Return a row of a table, a cell for each content.

    A content that is already a cell stays as it is.
    """
    return Html(f"<tr>{''.join(map(_cell, contents))}")


def _cell(content: Child) -> str:
    inside = _child(content)
    is_cell = isinstance(content, Html) and inside.startswith(("<td", "<th"))
    return inside if is_cell else f"<td>{inside}"


def join(parts: Iterable[Child], between: str = "") -> Html:
    """Join several pieces; `between` is text."""
    return Html(escape(between).join(map(_child, parts)))


def lines(text: str, *, last: int | None = None) -> Html:
    """Return an untrusted log or command within ``<pre>``, or its `last` lines.

    Lines and columns stay as they are.
    """
    every = text.splitlines()
    tail = every if last is None else every[-last:]
    return Html("\n".join(escape(_line(line)) for line in tail))


def _line(line: str) -> str:
    indent = len(line) - len(line.lstrip(" \t"))
    body = "  ".join(clean(word, cap=LONGEST) for word in line[indent:].split("  "))
    return " " * min(len(line[:indent].expandtabs(4)), 200) + body


def _child(child: Child) -> str:
    if isinstance(child, Html):
        return child.markup
    return "" if child is None else _text(child)


@lru_cache(maxsize=5_000)
def _text(child: str) -> str:
    before, after = (" " if end.isspace() else "" for end in (child[:1], child[-1:]))
    body = escape(clean(child, cap=LONGEST))
    return f"{before}{body}{after}" if body else before


@lru_cache(maxsize=5_000)
def _attribute(key: str, value: str | bool | None) -> str:  # noqa: FBT001 - an attribute's value, as `tag` takes it
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = clean(str(value), cap=LONGEST)
    return f" {name}={text}" if _BARE.fullmatch(text) else f' {name}="{escape(text)}"'
