"""Decide if both sides may work on a stage simultaneously."""

from collections.abc import Sequence

from ci_bench.host.headroom import has_cores_for_two
from ci_bench.records.config import RunOptions
from ci_bench.runner.side_run import SideRun, device_of
from ci_bench.suites.contract import UNTIMED, Stage, StageKind


def may_run_at_once(stage: Stage, runs: Sequence[SideRun], options: RunOptions) -> bool:
    """Return whether both sides may run a stage simultaneously.

    It has to be untimed, and the machine needs room for two. On the CPU they also compile from cold
    simultaneously, each on its own cores. On a GPU each runs exclusively: without per-process
    figures, memory is a sum over both, and tuning would run next to another process.
    """
    if stage.exclusive or len(runs) < 2:  # noqa: PLR2004 - sides
        return False
    alone = stage.kind is StageKind.ALONE and device_of(runs) == "cpu"
    return (stage.kind in UNTIMED or alone) and _has_room_for_two(runs, options)


def may_get_ready_at_once(runs: Sequence[SideRun], options: RunOptions) -> bool:
    """Return whether both sides may open, compile and warm up simultaneously.

    They may on the CPU with enough cores.
    """
    return len(runs) > 1 and device_of(runs) == "cpu" and _has_room_for_two(runs, options)


def _has_room_for_two(runs: Sequence[SideRun], options: RunOptions) -> bool:
    return options.overlap and has_cores_for_two(options, device=device_of(runs))
