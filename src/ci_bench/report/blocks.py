"""The budget of a comment: blocks of whole rows, cut from their ends to a limit in UTF-16 units.

Owns what is kept and what is cut. Every row is complete in itself, so a cut leaves no table, fence or `<details>` open.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ci_bench.report.text import UNKNOWN, row

_NAMES = 2
"""The first columns of a table, which say what a row is about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Rows, worst first, between a head and a tail. `name` says what the rows are, for the note on what was cut."""

    name: str
    rows: tuple[str, ...]
    head: str = ""
    tail: str = ""
    between: str = "\n"

    @property
    def text(self) -> str:
        """The block as Markdown."""
        return self.head + self.between.join(self.rows) + self.tail


def table(name: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Block:
    """A table without the columns that nothing is known about; the first two always stay."""
    kept = [index for index in range(len(headers)) if index < _NAMES or any(cells[index] != UNKNOWN for cells in rows)]
    head = row(headers[index] for index in kept) + "\n" + "|" + " --- |" * len(kept) + "\n"
    return Block(name=name, head=head, rows=tuple(row(cells[index] for index in kept) for cells in rows))


def collapsed(block: Block, summary: str) -> Block:
    """The block behind a line to click on. `summary` is raw HTML: only ever our own words."""
    opening = f"<details>\n<summary>{summary}</summary>\n\n"
    return replace(block, head=opening + block.head, tail=block.tail + "\n\n</details>")


def units(text: str) -> int:
    """The length GitHub counts: UTF-16 code units."""
    return len(text.encode("utf-16-le")) // 2


def fit(blocks: Sequence[Block], limit: int) -> tuple[Block, ...]:
    """The blocks cut to `limit` units, two of them for the empty line after each; a block with no room for a row is empty."""
    needs = [units(block.text) + 2 for block in blocks]
    return tuple(_cut(block, given) for block, given in zip(blocks, _shares(needs, limit), strict=True))


def cuts(whole: Sequence[Block], kept: Sequence[Block]) -> str:
    """What `fit` left out, in words; empty if nothing."""
    pairs = zip(whole, kept, strict=True)
    parts = [f"{len(a.rows) - len(b.rows):,} of {len(a.rows):,} {a.name}" for a, b in pairs if len(a.rows) > len(b.rows)]
    return f"✂️ Cut to fit: {', '.join(parts)}. The full text is in `report.md`." if parts else ""


def _shares(needs: Sequence[int], limit: int) -> list[int]:
    """Small needs are met in full, the large ones share the rest evenly."""
    given = [0] * len(needs)
    for rank, index in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        given[index] = min(needs[index], max(0, limit - sum(given)) // (len(needs) - rank))
    return given


def _cut(block: Block, limit: int) -> Block:
    left = limit - units(block.head + block.tail) - 2
    for number, text in enumerate(block.rows):
        left -= units(text) + (units(block.between) if number else 0)
        if left < 0:
            return replace(block, rows=block.rows[:number]) if number else Block(name=block.name, rows=())
    return block
