"""Builds the real engine for a configuration, with its display and its watch on the machine, and measures with it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.output import console, tell
from ci_bench.errors import BadDocument

if TYPE_CHECKING:
    from ci_bench.checkouts.seals import Seal
    from ci_bench.checkouts.sides import Side
    from ci_bench.commands.pipeline import OpenCases, ToExplain
    from ci_bench.host.gpus.protocol import Cards
    from ci_bench.host.monitor import Monitor
    from ci_bench.records.config import Config, RunOptions
    from ci_bench.records.results import Case, Environment, Fact, Lease, Results, Run, SideName, WorkflowRun
    from ci_bench.runner.attachments import Attachments
    from ci_bench.runner.base_plan import BasePlan
    from ci_bench.runner.beside import KeptOutputs, OutputsOptions
    from ci_bench.runner.noise_floor import NoiseFolder
    from ci_bench.runner.planning import Plan
    from ci_bench.runner.resuming import Earlier
    from ci_bench.runner.runner import Asks
    from ci_bench.suites.contract import StageKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Inputs of measuring: the plan, options, paths of documents, and the `reproduce` command.

    `choose` is its flag for one case; `None` if it has none. `environ` are the variables of the caller.

    With `save_outputs` the tensors of reference arms are kept next to the documents. `workflow` and
    `asked` are recorded for judging the results: the run of the workflow, and the flags that narrow
    or change the measured cases. So is the `lease` of this run. `base_plan` is the plan of base's
    own tree in a paired run.
    """

    config: "Config"
    plan: "Plan"
    output: Path
    reproduce: tuple[str, ...]
    environ: Mapping[str, str]
    choose: str | None = "--filter"
    resume: bool = False
    save_outputs: bool = False
    workflow: "WorkflowRun | None" = None
    asked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lease: "Lease | None" = None
    base_plan: "BasePlan | None" = None

    def measure(
        self,
        sides: Sequence["Side"],
        *,
        noise: "NoiseFolder | None" = None,
        calibrations: "NoiseFolder | None" = None,
        known: "Results | None" = None,
        kept: "Mapping[str, KeptOutputs] | None" = None,
        seal: "Seal | None" = None,
    ) -> Mapping["SideName", "Results"]:
        """Measure all sides; with `noise`, the judge says after each launch which cases need more.

        `noise`, or `calibrations`, is read for this machine once a worker has seen it. `known` are
        earlier results: they give head's largest batches, and with a budget the cases' ranks.
        `kept` are their saved tensors. If the `seal` on base and engine is broken, all cases fail.
        """
        from ci_bench.commands import pipeline
        from ci_bench.diagnostics.doctor import require_engine
        from ci_bench.processes.launch import make_folder
        from ci_bench.report.progress import ProgressDisplay
        from ci_bench.runner import planning
        from ci_bench.runner.runner import Engine, intact

        require_engine()
        begun, earlier = planning.start(self.config, workflow=self.workflow, asked=self.asked, lease=self.lease), None
        rank, first_s = ({}, {}) if self.config.run.budget_s is None else self._rank(known, self.config.run.budget_s)
        if self.resume:
            earlier = self._interrupted(sides, begun)
            begun = earlier.run if earlier else begun
        attachments = self._attachments(sides, clear=earlier is None)
        device, usual_s = self._device(noise or calibrations), None if earlier else self._usual_s(sides)
        with make_folder() as scratch, ProgressDisplay(console(stderr=True), usual_s=usual_s) as display:
            engine = Engine(
                options=self.config.run,
                scratch=Path(scratch),
                observe=display,
                hold=device.hold,
                refuse=device.refuse,
                watch=device.watch,
                still_open=self._judge(begun, sides, noise) if noise else None,
                asked=_asked_of_the_judge(),
                to_explain=None if calibrations else self._to_explain(begun, sides, noise),
                seed=begun.id,
                rank=rank,
                usual_s=first_s,
                attachments=attachments,
                outputs=self._outputs(sides, kept or {}),
                sizes=_sizes(known),
                base_suites=self.base_plan.suites if self.base_plan else {},
                inspect=intact if seal is None else lambda everything: seal.breaks(shared=everything),
            )
            return pipeline.measure(
                self.plan,
                run=begun,
                sides=sides,
                reproduce={case.id: self.again(case) for _, case in self.plan},
                engine=engine.measure,
                folder=self.output,
                earlier=earlier,
                base_plan=self.base_plan,
            )

    def _judge(self, begun: "Run", sides: Sequence["Side"], noise: "NoiseFolder") -> "OpenCases":
        from ci_bench.commands import pipeline

        return pipeline.OpenCases(run=begun, sides=tuple(sides), config=self.config, noise=noise)

    def _to_explain(self, begun: "Run", sides: Sequence["Side"], noise: "NoiseFolder | None") -> "ToExplain":
        from ci_bench.commands import pipeline

        return pipeline.ToExplain(run=begun, sides=tuple(sides), config=self.config, noise=noise)

    def again(self, case: "Case") -> str:
        """The command that measures one case again, as one line for a shell."""
        return shlex.join([*self.reproduce, *((self.choose, case.id) if self.choose else ())])

    def _device(self, calibrations: "NoiseFolder | None") -> "Device":
        from ci_bench.host.gpus import vendors

        preloaded = {module for suite, _ in self.plan for module in suite.preload}
        return Device(
            options=self.config.run,
            on_gpu="torch" in preloaded,
            environ=self.environ,
            gpus=vendors.look(),
            calibrations=calibrations,
            processes=max((stage.processes for suite, case in self.plan for stage in suite.stages(case)), default=1),
        )

    def _attachments(self, sides: Sequence["Side"], *, clear: bool) -> "Mapping[SideName, Attachments]":
        """Return the folders of each side's files, next to its results.

        `clear` removes those of an earlier run.
        """
        from ci_bench.commands import pipeline
        from ci_bench.runner.attachments import FOLDER, Attachments

        places = {side.name: pipeline.place(self.output, side.name).with_name(FOLDER) for side in sides}
        attachments = {name: Attachments(folder=folder) for name, folder in places.items()}
        for files in attachments.values() if clear else ():
            files.clear()
        return attachments

    def _outputs(self, sides: Sequence["Side"], kept: "Mapping[str, KeptOutputs]") -> "OutputsOptions":
        """Return which sides save their tensors, replacing those of the previous run."""
        from ci_bench.commands import pipeline
        from ci_bench.runner.beside import FOLDER, OutputsOptions, drop_saved

        folders = {side.name: pipeline.place(self.output, side.name).with_name(FOLDER) for side in sides}
        needed = {one.path.parent.resolve() for one in kept.values()}
        for folder in () if self.resume else folders.values():
            with suppress(OSError):
                if folder.resolve() not in needed:
                    drop_saved(folder)
        return OutputsOptions(save=folders if self.save_outputs else {}, baseline=kept)

    def _interrupted(self, sides: Sequence["Side"], begun: "Run") -> "Earlier | None":
        from ci_bench.commands import pipeline
        from ci_bench.records.results import SideName
        from ci_bench.runner.resuming import find_earlier

        places = {side.name: pipeline.place(self.output, side.name) for side in sides}
        cases = {side.name: [case for _, case in self.plan] for side in sides}
        if self.base_plan is not None:
            cases[SideName.BASE] = [row.case for row in self.base_plan.rows]
        earlier = find_earlier(places, cases=cases, sides=sides, begun=begun)
        if earlier is None:
            tell(f"no interrupted run in {self.output}; starting a new one")
        else:
            done = max((len(ledger.launches) for ledger in earlier.ledgers.values()), default=0)
            tell(f"resuming the run of {earlier.run.started_at}: {done} of {len(self.plan)} case(s) are measured already")
        return earlier

    def _rank(self, known: "Results | None", budget_s: float) -> tuple[dict[str, int], dict[str, tuple[float, float]]]:
        """Return each case's place in the first launch, and its earlier duration; print how many cases fit.

        A budget is planned with them.
        """
        from ci_bench.runner import planning

        before = known or self._earlier()
        rank, usual_s = planning.rank(self.plan, self.config.policy, before, self._open_before()), planning.usual_seconds(before)
        tell(planning.coverage(self.plan, rank, usual_s, budget_s))
        return rank, usual_s

    def _usual_s(self, sides: Sequence["Side"]) -> float | None:
        """Return the duration of the previous run of these cases and sides; `None` if unknown, or if one did not end well."""
        from ci_bench.records.results import RunState, Status

        before = self._earlier()
        ended = before is not None and before.run.state is RunState.COMPLETE
        spent = {row.case.id: row.duration_s for row in before.cases if row.status is Status.OK} if before and ended else {}
        known = [spent.get(case.id) for _, case in self.plan]
        seconds = [one for one in known if one is not None]
        return sum(seconds) * len(sides) if seconds and len(seconds) == len(known) else None

    def _earlier(self) -> "Results | None":
        """Return the previous run's results from the output folder, if readable."""
        from ci_bench.commands import pipeline
        from ci_bench.records import documents

        with suppress(BadDocument):
            return documents.read_results(self.output / pipeline.RESULTS)
        return None

    def _open_before(self) -> frozenset[str]:
        """The cases that the comparison before could not decide, if it can be read."""
        from ci_bench.commands import pipeline
        from ci_bench.records import documents
        from ci_bench.records.comparison import Verdict

        with suppress(BadDocument):
            cases = documents.read_comparison(self.output / pipeline.COMPARISON).cases
            return frozenset(case.id for case in cases if case.verdict in {Verdict.INCONCLUSIVE, Verdict.SUSPECTED})
        return frozenset()


