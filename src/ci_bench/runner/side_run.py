"""One side of a run, while it is measured.

Owns one side's half of a run: its ledger, its machine, its workers' tasks, and the effect of their
endings on its rows. Also decides if both sides may work simultaneously.
"""

import logging
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ci_bench.checkouts.sides import Side
from ci_bench.errors import LauncherFailed, MeasuringFailed, WrongDevice
from ci_bench.host.headroom import has_cores_for_two
from ci_bench.processes.addresses import Addresses
from ci_bench.processes.launch import Launcher
from ci_bench.processes.messages import Keeping
from ci_bench.processes.protocol import Answer, Task
from ci_bench.processes.resident import Ended, explain, signal_name
from ci_bench.processes.scratch import make
from ci_bench.processes.users import give
from ci_bench.records.config import RunOptions
from ci_bench.records.first_calls import FirstCall
from ci_bench.records.forms import Fact
from ci_bench.records.open_cases import SeriesName
from ci_bench.records.outputs import KeptClaim
from ci_bench.records.results import (
    LARGEST_BATCH,
    SETUP,
    SIZE_FACTS,
    WITHIN_BUDGET,
    Block,
    Case,
    Check,
    Environment,
    Failure,
    Metric,
    Outcome,
    Phase,
    Spent,
    Status,
)
from ci_bench.runner.attachments import Attachments
from ci_bench.runner.ledger import Ledger, as_verified, refuse_row
from ci_bench.suites.contract import UNTIMED, Cache, Evidence, Stage, StageKind, Suite
from ci_bench.worker.compilation import cache_environment
from ci_bench.worker.phases import whole

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 120.0
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
}
"""Nothing is downloaded while measuring."""

OnAnswer = Callable[[Answer], None]

UNSEEN = Environment(identity={}, condition={})
"""The machine, before a worker has looked at it."""


