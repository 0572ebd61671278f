"""How far a run is, and how long the rest will take."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ci_bench.records.config import RunOptions
from ci_bench.suites.contract import Stage, StageKind

USUAL_LAUNCHES = 3
"""The number of launches after which adaptive sampling has decided most cases of an unknown
machine.
"""
LEAST_STAGES = 3
"""The number of stages whose pace predicts the rest."""


def usual_launches(options: RunOptions) -> int:
    """Return the number of launches that adaptive sampling is expected to take."""
    return min(USUAL_LAUNCHES, options.max_launches)


def jobs(stage: Stage, sides: int) -> int:
    """Return the number of jobs in a stage with this many sides: one if they take turns."""
    return min(sides, 1) if stage.kind is StageKind.TIME else sides


@dataclass(kw_only=True, slots=True)
class Outlook:
    """The stages of a run that are finished and those that are expected."""

    sides: int
    """Number of sides."""
    launches: int = 1
    """Expected number of launches."""
    done: int = 0
    """Finished jobs of all sides."""
    total: int = 0
    """Finished and expected jobs of all sides."""
    _expected: list[StageKind] = field(default_factory=list, init=False)
    """The kinds of the stages that have not ended."""
    _openings: int = field(default=0, init=False)
    """The number of expected launches that have not started."""
    _took_s: dict[StageKind, list[float]] = field(default_factory=dict, init=False)
    """Durations of the stages that have run (s), by kind."""
    _opening_s: float = field(default=0.0, init=False)
    """Duration of the latest start of a launch's processes (s)."""

    def weight(self, stage: Stage) -> int:
        """Return the number of jobs in a stage."""
        return jobs(stage, self.sides)

    def expect(self, stages: Sequence[Stage], *, launches: int, later: int) -> None:
        """Expect these stages, in `launches` launches in all.

        `later` of the launches have not started.
        """
        self.launches, self._openings = launches, later
        self._expected = [stage.kind for stage in stages]
        self.total = self.done + sum(map(self.weight, stages))

    def skip(self, stage: Stage) -> None:
        """Count a stage as done that no one needs."""
        self.done += self.weight(stage)
        self.ended(stage, None)

    def opened(self, took_s: float) -> None:
        """Record how long the processes of a launch took to start (s)."""
        self._opening_s = took_s

    def ended(self, stage: Stage, took_s: float | None) -> None:
        """Record the duration of a stage (s), `None` if it did not run."""
        if stage.kind in self._expected:
            self._expected.remove(stage.kind)
        if took_s is not None:
            self._took_s.setdefault(stage.kind, []).append(took_s)

    def left_s(self, finished: str | None = None) -> float | None:
        """Return how long the rest will take (s); `None` if that is unknown.

        `finished` is the kind of a stage that has just ended and was not recorded yet.
        """
        durations_s = [took_s for every in self._took_s.values() for took_s in every]
        if len(durations_s) < LEAST_STAGES:
            return None
        kinds: list[StageKind] = list(self._expected)
        if finished in kinds:
            kinds.remove(StageKind(finished))
        return self._openings * self._opening_s + sum(
            self._usual_s(kind, durations_s) for kind in kinds
        )

    def _usual_s(self, kind: StageKind, durations_s: Sequence[float]) -> float:
        return fmean(self._took_s.get(kind) or durations_s)
