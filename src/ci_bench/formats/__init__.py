"""Other tools' files: one module each, that reads a text into series, writes series as a text, or both.

Pure: text in, values out. Nothing is evaluated, and a text may come from a stranger: its size, depth and counts are bounded.
What each format can hold, and what a conversion loses, is in docs/formats.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ci_bench.records.results import Results

FORMAT = "imported_from"
"""The field of a machine's identity that names the format: numbers of two tools are no two sides of one measurement."""


def is_imported(results: "Results") -> bool:
    """Whether another tool measured them."""
    return FORMAT in results.environment.identity
