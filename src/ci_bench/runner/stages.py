"""Run one stage of one case, on one side or on all of them in turns, and update the display.

Owns one side's half of a run: its ledger, its machine, its workers' tasks, and the effect of their
endings on its rows. Also owns the progress messages, the fallback if two sides do not fit into
memory together, and the audit of each side's clock.
"""

import logging
import math
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ci_bench.checkouts.sides import Side
from ci_bench.errors import LauncherFailed, MeasuringFailed
from ci_bench.host.energy import energy
from ci_bench.host.headroom import Headroom, cores_near, shares_of_cores
from ci_bench.processes.addresses import Addresses
from ci_bench.processes.launch import Launcher
from ci_bench.processes.messages import Keeping
from ci_bench.processes.protocol import Answer, Task
from ci_bench.processes.resident import Ended, explain, signal_name
from ci_bench.processes.scratch import make
from ci_bench.processes.users import give
from ci_bench.records.config import RunOptions
from ci_bench.records.first_calls import FirstCall
from ci_bench.records.open_cases import SeriesName
from ci_bench.records.outputs import KeptClaim
from ci_bench.records.results import (
    GRAPHED,
    LARGEST_BATCH,
    SIZE_FACTS,
    Block,
    Case,
    Check,
    Environment,
    Event,
    Fact,
    Failure,
    Metric,
    Outcome,
    Phase,
    Progress,
    SideName,
    Spent,
    Status,
)
from ci_bench.runner.attachments import Attachments
from ci_bench.runner.ledger import Ledger, as_verified, refuse_row
from ci_bench.runner.outlook import Outlook
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
from ci_bench.suites.contract import Cache, Evidence, Stage, StageKind, Suite
from ci_bench.worker.compilation import cache_environment
from ci_bench.worker.phases import whole

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 120.0
LOOK_S = 0.05
"""The time to wait for one of several simultaneous sides before the next."""
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
}
"""Nothing is downloaded while measuring."""

OnAnswer = Callable[[Answer], None]
Sizes = Mapping[str, Mapping[str, Fact]]
"""The facts of the largest batch of each case that has one, by the case's id."""


