"""The entry point: argv to a command, errors to an exit code. What each command does is in `commands`."""

import argparse
import gc
import logging
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from ci_bench.commands import converting, looking, measuring, preparing, reading
from ci_bench.commands.trend import bisecting, history
from ci_bench.commands.trusted import publishing
from ci_bench.errors import CiBenchError, ExitCode
from ci_bench.flags import make_parser

COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "run": measuring.run,
    "gate": measuring.gate,
    "setup": preparing.setup,
    "compare": reading.compare,
    "report": looking.report,
    "show": looking.show,
    "validate": reading.validate,
    "list": reading.list_cases,
    "convert": converting.convert,
    "fastrnns": measuring.fastrnns,
    "calibrate": measuring.calibrate,
    "publish": publishing.publish,
    "history": history.history,
    "bisect": bisecting.bisect,
    "announce": publishing.announce,
    "fetch-baseline": publishing.fetch_baseline,
    "fetch-config": publishing.fetch_config,
    "selftest": measuring.selftest,
    "doctor": measuring.doctor,
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
