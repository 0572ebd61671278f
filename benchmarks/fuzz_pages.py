"""Feeds every renderer: puts a stranger's texts into all texts of a document, and reads the page.

Markdown is read by GitHub's own parser, under the rules that the tests of the report hold every
comment to. Pages of HTML are read by `html.parser`, and must hold the elements and the attributes
of the same page with harmless texts, in the same order; so must what their packed data holds of
HTML. A finding is `Harmful`.
"""

import base64
import importlib.util
import io
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from html.parser import HTMLParser
from typing import Any

import msgspec
from rich.console import Console

from benchmarks.fuzz_readers import Harmful
from benchmarks.fuzz_seeds import EXAMPLES, ROOT, history
from ci_bench.commands.judging import material
from ci_bench.history.alarms import Alarm, alarms_of, issue_text, issue_title
from ci_bench.history.lines import HistoryLine, lines_of
from ci_bench.history.page import Sheet, render
from ci_bench.records import documents
from ci_bench.records.comparison import Comparison
from ci_bench.records.config import Policy
from ci_bench.records.history import History
from ci_bench.records.results import Results
from ci_bench.report.html.page import Assets
from ci_bench.report.html.report import render_html
from ci_bench.report.markdown import render_comment, render_report, units
from ci_bench.report.summary import badge
from ci_bench.report.terminal import print_comparison

COMMENT_LIMIT = 16_000
MOST_PAGE = 500_000
"""Bytes of a page of one case, whatever its texts are; our own scripts are left out of it."""
_ASSETS = Assets(style="a{}", scripts=("one()",))
_KEPT_KEYS = {"gpu", "torch", "cuda", "driver", "python"}
_MARKER = "<!-- ci-bench:v1 key=default -->"
_BADGE = re.compile(
    r"(?:passing|failing|[0-9,]+ (?:regressed|failing)|passing, [0-9,]+ (?:warnings?|improved))"
)
_LINKS = re.compile(r"#[a-z0-9-]+|https://github\.com/[!-~]*…?")
"""Targets of links: within the page, commits and runs; a text that is too long has an ellipsis."""

Texts = Sequence[str]
Shape = list[tuple[str, tuple[str, ...]]]


def texts_of(content: bytes) -> Texts:
    """Return an input as texts; a single text in all places would make a dull page."""
    return content.decode("utf-8", "surrogatepass" if content.isascii() else "replace").split(
        "\x1e"
    )


def poisoned(value: Any, texts: Texts, memo: dict[str, str]) -> Any:
    """Return the same value with a hostile text in each of its strings.

    Equal strings stay equal, and others stay different.
    """
    if isinstance(value, str) and not isinstance(value, Enum):
        return memo.setdefault(value, f"x{len(memo)} {texts[len(memo) % len(texts)]}")
    if isinstance(value, tuple):
        return tuple(poisoned(item, texts, memo) for item in value)
    if isinstance(value, Mapping):
        return {
            key if key in _KEPT_KEYS else poisoned(key, texts, memo): poisoned(v, texts, memo)
            for key, v in value.items()
        }
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.name not in _OURS]
        return replace(
            value, **{name: poisoned(getattr(value, name), texts, memo) for name in names}
        )
    return value


_OURS = {"kind", "started_at", "finished_at"}
"""Fields whose form the readers check."""


@cache
def _harm() -> Callable[[str], list[str]]:
    """Return the rules that the report's tests apply to every page, by GitHub's own parser."""
    spec = importlib.util.spec_from_file_location(
        "rendered", ROOT / "tests" / "report" / "rendered.py"
    )
    assert spec is not None  # noqa: S101 - the path ends in .py
    assert spec.loader is not None  # noqa: S101 - likewise
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    faults: Callable[[str], list[str]] = module.faults
    return faults


@cache
def comparison() -> Comparison:
    """Return the example."""
    return documents.read_comparison(EXAMPLES / "comparison.json")


@cache
def _results() -> Results:
    return documents.read_results(EXAMPLES / "results.json")


def is_for_the_report(content: bytes) -> bool:
    """Return whether an input is for the report, by its check sum, or for the comment."""
    return zlib.crc32(content) % 2 == 1


def markdown(content: bytes) -> bool:
    """Render the comment or the report, one of them for each input."""
    hostile = poisoned(comparison(), texts_of(content), {})
    if is_for_the_report(content):
        page = render_report(hostile)
    else:
        page = render_comment(hostile, marker=_MARKER, limit=COMMENT_LIMIT)
        if units(page) > COMMENT_LIMIT:
            raise Harmful(f"a comment of {units(page)} units, and {COMMENT_LIMIT} are the most")
    return _markup_is_ours(page)


def _markup_is_ours(page: str) -> bool:
    try:
        faults = _harm()(page)
    except AssertionError as error:  # elements that end in another order than they began
        raise Harmful(str(error)) from error
    if faults:
        raise Harmful("; ".join(faults)[:1000])
    return True


