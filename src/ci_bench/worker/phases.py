"""Sum the seconds of one stage by phase, as its worker reports them.

For the reader: verdicts do not depend on them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ci_bench.records.results import Phase, Spent
from ci_bench.worker.fence import Reader, reader


@dataclass(slots=True)
class Stopwatch:
    """Sums the seconds of phases; `now` is the worker's clock."""

    now: Reader = field(default_factory=reader)
    _spent: dict[tuple[Phase, str], float] = field(default_factory=dict)

    @contextmanager
    def phase(self, phase: Phase, arm: str = "") -> Iterator[None]:
        """Count the block as this phase, of one arm if given."""
        begun = self.now()
        try:
            yield
        finally:
            self.add(phase, arm, self.now() - begun)

    def add(self, phase: Phase, arm: str, seconds: float) -> None:
        """Add seconds to a phase."""
        self._spent[phase, arm] = self._spent.get((phase, arm), 0.0) + seconds

    def read(self, stage: str) -> tuple[Spent, ...]:
        """Return the seconds spent so far, under a stage's name."""
        return tuple(
            Spent(stage=stage, phase=phase, arm=arm, seconds=round(max(0.0, seconds), 4))
            for (phase, arm), seconds in self._spent.items()
        )


def whole(
    stage: str, reported: Sequence[Spent], *, rest: Phase, seconds: float
) -> tuple[Spent, ...]:
    """Return a stage's seconds by phase, as its worker reported them.

    The phase `rest` has the remainder. Impossible entries, phases longer than the stage or of
    another one, are dropped: a worker runs code that may report anything.
    """
    inside = sum(entry.seconds for entry in reported)
    if (
        any(entry.stage != stage or entry.seconds < 0 for entry in reported)
        or not inside <= seconds * 1.01
    ):
        reported, inside = (), 0.0
    return add_up(
        (*reported, Spent(stage=stage, phase=rest, arm="", seconds=max(0.0, seconds - inside)))
    )


def add_up(spent: Sequence[Spent]) -> tuple[Spent, ...]:
    """Return one entry for each stage, phase and arm, in the order of their first appearance.

    Seconds are rounded to a tenth of a millisecond.
    """
    sums: dict[tuple[str, Phase, str], float] = {}
    for entry in spent:
        key = entry.stage, entry.phase, entry.arm
        sums[key] = sums.get(key, 0.0) + entry.seconds
    return tuple(
        Spent(stage=stage, phase=phase, arm=arm, seconds=round(seconds, 4))
        for (stage, phase, arm), seconds in sums.items()
    )
