"""The cells of the tables in a Markdown report: one value in, one escaped text out.

Owns how each kind of value looks. Names, reasons and details come from outside and go through `code` or `plain`.
"""

from collections.abc import Callable

from ci_bench.records.comparison import ArmSpeedup, CaseComparison, Finding, Pair, ParityFinding, Summary, Verdict
from ci_bench.records.config import Severity
from ci_bench.records.outputs import OutputsFinding
from ci_bench.records.results import Check, Fact, Status, Unit
from ci_bench.report import words
from ci_bench.report.averages import Averages, Mean
from ci_bench.report.rows import Row
from ci_bench.report.text import (
    NO_BREAK_SPACE,
    UNKNOWN,
    bytes_,
    code,
    count,
    interval,
    joined,
    percent,
    plain,
    quantity,
    rate,
    ratio,
    seconds,
)
from ci_bench.report.words import Mood

ICONS = {Mood.BAD: "❌", Mood.UNSURE: "⚠️", Mood.NEW: "🆕", Mood.BETTER: "🚀", Mood.GOOD: "✅"}

INFORMATION = "ℹ️"  # noqa: RUF001 - the sign for information

_MARKS = {Severity.FAIL: "- ❌", Severity.WARN: "- ⚠️", Severity.NOTE: "-"}
_ID_CAP = 160
_UTILISED = ("model_flops_per_step", "peak_flops_per_s")
"""Facts of a case: what one step computes, and what its device does in a second at best."""
_MOST_OF_PEAK = 10.0
"""A greater share is none: the facts are wrong."""


def case_id(case: CaseComparison) -> str:
    """The id of a case; it may be longer than other names."""
    return code(case.id, cap=_ID_CAP)


def fact(field: str, value: Fact) -> str:
    """A property of a machine. Numbers are grouped, so that a long one is not taken for a commit."""
    if value is None or isinstance(value, bool):
        return {None: UNKNOWN, True: "yes", False: "no"}[value]
    if isinstance(value, str):
        return code(value)
    return (
        bytes_(value) if field.endswith("_bytes") else plain(f"{value:,}" if isinstance(value, int) else f"{value:,.6g}", cap=40)
    )


def finding(found: Finding) -> str:
    """A finding as an item of a list."""
    about = "" if found.case is None else f" · {code(found.case, cap=_ID_CAP)}"
    return f"{_MARKS[found.severity]} **{found.rule.replace('_', ' ')}**: {plain(found.message)}{about}"


def main(row: Row) -> tuple[str, ...]:
    """The cells of the main table."""
    return (
        f"{ICONS[row.mood]} {row.word}{row.marks}",
        case_id(row.case),
        UNKNOWN if row.arm is None else code(row.arm),
        _step_time(row.time),
        _change(row.time),
        UNKNOWN if row.speedup is None else f"{words.speedup(row.speedup)} ({code(row.speedup.reference)})",
        UNKNOWN if row.parity is None else f"{ICONS[words.parity_mood(row.parity)]} {words.parity(row.parity)}",
        _memory(row.memory),
    )


def unclear(case: CaseComparison) -> tuple[str, ...]:
    """The cells of a case without a clear answer."""
    return _verdict(case.verdict), case_id(case), _status(case.base_status), _status(case.head_status), plain(case.reason)


def _verdict(verdict: Verdict) -> str:
    return f"{ICONS[words.mood(verdict)]} {verdict}"


def _status(status: Status | None) -> str:
    return UNKNOWN if status is None else status.replace("_", " ")


def _step_time(pair: Pair | None) -> str:
    if pair is None:
        return UNKNOWN
    named = "" if pair.metric == "step_time" else f"{code(pair.metric)} "
    return named + _unbroken(words.both_sides(pair))


def _change(pair: Pair | None) -> str:
    if pair is None or words.change(pair) == UNKNOWN:
        return UNKNOWN
    spread = words.change_interval(pair)
    moved = _stressed(_unbroken(words.change(pair)), pair)
    return moved if spread == UNKNOWN else f"{moved} ({_unbroken(spread)})"


def _stressed(text: str, pair: Pair) -> str:
    return f"**{text}**" if pair.verdict.worse else text


def _memory(pair: Pair | None) -> str:
    figures = ", ".join(_unbroken(figure) for figure in words.peak(pair).split(", "))
    return figures if pair is None else _stressed(figures, pair)


def _unbroken(figures: str) -> str:
    """Figures that a narrow column must not tear apart."""
    return figures.replace(" ", NO_BREAK_SPACE)


def metric(case: CaseComparison, pair: Pair) -> tuple[str, ...]:
    """The cells of one metric."""
    base, head = _side(pair.base, pair), _side(pair.head, pair, share=_utilisation(case, pair))
    names = (case_id(case), code(pair.arm), code(pair.metric))
    figures = (base, head, words.change(pair), words.change_interval(pair), words.samples(pair))
    known = (words.noise(pair), words.fine(pair.resolvable), plain(words.discovery(pair)))
    verdict = f"{_verdict(pair.verdict)} (detail)" if pair.detail else _verdict(pair.verdict)
    return (verdict, *names, *figures, *known, plain(pair.reason))


