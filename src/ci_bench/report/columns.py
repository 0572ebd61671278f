"""Every column of every table of a report, once: its title, its text for a row, and its kind.

The renderers draw a column each in their own way: Markdown (`markdown`), HTML (`html.tables`), the
terminal (`terminal`). A new column is a line here. Text from a document is a `NAME` or `PROSE`,
which renderers escape; words and figures are ours.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Generic, TypeVar

from ci_bench.records.causes import CausePart, MemoryPart
from ci_bench.records.comparison import ArmSpeedup, CaseComparison, Pair, ParityFinding, Summary
from ci_bench.records.forms import Fact
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.outputs import OutputsFinding, TensorError
from ci_bench.records.results import Check, Status, Unit
from ci_bench.report import words
from ci_bench.report.averages import Averages, MeanChange
from ci_bench.report.modes import ModeRow
from ci_bench.report.text import (
    UNKNOWN,
    bandwidth,
    bytes_,
    count,
    interval,
    joined,
    operations,
    percent,
    rate,
    ratio,
    seconds,
)
from ci_bench.report.words import Mood

T = TypeVar("T")


class ColumnKind(Enum):
    """Kind of text in a column."""

    WORDS = auto()
    """Our own words: a verdict, a tier."""
    FIGURES = auto()
    """Numbers with their units, which a narrow column must not tear apart."""
    NAME = auto()
    """A name from outside: an arm, a metric, a check."""
    ID = auto()
    """A name that may be longer than others: a case's."""
    PROSE = auto()
    """A text that may hold anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column(Generic[T]):
    """One column over rows of type `T`."""

    title: str
    """The heading."""
    text: Callable[[T], str]
    """Returns the text of a cell, `UNKNOWN` if unknown."""
    kind: ColumnKind = ColumnKind.FIGURES
    """The kind of `text`, which decides how a renderer escapes it."""
    mood: Callable[[T], Mood | None] | None = None
    """Returns the level that gives a cell a sign and a colour; `None` for none."""
    note: Callable[[T], str] | None = None
    """Returns a note next to or under the text, empty for nothing; `None` without notes."""
    note_kind: ColumnKind = ColumnKind.FIGURES
    """The kind of `note`."""
    strong: Callable[[T], bool] | None = None
    """Returns whether a cell is stressed; `None` if none is."""
    key: Callable[[T], float | None] | None = None
    """Returns the sort key of a row; `None` sorts by the text."""
    group: Callable[[T], str] | None = None
    """Returns the value that rows are filtered by; `None` for a column without a filter."""
    width: int = 0
    """Width in the terminal, in characters; 0 leaves the column out there."""


Columns = tuple[Column[T], ...]

CASE = "Case"


def of_one_case(columns: Columns[T]) -> Columns[T]:
    """Return the columns without that of the case, for a table about one case."""
    return tuple(column for column in columns if column.title != CASE)


OfPair = tuple[CaseComparison, Pair]
OfSpeedup = tuple[CaseComparison, ArmSpeedup]
OfParity = tuple[CaseComparison, ParityFinding]
OfOutputs = tuple[CaseComparison, OutputsFinding]
OfCheck = tuple[CaseComparison, Check]
OfFact = tuple[CaseComparison, str, Fact]

_UTILISED = ("model_flops_per_step", "peak_flops_per_s")
"""Facts of a case: what one step computes, and what its device does in a second at best."""
_MOVED, _MOST_WORK = "bytes_per_step", 1e30
"""Fact of a step's reads and writes, and a bound that no step can exceed."""
_MOST_OF_PEAK = 10.0
"""A greater share is impossible: the facts are wrong."""


def noted(text: str) -> str:
    """Return a note, or nothing if nothing is known."""
    return "" if text == UNKNOWN else text


def title_of(pair: Pair) -> str:
    """Return the title of a pair's metric."""
    return pair.title or pair.metric


def _throughput(side: Summary | None, pair: Pair) -> str:
    """Return the items per second of a duration with a number of items."""
    if (
        side is None
        or pair.items is None
        or pair.unit is not Unit.SECONDS
        or (figure := side.figure) <= 0
    ):
        return ""
    return rate(pair.items / figure)


def _of_head(item: OfPair) -> str:
    """Return head's throughput, in the items of a call, and its share of the device's peak."""
    case, pair = item
    share = _utilisation(case, pair)
    parts = (
        _throughput(pair.head, pair),
        *_work_rates(case, pair),
        "" if share is None else f"{percent(share)} of peak",
    )
    return ", ".join(part for part in parts if part)


