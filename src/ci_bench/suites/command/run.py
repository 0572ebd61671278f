"""The worker's half of `command`: one case as a workload. Imports no torch.

Nothing here is random. This suite adds no warm-up: the engine warms the command up like any other
step, and a tool whose output is read warms up itself.
"""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.formats.training_log import Log
from ci_bench.records.forms import Fact
from ci_bench.records.metrics import PEAK_RSS, STEP_TIME
from ci_bench.records.results import Case, Check, Lane, Launch, Metric, Outcome, Role
from ci_bench.suites.command import INSTRUCTIONS, training
from ci_bench.suites.command.counting import Count, NotCounted, count
from ci_bench.suites.command.leftovers import WATCH_S, EndedProcesses, leftovers_check
from ci_bench.suites.command.options import (
    OUTPUT_VARIABLE,
    PLACE,
    STDOUT,
    CommandOptions,
    Counting,
    Losses,
    parse,
)
from ci_bench.suites.command.outputs import Output, find_losses, read_losses, read_output
from ci_bench.suites.command.process import CommandPlace, arguments, peak_bytes, run
from ci_bench.suites.command.selecting import BadOutput, SeriesSelection, select
from ci_bench.suites.contract import Compiler, Context, Evidence, Mark, Part, Program

THREADS_VARIABLE = "OMP_NUM_THREADS"
"""Read by OpenMP, torch, MKL, OpenBLAS and numexpr, and by torchrun for its processes."""
MOST_METRICS = 1000
MOST_NAMES = 150
MOST_DETAIL = 2000
SHOWN = 10
FIRST_REPEAT = 100


def open_workload(case: Case, context: Context) -> "CommandWorkload":
    """Return the workload of one case.

    Commands run relative to the worker's folder, which is the side's tree.
    """
    return CommandWorkload(parse(case.params), context)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Training:
    """One run of a training: its steps, its seconds and its peak of memory as a whole.

    `stamps` say when each line of standard output came, where the steps were read from there.
    """

    log: Log
    seconds: float
    peak: int
    stamps: Sequence[float] = ()


