"""Run one stage of one case, on one side or on all of them in turns, and update the display.

Owns the progress messages, the fallback if two sides do not fit into memory together, and the
audit of each side's clock. `side_run` owns one side's half.
"""

import logging
import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from ci_bench.host.energy import energy
from ci_bench.host.headroom import Headroom, cores_near, shares_of_cores
from ci_bench.processes.launch import Launcher
from ci_bench.processes.protocol import Answer
from ci_bench.processes.resident import Ended, explain
from ci_bench.records.config import RunOptions
from ci_bench.records.events import Event, Progress
from ci_bench.records.forms import Fact
from ci_bench.records.results import (
    GRAPHED,
    SIZE_FACTS,
    Case,
    Check,
    Metric,
    Outcome,
    SideName,
    Status,
)
from ci_bench.runner.outlook import Outlook
from ci_bench.runner.side_run import UNSEEN, SideRun
from ci_bench.runner.turns import (
    Checking,
    NoWatch,
    Opener,
    Round,
    Turns,
    Watch,
    spoilt_by_capture,
    why_not_together,
)
from ci_bench.runner.witness import Accounts, TurnTimes, Witness
from ci_bench.suites.contract import Cache, Stage, Suite

logger = logging.getLogger(__name__)

LOOK_S = 0.05
"""The time to wait for one of several simultaneous sides before the next."""

Sizes = Mapping[str, Mapping[str, Fact]]
"""The facts of the largest batch of each case that has one, by the case's id."""