def _work_rates(case: CaseComparison, pair: Pair) -> Iterator[str]:
    """Yield bytes and operations per second of head's step.

    A call has to state them, and to count no items.
    """
    if (
        pair.metric != STEP_TIME.name
        or pair.items is not None
        or pair.head is None
        or pair.head.figure <= 0
    ):
        return
    for name, render in ((_MOVED, bandwidth), (_UTILISED[0], operations)):
        amount = case.facts.get(name)
        if (
            isinstance(amount, int | float)
            and not isinstance(amount, bool)
            and 0 < amount < _MOST_WORK
        ):
            yield render(amount / pair.head.figure)


def _utilisation(case: CaseComparison, pair: Pair) -> float | None:
    """Return the operations per second of head's step, as a share of the device's peak.

    It is `None` if a fact is missing or impossible.
    """
    if pair.metric != STEP_TIME.name or pair.head is None or pair.head.figure <= 0:
        return None
    done, peak = (case.facts.get(name) for name in _UTILISED)
    if not (isinstance(done, int | float) and isinstance(peak, int | float) and peak > 0):
        return None
    share = float(done) / pair.head.figure / float(peak)
    return share if share <= _MOST_OF_PEAK else None


METRICS: Columns[OfPair] = (
    Column(
        title="Verdict",
        text=lambda item: words.verdict_word(item[1].verdict),
        kind=ColumnKind.WORDS,
        mood=lambda item: words.mood(item[1].verdict),
        note=lambda item: "detail" if item[1].detail else "",
        note_kind=ColumnKind.WORDS,
    ),
    Column(title=CASE, text=lambda item: item[0].called, kind=ColumnKind.ID),
    Column(title="Arm", text=lambda item: item[1].arm, kind=ColumnKind.NAME),
    Column(title="Metric", text=lambda item: title_of(item[1]), kind=ColumnKind.PROSE),
    Column(
        title="Base",
        text=lambda item: words.side(item[1].base, item[1]),
        note=lambda item: _throughput(item[1].base, item[1]),
    ),
    Column(title="Head", text=lambda item: words.side(item[1].head, item[1]), note=_of_head),
    Column(title="Change", text=lambda item: words.change(item[1])),
    Column(title="Interval", text=lambda item: words.change_interval(item[1])),
    Column(title="Samples", text=lambda item: words.samples(item[1])),
    Column(title="Noise", text=lambda item: words.noise(item[1])),
    Column(title="Resolvable", text=lambda item: words.fine(item[1].resolvable)),
    Column(title="q", text=lambda item: words.discovery(item[1])),
    Column(title="Reason", text=lambda item: item[1].reason or UNKNOWN, kind=ColumnKind.PROSE),
)
"""Every metric of every arm."""
_BY_TITLE = {column.title: column for column in METRICS}
FEW_METRICS: Columns[OfPair] = (
    _BY_TITLE["Verdict"],
    _BY_TITLE[CASE],
    Column(
        title="Metric",
        text=lambda item: title_of(item[1]),
        kind=ColumnKind.PROSE,
        note=lambda item: item[1].arm,
        note_kind=ColumnKind.NAME,
    ),
    _BY_TITLE["Base"],
    _BY_TITLE["Head"],
    Column(
        title="Change",
        text=lambda item: words.change(item[1]),
        note=lambda item: noted(words.change_interval(item[1])),
    ),
    _BY_TITLE["Reason"],
)
"""The same in seven columns."""


def _metric_of(item: OfSpeedup) -> str:
    case, speedup = item
    return next(
        (title_of(pair) for pair in case.pairs if pair.metric == speedup.metric), speedup.metric
    )


ARMS: Columns[OfSpeedup] = (
    Column(title=CASE, text=lambda item: item[0].called, kind=ColumnKind.ID),
    Column(title="Arm", text=lambda item: item[1].arm, kind=ColumnKind.NAME),
    Column(title="Reference", text=lambda item: item[1].reference, kind=ColumnKind.NAME),
    Column(title="Metric", text=_metric_of, kind=ColumnKind.PROSE),
    Column(
        title="Speedup",
        text=lambda item: ratio(item[1].speedup),
        note=lambda item: noted(interval(item[1].interval)),
    ),
    Column(title="On base", text=lambda item: ratio(item[1].base_speedup)),
    Column(title="Change", text=lambda item: words.speedup_change(item[1])),
)
"""Every arm against the reference arm of the same run.

It is a speedup for durations, a compression ratio for memory.
"""


