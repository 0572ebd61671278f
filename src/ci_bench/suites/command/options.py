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
    """Treatment of the series whose name `match` fits.

    They are not used, called `name`, or read in another unit or direction.
    """

    match: str
    use: bool = True
    name: str | None = None
    unit: str | None = None
    better: Better | None = None


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
    """Steps that a training writes: their `format`, and the `names` that it uses.

    See `formats.training_log`. `warmup_steps` are the first steps, whose times are kept separate;
    `steps` end a loop. `target` is a loss to reach. `rounding` are environments in which the
    command computes the same but for rounding: head's losses may differ by as much as these do.
    `None`: `ROUNDINGS` on a CPU, else none.
    """

    format: str = "auto"
    names: Mapping[str, str] = field(default_factory=dict)
    warmup_steps: int = 3
    steps: int | None = None
    target: float | None = None
    rounding: tuple[Mapping[str, str], ...] | None = None

    def environments(self, device: str) -> tuple[Mapping[str, str], ...]:
        """The environments of runs in other roundings, on a device."""
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
    """One entry.

    Without `format` the suite measures the command itself, its wall time and its peak of memory.
    With `format` it reads the command's output, and with `losses` the steps that a training
    reports. The output is in the file that `output` names (a glob may name several), in standard
    output, or in the file that the command finds in CI_BENCH_OUTPUT. With a `loop` the commands run
    it, with the `arguments` of each arm, in `processes` processes. `timeout_s` ends one run.
    `exit_codes` are those of a successful run. `instructions` selects if they are counted, in
    separate runs.
    """

    name: str
    arms: Mapping[str, Command]
    reference: str
    loop: str | None = None
    arguments: Mapping[str, Mapping[str, Any]] | None = None
    processes: int = 1
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 600.0
    output: str | None = None
    format: str | None = None
    losses: Losses | None = None
    metrics: tuple[SelectionRule, ...] = ()
    exit_codes: tuple[int, ...] = (0,)
    instructions: Counting = Counting.NEVER


def parse(values: Mapping[str, Any]) -> CommandOptions:
    """Options from one entry of the configuration, validated by its schema, or from a case's parameters.

    Raises:
        BadConfig: options contradict each other.
    """
    given = dict(values)
    name, losses = given["name"], given.pop("losses", None)
    if given.get("loop") is not None:
        losses = {} if losses is None else dict(losses)
        commands = _loops(given, losses)
    else:
        commands = _commands(given)
        if losses is not None and losses.get("steps") is not None:
            _complain(
                name,
                "losses.steps",
                "only a `loop` can be ended after a number of steps; limit the command itself",
            )
    given = {option: value for option, value in given.items() if option not in {"command", "arms"}}
    reference = given.pop("reference", next(iter(commands)))
    if reference not in commands:
        _complain(
            name, "reference", f"{reference!r} is not one of the arms ({', '.join(commands)})"
        )
    _require_format(given, has_losses=losses is not None)
    counting = Counting(given.pop("instructions", Counting.NEVER))
    if counting is not Counting.NEVER and (losses is not None or given.get("format") is not None):
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
        metrics=tuple(map(_rule, given.pop("metrics", ()))),
        exit_codes=tuple(given.pop("exit_codes", (0,))),
        **given,
    )


def _commands(given: Mapping[str, Any]) -> Mapping[str, Command]:
    """The command of each arm."""
    name, command, arms = given["name"], given.get("command"), given.get("arms")
    if command is not None and arms is not None:
        _complain(name, "command", "the entry has arms, too; write the command as one of them")
    if given.get("arguments") is not None:
        _complain(
            name,
            "arguments",
            "only a `loop` has arguments; write them into the command, or a command for each arm",
        )
    if given.get("processes", 1) != 1:
        _complain(
            name,
            "processes",
            "a command starts its own, with torchrun or otherwise; only a `loop` is started in"
            " several",
        )
    commands = arms if arms is not None else {ONLY_ARM: [] if command is None else command}
    return {arm: one if isinstance(one, str) else tuple(one) for arm, one in commands.items()}


def _loops(given: Mapping[str, Any], losses: Mapping[str, Any]) -> Mapping[str, Command]:
    """The command of each arm of a training loop: the loop's runner, with the arm's arguments."""
    name = given["name"]
    for option in ("command", "arms", "output", "format", "metrics"):
        if given.get(option):
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
    processes, steps = given.get("processes", 1), losses.get("steps")
    start = ["python"] if processes == 1 else ["torchrun", f"--nproc-per-node={processes}"]
    start += ["-m", RUNNER, given["loop"]]
    start += [] if steps is None else ["--steps", str(steps)]
    commands: dict[str, Command] = {}
    for arm, arguments in (given.get("arguments") or {ONLY_LOOP: {}}).items():
        more = ["--arguments", json.dumps(arguments, sort_keys=True)] if arguments else []
        commands[arm] = (*start, *more)
    return commands


def _require_format(given: Mapping[str, Any], *, has_losses: bool) -> None:
    if has_losses:
        for option in ("format", "metrics"):
            if given.get(option):
                _complain(
                    given["name"], option, "the entry has `losses`, too; write an entry for each"
                )
        return
    for option in ("output", "metrics"):
        if option in given and given.get("format") is None:
            _complain(
                given["name"],
                option,
                "nothing is read without a format; add `format: auto`, or `losses` of a training",
            )


def _losses(values: Mapping[str, Any]) -> Losses:
    given = dict(values)
    rounding = given.pop("rounding", None)
    return Losses(
        format=given.pop("format", "auto"),
        warmup_steps=given.pop("warmup_steps", 3),
        steps=given.pop("steps", None),
        target=given.pop("target", None),
        rounding=None if rounding is None else tuple(dict(one) for one in rounding),
        names=given,
    )


def _rule(values: Mapping[str, Any]) -> SelectionRule:
    better = values.get("better")
    return SelectionRule(**{**values, "better": None if better is None else Better(better)})


def _complain(name: str, option: str, why: str) -> None:
    raise BadConfig(f"suites.command.{name}.{option}: {why}")
