"""Where the wall time of a run went, for `show --time`: by stage and phase, of base and head, and which share of it was samples.

Samples are what figures come from; processes that start, compile, warm up and check serve them. Where both sides work at once,
their seconds pass at the same time, so that all together can be more than the clock's.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from ci_bench.records.results import Phase, Results, Spent

_PHASES = {
    Phase.START: "starting processes",
    Phase.PREPARE: "preparing data",
    Phase.BUILD: "building",
    Phase.COMPILE: "compiling",
    Phase.WARM_UP: "warming up",
    Phase.SAMPLES: "samples",
    Phase.HAND_OVER: "handing over",
    Phase.CHECKS: "checking results",
    Phase.JUDGE: "judging",
    Phase.WRITE: "writing documents",
}
_STAGES = {"launch": "between cases", "alone": "memory, compiling", "verify": "verification", "time": "timing"}
_BAR = 16
"""Characters of the longest; with the names before it a row fits into 80."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeSpent:
    """Seconds of each side by stage and phase, longest first; `wall_s` by the clock, 0 where nobody noted it."""

    rows: tuple[tuple[str, str, tuple[float, ...]], ...]
    wall_s: float
    sampled_s: float

    @property
    def useful(self) -> float | None:
        """The share of the wall time that was samples; `None` where the wall time is not known."""
        return self.sampled_s / self.wall_s if self.wall_s else None


def time_spent(sides: Sequence[Results]) -> TimeSpent:
    """Sum what the cases of each side took, and what went to none."""
    sums: dict[tuple[str, Phase], list[float]] = defaultdict(lambda: [0.0] * len(sides))
    for place, results in enumerate(sides):
        for one in _every(results):
            sums[one.stage, one.phase][place] += one.seconds
    longest = sorted(sums.items(), key=lambda entry: -sum(entry[1]))
    return TimeSpent(
        rows=tuple((_STAGES.get(stage, stage), _PHASES[phase], tuple(seconds)) for (stage, phase), seconds in longest),
        wall_s=max((results.measured_s or 0.0 for results in sides), default=0.0),
        sampled_s=sum(one.seconds for results in sides for one in _every(results) if _is_sample(one)),
    )


def print_time(names: Sequence[str], spent: TimeSpent, console: Console) -> None:
    """A table with a bar for each row, and the useful share under it."""
    if not spent.rows:
        console.print("These results don't say where the time went: they are of an earlier ci-bench, or of another tool.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for title in ("Stage", "Phase", *(f"{name} (s)" for name in names), ""):
        table.add_column(title, justify="right" if title.endswith("(s)") else "left", no_wrap=True)
    longest = max(sum(seconds) for _, _, seconds in spent.rows) or 1.0
    for stage, phase, seconds in spent.rows:
        bar = "█" * round(_BAR * sum(seconds) / longest)
        table.add_row(stage, phase, *(f"{one:.1f}" for one in seconds), bar)
    console.print(table)
    if spent.useful is not None:
        console.print(f"{spent.wall_s:.1f} s in all, of which {spent.sampled_s:.1f} s ({spent.useful:.0%}) are samples of steps")


def _every(results: Results) -> list[Spent]:
    return [*results.spent, *(one for row in results.cases for one in row.spent)]


def _is_sample(spent: Spent) -> bool:
    """Of what is timed in turns, and of what measures itself; peaks and compile latencies are of few calls."""
    return spent.phase is Phase.SAMPLES and spent.stage in {"time", "run"}
