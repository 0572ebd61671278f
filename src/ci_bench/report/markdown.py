"""The pull-request comment and the full report, in GitHub's Markdown.

Owns the choice of rows, the order of the parts, and the budget of a comment: each part is a block
of whole rows, cut from its end to a limit in UTF-16 units. Every row is complete in itself, so a
cut leaves no table, fence or `<details>` open. The columns are in `columns`, the appearance of a
value in `cells`, the escaping in `text`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from ci_bench.records.comparison import CaseComparison, ComparedSide, Comparison, Finding
from ci_bench.records.config import Rule, Severity
from ci_bench.records.labels import worst_first
from ci_bench.records.outputs import Sameness
from ci_bench.records.results import Environment, Outcome
from ci_bench.report import cells, columns
from ci_bench.report.averages import averages
from ci_bench.report.case_columns import COMPACT, NEW
from ci_bench.report.causes import WRONG, bisect_command, explained, first_of_case, reproduced
from ci_bench.report.cells import ICONS, cell, fact
from ci_bench.report.changes import (
    CHANGES,
    SHOWN,
    Change,
    changes,
    first_regressions,
    of_run,
    rest,
    ruled_out,
)
from ci_bench.report.columns import Columns
from ci_bench.report.modes import Modes, modes
from ci_bench.report.next_step import next_step
from ci_bench.report.rows import labels, main_rows, outcome_mood, unclear_cases, worst_pairs
from ci_bench.report.summary import summary
from ci_bench.report.text import UNKNOWN, code, fence, plain, row
from ci_bench.report.words import check_rank, outputs_mood, parity_mood, trainings

_COMMAND_CAP = 1000
_NAMES = 2
"""The first columns of a table, which say what a row is about."""

_BETWEEN = "\x1f"
"""Keeps the cells of a row apart until all rows are known: one text takes far less memory. No cell
can hold it (`text.clean`).
"""

Cells = Sequence[str]
T = TypeVar("T", bound=Cells)
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, slots=True)
class CommentBlock:
    """Rows, worst first, between a head and a tail."""

    name: str
    """A noun for the rows, for the note on cut rows."""
    rows: tuple[str, ...]
    """Whole rows of Markdown, each complete in itself."""
    head: str = ""
    """Markdown before the first row."""
    tail: str = ""
    """Markdown after the last row."""
    between: str = "\n"
    """The separator of two rows."""
    more: int = 0
    """Number of further rows, unwritten because these fill the room."""
    inner: bool = False
    """Whether it is behind the line to click on that all details share."""

    @property
    def text(self) -> str:
        """Return the block as Markdown."""
        return "".join(self.pieces())

    def pieces(self) -> Iterator[str]:
        """Yield the pieces of the text, to be joined once, for it may be large."""
        yield self.head
        for number, piece in enumerate(self.rows):
            if number:
                yield self.between
            yield piece
        yield self.tail

    @property
    def number(self) -> int:
        """Return the number of rows in all."""
        return len(self.rows) + self.more


def filling(rows: Iterable[T], room: int | None) -> Iterator[T]:
    """Yield rows until they fill `room` characters, or all rows if it is `None`.

    No more than that need be written.
    """
    length = 0
    for entry in rows:
        yield entry
        length += sum(map(len, entry))
        if room is not None and length > room:
            return


def listed(
    name: str, rows: Iterable[str], number: int, *, room: int | None, between: str = "\n"
) -> CommentBlock:
    """Return a block of `number` rows, written out until they fill `room`."""
    written = tuple(filling(rows, room))
    return CommentBlock(name=name, rows=written, between=between, more=number - len(written))


def drawn(
    name: str, columns: Columns[R], items: Sequence[R], *, room: int | None = None
) -> CommentBlock:
    """Return a table of these columns, a row for each item."""
    cells = [cell(column) for column in columns]
    rows = ([draw(item) for draw in cells] for item in items)
    return table(name, [column.title for column in columns], rows, len(items), room=room)


def table(
    name: str, headers: Cells, rows: Iterable[Cells], number: int, *, room: int | None = None
) -> CommentBlock:
    """Return a table of `number` rows, without columns that nothing is known about.

    The first two columns always stay.
    """
    unknown, written = [*range(_NAMES, len(headers))], []
    for values in filling(rows, room):
        if unknown:
            unknown = [index for index in unknown if values[index] == UNKNOWN]
        written.append(_BETWEEN.join(values))
    indices = [index for index in range(len(headers)) if index not in unknown]
    head = row(headers[index] for index in indices) + "\n" + "|" + " --- |" * len(indices) + "\n"
    lines = tuple([row([*map(line.split(_BETWEEN).__getitem__, indices)]) for line in written])
    return CommentBlock(name=name, head=head, rows=lines, more=number - len(lines))


def collapsed(block: CommentBlock, summary: str) -> CommentBlock:
    """Return the block behind a line to click on.

    `summary` is raw HTML: only ever our own words.
    """
    opening = f"<details>\n<summary>{summary}</summary>\n\n"
    return replace(block, head=opening + block.head, tail=block.tail + "\n\n</details>")


def units(text: str) -> int:
    """Return the length that GitHub counts, in UTF-16 code units."""
    return len(text.encode("utf-16-le")) // 2


def fit(blocks: Sequence[CommentBlock], limit: int) -> tuple[CommentBlock, ...]:
    """Return the blocks cut to `limit` units; a block with no room for a row is empty.

    Two units of each are for the empty line after it.
    """
    needs = [units(block.text) + 2 for block in blocks]
    return tuple(
        _cut(block, share) for block, share in zip(blocks, _shares(needs, limit), strict=True)
    )


def cuts(blocks: Sequence[CommentBlock], fitted: Sequence[CommentBlock]) -> str:
    """Describe the rows that `fit` left out; empty if all are there."""
    pairs = zip(blocks, fitted, strict=True)
    parts = [
        f"{a.number - len(b.rows):,} of {a.number:,} {a.name}"
        for a, b in pairs
        if a.number > len(b.rows)
    ]
    return f"✂️ Cut to fit: {', '.join(parts)}. The full text is in `report.md`." if parts else ""


def _shares(needs: Sequence[int], limit: int) -> list[int]:
    """Apportion `limit`: small needs are met in full, the large ones share the rest evenly."""
    shares = [0] * len(needs)
    for rank, index in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        shares[index] = min(needs[index], max(0, limit - sum(shares)) // (len(needs) - rank))
    return shares


def _cut(block: CommentBlock, limit: int) -> CommentBlock:
    room = limit - units(block.head + block.tail) - 2
    for number, text in enumerate(block.rows):
        room -= units(text) + (units(block.between) if number else 0)
        if room < 0:
            return (
                replace(block, rows=block.rows[:number])
                if number
                else CommentBlock(name=block.name, rows=())
            )
    return block


def changed(rows: Sequence[Change], number: int, *, room: int | None) -> CommentBlock:
    """Return the table of changes: its first rows, of `number` in all."""
    block = drawn("changes", CHANGES, rows, room=room)
    more = number - len(rows)
    tail = f"\n\n… and {more:,} more under “More changes”." if more else ""
    return replace(block, tail=tail) if block.rows else CommentBlock(name=block.name, rows=())


def new_cases(comparison: Comparison, *, shown: int | None) -> CommentBlock:
    """Return the figures of a run that has nothing to compare with."""
    compared = comparison.base is not None and any(
        case.base_status is not None for case in comparison.cases
    )
    rows = () if compared else main_rows(comparison)
    return drawn("cases", NEW, rows[:shown]) if rows else CommentBlock(name="cases", rows=())


def of_whole_run(comparison: Comparison, *, shown: int | None) -> CommentBlock:
    """Return findings on the run as a whole that the headline does not contain."""
    run_findings = of_run(comparison)
    rows = tuple(cells.finding(finding, {}) for finding in run_findings[:shown])
    more = len(run_findings) - len(rows)
    return CommentBlock(
        name="findings on the run",
        rows=rows,
        tail=f"\n- … and {more:,} more, folded below" if more else "",
    )


def accepted(comparison: Comparison, *, shown: int | None) -> CommentBlock:
    """Return the accepted changes: how far, by whom, and why."""
    accepted_findings = [
        finding
        for finding in comparison.judgement.findings
        if finding.rule is Rule.ACCEPTED and finding.severity is Severity.NOTE
    ]
    short = labels(comparison)
    return CommentBlock(
        name="accepted changes",
        rows=tuple(cells.finding(finding, short) for finding in accepted_findings[:shown]),
    )


def line(name: str, text: str) -> CommentBlock:
    """Return a paragraph; none if the text is empty."""
    return CommentBlock(name=name, rows=(text,) if text else ())


def reasons(comparison: Comparison, rows: Sequence[Change]) -> CommentBlock:
    """Describe why the first cases got worse, and what was ruled out, in two lines at most."""
    lines: list[str] = []
    for case in first_regressions(rows)[:_EXPLAINED]:
        why = [
            sentence.partition(". ")[0]
            for sentence in explained(case, name=code, prose=plain)[: 1 + case.edited]
        ]
        if any(
            row.case is case and row.finding is not None and row.finding.rule in WRONG
            for row in rows
        ):
            why += reproduced(case, name=code, prose=plain)[:1]
        if why and not lines and (out := ruled_out(comparison, case)):
            why.append(out)
        if why:
            lines.append(f"- {code(labels(comparison)[case.id], cap=160)}: {'; '.join(why)}")
    return CommentBlock(name="causes", rows=tuple(lines))


def findings(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return every failing finding and every warning in full, with causes and commands."""
    loud = _loud(comparison)
    rows = _with_cause(comparison, loud, labels(comparison))
    return _summarised(listed("findings", rows, len(loud), room=room), "Findings in full")


