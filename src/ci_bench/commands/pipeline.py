"""The main path on one screen: plan, measure, compare and judge, report. Branching lives below.

Everything with an effect (engine, files, display) comes in through arguments.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ci_bench import __version__
from ci_bench.judge.compare import compare
from ci_bench.judge.parity.verdict import beside_base, closeness
from ci_bench.judge.policy.causes import arms_that_fail_to_compile, arms_to_explain
from ci_bench.judge.policy.rules import Scope
from ci_bench.judge.times.sequential import Rule, adaptive, fixed
from ci_bench.judge.times.stopping import still_open
from ci_bench.records import documents
from ci_bench.records.acceptance import Acceptance
from ci_bench.records.calibration import Calibration
from ci_bench.records.comparison import BESIDE_BASE, BaselineMode, Closeness, Comparison
from ci_bench.records.config import Config, Explain, Policy, RunOptions, Sampling
from ci_bench.records.open_cases import OpenCase
from ci_bench.records.results import CaseResult, Environment, Results, Run, RunState, SideName, Source
from ci_bench.report.charts.values import Material
from ci_bench.report.markdown import render_report
from ci_bench.report.rows import worst_first
from ci_bench.report.time_spent import sides_of, time_spent

if TYPE_CHECKING:  # what only reads need not load the engine, nor what plans
    from ci_bench.checkouts.sides import Side
    from ci_bench.runner.base_plan import BasePlan
    from ci_bench.runner.ledger import Ledger
    from ci_bench.runner.noise_floor import NoiseFolder
    from ci_bench.runner.planning import Plan
    from ci_bench.runner.resuming import Earlier
    from ci_bench.runner.runner import Measured, Record

logger = logging.getLogger(__name__)

RESULTS, COMPARISON, REPORT, PAGE = "results.json", "comparison.json", "report.md", "report.html"


class Measure(Protocol):
    """The engine, as the pipeline sees it."""

    def __call__(
        self, plan: "Plan", sides: "Sequence[Side]", ledgers: "Mapping[SideName, Ledger]", record: "Record"
    ) -> "Measured":
        """Measure every case of the plan on every side, calling `record` whenever a side's ledger has changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The base side, or the reason why it is missing."""

    mode: BaselineMode
    results: Results | None = None
    absence: str | None = None


def paired_with(base: Results) -> Baseline:
    """The base side of a paired run."""
    return Baseline(mode=BaselineMode.PAIRED, results=base)


def measure(
    plan: "Plan",
    *,
    run: Run,
    sides: "Sequence[Side]",
    reproduce: Mapping[str, str],
    engine: Measure,
    folder: Path,
    earlier: "Earlier | None" = None,
    base_plan: "BasePlan | None" = None,
) -> Mapping[SideName, Results]:
    """Measure a plan and keep each side's `results.json` on disk true from the first moment on. Returns the complete results.

    Head's document is in `folder` itself, base's in its folder ``base``. `earlier` has the results
    of an interrupted run, which `run` continues. `base_plan` is the plan of base's own tree;
    without it, base's rows are those of the plan.
    """
    from ci_bench.runner.ledger import Ledger
    from ci_bench.runner.resuming import note, require_machine
    from ci_bench.runner.stages import UNSEEN

    sources = {side.name: side.source for side in sides}
    known = earlier.environments if earlier else {}
    told: dict[SideName, tuple[Environment, Ledger]] = {}

    def record(name: SideName, environment: Environment, ledger: "Ledger") -> None:
        require_machine(known.get(name), environment)
        unwritten = (name,) if len(told) == len(sources) else tuple(sources)
        told[name] = environment, ledger
        if len(told) < len(sources):  # of a run that is resumed nothing is touched before each side's machine is known
            return
        for side in unwritten:
            documents.write(results_of(run, sources[side], *told[side]), place(folder, side))
            note(told[side][1], place(folder, side))

    planned = dict.fromkeys(sources, Ledger.open([case for _, case in plan], reproduce=reproduce))
    if base_plan is not None:
        planned[SideName.BASE] = Ledger.of(base_plan.rows)
        sources = {name: replace(source, own_plan=True) for name, source in sources.items()}
    ledgers = {name: planned[name].resumed(earlier.ledgers[name]) if earlier else planned[name] for name in sources}
    for name in () if earlier else sources:  # what is resumed stays as it is until the machine is known to be the same
        record(name, UNSEEN, planned[name])
    measured = engine(plan, sides, ledgers, record)
    ended = replace(run, state=RunState.COMPLETE, finished_at=datetime.now(UTC).isoformat(timespec="seconds"))
    seen = {
        name: known.get(name, UNSEEN) if environment == UNSEEN else environment for name, (environment, _) in measured.items()
    }
    results = {name: results_of(ended, sources[name], seen[name], measured[name][1]) for name in sources}
    for name, document in results.items():
        documents.write(document, place(folder, name))
    return results


