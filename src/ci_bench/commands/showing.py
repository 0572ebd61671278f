"""Show a verdict, and list the written files."""

from collections.abc import Collection
from functools import partial
from pathlib import Path

from ci_bench.commands.output import print_to_stdout, say, tell
from ci_bench.records.comparison import Comparison
from ci_bench.records.documents import place
from ci_bench.records.results import SideName
from ci_bench.report.decision import render_decision
from ci_bench.report.markdown import render_comment
from ci_bench.report.terminal import print_comparison
from ci_bench.runner.attachments import FOLDER


def show(comparison: Comparison, form: str = "terminal") -> None:
    """Print the verdict: as `json` for a program, as a `comment`, or for the terminal."""
    if form == "json":
        say(render_decision(comparison))
    elif form == "comment":
        say(render_comment(comparison))
    else:
        print_to_stdout(partial(print_comparison, comparison))


def tell_files(folder: Path, *, sides: Collection[SideName] = ()) -> None:
    """List the written files: the results of `sides`, the comparison, and the report.

    A page that could not be made is missing.
    """
    results = [place(Path(), name).as_posix() for name in sorted(sides, reverse=True)]
    names = [*results, "comparison.json", "report.md", "report.html"]
    written = [str(folder / name) for name in names if (folder / name).exists()]
    tell(f"wrote {', '.join(written)}")
    tell_attachments(folder)


def tell_attachments(folder: Path) -> None:
    """List the files that cases have left in a run's folder."""
    for attachments in (folder / FOLDER, folder / "base" / FOLDER):
        for path in sorted(path for path in attachments.rglob("*") if path.is_file()):
            tell(f"wrote {path}")
