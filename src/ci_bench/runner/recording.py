"""Measure a plan, and keep each side's `results.json` on disk true from the first moment on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from ci_bench import __version__
from ci_bench.checkouts.sides import Side
from ci_bench.records import documents
from ci_bench.records.documents import place
from ci_bench.records.results import Environment, Results, Run, RunState, SideName, Source
from ci_bench.runner.base_plan import BasePlan
from ci_bench.runner.decisions import Measured, Record
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.planning import Plan
from ci_bench.runner.resuming import Earlier, note, require_machine
from ci_bench.runner.side_run import UNSEEN


class RunPlan(Protocol):
    """The function that measures: `Runner.run`."""

    def __call__(
        self, plan: Plan, sides: Sequence[Side], ledgers: Mapping[SideName, Ledger], record: Record
    ) -> Measured:
        """Measure every case on every side; call `record` whenever a side's ledger has changed."""


def record_run(
    plan: Plan,
    *,
    run: Run,
    sides: Sequence[Side],
    reproduce: Mapping[str, str],
    measure: RunPlan,
    folder: Path,
    earlier: Earlier | None = None,
    base_plan: BasePlan | None = None,
) -> Mapping[SideName, Results]:
    """Measure a plan and keep each side's `results.json` on disk true from the first moment on.

    Returns the complete results.

    Head's document is in `folder` itself, base's in its folder ``base``. `earlier` has the results
    of an interrupted run, which `run` continues. `base_plan` is the plan of base's own tree;
    without it, base's rows are those of the plan.
    """
    sources = {side.name: side.source for side in sides}
    environments = earlier.environments if earlier else {}
    states: dict[SideName, tuple[Environment, Ledger]] = {}

    def record(name: SideName, environment: Environment, ledger: Ledger) -> None:
        require_machine(environments.get(name), environment)
        unwritten = (name,) if len(states) == len(sources) else tuple(sources)
        states[name] = environment, ledger
        # Nothing of a resumed run is touched before each side's machine is known.
        if len(states) < len(sources):
            return
        for side in unwritten:
            documents.write(results_of(run, sources[side], *states[side]), place(folder, side))
            note(states[side][1], place(folder, side))

    planned = dict.fromkeys(sources, Ledger.open([case for _, case in plan], reproduce=reproduce))
    if base_plan is not None:
        planned[SideName.BASE] = Ledger.of(base_plan.rows)
        sources = {name: replace(source, own_plan=True) for name, source in sources.items()}
    ledgers = {
        name: planned[name].resumed(earlier.ledgers[name]) if earlier else planned[name]
        for name in sources
    }
    # A resumed run stays as it is until the machine is known to be the same.
    for name in () if earlier else sources:
        record(name, UNSEEN, planned[name])
    measured = measure(plan, sides, ledgers, record)
    ended = replace(
        run, state=RunState.COMPLETE, finished_at=datetime.now(UTC).isoformat(timespec="seconds")
    )
    final_environments = {
        name: environments.get(name, UNSEEN) if environment == UNSEEN else environment
        for name, (environment, _) in measured.items()
    }
    results = {
        name: results_of(ended, sources[name], final_environments[name], measured[name][1])
        for name in sources
    }
    for name, document in results.items():
        documents.write(document, place(folder, name))
    return results


def results_of(run: Run, source: Source, environment: Environment, ledger: Ledger) -> Results:
    """Return the results document of one side."""
    rows = tuple(ledger.rows.values())
    return Results(
        tool_version=__version__,
        run=run,
        source=source,
        environment=environment,
        cases=rows,
        measured_s=round(ledger.measured_s, 3) or None,
        spent=ledger.spent,
    )