def _side(side: Summary | None, pair: Pair, *, share: float | None = None) -> str:
    """The median of one side; of a duration with items also the throughput, and how much of the device's peak that is."""
    median = quantity(side.median if side else None, pair.unit)
    if side is None or pair.items is None or pair.unit is not Unit.SECONDS or side.median <= 0:
        return median
    peak = "" if share is None else f", {percent(share)} of peak"
    return f"{median} ({rate(pair.items / side.median)}{peak})"


def _utilisation(case: CaseComparison, pair: Pair) -> float | None:
    """The model's operations per second of head's step, as a share of the device's peak; `None` where any of it is not known."""
    operations, peak = (case.facts.get(name) for name in _UTILISED)
    known = isinstance(operations, int | float) and isinstance(peak, int | float) and peak > 0
    if pair.metric != "step_time" or not known or pair.head is None or pair.head.median <= 0:
        return None
    share = float(operations) / pair.head.median / float(peak)  # type: ignore[arg-type] # both are numbers here
    return share if share <= _MOST_OF_PEAK else None


def arm(case: CaseComparison, found: ArmSpeedup) -> tuple[str, ...]:
    """The cells of one arm against its reference: a speedup for durations, a compression ratio for memory."""
    earlier = UNKNOWN if found.base_speedup is None else ratio(found.base_speedup)
    names = (case_id(case), code(found.arm), code(found.reference), code(found.metric))
    return (*names, ratio(found.speedup), interval(found.interval), earlier, words.speedup_change(found))


def parity(case: CaseComparison, found: ParityFinding) -> tuple[str, ...]:
    """The cells on loss parity of one arm."""
    return (
        f"{ICONS[words.parity_mood(found)]} {words.parity(found)}",
        case_id(case),
        code(found.arm),
        UNKNOWN if found.tier is None else str(found.tier),
        UNKNOWN if found.masks is None else found.masks.replace("_", " "),
        count(found.steps),
        words.distance(found),
        _first_step(found),
        _accuracy(found),
        _seed_rule(found),
        plain(found.detail),
    )


def _first_step(found: ParityFinding) -> str:
    if found.first_step is None:
        return UNKNOWN
    return count(found.first_step) + (f" ({code(found.signal)})" if found.signal else "")


def _accuracy(found: ParityFinding) -> str:
    if found.accuracy is None:
        return UNKNOWN
    both = f"{found.accuracy.reference * 100:.1f} → {found.accuracy.candidate * 100:.1f} %"
    return f"{ICONS[Mood.GOOD if found.accuracy.holds else Mood.BAD]} {both}, limit ±{found.accuracy.limit * 100:.1f} points"


def _seed_rule(found: ParityFinding) -> str:
    """What training_loss.py would have said: for information, never a verdict here."""
    if found.seed_rule is None:
        return UNKNOWN
    answers: dict[bool | None, str] = {True: "passes", False: "fails", None: "unknown"}
    return f"{answers[found.seed_rule.passed]}: {plain(found.seed_rule.detail, cap=120)}"


def averages(found: Averages) -> tuple[str, ...]:
    """The cells of the means over a group of cases, each with the number of cases in it where that is not all of them."""
    names = (code(found.suite), UNKNOWN if not found.setting else code(found.setting, cap=_ID_CAP), code(found.arm))
    apart = [f"{number:,} on {side}" for number, side in ((found.only_head, "head"), (found.only_base, "base")) if number]
    forms = ((found.passing, percent), (found.speedup, ratio), (found.compile_cold_s, seconds), (found.compression, ratio))
    return (*names, count(found.cases), *(_mean(mean, form, found.cases) for mean, form in forms), ", ".join(apart) or UNKNOWN)


def _mean(found: Mean, form: Callable[[float | None], str], cases: int) -> str:
    """``95 → 100 % (of 13)``; the number only where it differs from the group's."""
    if found.head is None:
        return UNKNOWN
    figures = form(found.head) if found.base is None else joined(form(found.base), " → ", form(found.head))
    return _unbroken(figures) + ("" if found.cases == cases else f" (of {found.cases:,})")


def case_fact(case: CaseComparison, name: str, value: Fact) -> tuple[str, ...]:
    """The cells of one fact of a case."""
    return case_id(case), code(name), fact(name, value)


def outputs(case: CaseComparison, found: OutputsFinding) -> tuple[str, ...]:
    """The cells on what head computes beside base."""
    shown = f"{ICONS[words.outputs_mood(found)]} {words.outputs(found)}"
    return shown, case_id(case), code(found.arm), count(found.tensors), plain(found.detail)


def check(case: CaseComparison, found: Check) -> tuple[str, ...]:
    """The cells of one check."""
    icon = INFORMATION if found.informative else ICONS[words.check_mood(found)]
    outcome = f"{icon} {found.outcome}{' (for information)' if found.informative else ''}"
    return outcome, case_id(case), code(found.arm), code(found.name), plain(found.detail)
