"""Escaping and figures, in tables."""

import html
import math

import pytest
from cmarkgfm import github_flavored_markdown_to_html  # type: ignore[import-untyped]  # it has no stubs
from hypothesis import given
from hypothesis import strategies as st
from rendered import render

from ci_bench.records.comparison import Interval
from ci_bench.records.results import Unit
from ci_bench.report import text

Z = "\u200b"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "`plain`"),
        ("a`b``c", "```a`b``c```"),
        ("`a", "`` `a ``"),
        ("@user", "`@user`"),
        ("owner/repo#1", "`owner/repo#1`"),
        ("https://x.y", "`https://x.y`"),
        ("gate --base 0123456789abcdef", "`gate --base 0123456789abcdef`"),
        ("two\r\nlines\u2028more", "`two lines more`"),
        ("a\x1b[31mred\x1b[0m\u202eb\x00", "`aredb`"),
        ("lone \ud800 surrogate", "`lone surrogate`"),
        ("e\u0301", "`é`"),
        ("\u1fef", "`` ` ``"),
        ("", "–"),
        ("\u200b\u2066", "–"),
    ],
)
def test_code_shows_text_and_nothing_else(raw: str, shown: str) -> None:
    assert text.code(raw) == shown


@pytest.mark.parametrize(
    ("raw", "cap", "shown"),
    [
        ("the machine was busy", 20, "the machine was busy"),
        ("the machine was busy", 19, "the machine was…"),
        ("the machine, was busy", 15, "the machine…"),
        ("stop other work on this machine", 30, "stop other work on this…"),
        ("a abcdefghijklmnopqrstuvwxyz", 20, "a abcdefghijklmnopq…"),
        ("abcdefghijklmnopqrstuvwxyz", 5, "abcd…"),
    ],
)
def test_words_stay_whole(raw, cap, shown) -> None:
    assert text.clean(raw, cap=cap) == shown
    assert len(text.clean(raw, cap=cap)) <= cap


def test_code_is_capped() -> None:
    assert text.code("x" * 81) == f"`{'x' * 79}…`"
    assert text.code("x" * 80) == f"`{'x' * 80}`"


@given(st.text())
def test_code_renders_as_one_span_with_the_cleaned_text(raw: str) -> None:
    tree = render(f"a {text.code(raw)} b")
    cleaned = text.clean(raw)
    if cleaned:
        assert "".join(tree.code) == cleaned
    assert "".join(tree.prose).strip() == ("a  b" if cleaned else "a – b")


@given(st.text())
def test_plain_renders_as_the_cleaned_text(raw: str) -> None:
    rendered = github_flavored_markdown_to_html(f"a {text.plain(raw)} b")
    assert (
        html.unescape(rendered.replace(Z, "")) == f"<p>a {text.clean(raw, cap=300) or '–'} b</p>\n"
    )


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a < b > c & d", "a &lt; b &gt; c &amp; d"),
        ("x|y_z*", "x&#124;y\\_z\\*"),
        ("see [a](b) :tada:", f"see \\[a\\](b) :{Z}tada:"),
        ("at @user", f"at @{Z}user"),
        ("owner/repo#1 gh-12", f"owner/repo\\#{Z}1 gh-{Z}12"),
        ("https://x.y www.x.y", f"https:{Z}//x.y www{Z}.x.y"),
        ("0123456789abcdef", f"012345{Z}6789ab{Z}cdef"),
        ("x" * 301, "x" * 299 + "…"),
    ],
)
def test_plain_escapes_markup(raw: str, shown: str) -> None:
    assert text.plain(raw) == shown


@pytest.mark.parametrize("raw", ["a|b", r"a\|b", r"a\\|b", "|", r"\|", "`|`", "a|b`c"])
def test_bars_stay_within_their_cell(raw: str) -> None:
    table = "\n".join(
        [
            text.row(["h", "i"]),
            "| --- | --- |",
            text.row([text.code(raw), "last"]),
            text.row([text.plain(raw), "last"]),
        ]
    )
    for cells in render(table).tables[0][1:]:
        assert [cell.replace(Z, "") for cell in cells] == [raw, "last"]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("one\ntwo", "```\none\ntwo\n```"),
        ("```\nx\n````", "`````\n```\nx\n````\n`````"),
        ("hello @user, see a@sha256:1", f"```\nhello @{Z}user, see a@sha256:1\n```"),
        ("\tx  = 1\n    ^^^", "```\n    x  = 1\n    ^^^\n```"),
    ],
)
def test_a_fence_holds_the_log(raw: str, shown: str) -> None:
    assert text.fence(raw) == shown


