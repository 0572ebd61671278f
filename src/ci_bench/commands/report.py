"""`ci-bench report`: renders a comparison, or only one run: Markdown, HTML, pictures, badge, CI formats."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ci_bench.command_line.settings import Showing
from ci_bench.commands.judging import material, page
from ci_bench.commands.output import say, tell
from ci_bench.commands.reports import document_of, read_report
from ci_bench.errors import BadInput, CannotWrite, ExitCode, PlotsMissing
from ci_bench.records import documents
from ci_bench.records.comparison import Comparison
from ci_bench.records.results import Results
from ci_bench.report.ci_hosts import render_code_quality, render_junit
from ci_bench.report.markdown import render_comment, render_report
from ci_bench.report.plots import figures
from ci_bench.report.summary import badge

PICTURES = ("svg", "png")
HOSTS = ("junit", "code-quality")


def report(settings: Showing) -> int:
    """Render a comparison, or only one run."""
    document = document_of(settings.document)
    comparison, head, base = read_report(document, head=settings.head, base=settings.base)
    if settings.format in PICTURES:
        return _pictures(comparison, head, base, settings)
    if settings.format == "html":
        text = page(comparison, head=head, base=base)
    elif settings.format == "badge":
        text = json.dumps(badge(comparison)) + "\n"
    elif settings.format in HOSTS:
        text = (render_junit if settings.format == "junit" else render_code_quality)(comparison)
    else:
        text = render_report(comparison, room=None) if settings.full else render_comment(comparison)
    _give(text, settings.output)
    return int(ExitCode.OK)


def _give(text: str, output: Path | None) -> None:
    if output is None:
        say(text)
        return
    documents.write_text(text, output)
    tell(f"wrote {output}")


def _pictures(comparison: Comparison, head: Results | None, base: Results | None, settings: Showing) -> int:
    """A picture of every chart, in the folder that --output names."""
    if settings.output is None:
        raise BadInput(f"--format {settings.format} makes several files: name their folder with --output")
    save = _saver(settings.format)
    folder = settings.output
    number = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in figures(comparison, material(head, base)):
            save(figure, folder / f"{name}.{settings.format}")
            number += 1
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be written: {error.strerror or error}; choose another folder") from error
    tell(f"wrote {number} pictures to {folder}")
    return int(ExitCode.OK)


def _saver(kind: str) -> Callable[..., None]:
    """Return a function that saves a figure.

    Equal figures give equal bytes, and text stays text if the kind of file allows.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise PlotsMissing('pictures need matplotlib: pip install "ci-bench[plots]"; --format html needs nothing') from error

    def save(figure: object, path: Path) -> None:
        style: Any = {"svg.hashsalt": "ci-bench", "svg.fonttype": "none"}
        with mpl.rc_context(style), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name may hold any character
            figure.savefig(path, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)  # type: ignore[attr-defined]

    return save
