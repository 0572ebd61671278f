"""Escaping and formatting: untrusted text made harmless in Markdown, numbers made readable.

Owns every character that reaches a report from outside. It knows nothing of comparisons, and it
does not decide which text is trusted: whatever comes out of a document is not.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from typing import TypeGuard

from ci_bench.records.comparison import Interval
from ci_bench.records.results import Unit
from ci_bench.records.units import UNITS

UNKNOWN = "–"
ZERO_WIDTH_SPACE = "\u200b"
NO_BREAK_SPACE = "\u00a0"

_THOUSAND = 1000
_BELOW_TEN = len("9.9")

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_TERMINAL_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_LINKED = re.compile(r"(?i)@|#(?=\w)|gh-(?=\d)|:(?=//)|www(?=\.)|[0-9a-f]{6}(?=[0-9a-f])")
_COMMIT = re.compile(r"[0-9a-fA-F]{7}")
_EMOJI = re.compile(r":(?=[\w+-]+:)")
_MENTION = re.compile(r"(?<!\w)@")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
_ESCAPES = str.maketrans({**{char: f"\\{char}" for char in "\\`*_[]~#$"}, **_ENTITIES})
_SPECIAL = re.compile(r"[\\`*_\[\]~#$&<>|]")


def clean(text: str, *, cap: int = 80) -> str:
    """Return one line of visible NFC text, `cap` characters at most.

    Terminal sequences, control, bidi and other invisible characters are removed.
    """
    return _capped(" ".join(_visible(text).split()), cap)


@lru_cache(maxsize=20_000)
def code(text: str, *, cap: int = 80) -> str:
    """Return untrusted text as a code span that it cannot end, and that can be copied as it is.

    GitHub neither links nor mentions anything within code, so invisible spaces are not needed.
    Inside a table the span must go through `row`, which escapes its bars.
    """
    body = clean(text, cap=cap)
    if not body:
        return UNKNOWN
    ticks = "`" * (_longest_run(body) + 1)
    pad = " " if body[0] == "`" or body[-1] == "`" else ""
    return f"{ticks}{pad}{body}{pad}{ticks}"


@lru_cache(maxsize=20_000)
def plain(text: str, *, cap: int = 300) -> str:
    """Return untrusted prose within a line of Markdown.

    It has no markup, link, mention, emoji code or cell border.
    """
    body = _unlink(clean(text, cap=cap))
    if ":" in body:
        body = _EMOJI.sub(rf":{ZERO_WIDTH_SPACE}", body)
    return (body.translate(_ESCAPES) if _SPECIAL.search(body) else body) or UNKNOWN


def fence(text: str, *, lines: int | None = None, cap: int = 300) -> str:
    """Return the last `lines` lines of an untrusted log as a fenced block.

    Each has `cap` characters at most.

    Nothing links inside a fence; mentions are still broken, because a reply by e-mail quotes the
    text without it. ``name@digest`` stays whole, for copying commands.
    """
    log_lines = [_log_line(line, cap) for line in text.splitlines()]
    body = "\n".join(log_lines if lines is None else log_lines[-lines:])
    ticks = "`" * max(3, _longest_run(body) + 1)
    return f"{ticks}\n{body}\n{ticks}"


def row(cells: Iterable[str]) -> str:
    """Return one table row.

    Bars in the cells are escaped, also behind a backslash, and also within code spans.
    """
    return f"| {' | '.join([_barred(cell) if '|' in cell else cell for cell in cells])} |"


def _barred(cell: str) -> str:
    return re.sub(r"\\(?=\|)", rf"\\{ZERO_WIDTH_SPACE}", cell).replace("|", r"\|")


def seconds(value: float | None) -> str:
    """Format a duration in s, ms or µs, with three significant digits."""
    return _scaled(value, UNITS[Unit.SECONDS].sizes, step=1000)


def bytes_(value: float | None) -> str:
    """Format a size in bytes or in a power of 1024, with three significant digits."""
    if value is not None and abs(value) < _THOUSAND:
        return f"{_digits(value, integral=True)} B"
    return _scaled(value, UNITS[Unit.BYTES].sizes[:-1], step=1024)


def count(value: float | None) -> str:
    """Format a number of things; a median between two integers keeps three significant digits."""
    return UNKNOWN if not _is_finite(value) else _digits(value, integral=True)


def rate(value: float | None) -> str:
    """Format things per second, with three significant digits."""
    return UNKNOWN if not _is_finite(value) else f"{_digits(value)} /s"


def bandwidth(value: float | None) -> str:
    """Format bytes per second, in powers of 1000 as data sheets have them."""
    return _scaled(value, ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")), step=1000)


def operations(value: float | None) -> str:
    """Format floating-point operations per second."""
    return _scaled(
        value, ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")), step=1000
    )


def quantity(value: float | None, unit: Unit) -> str:
    """Format a value in its unit."""
    form = _FORMS.get(unit)
    return _scaled(value, UNITS[unit].sizes, step=1000) if form is None else form(value)


def alike(base: float, head: float, unit: Unit) -> tuple[str, str]:
    """Format two values less than ten times apart in one unit, the smaller one's.

    An example is ``997 µs`` and ``1,150 µs``.
    """
    shown = quantity(base, unit), quantity(head, unit)
    ends = [text.rpartition(" ")[2] for text in shown]
    low, high = sorted((abs(base), abs(head)))
    if UNKNOWN in shown or ends[0] == ends[1] or not 0 < high < _ALIKE * low:
        return shown
    name = ends[abs(base) > abs(head)]
    scale = next((scale for scale, symbol in UNITS[unit].sizes if symbol == name), None)
    return (
        shown
        if scale is None
        else (f"{_digits(base / scale)} {name}", f"{_digits(head / scale)} {name}")
    )


_ALIKE = 10
_FORMS: dict[Unit, Callable[[float | None], str]] = {
    Unit.SECONDS: seconds,
    Unit.BYTES: bytes_,
    Unit.COUNT: count,
    Unit.PER_SECOND: rate,
}


_MOST_SHARE = 1e4
"""The largest share that is written out: beyond a million per cent its digits say nothing."""


def percent(share: float | None, *, signed: bool = False) -> str:
    """Format a share (0.031 is ``3.1 %``): one decimal below ten per cent, none above."""
    if not _is_finite(share):
        return UNKNOWN
    size = f"{min(abs(share), _MOST_SHARE) * 100:.1f}"
    sign = "" if size == "0.0" else "−" if share < 0 else "+" if signed else ""
    sign = f"over {sign}" if abs(share) > _MOST_SHARE else sign
    return f"{sign}{size} %" if len(size) == _BELOW_TEN else f"{sign}{float(size):,.0f} %"


def ratio(value: float | None) -> str:
    """Format a factor, with three significant digits: ``1.08×``."""
    return UNKNOWN if not _is_finite(value) else f"{_digits(value)}×"


def interval(bounds: Interval | None, form: Callable[[float], str] = ratio) -> str:
    """Format both ends of an interval: ``1.05 to 1.11×``."""
    return UNKNOWN if bounds is None else from_to(bounds.low, bounds.high, form)


def from_to(low: float, high: float, form: Callable[[float], str] = ratio) -> str:
    """Format both ends of a range, with their common unit named once."""
    return joined(form(low), " to ", form(high))


def joined(first: str, between: str, second: str) -> str:
    """Join two figures, with their common unit named once: ``133 → 144 ms``."""
    end = len(second)
    while end and not second[end - 1].isdigit():
        end -= 1
    unit = second[end:]
    same = (
        unit
        and UNKNOWN not in (first, second)
        and first.endswith(unit)
        and first[: -len(unit)][-1:].isdigit()
    )
    return f"{first.removesuffix(unit) if same else first}{between}{second}"


def _visible(text: str) -> str:
    """Return NFC text of visible characters; all white space, line breaks included, is a space."""
    if text.isascii() and text.isprintable():
        return text
    spaced = "".join(" " if char.isspace() else char for char in _TERMINAL_SEQUENCE.sub("", text))
    return unicodedata.normalize(
        "NFC", "".join(char for char in spaced if unicodedata.category(char) not in _INVISIBLE)
    )


def _capped(text: str, cap: int) -> str:
    """Return the whole words that fit into `cap` characters.

    A part of the next word is dropped, or kept if it is a third of them or more.
    """
    if len(text) <= cap:
        return text
    words, _, last = text[:cap].rpartition(" ")
    return f"{words.rstrip(' ,;:(')}…" if 3 * len(last) < cap and words else text[: cap - 1] + "…"


def _unlink(text: str) -> str:
    """Break what GitHub would turn into a mention or a link, with a space that has no width."""
    return _LINKED.sub(rf"\g<0>{ZERO_WIDTH_SPACE}", text) if _may_link(text) else text


def _may_link(text: str) -> bool:
    """Return whether `_LINKED` can find anything.

    This is many times as fast, and most texts have no links. The text is put into lower case first:
    an expression that ignores case takes ten times as long.
    """
    if "@" in text or "#" in text or ":" in text:
        return True
    lower = text.lower()
    return "gh-" in lower or "www." in lower or _COMMIT.search(text) is not None


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def _log_line(line: str, cap: int) -> str:
    """Clean a log line, and keep its spaces: carets of a traceback point at columns."""
    shown = _capped(_visible(line.expandtabs(4)).rstrip(), cap)
    return _MENTION.sub(rf"\g<0>{ZERO_WIDTH_SPACE}", shown)


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _scaled(value: float | None, units: tuple[tuple[float, str], ...], step: int) -> str:
    """Format a value in the largest of `units` that keeps it below 1,000 of the next one.

    `step` is the factor between neighbours.
    """
    if not _is_finite(value):
        return UNKNOWN
    size, least = abs(value), 1000 / step
    for (scale, unit), (smaller, _) in pairwise(units):
        if _reaches(
            size / smaller, _rounded(scale / smaller * least)
        ):  # rounded as it would be in the smaller one
            return f"{_digits(math.copysign(max(size / scale, least), value))} {unit}"
    scale, unit = units[-1] if value else units[0]
    return f"{_digits(value / scale)} {unit}"


@lru_cache(maxsize=100)
def _rounded(limit: float) -> float:
    """Round a limit; there are few, and every figure needs them."""
    return round(limit, 6)


def _reaches(size: float, limit: float) -> bool:
    """Return whether a size, rounded to three digits, is `limit` or more.

    Only a size near the limit has to be rounded.
    """
    return size >= limit * 1.01 or (size > limit * 0.99 and float(f"{size:.3g}") >= limit)


def _digits(value: float, *, integral: bool = False) -> str:
    """Format three significant digits, never an exponent.

    A zero and, if `integral`, an integer have no decimals.
    """
    if value == 0 or (integral and value == int(value)):
        return _minus(f"{value:,.0f}")
    text = f"{value:#.3g}"
    if "e" not in text:
        return _minus(text.removesuffix("."))
    rounded = float(text)
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return _minus(f"{value:,.0f}" if decimals == 0 else f"{rounded:.{decimals}f}")


def _minus(text: str) -> str:
    return text.replace("-", "−") if text.startswith("-") else text
