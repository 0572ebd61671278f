"""The shell of a page, as text: what it lets in and out, and that nothing in it can end early."""

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_bench.commands.page_assets import page_assets
from ci_bench.report.html.markup import Html, join, lines, tag
from ci_bench.report.html.page import Assets, pack, policy, render_page

SMALL = Assets(style="a{}", scripts=("one()", "two()"))
VENDORED = (
    "f2094bbf6141b359722c4fe454eb6c4b0f0e42cc10cc7af921fc158fceb86539",
    "4358086467740777dd788d6b27a95cebdbaefdd50c730a3060117073bd7134cb",
)
"""SHA-256 of d3 7.9.0 and Observable Plot 0.6.17, as vendor/README.md has them."""
hostile = st.text() | st.lists(
    st.sampled_from(
        ["<", ">", "&", '"', "'", "</script>", "<!--", "-->", " on=x ", "`", "\x00", "\n", "\u2028"]
    )
).map("".join)


class Elements(HTMLParser):
    """The start tags with their attributes, and the text, as a browser would read them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.comments: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)

    def handle_comment(self, data):
        self.comments.append(data)


def parsed(markup: str) -> Elements:
    elements = Elements()
    elements.feed(markup)
    elements.close()
    return elements


def unpacked(page: str):
    (blob,) = re.findall(r'<script type="text/plain" id="data">([A-Za-z0-9+/=]*)</script>', page)
    return json.loads(zlib.decompress(base64.b64decode(blob)))


@given(text=hostile, value=hostile)
def test_text_and_attributes_stay_what_they_are(text: str, value: str) -> None:
    elements = parsed(str(tag("p", text, title=value)))
    assert [name for name, _ in elements.found] == ["p"]
    assert set(elements.found[0][1]) <= {"title"}
    assert elements.comments == []


@given(text=hostile)
def test_a_log_keeps_its_lines_and_is_only_text(text: str) -> None:
    elements = parsed(str(tag("pre", lines(text))))
    assert [name for name, _ in elements.found] == ["pre"]
    assert "".join(elements.text).count("\n") == max(0, len(text.splitlines()) - 1)


def test_a_log_keeps_its_columns() -> None:
    assert str(lines("def f():\n    x = 1\n    ~~^~~")) == "def f():\n    x = 1\n    ~~^~~"
    assert str(lines("a\nb\nc", last=2)) == "b\nc"


def test_attributes_are_bare_only_where_html_allows_it() -> None:
    assert (
        str(tag("a", "x", href="#case-1", class_="id", open=True, hidden=False, title=None))
        == '<a href="#case-1" class=id open>x</a>'
    )
    assert str(tag("a", "x", title="a b")) == '<a title="a b">x</a>'
    assert str(tag("td", "x")) == "<td>x"
    assert str(join(("a", Html("<b>"), None), " & ")) == "a &amp; <b> &amp; "


def test_the_policy_names_every_script_and_style_by_its_digest_and_nothing_else() -> None:
    told = policy(SMALL)
    assert told.startswith("default-src 'none'; ")
    for text in (SMALL.style, *SMALL.scripts):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in told
    assert not re.search(r"unsafe|http|\*|data:|blob:", told)


def test_a_page_has_one_heading_place_and_its_data_in_an_alphabet_without_markup() -> None:
    page = render_page(
        title="</title><script>x</script>",
        body=tag("h1", "Hello"),
        assets=SMALL,
        data={"x": "</script>"},
    )
    elements = parsed(page)
    assert [name for name, _ in elements.found].count("script") == 3
    assert unpacked(page) == {"x": "</script>"}
    assert ("html", {"lang": "en"}) in elements.found
    assert (
        "meta",
        {"name": "viewport", "content": "width=device-width,initial-scale=1"},
    ) in elements.found


def test_data_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        pack({"x": float("nan")})


@pytest.mark.parametrize("script", ["x = '</script>'", "<!-- x", "</SCRIPT "])
def test_a_script_that_could_end_its_element_is_a_bug(script: str) -> None:
    with pytest.raises(AssertionError, match="could end"):
        render_page(title="x", body=tag("p", "x"), assets=Assets(style="", scripts=(script,)))


def test_the_library_is_the_one_that_was_reviewed_and_asks_for_nothing() -> None:
    assets = page_assets("report.js")
    assert (
        tuple(hashlib.sha256(text.encode()).hexdigest() for text in assets.scripts[:2]) == VENDORED
    )
    for own in (*assets.scripts[2:], assets.style):
        assert not re.search(
            r"https?:|fetch\(|XMLHttp|WebSocket|import\(|@import|url\(|eval\(|localStorage", own
        )
