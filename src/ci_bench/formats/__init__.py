"""Files of other tools: one module each, which reads a text into series, writes one, or both.

Pure: text in, values out. Nothing is evaluated, and a text may come from a stranger: its size,
depth and counts are bounded. docs/formats.md lists the contents of each format, and the losses of
conversions.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ci_bench.records.results import Results

FORMAT = "imported_from"
"""Field of a machine's identity that names the format: numbers of two tools are not comparable."""


def is_imported(results: "Results") -> bool:
    """Return whether another tool measured the results."""
    return FORMAT in results.environment.identity
