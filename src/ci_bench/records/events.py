"""Events of a run, for a display while it measures: the stage that runs, and how far it is."""

from dataclasses import dataclass

from ci_bench.records.results import SideName


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Progress of a stage."""

    arm: str
    """The arm at work."""
    done: int
    """Finished samples or steps."""
    total: int
    """Samples or steps in all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Progress of a run, for a display."""

    case: str
    """Id of the case."""
    stage: str
    """The stage."""
    arms: tuple[str, ...]
    """Its arms."""
    launch: int
    """The number of the launch, from 0."""
    launches: int
    """Launches in all."""
    done: int
    """Finished stages."""
    total: int
    """Stages in all."""
    sides: tuple[SideName, ...] = ()
    """Sides whose code runs; empty if there is one."""
    left_s: float | None = None
    """Estimate of the seconds that the run still takes; `None` if unknown."""
    progress: Progress | None = None
    """Progress of this stage; `None` if unknown."""
    ended: str | None = None
    """Status that the stage ended with; `None` while it runs."""
