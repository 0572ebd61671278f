"""The entry point: argv and environment to settings, errors to an exit code.

`commands` holds the commands.
"""

import argparse
import gc
import io
import logging
import os
import shlex
import signal
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from ci_bench.command_line.flags import make_parser
from ci_bench.commands.output import discard_stdout
from ci_bench.errors import BadInput, CiBenchError, ExitCode

SELDOM = (5_000_000, 50, 1000)
"""Documents are large and have no cycles: looking for some takes a quarter of judging them."""
_THREADS = "OPENBLAS_NUM_THREADS"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    _print_anything()
    parser = make_parser(words)
    arguments = parser.parse_args(words)
    if arguments.completion:
        return _complete(arguments.completion)
    if "command" not in arguments:
        parser.print_help(sys.stderr)
        return int(ExitCode.BAD_INPUT)
    logging.basicConfig(
        level=logging.DEBUG if arguments.verbose else logging.WARNING,
        format="%(levelname)s: %(message)s",
    )
    previous, often = signal.signal(signal.SIGTERM, _terminate), gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        return _act(arguments)
    except CiBenchError as error:
        sys.stderr.write(f"ci-bench: {error}\n")
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write(f"ci-bench: interrupted{_way_on(arguments, words)}\n")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        discard_stdout()
        sys.stderr.close()
        return int(ExitCode.BROKEN_PIPE)
    finally:
        signal.signal(signal.SIGTERM, previous)
        gc.set_threshold(*often)
        if (
            argv is None
        ):  # the process ends here, and would look for cycles in all that it holds, several times
            gc.freeze()


def _way_on(arguments: argparse.Namespace, words: Sequence[str]) -> str:
    """Describe the results of an interrupted command, and how to continue it."""
    if (
        "resume" not in arguments
        or not (results := Path(arguments.output, "results.json")).exists()
    ):
        return ""
    again = shlex.join(["ci-bench", *words, *([] if arguments.resume else ["--resume"])])
    return f"; {results} has what was measured so far, marked partial; to continue: {again}"


def _print_anything() -> None:
    """Print a question mark for characters that a terminal or log cannot show.

    A verdict must not be lost because of one.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it; the next file would take its place
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _complete(shell: str) -> int:
    from ci_bench.commands.completion import completion

    sys.stdout.write(completion(shell))
    return int(ExitCode.OK)


def _act(flags: argparse.Namespace) -> int:
    from ci_bench.commands.dispatch import COMMANDS

    command = COMMANDS[flags.command]
    if command.judges:
        _load_numpy(os.environ)
    return command.act(command.kind.of(flags, os.environ, _here()))


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise BadInput("the current folder was removed; change to one that is there") from error


def _load_numpy(environ: MutableMapping[str, str]) -> None:
    """Load numpy and SciPy without the threads of their linear algebra, half of the loading time.

    The judge has no matrices that would benefit from threads. Measured processes get the original
    environment.
    """
    if _THREADS in environ:
        return
    environ[_THREADS] = "1"
    try:
        import ci_bench.statistics.special_functions  # noqa: F401 - which loads both
    finally:
        del environ[_THREADS]


def _terminate(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
