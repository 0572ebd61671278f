"""The options of `command` as one frozen value, with their defaults. No torch here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.results import Better

ONLY_ARM = "command"
ONLY_LOOP = "loop"
RUNNER = "ci_bench.suites.command.looping"
STDOUT = "stdout"
PLACE = "{output}"
OUTPUT_VARIABLE = "CI_BENCH_OUTPUT"

Command = str | tuple[str, ...]
"""A shell script, or a program with its arguments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionRule:
    """Treatment of the series whose name fits a glob."""

    match: str
    """Glob for the whole name of a series."""
    use: bool = True
    """False ignores the series."""
    name: str | None = None
    """Name of the metric; `None` derives it from the series."""
    unit: str | None = None
    """Unit of the values; `None` keeps the tool's."""
    better: Better | None = None
    """Direction of improvement; `None` keeps the tool's."""


ROUNDINGS: tuple[Mapping[str, str], ...] = (
    {"ATEN_CPU_CAPABILITY": "default"},
    {"OMP_NUM_THREADS": "3"},
    {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "3"},
)
"""Environments in which torch on a CPU sums the same numbers in other orders: other vector
instructions, other threads.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Losses:
    """Reading of the steps that a training writes.

    See `formats.training_log`.
    """

    format: str = "auto"
    """Format of the steps; `auto` detects it."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The training's field names, by the names of `formats.training_log`; empty detects them."""
    warmup_steps: int = 3
    """Steps at the start whose times are kept separate."""
    steps: int | None = None
    """Steps after which a loop is ended; `None` runs it to its end."""
    target: float | None = None
    """Loss to reach, for the metrics of steps and time to target; `None` omits them."""
    rounding: tuple[Mapping[str, str], ...] | None = None
    """Environments that change only rounding; `None` is `ROUNDINGS` on a CPU, else empty."""

    def environments(self, device: str) -> tuple[Mapping[str, str], ...]:
        """Return the environments of runs in other roundings, on a device."""
        if self.rounding is not None:
            return self.rounding
        return ROUNDINGS if device == "cpu" else ()


class Counting(StrEnum):
    """The tool that counts the instructions of a run."""

    NEVER = "never"
    AUTO = "auto"
    """perf where it can, else callgrind."""
    PERF = "perf"
    CALLGRIND = "callgrind"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandOptions:
    """Options of one entry.

    Without `format` and `losses` the suite measures the command itself: its wall time and its peak
    of memory.
    """

    name: str
    """Name of the case."""
    arms: Mapping[str, Command]
    """Command of each arm, by the arm's name."""
    reference: str
    """Arm with which the others are compared."""
    loop: str | None = None
    """Training loop, as `package.module:function`; `None` for a command."""
    arguments: Mapping[str, Mapping[str, Any]] | None = None
    """Keyword arguments of the loop, by arm; `None` without a loop or if it takes no arguments."""
    processes: int = 1
    """Processes in which the loop runs."""
    cwd: str = "."
    """Working directory, relative to the side's tree."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables added for the command."""
    timeout_s: float = 600.0
    """Seconds after which a run is ended."""
    output: str | None = None
    """Output file, a glob of them, or `stdout`; `None` is the file in CI_BENCH_OUTPUT."""
    format: str | None = None
    """Format in which the output is read as measurements; `None` reads none."""
    losses: Losses | None = None
    """Reading of the steps that a training reports; `None` if the command is not a training."""
    metrics: tuple[SelectionRule, ...] = ()
    """Rules for the series of the output; the first that fits applies."""
    exit_codes: tuple[int, ...] = (0,)
    """Exit codes of a successful run."""
    instructions: Counting = Counting.NEVER
    """Tool that counts instructions, in separate runs."""