@dataclass(kw_only=True, slots=True)
class SideRun:
    """One side, while it is measured.

    `folder` is its private folder; `numbers` index the cases' folders in it.

    `brought` are the metrics of each stage of a case so far, by the case's id. `attachments` is the
    store of its cases' files, if any. `keep` selects the reference outputs that workers write.
    `sizes` are the facts of the largest batch of each case that has one, `claims` comparisons to
    repeat, by the case's id. `suites` are this side's own if its tree has some, by name. Its
    workers get its own plan of a case, as its row has it.
    """

    side: Side
    options: RunOptions
    folder: Path
    ledger: Ledger
    numbers: Mapping[str, int]
    environment: Environment | None = None
    brought: dict[tuple[str, Stage], frozenset[SeriesName]] = field(default_factory=dict)
    attachments: Attachments | None = None
    keep: Keeping = Keeping.NOTHING
    sizes: dict[str, Mapping[str, Fact]] = field(default_factory=dict)
    begun: dict[str, Mapping[str, FirstCall]] = field(default_factory=dict)
    """The first verified call of each arm, by the case's id."""
    claims: dict[str, tuple[KeptClaim, ...]] = field(default_factory=dict)
    suites: Mapping[str, Suite] = field(default_factory=dict)

    def launcher(
        self,
        name: str,
        preload: tuple[str, ...],
        *,
        offline: bool,
        addresses: Addresses | None = None,
    ) -> Launcher:
        """Start a new server that imports `preload` in this side's environment.

        Its memory is at its launch's `addresses`.
        """
        modules = {"HF_MODULES_CACHE": str(self._ensure_folder("hf-modules"))}
        environ = {**self.side.environ, **modules, **(OFFLINE if offline else {})}
        return Launcher(
            preload=preload,
            environ=environ,
            folder=self.folder / name,
            python=self.side.python,
            cwd=self.side.folder,
            user=self.side.user,
            addresses=addresses,
        )

    def _ensure_folder(self, name: str) -> Path:
        """Return a folder of this side's that its user may write to; if that is the caller, it may be made later."""
        place = self.folder / name
        if self.side.user is not None and not place.exists():
            make(place)
            give(place, self.side.user)
        return place

    def look_at_machine(self, launcher: Launcher) -> None:
        """Probe the machine, once.

        Raises:
            MeasuringFailed: it cannot run the engine at all (no torch, no such device).
        """
        if self.environment is not None:
            return
        task = Task(
            launch=0, device=self.options.device, options=self.options, scratch=str(self.folder)
        )
        ended = launcher.run(task, timeout_s=PROBE_TIMEOUT_S, on_answer=lambda _: None)
        probed = next((answer.environment for answer in ended.answers if answer.environment), None)
        if probed is None:
            _, reason = explain(ended, limit_s=PROBE_TIMEOUT_S)
            tail = f"\n{ended.log_tail}" if ended.log_tail and not ended.answers else ""
            message = (
                f"this machine cannot run the benchmarks: {reason}{tail}\nRun `ci-bench doctor` to"
                " see what is missing."
            )
            raise MeasuringFailed(message)
        self.environment = Environment(
            identity=probed.get("identity", {}), condition=probed.get("condition", {})
        )

    def task(
        self,
        suite: Suite,
        case: Case,
        stage: Stage,
        launch: int,
        *,
        graphs: bool = True,
        cores: tuple[int, ...] = (),
    ) -> Task:
        """Return the task of one stage; a cold one loses its compiler cache.

        Without `graphs`, none is captured.

        It uses this side's own suite and case, and the arms of that case.
        """
        scratch = self._ensure_folder(self.case_folder(case).name)
        make(scratch)
        cache = scratch / "compiler-cache"
        if stage.cache is Cache.COLD:
            shutil.rmtree(cache, ignore_errors=True)
        return Task(
            launch=launch,
            device=self.options.device,
            options=self.options if graphs else replace(self.options, cuda_graph=False),
            scratch=str(scratch),
            worker=self.suites.get(case.suite, suite).worker,
            case=self.ledger.rows[case.id].case,
            stage=replace(stage, arms=self.arms_of(case, stage)),
            environ=cache_environment(cache),
            keep=self.keep,
            cores=cores,
            largest_batch=self._largest_batch(case),
        )

    def arms_of(self, case: Case, stage: Stage) -> tuple[str, ...]:
        """Return the arms of a stage that this side's own plan of the case has."""
        side_arms = self.ledger.rows[case.id].case.arms
        return tuple(arm for arm in stage.arms if arm in side_arms)

    def size(self, case: Case, facts: Mapping[str, Fact]) -> None:
        """Use the largest batch of a case for this side as well, whichever side found it."""
        if case.id not in self.ledger.rows:
            return
        self.sizes[case.id] = facts
        self.ledger = self.ledger.with_evidence(case, Evidence(facts=facts), duration_s=0.0)

    def _largest_batch(self, case: Case) -> int | None:
        """That of this run, or of the earlier one that it resumes."""
        batch = self.sizes.get(case.id, self.ledger.rows[case.id].facts).get(LARGEST_BATCH)
        return batch if isinstance(batch, int) else None

    def case_folder(self, case: Case) -> Path:
        """The folder that a case's stages share."""
        return self.folder / f"case-{self.numbers[case.id]}"

    def run(
        self, launcher: Launcher, task: Task, case: Case, stage: Stage, on_answer: OnAnswer
    ) -> None:
        """Run one stage in one worker, and record its result in the ledger."""
        with self.blaming(case, stage):
            ended = launcher.run(task, timeout_s=self.options.stage_timeout_s, on_answer=on_answer)
        self.settle(case, stage, ended)

    def blaming(self, case: Case, stage: Stage) -> "_Blame":
        """Attribute a crash of the launch in this block to the case that was under way."""
        return _Blame(run=self, case=case, stage=stage)

    def settle(
        self,
        case: Case,
        stage: Stage,
        ended: Ended,
        *,
        blocks: tuple[Block, ...] = (),
        checks: tuple[Check, ...] = (),
        metrics: tuple[Metric, ...] = (),
    ) -> None:
        """Record the result of a stage, and the metrics `seen` from outside.

        Results that cannot be read again are refused.
        """
        status, reason = explain(ended, limit_s=self.options.stage_timeout_s)
        rest = Phase.HAND_OVER if stage.kind is StageKind.TIME else Phase.START
        logger.info(
            "%s: %s (%s): %s after %.1f s",
            case.id,
            stage.kind,
            ", ".join(stage.arms),
            status,
            ended.duration_s,
        )
        if status is Status.OK:
            evidence = next(
                (answer.evidence for answer in ended.answers if answer.evidence), Evidence()
            )
            files = self.attachments.take(case, self.case_folder(case)) if self.attachments else {}
            enriched = replace(
                evidence,
                metrics=(*evidence.metrics, *metrics),
                checks=(*evidence.checks, *checks, *self._as_verified(case, stage, evidence)),
                facts={**evidence.facts, **files, **self._kept_size(case)},
                spent=whole(stage.kind, evidence.spent, rest=rest, seconds=ended.duration_s),
            )
            richer = self.ledger.with_evidence(
                case, enriched, duration_s=ended.duration_s, blocks=blocks
            )
            reason = refuse_row(richer.rows[case.id])
            if not reason:
                self.ledger, self.claims[case.id] = richer, evidence.claims
                self._note(case, stage, evidence)
                return
            status = Status.FAILED
        failure = Failure(
            stage=stage.kind,
            arms=stage.arms,
            reason=reason,
            signal=signal_name(ended),
            log_tail=ended.log_tail,
        )
        lost = Spent(stage=stage.kind, phase=rest, seconds=ended.duration_s)
        self.ledger = self.ledger.with_failure(
            case, status, failure, duration_s=ended.duration_s, spent=(lost,)
        )

    def _as_verified(self, case: Case, stage: Stage, evidence: Evidence) -> Iterable[Check]:
        """Fail each arm whose first timed call differs from its first verified one."""
        if stage.kind is StageKind.VERIFY:
            self.begun[case.id] = evidence.begun
        return (
            as_verified(self.begun.get(case.id, {}), evidence.begun)
            if stage.kind is StageKind.TIME
            else ()
        )

    def _kept_size(self, case: Case) -> Mapping[str, Fact]:
        """Return facts that no later stage may change: its worker could take another batch than the other side's."""
        earlier = self.ledger.rows[case.id].facts
        return self.sizes.get(case.id) or {
            name: earlier[name] for name in SIZE_FACTS if name in earlier
        }

    def _note(self, case: Case, stage: Stage, evidence: Evidence) -> None:
        before = self.brought.get((case.id, stage), frozenset())
        self.brought[case.id, stage] = before | {
            (metric.name, metric.arm) for metric in evidence.metrics
        }

    @contextmanager
    def spending(self, phase: Phase) -> Iterator[None]:
        """The block's time went to no case of this side."""
        begun = time.monotonic()
        yield
        self.ledger = self.ledger.with_spent(
            Spent(stage="launch", phase=phase, seconds=time.monotonic() - begun)
        )

    def fail(
        self, case: Case, status: Status, stage: str, arms: tuple[str, ...], reason: str
    ) -> None:
        """End a case for a reason that did not come from a worker."""
        if self.ledger.is_open(case):
            self.ledger = self.ledger.with_failure(
                case, status, Failure(stage=stage, arms=arms, reason=reason)
            )


