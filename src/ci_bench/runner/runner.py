"""Run a plan: launch after launch, case after case, stage after stage.

Owns the order of work and its limits.

The parent never imports torch and never touches the GPU.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ci_bench.checkouts.sides import Side
from ci_bench.processes.launch import Launcher
from ci_bench.processes.scratch import make
from ci_bench.processes.users import let_pass
from ci_bench.records.config import Explain, RunOptions, Sampling
from ci_bench.records.events import Event
from ci_bench.records.open_cases import OpenCase, SeriesName, open_metrics
from ci_bench.records.results import Case, Environment, Phase, SideName, Status
from ci_bench.runner.attachments import Attachments
from ci_bench.runner.beside import OutputsBesideBase, OutputsOptions
from ci_bench.runner.budget import (
    Budget,
    ColdCompilations,
    Pace,
    can_wait,
    kept_for_explaining,
    rounds,
)
from ci_bench.runner.decisions import (
    Asks,
    Inspect,
    Measured,
    Record,
    StillOpen,
    ToExplain,
    intact,
    no_refusal,
    no_watch,
)
from ci_bench.runner.explaining import Explaining, arms_to_explain
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.outlook import Outlook, jobs, usual_launches
from ci_bench.runner.servers import Servers, preload_of
from ci_bench.runner.side_run import (
    UNSEEN,
    SideRun,
    end_failed_sides,
    is_over_budget,
    may_get_ready_at_once,
    may_run_at_once,
    note_budget,
    refuse_others,
)
from ci_bench.runner.stages import Job, Sizes, Stages
from ci_bench.runner.turns import Watch
from ci_bench.suites.contract import ASKED, Stage, StageKind, Suite

Plan = tuple[tuple[Suite, Case], ...]
REACH = "reach"
"""The stage in which cases fail if something was changed out of a side's reach."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Runner:
    """The dependencies of measuring, handed in."""

    options: RunOptions
    """Options of the run."""
    scratch: Path
    """Private folder of the run."""
    observe: Callable[[Event], None]
    """Shows progress."""
    hold: Callable[[], AbstractContextManager[object]] = nullcontext
    """Locks the configured device, before anything touches it."""
    refuse: Callable[[Environment], str] = no_refusal
    """Returns why a machine that a worker saw is not the requested one; empty if it is."""
    watch: Callable[[Environment], Watch] = no_watch
    """Opens the monitor of a machine."""
    still_open: StillOpen | None = None
    """Judge's decision on further launches; `None`: their number is fixed."""
    asked: Mapping[StageKind, Asks] = field(default_factory=dict)
    """Judge's decisions on conditional stages, by kind; stages without one are skipped."""
    to_explain: ToExplain | None = None
    """Judge's decision on the arms to explain; `None`: none is explained."""
    clock: Callable[[], float] = time.monotonic
    """Gives seconds; monotonic."""
    seed: str = ""
    """Seed of the order of cases and turns."""
    rank: Mapping[str, int] = field(default_factory=dict)
    """Place of each case in the first launch, by id; empty: the plan's order."""
    usual_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Seconds of a case's first launch in an earlier run, by id: of one-off work, and of all."""
    attachments: Mapping[SideName, Attachments] = field(default_factory=dict)
    """Store of each side's attached files; a side without one keeps none."""
    outputs: OutputsOptions = OutputsOptions()  # noqa: RUF009 - frozen, so it can be shared
    """Tensors to save, and those of an earlier run to compare head's with."""
    inspect: Inspect = intact
    """Returns changes to files outside a side's reach: no figure counts then."""
    sizes: Sizes = field(default_factory=dict)
    """Facts of the largest batches that an earlier run found, by the case's id."""
    base_suites: Mapping[str, Suite] = field(default_factory=dict)
    """Base's own suites, by name; empty if its tree has none."""

    @property
    def samples_adaptively(self) -> bool:
        """Return whether the judge decides the number of launches."""
        return self.still_open is not None and self.options.sampling is Sampling.ADAPTIVE

    def run(
        self, plan: Plan, sides: Sequence[Side], ledgers: Mapping[SideName, Ledger], record: Record
    ) -> Measured:
        """Measure all cases on all sides.

        `record` is called with a side, its machine and ledger whenever they changed.

        Raises:
            MeasuringFailed: the machine cannot run the engine at all (no torch, no such device), or
                is not the requested one.
        """
        runs = self._set_up_sides(plan, sides, ledgers)
        servers = Servers(runs=runs, options=self.options)
        stages = Stages(
            options=self.options,
            observe=self.observe,
            runs=runs,
            seed=self.seed,
            outlook=Outlook(sides=len(runs)),
            adaptive=self.samples_adaptively,
            meanwhile=servers.beside,
        )
        beside = OutputsBesideBase(
            folder=self.scratch / "outputs",
            run_options=self.options,
            options=self.outputs,
            runs=runs,
        )
        kept_s = 0.0 if self.to_explain is None else kept_for_explaining(plan, self.options)
        budget = Budget(
            limit_s=self.options.budget_s, clock=self.clock, usual_s=self.usual_s, kept_s=kept_s
        )
        cold = ColdCompilations(limit_s=self.options.compile_budget_s)
        jobs = _Jobs(
            runner=self,
            plan=plan,
            runs=runs,
            servers=servers,
            stages=stages,
            beside=beside,
            record=record,
            budget=budget,
            cold=cold,
        )
        jobs.run()
        return jobs.measured()

    def _set_up_sides(
        self, plan: Plan, sides: Sequence[Side], ledgers: Mapping[SideName, Ledger]
    ) -> tuple[SideRun, ...]:
        """Return the sides of a run, each with its own folder."""
        numbers = {case.id: number for number, (_, case) in enumerate(plan)}
        names, runs = [side.name for side in sides], []
        for side in sides:
            folder, keep = self.scratch / side.name, self.outputs.keeping(side.name, names)
            make(folder)
            if side.user is not None:
                for place in (self.scratch, folder):
                    let_pass(place)
            runs.append(
                SideRun(
                    side=side,
                    options=self.options,
                    folder=folder,
                    ledger=ledgers[side.name],
                    numbers=numbers,
                    attachments=self.attachments.get(side.name),
                    keep=keep,
                    suites=self.base_suites if side.name is SideName.BASE else {},
                )
            )
        return tuple(runs)