def parse(values: Mapping[str, Any]) -> CommandOptions:
    """Parse an entry of the configuration, or a case's parameters.

    The schema has validated the entry.

    Raises:
        BadConfig: options contradict each other.
    """
    options = dict(values)
    name, losses = options["name"], options.pop("losses", None)
    if options.get("loop") is not None:
        losses = {} if losses is None else dict(losses)
        commands = _loops(options, losses)
    else:
        commands = _commands(options)
        if losses is not None and losses.get("steps") is not None:
            _complain(
                name,
                "losses.steps",
                "only a `loop` can be ended after a number of steps; limit the command itself",
            )
    options = {
        option: value for option, value in options.items() if option not in {"command", "arms"}
    }
    reference = options.pop("reference", next(iter(commands)))
    if reference not in commands:
        _complain(
            name, "reference", f"{reference!r} is not one of the arms ({', '.join(commands)})"
        )
    _require_format(options, has_losses=losses is not None)
    counting = Counting(options.pop("instructions", Counting.NEVER))
    if counting is not Counting.NEVER and (losses is not None or options.get("format") is not None):
        _complain(
            name,
            "instructions",
            "instructions are counted only of commands that are timed directly; write an entry"
            " without format",
        )
    return CommandOptions(
        instructions=counting,
        arms=commands,
        reference=reference,
        losses=None if losses is None else _losses(losses),
        metrics=tuple(map(_rule, options.pop("metrics", ()))),
        exit_codes=tuple(options.pop("exit_codes", (0,))),
        **options,
    )


def _commands(options: Mapping[str, Any]) -> Mapping[str, Command]:
    """Return the command of each arm."""
    name, command, arms = options["name"], options.get("command"), options.get("arms")
    if command is not None and arms is not None:
        _complain(name, "command", "the entry has arms, too; write the command as one of them")
    if options.get("arguments") is not None:
        _complain(
            name,
            "arguments",
            "only a `loop` has arguments; write them into the command, or a command for each arm",
        )
    if options.get("processes", 1) != 1:
        _complain(
            name,
            "processes",
            "a command starts its own, with torchrun or otherwise; only a `loop` is started in"
            " several",
        )
    commands = arms if arms is not None else {ONLY_ARM: [] if command is None else command}
    return {
        arm: command if isinstance(command, str) else tuple(command)
        for arm, command in commands.items()
    }


def _loops(options: Mapping[str, Any], losses: Mapping[str, Any]) -> Mapping[str, Command]:
    """Return the command of each arm of a training loop: the loop's runner, with arguments."""
    name = options["name"]
    for option in ("command", "arms", "output", "format", "metrics"):
        if options.get(option):
            hint = "; its arms are `arguments`" if option == "arms" else ""
            _complain(
                name,
                option,
                f"the entry has a `loop`, whose steps are known; write an entry for each{hint}",
            )
    for option in losses.keys() - {"warmup_steps", "rounding", "steps", "target"}:
        _complain(
            name,
            f"losses.{option}",
            "the entry has a `loop`, which yields its losses under names that are known",
        )
    processes, steps = options.get("processes", 1), losses.get("steps")
    start = ["python"] if processes == 1 else ["torchrun", f"--nproc-per-node={processes}"]
    start += ["-m", RUNNER, options["loop"]]
    start += [] if steps is None else ["--steps", str(steps)]
    commands: dict[str, Command] = {}
    for arm, arguments in (options.get("arguments") or {ONLY_LOOP: {}}).items():
        more = ["--arguments", json.dumps(arguments, sort_keys=True)] if arguments else []
        commands[arm] = (*start, *more)
    return commands


def _require_format(options: Mapping[str, Any], *, has_losses: bool) -> None:
    if has_losses:
        for option in ("format", "metrics"):
            if options.get(option):
                _complain(
                    options["name"], option, "the entry has `losses`, too; write an entry for each"
                )
        return
    for option in ("output", "metrics"):
        if option in options and options.get("format") is None:
            _complain(
                options["name"],
                option,
                "nothing is read without a format; add `format: auto`, or `losses` of a training",
            )


def _losses(values: Mapping[str, Any]) -> Losses:
    options = dict(values)
    rounding = options.pop("rounding", None)
    return Losses(
        format=options.pop("format", "auto"),
        warmup_steps=options.pop("warmup_steps", 3),
        steps=options.pop("steps", None),
        target=options.pop("target", None),
        rounding=None if rounding is None else tuple(dict(environment) for environment in rounding),
        names=options,
    )


def _rule(values: Mapping[str, Any]) -> SelectionRule:
    better = values.get("better")
    return SelectionRule(**{**values, "better": None if better is None else Better(better)})


def _complain(name: str, option: str, why: str) -> None:
    raise BadConfig(f"suites.command.{name}.{option}: {why}")
