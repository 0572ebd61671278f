"""Judge a run against its baseline, and write the comparison, the report and the page."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench import __version__
from ci_bench.judge.compare import compare
from ci_bench.judge.parity.verdict import beside_base, closeness
from ci_bench.judge.policy.rules import Scope
from ci_bench.judge.times.sequential import SequentialRule
from ci_bench.records import documents
from ci_bench.records.acceptance import Acceptance
from ci_bench.records.calibration import Calibration
from ci_bench.records.comparison import BESIDE_BASE, BaselineMode, Closeness, Comparison
from ci_bench.records.config import Policy
from ci_bench.records.results import CaseResult, Results
from ci_bench.report.charts.values import Material
from ci_bench.report.markdown import render_report
from ci_bench.report.time_spent import sides_of, time_spent

logger = logging.getLogger(__name__)

COMPARISON, REPORT, PAGE = "comparison.json", "report.md", "report.html"


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The base side, or the reason why it is missing."""

    mode: BaselineMode
    results: Results | None = None
    absence: str | None = None


def paired_with(base: Results) -> Baseline:
    """Return the base side of a paired run."""
    return Baseline(mode=BaselineMode.PAIRED, results=base)


def judge(
    head: Results,
    baseline: Baseline,
    *,
    policy: Policy,
    folder: Path | None,
    calibration: Calibration | None = None,
    rule: SequentialRule | None = None,
    scope: Scope = Scope(),  # noqa: B008 - frozen
    accepted: tuple[Acceptance, ...] = (),
) -> Comparison:
    """Compare head with its baseline, judge by the policy, and write the documents to `folder`.

    They are `comparison.json`, `report.md` and `report.html`. `calibration` and `rule` are for
    paired runs: the machine's noise, and the rule that decided on the launches. `scope` is the
    measured part of the requested cases (`judge.policy.binding`); `accepted` are the intended
    changes that count.
    """
    comparison = compare(
        base=baseline.results,
        head=head,
        policy=policy,
        mode=baseline.mode,
        absence=baseline.absence,
        tool_version=__version__,
        calibration=calibration,
        rule=rule,
        scope=scope,
        accepted=accepted,
    )
    if folder is not None:
        write_documents(comparison, folder)
        write_page(comparison, head=head, base=baseline.results, folder=folder)
    return comparison


def write_documents(comparison: Comparison, folder: Path) -> None:
    """Write `comparison.json` and `report.md`."""
    documents.write(comparison, folder / COMPARISON)
    documents.write_text(render_report(comparison), folder / REPORT)


def write_page(
    comparison: Comparison, *, head: Results, base: Results | None, folder: Path
) -> None:
    """Write `report.html`.

    It is only for reading: a bug in it must not take the verdict away, nor leave another run's
    page.
    """
    file = folder / PAGE
    try:
        text = page(comparison, head=head, base=base)
    except Exception:
        logger.warning(
            "%s could not be made; the verdict does not depend on it", file, exc_info=True
        )
        file.unlink(missing_ok=True)
        return
    documents.write_text(text, file)


def page(comparison: Comparison, *, head: Results | None, base: Results | None) -> str:
    """Return the HTML report.

    The results documents of a comparison contain the samples and the training runs.
    """
    from ci_bench.commands.page_assets import page_assets
    from ci_bench.report.html.report import render_html

    return render_html(comparison, assets=page_assets("report.js"), material=material(head, base))


def material(head: Results | None, base: Results | None) -> Material:
    """Collect the data for charts.

    They are the raw documents, and the distance of each of head's training runs from its reference.
    """
    rows, earlier = (
        {row.case.id: row for row in results.cases} if results else {} for results in (head, base)
    )
    closeness = {name: _closeness(row, earlier.get(name)) for name, row in rows.items()}
    sides = sides_of(base, head) if head else {}
    return Material(
        head=rows,
        base=earlier,
        closeness=closeness,
        spent=time_spent(list(sides.values())),
        timed=tuple(sides),
    )


def _closeness(head: CaseResult, base: CaseResult | None) -> tuple[Closeness, ...]:
    """Compare head's candidates with its reference, then its reference with base's."""
    arms = closeness(head.parity) if head.parity else ()
    beside = beside_base(base, head) if base else None
    return (
        *arms,
        *(
            replace(candidate, arm=BESIDE_BASE)
            for candidate in (closeness(beside) if beside else ())
        ),
    )
