"""The entry point: argv and environment to settings, errors to an exit code. What each command does is in `commands`."""

import argparse
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ci_bench.commands import converting, measuring, preparing, reading, rendering
from ci_bench.commands.trend import bisecting, history
from ci_bench.commands.trusted import publishing
from ci_bench.errors import CiBenchError, ExitCode
from ci_bench.flags import make_parser
from ci_bench.settings import (
    Bisecting,
    Comparing,
    Converting,
    Examining,
    Fastrnns,
    Listing,
    Measuring,
    Publishing,
    Settings,
    Showing,
    Trend,
    Validating,
)

_Kind = TypeVar("_Kind", bound=Settings)


@dataclass(frozen=True, slots=True)
class Command(Generic[_Kind]):
    """One command: the kind of settings that its flags become, and what acts on them."""

    kind: type[_Kind]
    act: Callable[[_Kind], int]

    def __call__(self, flags: argparse.Namespace) -> int:
        """Act on these flags, in this process's environment and folder; returns the exit code."""
        return self.act(self.kind.of(flags, os.environ, Path.cwd()))


COMMANDS: Mapping[str, Command[Any]] = {
    "run": Command(Measuring, measuring.run),
    "gate": Command(Measuring, measuring.gate),
    "setup": Command(Measuring, preparing.setup),
    "compare": Command(Comparing, reading.compare),
    "report": Command(Showing, rendering.report),
    "show": Command(Showing, rendering.show),
    "validate": Command(Validating, reading.validate),
    "list": Command(Listing, reading.list_cases),
    "convert": Command(Converting, converting.convert),
    "fastrnns": Command(Fastrnns, measuring.fastrnns),
    "calibrate": Command(Measuring, measuring.calibrate),
    "publish": Command(Publishing, publishing.publish),
    "history": Command(Trend, history.history),
    "bisect": Command(Bisecting, bisecting.bisect),
    "announce": Command(Publishing, publishing.announce),
    "fetch-baseline": Command(Publishing, publishing.fetch_baseline),
    "fetch-config": Command(Publishing, publishing.fetch_config),
    "selftest": Command(Examining, measuring.selftest),
    "doctor": Command(Examining, measuring.doctor),
}

SELDOM = (200_000, 50, 1000)
"""Documents are large and have no cycles: looking for some takes a quarter of judging them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = make_parser(COMMANDS).parse_args(argv)
    logging.basicConfig(level=logging.DEBUG if arguments.verbose else logging.WARNING, format="%(levelname)s: %(message)s")
    previous, often = signal.signal(signal.SIGTERM, _terminate), gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        return int(arguments.command(arguments))
    except CiBenchError as error:
        sys.stderr.write(f"ci-bench: {error}\n")
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("ci-bench: interrupted; results.json of a run holds what was measured so far, marked partial\n")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return int(ExitCode.BROKEN_PIPE)
    finally:
        signal.signal(signal.SIGTERM, previous)
        gc.set_threshold(*often)


def _terminate(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