@dataclass(kw_only=True, slots=True)
class _Blame:
    run: SideRun
    case: Case
    stage: Stage

    def __enter__(self) -> None:
        """Nothing to do yet."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, _trace: object
    ) -> None:
        """Record the failure; the error propagates."""
        if isinstance(value, LauncherFailed):
            reason = (
                "the process that starts the workers died during this stage, and the run with it"
            )
            self.run.fail(self.case, Status.CRASHED, self.stage.kind, self.stage.arms, reason)


UNSEEN = Environment(identity={}, condition={})
"""The machine, before a worker has looked at it."""

SIDE_BY_SIDE = "side_by_side"
_SEQUENTIAL = "so they were timed one after the other: a small difference may be the machine"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One stage of one case in one launch.

    With `ready_at_once`, sides that take turns open and warm up at the same time.

    `room_s` is the rest of the budget (s): additional blocks are taken within that. `graphs`: CUDA
    graphs may be captured, if the run requests them.
    """

    suite: Suite
    case: Case
    stage: Stage
    launch: int
    ready_at_once: bool = False
    room_s: float = math.inf
    graphs: bool = True


@dataclass(kw_only=True, slots=True)
class Stages:
    """Does jobs.

    `runs` are all sides of the run, `watch` monitors their machine. With `adaptive` sampling, the
    blocks of a launch are adaptive, too. Turns use the context `meanwhile` for untimed work.
    """

    options: RunOptions
    observe: Callable[[Event], None]
    runs: tuple[SideRun, ...]
    seed: str
    outlook: Outlook
    watch: Watch = field(default_factory=NoWatch)
    adaptive: bool = False
    meanwhile: Callable[[], AbstractContextManager[object]] = nullcontext
    _spoilt: dict[str, str] = field(default_factory=dict, init=False)
    """The reason why graphs are no longer tried, by the case's id."""
    _checking: Checking = field(default_factory=Checking, init=False)
    _accounts: dict[str, list[Mapping[SideName, Accounts]]] = field(
        default_factory=dict, init=False
    )
    """The parent's clock accounts of each launch so far, by case and arms."""

    def alone(self, job: Job, run: SideRun, launcher: Launcher) -> None:
        """A job of one side in one worker."""
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
        """Give all sides of a case turns; one after the other if they do not fit into memory together.

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


def device_of(runs: Sequence[SideRun]) -> str:
    """Return the device that the sides compute on, as reported by the first of them."""
    return str((runs[0].environment or UNSEEN).identity.get("device"))
