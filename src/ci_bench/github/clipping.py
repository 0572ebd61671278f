"""Shortening of texts: whole lines are cut from the end, and open fences and folds closed. Pure.

The reports keep to their own budgets; this is what still holds when one does not.
"""

import re
from collections.abc import Callable

CUT = "\n\n_Cut here: the rest is in report.md of the run's artifact._\n"
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def utf16_units(text: str) -> int:
    """Return the length of a text as JavaScript counts, the larger of GitHub's possible counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_bytes(text: str) -> int:
    """Return the length of a text in bytes."""
    return len(text.encode("utf-8", "replace"))


def clipped(text: str, limit: int, size: Callable[[str], int]) -> str:
    """Return the text, or as many of its first lines as fit.

    They leave room for what closes them and for a word about the cut.
    """
    if size(text) <= limit:
        return text
    lines = text.split("\n")
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(_ended(lines[:middle])) <= limit else (low, middle - 1)
    shortest = _ended(lines[:low])
    return shortest if size(shortest) <= limit else ""


def clipped_line(text: str, most: int) -> str:
    """Return one line of `most` UTF-16 units at most, never half a character."""
    line = " ".join(text.split())
    if utf16_units(line) <= most:
        return line
    return shortened(line, most - 1).rstrip() + "…"


def shortened(text: str, most: int) -> str:
    """Return the first `most` UTF-16 units of a text, or one less to keep a character whole."""
    return text.encode("utf-16-le", "surrogatepass")[: 2 * most].decode("utf-16-le", "ignore")


def _ended(lines: list[str]) -> str:
    fence, folds = "", 0
    for line in lines:
        mark = _FENCE.match(line)
        if not fence:
            folds += line.count("<details") - line.count("</details>")
            fence = mark[1] if mark else ""
        elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
    closing = f"\n{fence}" if fence else ""
    return "\n".join(lines) + closing + "\n\n</details>" * max(folds, 0) + CUT
