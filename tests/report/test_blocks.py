"""No more rows are written than fit, and what is cut is the same as if all had been."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_bench.report.markdown import (
    CommentBlock,
    collapsed,
    cuts,
    filling,
    fit,
    listed,
    table,
    units,
)
from ci_bench.report.text import UNKNOWN

rows_of = st.lists(st.text("ab|", min_size=1, max_size=30), max_size=30)


def test_filling_stops_once_the_room_is_full():
    written = []

    def rows():
        for number in range(1000):
            written.append(number)
            yield "x" * 10

    assert len(list(filling(rows(), 35))) == 4
    assert len(written) == 4
    assert len(list(filling(["x"] * 50, None))) == 50


@given(rows=rows_of, room=st.integers(0, 400))
def test_a_list_counts_what_it_never_wrote(rows, room):
    block = listed("things", iter(rows), len(rows), room=room)

    assert block.number == len(rows)
    assert block.rows == tuple(rows[: len(block.rows)])
    assert block.more == 0 or sum(map(len, block.rows)) > room


@given(lists=st.lists(rows_of, min_size=1, max_size=4), limit=st.integers(0, 600))
def test_what_is_cut_does_not_depend_on_what_was_never_written(lists, limit):
    whole = [
        collapsed(listed(str(i), rows, len(rows), room=None), "x") for i, rows in enumerate(lists)
    ]
    lazy = [
        collapsed(listed(str(i), rows, len(rows), room=limit), "x") for i, rows in enumerate(lists)
    ]
    kept, same = fit(whole, limit), fit(lazy, limit)

    assert [block.text for block in kept] == [block.text for block in same]
    assert cuts(whole, kept) == cuts(lazy, same)


def test_a_table_drops_columns_that_nothing_is_known_about():
    rows = [("a", "b", UNKNOWN, UNKNOWN), ("c", UNKNOWN, UNKNOWN, "1")]
    block = table("things", ("A", "B", "C", "D"), iter(rows), 2)

    assert block.text == "| A | B | D |\n| --- | --- | --- |\n| a | b | – |\n| c | – | 1 |"


def test_a_cell_that_is_empty_stays_a_cell():
    assert table("things", ("A", "B", "C"), [("", "", "x")], 1).rows == ("|  |  | x |",)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_pieces_make_the_text(number):
    block = CommentBlock(name="x", head="h", rows=("r",) * number, tail="t", between="-")

    assert "".join(block.pieces()) == block.text == "h" + "-".join("r" * number) + "t"
    assert units(block.text) == len(block.text)
