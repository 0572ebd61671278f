"""The parts of a Markdown report, each as a block of whole rows; `markdown` puts them in order.

Owns the choice of rows, their order and their columns; `cells` owns how a value looks.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ci_bench.records.case import Outcome
from ci_bench.records.comparison import Comparison
from ci_bench.records.policy import Rule, Severity
from ci_bench.records.results import Environment
from ci_bench.report import cells
from ci_bench.report.averages import averages
from ci_bench.report.blocks import Block, collapsed, listed, table
from ci_bench.report.rows import main_rows, unclear_cases, worst_first, worst_pairs
from ci_bench.report.summary import summary
from ci_bench.report.text import UNKNOWN, code, fence, plain
from ci_bench.report.words import check_rank, parity_mood

_MAIN_HEADERS = ("Verdict", "Case", "Arm", "Step time", "Change", "Speedup over reference", "Loss parity", "Peak memory")
_METRIC_HEADERS = (
    *("Verdict", "Case", "Arm", "Metric", "Base", "Head", "Change", "Interval", "Samples"),
    *("Noise", "Resolvable", "q", "Reason"),
)
_ARM_HEADERS = ("Case", "Arm", "Reference", "Metric", "Reference ÷ arm", "Interval", "Base", "Changed by head")
_AVERAGE_HEADERS = (
    *("Suite", "Setting", "Arm", "Cases", "Pass", "Speedup over reference"),
    *("Compile, cold cache", "Compression of memory", "Besides"),
)
_FACT_HEADERS = ("Case", "Fact", "Value")
_PARITY_HEADERS = (
    *("Verdict", "Case", "Arm", "Tier", "Masks", "Steps", "Distance", "First step out"),
    *("Accuracy", "`training_loss.py` rule", "Detail"),
)
_CHECK_HEADERS = ("Outcome", "Case", "Arm", "Check", "Detail")
_UNCLEAR_HEADERS = ("Verdict", "Case", "Base", "Head", "Reason")


def findings(comparison: Comparison, *, shown: int | None) -> Block:
    """What turns the run red or yellow, the first `shown` of it; the rest is counted.

    A missing baseline is told above them.
    """
    order = (Severity.FAIL, Severity.WARN)
    loud = [f for f in comparison.judgement.findings if f.severity in order and f.rule is not Rule.BASELINE_MISSING]
    told = sorted(loud, key=lambda f: order.index(f.severity))
    rows = tuple(cells.finding(finding) for finding in told[:shown])
    hidden = told[len(rows) :]
    failing = sum(finding.severity is Severity.FAIL for finding in hidden)
    more = f"\n- … and {len(hidden):,} more: {failing:,} failing, {len(hidden) - failing:,} warnings" if hidden else ""
    return Block(name="findings", rows=rows, tail=more)


def mismatches(comparison: Comparison) -> Block:
    """What differs between the machines of the two runs."""
    rows = [(code(m.field), cells.fact(m.field, m.base), cells.fact(m.field, m.head)) for m in comparison.mismatches]
    block = table("differences between the machines", ("The two runs differ in", "Base", "Head"), rows, len(rows))
    return block if rows else Block(name=block.name, rows=())


def together(comparison: Comparison) -> Block:
    """What is said of the run as a whole: how all times moved, how noisy the machine is."""
    return Block(name="lines on the run as a whole", rows=tuple(f"- {plain(line)}" for line in summary(comparison)))


def main(comparison: Comparison, *, shown: int | None, room: int | None) -> tuple[Block, Block]:
    """The main table, and behind a line to click on the rows after the first `shown`."""
    rows = main_rows(comparison)
    block = table("rows of the main table", _MAIN_HEADERS, (cells.main(row) for row in rows), len(rows), room=room)
    first, rest = block.rows[:shown], block.rows[len(block.rows[:shown]) :]
    more = Block(name="further rows of the main table", head=block.head, rows=rest, more=block.more)
    visible = Block(name=block.name, head=block.head if first else "", rows=first)
    return visible, collapsed(more, f"{more.number:,} more rows, the better ones") if rest else more


def metrics(comparison: Comparison, *, room: int | None) -> Block:
    """Every metric of every arm; parts of what is judged as a whole come last."""
    found = worst_pairs(comparison)
    return _details("metrics", "All metrics", found, headers=_METRIC_HEADERS, cells_of=cells.metric, room=room)


def arms(comparison: Comparison, *, room: int | None) -> Block:
    """Every arm against the reference arm of its own run: speedups and compression ratios."""
    found = [(case, speedup) for case in worst_first(comparison.cases) for speedup in case.speedups]
    return _details("arms", "Arms against their reference", found, headers=_ARM_HEADERS, cells_of=cells.arm, room=room)


def means(comparison: Comparison, *, room: int | None) -> Block:
    """Pass rate, speedup, compile time and compression over the cases that both sides have, by suite, setting and arm."""
    found = [(one,) for one in averages(comparison)]
    return _details("means over cases", "Means over cases", found, headers=_AVERAGE_HEADERS, cells_of=cells.averages, room=room)


def parities(comparison: Comparison, *, room: int | None) -> Block:
    """Loss parity of every candidate arm."""
    found = sorted(((case, p) for case in comparison.cases for p in case.parity), key=lambda item: parity_mood(item[1]))
    return _details("rows on loss parity", "Loss parity", found, headers=_PARITY_HEADERS, cells_of=cells.parity, room=room)


def checks(comparison: Comparison, *, room: int | None) -> Block:
    """Every check, those that failed first, those for information last."""
    found = sorted(((case, c) for case in comparison.cases for c in case.checks), key=lambda item: check_rank(item[1]))
    failed = sum(check.outcome is Outcome.FAIL and not check.informative for _, check in found)
    title = f"Checks, {failed:,} failed" if failed else "Checks"
    return _details("checks", title, found, headers=_CHECK_HEADERS, cells_of=cells.check, room=room)


def unclear(comparison: Comparison, *, room: int | None) -> Block:
    """Cases that end without a comparison of figures, each with its reason."""
    found = [(case,) for case in unclear_cases(comparison)]
    return _details(
        "cases without a clear answer",
        "Cases without a clear answer",
        found,
        headers=_UNCLEAR_HEADERS,
        cells_of=cells.unclear,
        room=room,
    )


def facts(comparison: Comparison) -> Block:
    """What is known of the cases that no verdict depends on, such as the number of parameters."""
    found = [(case, name, value) for case in comparison.cases for name, value in case.facts.items()]
    return _details("facts of cases", "Facts of the cases", found, headers=_FACT_HEADERS, cells_of=cells.case_fact, room=None)


def notes(comparison: Comparison, *, room: int | None) -> Block:
    """Findings that are only listed."""
    found = [finding for finding in comparison.judgement.findings if finding.severity is Severity.NOTE]
    return _summarised(listed("notes", map(cells.finding, found), len(found), room=room), "Notes")


def environment(comparison: Comparison) -> Block:
    """The machines: what decides comparability, then the conditions. Fields that differ come first."""
    sides = [side for side in (comparison.base, comparison.head) if side]
    fields = dict.fromkeys(key for side in sides for key in (*side.environment.identity, *side.environment.condition))
    known = [(field, [_looked_up(side.environment, field) for side in sides]) for field in fields]
    known.sort(key=lambda item: len(set(item[1])) == 1)
    headers = ("Field", "Base", "Head") if comparison.base else ("Field", "Head")
    rows = [(code(field), *values) for field, values in known]
    return _summarised(table("environment fields", headers, rows, len(rows)), "Environment")


def logs(comparison: Comparison, *, lines: int | None, room: int | None) -> Block:
    """The end of the log of every case that has one."""
    failed = [case for case in worst_first(comparison.cases) if case.log_tail.strip()]
    rows = (f"**{cells.case_id(case)}**: {plain(case.reason)}\n\n{fence(case.log_tail, lines=lines)}" for case in failed)
    return _summarised(listed("log tails", rows, len(failed), room=room, between="\n\n"), "Log tails")


def reproduce(comparison: Comparison, *, room: int | None) -> Block:
    """The commands that run each case again, the worst case first."""
    commands = dict.fromkeys(case.reproduce for case in worst_first(comparison.cases) if case.reproduce)
    rows = (fence(command, cap=2000) for command in commands)
    return _summarised(listed("commands", rows, len(commands), room=room, between="\n\n"), "Run a case again")


def _details(
    name: str,
    title: str,
    found: Sequence[tuple[Any, ...]],
    *,
    headers: Sequence[str],
    cells_of: Callable[..., Sequence[str]],
    room: int | None,
) -> Block:
    """A table behind a line to click on: a row for each thing found, written until they fill the room."""
    return _summarised(table(name, headers, (cells_of(*one) for one in found), len(found), room=room), title)


def _summarised(block: Block, title: str) -> Block:
    return collapsed(block, f"{title} ({block.number:,})") if block.rows else Block(name=block.name, rows=())


def _looked_up(environment: Environment, field: str) -> str:
    facts = {**environment.condition, **environment.identity}
    return cells.fact(field, facts[field]) if field in facts else UNKNOWN
