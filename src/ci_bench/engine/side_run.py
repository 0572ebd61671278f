"""One side's half of a run: its ledger, its machine, its workers' tasks, and what their endings mean for its rows."""

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.engine.evidence import refuse_row
from ci_bench.engine.ledger import Ledger
from ci_bench.engine.process.endings import explain, signal_name
from ci_bench.engine.process.launch import Launcher
from ci_bench.engine.process.leftovers import make
from ci_bench.engine.process.resident import Ended
from ci_bench.engine.process.task import Answer, Task
from ci_bench.engine.timing.compilation import cache_environment
from ci_bench.engine.trees.sides import Side
from ci_bench.errors import LauncherFailed, MeasuringFailed
from ci_bench.records.case import Block, Case, Check, Failure, Status
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Environment
from ci_bench.suites.base import Cache, Evidence, Stage, Suite

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 120.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
"""Nothing is downloaded while measuring."""

OnAnswer = Callable[[Answer], None]


@dataclass(kw_only=True, slots=True)
class SideRun:
    """One side, while it is measured. `folder` is its private folder; `numbers` tell the cases' folders in it apart."""

    side: Side
    options: RunOptions
    folder: Path
    ledger: Ledger
    numbers: Mapping[str, int]
    environment: Environment | None = None

    def launcher(self, name: str, preload: tuple[str, ...], *, offline: bool) -> Launcher:
        """A fresh server that imports `preload` in this side's environment."""
        modules = {"HF_MODULES_CACHE": str(self.folder / "hf-modules")}
        environ = {**self.side.environ, **modules, **(OFFLINE if offline else {})}
        return Launcher(
            preload=preload, environ=environ, folder=self.folder / name, python=self.side.python, cwd=self.side.folder
        )

    def look_at_machine(self, launcher: Launcher) -> None:
        """Find out what machine this is, once.

        Raises:
            MeasuringFailed: it cannot run the engine at all (no torch, no such device).
        """
        if self.environment is not None:
            return
        task = Task(launch=0, device=self.options.device, options=self.options, scratch=str(self.folder))
        ended = launcher.run(task, timeout_s=PROBE_TIMEOUT_S, on_answer=lambda _: None)
        told = next((answer.environment for answer in ended.answers if answer.environment), None)
        if told is None:
            _, reason = explain(ended, limit_s=PROBE_TIMEOUT_S)
            tail = f"\n{ended.log_tail}" if ended.log_tail and not ended.answers else ""
            message = f"this machine cannot run the benchmarks: {reason}{tail}\nRun `ci-bench doctor` to see what is missing."
            raise MeasuringFailed(message)
        self.environment = Environment(identity=told.get("identity", {}), condition=told.get("condition", {}))

    def task(self, suite: Suite, case: Case, stage: Stage, launch: int) -> Task:
        """The task of one stage; a cold one loses its compiler cache."""
        scratch = self.folder / f"case-{self.numbers[case.id]}"
        make(scratch)
        cache = scratch / "compiler-cache"
        if stage.cache is Cache.COLD:
            shutil.rmtree(cache, ignore_errors=True)
        return Task(
            launch=launch,
            device=self.options.device,
            options=self.options,
            scratch=str(scratch),
            worker=suite.worker,
            case=case,
            stage=stage,
            environ=cache_environment(cache),
        )

    def run(self, launcher: Launcher, task: Task, case: Case, stage: Stage, on_answer: OnAnswer) -> None:
        """One stage in one worker; the ledger takes what comes of it."""
        with self.blaming(case, stage):
            ended = launcher.run(task, timeout_s=self.options.stage_timeout_s, on_answer=on_answer)
        self.settle(case, stage, ended)

    def blaming(self, case: Case, stage: Stage) -> "_Blame":
        """Where the launch dies with a worker in this block, the case that was under way says so."""
        return _Blame(run=self, case=case, stage=stage)

    def settle(
        self, case: Case, stage: Stage, ended: Ended, *, blocks: tuple[Block, ...] = (), checks: tuple[Check, ...] = ()
    ) -> None:
        """Enter what came of a stage. Evidence that would make the results unreadable is refused."""
        status, reason = explain(ended, limit_s=self.options.stage_timeout_s)
        logger.info("%s: %s (%s): %s after %.1f s", case.id, stage.kind, ", ".join(stage.arms), status, ended.duration_s)
        if status is Status.OK:
            evidence = next((answer.evidence for answer in ended.answers if answer.evidence), Evidence())
            richer = self.ledger.with_evidence(
                case, replace(evidence, checks=(*evidence.checks, *checks)), duration_s=ended.duration_s, blocks=blocks
            )
            reason = refuse_row(richer.rows[case.id])
            if not reason:
                self.ledger = richer
                return
            status = Status.FAILED
        failure = Failure(stage=stage.kind, arms=stage.arms, reason=reason, signal=signal_name(ended), log_tail=ended.log_tail)
        self.ledger = self.ledger.with_failure(case, status, failure, duration_s=ended.duration_s)

    def fail(self, case: Case, status: Status, stage: str, arms: tuple[str, ...], reason: str) -> None:
        """End a case for a reason that no worker told."""
        if self.ledger.is_open(case):
            self.ledger = self.ledger.with_failure(case, status, Failure(stage=stage, arms=arms, reason=reason))


@dataclass(kw_only=True, slots=True)
class _Blame:
    run: SideRun
    case: Case
    stage: Stage

    def __enter__(self) -> None:
        """Nothing to do yet."""

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _trace: object) -> None:
        """Enter the failure; the error goes on."""
        if isinstance(value, LauncherFailed):
            reason = "the process that starts the workers died during this stage, and the run with it"
            self.run.fail(self.case, Status.CRASHED, self.stage.kind, self.stage.arms, reason)
