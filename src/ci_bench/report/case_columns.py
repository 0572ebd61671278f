"""The tables with a row for each arm of each case: all columns, and the few that Markdown shows."""

from collections.abc import Callable

from ci_bench.records.comparison import Pair
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import Check, Unit
from ci_bench.report import words
from ci_bench.report.columns import CASE, Column, ColumnKind, Columns, noted, title_of
from ci_bench.report.rows import Row
from ci_bench.report.text import UNKNOWN, quantity
from ci_bench.report.words import Mood


def _if_known(pair: Pair | None, say: Callable[[Pair], str]) -> str:
    return UNKNOWN if pair is None else say(pair)


def _median(pair: Pair | None) -> float | None:
    side = (pair.head or pair.base) if pair else None
    return side.figure if side else None


def _growth(pair: Pair | None) -> float | None:
    """Return the change for the worse; a count by its difference."""
    if pair is None:
        return None
    if pair.unit is Unit.COUNT and pair.base and pair.head:
        return pair.head.figure - pair.base.figure
    return 1 / pair.speedup - 1 if pair.speedup else None


def _other_time(row: Row) -> str:
    """Return the name of the time, if it is not the step's."""
    return "" if row.time is None or row.time.metric == STEP_TIME.name else title_of(row.time)


def _is_worse(pair: Pair | None) -> bool:
    return pair is not None and pair.verdict.worse


def _peak(pair: Pair | None) -> str:
    """Return a peak of memory: both sides if it changed, else only head's figure."""
    if pair is None or pair.verdict.moved:
        return _if_known(pair, words.both_sides)
    summary = pair.head or pair.base
    return quantity(summary.figure if summary else None, pair.unit)


MAIN: Columns[Row] = (
    Column(
        title="Verdict",
        text=lambda row: row.word,
        kind=ColumnKind.WORDS,
        mood=lambda row: row.mood,
        note=lambda row: row.marks,
        note_kind=ColumnKind.WORDS,
        key=lambda row: int(row.mood),
        group=lambda row: row.word,
    ),
    Column(
        title=CASE, text=lambda row: row.label, kind=ColumnKind.ID, group=lambda row: row.case.suite
    ),
    Column(title="Arm", text=lambda row: row.arm or UNKNOWN, kind=ColumnKind.NAME, width=14),
    Column(
        title="Step time",
        text=lambda row: _if_known(row.time, words.both_sides),
        note=_other_time,
        note_kind=ColumnKind.PROSE,
        key=lambda row: _median(row.time),
        width=16,
    ),
    Column(
        title="Change",
        text=lambda row: _if_known(row.time, words.change),
        note=lambda row: noted(_if_known(row.time, words.change_interval)),
        strong=lambda row: _is_worse(row.time),
        mood=lambda row: None if row.time is None else words.mood(row.time.verdict),
        key=lambda row: _growth(row.time),
        width=16,
    ),
    Column(
        title="Speedup",
        text=lambda row: UNKNOWN if row.speedup is None else words.speedup(row.speedup),
        note=lambda row: "" if row.speedup is None else f"over {row.speedup.reference}",
        note_kind=ColumnKind.PROSE,
        key=lambda row: None if row.speedup is None else row.speedup.speedup,
        width=10,
    ),
    Column(
        title="Parity with base",
        text=lambda row: words.base_parity(row.case) if row.of_reference else UNKNOWN,
        kind=ColumnKind.WORDS,
        mood=lambda row: words.base_parity_mood(row.case) if row.of_reference else None,
    ),
    Column(
        title="Parity with reference",
        text=lambda row: UNKNOWN if row.parity is None else words.parity(row.parity),
        kind=ColumnKind.WORDS,
        mood=lambda row: None if row.parity is None else words.parity_mood(row.parity),
    ),
    Column(
        title="Peak memory",
        text=lambda row: _peak(row.memory),
        note=lambda row: (
            words.change(row.memory) if row.memory is not None and row.memory.verdict.moved else ""
        ),
        strong=lambda row: _is_worse(row.memory),
        key=lambda row: _median(row.memory),
        width=16,
    ),
)
"""Every case and arm, with all that there is to show."""

_BY_TITLE = {column.title: column for column in MAIN}


def _parity_of_row(row: Row) -> str:
    if row.of_reference:
        return words.base_parity(row.case)
    return UNKNOWN if row.parity is None else words.parity(row.parity)


def _parity_mood_of_row(row: Row) -> Mood | None:
    if row.of_reference:
        return words.base_parity_mood(row.case)
    return None if row.parity is None else words.parity_mood(row.parity)


def _checks_of(row: Row) -> list[Check]:
    """Return an arm's checks that count, such as its agreement with the reference."""
    return [check for check in row.case.checks if check.arm == row.arm and not check.informative]


_CASE_AND_ARM: Column[Row] = Column(
    title=CASE,
    text=lambda row: row.label,
    kind=ColumnKind.ID,
    note=lambda row: row.arm or "",
    note_kind=ColumnKind.NAME,
)
_PARITY: Column[Row] = Column(
    title="Parity", text=_parity_of_row, kind=ColumnKind.WORDS, mood=_parity_mood_of_row
)
COMPACT: Columns[Row] = (
    _BY_TITLE["Verdict"],
    _CASE_AND_ARM,
    *(_BY_TITLE[title] for title in ("Step time", "Change", "Speedup")),
    _PARITY,
    _BY_TITLE["Peak memory"],
)
"""The same in seven columns: parity is that with base for the reference arm, and that with the
reference for other arms.
"""
_CHECKS: Column[Row] = Column(
    title="Checks",
    text=lambda row: words.checks(_checks_of(row)),
    kind=ColumnKind.WORDS,
    mood=lambda row: min(map(words.check_mood, _checks_of(row)), default=None),
)
NEW: Columns[Row] = (
    _CASE_AND_ARM,
    *(_BY_TITLE[title] for title in ("Step time", "Speedup")),
    _PARITY,
    _CHECKS,
    _BY_TITLE["Peak memory"],
)
"""Cases without a baseline."""
