"""Output of the benchmarks: one table of text, one document of JSON."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SCHEMA_VERSION = 1


def render(title: str, rows: Sequence[Mapping[str, str]]) -> str:
    """Return a Markdown table with aligned columns, under a title.

    All rows have the keys of the first.
    """
    if not rows:
        return f"{title}: nothing measured\n"
    heads = list(rows[0])
    lines = [heads, *([row[head] for head in heads] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    text = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([title, "", *text, ""])


def publish(text: str, document: Mapping[str, object], path: Path | None) -> None:
    """Print the text, and write the document if there is a path."""
    sys.stdout.write(text + "\n")
    if path:
        path.write_text(
            json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=1, sort_keys=True)
            + "\n"
        )