def place(folder: Path, name: SideName) -> Path:
    """Return the path of a side's results in a run's folder."""
    return folder / RESULTS if name is SideName.HEAD else folder / name / RESULTS


@dataclass(frozen=True, kw_only=True, slots=True)
class ToExplain:
    """The judge's answer once all samples are taken: of which cases should the steps of which arms be explained?

    `noise` is there where sides are compared in this run.
    """

    run: Run
    sides: "tuple[Side, ...]"
    config: Config
    noise: "NoiseFolder | None"

    def __call__(self, measured: "Measured") -> Mapping[str, Sequence[str]]:
        """Arms by the case's id: every one where that was asked for, else those that are worse, the worst case first."""
        both = {side.name: results_of(self.run, side.source, *measured[side.name]) for side in self.sides}
        head, base = both[SideName.HEAD], both.get(SideName.BASE)
        if self.config.run.explain is Explain.ALWAYS:
            return {row.case.id: row.case.arms for row in head.cases}
        uncompiled = arms_that_fail_to_compile(head.cases)
        if self.noise is None or base is None:
            return uncompiled
        compared = compare(
            base=base,
            head=head,
            policy=self.config.policy,
            mode=BaselineMode.PAIRED,
            absence=None,
            tool_version=__version__,
            calibration=self.noise.find(head.environment.identity),
            rule=rule_of(self.config.run),
        )
        worse = {case.id: arms for case in worst_first(compared.cases) if (arms := arms_to_explain(case))}
        return {**worse, **uncompiled}


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCases:
    """The judge's answer while a paired run is measured: which cases need another launch, and for which of their metrics?"""

    run: Run
    sides: "tuple[Side, ...]"
    config: Config
    noise: "NoiseFolder"

    def __call__(self, launches: int, measured: "Measured") -> Mapping[str, OpenCase]:
        """Return the cases that are open after `launches` launches, by id."""
        base, head = (
            results_of(self.run, side.source, *measured[side.name])
            for name in (SideName.BASE, SideName.HEAD)
            for side in self.sides
            if side.name is name
        )
        return still_open(
            base,
            head,
            policy=self.config.policy,
            calibration=self.noise.find(head.environment.identity),
            launches_done=launches,
            rule=rule_of(self.config.run),
        )


def rule_of(options: RunOptions) -> Rule:
    """The rule by which a paired run with these options is judged."""
    return fixed(options.launches) if options.sampling is Sampling.FIXED else adaptive(options.max_launches)


def judge(
    head: Results,
    baseline: Baseline,
    *,
    policy: Policy,
    folder: Path | None,
    calibration: Calibration | None = None,
    rule: Rule | None = None,
    scope: Scope = Scope(),  # noqa: B008 - frozen
    accepted: tuple[Acceptance, ...] = (),
) -> Comparison:
    """Compare head with its baseline, judge by the policy, and write `comparison.json`, `report.md` and `report.html`.

    `calibration` and `rule` are for paired runs: what is known of the machine's noise, and what decided on the launches.
    `scope` is what was measured of what was asked for (`judge.policy.binding`), `accepted` the intended changes that count.
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


def write_page(comparison: Comparison, *, head: Results, base: Results | None, folder: Path) -> None:
    """Write `report.html`, which is there to be looked at.

    A bug in it must not take the verdict away, nor leave another run's page.
    """
    file = folder / PAGE
    try:
        text = page(comparison, head=head, base=base)
    except Exception:
        logger.warning("%s could not be made; the verdict does not depend on it", file, exc_info=True)
        file.unlink(missing_ok=True)
        return
    documents.write_text(text, file)


def page(comparison: Comparison, *, head: Results | None, base: Results | None) -> str:
    """The HTML report. The documents that a comparison was made of bring the samples and the training runs."""
    from ci_bench.commands.page_assets import page_assets
    from ci_bench.report.html.report import render_html

    return render_html(comparison, assets=page_assets("report.js"), material=material(head, base))


def material(head: Results | None, base: Results | None) -> Material:
    """Collect data for charts.

    They are the raw documents, and the distance of each of head's training runs from its reference.
    """
    rows, earlier = ({row.case.id: row for row in results.cases} if results else {} for results in (head, base))
    closeness = {name: _closeness(row, earlier.get(name)) for name, row in rows.items()}
    sides = sides_of(base, head) if head else {}
    return Material(head=rows, base=earlier, closeness=closeness, spent=time_spent(list(sides.values())), timed=tuple(sides))


def _closeness(head: CaseResult, base: CaseResult | None) -> tuple[Closeness, ...]:
    """Compare head's candidates with its reference, then its reference with base's."""
    arms = closeness(head.parity) if head.parity else ()
    beside = beside_base(base, head) if base else None
    return (*arms, *(replace(one, arm=BESIDE_BASE) for one in (closeness(beside) if beside else ())))


def results_of(run: Run, source: Source, environment: Environment, ledger: "Ledger") -> Results:
    """The results document of one side."""
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
