"""A measurement with its device, judge, display and documents, for all commands that measure."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ci_bench.checkouts.seals import Seal
from ci_bench.checkouts.sides import Side, caller_side
from ci_bench.command_line.settings import Measuring, Settings
from ci_bench.commands.inputs import asked, command_again, workflow_run
from ci_bench.commands.judging import COMPARISON
from ci_bench.commands.output import console, tell
from ci_bench.diagnostics.doctor import require_engine
from ci_bench.errors import BadDocument, ExitCode
from ci_bench.github.workflow import LogLevel, command
from ci_bench.host.gpus import vendors
from ci_bench.processes.launch import make_folder
from ci_bench.records import documents
from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Config
from ci_bench.records.documents import RESULTS, place
from ci_bench.records.forms import Fact
from ci_bench.records.results import (
    LARGEST_BATCH,
    SIZE_FACTS,
    Case,
    CaseResult,
    Lease,
    Results,
    Run,
    RunState,
    SideName,
    Status,
    WorkflowRun,
)
from ci_bench.report.progress import ProgressDisplay
from ci_bench.report.text import clean
from ci_bench.runner import attachments as attached
from ci_bench.runner import beside, planning
from ci_bench.runner.asking import OpenCases, ToExplain, conditional_stages
from ci_bench.runner.base_plan import BasePlan
from ci_bench.runner.beside import KeptOutputs, OutputsOptions
from ci_bench.runner.decisions import Inspect, intact
from ci_bench.runner.device import Device
from ci_bench.runner.noise_floor import NoiseFolder
from ci_bench.runner.planning import Plan
from ci_bench.runner.recording import record_run
from ci_bench.runner.resuming import Earlier, find_earlier
from ci_bench.runner.runner import Runner
from ci_bench.suites.contract import Suite

MOST_REASON = 2000
"""Characters of the reason of a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Inputs of a measurement."""

    config: Config
    """Configuration of the run, after flags."""
    plan: Plan
    """Cases to measure, each with its suite."""
    output: Path
    """Folder of the results documents and their attachments."""
    reproduce: tuple[str, ...]
    """Words of the command that measures this plan again."""
    environ: Mapping[str, str]
    """Variables of the caller."""
    choose: str | None = "--filter"
    """Flag of `reproduce` that selects one case; `None` if it has none."""
    resume: bool = False
    """Continues an interrupted run in `output`, if there is one."""
    save_outputs: bool = False
    """Keeps the tensors of reference arms next to the documents."""
    workflow: WorkflowRun | None = None
    """GitHub workflow run, recorded for judging; `None` outside of one."""
    asked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Flags that narrow or change the measured cases, by name; recorded for judging."""
    lease: Lease | None = None
    """Lease of a fleet that this run fulfils; `None` outside of a fleet."""
    base_plan: BasePlan | None = None
    """Plan of base's own tree in a paired run; `None` if that tree is not planned."""

    def measure(
        self,
        sides: Sequence[Side],
        *,
        noise: NoiseFolder | None = None,
        calibrations: NoiseFolder | None = None,
        baseline: Results | None = None,
        baseline_outputs: Mapping[str, KeptOutputs] | None = None,
        seal: Seal | None = None,
    ) -> Mapping[SideName, Results]:
        """Measure all sides; with `noise`, until the judge needs no more launches of any case.

        `noise`, or `calibrations`, is read for this machine once a worker has seen it. Results of
        the `baseline` give head's largest batches, and with a budget the cases' ranks. A broken
        `seal` on base and engine fails all cases.
        """
        require_engine()
        begun = planning.start(
            self.config, workflow=self.workflow, flags=self.asked, lease=self.lease
        )
        rank, first_s = self._rank(baseline)
        earlier = self._interrupted(sides, begun) if self.resume else None
        begun = earlier.run if earlier else begun
        attachments = self._attachments(sides, clear=earlier is None)
        device = self._device(noise or calibrations)
        usual_s = None if earlier else self._usual_s(sides)
        still_open, to_explain = self._questions(begun, sides, noise, explains=calibrations is None)
        with (
            make_folder() as scratch,
            ProgressDisplay(console(stderr=True), usual_s=usual_s) as display,
        ):
            runner = Runner(
                options=self.config.run,
                scratch=Path(scratch),
                observe=display,
                hold=device.hold,
                refuse=device.refuse,
                watch=device.watch,
                still_open=still_open,
                asked=conditional_stages(),
                to_explain=to_explain,
                seed=begun.id,
                rank=rank,
                usual_s=first_s,
                attachments=attachments,
                outputs=self._outputs(sides, baseline_outputs or {}),
                sizes=_sizes(baseline),
                base_suites=self.base_plan.suites if self.base_plan else {},
                inspect=_inspection(seal),
            )
            return record_run(
                self.plan,
                run=begun,
                sides=sides,
                reproduce={case.id: self.again(case) for _, case in self.plan},
                measure=runner.run,
                folder=self.output,
                earlier=earlier,
                base_plan=self.base_plan,
            )

    def _questions(
        self, begun: Run, sides: Sequence[Side], noise: NoiseFolder | None, *, explains: bool
    ) -> tuple[OpenCases | None, ToExplain | None]:
        """Return the judge's questions after a launch: the open cases, and those to explain."""
        both = tuple(sides)
        still_open = (
            OpenCases(run=begun, sides=both, config=self.config, noise=noise) if noise else None
        )
        to_explain = (
            ToExplain(run=begun, sides=both, config=self.config, noise=noise) if explains else None
        )
        return still_open, to_explain

    def again(self, case: Case) -> str:
        """Return the command that measures one case again, as one line for a shell."""
        return shlex.join([*self.reproduce, *((self.choose, case.id) if self.choose else ())])

    def _device(self, calibrations: NoiseFolder | None) -> Device:
        preloaded = {module for suite, _ in self.plan for module in suite.preload}
        return Device(
            options=self.config.run,
            on_gpu="torch" in preloaded,
            environ=self.environ,
            gpus=vendors.look(),
            say=partial(announce, self.environ),
            calibrations=calibrations,
            processes=max(
                (stage.processes for suite, case in self.plan for stage in suite.stages(case)),
                default=1,
            ),
        )

    def _attachments(
        self, sides: Sequence[Side], *, clear: bool
    ) -> Mapping[SideName, attached.Attachments]:
        """Return the folders of each side's files, next to its results.

        `clear` removes those of an earlier run.
        """
        places = {
            side.name: place(self.output, side.name).with_name(attached.FOLDER) for side in sides
        }
        attachments = {name: attached.Attachments(folder=folder) for name, folder in places.items()}
        for files in attachments.values() if clear else ():
            files.clear()
        return attachments

    def _outputs(
        self, sides: Sequence[Side], baseline: Mapping[str, KeptOutputs]
    ) -> OutputsOptions:
        """Return which sides save their tensors, replacing those of the previous run."""
        folders = {
            side.name: place(self.output, side.name).with_name(beside.FOLDER) for side in sides
        }
        needed = {outputs.path.parent.resolve() for outputs in baseline.values()}
        for folder in () if self.resume else folders.values():
            with suppress(OSError):
                if folder.resolve() not in needed:
                    beside.drop_saved(folder)
        return OutputsOptions(save=folders if self.save_outputs else {}, baseline=baseline)

    def _interrupted(self, sides: Sequence[Side], begun: Run) -> Earlier | None:
        places = {side.name: place(self.output, side.name) for side in sides}
        cases = {side.name: [case for _, case in self.plan] for side in sides}
        if self.base_plan is not None:
            cases[SideName.BASE] = [row.case for row in self.base_plan.rows]
        earlier = find_earlier(places, cases=cases, sides=sides, begun=begun)
        if earlier is None:
            tell(f"no interrupted run in {self.output}; starting a new one")
        else:
            done = max((len(ledger.launches) for ledger in earlier.ledgers.values()), default=0)
            tell(
                f"resuming the run of {earlier.run.started_at}: {done} of {len(self.plan)} case(s)"
                " are measured already"
            )
        return earlier

    def _rank(
        self, baseline: Results | None
    ) -> tuple[dict[str, int], dict[str, tuple[float, float]]]:
        """Return each case's rank in the first launch, and its earlier duration.

        A budget is planned with them; without one both are empty. Print how many cases fit.
        """
        budget_s = self.config.run.budget_s
        if budget_s is None:
            return {}, {}
        before = baseline or self._earlier()
        rank = planning.rank(self.plan, self.config.policy, before, self._open_before())
        usual_s = planning.usual_seconds(before)
        tell(planning.coverage(self.plan, rank, usual_s, budget_s))
        return rank, usual_s

    def _usual_s(self, sides: Sequence[Side]) -> float | None:
        """Return the duration of the previous run of these cases and sides.

        `None` if it is unknown, or if a case did not end well.
        """
        before = self._earlier()
        ended = before is not None and before.run.state is RunState.COMPLETE
        spent = (
            {row.case.id: row.duration_s for row in before.cases if row.status is Status.OK}
            if before and ended
            else {}
        )
        durations = [spent.get(case.id) for _, case in self.plan]
        seconds = [duration for duration in durations if duration is not None]
        return sum(seconds) * len(sides) if seconds and len(seconds) == len(durations) else None

    def _earlier(self) -> Results | None:
        """Return the previous run's results from the output folder, if readable."""
        with suppress(BadDocument):
            return documents.read_results(self.output / RESULTS)
        return None

    def _open_before(self) -> frozenset[str]:
        """Return the cases that the previous comparison could not decide, if it can be read."""
        with suppress(BadDocument):
            cases = documents.read_comparison(self.output / COMPARISON).cases
            return frozenset(
                case.id
                for case in cases
                if case.verdict in {Verdict.INCONCLUSIVE, Verdict.SUSPECTED}
            )
        return frozenset()


