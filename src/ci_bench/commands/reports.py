"""Reads what `show` is given: a comparison with its results, or the results of one run."""

from pathlib import Path

from ci_bench.commands.inputs import results_path
from ci_bench.commands.judging import Baseline, judge
from ci_bench.commands.output import tell
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode, ComparedSide, Comparison
from ci_bench.records.config import Policy
from ci_bench.records.documents import place
from ci_bench.records.results import Results, SideName

ALONE = "this report covers a single run"


def document_of(path: Path) -> Path:
    """A document, or the comparison in a run's folder, else its results."""
    if not path.is_dir():
        return path
    comparison = path / "comparison.json"
    return comparison if comparison.exists() else results_path(path)


def read_report(document: Path) -> tuple[Comparison, Results | None, Results | None]:
    """The comparison with the results that it was made of; of a results document, what is to be said of it alone."""
    if documents.document_kind(document) is documents.Kind.RESULTS:
        alone = documents.read_results(document)
        baseline = Baseline(mode=BaselineMode.NONE, absence=ALONE)
        return judge(alone, baseline, policy=Policy(), folder=None), alone, None
    comparison = documents.read_comparison(document)
    head = _side(comparison.head, place(document.parent, SideName.HEAD))
    base = (
        None
        if comparison.base is None
        else _side(comparison.base, place(document.parent, SideName.BASE))
    )
    return comparison, head, base


def _side(side: ComparedSide, path: Path) -> Results | None:
    """Return the results of one side that lie next to the comparison, if they are of the same run."""
    if not path.exists():
        return None
    results = documents.read_results(path)
    if (results.run.id, results.source.commit) == (side.run.id, side.source.commit):
        return results
    tell(f"{path} belongs to another run than the comparison, so its samples are not shown")
    return None