def _with_cause(
    comparison: Comparison, loud: Sequence[Finding], short: Mapping[str, str]
) -> Iterator[str]:
    """Yield the findings with their causes.

    The first finding of each case that got worse has its known causes, and how to look for the
    commit. The first of each case that is wrong has a command that shows it.
    """
    cases, worse, wrong = (
        {case.id: case for case in comparison.cases},
        first_of_case(loud),
        first_of_case(loud, WRONG),
    )
    for place, finding in enumerate(loud):
        case = cases.get(finding.case or "")
        why = _why(comparison, case) if case and place in worse else []
        shown = reproduced(case, name=code, prose=plain) if case and place in wrong else ()
        yield "\n".join(
            [cells.finding(finding, short), *(f"  - {line}" for line in (*why, *shown))]
        )


def _why(comparison: Comparison, case: CaseComparison) -> list[str]:
    command = bisect_command(comparison, case)
    return [
        *explained(case, name=code, prose=plain),
        *([f"find the commit: `{command}`"] if command else []),
    ]


def _loud(comparison: Comparison) -> list[Finding]:
    order = (Severity.FAIL, Severity.WARN)
    loud = [
        f
        for f in comparison.judgement.findings
        if f.severity in order and f.rule is not Rule.BASELINE_MISSING
    ]
    return sorted(loud, key=lambda f: order.index(f.severity))


