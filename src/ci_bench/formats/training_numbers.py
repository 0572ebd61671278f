"""Numbers of training logs as their writers spell them: ``1.4M``, ``0,693``, ``31.20ms``, ``nan``.

A number is read as it was meant, or refused: ``1,234`` as a loss may be 1.234 or 1234, and only the
rest of the log decides.
"""

import math
import re
from dataclasses import dataclass

SUFFIXES = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
MILLISECONDS = 1e-3
NUMBER = r"[-+]?(?:nan|inf(?:inity)?|(?:\d|\.\d)(?:\d|[.,](?=\d)|e[-+]?(?=\d))*\.?)"
"""Texts that begin like a number; `parse` decides whether they are numbers."""

_POINT = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
_GROUPS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?(?:e[-+]?\d+)?", re.IGNORECASE)
_COMMA = re.compile(r"[-+]?\d+,\d+(?:e[-+]?\d+)?", re.IGNORECASE)
_SPELLED = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
_SUFFIXED = re.compile(rf"((?i:{NUMBER}))\s?([KMGBTk])")


class NotANumber(ValueError):  # noqa: N818 - the text is what is wrong
    """A text is not a number, or can be read as two. The message names the text."""


@dataclass(frozen=True, slots=True)
class Commas:
    """Use of commas in a log: as decimal points, in groups of three digits, or unknown."""

    decimal: bool | None = None

    @classmethod
    def of(cls, texts: list[str]) -> "Commas":
        """Return the use that the unambiguous numbers among `texts` show."""
        if any(_COMMA.fullmatch(text) and not _GROUPS.fullmatch(text) for text in texts):
            return cls(decimal=True)
        grouped = any(
            _GROUPS.fullmatch(text) and ("." in text or text.count(",") > 1) for text in texts
        )
        return cls(decimal=False if grouped else None)


GROUPED = Commas(decimal=False)


def parse(text: str, commas: Commas = GROUPED) -> float:
    """Return the value of a number's text, without a unit.

    Raises:
        NotANumber: it is not a number, or its comma may be a decimal point or not.
    """
    if _SPELLED.fullmatch(text) or _POINT.fullmatch(text):
        return float(text)
    groups, comma = _GROUPS.fullmatch(text), _COMMA.fullmatch(text)
    if comma and (commas.decimal or not groups):
        return float(text.replace(",", "."))
    if groups and (commas.decimal is False or "." in text or text.count(",") > 1):
        return float(text.replace(",", ""))
    if groups:
        raise NotANumber(
            f"{text!r} may be {text.replace(',', '.')} or {text.replace(',', '')}; write decimal"
            " points"
        )
    raise NotANumber(f"{text[:50]!r} is not a number")


def parse_spelled(text: str) -> float:
    """Return the value of a text that may end in K, M, G, B or T, as JSON and CSV have it.

    Raises:
        NotANumber: it is not a number.
    """
    stripped = text.strip()
    suffixed = _SUFFIXED.fullmatch(stripped)
    return (
        parse(suffixed[1]) * SUFFIXES[suffixed[2].lower()]
        if suffixed
        else parse(stripped, Commas())
    )


def scale_of(unit: str) -> float | None:
    """Return the factor of a suffix on a number without a unit, or `None`.

    A lower-case ``m`` does not mean million.
    """
    if unit in {"", "%", "s"}:
        return 1.0
    return None if unit == "m" else SUFFIXES.get(unit.lower()) if len(unit) == 1 else None


def is_whole(value: float, most: int) -> bool:
    """Return whether a number is an integer from 0 to `most`."""
    return math.isfinite(value) and 0 <= value <= most and value == int(value)
