"""Explain the steps of some arms in workers, once all samples are taken.

The judge selects the arms. Owns the order (both sides of an arm, one after the other) and the
budget. An error here changes neither a case's status nor its measurements: an arm that cannot be
explained has a profile with the reason.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ci_bench.errors import LauncherFailed
from ci_bench.processes.launch import Launcher
from ci_bench.processes.resident import Ended, explain
from ci_bench.records.events import Event
from ci_bench.records.profiles import MOST_REASON, Profile
from ci_bench.records.results import Case, Phase, SideName, Status
from ci_bench.runner.attachments import FOLDER, fact_name
from ci_bench.runner.ledger import refuse_row
from ci_bench.runner.side_run import SideRun
from ci_bench.suites.contract import Cache, Stage, StageKind, Suite
from ci_bench.worker.phases import whole

logger = logging.getLogger(__name__)

LEAST_S = 5.0
"""A worker with less time than this is not started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unexplained:
    """One arm of one case that is to be explained."""

    suite: Suite
    case: Case
    arm: str

    @property
    def processes(self) -> int:
        """Return how many processes run the arm while it is timed; the reference runs in one."""
        shared = self.arm != self.case.reference
        return (
            max(
                stage.processes
                for stage in self.suite.stages(self.case)
                if stage.kind is StageKind.TIME
            )
            if shared
            else 1
        )


def arms_to_explain(
    plan: Sequence[tuple[Suite, Case]],
    requested: Mapping[str, Sequence[str]],
    runs: Sequence[SideRun],
) -> tuple[Unexplained, ...]:
    """Return the requested arms that can be explained, in order.

    Their cases are timed, exist on some side, and are open or ended by a compiler's error.
    """
    planned = {case.id: (suite, case) for suite, case in plan}
    unexplained = []
    for name, arms in requested.items():
        suite, case = planned[name]
        is_timed = any(stage.kind is StageKind.TIME for stage in suite.stages(case))
        if is_timed and any(run.side.failure is None and _can_explain(run, case) for run in runs):
            unexplained += [
                Unexplained(suite=suite, case=case, arm=arm) for arm in arms if arm in case.arms
            ]
    return tuple(unexplained)


def _can_explain(run: SideRun, case: Case) -> bool:
    """Return whether there are steps to inspect, or a compiler's error to show."""
    if case.id not in run.ledger.rows:
        return False
    failure = run.ledger.rows[case.id].failure
    return run.ledger.is_open(case) or (failure is not None and failure.of_compiler)


@dataclass(kw_only=True, slots=True)
class Explaining:
    """Explains arms on all sides within a budget."""

    runs: Sequence[SideRun]
    """All sides of the run."""
    launchers: Mapping[SideName, Launcher]
    """Server of each side that is open."""
    budget_s: float
    """Time for all arms together (s)."""
    clock: Callable[[], float]
    """Gives seconds; monotonic."""
    observe: Callable[[Event], None]
    """Shows progress."""
    launch: int
    """Launch number of the tasks."""
    whose: str = "run.explain_s"
    """Option that limits the budget: `run.explain_s`, or `run.budget_s` for its rest."""
    _begun: float = field(default=0.0, init=False)
    """Time when explaining began, by `clock` (s)."""

    def explain(self, targets: Sequence[Unexplained]) -> None:
        """Explain each arm in turn; once the budget is spent, the remaining ones record that."""
        self._begun = self.clock()
        for number, target in enumerate(targets):
            sides = [run for run in self.runs if self._is_there(run, target)]
            event = Event(
                case=target.case.id,
                stage=StageKind.EXPLAIN,
                arms=(target.arm,),
                launch=self.launch,
                launches=self.launch + 1,
                done=number,
                total=len(targets),
                sides=tuple(run.side.name for run in sides) if len(self.runs) > 1 else (),
            )
            self.observe(event)
            for sides_left, run in zip(range(len(sides), 0, -1), sides, strict=True):
                self._explain(
                    target, run, limit_s=(self.budget_s - (self.clock() - self._begun)) / sides_left
                )
            self.observe(replace(event, done=number + 1, ended="ok"))

    def _is_there(self, run: SideRun, target: Unexplained) -> bool:
        return (
            run.side.name in self.launchers
            and _can_explain(run, target.case)
            and target.arm in run.ledger.rows[target.case.id].case.arms
        )

    def _explain(self, target: Unexplained, run: SideRun, *, limit_s: float) -> None:
        """Explain one arm on one side; both sides of the last arm share the remaining time."""
        if limit_s < LEAST_S:
            spent = (
                f"its budget of {self.budget_s:.3g} s was spent"
                if self.budget_s >= LEAST_S
                else "no budget was left"
            )
            reason = f"{spent}; raise {self.whose}"
            run.ledger = run.ledger.with_profile(target.case, unknown(target.arm, reason))
            return
        if target.processes > 1:
            reason = (
                f"its step runs in {target.processes} processes, and only steps of one process are"
                " explained"
            )
            run.ledger = run.ledger.with_profile(target.case, unknown(target.arm, reason))
            return
        stage = Stage(kind=StageKind.EXPLAIN, arms=(target.arm,), launches=None, cache=Cache.COLD)
        task = replace(
            run.task(target.suite, target.case, stage, self.launch, graphs=False), limit_s=limit_s
        )
        limit_s = min(limit_s, run.options.stage_timeout_s)
        try:
            ended = self.launchers[run.side.name].run(
                task, timeout_s=limit_s, on_answer=lambda _: None
            )
        except LauncherFailed as error:
            run.ledger = run.ledger.with_profile(
                target.case, unknown(target.arm, f"the process that starts workers died: {error}")
            )
            return
        self._settle(target, run, ended, limit_s=limit_s)

    def _settle(self, target: Unexplained, run: SideRun, ended: Ended, *, limit_s: float) -> None:
        """Record the profile, as far as a document can hold it.

        The worker's other output is dropped.
        """
        status, reason = explain(ended, limit_s=limit_s)
        logger.info(
            "%s: explained %s of %s: %s in %.1f s",
            target.case.id,
            target.arm,
            run.side.name,
            status,
            ended.duration_s,
        )
        if status is Status.TIMEOUT:
            reason = f"profiling took more than {limit_s:.0f} s, its share of {self.whose}"
        evidence = next((answer.evidence for answer in ended.answers if answer.evidence), None)
        profiles = evidence.profiles if evidence is not None and status is Status.OK else ()
        profile = next((each for each in profiles if each.arm == target.arm), None)
        reported = evidence.spent if evidence is not None else ()
        spent = whole(StageKind.EXPLAIN, reported, rest=Phase.START, seconds=ended.duration_s)
        files = (
            run.attachments.take(target.case, run.case_folder(target.case))
            if run.attachments and profile is not None
            else {}
        )
        if profile is not None and profile.bundle is not None:
            place = str(files.get(fact_name(profile.bundle.file), ""))
            stored_path = place if place.startswith(f"{FOLDER}/") else ""
            profile = replace(profile, bundle=replace(profile.bundle, path=stored_path))
        if profile is not None:
            richer = run.ledger.with_profile(target.case, profile, spent=spent, facts=files)
            reason = refuse_row(richer.rows[target.case.id])
            if not reason:
                run.ledger = richer
                return
        run.ledger = run.ledger.with_profile(
            target.case, unknown(target.arm, reason or "the worker sent no profile"), spent=spent
        )


def unknown(arm: str, reason: str) -> Profile:
    """Return the profile of an arm that could not be explained."""
    return Profile(arm=arm, step_s=None, unknown=" ".join(reason.split())[:MOST_REASON])