class CommandWorkload:
    """One command in each arm."""

    def __init__(self, options: CommandOptions, context: Context) -> None:
        """Store the options; nothing runs yet."""
        self._options, self._context = options, context
        self._watched: dict[str, list[EndedProcesses]] = {}

    def prepare(self) -> None:
        """Do nothing: `setup` installs the needs of a command."""

    def open(self, arm: str) -> Program:
        """Return the command as a step."""
        return TimedCommand(arm, self._options, self._place(arm))

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Collect losses of a training.

        These are the losses of each arm as it is, and of the reference in other roundings.
        """
        losses = self._options.losses
        if losses is None:
            return Evidence()
        reference, *candidates = arms
        runs = [
            (reference, training.TraceKind(role=Role.REFERENCE), {}),
            *((arm, training.TraceKind(role=Role.CANDIDATE), {}) for arm in candidates),
            *(
                (
                    reference,
                    training.TraceKind(
                        role=Role.PERTURBED, start=f"rounding_{number}", index=number
                    ),
                    environ,
                )
                for number, environ in enumerate(losses.environments(self._context.device), 1)
            ),
        ]
        traces = []
        for done, (arm, kind, environ) in enumerate(runs, 1):
            more = (
                {**environ, training.ROUNDING_VARIABLE: str(kind.index)} if kind.index else environ
            )
            traces.append(training.trace_of(self._train(arm, losses, more).log, arm, kind))
            self._context.progress(arm, done, len(runs))
        return Evidence(parity=training.evidence(traces, candidates=candidates))

    def measure(self, arms: tuple[str, ...]) -> Evidence:
        """Measure peaks of memory if the command itself is measured, else read its output.

        Raises:
            CommandFailed: a run failed.
            BadOutput: its output cannot be used.
        """
        if self._options.losses is not None:
            return self._trained(arms, self._options.losses)
        if self._options.format is None:
            return self._weighed(arms)
        selections = {
            arm: self._read(arm, self._options.format) for arm in self._in_fair_order(arms)
        }
        metrics = tuple(metric for arm in arms for metric in selections[arm].metrics)
        if len(metrics) > MOST_METRICS:
            raise BadOutput(
                f"{len(metrics):,} metrics of all arms, and a case holds {MOST_METRICS:,}; choose"
                " some under `metrics`"
            )
        checks = tuple(check for arm in arms for check in _checks(arm, selections[arm]))
        return Evidence(
            metrics=metrics,
            checks=(*checks, *self._leftovers()),
            facts=_facts(list(selections.values())),
        )

    def _leftovers(self) -> Iterator[Check]:
        """Judge the processes that watched runs of each arm left running."""
        for arm, runs in self._watched.items():
            if check := leftovers_check(arm, runs):
                yield check

    def _keep(self, arm: str, ended: EndedProcesses) -> None:
        self._watched.setdefault(arm, []).append(ended)

    def _in_fair_order(self, arms: tuple[str, ...]) -> tuple[str, ...]:
        """Reverse the arms in every second launch.

        Being first must not always be the same arm's luck.
        """
        return arms if self._context.launch % 2 == 0 else arms[::-1]

    def _weighed(self, arms: tuple[str, ...]) -> Evidence:
        """Measure the memory of a run of each arm, and its instructions if requested."""
        peaks = tuple(self._peak(arm) for arm in arms)
        checks = [*self._leftovers()]
        if self._options.instructions is Counting.NEVER:
            return Evidence(metrics=peaks, checks=tuple(checks))
        counts: list[Metric] = []
        facts: dict[str, Fact] = {}
        for arm in arms:
            try:
                counted = self._counted(arm)
            except NotCounted as error:
                reason = f"not counted: {error}"[:MOST_DETAIL]
                checks.append(
                    Check(
                        name=INSTRUCTIONS.name,
                        arm=arm,
                        outcome=Outcome.UNKNOWN,
                        detail=reason,
                        informative=True,
                    )
                )
            else:
                sample = Launch(launch=self._context.launch, values=(float(counted.instructions),))
                counts.append(INSTRUCTIONS.of(arm, sample, lane=Lane.COUNTERS))
                facts["instructions_counted_by"] = str(counted.tool)
        return Evidence(metrics=(*peaks, *counts), checks=tuple(checks), facts=facts)

    def _counted(self, arm: str) -> Count:
        """Count the instructions of an arm.

        Raises `NotCounted`.
        """
        options = self._options
        if self._context.device != "cpu":
            raise NotCounted(
                "on a GPU the processor's instructions are those of waiting for it; measure with"
                " run.device: cpu"
            )
        argv = _with_output(arguments(options.arms[arm]), self._own_file(arm))
        place = self._place(arm)
        return count(
            argv,
            place,
            setting=options.instructions,
            timeout_s=options.timeout_s,
            exit_codes=options.exit_codes,
        )

    def _peak(self, arm: str) -> Metric:
        options = self._options
        argv = _with_output(arguments(options.arms[arm]), self._own_file(arm))
        timeout_s, codes = options.timeout_s, options.exit_codes
        peak, ended = peak_bytes(
            argv, self._place(arm), timeout_s=timeout_s, exit_codes=codes, watch_s=WATCH_S
        )
        self._keep(arm, ended)
        self._context.progress(arm, 1, 1)
        sample = Launch(launch=self._context.launch, values=(float(peak),))
        return PEAK_RSS.of(arm, sample, lane=Lane.COUNTERS)

    def _read(self, arm: str, form: str) -> SeriesSelection:
        options, place, output_file = self._options, self._place(arm), self._own_file(arm)
        argv = _with_output(arguments(options.arms[arm]), output_file)
        output = Output(named=options.output, own=output_file, place=place)
        output.remember()
        self._keep(
            arm,
            run(
                argv,
                place,
                timeout_s=options.timeout_s,
                exit_codes=options.exit_codes,
                watch_s=WATCH_S,
            ),
        )
        self._context.progress(arm, 1, 1)
        return select(
            read_output(output, form), options.metrics, arm=arm, launch=self._context.launch
        )

    def _trained(self, arms: tuple[str, ...], losses: Losses) -> Evidence:
        """Collect times and memory of one run of each arm.

        The reference's losses show if it repeats.
        """
        metrics: list[Metric] = []
        traces, facts = [], {}
        launch = self._context.launch
        for arm in self._in_fair_order(arms):
            trained = self._train(arm, losses, {})
            ranks = trained.log.ranks
            times = training.step_times(ranks, trained.stamps)
            if times:
                metrics += training.timing(
                    ranks, times, arm, launch=launch, warmup_steps=losses.warmup_steps
                )
            else:
                metrics += [
                    STEP_TIME.of(
                        arm, Launch(launch=launch, values=(trained.seconds,)), lane=Lane.WALL
                    )
                ]
            metrics += training.to_target(ranks, times, arm, launch=launch, target=losses.target)
            metrics += training.memory(ranks, arm, launch=launch, warmup_steps=losses.warmup_steps)
            metrics += [
                PEAK_RSS.of(
                    arm, Launch(launch=launch, values=(float(trained.peak),)), lane=Lane.COUNTERS
                )
            ]
            self._context.progress(arm, 1, 1)
            if arm == self._options.reference:
                facts = dict(training.facts(ranks, times))
                again = training.TraceKind(
                    role=Role.PERTURBED, start=f"again_{launch}", index=FIRST_REPEAT + launch
                )
                traces = [training.trace_of(trained.log, arm, again)]
        parity = (
            training.evidence(traces, candidates=()) if launch < training.MOST_REPEATS else None
        )
        return Evidence(
            metrics=tuple(metrics), checks=tuple(self._leftovers()), parity=parity, facts=facts
        )

    def _train(self, arm: str, losses: Losses, environ: Mapping[str, str]) -> _Training:
        options, output_file = self._options, self._own_file(arm)
        place = self._place(arm)
        place = replace(place, environ={"PYTHONUNBUFFERED": "1", **place.environ, **environ})
        output = Output(named=options.output, own=output_file, place=place)
        output.remember()
        argv = _with_output(arguments(options.arms[arm]), output_file)
        stamps: list[float] | None = [] if options.output in {None, STDOUT} else None
        timeout_s, codes = options.timeout_s, options.exit_codes
        peak, ended = peak_bytes(
            argv, place, timeout_s=timeout_s, exit_codes=codes, stamps=stamps, watch_s=WATCH_S
        )
        self._keep(arm, ended)
        output = find_losses(output, losses)
        printed = stamps if stamps and output.named == STDOUT else ()
        return _Training(
            log=read_losses(output, losses), seconds=ended.seconds, peak=peak, stamps=printed
        )

    def _own_file(self, arm: str) -> Path:
        """Return the file that the command finds in CI_BENCH_OUTPUT."""
        position = list(self._options.arms).index(arm)
        return self._context.scratch / f"output-{position}"

    def _place(self, arm: str) -> CommandPlace:
        threads = self._context.threads
        environ = {
            **_rendezvous(),
            **os.environ,
            **({} if threads is None else {THREADS_VARIABLE: str(threads)}),
            "CI_BENCH_DEVICE": self._context.device,
            **self._options.env,
            OUTPUT_VARIABLE: str(self._own_file(arm)),
        }
        return CommandPlace(
            cwd=Path.cwd() / self._options.cwd, environ=environ, folder=self._context.scratch
        )


class TimedCommand:
    """Runs the command from start to end, once for each step."""

    items: int | None = None
    parts: tuple[Part, ...] = ()
    compiler = Compiler.NONE

    def __init__(self, arm: str, options: CommandOptions, place: CommandPlace) -> None:
        """Prepare the command.

        The engine has the clock: a step is the whole run, with the start and the end of the
        process.
        """
        self._arm, self._options, self._place = arm, options, place
        self._argv = _with_output(
            arguments(options.arms[arm]), Path(place.environ[OUTPUT_VARIABLE])
        )
        self._runs = 0
        self._leaves = False

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - it has no parts
        """Run the command. Raises `CommandFailed`, whereupon the case fails."""
        self._leaves |= bool(self._run().left)
        self._runs += 1

    def _run(self, *, watch_s: float = 0.0) -> EndedProcesses:
        timeout_s, codes = self._options.timeout_s, self._options.exit_codes
        return run(self._argv, self._place, timeout_s=timeout_s, exit_codes=codes, watch_s=watch_s)

    def finish(self) -> tuple[Check, ...]:
        """Check that it ran, since a failing run has ended the case before, and its leftovers.

        A command with leftovers is run once more, to see if they work.
        """
        expected = " or ".join(map(str, self._options.exit_codes))
        outcome = Outcome.PASS if self._runs else Outcome.FAIL
        ran = Check(
            name="exit_code",
            arm=self._arm,
            outcome=outcome,
            detail=f"{expected} in each of {self._runs} runs",
        )
        leftovers = (
            leftovers_check(self._arm, [self._run(watch_s=WATCH_S)]) if self._leaves else None
        )
        return (ran,) if leftovers is None else (ran, leftovers)


def _rendezvous() -> dict[str, str]:
    """Return settings by which processes of the command find each other: loopback, and free ports.

    torchrun reads its options from PET_ variables, and chooses a port for 0
    (https://docs.pytorch.org/docs/stable/elastic/run.html). Scripts that start without it read
    MASTER_ADDR and MASTER_PORT. A fixed port would be taken if two gates share a machine. Settings
    of the command or of its options take precedence.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "127.0.0.1:0",
    }


