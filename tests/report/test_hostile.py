"""Every text of a comparison may be written by somebody who wants to do harm."""

import io
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rendered import faults, render
from report_builders import ENDINGS
from rich.console import Console

from ci_bench.records.comparison import Comparison
from ci_bench.report.markdown import render_comment, render_report, units
from ci_bench.report.terminal import print_comparison

MARKER = "<!-- ci-bench:v1 key=default -->"
NASTY = [
    *(
        "@user",
        "@org/team",
        "a@b.com",
        "#1",
        "owner/repo#2",
        "GH-3",
        "deadbeefcafe",
        "https://evil.example",
        "www.evil.example",
    ),
    *(
        "|",
        "\\|",
        "\\",
        "`",
        "``",
        "```",
        "~~~",
        "</details>",
        "<details>",
        "</summary>",
        "<!--",
        "-->",
        "<img src=x>",
        "<b>",
        "&lt;",
    ),
    *(
        "[a](http://b)",
        "![a](b)",
        "<http://a.b>",
        "*",
        "__",
        "~~",
        "$x$",
        ":shipit:",
        "\n",
        "\r\n",
        "\n\n",
        "\t",
        "\u2028",
        "\x85",
    ),
    *(
        "\u202e",
        "\u2066",
        "\x00",
        "\x1b[31m",
        "\x1b]8;;http://a\x07",
        "\ud800",
        "\u200d",
        "\n- [ ] x",
        "\n# x",
        "\n| a | b |",
        "\n> x",
    ),
    *("\u1fef", "\u037e", "＠user", "[^1]", "mailto:a@b.c", "xmpp:a@b.c", "🚀" * 50, "x" * 200),  # noqa: RUF001 - a look-alike on purpose
]
hostile = st.lists(st.sampled_from(NASTY) | st.text(max_size=4), max_size=8).map("".join)
KEPT_KEYS = {"gpu", "torch", "cuda", "driver", "python"}


def poisoned(value: Any, text: str, seen: dict[str, str]) -> Any:
    """The same value with `text` in each of its strings; equal strings stay equal and others stay apart."""
    if isinstance(value, Enum) or (
        not isinstance(value, str | tuple | Mapping) and not is_dataclass(value)
    ):
        return value
    if isinstance(value, str):
        return seen.setdefault(value, f"x{len(seen)} {text}")
    if isinstance(value, tuple):
        return tuple(poisoned(item, text, seen) for item in value)
    if isinstance(value, Mapping):
        return {
            k if k in KEPT_KEYS else poisoned(k, text, seen): poisoned(v, text, seen)
            for k, v in value.items()
        }
    names = [field.name for field in fields(value) if field.name != "kind"]
    return replace(value, **{name: poisoned(getattr(value, name), text, seen) for name in names})  # type: ignore[type-var]


def shape(comment: str) -> tuple[Any, ...]:
    """What no text may change: tags in their order, and the cells that hold our own words and figures.

    A setting is what stands behind a bracket in an id, as code, or a dash.
    """
    tree = render(comment)
    return [tag for tag in tree.tags if tag != "code"], [_own(table) for table in tree.tables]


def _own(table: list[list[str]]) -> list[list[str]]:
    place = table[0].index("Setting") if "Setting" in table[0] else None
    return [
        ["text" if "x" in cell or column == place else cell for column, cell in enumerate(row)]
        for row in table
    ]


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=40, deadline=None)
@given(text=hostile)
def test_no_text_changes_the_shape_or_reaches_out(ending: str, text: str) -> None:
    comment = render_comment(poisoned(ENDINGS[ending](), text, {}), marker=MARKER)
    harmless = render_comment(poisoned(ENDINGS[ending](), "", {}), marker=MARKER)
    assert faults(comment) == []
    assert shape(comment) == shape(harmless)


@pytest.mark.parametrize("ending", ["failed_cases", "paired"])
@settings(max_examples=20, deadline=None)
@given(text=hostile)
def test_the_report_is_as_safe_as_the_comment(ending: str, text: str) -> None:
    assert faults(render_report(poisoned(ENDINGS[ending](), text, {}))) == []


@pytest.mark.parametrize(
    "text", ["|" * 80, "@" * 80, "🚀" * 300, "`" * 300, "$:a:" * 80, "<" * 300]
)
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_budget_holds_for_the_longest_text(ending: str, text: str) -> None:
    value: Comparison = poisoned(ENDINGS[ending](), text, {})
    for limit in (8000, 16000):
        comment = render_comment(value, marker=MARKER, limit=limit)
        assert units(comment) <= limit
        assert faults(comment) == []


@settings(max_examples=40, deadline=None)
@given(text=hostile)
def test_no_text_sends_sequences_to_the_terminal(text: str) -> None:
    shown = io.StringIO()
    print_comparison(poisoned(ENDINGS["parity_broken"](), text, {}), Console(file=shown, width=80))
    assert all(char.isprintable() or char == "\n" for char in shown.getvalue())


@pytest.mark.parametrize(
    "careless",
    [
        *(
            "hello @user",
            "see #1",
            "see GH-1",
            "https://a.b",
            "www.a.b",
            "deadbeef",
            "`a\u200bb`",
            "<b>x</b>",
            "<!-- x -->",
            "![a](b)",
        ),
        *(
            "[a](b)",
            "a\u202eb",
            "```\n@user\n```",
            "| a | b |\n| --- | --- |\n| `x|y` | z |",
            "# title",
            "- [ ] task",
            "> quote",
        ),
    ],
)
def test_the_oracle_sees_what_is_not_escaped(careless: str) -> None:
    assert faults(careless) != []