def _first_step(item: OfParity) -> str:
    return words.first_step(item[1]).removeprefix("step ") or UNKNOWN


def _accuracy(item: OfParity) -> str:
    accuracy = item[1].accuracy
    if accuracy is None:
        return UNKNOWN
    return (
        f"{accuracy.reference * 100:.1f} → {accuracy.candidate * 100:.1f} %, limit"
        f" ±{accuracy.limit * 100:.1f} points"
    )


def _accuracy_mood(item: OfParity) -> Mood | None:
    accuracy = item[1].accuracy
    return None if accuracy is None else Mood.GOOD if accuracy.holds else Mood.BAD


def _seed_rule(item: OfParity) -> str:
    """Return the verdict of training_loss.py: for information, never a verdict here."""
    rule = item[1].seed_rule
    if rule is None:
        return UNKNOWN
    answers: dict[bool | None, str] = {True: "passes", False: "fails", None: "unknown"}
    return answers[rule.passed]


PARITY: Columns[OfParity] = (
    Column(
        title="Verdict",
        text=lambda item: words.parity(item[1]),
        kind=ColumnKind.WORDS,
        mood=lambda item: words.parity_mood(item[1]),
    ),
    Column(title=CASE, text=lambda item: item[0].called, kind=ColumnKind.ID),
    Column(title="Arm", text=lambda item: item[1].arm, kind=ColumnKind.NAME),
    Column(title="Tier", text=lambda item: item[1].tier or UNKNOWN, kind=ColumnKind.WORDS),
    Column(
        title="Masks",
        text=lambda item: (item[1].masks or UNKNOWN).replace("_", " "),
        kind=ColumnKind.WORDS,
    ),
    Column(title="Steps", text=lambda item: count(item[1].steps)),
    Column(title="Distance", text=lambda item: words.distance(item[1]), kind=ColumnKind.WORDS),
    Column(
        title="First step out",
        text=_first_step,
        note=lambda item: item[1].signal or "",
        note_kind=ColumnKind.NAME,
    ),
    Column(title="Accuracy", text=_accuracy, kind=ColumnKind.WORDS, mood=_accuracy_mood),
    Column(
        title="training_loss.py’s rule",
        text=_seed_rule,
        kind=ColumnKind.WORDS,
        note=lambda item: item[1].seed_rule.detail if item[1].seed_rule else "",
        note_kind=ColumnKind.PROSE,
    ),
    Column(title="Detail", text=lambda item: item[1].detail or UNKNOWN, kind=ColumnKind.PROSE),
)
"""Loss parity of head with base, and of each candidate arm with its reference."""
_SHORT_PARITY = ("Verdict", CASE, "Arm", "Steps", "Distance", "Accuracy", "Detail")
FEW_PARITY: Columns[OfParity] = tuple(column for column in PARITY if column.title in _SHORT_PARITY)
"""The same in seven columns."""

OUTPUTS: Columns[OfOutputs] = (
    Column(
        title="Verdict",
        text=lambda item: words.outputs(item[1]),
        kind=ColumnKind.WORDS,
        mood=lambda item: words.outputs_mood(item[1]),
    ),
    Column(title=CASE, text=lambda item: item[0].called, kind=ColumnKind.ID),
    Column(title="Arm", text=lambda item: item[1].arm, kind=ColumnKind.NAME),
    Column(title="Tensors", text=lambda item: count(item[1].tensors)),
    Column(title="Detail", text=lambda item: item[1].detail or UNKNOWN, kind=ColumnKind.PROSE),
)
"""Outputs of head against those of base."""