def announce(environ: Mapping[str, str], line: str) -> None:
    """Print the line immediately, and as an annotation in a workflow."""
    tell(
        command(LogLevel.NOTICE, line, title="ci-bench")
        if environ.get("GITHUB_ACTIONS") == "true"
        else line
    )


def _inspection(seal: Seal | None) -> Inspect:
    """Return the function that lists a seal's breaks; quick inspections skip shared folders."""
    return intact if seal is None else lambda everything: seal.breaks(shared=everything)


def _sizes(baseline: Results | None) -> dict[str, dict[str, Fact]]:
    """Return the facts of each case's largest batch, for cases of an earlier run that have one."""
    rows = (
        row
        for row in (baseline.cases if baseline else ())
        if isinstance(row.facts.get(LARGEST_BATCH), int)
    )
    return {
        row.case.id: {name: row.facts[name] for name in SIZE_FACTS if name in row.facts}
        for row in rows
    }


def measurement_of(
    command: str, settings: Measuring, config: Config, find: Callable[[str], Suite]
) -> Measurement:
    """Plan the cases that the flags choose, and return their measurement."""
    plan = planning.require_room(planning.plan(config, settings.filter, find, tell))
    return Measurement(
        config=config,
        plan=plan,
        output=settings.output,
        reproduce=command_again(command, settings),
        environ=settings.environ,
        resume=settings.resume,
        save_outputs=settings.save_outputs,
        workflow=workflow_run(settings.environ),
        asked=asked(settings, config),
    )


def caller(settings: Settings, name: SideName, more: Mapping[str, str] | None = None) -> Side:
    """Return the caller's tree as a side, with its code first on the path.

    `more` are variables for its workers.
    """
    return caller_side(name, settings.here, settings.environ, more)


def ending(results: Results) -> ExitCode:
    """Return success if every case was measured.

    A case that reports that it cannot run here does not fail.
    """
    complete = all(row.status in {Status.OK, Status.SKIPPED} for row in results.cases)
    measured = any(row.metrics for row in results.cases)
    return ExitCode.OK if complete and measured else ExitCode.MEASURING_FAILED


def tell_row(row: CaseResult) -> None:
    """Print on one line how a case ended, and why.

    The reason is cleaned: it holds output of the measured code or of a compiler.
    """
    reason = f": {clean(row.failure.reason, cap=MOST_REASON)}" if row.failure else ""
    tell(f"{row.status:<14}{row.case.id}{reason}")
