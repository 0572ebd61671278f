"""A table for spreadsheets and notebooks: one line for each sample. Written only."""

import csv
import io

from ci_bench.formats.exporting import Export, Written
from ci_bench.formats.series import Runs, Series

HEADER = ("benchmark", "measure", "unit", "better", "run", "phase", "index", "value")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write(export: Export) -> Written:
    """Write all series with all samples; `phase` distinguishes warm-ups from samples."""
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(HEADER)
    for series in export.series:
        phases: tuple[tuple[str, Runs], ...] = (("warmup", series.warmups), ("sample", series.runs))
        for phase, runs in phases:
            for number, run in enumerate(runs):
                rows = (
                    (*_head(series), number, phase, index, repr(value))
                    for index, value in enumerate(run)
                )
                table.writerows(rows)
    return Written(text=stream.getvalue())


def _head(series: Series) -> tuple[str, str, str, str]:
    better = "" if series.better is None else series.better.value
    return _harmless(series.benchmark), _harmless(series.measure), _harmless(series.unit), better


def _harmless(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula.

    https://owasp.org/www-community/attacks/CSV_Injection
    """
    return f"'{text}" if text.startswith(_FORMULA) else text
