"""Runs a training loop that is a generator.

A script for the process of the measured code, started by entries with `loop`:
``python -m ci_bench.suites.command.looping package.module:train``. The loop is the user's,
including its work between two steps; this module is the clock around it.

A step ends when three things are done: the loop has yielded it, its numbers are read, and the
device has finished its queue. A lazy framework computes only when a number is read. The next step
starts when the loop resumes, so writing here is not part of a step. The first one includes the
loop's set-up. Imports no torch: the clock does not wait for a framework that the loop has not
imported.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from ci_bench.suites.command.stepping import OUTPUT_VARIABLE, Step, read_numbers, write

EXAMPLE = "`yield ci_bench.Step(loss=loss)` at the end of each step"


class BadLoop(Exception):  # noqa: N818 - it says what is wrong with a loop
    """The named object is not a loop. The message explains what to change."""


def load(target: str) -> Callable[..., Any]:
    """Import the function ``package.module:function``, also from the working directory.

    Raises:
        BadLoop: the module has no such function.
    """
    module, _, name = target.partition(":")
    function = getattr(import_module(module), name, None)
    if not callable(function):
        raise BadLoop(f"{target}: {module} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def steps_of(loop: Callable[..., Any], arguments: Mapping[str, Any], target: str) -> Iterator[Any]:
    """Return the iterator over the loop's steps.

    Raises:
        BadLoop: the loop returned something that is not an iterator.
    """
    yielded = loop(**arguments)
    if not hasattr(yielded, "__next__"):
        raise BadLoop(
            f"{target} is not a generator, it returned a {type(yielded).__name__}; have it"
            f" {EXAMPLE}"
        )
    return yielded  # type: ignore[no-any-return]


def drive(
    steps: Iterator[Any], most: int | None, note: Callable[[Step, float, float], None], target: str
) -> None:
    """Go through the steps, `most` of them at most, and `note` the numbers of each.

    `note` gets the step and its seconds of wall and CPU time.

    Raises:
        BadLoop: something else than a `Step` was yielded, or nothing.
    """
    count, begun, begun_cpu = 0, time.perf_counter(), time.process_time()
    for step in steps:
        if not isinstance(step, Step):
            raise BadLoop(
                f"{target} yielded a {type(step).__name__} as step {count}; have it {EXAMPLE}"
            )
        numbers = read_numbers(step)
        _wait_for_the_device()
        seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - begun_cpu
        note(numbers, seconds, cpu_seconds)
        count += 1
        if count == most:
            _close(steps)
            return
        begun, begun_cpu = time.perf_counter(), time.process_time()
    if not count:
        raise BadLoop(f"{target} yielded no step; have it {EXAMPLE}")


def _close(steps: Iterator[Any]) -> None:
    """Let the loop clean up; only a generator needs to be closed."""
    close = getattr(steps, "close", None)
    if close is not None:
        close()


def _wait_for_the_device() -> None:
    """Wait until everything queued is done.

    Devices that the loop did not use stay uninitialized.
    """
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        device = getattr(torch, name, None)
        if device is not None and device.is_initialized():
            device.synchronize()


def _end_with_the_others() -> None:
    """End immediately once all ranks are here, if they are still connected.

    gloo's threads may abort a process that takes them down.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def main(argv: Sequence[str]) -> None:
    """Run the loop that `argv` names, and write its steps to CI_BENCH_OUTPUT, or count them."""
    parser = argparse.ArgumentParser(prog="python -m ci_bench.suites.command.looping")
    parser.add_argument("target", metavar="package.module:function")
    parser.add_argument("--steps", type=int, help="end the loop after this many steps")
    parser.add_argument(
        "--arguments",
        type=json.loads,
        default={},
        metavar="JSON",
        help="keyword arguments of the function",
    )
    options = parser.parse_args(argv)
    # Otherwise steps that the loop reports with ci_bench.step would be there twice.
    file = os.environ.pop(OUTPUT_VARIABLE, "")

    def note(step: Step, seconds: float, cpu_seconds: float) -> None:
        if file:
            write(file, step, step_time=seconds, cpu_time=cpu_seconds)

    try:
        drive(
            steps_of(load(options.target), options.arguments, options.target),
            options.steps,
            note,
            options.target,
        )
    except BadLoop as error:
        sys.exit(str(error))
    _end_with_the_others()


if __name__ == "__main__":
    main(sys.argv[1:])
