"""Read the input of `show`: a comparison with its results, or the results of one run."""

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
    """Return the document, or in a run's folder the comparison, else the results."""
    if not path.is_dir():
        return path
    comparison = path / "comparison.json"
    return comparison if comparison.exists() else results_path(path)


def read_report(document: Path) -> tuple[Comparison, Results | None, Results | None]:
    """Return the comparison, and the results of head and base if they are still there.

    A results document becomes a comparison with no baseline.
    """
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
    """Return the results of one side next to the comparison, if they are of the same run."""
    if not path.exists():
        return None
    results = documents.read_results(path)
    if (results.run.id, results.source.commit) == (side.run.id, side.source.commit):
        return results
    tell(f"{path} belongs to another run than the comparison, so its samples are not shown")
    return None
