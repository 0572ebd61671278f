"""The lines of a stage's log that matter. Needs only the standard library."""

import re
from collections.abc import Sequence

FIGURE = "FIGURE: "
COUNTED = re.compile(r"\d+ (?:passed|failed|errors?|tests? collected)")
FAILED = re.compile(r"^(?:FAILED|ERROR) ")
MARK = re.compile(r"^(?:\| |[✓✗?] )|^ +→ .*(?:FAIL|wrong|stop|slow|coarse)")
MOST_FIGURE, MOST_MARKS, MOST_FAILED, MOST_TROUBLE = 600, 30, 12, 22
WIDTH = 260


def figure_of(log: str) -> str:
    """Return the figure of a log: its last FIGURE, else pytest's counts, else its last line."""
    lines = [line for line in log.splitlines() if line.strip()]
    figures = [line.removeprefix(FIGURE) for line in lines if line.startswith(FIGURE)]
    counts = [line.strip("= ") for line in lines if COUNTED.search(line)]
    last = [line for line in lines if not line.startswith("written to")]
    for candidates in (figures, counts, last):
        if candidates:
            return candidates[-1][:MOST_FIGURE]
    return "no output"


def marks_of(log: str) -> Sequence[str]:
    """Return rows of tables, and verdicts of a GPU's check."""
    return [line[:WIDTH] for line in log.splitlines() if MARK.search(line)][:MOST_MARKS]


def trouble_of(log: str) -> Sequence[str]:
    """Return the lines that explain a failure: of tests, or the last ones."""
    lines = log.splitlines()
    failed = [line[:WIDTH] for line in lines if FAILED.search(line)]
    if failed:
        reasons = [line[:WIDTH] for line in lines if line.startswith("E  ")]
        return [*failed[:MOST_FAILED], *reasons[:MOST_FAILED]]
    shown = [line[:WIDTH] for line in lines if not line.startswith((FIGURE, "| "))]
    return shown[-MOST_TROUBLE:]
