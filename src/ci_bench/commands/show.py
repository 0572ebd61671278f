"""`ci-bench show`: render a verdict, or print the steps that are read from a training's log."""

import json
from collections.abc import Callable, Mapping
from functools import partial

from ci_bench.command_line.settings import Showing
from ci_bench.commands.judging import page
from ci_bench.commands.output import print_to_stdout, say, tell
from ci_bench.commands.reports import document_of, read_report
from ci_bench.commands.training_logs import is_log, show_log
from ci_bench.errors import BadDocument, BadInput, ExitCode
from ci_bench.records import documents
from ci_bench.records.comparison import Comparison
from ci_bench.records.results import Results
from ci_bench.report.ci_hosts import render_code_quality, render_junit
from ci_bench.report.decision import render_decision
from ci_bench.report.markdown import render_comment, render_report
from ci_bench.report.summary import badge
from ci_bench.report.terminal import print_comparison, print_time
from ci_bench.report.time_spent import sides_of, time_spent


def show(settings: Showing) -> int:
    """Print or write the verdict of a document or a run's folder, or describe a training's log.

    Raises:
        BadInput: the form cannot be written to a file, or does not suit a log.
        BadDocument: the document is invalid, or results that the form needs are missing.
        CannotWrite: the file cannot be written.
    """
    if settings.logs or is_log(settings.document):
        if settings.format != "terminal" or settings.output:
            raise BadInput(
                f"{settings.document}: a training log has no verdict to render; drop --format and"
                " --output"
            )
        for path in (settings.document, *settings.logs):
            show_log(path)
        return int(ExitCode.OK)

    comparison, head, base = read_report(document_of(settings.document))
    if settings.format in {"terminal", "time"}:
        _print(settings, comparison, head, base)
        return int(ExitCode.OK)
    text = (
        page(comparison, head=head, base=base)
        if settings.format == "html"
        else TEXTS[settings.format](comparison)
    )
    if settings.output is None:
        say(text)
    else:
        documents.write_text(text, settings.output)
        tell(f"wrote {settings.output}")
    return int(ExitCode.OK)


def _print(
    settings: Showing, comparison: Comparison, head: Results | None, base: Results | None
) -> None:
    if settings.output is not None:
        raise BadInput(
            f"--output {settings.output}: name its form with --format"
            f" ({', '.join(['html', *TEXTS])})"
        )
    if settings.format == "terminal":
        print_to_stdout(partial(print_comparison, comparison))
        return
    if head is None:
        raise BadDocument(
            "the results of this comparison were not found next to it; pass results.json itself"
        )
    sides = sides_of(base, head)
    print_to_stdout(partial(print_time, list(sides), time_spent(list(sides.values()))))


def _render_whole(comparison: Comparison) -> str:
    return render_report(comparison, room=None)


def _badge(comparison: Comparison) -> str:
    return json.dumps(badge(comparison)) + "\n"


TEXTS: Mapping[str, Callable[[Comparison], str]] = {
    "comment": render_comment,
    "markdown": _render_whole,
    "json": render_decision,
    "junit": render_junit,
    "code-quality": render_code_quality,
    "badge": _badge,
}
"""Forms that need the comparison only."""