def terminal(content: bytes) -> bool:
    """Render the verdict in a terminal: nothing in it moves the cursor.

    The badge is rendered as well, and has only its own words.

    With it the badge, which has words of its own only.
    """
    hostile = poisoned(comparison(), texts_of(content), {})
    shown = io.StringIO()
    print_comparison(hostile, Console(file=shown, width=80))
    controls = {
        character
        for character in shown.getvalue()
        if not character.isprintable() and character != "\n"
    }
    if controls:
        raise Harmful(f"the terminal would be sent {controls!r}")
    if not _BADGE.fullmatch(str(badge(hostile)["message"])):
        raise Harmful(f"the badge says {badge(hostile)['message']!r}")
    return True


def html(content: bytes) -> bool:
    """Render the HTML report, with the samples of both sides."""
    return _harmless(_report(texts_of(content)), _plain_report())


def _report(texts: Texts) -> str:
    memo: dict[str, str] = {}
    both = poisoned(_results(), texts, memo)
    return render_html(
        poisoned(comparison(), texts, memo), assets=_ASSETS, material=material(both, both)
    )


@cache
def _plain_report() -> Shape:
    return _shape(_report([""]))


def trend(content: bytes) -> bool:
    """Render the page of a history."""
    return _harmless(_trend(texts_of(content)), _plain_trend())


def _trend(texts: Texts) -> str:
    lines = tuple(_poisoned_line(line, texts) for line in _lines())
    alarms = alarms_of(lines, Policy())
    reasons = tuple(f"x {text}" for text in texts[:20])
    sheet = Sheet(
        title=f"x {texts[0]}",
        lines=lines,
        alarms=alarms,
        passed=(*reasons, "x")[:1],
        commits="https://github.com/o/r/commit",
    )
    return render(sheet, _ASSETS)


def _poisoned_line(line: HistoryLine, texts: Texts) -> HistoryLine:
    """Return a line of a history with hostile names, commits and addresses.

    Addresses of runs are those that a reader accepts.
    """
    memo: dict[str, str] = {}
    runs = tuple(
        replace(run, commit=f"x {texts[0]}", id=f"x{place} {texts[-1]}")
        for place, run in enumerate(line.runs)
    )
    names = {"case", "suite", "metric", "arm"}
    points = replace(
        line.points, **{name: poisoned(getattr(line.points, name), texts, memo) for name in names}
    )
    changes = tuple(
        replace(change, differences=poisoned(change.differences, texts, memo))
        for change in line.changes
    )
    return replace(
        line,
        hardware=poisoned(line.hardware, texts, memo),
        points=points,
        runs=runs,
        changes=changes,
    )


@cache
def _plain_trend() -> Shape:
    return _shape(_trend([""]))


@cache
def _lines() -> tuple[HistoryLine, ...]:
    machine = {"device": "cuda", "gpu": "NVIDIA H200", "driver": "570.1"}
    parsed = msgspec.convert(history((machine, {**machine, "driver": "571"})), History)
    return lines_of(parsed, least=lambda _: 0.01)


def issue(content: bytes) -> bool:
    """Render the issue about a trend.

    A machine and its software may have any name; other names are of a fixed alphabet.
    """
    texts = texts_of(content)
    alarms = tuple(_poisoned_alarm(alarm, texts) for alarm in alarms_of(_lines(), Policy()))
    if len(issue_title(alarms).splitlines()) != 1:
        raise Harmful("a title of several lines")
    return _markup_is_ours(issue_text(alarms))


def _poisoned_alarm(alarm: Alarm, texts: Texts) -> Alarm:
    memo: dict[str, str] = {}
    line = alarm.line
    changes = tuple(
        replace(change, differences=poisoned(change.differences, texts, memo))
        for change in line.changes
    )
    runs = tuple(
        replace(run, url=None, commit=None) for run in line.runs
    )  # which become links on purpose
    hostile = replace(
        line, hardware=poisoned(line.hardware, texts, memo), changes=changes, runs=runs
    )
    return replace(alarm, line=hostile, confirmed=poisoned("x", texts, memo))


class _Elements(HTMLParser):
    """Start tags with the names of their attributes, and where links lead."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: Shape = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))
        for name, value in attrs:
            if name == "href" and not _LINKS.fullmatch(value or ""):
                raise Harmful(f"a link leads to {value!r:.300}")

    def handle_comment(self, data: str) -> None:
        raise Harmful(f"a comment says {data!r:.300}")


def _shape(page: str) -> Shape:
    """Return the elements of a page, and of the HTML that it unpacks."""
    (blob,) = re.findall(r'<script type="text/plain" id="data">([A-Za-z0-9+/=]*)</script>', page)
    data = json.loads(zlib.decompress(base64.b64decode(blob)))
    elements: Shape = []
    for part in (page, *(case["html"] for case in data.get("cases", ()))):
        parser = _Elements()
        parser.feed(part)
        parser.close()
        elements += parser.found
    return elements


def _harmless(page: str, expected: Shape) -> bool:
    shape = _shape(page)
    if shape != expected:
        difference = next(
            (pair for pair in zip(expected, shape, strict=False) if pair[0] != pair[1]),
            (len(expected), len(shape)),
        )
        raise Harmful(f"the page holds {difference[1]}, where a harmless one has {difference[0]}")
    if len(page.encode()) > MOST_PAGE:
        raise Harmful(f"a page of {len(page.encode()):,} bytes, and {MOST_PAGE:,} are the most")
    return True