@dataclass(kw_only=True, slots=True)
class _Jobs:
    """One walk through the plan, skipping an earlier run's results."""

    runner: Runner
    """Dependencies and options."""
    plan: Plan
    """All cases of the run, each with its suite."""
    runs: tuple[SideRun, ...]
    """All sides, base first."""
    servers: Servers
    """Servers of the launches."""
    stages: Stages
    """Does one stage of one case."""
    beside: OutputsBesideBase
    """Compares outputs of verified cases."""
    record: Record
    """Receives a side's ledger whenever it changed."""
    budget: Budget
    """Time of the run; it starts when the device is locked, so waiting does not count."""
    cold: ColdCompilations
    """Compilations from cold so far, and their limit."""
    measuring_since: float | None = None
    """Time when the device was locked, by the real clock (s); `None` before."""
    earlier_s: float = 0.0
    """Time for which the resumed run had locked the device (s)."""
    launch: int = 0
    """Number of the current launch, from 0."""
    begun: bool = False
    """True once this run measures, and its device is watched."""
    asked: Mapping[str, OpenCase] | None = None
    """Open metrics of each case of this launch, by id; `None` if no judge decided them."""
    ahead: int = 0
    """Remaining cases of this launch, including the current one."""
    cut: set[str] = field(default_factory=set)
    """Ids of cases that the budget ended before all of their stages."""
    writing: Pace = field(default_factory=Pace)
    """Pace of writing results."""

    def run(self) -> None:
        """Measure launch after launch, as long as cases are open and the budget lasts."""
        unready = end_failed_sides(self.runs, self.plan)
        before = max(
            (count for run in self.runs for count in run.ledger.launches.values()), default=0
        )
        with ExitStack() as stack:
            try:
                plan = () if unready else self._next(before)
                if plan:
                    stack.enter_context(self.runner.hold())
                    self.budget.since, self.measuring_since = self.runner.clock(), time.monotonic()
                    self.earlier_s = max(run.ledger.measured_s for run in self.runs)
                    self._prepare_online()
                while plan := self._affordable(plan):
                    self._look_ahead(plan)
                    self._launch(plan)
                    self.launch += 1
                    plan = () if self._is_broken(everything=False) else self._next(before)
                if self.launch:
                    self._explain()
                    self._is_broken(everything=True)
            finally:
                self.stages.watch.close()
                self.servers.close()
                self.beside.close()
                self._record(at_once=True)

    def measured(self) -> Measured:
        """Return machine and ledger of each side."""
        return {run.side.name: (run.environment or UNSEEN, run.ledger) for run in self.runs}

    def _is_broken(self, *, everything: bool) -> bool:
        """Return whether a protected file was changed.

        Every case of all sides then fails with its name. Neither the side that did it nor the
        samples taken before it can be determined.
        """
        breaks = self.runner.inspect(everything)
        reason = f"while base and head were measured, {'; '.join(breaks)}"
        for run in self.runs if breaks else ():
            for _, case in self.plan:
                run.fail(case, Status.FAILED, REACH, (), reason)
        return bool(breaks)

    def _next(self, before: int) -> Plan:
        """Return the cases of the next launch.

        Cases of the first `before` launches that an earlier run has completely are skipped.
        """
        plan = self._select_cases()
        while not plan and self.launch < before:
            self.launch += 1
            plan = self._select_cases()
        return plan

    def _select_cases(self) -> Plan:
        """Return the cases of this launch, in its order.

        These are cases that still need it, on some side, and have budget left.
        """
        plan = [
            (suite, case)
            for suite, case in self.plan
            if any(run.ledger.is_open(case) for run in self.runs)
        ]
        plan = [(suite, case) for suite, case in plan if not self._has(case, self.launch)]
        self.asked = None
        if self.launch == 0 or not plan:
            return tuple(sorted(plan, key=lambda pair: self.runner.rank.get(pair[1].id, 0)))
        names = self._open_cases({case.id for _, case in plan})
        random.Random(f"{self.runner.seed}/{self.launch}").shuffle(plan)  # noqa: S311 - the order of cases is public
        return tuple(
            (suite, case)
            for suite, case in plan
            if case.id in names
            and not is_over_budget(self.runs, case, self.runner.options.case_budget_s)
        )

    def _affordable(self, plan: Plan) -> Plan:
        """Return the part of a launch that fits into the budget.

        The first launch checks before each stage instead.
        """
        stages_of = partial(self._stages, launch=self.launch)
        return self.budget.affordable(plan, stages_of, self.asked or {}) if self.launch else plan

    def _has(self, case: Case, launch: int) -> bool:
        """Return whether all sides have everything of a launch of a case."""
        return all(
            run.ledger.launches.get(case.id, 0) > launch
            for run in self.runs
            if case.id in run.ledger.rows
        )

    def _open_cases(self, every: set[str]) -> set[str]:
        """Return the ids of open cases.

        Fixed sampling takes every case through all launches; adaptive sampling asks the judge.
        """
        options, ask = self.runner.options, self.runner.still_open
        if ask is None or not self.runner.samples_adaptively:
            return every if self.launch < options.launches else set()
        if self.launch >= options.max_launches:
            return set()
        with self.runs[-1].spending(Phase.JUDGE):
            self.asked = ask(self.launch, self.measured())
        return every & self.asked.keys()

    def _look_ahead(self, plan: Plan) -> None:
        """Expect the remaining stages.

        Fixed sampling has those of all launches, adaptive sampling those of the usual number.
        """
        options, adaptive = self.runner.options, self.runner.samples_adaptively
        launches = max(self.launch + 1, usual_launches(options) if adaptive else options.launches)
        ahead = range(self.launch, launches)
        stages = [
            stage
            for launch in ahead
            for suite, case in plan
            for stage in self._stages(suite, case, launch)
        ]
        if not self.begun:
            stages += [
                stage
                for suite, case in plan
                for stage in suite.stages(case)
                if stage.kind is StageKind.PREPARE
            ]
        self.stages.outlook.expect(stages, launches=launches, later=len(ahead) - 1)

    def _launch(self, plan: Plan) -> None:
        begun = self.runner.clock()
        with ExitStack() as stack:
            runs = [run for run in self.runs if run.side.failure is None]
            launchers = self.servers.open(stack, f"launch-{self.launch}", plan)
            for run in runs:
                with run.spending(Phase.START):
                    run.look_at_machine(launchers[run.side.name])
            self._record()
            refuse_others(runs, self.runner.refuse)
            if not self.begun and runs:
                self._begin_to_watch(runs[0].environment or UNSEEN)
            self.budget.start_s = max(0.0, self.runner.clock() - begun)
            self.stages.outlook.opened(self.budget.start_s)
            if not self.begun:
                self.begun = True
                for run in runs:
                    self._prepare(
                        run,
                        launchers[run.side.name],
                        [pair for pair in plan if not pair[0].needs_network(pair[1])],
                    )
            options = self.runner.options
            if self.launch + 1 < (
                options.max_launches if self.runner.samples_adaptively else options.launches
            ):
                self.servers.foresee(f"launch-{self.launch + 1}", plan)
            self._measure_cases(launchers, plan)
            self.servers.go_on()

    def _explain(self) -> None:
        """Explain what the judge selects, in processes that measure nothing.

        No sample is taken any more.
        """
        ask, options = self.runner.to_explain, self.runner.options
        if ask is None or options.explain is Explain.NEVER:
            return
        with self.runs[-1].spending(Phase.JUDGE):
            targets = arms_to_explain(self.plan, ask(self.measured()), self.runs)
        if not targets:
            return
        with ExitStack() as stack:
            Explaining(
                runs=self.runs,
                launchers=self.servers.open(
                    stack, "explain", [(target.suite, target.case) for target in targets]
                ),
                budget_s=min(options.explain_s, self.budget.left_to_explain_s),
                whose=(
                    "run.explain_s"
                    if options.explain_s <= self.budget.left_to_explain_s
                    else "run.budget_s"
                ),
                clock=self.runner.clock,
                observe=self.runner.observe,
                launch=max(self.launch - 1, 0),
            ).explain(targets)

    def _begin_to_watch(self, environment: Environment) -> None:
        """Start to watch the device.

        If its identity is known only now, it may have to be waited for.
        """
        begun = self.runner.clock()
        self.stages.watch = self.runner.watch(environment)
        self.budget.since += self.runner.clock() - begun

    def _prepare_online(self) -> None:
        online = [(suite, case) for suite, case in self.plan if suite.needs_network(case)]
        for run in self.runs if online else ():
            if run.side.failure is None:
                with run.launcher("online", preload_of(online), offline=False) as launcher:
                    self._prepare(run, launcher, online)

    def _prepare(
        self, run: SideRun, launcher: Launcher, pairs: Sequence[tuple[Suite, Case]]
    ) -> None:
        for suite, case in pairs:
            for stage in suite.stages(case):
                if (
                    stage.kind is StageKind.PREPARE
                    and run.ledger.is_open(case)
                    and not self.budget.is_spent
                ):
                    self.stages.alone(
                        Job(suite=suite, case=case, stage=stage, launch=0), run, launcher
                    )
                    self.stages.outlook.ended(stage, None)

    def _measure_cases(self, launchers: Mapping[SideName, Launcher], plan: Plan) -> None:
        """Measure all of a launch.

        With a budget, the first one verifies every case, then times them, then takes peaks of
        memory.
        """
        self.cut = set()
        waits = self.launch == 0 and self.budget.limit_s is not None
        for ahead, suite, case, is_due in rounds(plan, budgeted=waits):
            self.ahead = ahead
            self._measure_case(
                launchers,
                suite,
                case,
                [stage for stage in self._stages(suite, case, self.launch) if is_due(stage)],
            )
            if waits:
                self._record()
            else:
                self._end_launch(case)
        for suite, case in plan if waits else ():
            self._measure_peaks(
                launchers,
                suite,
                case,
                [stage for stage in self._stages(suite, case, 0) if can_wait(stage)],
            )
            self._end_launch(case)

    def _measure_peaks(
        self,
        launchers: Mapping[SideName, Launcher],
        suite: Suite,
        case: Case,
        stages: Sequence[Stage],
    ) -> None:
        """Measure the peaks of all arms of a case or none.

        A single arm's would have no counterpart.
        """
        if not self.budget.is_spent:
            for stage in stages:
                self._do(launchers, suite, case, stage)
            return
        detail = (
            f"the budget of {self.budget.limit_s:g} s was spent before its peaks of memory were"
            " measured; raise run.budget_s"
        )
        if stages and case.id not in self.cut:
            note_budget(self._open_runs(launchers, case), case, detail)

    def _measure_case(
        self,
        launchers: Mapping[SideName, Launcher],
        suite: Suite,
        case: Case,
        stages: Sequence[Stage],
    ) -> None:
        """Measure stages of a case in this launch, until none is open.

        Those of a later launch start only if all fit.
        """
        if self.launch and not self.budget.fits(self.budget.expected_s(case, stages)):
            self.cut.add(case.id)
            return
        for number, stage in enumerate(stages):
            reason = (
                ""
                if self.launch
                else self.budget.refuse(0.0)
                if number
                else self.budget.refuse_first(case, stage)
            )
            if not reason or self._is_idle(launchers, case, stage):
                reason = self._do(launchers, suite, case, stage)
            if reason:
                note_budget(self._open_runs(launchers, case), case, reason)
                for run in self._open_runs(launchers, case):
                    run.fail(case, Status.NOT_RUN, stage.kind, stage.arms, reason)
                self.cut.add(case.id)
                return

    def _open_runs(self, launchers: Mapping[SideName, Launcher], case: Case) -> list[SideRun]:
        return [run for run in self.runs if run.side.name in launchers and run.ledger.is_open(case)]

    def _is_idle(self, launchers: Mapping[SideName, Launcher], case: Case, stage: Stage) -> bool:
        """Return whether no caller needs a stage, so it takes no time."""
        return stage.kind in ASKED and not self._judge_wants(
            stage.kind, case, self._open_runs(launchers, case)
        )

    def _do(
        self, launchers: Mapping[SideName, Launcher], suite: Suite, case: Case, stage: Stage
    ) -> str:
        """Run one stage of a case on the open sides.

        Returns why not on all of them, if the budget does not allow it.
        """
        open_runs = self._open_runs(launchers, case)
        later = (
            stage.kind is StageKind.VERIFY
            and len(open_runs) > 1
            and StageKind.ROUNDING in self.runner.asked
        )
        job = Job(
            suite=suite, case=case, stage=replace(stage, provisional=later), launch=self.launch
        )
        if self._is_idle(launchers, case, stage):
            self.stages.outlook.skip(stage)
            return ""
        self.stages.outlook.done += self.stages.outlook.weight(stage) - jobs(stage, len(open_runs))
        begun, reason = self.runner.clock(), ""
        if stage.kind is not StageKind.TIME:
            reason = self._do_untimed(job, open_runs, launchers)
            if stage.kind is StageKind.VERIFY:
                self.beside.settle(case)
        elif open_runs:
            ready = may_get_ready_at_once(open_runs, self.runner.options)
            room_s = self.budget.share_s(self.ahead)
            self.stages.in_turns(
                replace(job, ready_at_once=ready, room_s=room_s), open_runs, launchers
            )
        self._note(case, stage, self.runner.clock() - begun)
        return reason

    def _end_launch(self, case: Case) -> None:
        """Record that everything of a case in this launch is there, unless it was cut off."""
        for run in self.runs if case.id not in self.cut else ():
            run.ledger = run.ledger.with_launch(case, self.launch)
        self._record()

    def _do_untimed(
        self, job: Job, sides: list[SideRun], launchers: Mapping[SideName, Launcher]
    ) -> str:
        """Run the sides simultaneously or in sequence.

        Returns why the second is not started, if it does not fit into the budget. The second is
        expected to take as long in the first launch. Peaks are taken of both or none: a single one
        is a missing metric. A side without any of the stage's arms has no part in it.
        """
        runs = [run for run in sides if run.arms_of(job.case, job.stage)]
        if job.stage.kind is StageKind.SIZE:
            self.stages.of_one_side(job, runs, launchers, self.runner.sizes.get(job.case.id, {}))
            return ""
        if may_run_at_once(job.stage, runs, self.runner.options):
            self.stages.at_once(job, runs, launchers)
            return ""
        took_s = 0.0
        for run in self._in_fair_order(runs):
            if took_s and (
                reason := self.budget.refuse(
                    took_s, f"the other side took {took_s:.3g} s for this stage"
                )
            ):
                return reason
            begun = self.runner.clock()
            self.stages.alone(job, run, launchers[run.side.name])
            took_s = (
                0.0 if self.launch or can_wait(job.stage) else max(0.0, self.runner.clock() - begun)
            )
        return ""

    def _stages(self, suite: Suite, case: Case, launch: int) -> tuple[Stage, ...]:
        """Return the stages of a launch, except preparing, which comes before all of them.

        After the first launch a stage runs only if one of its metrics is open, and a cold one
        within its budget.
        """
        due = (
            stage
            for stage in suite.stages(case)
            if stage.takes_place_in(launch) and stage.kind is not StageKind.PREPARE
        )
        return tuple(
            stage
            for stage in due
            if launch == 0
            or (self._is_asked_for(case, stage) and self.cold.may_repeat(case, stage))
        )

    def _is_asked_for(self, case: Case, stage: Stage) -> bool:
        """Return whether a metric of the stage is open.

        Metrics that no launch has produced yet are.
        """
        if self.asked is None:
            return True
        brought = frozenset[SeriesName]().union(
            *(run.brought.get((case.id, stage), frozenset()) for run in self.runs)
        )
        return not brought or not brought.isdisjoint(open_metrics(self.asked, case.id))

    def _note(self, case: Case, stage: Stage, took_s: float) -> None:
        self.budget.took_s[case.id, stage] = max(0.0, took_s)
        self.cold.note(case, stage, took_s)
        self.stages.outlook.ended(stage, took_s)

    def _judge_wants(self, kind: StageKind, case: Case, open_runs: Sequence[SideRun]) -> bool:
        """Return whether the judge requests this stage.

        Seeds compare two sides and need a budget.
        """
        ask, rows = self.runner.asked.get(kind), [run.ledger.rows[case.id] for run in open_runs]
        if (
            ask is None
            or not rows
            or (kind is StageKind.SEEDS and (len(rows) == 1 or self.budget.is_spent))
        ):
            return False
        return ask(rows[0], rows[-1])

    def _in_fair_order(self, runs: list[SideRun]) -> list[SideRun]:
        """Return base first in every second launch, so neither side always has that advantage."""
        return runs if self.launch % 2 == 0 else runs[::-1]

    def _record(self, *, at_once: bool = False) -> None:
        """Write the present results, if that costs little compared with measuring since.

        A document of many cases takes long to write, and every case would cause a write. A kill
        loses the time since the last.
        """
        begun = time.monotonic()
        if not at_once and not self.writing.is_due(begun):
            return
        unready = any(run.side.failure is not None for run in self.runs)
        for run in self.runs:
            if run.environment is not None or unready:
                if self.measuring_since is not None:
                    run.ledger = replace(
                        run.ledger,
                        measured_s=self.earlier_s + time.monotonic() - self.measuring_since,
                    )
                with run.spending(Phase.WRITE):
                    self.record(run.side.name, run.environment or UNSEEN, run.ledger)
        self.writing = Pace(ended=time.monotonic(), took_s=time.monotonic() - begun)