def mismatches(comparison: Comparison, *, shown: int | None) -> CommentBlock:
    """Return the differences between the machines of the two runs, the first `shown` of them."""
    rows = [
        (code(m.field), cells.fact(m.field, m.base), cells.fact(m.field, m.head))
        for m in comparison.mismatches[:shown]
    ]
    block = table(
        "differences between the machines",
        ("The two runs differ in", "Base", "Head"),
        rows,
        len(rows),
    )
    return block if rows else CommentBlock(name=block.name, rows=())


def how_sure(comparison: Comparison) -> CommentBlock:
    """Return the statistics of the run.

    They are decided metrics, detectable change, noise, calibration and mean.
    """
    rows = tuple(f"- {plain(sentence)}" for sentence in (*summary(comparison), _legend(comparison)))
    return collapsed(CommentBlock(name="lines on the run as a whole", rows=rows), "How sure")


def main(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return every arm of every case, worst first."""
    rows = main_rows(comparison)
    name = "rows of the main table"
    if comparison.base is None:
        return CommentBlock(name=name, rows=())
    block = drawn(name, COMPACT, rows, room=room)
    cases = len(comparison.cases)
    return (
        collapsed(block, f"All cases ({cases:,})")
        if block.rows
        else CommentBlock(name=name, rows=())
    )


def metrics(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return every metric of every arm; parts of a judged whole come last."""
    return _details(
        "metrics", "All metrics", columns.FEW_METRICS, worst_pairs(comparison), room=room
    )


def arms(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return every arm against its run's reference arm: speedups and compression ratios."""
    speedups = [
        (case, speedup) for case in worst_first(comparison.cases) for speedup in case.speedups
    ]
    return _details("arms", "Arms against their reference", columns.ARMS, speedups, room=room)


def means(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return the means over the cases that both sides have, by suite, setting and arm."""
    return _details(
        "means over cases", "Means over cases", columns.MEANS, averages(comparison), room=room
    )


def mode_tables(comparison: Comparison, *, room: int | None) -> tuple[CommentBlock, ...]:
    """Return compiled arms side by side, a table for each suite."""
    return tuple(_modes(suite_modes, room=room) for suite_modes in modes(comparison))


def _modes(suite_modes: Modes, *, room: int | None) -> CommentBlock:
    case, reference, *arms = columns.of_modes(suite_modes.arms)
    arm_columns = [replace(column, title=code(column.title)) for column in arms]
    block = drawn(
        f"cases of {plain(suite_modes.suite)} by mode",
        (case, reference, *arm_columns),
        suite_modes.rows,
        room=room,
    )
    return collapsed(
        replace(block, tail=f"\n\n{columns.MODES_LEGEND}"),
        f"Compile modes side by side ({plain(suite_modes.suite)})",
    )


def parities(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return the loss parity of every candidate arm, and of head's trainings with base's."""
    items = sorted(
        ((case, p) for case in comparison.cases for p in trainings(case)),
        key=lambda item: parity_mood(item[1]),
    )
    return _details("rows on loss parity", "Loss parity", columns.FEW_PARITY, items, room=room)


def outputs(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return the comparison of the outputs of head's reference arm with base's."""
    there = [(case, case.outputs) for case in comparison.cases if case.outputs is not None]
    items = sorted(there, key=lambda item: outputs_mood(item[1]))
    changed = sum(finding.verdict is Sameness.CHANGED for _, finding in items)
    title = f"Outputs against base, {changed:,} changed" if changed else "Outputs against base"
    return _details("rows on outputs", title, columns.OUTPUTS, items, room=room)


def checks(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return every check, those that failed first, those for information last."""
    items = sorted(
        ((case, c) for case in comparison.cases for c in case.checks),
        key=lambda item: check_rank(item[1]),
    )
    failed = sum(check.outcome is Outcome.FAIL and not check.informative for _, check in items)
    title = f"Checks, {failed:,} failed" if failed else "Checks"
    return _details("checks", title, columns.CHECKS, items, room=room)


def unclear(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return the cases that end without a comparison of figures, each with its reason."""
    name = "cases without a clear answer"
    return _details(name, name.capitalize(), columns.UNCLEAR, unclear_cases(comparison), room=room)


def facts(comparison: Comparison) -> CommentBlock:
    """Return the facts of the cases that no verdict depends on, such as their parameters."""
    items = [(case, name, value) for case in comparison.cases for name, value in case.facts.items()]
    return _details("facts of cases", "Facts of the cases", columns.FACTS, items, room=None)


def notes(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return the findings that are only listed."""
    quiet = [
        finding for finding in comparison.judgement.findings if finding.severity is Severity.NOTE
    ]
    remaining = [finding for finding in quiet if finding.rule is not Rule.ACCEPTED]
    short = labels(comparison)
    return _summarised(
        listed(
            "notes",
            (cells.finding(finding, short) for finding in remaining),
            len(remaining),
            room=room,
        ),
        "Notes",
    )


def environment(comparison: Comparison) -> CommentBlock:
    """Return the machines: what decides comparability, then the conditions.

    Fields that differ come first.
    """
    sides = [side for side in (comparison.base, comparison.head) if side]
    fields = dict.fromkeys(
        key for side in sides for key in (*side.environment.identity, *side.environment.condition)
    )
    facts_by_field = [
        (field, [_looked_up(side.environment, field) for side in sides]) for field in fields
    ]
    facts_by_field.sort(key=lambda item: len(set(item[1])) == 1)
    headers = ("Field", "Base", "Head") if comparison.base else ("Field", "Head")
    rows = [(code(field), *values) for field, values in facts_by_field]
    return _summarised(table("environment fields", headers, rows, len(rows)), "Environment")


def logs(comparison: Comparison, *, lines: int | None, room: int | None) -> CommentBlock:
    """Return the end of the log of every case that has one."""
    failed = [case for case in worst_first(comparison.cases) if case.log_tail.strip()]
    rows = (
        f"**{cells.case_id(case)}**: {plain(case.reason)}\n\n{fence(case.log_tail, lines=lines)}"
        for case in failed
    )
    return _summarised(
        listed("log tails", rows, len(failed), room=room, between="\n\n"), "Log tails"
    )


def reproduce(comparison: Comparison, *, room: int | None) -> CommentBlock:
    """Return the commands that run each case again, the worst case first."""
    commands = dict.fromkeys(
        case.reproduce for case in worst_first(comparison.cases) if case.reproduce
    )
    rows = (fence(command, cap=2000) for command in commands)
    return _summarised(
        listed("commands", rows, len(commands), room=room, between="\n\n"), "Run a case again"
    )


def _details(
    name: str, title: str, columns: Columns[R], items: Sequence[R], *, room: int | None
) -> CommentBlock:
    """Return a table behind a line to click on, a row for each item.

    Rows are written until they fill the room.
    """
    return _summarised(drawn(name, columns, items, room=room), title)


def _summarised(block: CommentBlock, title: str) -> CommentBlock:
    return (
        collapsed(block, f"{title} ({block.number:,})")
        if block.rows
        else CommentBlock(name=block.name, rows=())
    )


def _looked_up(environment: Environment, field: str) -> str:
    facts = {**environment.condition, **environment.identity}
    return cells.fact(field, facts[field]) if field in facts else UNKNOWN


_OPENING, _CLOSING = (
    "<details>\n<summary>All results, how sure they are, and how to run them again</summary>",
    "</details>",
)
LARGEST_PART = 2_500_000
"""Characters of a part of report.md: more is unreadable, and takes as long to write as to judge."""
_SHOWN_FINDINGS, _SHOWN_MISMATCHES, _EXPLAINED = 3, 5, 2
_SHOWN_LOG_LINES = 20
_SPEEDUP_LEGEND = "Speedup is reference ÷ candidate: above 1× is better."
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MACHINE = (("torch", "torch"), ("cuda", "CUDA"), ("driver", "driver"), ("python", "Python"))


def render_comment(comparison: Comparison, *, marker: str | None = None, limit: int = 60000) -> str:
    """Return the comment: the answer first, then the worst, the tables, and folded details.

    `marker` is a whole HTML comment, which becomes the first line. `limit` is in UTF-16 units, as
    GitHub counts; whole rows are cut, the better ones first, and the comment says so. The parts
    that are never cut take up to 8,000 units.
    """
    blocks = _blocks(comparison, room=limit)
    top, bottom = _top(comparison, marker), _bottom(comparison)
    full_page = _page(top, blocks, bottom)
    if units(full_page) <= limit:
        return full_page
    worst_note = cuts(blocks, [CommentBlock(name=block.name, rows=()) for block in blocks])
    fixed = units(_page(top, [], f"{_OPENING}{_CLOSING}\n\n\n\n{worst_note}\n\n{bottom}"))
    fitted = fit(blocks, limit - fixed)
    return _page(top, fitted, f"{cuts(blocks, fitted)}\n\n{bottom}")


def render_report(comparison: Comparison, *, room: int | None = LARGEST_PART) -> str:
    """Return report.md: all findings, the kept logs, and each part up to `room` characters.

    The default has every row of some 10,000 metrics. Of more the worst come first, and a line says
    how many others there are.
    """
    blocks = map(_with_rest, _blocks(comparison, room=room, full=True))
    return _page(_top(comparison, None), list(blocks), _bottom(comparison))


def _with_rest(block: CommentBlock) -> CommentBlock:
    """Return the block with a line on the rows that were not written out."""
    rest = (
        f"\n\n… and {block.more:,} more {block.name}: `ci-bench show comparison.json --format"
        " markdown` writes all of them."
    )
    return replace(block, tail=rest + block.tail) if block.more else block


def _blocks(comparison: Comparison, *, room: int | None, full: bool = False) -> list[CommentBlock]:
    """Return all parts, each written until it fills `room`.

    They are those of a comment, unless they are to be `full`.
    """
    rows = changes(comparison)
    shown = rows if full else rows[:SHOWN]
    blocks = [
        of_whole_run(comparison, shown=None if full else _SHOWN_FINDINGS),
        mismatches(comparison, shown=None if full else _SHOWN_MISMATCHES),
        changed(shown, len(rows), room=room),
        accepted(comparison, shown=None if full else SHOWN),
        new_cases(comparison, shown=None if full else SHOWN),
        line("the rest", rest(comparison)),
        reasons(comparison, shown),
        line("next step", _next(comparison)),
        _summarised(drawn("changes", CHANGES, rows[len(shown) :], room=room), "More changes"),
        findings(comparison, room=room),
        logs(comparison, lines=None if full else _SHOWN_LOG_LINES, room=room),
    ]
    details = [
        how_sure(comparison),
        main(comparison, room=room),
        unclear(comparison, room=room),
        *mode_tables(comparison, room=room),
        means(comparison, room=room),
        metrics(comparison, room=room),
        arms(comparison, room=room),
        parities(comparison, room=room),
        outputs(comparison, room=room),
        checks(comparison, room=room),
        notes(comparison, room=room),
        environment(comparison),
        reproduce(comparison, room=room),
    ]
    return (
        [*blocks, *details, facts(comparison)]
        if full
        else [*blocks, *(replace(block, inner=True) for block in details)]
    )


def _page(top: str, blocks: Sequence[CommentBlock], bottom: str) -> str:
    pieces = [top]
    for first, section in groupby(
        (block for block in blocks if block.rows), key=lambda block: block.inner
    ):
        pieces += [f"\n\n{_OPENING}"] if first else []
        for block in section:
            pieces += ["\n\n", *block.pieces()]
        pieces += [f"\n\n{_CLOSING}"] if first else []
    return "".join([*pieces, "\n\n", bottom, "\n"])


def _top(comparison: Comparison, marker: str | None) -> str:
    headline = f"### {ICONS[outcome_mood(comparison)]} {plain(comparison.judgement.headline)}"
    return "\n\n".join(part for part in (marker, headline, _baseline(comparison)) if part)


def _next(comparison: Comparison) -> str:
    """Describe the next step."""
    step = next_step(comparison)
    if step is None:
        return ""
    command = f" {code(step.command, cap=_COMMAND_CAP)}" if step.command else ""
    return f"**Next:** {plain(step.text)}{command}"


def _baseline(comparison: Comparison) -> str:
    """Describe the obstacle to a comparison."""
    if (
        comparison.base is not None
        or not comparison.absence
        or comparison.absence in comparison.judgement.headline
    ):
        return ""
    return f"**No baseline**: {plain(comparison.absence)}"


def _bottom(comparison: Comparison) -> str:
    machine = [] if comparison.mismatches else _machine(comparison.head)
    parts = [*machine, _commits(comparison), f"ci-bench {code(comparison.tool_version)}"]
    return f"<sub>{' · '.join(parts)}</sub>"


def _legend(comparison: Comparison) -> str:
    levels = {
        pair.interval.level for case in comparison.cases for pair in case.pairs if pair.interval
    }
    kind = f"{min(levels) * 100:.4g} % interval" if len(levels) == 1 else "interval"
    return (
        f"Change is head against base with its {kind}. {_SPEEDUP_LEGEND}"
        if levels
        else _SPEEDUP_LEGEND
    )


def _machine(side: ComparedSide) -> list[str]:
    facts = side.environment.identity
    device = next(
        (fact(key, facts[key]) for key in ("gpu", "cpu") if facts.get(key) is not None),
        code(side.run.device),
    )
    return [
        device,
        *(
            f"{label} {fact(key, facts[key])}"
            for key, label in _MACHINE
            if facts.get(key) is not None
        ),
    ]


def _commits(comparison: Comparison) -> str:
    sides = [side for side in (comparison.base, comparison.head) if side]
    return " → ".join(_commit(side) for side in sides)


def _commit(side: ComparedSide) -> str:
    """Return a commit within a code span, where it does not link and can be copied whole."""
    commit = side.source.commit or ""
    shown = f"`{commit[:12]}`" if _COMMIT.fullmatch(commit) else code(commit)
    return shown + (" with uncommitted changes" if side.source.dirty else "")