def _with_output(argv: Sequence[str], output_file: Path) -> tuple[str, ...]:
    return tuple(argument.replace(PLACE, str(output_file)) for argument in argv)


def _checks(arm: str, selection: SeriesSelection) -> tuple[Check, ...]:
    """Report if a benchmark went wrong, and list the series without a direction."""
    skipped = (
        f"; skipped: {_join_names([absent.benchmark for absent in selection.skipped])}"
        if selection.skipped
        else ""
    )
    if selection.failed:
        outcome = Outcome.FAIL
        detail = "failed: " + _join_names(
            [f"{absent.benchmark} ({absent.reason})" for absent in selection.failed]
        )
    else:
        outcome, detail = Outcome.PASS, f"{len(selection.metrics)} series are used"
    checks = (Check(name="benchmarks", arm=arm, outcome=outcome, detail=(detail + skipped)[:5000]),)
    if not selection.undirected:
        return checks
    reason = (
        "not used, because it is unknown which way is better (add `better` under `metrics`):"
        f" {_join_names(selection.undirected)}"
    )
    return (
        *checks,
        Check(
            name="direction",
            arm=arm,
            outcome=Outcome.UNKNOWN,
            detail=reason[:5000],
            informative=True,
        ),
    )


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(name[:200] for name in names[:SHOWN]) + more


def _facts(selections: Sequence[SeriesSelection]) -> dict[str, Fact]:
    """Return the tool, and its names of metrics that had to be renamed, as far as there is room."""
    facts: dict[str, Fact] = {}
    for selection in selections:
        facts |= {name: label[:1000] for name, label in selection.names.items() if name != label}
    renamed = dict(list(facts.items())[:MOST_NAMES])
    tool = next((selection.tool for selection in selections if selection.tool), None)
    return {"measured_by": tool, **renamed} if tool else dict(renamed)
