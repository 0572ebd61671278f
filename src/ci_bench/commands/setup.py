"""`ci-bench setup`: makes both sides ready, for `gate --prepared`."""

import shlex
from contextlib import nullcontext

from ci_bench.checkouts.paired import prepare_sides
from ci_bench.command_line.flags import DEFAULT_OUTPUT
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.loading import load
from ci_bench.commands.output import tell
from ci_bench.commands.preparing import place_of, tell_sides
from ci_bench.errors import ExitCode
from ci_bench.fleet.local import STARTER
from ci_bench.processes.descendants import ending_with


def setup(settings: Measuring) -> int:
    """Make both sides ready, and leave them for `gate --prepared`.

    A side that cannot be made ready is the gate's to report.

    If neither side can be prepared, there is nothing to measure: the gate can only report that, and
    this ends as measuring would. For a lease it ends with its parent: the next lease would make the
    same sides.
    """
    assert settings.prepared is not None  # noqa: S101 - the flag is required
    config = load(settings)
    starter = settings.environ.get(STARTER)
    with ending_with(starter) if starter else nullcontext():
        pair = prepare_sides(
            place_of(settings, settings.prepared),
            base=settings.base or config.base,
            setup=config.setup,
        )
    tell_sides(pair)
    if all(side.failure is not None for side in pair.sides):
        tell(
            f"set-up failed on both sides: see the logs in {settings.output / 'setup'}, fix it and"
            " run it again"
        )
        return int(ExitCode.MEASURING_FAILED)
    tell(
        f"prepared in {settings.prepared}; measure with:"
        f" {shlex.join(['ci-bench', *_measuring(settings)])}"
    )
    return int(ExitCode.OK)


def _measuring(settings: Measuring) -> list[str]:
    """The gate's flags for what was set up here: it refuses sides that were made of something else."""
    given = {"--config": settings.config, "--base": settings.base, "--prepared": settings.prepared}
    given |= {"--output": settings.output} if settings.output != DEFAULT_OUTPUT else {}
    return [
        "gate",
        *(
            part
            for flag, value in given.items()
            if value is not None
            for part in (flag, str(value))
        ),
    ]
