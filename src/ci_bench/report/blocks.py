"""The budget of a comment: blocks of whole rows, cut from their ends to a limit in UTF-16 units.

Owns what is kept and what is cut. Every row is complete in itself, so a cut leaves no table, fence or `<details>` open.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ci_bench.report.text import UNKNOWN, row

_NAMES = 2
"""The first columns of a table, which say what a row is about."""

_BETWEEN = "\x1f"
"""Keeps the cells of a row apart until all rows are known: one text takes far less memory. No cell can hold it (`text.clean`)."""

Cells = Sequence[str]
T = TypeVar("T", bound=Cells)


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Rows, worst first, between a head and a tail. `name` says what the rows are, for the note on what was cut.

    `more` rows come after them that were never written out, because these alone fill the room there is.
    """

    name: str
    rows: tuple[str, ...]
    head: str = ""
    tail: str = ""
    between: str = "\n"
    more: int = 0

    @property
    def text(self) -> str:
        """The block as Markdown."""
        return "".join(self.pieces())

    def pieces(self) -> Iterator[str]:
        """What the text is made of, to be joined once, for it may be large."""
        yield self.head
        for number, one in enumerate(self.rows):
            if number:
                yield self.between
            yield one
        yield self.tail

    @property
    def number(self) -> int:
        """How many rows there are in all."""
        return len(self.rows) + self.more


def filling(rows: Iterable[T], room: int | None) -> Iterator[T]:
    """As many rows as it takes to fill `room` characters, all where it is `None`: no more than that need be written."""
    held = 0
    for one in rows:
        yield one
        held += sum(map(len, one))
        if room is not None and held > room:
            return


def listed(name: str, rows: Iterable[str], number: int, *, room: int | None, between: str = "\n") -> Block:
    """A block of `number` rows, written out until they fill `room`."""
    written = tuple(filling(rows, room))
    return Block(name=name, rows=written, between=between, more=number - len(written))


def table(name: str, headers: Cells, rows: Iterable[Cells], number: int, *, room: int | None = None) -> Block:
    """A table of `number` rows, without the columns that nothing is known about; the first two always stay."""
    known, written = set(range(_NAMES)), []
    for cells in filling(rows, room):
        known.update(index for index, cell in enumerate(cells) if cell != UNKNOWN)
        written.append(_BETWEEN.join(cells))
    kept = [index for index in range(len(headers)) if index in known]
    head = row(headers[index] for index in kept) + "\n" + "|" + " --- |" * len(kept) + "\n"
    lines = tuple([row(map(line.split(_BETWEEN).__getitem__, kept)) for line in written])
    return Block(name=name, head=head, rows=lines, more=number - len(lines))


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
    parts = [f"{a.number - len(b.rows):,} of {a.number:,} {a.name}" for a, b in pairs if a.number > len(b.rows)]
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
