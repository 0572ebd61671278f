"""`ci-bench setup`: prepare both sides for `gate --prepared`."""

import shlex
from contextlib import nullcontext

from ci_bench.checkouts.paired import prepare_sides
from ci_bench.command_line.settings import Measuring
from ci_bench.command_line.shared_flags import DEFAULT_OUTPUT
from ci_bench.commands.loading import load
from ci_bench.commands.output import tell
from ci_bench.commands.preparing import place_of, tell_sides
from ci_bench.errors import ExitCode
from ci_bench.fleet.local import STARTER
from ci_bench.processes.descendants import ending_with


def setup(settings: Measuring) -> int:
    """Prepare both sides, and leave them for `gate --prepared`.

    The gate reports a side that cannot be prepared. If neither side can be, there is nothing to
    measure, and this command ends as measuring would. For a lease it ends with its parent: the next
    lease would prepare the same sides.
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
    """Return the words of the gate for these sides; it refuses sides of another configuration."""
    options = {
        "--config": settings.config,
        "--base": settings.base,
        "--prepared": settings.prepared,
    }
    options |= {"--output": settings.output} if settings.output != DEFAULT_OUTPUT else {}
    return [
        "gate",
        *(
            part
            for flag, value in options.items()
            if value is not None
            for part in (flag, str(value))
        ),
    ]
