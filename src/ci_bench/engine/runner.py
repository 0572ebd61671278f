"""Runs a plan: launch after launch, case after case, stage after stage. Owns the order of work and what an ending means.

The parent never imports torch and never touches the GPU.
"""

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ci_bench.engine.compilation import cache_environment
from ci_bench.engine.endings import explain, signal_name
from ci_bench.engine.evidence import refuse_row
from ci_bench.engine.launch import Ended, Launcher
from ci_bench.engine.ledger import Ledger
from ci_bench.engine.task import Answer, Task
from ci_bench.errors import LauncherFailed, MeasuringFailed
from ci_bench.records.case import Case, Failure, Status
from ci_bench.records.config import RunOptions
from ci_bench.records.progress import Event
from ci_bench.records.results import Environment
from ci_bench.suites.base import Cache, Evidence, Stage, StageKind, Suite

logger = logging.getLogger(__name__)

Record = Callable[[Environment, Ledger], None]

PROBE_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """Everything measuring needs from outside, handed in.

    `environ` is the environment workers get (no token in it), `scratch` a private folder, `observe` the display,
    `clock` gives seconds.
    """

    options: RunOptions
    environ: Mapping[str, str]
    scratch: Path
    observe: Callable[[Event], None]
    clock: Callable[[], float] = time.monotonic

    def measure(self, plan: tuple[tuple[Suite, Case], ...], ledger: Ledger, record: Record) -> tuple[Environment, Ledger]:
        """Measure all cases in all launches. `record` is called with machine and ledger whenever the ledger changed.

        Raises:
            MeasuringFailed: the machine cannot run the engine at all (no torch, no such device).
        """
        jobs = _Jobs(engine=self, plan=plan, record=record, started=self.clock(), ledger=ledger)
        return jobs.run(), jobs.ledger


