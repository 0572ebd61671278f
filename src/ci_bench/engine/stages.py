"""One stage of one case at a time, on one side or on all of them in turns, with the display told.

Owns what is said of progress, and the way out where two sides do not fit into memory together.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from ci_bench.engine.process.launch import Launcher
from ci_bench.engine.process.task import Answer
from ci_bench.engine.side_run import SideRun
from ci_bench.engine.turns import NoWatch, Opener, Round, Turns, Watch
from ci_bench.records.case import Case, Check, Outcome, SideName, Status
from ci_bench.records.config import RunOptions
from ci_bench.records.progress import Event, Progress
from ci_bench.records.results import Environment
from ci_bench.suites.base import Stage, StageKind, Suite

UNSEEN = Environment(identity={}, condition={})
"""The machine, before a worker has looked at it."""

SIDE_BY_SIDE = "side_by_side"
_SEQUENTIAL = (
    "base and head do not fit into memory together, so they were timed one after the other: a small difference may be the machine"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One stage of one case in one launch."""

    suite: Suite
    case: Case
    stage: Stage
    launch: int


@dataclass(kw_only=True, slots=True)
class Stages:
    """Does jobs.

    `runs` are all sides of the run, `watch` watches their machine. `done` and `total` count jobs, `launches` is how many are
    planned.
    """

    options: RunOptions
    observe: Callable[[Event], None]
    runs: tuple[SideRun, ...]
    seed: str
    watch: Watch = field(default_factory=NoWatch)
    launches: int = 1
    done: int = 0
    total: int = 0

    def weight(self, stage: Stage) -> int:
        """How many jobs a stage is: one where all sides take turns, else one for each side."""
        return 1 if stage.kind is StageKind.TIME else len(self.runs)

    def alone(self, job: Job, run: SideRun, launcher: Launcher) -> None:
        """A job of one side in one worker."""
        event = self._begin(job, [run])
        task = run.task(job.suite, job.case, job.stage, job.launch)
        run.run(launcher, task, job.case, job.stage, partial(self._show, event))
        self._finish(event, [run])

    def in_turns(self, job: Job, runs: Sequence[SideRun], launchers: Mapping[SideName, Launcher]) -> None:
        """All sides of a case side by side; one after the other where they do not fit into memory together.

        Raises:
            LauncherFailed: a launch died under its workers.
        """
        event = self._begin(job, runs)
        rounds = [self._play(job, runs, launchers, event)]
        checks: tuple[Check, ...] = ()
        if len(runs) > 1 and any(map(_ran_out_of_memory, rounds)):
            checks = (Check(name=SIDE_BY_SIDE, arm=job.case.reference, outcome=Outcome.UNKNOWN, detail=_SEQUENTIAL),)
            rounds = [self._play(job, [run], launchers, event) for run in runs]
        for played in rounds:
            for run in runs:
                if run.side.name in played.ended:
                    run.settle(job.case, job.stage, played.ended[run.side.name], blocks=played.blocks, checks=checks)
        self._finish(event, runs)

    def _play(self, job: Job, runs: Sequence[SideRun], launchers: Mapping[SideName, Launcher], event: Event) -> Round:
        openers: dict[SideName, Opener] = {
            run.side.name: partial(
                launchers[run.side.name].begin,
                run.task(job.suite, job.case, job.stage, job.launch),
                timeout_s=self.options.stage_timeout_s,
                on_answer=partial(self._show, event),
            )
            for run in runs
        }
        arms = "+".join(job.stage.arms)
        turns = Turns(
            arms=len(job.stage.arms),
            launch=job.launch,
            options=self.options,
            coin=random.Random(f"{self.seed}/{job.launch}/{job.case.id}"),  # noqa: S311 - the order of turns is no secret
            watch=self.watch,
            tell=lambda done, total: self.observe(replace(event, progress=Progress(arm=arms, done=done, total=total))),
        )
        with ExitStack() as stack:
            for run in runs:
                stack.enter_context(run.blaming(job.case, job.stage))
            return turns.play(openers)

    def _begin(self, job: Job, runs: Sequence[SideRun]) -> Event:
        event = Event(
            case=job.case.id,
            stage=job.stage.kind,
            arms=job.stage.arms,
            launch=job.launch,
            launches=self.launches,
            done=self.done,
            total=self.total,
            sides=tuple(run.side.name for run in runs) if len(self.runs) > 1 else (),
        )
        self.observe(event)
        return event

    def _finish(self, event: Event, runs: Sequence[SideRun]) -> None:
        self.done += 1
        statuses = [run.ledger.rows[event.case].status for run in runs]
        failed = next((status for status in statuses if status not in {Status.OK, Status.NOT_RUN}), None)
        self.observe(replace(event, done=self.done, ended=failed or "ok"))

    def _show(self, event: Event, answer: Answer) -> None:
        if answer.progress is not None:
            self.observe(replace(event, progress=answer.progress))


def _ran_out_of_memory(played: Round) -> bool:
    faults = (answer.fault for ended in played.ended.values() for answer in ended.answers)
    return any(fault is not None and fault.kind == Status.OUT_OF_MEMORY for fault in faults)
