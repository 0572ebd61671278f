"""What a display is told while measuring goes on."""

from dataclasses import dataclass

from ci_bench.records.case import SideName


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a stage has come: `done` of `total` samples or steps of `arm`."""

    arm: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Which stage of which case, how many of all stages are done, how far this one has come.

    `sides` says whose code it is, where there are two. `ended` is the status a stage ended with, `None` while it goes on.
    Launches count from 0.
    """

    case: str
    stage: str
    arms: tuple[str, ...]
    launch: int
    launches: int
    done: int
    total: int
    sides: tuple[SideName, ...] = ()
    progress: Progress | None = None
    ended: str | None = None
