"""What GitHub's own parser makes of a comment, as a value that tests can ask, and the rules that every comment keeps."""

import re
import unicodedata
from dataclasses import dataclass, field
from html.parser import HTMLParser

from cmarkgfm import github_flavored_markdown_to_html  # type: ignore[import-untyped]  # it has no stubs
from cmarkgfm.cmark import Options  # type: ignore[import-untyped]  # it has no stubs

ALLOWED = {
    "h3",
    "p",
    "ul",
    "li",
    "strong",
    "code",
    "pre",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "sub",
}
LINKED = re.compile(r"(?i)@\w|#\w|gh-\d|://|www\.")
COMMIT = re.compile(r"(?i)[0-9a-f]{7}")
MENTION = re.compile(r"(?<!\w)@\w")


@dataclass
class Rendered(HTMLParser):
    """Tables as rows of cell texts, and the texts by where they stand."""

    tags: list[str] = field(default_factory=list)
    open_tags: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    fenced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def __hash__(self) -> int:
        return id(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag if not attrs else f"{tag} {attrs}")
        self.open_tags.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag, f"</{tag}> closes something else"

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open_tags):
            self.tables[-1][-1][-1] += data
        where = (
            self.fenced
            if "pre" in self.open_tags
            else self.code
            if "code" in self.open_tags
            else self.prose
        )
        where.append(data)


def render(markdown: str) -> Rendered:
    """The tree of a comment. Raw HTML is let through, so that it shows."""
    tree = Rendered()
    tree.feed(github_flavored_markdown_to_html(markdown, options=Options.CMARK_OPT_UNSAFE))
    tree.close()
    assert not tree.open_tags
    return tree


def faults(markdown: str) -> list[str]:
    """What in a comment could do harm: markup of others, links, mentions, invisible characters, torn tables."""
    tree = render(markdown)
    found = [f"<{tag}>" for tag in sorted(set(tree.tags) - ALLOWED)]
    found += [f"comment {text}" for text in tree.comments if not text.startswith(" ci-bench:v1 ")]
    found += [f"links: {text}" for text in tree.prose if LINKED.search(text) or COMMIT.search(text)]
    found += [f"mentions in a fence: {text}" for text in tree.fenced if MENTION.search(text)]
    found += [
        f"not to be copied: {text}" for text in tree.code if "\u200b" in text and "\\" not in text
    ]
    everything = [*tree.prose, *tree.code, *tree.fenced]
    found += [
        f"invisible: {text!r}"
        for text in everything
        if any(map(_invisible, text.replace("\n", "")))
    ]
    return found + [f"torn row: {line}" for line in _torn_rows(markdown)]


def _invisible(char: str) -> bool:
    return char != "\u200b" and unicodedata.category(char) in {"Cc", "Cf", "Cs"}


def _torn_rows(markdown: str) -> list[str]:
    """Rows with more or fewer cells than their table's head: the parser would drop or fill them silently."""
    outside = re.sub(r"(?ms)^(`{3,})$.*?^\1$", "", markdown)
    torn, width = [], 0
    for line in outside.split("\n"):
        bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        if bars and width and bars != width:
            torn.append(line)
        width = bars
    return torn
