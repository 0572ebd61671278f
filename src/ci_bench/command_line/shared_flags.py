"""Flags that several commands have, and the actions of a command. Owns words, does nothing."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ci_bench.command_line.parsers import duration

DEFAULT_OUTPUT = Path("ci-bench-results")


class Actions(NamedTuple):
    """The actions of a command."""

    parsers: "argparse._SubParsersAction[argparse.ArgumentParser]"

    def add(self, name: str, summary: str) -> argparse.ArgumentParser:
        """Add an action of the command's own module."""
        sentence = summary[0].upper() + summary[1:] + "."
        return self.parsers.add_parser(name, help=summary, description=sentence)

    def add_command(
        self, name: str, summary: str, add_flags: Callable[[argparse.ArgumentParser], None]
    ) -> None:
        """Add an action that has its own module, as `fleet merge`."""
        parser = self.add(name.partition(" ")[2], summary)
        add_flags(parser)
        parser.set_defaults(command=name)


def add_actions(parser: argparse.ArgumentParser) -> Actions:
    """Add the choice of an action to a command; return the actions to add to."""
    return Actions(
        parser.add_subparsers(title="actions", required=True, dest="action", metavar="ACTION")
    )


def add_benchmarks(parser: argparse.ArgumentParser) -> None:
    """Add the paths of benchmarks."""
    paths = (
        "files or folders of functions under @ci_bench.benchmark, instead of the configuration's"
        " suites"
    )
    parser.add_argument("paths", type=Path, nargs="*", metavar="PATH", help=paths)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the file of the configuration."""
    default = (
        "configuration (default: ci-bench.yml here or above, up to the repository's root);"
        " quickstart: the embedded one"
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help=default)


def add_filter(parser: argparse.ArgumentParser) -> None:
    """Add the filters of cases."""
    chosen = "the case with the id TEXT, or else all whose id contains it; repeatable"
    parser.add_argument("-k", "--filter", action="append", default=[], metavar="TEXT", help=chosen)


def add_base(parser: argparse.ArgumentParser) -> None:
    """Add the base commit."""
    chosen = "the base commit of a paired run (default: where the branch began)"
    parser.add_argument("--base", metavar="REF", help=chosen)


def add_output(parser: argparse.ArgumentParser, what: str, default: Path = DEFAULT_OUTPUT) -> None:
    """Add the output folder; `what` is its help."""
    parser.add_argument("-o", "--output", type=Path, default=default, metavar="DIR", help=what)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the device."""
    parser.add_argument(
        "--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N (wins over the configuration)"
    )


def add_noise(parser: argparse.ArgumentParser) -> None:
    """Add the folder of calibrations."""
    folder = "folder of calibrations (default: $CI_BENCH_NOISE, else ~/.local/state/ci-bench/noise)"
    parser.add_argument("--noise", type=Path, metavar="DIR", help=folder)


def add_comment_author(parser: argparse.ArgumentParser) -> None:
    """Add the login of ci-bench's comments and issues."""
    login = "login that posts ci-bench's comments and issues"
    parser.add_argument(
        "--comment-author", default="github-actions[bot]", metavar="LOGIN", help=login
    )


def add_measuring(parser: argparse.ArgumentParser, output: Path = DEFAULT_OUTPUT) -> None:
    """Add the flags of commands that measure; `output` is the default folder for documents."""
    add_config(parser)
    add_filter(parser)
    add_output(parser, "folder for the documents", output)
    add_device(parser)
    parser.add_argument(
        "--launches", type=int, metavar="N", help="number of launches, each with fresh processes"
    )
    budget = "time limit for measuring (5m, 90s, 300); work that would exceed it is not started"
    parser.add_argument("--budget", dest="budget_s", type=duration, metavar="TIME", help=budget)