def _error(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"


def _names_of(part: CausePart) -> str:
    return ", ".join(part.after or part.before)


def _calls_of(part: CausePart) -> str:
    return joined(count(part.base_calls), " → ", count(part.head_calls)) if part.calls else UNKNOWN


def _instead_of(part: CausePart) -> str:
    """Return the part that it replaced, if its name differs."""
    if not part.after:
        return "gone"
    gone = [name for name in part.before if name not in part.after]
    return f"instead of {', '.join(gone)}" if gone else "" if part.before else "new"


TENSORS: Columns[TensorError] = (
    Column(title="Tensor", text=lambda error: error.name, kind=ColumnKind.NAME),
    Column(title="Off by", text=lambda error: _error(error.error)),
    Column(title="Rounding explains", text=lambda error: _error(error.allowed)),
    Column(title="Fault", text=lambda error: error.fault or UNKNOWN, kind=ColumnKind.PROSE),
)
"""The tensors that come nearest to their limit, or are farthest beyond it."""

PARTS: Columns[CausePart] = (
    Column(
        title="What",
        text=_names_of,
        kind=ColumnKind.ID,
        note=_instead_of,
        note_kind=ColumnKind.PROSE,
    ),
    Column(title="Where", text=lambda part: ", ".join(part.places) or UNKNOWN, kind=ColumnKind.ID),
    Column(title="Base", text=lambda part: seconds(part.base_s)),
    Column(title="Head", text=lambda part: seconds(part.head_s)),
    Column(
        title="Change",
        text=lambda part: f"{'+' if part.change_s > 0 else ''}{seconds(part.change_s)}",
    ),
    Column(title="Of the change", text=lambda part: percent(part.share)),
    Column(title="Calls", text=_calls_of),
    Column(title="Kind", text=lambda part: part.kind, kind=ColumnKind.WORDS),
    Column(
        title="Code",
        text=lambda part: part.codes[0] if part.codes and part.codes[0] else UNKNOWN,
        kind=ColumnKind.NAME,
    ),
)
"""Parts of a step that take a different time than before, the largest first."""

MEMORY_PARTS: Columns[MemoryPart] = (
    Column(title="What", text=lambda part: part.name, kind=ColumnKind.ID),
    Column(title="Where", text=lambda part: ", ".join(part.places) or UNKNOWN, kind=ColumnKind.ID),
    Column(title="Base", text=lambda part: bytes_(part.base_bytes)),
    Column(title="Head", text=lambda part: bytes_(part.head_bytes)),
    Column(
        title="Change",
        text=lambda part: f"{'+' if part.change_bytes > 0 else ''}{bytes_(part.change_bytes)}",
    ),
)
"""Holders of memory at the peak of a step that changed, the largest first."""

CHECKS: Columns[OfCheck] = (
    Column(
        title="Outcome",
        text=lambda item: item[1].outcome,
        kind=ColumnKind.WORDS,
        mood=lambda item: None if item[1].informative else words.check_mood(item[1]),
        note=lambda item: "for information" if item[1].informative else "",
        note_kind=ColumnKind.WORDS,
    ),
    Column(title=CASE, text=lambda item: item[0].called, kind=ColumnKind.ID),
    Column(title="Arm", text=lambda item: item[1].arm, kind=ColumnKind.NAME),
    Column(title="Check", text=lambda item: item[1].name, kind=ColumnKind.NAME),
    Column(title="Detail", text=lambda item: item[1].detail or UNKNOWN, kind=ColumnKind.PROSE),
)
"""Every check of every arm."""


def _status(status: Status | None) -> str:
    return UNKNOWN if status is None else status.replace("_", " ")


UNCLEAR: Columns[CaseComparison] = (
    Column(
        title="Verdict",
        text=lambda case: words.verdict_word(case.verdict),
        kind=ColumnKind.WORDS,
        mood=lambda case: words.mood(case.verdict),
    ),
    Column(title=CASE, text=lambda case: case.called, kind=ColumnKind.ID),
    Column(title="Base", text=lambda case: _status(case.base_status), kind=ColumnKind.WORDS),
    Column(title="Head", text=lambda case: _status(case.head_status), kind=ColumnKind.WORDS),
    Column(title="Reason", text=lambda case: case.reason or UNKNOWN, kind=ColumnKind.PROSE),
)
"""Cases without a comparison of figures on both sides, or without a clear answer."""


def _mean(
    of: Callable[[Averages], MeanChange], form: Callable[[float | None], str]
) -> Callable[[Averages], str]:
    """Return a function that renders a mean on both sides: ``95 → 100 %``."""

    def say(averages: Averages) -> str:
        mean = of(averages)
        if mean.head is None:
            return UNKNOWN
        return (
            form(mean.head)
            if mean.base is None
            else joined(form(mean.base), " → ", form(mean.head))
        )

    return say


def _over(of: Callable[[Averages], MeanChange], averages: Averages) -> str:
    """Return the number of cases of a mean, if that is not all of the group."""
    mean = of(averages)
    return "" if mean.head is None or mean.cases == averages.cases else f"of {mean.cases:,}"


def _besides(averages: Averages) -> str:
    sides = ((averages.only_head, "head"), (averages.only_base, "base"))
    return ", ".join(f"{number:,} on {side}" for number, side in sides if number) or UNKNOWN


def _mean_column(
    title: str, of: Callable[[Averages], MeanChange], form: Callable[[float | None], str]
) -> Column[Averages]:
    return Column(title=title, text=_mean(of, form), note=partial(_over, of))


MEANS: Columns[Averages] = (
    Column(title="Suite", text=lambda averages: averages.suite, kind=ColumnKind.NAME),
    Column(title="Setting", text=lambda averages: averages.setting or UNKNOWN, kind=ColumnKind.ID),
    Column(title="Arm", text=lambda averages: averages.arm, kind=ColumnKind.NAME),
    Column(title="Cases", text=lambda averages: count(averages.cases)),
    _mean_column("Pass", lambda averages: averages.passing, percent),
    _mean_column("Speedup", lambda averages: averages.speedup, ratio),
    _mean_column("Cold compilation", lambda averages: averages.compile_cold_s, seconds),
    _mean_column("Compression of memory", lambda averages: averages.compression, ratio),
    Column(title="Besides", text=_besides, kind=ColumnKind.WORDS),
)
"""Means over the cases that both sides have, by suite, setting and arm."""


def _mode(arm: str, row: ModeRow) -> str:
    if row.case is None:
        return ratio(row.means.get(arm))
    return ratio(row.speedups[arm].speedup) if arm in row.speedups else UNKNOWN


def _mode_notes(arm: str, row: ModeRow) -> str:
    """Return the interval, and notes on the arm: ``1.60 to 1.64×, fastest``."""
    speedup = row.speedups.get(arm)
    if speedup is None:
        return ""
    remark = "fastest" if arm == row.fastest else "not right" if arm in row.wrong else ""
    return ", ".join(part for part in (noted(interval(speedup.interval)), remark) if part)


def _is_fastest(arm: str, row: ModeRow) -> bool:
    return arm == row.fastest


def _mode_mood(arm: str, row: ModeRow) -> Mood | None:
    return Mood.BETTER if arm == row.fastest else Mood.BAD if arm in row.wrong else None


def of_modes(arms: tuple[str, ...]) -> Columns[ModeRow]:
    """Return a column for each arm: its speedup over the reference, with the interval.

    The fastest arm is marked.
    """
    by_arm = (
        Column(
            title=arm,
            text=partial(_mode, arm),
            note=partial(_mode_notes, arm),
            strong=partial(_is_fastest, arm),
            mood=partial(_mode_mood, arm),
            width=16,
        )
        for arm in arms
    )
    reference: Column[ModeRow] = Column(
        title="Reference",
        text=lambda row: (row.case.reference if row.case else None) or UNKNOWN,
        kind=ColumnKind.NAME,
    )
    return (
        Column(title=CASE, text=lambda row: row.label, kind=ColumnKind.ID, width=22),
        reference,
        *by_arm,
    )


MODES_LEGEND = (
    "Speedup over the reference with its interval; all arms are measured in turns with it. Above 1×"
    " is better. The fastest is an arm whose interval lies above all others and above 1×; one that"
    " is not right failed a check or parity."
)


def fact(field: str, value: Fact) -> tuple[str, ColumnKind]:
    """Return a property of a machine or a case.

    Numbers are grouped, to keep a long one from looking like a commit.
    """
    if value is None or isinstance(value, bool):
        return {None: UNKNOWN, True: "yes", False: "no"}[value], ColumnKind.WORDS
    if isinstance(value, str):
        return value, ColumnKind.NAME
    if field.endswith("_bytes"):
        return bytes_(value), ColumnKind.FIGURES
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}", ColumnKind.FIGURES


FACTS: Columns[OfFact] = (
    Column(title=CASE, text=lambda item: item[0].called, kind=ColumnKind.ID),
    Column(title="Fact", text=lambda item: item[1], kind=ColumnKind.NAME),
    Column(title="Value", text=lambda item: fact(item[1], item[2])[0], kind=ColumnKind.PROSE),
)
"""Facts of cases that no verdict depends on."""
