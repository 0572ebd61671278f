"""One column is one place: every renderer draws it, and its text is harmless in each."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_builders import REVIEWS, case, comparison, memory, pair
from rich.console import Console

from ci_bench.records.comparison import Verdict
from ci_bench.report import case_columns, cells, columns, markdown, terminal
from ci_bench.report.columns import Column, ColumnKind
from ci_bench.report.html import cases, tables
from ci_bench.report.html.cases import case_table
from ci_bench.report.html.markup import table_row
from ci_bench.report.markdown import render_comment
from ci_bench.report.rows import Row, labels, main_rows
from ci_bench.report.text import UNKNOWN

HOSTILE = "<b>@all</b> [x](//y) \x1b[31m|"
TABLES = [case_columns.MAIN, columns.METRICS, columns.ARMS, columns.PARITY, columns.OUTPUTS, columns.TENSORS, columns.CHECKS,
          columns.UNCLEAR, columns.MEANS, columns.FACTS]  # fmt: skip


def printed(shown) -> str:
    out = io.StringIO()
    terminal.print_comparison(shown, Console(file=out, width=100))
    return out.getvalue()


def test_a_new_column_of_the_main_table_shows_in_every_renderer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launches: Column[Row] = Column(
        title="Launches",
        text=lambda row: str(row.time.head.launches) if row.time and row.time.head else UNKNOWN,
        width=9,
    )
    monkeypatch.setattr(cases, "MAIN", (*case_columns.MAIN, launches))
    monkeypatch.setattr(markdown, "COMPACT", (*case_columns.COMPACT, launches))
    monkeypatch.setattr(terminal, "_COLUMNS", (*terminal._COLUMNS, launches))
    shown = comparison(case(REVIEWS, pairs=(pair(), memory())), headline="x")

    folded = render_comment(shown, marker="m").partition("<summary>All cases")[2]
    rows = [line for line in folded.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[-1] for line in rows[:3]] == ["Launches |", "--- |", "3 |"]
    page = str(case_table(shown, {one.id: "c" for one in shown.cases}))
    assert "Launches" in page
    assert ">3" in page
    assert "Launches" in printed(shown)


@pytest.mark.parametrize("shown", TABLES)
def test_titles_are_told_apart_and_capitalised(shown) -> None:
    titles = [column.title for column in shown]
    assert len({*titles}) == len(titles)
    assert all(
        title == "q" or title[0].isupper() or title.startswith("training_loss.py")
        for title in titles
    )


@pytest.mark.parametrize("kind", [ColumnKind.NAME, ColumnKind.ID, ColumnKind.PROSE])
def test_what_comes_from_outside_is_harmless_in_text_and_note(kind: ColumnKind) -> None:
    column: Column[str] = Column(title="x", text=str, kind=kind, note=str, note_kind=kind)
    markdown, page = cells.cell(column)(HOSTILE), str(table_row([tables.drawer(column)(HOSTILE)]))
    assert "<b>" not in page
    assert "\x1b" not in markdown + page
    assert kind is not ColumnKind.PROSE or ("<b>" not in markdown and "@all" not in markdown)
    assert kind is ColumnKind.PROSE or markdown.startswith("`")


def test_what_is_unknown_has_neither_note_nor_sign() -> None:
    column: Column[str] = Column(
        title="x",
        text=lambda _: UNKNOWN,
        note=str,
        mood=lambda _: next(iter(columns.Mood)),
        strong=lambda _: True,
    )
    assert cells.cell(column)("a") == UNKNOWN
    assert tables.drawer(column)("a") == UNKNOWN


def test_a_table_about_one_case_does_not_repeat_its_name() -> None:
    assert [column.title for column in columns.of_one_case(columns.CHECKS)] == [
        "Outcome",
        "Arm",
        "Check",
        "Detail",
    ]


@pytest.mark.parametrize(("verdict", "head", "text", "note"), [
    (Verdict.UNCHANGED, 1.30e9, "1.21 GiB", ""),
    (Verdict.REGRESSED, 1.45e9, "1.21 → 1.35 GiB", "12 % more"),
])  # fmt: skip
def test_memory_tells_both_sides_only_where_it_changed(verdict, head, text, note) -> None:
    column = next(column for column in case_columns.MAIN if column.title == "Peak memory")
    (row,) = main_rows(
        comparison(case(REVIEWS, pairs=(memory(verdict, head=head),), speedups=()), headline="x")
    )
    assert (column.text(row), column.note(row)) == (text, note)
    assert column.text(replace(row, memory=None)) == UNKNOWN


LABELS = {
    "what all share": (["s/a[x=1,y=2]", "s/a[x=1,y=3]"], ["a[y=2]", "a[y=3]"]),
    "a single case": (["s/a[x=1,y=2]"], ["a"]),
    "what only some have": (["s/a[x=1]", "s/a[x=1,y=3]"], ["a", "a[y=3]"]),
    "each name by itself": (["s/a[x=1]", "s/a[x=2]", "s/b[x=2]"], ["a[x=1]", "a[x=2]", "b"]),
    "no parameters, or another form": (
        ["s/a", "s/a[b", "s/b[c]", "s/b[]"],
        ["a", "a[b", "b[c]", "b[]"],
    ),
    "two suites": (["s/a[x=1]", "t/a[x=1]"], ["s/a", "t/a"]),
    "a name of another suite": (["s/s/a", "s/a"], ["s/s/a", "a"]),
}


@pytest.mark.parametrize(("ids", "shown"), LABELS.values(), ids=LABELS)
def test_a_label_is_what_tells_a_case_from_the_others_of_its_report(
    ids: list[str], shown: list[str]
) -> None:
    assert list(labels(comparison(*map(case, ids), headline="x")).values()) == shown


def test_a_case_with_a_title_goes_by_it_unless_another_is_called_so_too() -> None:
    cases = [
        case("s/a[x=1]", title="test_x.py::test[1]"),
        case("s/a[x=2]", title="the same"),
        case("s/a[x=3]", title="the same"),
        case("s/a[x=4]", title="s/b[y=1]"),
        case("s/b[y=1]"),
    ]
    shown = ["test_x.py::test[1]", "s/a[x=2]", "s/a[x=3]", "s/a[x=4]", "b"]
    assert list(labels(comparison(*cases, headline="x")).values()) == shown


@given(
    st.sets(st.from_regex(r"s/[ab](\[[xy]=[12](,[xyz]=[12]){0,2}\])?", fullmatch=True), max_size=8)
)
def test_two_cases_never_share_a_label(ids: set[str]) -> None:
    found = labels(comparison(*map(case, sorted(ids)), headline="x"))
    assert len({*found.values()}) == len(ids)
