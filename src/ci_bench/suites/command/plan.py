"""The torch-free half of `command`: an entry is a case, and a tool's measurements are its metrics.

Each entry is one case, although a tool may have many benchmarks: they are known only after the
command ran. A ledger must be known before, or a vanished benchmark would not be missed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import Case, Due
from ci_bench.suites.command.options import CommandOptions, parse
from ci_bench.suites.contract import Stage, StageKind, Suite
from ci_bench.suites.shared.planning.own_code import of_commands

MEMORY_LAUNCHES = (0, 1)
"""Peaks are taken in two launches: where they repeat exactly they can be compared exactly."""


class CommandSuite(Suite):
    """Run a command of the user's tree, and time it or read its measurements."""

    name = "command"
    worker = "ci_bench.suites.command.run"
    preload: tuple[str, ...] = ()

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Return the entry's only case.

        Raises `BadConfig` if options contradict each other.
        """
        parsed = parse(options)
        return (
            Case(
                id=f"command/{parsed.name}",
                suite="command",
                name=parsed.name,
                params=dict(options),
                arms=(parsed.reference, *(arm for arm in parsed.arms if arm != parsed.reference)),
                reference=parsed.reference,
                due=_due(parsed),
                body=of_commands(parsed.arms.values(), Path(parsed.cwd)),
            ),
        )

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Plan two launches that measure memory, then in each the command in turns with itself.

        If its output is read, plan one run for every launch instead.

        A training is run in other roundings first.
        """
        options = parse(case.params)
        reading = Stage(kind=StageKind.RUN, arms=case.arms, launches=None)
        if options.losses is not None:
            return Stage(kind=StageKind.VERIFY, arms=case.arms), reading
        if options.format is not None:
            return (reading,)
        peaks = tuple(
            Stage(kind=StageKind.RUN, arms=(arm,), launches=MEMORY_LAUNCHES) for arm in case.arms
        )
        return (*peaks, Stage(kind=StageKind.TIME, arms=case.arms, launches=None))


def _due(options: CommandOptions) -> Due:
    if options.losses is not None:
        return Due(times=(STEP_TIME.name,), parity=True)
    return Due(times=(STEP_TIME.name,)) if options.format is None else Due()


SUITE = CommandSuite()
