"""The shell of every page that ci-bench writes: one HTML file with its style, scripts and data.

Owns the frame: the policy that lets nothing leave or enter the page (Content-Security-Policy), the
theme, and how data gets in. The texts of style and scripts are handed in (`page_assets` reads
them): nothing here touches a file.

A page's own script finds what it needs in ``ciBench`` (shell.js): ``ciBench.data`` is a promise of
the data, ``ciBench.chart`` draws with Observable Plot when a chart comes into view,
``ciBench.table`` makes a table searchable and sortable.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from ci_bench.report.html.markup import Html, join, tag

PLOT_STYLE = """:where(.plot-d6a7b5) {
  --plot-background: white;
  display: block;
  height: auto;
  height: intrinsic;
  max-width: 100%;
}
:where(.plot-d6a7b5 text),
:where(.plot-d6a7b5 tspan) {
  white-space: pre;
}"""
"""The one style sheet that Observable Plot 0.6.17 puts into each chart; the page's policy allows
these very bytes.
"""

PACKING = 4
"""zlib's level: a third of the time of its default, for a tenth more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assets:
    """The texts that a page is made with: its style, and its scripts in their running order."""

    style: str
    scripts: tuple[str, ...]


def render_page(*, title: str, body: Html, assets: Assets, data: Any = None) -> str:
    """Return a whole HTML document.

    `body` is the content of ``<main>``; it should begin with an ``<h1>``. `data` is any JSON value,
    without NaN; the page's script gets it from ``ciBench.data``. It travels compressed, in an
    alphabet that no HTML can hide in.
    """
    head = join(
        (
            Html('<meta charset="utf-8">'),
            tag("meta", http_equiv="Content-Security-Policy", content=policy(assets)),
            Html('<meta name="viewport" content="width=device-width,initial-scale=1">'),
            Html('<meta name="color-scheme" content="light dark">'),
            tag("title", title),
            _raw("style", assets.style),
        )
    )
    packed = Html(f'<script type="text/plain" id="data">{pack(data)}</script>')
    scripts = join(_raw("script", script) for script in assets.scripts)
    top = join((tag("a", "Skip to the content", class_="skip", href="#content"), _theme_button()))
    frame = join(
        (
            tag("header", top, class_="top"),
            tag("main", body, id="content", tabindex="-1"),
            packed,
            scripts,
        )
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{frame}</body></html>\n'


def policy(assets: Assets) -> str:
    """Return the page's policy: only its own scripts and style.

    Nothing is loaded from anywhere.
    """
    scripts = " ".join(_digests(assets.scripts))
    styles = " ".join(_digests((assets.style, PLOT_STYLE)))
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; base-uri 'none';"
        " form-action 'none'"
    )


def pack(data: Any) -> str:
    """Return JSON, compressed, in base64.

    Dataclasses become objects; copying them first would take longer than all else.
    """
    text = json.dumps(
        data, allow_nan=False, separators=(",", ":"), ensure_ascii=True, default=values_of
    )
    return base64.b64encode(zlib.compress(text.encode(), PACKING)).decode()


def values_of(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, as they are."""
    kind: Any = type(instance)
    return {name: getattr(instance, name) for name in _names(kind)}


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _digests(texts: Iterable[str]) -> list[str]:
    return [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in texts
    ]


def _raw(name: str, text: str) -> Html:
    """Return a script or a style as it is.

    Only ours and the library's: one that could end its own element is a bug.
    """
    assert not re.search(rf"</{name}|<!--", text, re.IGNORECASE), f"this {name} could end"  # noqa: S101 - only a bug of ours
    return Html(f"<{name}>{text}</{name}>")


def _theme_button() -> Html:
    return tag(
        "button", "Dark or light", type="button", class_="theme", id="theme", aria_pressed="false"
    )
