"""The parser of the command line: suggestions, help in groups, and the values of flags.

Standard library only.
"""

import argparse
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, NoReturn

MOST_MACHINES = 16
GROUPS: Mapping[str, tuple[str, ...]] = {
    "start": ("init", "doctor", "list", "run", "gate", "accept"),
    "read results": ("show", "compare", "convert", "validate"),
    "over time": ("calibrate", "history"),
    "in CI": ("setup", "github"),
    "several machines": ("fleet",),
}
"""The commands in the order of the help; those that are not here come last."""
RENAMED: Mapping[str, str] = {
    "publish": "github publish",
    "announce": "github announce",
    "fetch-baseline": "github fetch-baseline",
    "fetch-config": "github fetch-config",
    "answer-request": "github answer-request",
    "report": "show",
    "selftest": "doctor --selftest",
    "gpu-check": "doctor --gpu",
    "bisect": "history bisect",
    "merge": "fleet merge",
    "lease": "fleet lease",
    "fetch-models": "setup --models",
    "completion": "--completion bash",
}
"""The present spelling of each command that had another one before."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors suggest the nearest spelling of a command or flag."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and a message, and exit with 2."""
        from ci_bench.records.predecessors import describe_flags
        from ci_bench.records.spelling import meant

        if wrong := re.fullmatch(
            r"argument (.+): invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL
        ):
            where, word, choices = wrong.groups()
            hint = meant(word, re.findall(r"[\w.-]+", choices))
            renamed = (
                f"; it is `{self.prog} {RENAMED[word]}` now"
                if where == "COMMAND" and word in RENAMED
                else ""
            )
            unknown = (
                f"unknown {where.lower()}"
                f" {word!r}{renamed or hint or f'; `{self.prog} --help` lists all'}"
            )
            message = unknown if where in {"COMMAND", "ACTION"} else f"{message}{hint}"
        elif message.startswith("unrecognized arguments: "):
            flags = [word.partition("=")[0] for word in message.split()[2:] if word.startswith("-")]
            hints = (meant(flag, [*_flags_of(self)]) for flag in flags)
            message += describe_flags(flags) or next(filter(None, hints), "")
        super().error(message)


def _flags_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001 - argparse lists them nowhere else
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from (flag for inner in action.choices.values() for flag in _flags_of(inner))


class Flag(NamedTuple):
    """One flag in all its spellings; a positional argument has none."""

    names: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...]
    help: str


class CommandWords(NamedTuple):
    """A command's name (``history add``) and summary, its flags, and the names of its actions."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    actions: tuple[str, ...]


def command_words(name: str, parser: argparse.ArgumentParser) -> Iterator[CommandWords]:
    """Yield a command and then its actions; the program itself comes first, with an empty name."""
    arguments = parser._actions  # noqa: SLF001 - argparse lists them nowhere else
    nested = [
        argument
        for argument in arguments
        if isinstance(argument, argparse._SubParsersAction)  # noqa: SLF001
    ]
    inner = nested[0].choices if nested else {}
    flags = tuple(_flag(argument) for argument in arguments if argument not in nested)
    yield CommandWords(name=name, help=parser.description or "", flags=flags, actions=tuple(inner))
    for action, below in inner.items():
        yield from command_words(f"{name} {action}".strip(), below)


def _flag(action: argparse.Action) -> Flag:
    names = () if action.help == argparse.SUPPRESS else tuple(action.option_strings)
    choices = tuple(map(str, action.choices or ()))
    return Flag(names=names, takes_value=action.nargs != 0, choices=choices, help=action.help or "")


def list_commands(summaries: Mapping[str, str]) -> str:
    """Return all commands with their summaries, in groups."""
    from textwrap import wrap

    grouped = {name for names in GROUPS.values() for name in names}
    groups: dict[str, Collection[str]] = {
        **GROUPS,
        "others": [name for name in summaries if name not in grouped],
    }
    lines = []
    for title, names in groups.items():
        lines += ["", f"{title}:"] if names else []
        lines += [
            line
            for name in names
            for line in wrap(f"  {name:14}  {summaries[name]}", 100, subsequent_indent=" " * 18)
        ]
    return "\n".join(lines[1:])


def names_of_machines(text: str) -> tuple[str, ...]:
    """Parse the names of machines, separated by commas."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    wrong = [name for name in names if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}", name)]
    if wrong or not 0 < len({*names}) == len(names) <= MOST_MACHINES:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80}: names of up to {MOST_MACHINES} machines, each once, separated by commas"
        )
    return names


def not_counted(_: str) -> int:
    """Reject a number of machines: three artifacts of any names once satisfied `--legs 3`."""
    raise argparse.ArgumentTypeError(
        "machines are named, not counted: --machines h200,a100,l4, or `machines:` in ci-bench.yml"
    )


def share(text: str) -> float:
    """Parse a share: ``0.02`` and ``2%`` are the same."""
    number, percent, rest = text.partition("%")
    try:
        value = float(number) / (100.0 if percent else 1.0)
    except ValueError:
        value = -1.0
    if rest or not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction such as 0.02 or 2%")
    return value


def duration(text: str) -> float:
    """Return the seconds of a text such as ``5m``, ``90s`` or ``300``."""
    from ci_bench.records.units import seconds

    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
