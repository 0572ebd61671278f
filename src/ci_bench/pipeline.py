"""The main path on one screen: plan, measure, compare and judge, report. Branching lives below.

Everything with an effect (engine, files, display) comes in through arguments.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from ci_bench import __version__
from ci_bench.engine.ledger import Ledger
from ci_bench.judge.compare import compare
from ci_bench.planning import Plan
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode, Comparison
from ci_bench.records.policy import Policy
from ci_bench.records.results import Environment, Results, Run, RunState, Source
from ci_bench.report.markdown import render_report

Record = Callable[[Environment, Ledger], None]

RESULTS, COMPARISON, REPORT = "results.json", "comparison.json", "report.md"


UNSEEN = Environment(identity={}, condition={})
"""The machine, before a worker has looked at it."""


class Measure(Protocol):
    """The engine, as the pipeline sees it."""

    def __call__(self, plan: Plan, ledger: Ledger, record: Record) -> tuple[Environment, Ledger]:
        """Measure every case of the plan on this machine, calling `record` whenever the ledger has changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The base side, or why there is none."""

    mode: BaselineMode
    results: Results | None = None
    absence: str | None = None


def measure(plan: Plan, *, run: Run, source: Source, reproduce: Mapping[str, str], engine: Measure, folder: Path) -> Results:
    """Measure a plan and keep `results.json` on disk true from the first moment on. Returns the complete results."""

    def record(environment: Environment, ledger: Ledger) -> None:
        documents.write(_results(run, source, environment, ledger), folder / RESULTS)

    planned = Ledger.open([case for _, case in plan], reproduce=reproduce)
    record(UNSEEN, planned)
    environment, ledger = engine(plan, planned, record)
    ended = replace(run, state=RunState.COMPLETE, finished_at=datetime.now(UTC).isoformat(timespec="seconds"))
    results = _results(ended, source, environment, ledger)
    documents.write(results, folder / RESULTS)
    return results


def judge(head: Results, baseline: Baseline, *, policy: Policy, folder: Path | None) -> Comparison:
    """Compare head with its baseline, judge by the policy, and write `comparison.json` and `report.md`."""
    comparison = compare(
        base=baseline.results,
        head=head,
        policy=policy,
        mode=baseline.mode,
        absence=baseline.absence,
        tool_version=__version__,
    )
    if folder is not None:
        documents.write(comparison, folder / COMPARISON)
        documents.write_text(render_report(comparison), folder / REPORT)
    return comparison


def _results(run: Run, source: Source, environment: Environment, ledger: Ledger) -> Results:
    rows = tuple(ledger.rows.values())
    return Results(tool_version=__version__, run=run, source=source, environment=environment, cases=rows)
