"""The pull-request comment and the full report, in GitHub's Markdown.

Owns the order of the parts and the budget. The parts are in `sections`, the escaping is in `text`.
"""

import re
from collections.abc import Sequence

from ci_bench.records.comparison import Comparison, Side
from ci_bench.report import sections
from ci_bench.report.blocks import Block, cuts, fit, units
from ci_bench.report.cells import ICONS, fact
from ci_bench.report.rows import outcome_mood
from ci_bench.report.text import code, plain

_SHOWN_FINDINGS = 10
_SHOWN_ROWS = 25
_SHOWN_LOG_LINES = 20
_SPEEDUP_LEGEND = "Speedup is reference ÷ candidate: above 1× is better."
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MACHINE = (("torch", "torch"), ("cuda", "CUDA"), ("driver", "driver"), ("python", "Python"))


def render_comment(comparison: Comparison, *, marker: str | None = None, limit: int = 60000) -> str:
    """The comment: the answer first, then what is worst, the tables, and the rest behind lines to click on.

    `marker` is a whole HTML comment, which becomes the first line. `limit` is in UTF-16 units, as GitHub counts; whole rows are
    cut, the better ones first, and the comment says so. What is never cut takes up to 8,000 units.
    """
    blocks = _blocks(comparison, room=limit)
    top, bottom = _top(comparison, marker), _bottom(comparison)
    whole = _page(top, blocks, bottom)
    if units(whole) <= limit:
        return whole
    worst_note = cuts(blocks, [Block(name=block.name, rows=()) for block in blocks])
    fixed = units(_page(top, [], f"{worst_note}\n\n{bottom}"))
    kept = fit(blocks, limit - fixed)
    return _page(top, kept, f"{cuts(blocks, kept)}\n\n{bottom}")


def render_report(comparison: Comparison) -> str:
    """The same without a limit, for report.md: every finding, every row, and the logs as far as they were kept."""
    return _page(_top(comparison, None), _blocks(comparison, room=None), _bottom(comparison))


def _blocks(comparison: Comparison, *, room: int | None) -> list[Block]:
    """All parts; with `room` those of a comment, of which no more is written than fits."""
    full = room is None
    first, more = sections.main(comparison, shown=None if full else _SHOWN_ROWS, room=room)
    blocks = [
        sections.findings(comparison, shown=None if full else _SHOWN_FINDINGS),
        sections.mismatches(comparison),
        sections.together(comparison),
        first,
        more,
        sections.unclear(comparison, room=room),
        sections.means(comparison, room=room),
        sections.metrics(comparison, room=room),
        sections.arms(comparison, room=room),
        sections.parities(comparison, room=room),
        sections.checks(comparison, room=room),
        sections.notes(comparison, room=room),
        sections.environment(comparison),
        sections.logs(comparison, lines=None if full else _SHOWN_LOG_LINES, room=room),
        sections.reproduce(comparison, room=room),
    ]
    return [*blocks, sections.facts(comparison)] if full else blocks


def _page(top: str, blocks: Sequence[Block], bottom: str) -> str:
    pieces = [top]
    for block in blocks:
        if block.rows:
            pieces += ["\n\n", *block.pieces()]
    return "".join([*pieces, "\n\n", bottom, "\n"])


def _top(comparison: Comparison, marker: str | None) -> str:
    headline = f"### {ICONS[outcome_mood(comparison)]} {plain(comparison.judgement.headline)}"
    return "\n\n".join(part for part in (marker, headline, _baseline(comparison)) if part)


def _baseline(comparison: Comparison) -> str:
    """What stands in the way of a comparison, and what to do about it."""
    if comparison.base is None:
        why = f": {plain(comparison.absence)}" if comparison.absence else "."
        todo = "Measure the base branch with the same configuration and give its results document as the baseline."
        return f"**No baseline**{why}\n\nThe figures below are head's alone. {todo}"
    if comparison.mismatches:
        return "**Not the same machine or software.** Measure base and head in the same place, then compare again."
    return ""


def _bottom(comparison: Comparison) -> str:
    parts = [*_machine(comparison.head), _commits(comparison), f"ci-bench {code(comparison.tool_version)}"]
    return f"{_legend(comparison)}\n\n{' · '.join(parts)}"


def _legend(comparison: Comparison) -> str:
    levels = {pair.interval.level for case in comparison.cases for pair in case.pairs if pair.interval}
    kind = f"{min(levels) * 100:.4g} % interval" if len(levels) == 1 else "interval"
    return f"Change is head against base with its {kind}. {_SPEEDUP_LEGEND}" if levels else _SPEEDUP_LEGEND


def _machine(side: Side) -> list[str]:
    facts = side.environment.identity
    device = next((fact(key, facts[key]) for key in ("gpu", "cpu") if facts.get(key) is not None), code(side.run.device))
    return [device, *(f"{label} {fact(key, facts[key])}" for key, label in _MACHINE if facts.get(key) is not None)]


def _commits(comparison: Comparison) -> str:
    sides = [side for side in (comparison.base, comparison.head) if side]
    return " → ".join(_commit(side) for side in sides)


def _commit(side: Side) -> str:
    """A commit within a code span does not link, so it stays whole and can be copied."""
    commit = side.source.commit or ""
    shown = f"`{commit[:12]}`" if _COMMIT.fullmatch(commit) else code(commit)
    return shown + (" with uncommitted changes" if side.source.dirty else "")