@dataclass(kw_only=True, slots=True)
class Device:
    """The device of one run: held from before anything touches it, looked at, and watched.

    `on_gpu` says whether the plan computes with torch; `gpus` are those of this machine, by vendor. `held` are the keys of the
    locks that are held. `calibrations` are what is known of machines' noise. `processes` is the largest number of processes of a
    case; each takes one GPU.
    """

    options: "RunOptions"
    on_gpu: bool
    environ: Mapping[str, str]
    gpus: "tuple[Cards, ...]"
    calibrations: "NoiseFolder | None" = None
    processes: int = 1
    held: frozenset[str] = frozenset()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the configured device and those of all ranks, where the parent can know which they are.

        Raises:
            DeviceBusy: another run measures on it, for longer than `run.lock_timeout_s`.
        """
        from ci_bench.host.devices import configured_key, keys_of_ranks
        from ci_bench.host.lock import cpu_key

        key = configured_key(self.options.device, self.gpus, self.environ, on_gpu=self.on_gpu)
        shared = () if key == cpu_key() else keys_of_ranks(self.gpus, self.environ, processes=self.processes)
        with ExitStack() as stack:
            for one in sorted({*shared, *([key] if key else [])}):  # one order, or two runs could wait for each other
                stack.enter_context(self._lock(one))
                self.held |= {one}
            yield

    def refuse(self, environment: "Environment") -> str:
        """Explain why the machine seen by a worker is not the requested one.

        Raises:
            BadDocument: what is known of its noise cannot be read, which would be found out after measuring.
        """
        from ci_bench.host.devices import refusal

        if self.calibrations is not None:
            self.calibrations.find(environment.identity)
        required = self.environ.get("CI_BENCH_REQUIRE_DEVICE", "")
        return refusal(environment, self.gpus, self.environ, device=self.options.device, required=required)

    def watch(self, environment: "Environment") -> "Monitor":
        """Return a monitor of the machine that a worker has seen, and hold its device.

        It replaces any earlier device.

        Raises:
            DeviceBusy: another run measures on it, for longer than `run.lock_timeout_s`.
        """
        from ci_bench.host.lock import device_key
        from ci_bench.host.monitor import open_monitor

        with ExitStack() as stack:
            key = device_key(environment, self.gpus)
            if key not in self.held:
                stack.enter_context(self._lock(key))
            uuid = environment.condition.get("gpu_uuid")
            monitor = open_monitor(str(environment.identity.get("device")), uuid if isinstance(uuid, str) else None)
            return monitor.holding(stack.pop_all())

    def _lock(self, key: str) -> AbstractContextManager[None]:
        from ci_bench.host.lock import DEFAULT_FOLDER, device_lock

        folder = Path(self.environ.get("CI_BENCH_LOCKS") or DEFAULT_FOLDER)
        return device_lock(key, folder=folder, limit_s=self.options.lock_timeout_s, run=self._name(), say=self._say)

    def _name(self) -> str:
        """Return this run's name for processes that wait for it.

        A process id would not do: it differs in a container.
        """
        repository, number = self.environ.get("GITHUB_REPOSITORY"), self.environ.get("GITHUB_RUN_ID")
        return self.environ.get("CI_BENCH_RUN") or (f"{repository} run {number}" if repository and number else "")

    def _say(self, line: str) -> None:
        """Print the line immediately, and as an annotation in a workflow."""
        from ci_bench.github.workflow import LogLevel, command

        tell(command(LogLevel.NOTICE, line, title="ci-bench") if self.environ.get("GITHUB_ACTIONS") == "true" else line)


def _sizes(known: "Results | None") -> "dict[str, dict[str, Fact]]":
    """The facts of the largest batch of each case of an earlier run that has one."""
    from ci_bench.records.results import LARGEST_BATCH, SIZE_FACTS

    rows = (row for row in (known.cases if known else ()) if isinstance(row.facts.get(LARGEST_BATCH), int))
    return {row.case.id: {name: row.facts[name] for name in SIZE_FACTS if name in row.facts} for row in rows}


def _asked_of_the_judge() -> "dict[StageKind, Asks]":
    """The stages that are not always needed."""
    from ci_bench.judge.parity.over_seeds import starts_differ
    from ci_bench.judge.parity.verdict import rounding_is_open
    from ci_bench.suites.contract import StageKind

    return {StageKind.ROUNDING: rounding_is_open, StageKind.SEEDS: starts_differ}
