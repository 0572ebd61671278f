"""Runs a plan: launch after launch, case after case, stage after stage.

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
from ci_bench.errors import WrongDevice
from ci_bench.host.headroom import has_cores_for_two
from ci_bench.processes.launch import Launcher
from ci_bench.processes.scratch import make
from ci_bench.processes.users import let_pass
from ci_bench.records.config import Explain, RunOptions, Sampling
from ci_bench.records.open_cases import OpenCase, SeriesName, open_metrics
from ci_bench.records.results import (
    SETUP,
    WITHIN_BUDGET,
    Case,
    CaseResult,
    Check,
    Environment,
    Event,
    Failure,
    Outcome,
    Phase,
    SideName,
    Status,
)
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
from ci_bench.runner.explaining import Explaining, arms_to_explain
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.outlook import Outlook, jobs, usual_launches
from ci_bench.runner.servers import Servers, preload_of
from ci_bench.runner.stages import UNSEEN, Job, SideRun, Sizes, Stages, device_of
from ci_bench.runner.turns import NoWatch, Watch
from ci_bench.suites.contract import ASKED, UNTIMED, Evidence, Stage, StageKind, Suite

Plan = tuple[tuple[Suite, Case], ...]
Measured = Mapping[SideName, tuple[Environment, Ledger]]
"""The state of each side. The environment is empty until a worker has looked at the machine."""

Record = Callable[[SideName, Environment, Ledger], None]
StillOpen = Callable[[int, Measured], Mapping[str, OpenCase]]
"""The judge's decision after this many launches: cases that need another, with their metrics."""
Asks = Callable[[CaseResult, CaseResult], bool]
"""The judge's decision on a conditional stage for base and head, or for the only remaining side."""
ToExplain = Callable[[Measured], Mapping[str, Sequence[str]]]
"""The judge's decision: the cases, by id, with the arms to explain, the most important first."""
Inspect = Callable[[bool], tuple[str, ...]]
"""Changes to protected files. After a launch only quickly inspected files are checked; in the end
(true) all of them.
"""
REACH = "reach"
"""The stage in which cases fail if something was changed out of a side's reach."""


def intact(_everything: bool) -> tuple[str, ...]:  # noqa: FBT001 - the contract's signature
    """For sides that cannot reach each other, or are the same."""
    return ()


def no_refusal(_environment: Environment) -> str:
    """For runs that take whatever machine there is."""
    return ""


def no_watch(_environment: Environment) -> Watch:
    """For machines that need no watching."""
    return NoWatch()


