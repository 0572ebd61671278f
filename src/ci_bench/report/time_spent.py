"""Wall time of a run: by stage and phase, of base and head, and the share of samples.

Samples are what figures come from; processes that start, compile, warm up and check serve them. If
both sides work simultaneously, their seconds overlap, and their sum can exceed the clock's.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci_bench.records.results import Phase, Results, Spent

_PHASES = {
    Phase.START: "starting processes",
    Phase.PREPARE: "preparing data",
    Phase.BUILD: "building",
    Phase.COMPILE: "compiling",
    Phase.WARM_UP: "warming up",
    Phase.SAMPLES: "samples",
    Phase.HAND_OVER: "handing over",
    Phase.EXPLAIN: "explaining",
    Phase.CHECKS: "checking results",
    Phase.JUDGE: "judging",
    Phase.WRITE: "writing documents",
}
_STAGES = {
    "launch": "between cases",
    "ahead": "alongside other work",
    "alone": "memory, compiling",
    "size": "largest batch",
    "verify": "verification",
    "time": "timing",
}
_SAMPLES = (_STAGES["time"], _PHASES[Phase.SAMPLES])


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeSpent:
    """Seconds of each side by stage and phase, longest first.

    `wall_s` is by the clock, 0 if it was not recorded.
    """

    rows: tuple[tuple[str, str, tuple[float, ...]], ...]
    wall_s: float
    sampled_s: float

    @property
    def useful(self) -> float | None:
        """Return the share of samples in the wall time; `None` if the wall time is unknown."""
        return self.sampled_s / self.wall_s if self.wall_s else None

    @property
    def share(self) -> str:
        """Describe the share of samples; empty if the wall time is unknown.

        An example is ``104.9 s in all, of which 19.8 s (19%) are samples of steps``.
        """
        if self.useful is None:
            return ""
        return (
            f"{self.wall_s:.1f} s in all, of which {self.sampled_s:.1f} s ({self.useful:.0%}) are"
            " samples of steps"
        )

    def parts(self, most: int) -> tuple[tuple[str, float], ...]:
        """Return the seconds of all sides together, samples first, then the longest.

        Beyond `most` parts, the last one is the rest.
        """
        ordered = sorted(self.rows, key=lambda row: row[:2] != _SAMPLES)
        totals = [(f"{stage}: {phase}", sum(seconds)) for stage, phase, seconds in ordered]
        longest, rest = (
            (totals, []) if len(totals) <= most else (totals[: most - 1], totals[most - 1 :])
        )
        return (*longest, *((("the rest", sum(seconds for _, seconds in rest)),) if rest else ()))


def sides_of(base: Results | None, head: Results) -> Mapping[str, Results]:
    """Return the sides of one run: a base of another run has another clock."""
    return (
        {"base": base, "head": head}
        if base is not None and base.run.id == head.run.id
        else {"head": head}
    )


def time_spent(sides: Sequence[Results]) -> TimeSpent:
    """Sum the seconds of each side, within its cases and outside of them."""
    sums: dict[tuple[str, Phase], list[float]] = defaultdict(lambda: [0.0] * len(sides))
    for place, results in enumerate(sides):
        for spent in _every(results):
            sums[spent.stage, spent.phase][place] += spent.seconds
    longest = sorted(sums.items(), key=lambda entry: -sum(entry[1]))
    return TimeSpent(
        rows=tuple(
            (_STAGES.get(stage, stage), _PHASES[phase], tuple(seconds))
            for (stage, phase), seconds in longest
        ),
        wall_s=max((results.measured_s or 0.0 for results in sides), default=0.0),
        sampled_s=sum(
            spent.seconds for results in sides for spent in _every(results) if _is_sample(spent)
        ),
    )


def _every(results: Results) -> list[Spent]:
    return [*results.spent, *(spent for row in results.cases for spent in row.spent)]


def _is_sample(spent: Spent) -> bool:
    """Return whether it is timed in turns, or measures itself.

    Peaks and compile latencies have only a few calls.
    """
    return spent.phase is Phase.SAMPLES and spent.stage in {"time", "run"}