@dataclass(kw_only=True, slots=True)
class _Jobs:
    """One walk through the plan. `measured` are the ids of cases whose first launch is complete; `done` counts stages."""

    engine: Engine
    plan: tuple[tuple[Suite, Case], ...]
    record: Record
    started: float
    ledger: Ledger
    environment: Environment | None = None
    measured: set[str] = field(default_factory=set)
    done: int = 0
    total: int = 0

    def run(self) -> Environment:
        self.total = sum(len(self._stages(suite, case, launch)) for launch in self._launches() for suite, case in self.plan)
        try:
            self._prepare_online()
            for launch in self._launches():
                if launch and self._out_of_budget():
                    break
                self._launch(launch)
            self._close_rows()
        finally:
            self._record()
        assert self.environment is not None, "the first launch looks at the machine or raises"  # noqa: S101 - for our own bugs
        return self.environment

    def _launch(self, launch: int) -> None:
        with self._launcher(f"launch-{launch}", offline=True) as launcher:
            if self.environment is None:
                self.environment = self._look_at_machine(launcher)
                self._record()
            if launch == 0:
                self._prepare(launcher, [(suite, case) for suite, case in self.plan if not suite.needs_network(case)])
            for suite, case in self.plan:
                self._measure_case(launcher, suite, case, launch)

    def _prepare_online(self) -> None:
        online = [(suite, case) for suite, case in self.plan if suite.needs_network(case)]
        if online:
            with self._launcher("online", offline=False) as launcher:
                self._prepare(launcher, online)

    def _close_rows(self) -> None:
        """What the first launch measured in full is a result, also where the budget left no time for more launches."""
        for _, case in self.plan:
            if self.ledger.is_open(case) and case.id in self.measured:
                self.ledger = self.ledger.with_success(case)

    def _launches(self) -> range:
        return range(self.engine.options.launches)

    def _launcher(self, name: str, *, offline: bool) -> Launcher:
        preload = dict.fromkeys(module for suite, _ in self.plan for module in suite.preload)
        modules = {"HF_MODULES_CACHE": str(self.engine.scratch / "hf-modules")}
        environ = {**self.engine.environ, **modules, **(OFFLINE if offline else {})}
        return Launcher(preload=tuple(preload), environ=environ, folder=self.engine.scratch / name)

    def _stages(self, suite: Suite, case: Case, launch: int) -> tuple[Stage, ...]:
        return tuple(
            stage
            for stage in suite.stages(case)
            if stage.takes_place_in(launch) and (stage.kind is not StageKind.PREPARE or launch == 0)
        )

    def _look_at_machine(self, launcher: Launcher) -> Environment:
        ended = launcher.run(self._task(0), timeout_s=PROBE_TIMEOUT_S, on_answer=lambda _: None)
        told = next((answer.environment for answer in ended.answers if answer.environment), None)
        if told is None:
            _, reason = explain(ended, limit_s=PROBE_TIMEOUT_S)
            tail = f"\n{ended.log_tail}" if ended.log_tail and not ended.answers else ""
            message = f"this machine cannot run the benchmarks: {reason}{tail}\nRun `ci-bench doctor` to see what is missing."
            raise MeasuringFailed(message)
        return Environment(identity=told.get("identity", {}), condition=told.get("condition", {}))

    def _prepare(self, launcher: Launcher, pairs: list[tuple[Suite, Case]]) -> None:
        for suite, case in pairs:
            for stage in self._stages(suite, case, 0):
                if stage.kind is StageKind.PREPARE and not self._out_of_budget():
                    self._do(launcher, suite, case, stage, 0)

    def _measure_case(self, launcher: Launcher, suite: Suite, case: Case, launch: int) -> None:
        """The case's stages of one launch, until one fails. A case that was begun before the budget ended is finished later."""
        for stage in self._stages(suite, case, launch):
            if stage.kind is StageKind.PREPARE:
                continue
            if not self.ledger.is_open(case):
                self.done += 1
                continue
            if launch == 0 and self._out_of_budget():
                reason = f"the budget of {self.engine.options.budget_s:g} s was spent before this stage; raise run.budget_s"
                failure = Failure(stage=stage.kind, arms=stage.arms, reason=reason)
                self.ledger = self.ledger.with_failure(case, Status.NOT_RUN, failure)
                break
            self._do(launcher, suite, case, stage, launch)
        else:
            self.measured.add(case.id)
        self._record()

    def _do(self, launcher: Launcher, suite: Suite, case: Case, stage: Stage, launch: int) -> None:
        """One stage in one worker; the ledger takes what comes of it."""
        event = Event(
            case=case.id,
            stage=stage.kind,
            arms=stage.arms,
            launch=launch,
            launches=self.engine.options.launches,
            done=self.done,
            total=self.total,
        )
        self.engine.observe(event)
        self._settle(case, stage, self._run(launcher, event, self._task(launch, suite=suite, case=case, stage=stage), case))
        self.done += 1
        status = self.ledger.rows[case.id].status
        self.engine.observe(replace(event, done=self.done, ended="ok" if self.ledger.is_open(case) else status))

    def _run(self, launcher: Launcher, event: Event, task: Task, case: Case) -> Ended:
        """Where the launch dies with the worker, the case that was under way says so."""
        timeout_s = self.engine.options.stage_timeout_s
        try:
            return launcher.run(task, timeout_s=timeout_s, on_answer=lambda answer: self._show(event, answer))
        except LauncherFailed:
            reason = "the process that starts the workers died during this stage, and the run with it"
            failure = Failure(stage=event.stage, arms=event.arms, reason=reason)
            self.ledger = self.ledger.with_failure(case, Status.CRASHED, failure)
            raise

    def _settle(self, case: Case, stage: Stage, ended: Ended) -> None:
        """Enter what came of a stage. Evidence that would make the results unreadable is refused."""
        status, reason = explain(ended, limit_s=self.engine.options.stage_timeout_s)
        logger.info("%s: %s (%s): %s after %.1f s", case.id, stage.kind, ", ".join(stage.arms), status, ended.duration_s)
        if status is Status.OK:
            evidence = next((answer.evidence for answer in ended.answers if answer.evidence), Evidence())
            richer = self.ledger.with_evidence(case, evidence, duration_s=ended.duration_s)
            reason = refuse_row(richer.rows[case.id])
            if not reason:
                self.ledger = richer
                return
            status = Status.FAILED
        failure = Failure(stage=stage.kind, arms=stage.arms, reason=reason, signal=signal_name(ended), log_tail=ended.log_tail)
        self.ledger = self.ledger.with_failure(case, status, failure, duration_s=ended.duration_s)

    def _show(self, event: Event, answer: Answer) -> None:
        if answer.progress is not None:
            self.engine.observe(replace(event, progress=answer.progress))

    def _task(self, launch: int, *, suite: Suite | None = None, case: Case | None = None, stage: Stage | None = None) -> Task:
        number = next((i for i, (_, other) in enumerate(self.plan) if case is not None and other.id == case.id), 0)
        scratch = self.engine.scratch / f"case-{number}"
        scratch.mkdir(exist_ok=True)
        cache = scratch / "compiler-cache"
        if stage is not None and stage.cache is Cache.COLD:
            shutil.rmtree(cache, ignore_errors=True)
        return Task(
            launch=launch,
            device=self.engine.options.device,
            options=self.engine.options,
            scratch=str(scratch),
            worker=suite.worker if suite else None,
            case=case,
            stage=stage,
            environ=cache_environment(cache),
        )

    def _out_of_budget(self) -> bool:
        budget_s = self.engine.options.budget_s
        return budget_s is not None and self.engine.clock() - self.started > budget_s

    def _record(self) -> None:
        if self.environment is not None:
            self.record(self.environment, self.ledger)


OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
"""Nothing is downloaded while measuring."""
