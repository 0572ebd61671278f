"""The commands for people to look at a run: report (Markdown, HTML, pictures, badge, CI formats) and show (the terminal)."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci_bench.command_line.settings import Showing
from ci_bench.commands.inputs import results_path
from ci_bench.commands.output import console, say, tell
from ci_bench.errors import BadDocument, BadInput, CannotWrite, ExitCode, PlotsMissing

if TYPE_CHECKING:
    from ci_bench.records.comparison import Comparison, Side
    from ci_bench.records.results import Results

PICTURES = ("svg", "png")
HOSTS = ("junit", "code-quality")
ALONE = "this report covers a single run"


def show(settings: Showing) -> int:
    """The verdict in the terminal, as `gate` prints it; of a training's log, what would be read."""
    from ci_bench.commands.showing_logs import is_log, show_log
    from ci_bench.report.terminal import print_comparison

    if settings.logs or is_log(settings.document):
        for path in (settings.document, *settings.logs):
            show_log(path)
        return int(ExitCode.OK)

    comparison, head, base = _read(_document(settings.document))
    if settings.time:
        _show_time(base, head)
    else:
        print_comparison(comparison, console())
    return int(ExitCode.OK)


def _show_time(base: "Results | None", head: "Results | None") -> None:
    from ci_bench.report.terminal import print_time
    from ci_bench.report.time_spent import sides_of, time_spent

    if head is None:
        raise BadDocument("the results of this comparison were not found next to it; pass results.json itself")
    sides = sides_of(base, head)
    print_time(list(sides), time_spent(list(sides.values())), console())


def report(settings: Showing) -> int:
    """Render a comparison, or only one run."""
    from ci_bench.commands import pipeline
    from ci_bench.report.ci_hosts import render_code_quality, render_junit
    from ci_bench.report.markdown import render_comment, render_report
    from ci_bench.report.summary import badge

    document = _document(settings.document)
    comparison, head, base = _read(document, head=settings.head, base=settings.base)
    if settings.format in PICTURES:
        return _pictures(comparison, head, base, settings)
    if settings.format == "html":
        text = pipeline.page(comparison, head=head, base=base)
    elif settings.format == "badge":
        text = json.dumps(badge(comparison)) + "\n"
    elif settings.format in HOSTS:
        text = (render_junit if settings.format == "junit" else render_code_quality)(comparison)
    else:
        text = render_report(comparison, room=None) if settings.full else render_comment(comparison)
    _give(text, settings.output)
    return int(ExitCode.OK)


def _document(path: Path) -> Path:
    """A document, or the comparison in a run's folder, else its results."""
    if not path.is_dir():
        return path
    comparison = path / "comparison.json"
    return comparison if comparison.exists() else results_path(path)


def _read(
    document: Path, *, head: Path | None = None, base: Path | None = None
) -> "tuple[Comparison, Results | None, Results | None]":
    """The comparison with the results that it was made of; of a results document, what is to be said of it alone."""
    from ci_bench.commands import pipeline
    from ci_bench.records import documents
    from ci_bench.records.comparison import BaselineMode
    from ci_bench.records.config import Policy

    if documents.document_kind(document) is documents.Kind.RESULTS:
        alone = documents.read_results(document)
        baseline = pipeline.Baseline(mode=BaselineMode.NONE, absence=ALONE)
        return pipeline.judge(alone, baseline, policy=Policy(), folder=None), alone, None
    comparison = documents.read_comparison(document)
    beside = document.parent
    found_head = _side(comparison.head, head, beside / "results.json")
    found_base = None if comparison.base is None else _side(comparison.base, base, beside / "base" / "results.json")
    return comparison, found_head, found_base


def _side(side: "Side", named: Path | None, beside: Path) -> "Results | None":
    """Return the results of one side: the named ones, else those next to the comparison.

    The latter have to be of the same run.
    """
    from ci_bench.records import documents

    if named is None and not beside.exists():
        return None
    path = results_path(named or beside)
    results = documents.read_results(path)
    if (results.run.id, results.source.commit) == (side.run.id, side.source.commit):
        return results
    if named is not None:
        raise BadDocument(f"{path} belongs to another run than the comparison: {results.run.id}, not {side.run.id}")
    tell(f"{path} belongs to another run than the comparison, so its samples are not shown")
    return None


def _give(text: str, output: Path | None) -> None:
    from ci_bench.records import documents

    if output is None:
        say(text)
        return
    documents.write_text(text, output)
    tell(f"wrote {output}")


def _pictures(comparison: "Comparison", head: "Results | None", base: "Results | None", settings: Showing) -> int:
    """A picture of every chart, in the folder that --output names."""
    from ci_bench.commands import pipeline
    from ci_bench.report.plots import figures

    if settings.output is None:
        raise BadInput(f"--format {settings.format} makes several files: name their folder with --output")
    save = _saver(settings.format)
    folder = settings.output
    number = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in figures(comparison, pipeline.material(head, base)):
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