@dataclass(kw_only=True, slots=True)
class SideRun:
    """One side, while it is measured.

    Its workers get its own plan of a case, as its row has it.
    """

    side: Side
    """The side: its tree, environment and user."""
    options: RunOptions
    """Options of the run."""
    folder: Path
    """Private folder of the side."""
    ledger: Ledger
    """Rows of the side so far."""
    numbers: Mapping[str, int]
    """Index of each case's folder in `folder`, by the case's id."""
    environment: Environment | None = None
    """Machine as a worker saw it; `None` before."""
    brought: dict[tuple[str, Stage], frozenset[SeriesName]] = field(default_factory=dict)
    """Metrics of each stage so far, by the case's id and the stage."""
    attachments: Attachments | None = None
    """Store of the cases' files; `None`: they are not kept."""
    keep: Keeping = Keeping.NOTHING
    """Reference outputs that workers write."""
    sizes: dict[str, Mapping[str, Fact]] = field(default_factory=dict)
    """Facts of each case's largest batch, by the case's id."""
    begun: dict[str, Mapping[str, FirstCall]] = field(default_factory=dict)
    """The first verified call of each arm, by the case's id."""
    claims: dict[str, tuple[KeptClaim, ...]] = field(default_factory=dict)
    """Comparisons to repeat, by the case's id."""
    suites: Mapping[str, Suite] = field(default_factory=dict)
    """This side's own suites, by name; empty if its tree has none."""

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
        """Return a folder of this side's that its user may write to.

        If that user is the caller, the folder may be made later.
        """
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
        """Return the largest batch of this run, or of the earlier one that it resumes.

        `None` if neither has one.
        """
        batch = self.sizes.get(case.id, self.ledger.rows[case.id].facts).get(LARGEST_BATCH)
        return batch if isinstance(batch, int) else None

    def case_folder(self, case: Case) -> Path:
        """Return the folder that a case's stages share."""
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
        """Record the result of a stage, and the `metrics` taken from outside.

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
        """Return facts that no later stage may change.

        Its worker could take another batch than the other side's.
        """
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
        """Count the block's time as spent on no case of this side."""
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
        """Do nothing yet."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, _trace: object
    ) -> None:
        """Record the failure; the error propagates."""
        if isinstance(value, LauncherFailed):
            reason = (
                "the process that starts the workers died during this stage, and the run with it"
            )
            self.run.fail(self.case, Status.CRASHED, self.stage.kind, self.stage.arms, reason)


def device_of(runs: Sequence[SideRun]) -> str:
    """Return the device that the sides compute on, as reported by the first of them."""
    return str((runs[0].environment or UNSEEN).identity.get("device"))


def end_failed_sides(runs: Sequence[SideRun], plan: Sequence[tuple[Suite, Case]]) -> bool:
    """Return whether a side's set-up failed.

    All its rows then report that, and the other side has nothing to compare with.
    """
    failed = [run for run in runs if run.side.failure is not None]
    for run in runs if failed else ():
        reason, _, log = (run.side.failure or failed[0].side.failure or "").partition("\n")
        status, failure = (
            Status.FAILED,
            Failure(stage=SETUP, arms=(), reason=reason, log_tail=log),
        )
        if run.side.failure is None:
            status, failure = (
                Status.NOT_RUN,
                replace(failure, reason=f"{failed[0].side.name} could not be set up: {reason}"),
            )
        for _, case in plan:
            if run.ledger.is_open(case):
                run.ledger = run.ledger.with_failure(case, status, failure)
    return bool(failed)


def note_budget(runs: Sequence[SideRun], case: Case, detail: str) -> None:
    """Add a check to a case of these sides: the budget ended before all of it was measured."""
    check = Check(name=WITHIN_BUDGET, arm=case.reference, outcome=Outcome.UNKNOWN, detail=detail)
    for run in runs:
        run.ledger = run.ledger.with_evidence(case, Evidence(checks=(check,)), duration_s=0.0)


def may_run_at_once(stage: Stage, runs: Sequence[SideRun], options: RunOptions) -> bool:
    """Return whether both sides may run a stage simultaneously.

    It has to be untimed, and the machine needs room for two. On the CPU they also compile from cold
    simultaneously, each on its own cores: in a fresh container, base compiled first and warmed the
    page cache, so head's same code was 17 % faster. On a GPU each runs exclusively: without
    per-process figures, memory is a sum over both, and tuning would run next to another process.
    """
    if stage.exclusive or len(runs) < 2:  # noqa: PLR2004 - sides
        return False
    alone = stage.kind is StageKind.ALONE and device_of(runs) == "cpu"
    return (stage.kind in UNTIMED or alone) and _has_room_for_two(runs, options)


def may_get_ready_at_once(runs: Sequence[SideRun], options: RunOptions) -> bool:
    """Return whether both sides may open, compile and warm up simultaneously.

    They may on the CPU with enough cores.
    """
    return len(runs) > 1 and device_of(runs) == "cpu" and _has_room_for_two(runs, options)


def _has_room_for_two(runs: Sequence[SideRun], options: RunOptions) -> bool:
    return options.overlap and has_cores_for_two(options, device=device_of(runs))


def is_over_budget(runs: Sequence[SideRun], case: Case, budget_s: float | None) -> bool:
    """Return whether a case took longer than its budget, on these sides together."""
    rows = [row for run in runs if (row := run.ledger.rows.get(case.id))]
    return budget_s is not None and sum(row.duration_s or 0.0 for row in rows) > budget_s


def refuse_others(runs: Sequence[SideRun], refuse: Callable[[Environment], str]) -> None:
    """Check both sides: both having the same wrong device makes it no better.

    `refuse` returns why a machine is not the requested one; empty if it is.

    Raises:
        WrongDevice: a side's machine is not the requested one.
    """
    for run in runs:
        if reason := refuse(run.environment or UNSEEN):
            raise WrongDevice(f"{run.side.name}: {reason}" if len(runs) > 1 else reason)