@dataclass(frozen=True, kw_only=True, slots=True)
class Runner:
    """The dependencies of measuring, handed in.

    `scratch` is a private folder, `observe` the display. `hold` keeps others off the configured
    device, from before anything touches it. `refuse` returns why a machine that a worker saw is not
    the requested one, or nothing; `watch` opens the monitor of a machine. `still_open` is the
    judge's decision on adaptive sampling (without it, the number of launches is fixed), `clock`
    gives seconds, `seed` orders cases and turns. `asked` is the judge's decision on conditional
    stages, by their kind; without it, they are skipped. `to_explain` is its decision on the arms to
    explain once all samples are taken; without it, no arm is. `rank` is the place of each case in
    the first launch, by id; without it, the plan's order holds. `usual_s` is the earlier duration
    of a case's first launch, by its id: a budget is planned with it. `attachments` are the stores
    of each side's files; a side without one keeps none. `outputs` selects the tensors to save, and
    an earlier run's tensors that head's are compared with; `sizes` are the facts of the largest
    batches that it found, by case. `inspect` returns changes to files outside a side's reach: no
    figure counts then. `base_suites` are base's own, by name, if its tree has some: each side is
    measured by its own plan.
    """

    options: RunOptions
    scratch: Path
    observe: Callable[[Event], None]
    hold: Callable[[], AbstractContextManager[object]] = nullcontext
    refuse: Callable[[Environment], str] = no_refusal
    watch: Callable[[Environment], Watch] = no_watch
    still_open: StillOpen | None = None
    asked: Mapping[StageKind, Asks] = field(default_factory=dict)
    to_explain: ToExplain | None = None
    clock: Callable[[], float] = time.monotonic
    seed: str = ""
    rank: Mapping[str, int] = field(default_factory=dict)
    usual_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    attachments: Mapping[SideName, Attachments] = field(default_factory=dict)
    outputs: OutputsOptions = OutputsOptions()  # noqa: RUF009 - frozen, so it can be shared
    inspect: Inspect = intact
    sizes: Sizes = field(default_factory=dict)
    base_suites: Mapping[str, Suite] = field(default_factory=dict)

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
            MeasuringFailed: the machine cannot run the engine at all (no torch, no such device), or is not the requested one.
        """
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
        servers = Servers(runs=tuple(runs), options=self.options)
        stages = Stages(
            options=self.options,
            observe=self.observe,
            runs=tuple(runs),
            seed=self.seed,
            outlook=Outlook(sides=len(runs)),
            adaptive=self.samples_adaptively,
            meanwhile=servers.beside,
        )
        beside = OutputsBesideBase(
            folder=self.scratch / "outputs",
            run_options=self.options,
            options=self.outputs,
            runs=tuple(runs),
        )
        kept_s = 0.0 if self.to_explain is None else kept_for_explaining(plan, self.options)
        budget = Budget(
            limit_s=self.options.budget_s, clock=self.clock, usual_s=self.usual_s, kept_s=kept_s
        )
        cold = ColdCompilations(limit_s=self.options.compile_budget_s)
        jobs = _Jobs(
            runner=self, plan=plan, runs=tuple(runs), servers=servers, stages=stages, beside=beside, record=record,
            budget=budget, cold=cold,
        )  # fmt: skip
        jobs.run()
        return jobs.measured()


@dataclass(kw_only=True, slots=True)
class _Jobs:
    """One walk through the plan, skipping an earlier run's results; `begun` once this one measures.

    `budget` starts when the device is locked: waiting for it does not count. `measuring_since` is
    that moment by the real clock, `None` before, and `earlier_s` is how long the resumed run had
    locked it. `ahead` is the number of remaining cases of this launch, including the current one;
    `cut` are those that the budget ended before all of their stages. `asked` are the open metrics
    of each case of this launch, if a judge decided them.
    """

    runner: Runner
    plan: Plan
    runs: tuple[SideRun, ...]
    servers: Servers
    stages: Stages
    beside: OutputsBesideBase
    record: Record
    budget: Budget
    cold: ColdCompilations
    measuring_since: float | None = None
    earlier_s: float = 0.0
    launch: int = 0
    begun: bool = False
    asked: Mapping[str, OpenCase] | None = None
    ahead: int = 0
    cut: set[str] = field(default_factory=set)
    writing: Pace = field(default_factory=Pace)

    def run(self) -> None:
        """Launch after launch, as long as cases are open and the budget lasts."""
        unready = self._end_failed_sides()
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
        """Machine and ledger of each side."""
        return {run.side.name: (run.environment or UNSEEN, run.ledger) for run in self.runs}

    def _end_failed_sides(self) -> bool:
        """Return whether a side's set-up failed: all its rows report that, and the other has nothing to compare with."""
        failed = [run for run in self.runs if run.side.failure is not None]
        for run in self.runs if failed else ():
            reason, _, log = (run.side.failure or failed[0].side.failure or "").partition("\n")
            status, ended = (
                Status.FAILED,
                Failure(stage=SETUP, arms=(), reason=reason, log_tail=log),
            )
            if run.side.failure is None:
                status, ended = (
                    Status.NOT_RUN,
                    replace(ended, reason=f"{failed[0].side.name} could not be set up: {reason}"),
                )
            for _, case in self.plan:
                if run.ledger.is_open(case):
                    run.ledger = run.ledger.with_failure(case, status, ended)
        return bool(failed)

    def _is_broken(self, *, everything: bool) -> bool:
        """Return whether a protected file was changed; every case of all sides then fails with its name.

        Neither the side that did it nor the samples taken before it can be determined.
        """
        breaks = self.runner.inspect(everything)
        for run in self.runs if breaks else ():
            for _, case in self.plan:
                run.fail(
                    case,
                    Status.FAILED,
                    REACH,
                    (),
                    f"while base and head were measured, {'; '.join(breaks)}",
                )
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
        """The cases of this launch, in its order: those that still need it, on some side, and have budget left."""
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
            if case.id in names and not self._over_case_budget(case)
        )

    def _affordable(self, plan: Plan) -> Plan:
        """Return the part of a launch that fits into the budget; the first one checks before each stage."""
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
        """Fixed sampling takes every case through all launches; adaptive sampling asks the judge."""
        options, ask = self.runner.options, self.runner.still_open
        if ask is None or not self.runner.samples_adaptively:
            return every if self.launch < options.launches else set()
        if self.launch >= options.max_launches:
            return set()
        with self.runs[-1].spending(Phase.JUDGE):
            self.asked = ask(self.launch, self.measured())
        return every & self.asked.keys()

    def _look_ahead(self, plan: Plan) -> None:
        """Expect the remaining stages: of all launches in fixed sampling, of the usual number in adaptive sampling."""
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
            self._refuse_others(runs)
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

    def _refuse_others(self, runs: Sequence[SideRun]) -> None:
        """Check both sides: both having the same wrong device makes it no better.

        Raises:
            WrongDevice: a side's machine is not the requested one.
        """
        for run in runs:
            if reason := self.runner.refuse(run.environment or UNSEEN):
                raise WrongDevice(f"{run.side.name}: {reason}" if len(runs) > 1 else reason)

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
        """All of a launch.

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
            self._note_budget(self._open_runs(launchers, case), case, detail)

    @staticmethod
    def _note_budget(runs: Sequence[SideRun], case: Case, detail: str) -> None:
        check = Check(
            name=WITHIN_BUDGET, arm=case.reference, outcome=Outcome.UNKNOWN, detail=detail
        )
        for run in runs:
            run.ledger = run.ledger.with_evidence(case, Evidence(checks=(check,)), duration_s=0.0)

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
                self._note_budget(self._open_runs(launchers, case), case, reason)
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
            ready, room_s = self._may_get_ready_at_once(open_runs), self.budget.share_s(self.ahead)
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
        if self._may_run_at_once(job.stage, runs):
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

    def _may_run_at_once(self, stage: Stage, runs: Sequence[SideRun]) -> bool:
        """Return whether both sides may run a stage simultaneously: it is untimed, and the machine has room for two.

        On the CPU they also compile from cold simultaneously, each on its own cores. On a GPU each
        runs exclusively: without per-process figures, memory is a sum over both, and tuning would
        run next to another process.
        """
        if stage.exclusive or len(runs) < 2:  # noqa: PLR2004 - sides
            return False
        alone = stage.kind is StageKind.ALONE and device_of(runs) == "cpu"
        return (stage.kind in UNTIMED or alone) and self._has_room_for_two(runs)

    def _may_get_ready_at_once(self, runs: Sequence[SideRun]) -> bool:
        """Return whether both sides may open, compile and warm up simultaneously: on the CPU with enough cores."""
        return len(runs) > 1 and device_of(runs) == "cpu" and self._has_room_for_two(runs)

    def _has_room_for_two(self, runs: Sequence[SideRun]) -> bool:
        return self.runner.options.overlap and has_cores_for_two(
            self.runner.options, device=device_of(runs)
        )

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
        """Return base first in every second launch, so neither side always has the advantage of being first."""
        return runs if self.launch % 2 == 0 else runs[::-1]

    def _over_case_budget(self, case: Case) -> bool:
        budget_s = self.runner.options.case_budget_s
        rows = [row for run in self.runs if (row := run.ledger.rows.get(case.id))]
        return budget_s is not None and sum(row.duration_s or 0.0 for row in rows) > budget_s

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
