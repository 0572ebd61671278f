"""The parts of a Markdown report, each as a block of whole rows; `markdown` puts them in order.

Owns the choice of rows, their order and their columns; `cells` owns how a value looks.
"""

from collections.abc import Sequence

from ci_bench.records.case import Outcome
from ci_bench.records.comparison import Comparison
from ci_bench.records.policy import Rule, Severity
from ci_bench.records.results import Environment
from ci_bench.report import cells
from ci_bench.report.blocks import Block, collapsed, table
from ci_bench.report.rows import main_rows, unclear_cases, worst_first, worst_pairs
from ci_bench.report.text import UNKNOWN, code, fence, plain
from ci_bench.report.words import check_mood, parity_mood

_MAIN_HEADERS = ("Verdict", "Case", "Arm", "Step time", "Change", "Speedup over reference", "Loss parity", "Peak memory")
_METRIC_HEADERS = ("Verdict", "Case", "Arm", "Metric", "Base", "Head", "Change", "Interval", "Samples", "Reason")
_ARM_HEADERS = ("Case", "Arm", "Reference", "Metric", "Reference ÷ arm", "Interval", "Base")
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
    block = table("differences between the machines", ("The two runs differ in", "Base", "Head"), rows)
    return block if rows else Block(name=block.name, rows=())


def main(comparison: Comparison, *, shown: int | None) -> tuple[Block, Block]:
    """The main table, and behind a line to click on the rows after the first `shown`."""
    rows = main_rows(comparison)
    block = table("rows of the main table", _MAIN_HEADERS, [cells.main(row) for row in rows])
    first, rest = block.rows[:shown], block.rows[len(block.rows[:shown]) :]
    more = Block(name="further rows of the main table", head=block.head, rows=rest)
    visible = Block(name=block.name, head=block.head if first else "", rows=first)
    return visible, collapsed(more, f"{len(rest):,} more rows, the better ones") if rest else more


def metrics(comparison: Comparison) -> Block:
    """Every metric of every arm."""
    rows = [cells.metric(case, pair) for case, pair in worst_pairs(comparison)]
    return _details("metrics", "All metrics", _METRIC_HEADERS, rows)


def arms(comparison: Comparison) -> Block:
    """Every arm against the reference arm of its own run: speedups and compression ratios."""
    rows = [cells.arm(case, found) for case in worst_first(comparison.cases) for found in case.speedups]
    return _details("arms", "Arms against their reference", _ARM_HEADERS, rows)


def parities(comparison: Comparison) -> Block:
    """Loss parity of every candidate arm."""
    found = sorted(((case, p) for case in comparison.cases for p in case.parity), key=lambda item: parity_mood(item[1]))
    rows = [cells.parity(case, finding) for case, finding in found]
    return _details("rows on loss parity", "Loss parity", _PARITY_HEADERS, rows)


def checks(comparison: Comparison) -> Block:
    """Every check, those that failed first."""
    found = sorted(((case, c) for case in comparison.cases for c in case.checks), key=lambda item: check_mood(item[1]))
    rows = [cells.check(case, check) for case, check in found]
    failed = sum(check.outcome is Outcome.FAIL for _, check in found)
    return _details("checks", f"Checks, {failed:,} failed" if failed else "Checks", _CHECK_HEADERS, rows)


def unclear(comparison: Comparison) -> Block:
    """Cases that end without a comparison of figures, each with its reason."""
    rows = [cells.unclear(case) for case in unclear_cases(comparison)]
    return _details("cases without a clear answer", "Cases without a clear answer", _UNCLEAR_HEADERS, rows)


def notes(comparison: Comparison) -> Block:
    """Findings that are only listed."""
    found = [finding for finding in comparison.judgement.findings if finding.severity is Severity.NOTE]
    block = Block(name="notes", rows=tuple(cells.finding(finding) for finding in found))
    return _summarised(block, "Notes")


def environment(comparison: Comparison) -> Block:
    """The machines: what decides comparability, then the conditions. Fields that differ come first."""
    sides = [side for side in (comparison.base, comparison.head) if side]
    fields = dict.fromkeys(key for side in sides for key in (*side.environment.identity, *side.environment.condition))
    facts = [(field, [_looked_up(side.environment, field) for side in sides]) for field in fields]
    facts.sort(key=lambda item: len(set(item[1])) == 1)
    headers = ("Field", "Base", "Head") if comparison.base else ("Field", "Head")
    return _details("environment fields", "Environment", headers, [(code(field), *values) for field, values in facts])


def logs(comparison: Comparison, *, lines: int | None) -> Block:
    """The end of the log of every case that has one."""
    failed = [case for case in worst_first(comparison.cases) if case.log_tail.strip()]
    rows = tuple(f"**{cells.case_id(case)}**: {plain(case.reason)}\n\n{fence(case.log_tail, lines=lines)}" for case in failed)
    return _summarised(Block(name="log tails", rows=rows, between="\n\n"), "Log tails")


def reproduce(comparison: Comparison) -> Block:
    """The commands that run each case again, the worst case first."""
    commands = dict.fromkeys(case.reproduce for case in worst_first(comparison.cases) if case.reproduce)
    rows = tuple(fence(command, cap=2000) for command in commands)
    return _summarised(Block(name="commands", rows=rows, between="\n\n"), "Run a case again")


def _details(name: str, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Block:
    return _summarised(table(name, headers, rows), title)


def _summarised(block: Block, title: str) -> Block:
    return collapsed(block, f"{title} ({len(block.rows):,})") if block.rows else Block(name=block.name, rows=())


def _looked_up(environment: Environment, field: str) -> str:
    facts = {**environment.condition, **environment.identity}
    return cells.fact(field, facts[field]) if field in facts else UNKNOWN