SIDE_BY_SIDE = "side_by_side"
_SEQUENTIAL = "so they were timed one after the other: a small difference may be the machine"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One stage of one case in one launch."""

    suite: Suite
    """Suite of the case."""
    case: Case
    """The case, as head plans it."""
    stage: Stage
    """The stage, with the arms of all sides."""
    launch: int
    """Number of the launch, from 0."""
    ready_at_once: bool = False
    """True if sides that take turns open and warm up at the same time."""
    room_s: float = math.inf
    """Rest of the budget (s), within which additional blocks are taken."""
    graphs: bool = True
    """False if CUDA graphs must not be captured, even if the run requests them."""


@dataclass(kw_only=True, slots=True)
class Stages:
    """Does jobs."""

    options: RunOptions
    """Options of the run."""
    observe: Callable[[Event], None]
    """Shows progress."""
    runs: tuple[SideRun, ...]
    """All sides of the run."""
    seed: str
    """Seed of the order of turns."""
    outlook: Outlook
    """Finished and expected stages."""
    watch: Watch = field(default_factory=NoWatch)
    """Monitor of the sides' machine."""
    adaptive: bool = False
    """True if the number of a launch's blocks is adaptive."""
    meanwhile: Callable[[], AbstractContextManager[object]] = nullcontext
    """Context of untimed work between turns."""
    _spoilt: dict[str, str] = field(default_factory=dict, init=False)
    """The reason why graphs are no longer tried, by the case's id."""
    _checking: Checking = field(default_factory=Checking, init=False)
    """Time of looks at timed calls so far."""
    _accounts: dict[str, list[Mapping[SideName, Accounts]]] = field(
        default_factory=dict, init=False
    )
    """The parent's clock accounts of each launch so far, by case and arms."""

    def alone(self, job: Job, run: SideRun, launcher: Launcher) -> None:
        """Do a job of one side in one worker."""
        event = self._begin(job, [run])
        task = run.task(job.suite, job.case, job.stage, job.launch)
        run.run(launcher, task, job.case, job.stage, partial(self._show, event))
        self._finish(event, [run])

    def of_one_side(
        self,
        job: Job,
        runs: Sequence[SideRun],
        launchers: Mapping[SideName, Launcher],
        facts: Mapping[str, Fact],
    ) -> None:
        """Search for the largest batch.

        Base's result, or head's if base ends without one, holds for both.

        Results of an earlier run are its `facts`: another batch would be another measurement.
        """
        searches = 0
        for run in runs if not facts else ():
            self.alone(job, run, launchers[run.side.name])
            row, searches = run.ledger.rows[job.case.id], searches + 1
            facts = {name: row.facts[name] for name in SIZE_FACTS if name in row.facts}
            if run.ledger.is_open(job.case):
                break
        self.outlook.done += len(runs) - searches
        for run in runs:
            run.size(job.case, facts)

    def at_once(
        self, job: Job, runs: Sequence[SideRun], launchers: Mapping[SideName, Launcher]
    ) -> None:
        """Run a job of several sides simultaneously; one after the other if that is too much.

        Its time is not reported, except for compilations from cold. For these, each side has the
        same number of separate cores, so neither is faster once the other has ended. They run
        simultaneously, so the compiler's files are in the page cache for both, or for neither. A
        side that failed next to the other is run once more without it: the memory or the device may
        not have been enough for two. So is the last one if memory runs short meanwhile.

        Raises:
            LauncherFailed: a launch died under its worker.
        """
        event = self._begin(job, runs)
        ended: dict[SideName, Ended] = {}
        shares = shares_of_cores(len(runs)) if job.stage.cache is Cache.COLD else ()
        cores = dict(zip((run.side.name for run in runs), shares, strict=False))
        with ExitStack() as stack:
            working = {}
            for run in runs:
                opened = self._opener(
                    job, run, launchers, event, cores=cores.get(run.side.name, ())
                )()
                with run.blaming(job.case, job.stage):
                    working[run.side.name] = run, (worker := stack.enter_context(opened))
                    worker.ends_within(0.0)
            headroom = Headroom()
            while working:
                for name, (run, worker) in tuple(working.items()):
                    with run.blaming(job.case, job.stage):
                        if worker.ends_within(LOOK_S):
                            ended[name] = worker.end()
                            del working[name]
                if len(working) > 1 and headroom.is_short():
                    _, worker = working.popitem()[1]
                    worker.stop()
        for run in runs:
            side_end = ended.get(run.side.name)
            if side_end is not None and explain(side_end, limit_s=self.options.stage_timeout_s)[
                0
            ] in {
                Status.OK,
                Status.SKIPPED,
            }:
                run.settle(job.case, job.stage, side_end)
            else:
                logger.info(
                    "%s: %s of %s once more, alone", job.case.id, job.stage.kind, run.side.name
                )
                task = run.task(
                    job.suite, job.case, job.stage, job.launch, cores=cores.get(run.side.name, ())
                )
                run.run(
                    launchers[run.side.name], task, job.case, job.stage, partial(self._show, event)
                )
        self.outlook.done += len(runs) - 1
        self._finish(event, runs)

    def in_turns(
        self, job: Job, runs: Sequence[SideRun], launchers: Mapping[SideName, Launcher]
    ) -> None:
        """Give all sides of a case turns.

        Sides that do not fit into memory together are timed one after the other.

        If a failed capture of a CUDA graph spoilt a worker, all of them are replaced, and no arm of
        the case has graphs.

        Raises:
            LauncherFailed: a launch died under its workers.
        """
        event = self._begin(job, runs)
        job = replace(job, graphs=job.case.id not in self._spoilt)
        rounds = [self._play(job, runs, launchers, event)]
        if job.graphs and (spoilt := spoilt_by_capture(rounds[0])):
            logger.info(
                "%s: once more in fresh workers, without CUDA graphs: %s", job.case.id, spoilt
            )
            self._spoilt[job.case.id], job = spoilt, replace(job, graphs=False)
            rounds = [self._play(job, runs, launchers, event)]
        checks = self._without_graphs(job)
        if len(runs) > 1 and (reason := why_not_together(rounds[0])):
            detail = f"{reason}, {_SEQUENTIAL}"
            checks += (
                Check(
                    name=SIDE_BY_SIDE,
                    arm=job.case.reference,
                    outcome=Outcome.UNKNOWN,
                    detail=detail,
                ),
            )
            rounds = []
            for run in runs:
                flushes = rounds[0].flushes if rounds else 0
                rounds.append(self._play(job, [run], launchers, event, flushes=flushes))
        witnessed = self._witness(job, rounds)
        for played in rounds:
            for run in runs:
                if run.side.name in played.ended:
                    joules, counted = self._energy(job, run.side.name, played)
                    all_checks = (*checks, *witnessed.get(run.side.name, ()), *counted)
                    metrics = (*self._watched(job, run.side.name, played), *joules)
                    run.settle(
                        job.case,
                        job.stage,
                        played.ended[run.side.name],
                        blocks=played.blocks,
                        checks=all_checks,
                        metrics=metrics,
                    )
        self._finish(event, runs)

    def _without_graphs(self, job: Job) -> tuple[Check, ...]:
        """Report that no arm was captured, if captures were requested."""
        if job.graphs:
            return ()
        detail = f"called plainly: {self._spoilt[job.case.id]}"
        return tuple(
            Check(name=GRAPHED, arm=arm, outcome=Outcome.UNKNOWN, detail=detail)
            for arm in job.stage.arms
        )

    def _watched(self, job: Job, side: SideName, played: Round) -> tuple[Metric, ...]:
        """Return the monitor's metrics of the turns of each arm."""
        looks = [
            (arm, played.glances.get((side, place), {})) for place, arm in enumerate(job.stage.arms)
        ]
        return tuple(
            metric
            for arm, glances in looks
            for metric in self.watch.metrics(glances, arm=arm, launch=job.launch)
        )

    def _energy(self, job: Job, side: SideName, played: Round) -> tuple[list[Metric], list[Check]]:
        """Return the energy of each arm's steps, if requested, and how it was counted."""
        evidence = next(
            (answer.evidence for answer in played.ended[side].answers if answer.evidence), None
        )
        all_metrics: list[Metric] = []
        checks: list[Check] = []
        for place, arm in (
            enumerate(job.stage.arms) if self.options.energy_s > 0 and evidence is not None else ()
        ):
            stretches = played.stretches.get((side, place), ())
            unmet = "the flushes of run.flush_l2 would be in it" if played.flushes else ""
            metrics, check = energy(
                stretches,
                arm=arm,
                launch=job.launch,
                reported=evidence.metrics if evidence else (),
                unmet=unmet,
            )
            all_metrics += metrics
            checks.append(check)
        return all_metrics, checks

    def _witness(self, job: Job, rounds: Sequence[Round]) -> Mapping[SideName, tuple[Check, ...]]:
        """Check each side's samples by the parent's clock, in this launch and in all so far.

        Head is compared with base, which head's code cannot reach.
        """
        device = {
            run.side.name: (run.environment or UNSEEN).identity.get("device") for run in self.runs
        }
        accounts: dict[SideName, Accounts] = {}
        witnesses: dict[SideName, Witness] = {}
        for played in rounds:
            for name, ended in played.ended.items():
                evidence = next(
                    (answer.evidence for answer in ended.answers if answer.evidence), None
                )
                if evidence is not None:
                    flushed = self.options.flush_l2 and device.get(name) == "cuda"
                    sightings = played.sightings.get(name, ())
                    load = os.getloadavg()[0] / (os.cpu_count() or 1)
                    times = TurnTimes(
                        arms=job.stage.arms,
                        sightings=sightings,
                        calls=played.calls,
                        flushed=flushed,
                        load=load,
                    )
                    accounts[name], witnesses[name] = (
                        times.accounts(evidence),
                        Witness(flushed=flushed),
                    )
        launches = self._accounts.setdefault(f"{job.case.id}/{job.stage.arms}", [])
        launches.append(accounts)
        return {name: witness.over_launches(launches, name) for name, witness in witnesses.items()}

    def _play(
        self,
        job: Job,
        runs: Sequence[SideRun],
        launchers: Mapping[SideName, Launcher],
        event: Event,
        *,
        flushes: int = 0,
    ) -> Round:
        openers = {run.side.name: self._opener(job, run, launchers, event) for run in runs}
        arms = "+".join(job.stage.arms)
        turns = Turns(
            arms=len(job.stage.arms),
            places={
                run.side.name: tuple(map(job.stage.arms.index, run.arms_of(job.case, job.stage)))
                for run in runs
            },
            launch=job.launch,
            options=self.options,
            coin=random.Random(f"{self.seed}/{job.launch}/{job.case.id}"),  # noqa: S311 - the order of turns is public
            watch=self.watch,
            most_blocks=self.options.most_blocks if self.adaptive else None,
            room_s=job.room_s,
            ready_at_once=job.ready_at_once,
            sparing=self._checking.is_over_its_share(job.case.id),
            flushes=flushes,
            cores=(
                cores_near(self.watch.near_cores()) if job.stage.processes == 1 < len(runs) else ()
            ),
            meanwhile=self.meanwhile,
            tell=lambda done, total: self.observe(
                replace(event, progress=Progress(arm=arms, done=done, total=total))
            ),
        )
        with ExitStack() as stack:
            for run in runs:
                stack.enter_context(run.blaming(job.case, job.stage))
            begun = time.monotonic()
            played = turns.play(openers)
        self._checking.note(job.case.id, played, time.monotonic() - begun)
        return played

    def _opener(
        self,
        job: Job,
        run: SideRun,
        launchers: Mapping[SideName, Launcher],
        event: Event,
        *,
        cores: tuple[int, ...] = (),
    ) -> Opener:
        return partial(
            launchers[run.side.name].begin,
            run.task(job.suite, job.case, job.stage, job.launch, graphs=job.graphs, cores=cores),
            timeout_s=self.options.stage_timeout_s,
            on_answer=partial(self._show, event),
        )

    def _begin(self, job: Job, runs: Sequence[SideRun]) -> Event:
        event = Event(
            case=job.case.id,
            stage=job.stage.kind,
            arms=job.stage.arms,
            launch=job.launch,
            launches=self.outlook.launches,
            done=self.outlook.done,
            total=self.outlook.total,
            left_s=self.outlook.left_s(),
            sides=tuple(run.side.name for run in runs) if len(self.runs) > 1 else (),
        )
        self.observe(event)
        return event

    def _finish(self, event: Event, runs: Sequence[SideRun]) -> None:
        self.outlook.done += 1
        statuses = [run.ledger.rows[event.case].status for run in runs]
        failed = next(
            (status for status in statuses if status not in {Status.OK, Status.NOT_RUN}), None
        )
        left_s = self.outlook.left_s(event.stage)
        self.observe(replace(event, done=self.outlook.done, left_s=left_s, ended=failed or "ok"))

    def _show(self, event: Event, answer: Answer) -> None:
        if answer.progress is not None:
            self.observe(replace(event, progress=answer.progress))