def test_a_fence_keeps_the_last_lines() -> None:
    assert text.fence("1\n2\n3", lines=2) == "```\n2\n3\n```"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0.0, "0 s"),
        (1e-7, "0.100 µs"),
        (8.421e-4, "842 µs"),
        (9.996e-4, "1.00 ms"),
        (0.1328, "133 ms"),
        (0.9999, "1.00 s"),
        (1.5, "1.50 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_seconds(value: float | None, shown: str) -> None:
    assert text.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0 B"),
        (512, "512 B"),
        (1000, "0.977 KiB"),
        (1023 * 2**20, "0.999 GiB"),
        (1.3e9, "1.21 GiB"),
        (5e15, "4,547 TiB"),
    ],
)
def test_bytes(value: float | None, shown: str) -> None:
    assert text.bytes_(value) == shown


@pytest.mark.parametrize(
    ("share", "signed", "shown"),
    [
        (None, True, "–"),
        (0.031, False, "3.1 %"),
        (0.031, True, "+3.1 %"),
        (-0.02, False, "−2.0 %"),
        (0.0001, True, "0.0 %"),
        (-0.0001, True, "0.0 %"),
        (0.0996, True, "+10 %"),
        (0.124, True, "+12 %"),
        (12.0, False, "1,200 %"),
    ],
)
def test_percent(share: float | None, signed: bool, shown: str) -> None:
    assert text.percent(share, signed=signed) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (1.08, "1.08×"), (0.5231, "0.523×"), (12.34, "12.3×"), (float("inf"), "–")],
)
def test_ratio(value: float | None, shown: str) -> None:
    assert text.ratio(value) == shown


def test_an_interval_names_its_unit_once() -> None:
    assert text.interval(Interval(low=1.051, high=1.112, level=0.95)) == "1.05 to 1.11×"
    assert (
        text.interval(Interval(low=0.0009, high=0.0011, level=0.95), text.seconds)
        == "900 µs to 1.10 ms"
    )
    assert text.interval(None) == "–"


@pytest.mark.parametrize(
    ("unit", "shown"),
    [
        (Unit.SECONDS, "2.00 s"),
        (Unit.BYTES, "2 B"),
        (Unit.COUNT, "2"),
        (Unit.PER_SECOND, "2.00 /s"),
    ],
)
def test_every_unit_has_a_form(unit: Unit, shown: str) -> None:
    assert text.quantity(2.0, unit) == shown
    assert text.quantity(None, unit) == "–"


def plain_digits(value: float) -> str:
    """The long way: round, then choose the decimals by the size."""
    rounded = float(f"{value:.3g}")
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    shown = f"{value:,.0f}" if decimals == 0 else f"{rounded:.{decimals}f}"
    return shown.replace("-", "−")


@given(
    st.floats(1e-9, 1e9)
    .flatmap(lambda x: st.sampled_from([x, -x, round(x), round(x) + 0.5]))
    .filter(bool)
)
def test_three_significant_digits_the_short_way_are_those_of_the_long_way(value: float) -> None:
    assert text.rate(value) == f"{plain_digits(value)} /s"


LIMITS = (1.0, 1e-3, 1e-6, 1000 / 1024, 1000.0, 1024.0 * 1000, 1024.0**2 * 1000, 1e12)


@given(st.sampled_from(LIMITS), st.floats(0.98, 1.02) | st.floats(0, 1e20))
def test_what_reaches_a_unit_is_what_does_once_it_is_rounded(limit: float, share: float) -> None:
    size = limit * share
    assert text._reaches(size, limit) is (float(f"{size:.3g}") >= limit)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0.99949, "999 ms"),
        (0.99951, "1.00 s"),
        (0.9996e-3, "1.00 ms"),
        (0.0009995, "1.00 ms"),
        (0.9995, "1.00 s"),
        (1e-12, "0.00000100 µs"),
    ],
)
def test_a_duration_is_in_the_unit_that_its_rounded_figure_is_one_of(
    size: float, shown: str
) -> None:
    assert text.seconds(size) == shown


@pytest.mark.parametrize(
    "raw", ["GH-1", "gH-1", "WWW.x", "wWw.x", "ABCDEF0", "abcDEF0123", "0000000"]
)
def test_links_are_seen_in_any_case(raw: str) -> None:
    assert text._LINKED.search(raw)
    assert text._may_link(f"({raw})")


@given(st.text("@#:/ghGHw.-0123456789abcdefxyz", max_size=12))
def test_the_quick_look_for_links_misses_none(raw: str) -> None:
    assert text._may_link(raw) or not text._LINKED.search(raw)


def test_a_share_beyond_a_million_per_cent_is_not_written_out():
    assert text.percent(5.36e65) == "over 1,000,000 %"
    assert text.percent(2.9e25, signed=True) == "over +1,000,000 %"
    assert text.percent(45.2) == "4,520 %"
