"""Decide if the next measurement still fits into a run's time. Reads a clock, measures nothing.

Nothing starts that is expected to end after the budget. A stage is expected to take as long as its
latest execution in this run. A case without any measurement yet is expected to take as long as in
an earlier run. Without either figure the expected time is 0. So a run exceeds its budget at most by
the time that its last stage takes longer than expected.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ci_bench.records.config import Explain, RunOptions
from ci_bench.records.open_cases import OpenCase
from ci_bench.records.results import Case
from ci_bench.suites.contract import ONCE, Cache, Stage, StageKind, Suite

Plan = tuple[tuple[Suite, Case], ...]
KEPT = 0.1
"""The share of a budget that is set aside for explaining, if `run.explain_s` is not less."""
NOTHING_ASKED: Mapping[str, OpenCase] = MappingProxyType({})
WRITING_EVERY = 20.0
"""The waiting time before results are written again, as a multiple of the last write's duration.

That is at most 5 % of a run.
"""


@dataclass(kw_only=True, slots=True)
class ColdCompilations:
    """The cold compilations of a run.

    Those after the first of each stage may take `limit_s` seconds a case.

    `taken` holds the seconds that each cold stage took so far, all sides and launches together, and
    how often it ran.
    """

    limit_s: float
    taken: dict[tuple[str, Stage], tuple[float, int]] = field(default_factory=dict)

    def may_repeat(self, case: Case, stage: Stage) -> bool:
        """Return whether one more repeat, as long as the earlier ones, fits into the limit.

        A stage that does not compile cold always fits.
        """
        spent_s, times = self.taken.get((case.id, stage), (0.0, 0))
        if stage.cache is not Cache.COLD or not times:
            return True
        repeated_s = sum(
            of - of / count for (name, _), (of, count) in self.taken.items() if name == case.id
        )
        return repeated_s + spent_s / times <= self.limit_s

    def note(self, case: Case, stage: Stage, took_s: float) -> None:
        """Add a stage's duration on all sides, if it compiles cold."""
        if stage.cache is Cache.COLD:
            spent_s, times = self.taken.get((case.id, stage), (0.0, 0))
            self.taken[case.id, stage] = spent_s + took_s, times + 1


@dataclass(kw_only=True, slots=True)
class Budget:
    """The time of one run."""

    limit_s: float | None
    """Time of the whole run (s); `None`: everything fits."""
    clock: Callable[[], float]
    """Gives seconds; monotonic."""
    usual_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Seconds of a case's first launch in an earlier run, by id: of one-off work, and of all."""
    since: float = 0.0
    """Time when the device was locked, by `clock` (s)."""
    start_s: float = 0.0
    """Time before the first case of the latest launch (s)."""
    kept_s: float = 0.0
    """Time that is left for explaining (s)."""
    took_s: dict[tuple[str, Stage], float] = field(default_factory=dict)
    """Latest duration of each stage of a case (s)."""

    @property
    def left_s(self) -> float:
        """Return the seconds that are left for measuring, infinitely many without a limit."""
        return max(0.0, self.left_to_explain_s - self.kept_s)

    @property
    def left_to_explain_s(self) -> float:
        """Return the seconds that are left in all."""
        return (
            math.inf
            if self.limit_s is None
            else max(0.0, self.limit_s - (self.clock() - self.since))
        )

    @property
    def is_spent(self) -> bool:
        """Return whether no time is left."""
        return not self.fits(0.0)

    def fits(self, expected_s: float) -> bool:
        """Return whether work that is expected to take this long ends within the budget."""
        return (
            self.limit_s is None
            or self.clock() - self.since + expected_s <= self.limit_s - self.kept_s
        )

    def expected_s(self, case: Case, stages: Iterable[Stage]) -> float:
        """Return how long stages of a case take, as far as this run has executed them."""
        return sum(self.took_s.get((case.id, stage), 0.0) for stage in stages)

    def refuse_first(self, case: Case, stage: Stage) -> str:
        """Return why a case's first launch is not started with this stage; empty if it may be.

        It needs the time of what is done once, or, if that is done, the rest.
        """
        once_s, whole_s = self.usual_s.get(case.id, (0.0, 0.0))
        usual_s = once_s if stage.kind in ONCE else whole_s - once_s
        if self.is_spent or not usual_s:
            return self.refuse(0.0)
        return self.refuse(usual_s, f"this case took {usual_s:.3g} s in the previous run")

    def refuse(self, expected_s: float, takes: str = "") -> str:
        """Return why work of this expected duration is not started; empty if it may be."""
        if self.fits(expected_s):
            return ""
        if not takes:
            return (
                f"the budget of {self.limit_s:g} s was spent before this stage; raise run.budget_s"
            )
        return (
            f"of the budget of {self.limit_s:g} s {self.left_s:.3g} s were left, and {takes}; raise"
            " run.budget_s"
        )

    def share_s(self, cases: int) -> float:
        """Return the time for one launch of each case, if every case may need another one later."""
        return self.left_s / (2 * max(1, cases))

    def affordable(
        self,
        plan: Plan,
        stages_of: Callable[[Suite, Case], Sequence[Stage]],
        open_cases: Mapping[str, OpenCase] = NOTHING_ASKED,
    ) -> Plan:
        """Return the cases of a further launch that fit into the time left, in the order given.

        If not all fit, cases that look worse come first, because their verdicts matter most: time
        is set aside for all launches that decide one (`OpenCase.worse`). Cases whose verdicts no
        longer fit count as all others, and of these the fastest are taken: more cases can then be
        decided.
        """
        if self.limit_s is None:
            return plan
        left_s = self.limit_s - self.kept_s - (self.clock() - self.since)
        launch_s = {case.id: self.expected_s(case, stages_of(suite, case)) for suite, case in plan}
        chosen: set[str] = set()
        starts = 0
        for name, launches in _most_telling_first(launch_s, open_cases):
            takes_s = launches * launch_s[name] + max(0, launches - starts) * self.start_s
            if name not in chosen and takes_s <= left_s:
                left_s -= takes_s
                starts = max(starts, launches)
                chosen.add(name)
        return tuple((suite, case) for suite, case in plan if case.id in chosen)


def _most_telling_first(
    launch_s: Mapping[str, float], open_cases: Mapping[str, OpenCase]
) -> Iterator[tuple[str, int]]:
    """Yield cases with their number of launches to fit: those that look worse, then all once."""
    worse = [
        (name, open_cases[name].worse)
        for name in launch_s
        if name in open_cases and open_cases[name].worse
    ]
    yield from sorted(worse, key=lambda pair: pair[1] * launch_s[pair[0]])
    yield from ((name, 1) for name in sorted(launch_s, key=launch_s.__getitem__))


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """The time of the last write of results, and how long it took (s)."""

    ended: float = -math.inf
    took_s: float = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether another write costs little compared with the latest measurements."""
        return now - self.ended >= WRITING_EVERY * self.took_s


def kept_for_explaining(plan: Plan, options: RunOptions) -> float:
    """Return the seconds of a run's budget that measuring leaves for explaining.

    0 if no case can be explained.
    """
    if options.budget_s is None or options.explain is Explain.NEVER:
        return 0.0
    timed = any(
        stage.kind is StageKind.TIME for suite, case in plan for stage in suite.stages(case)
    )
    return min(options.explain_s, KEPT * options.budget_s) if timed else 0.0


def rounds(
    plan: Plan, *, budgeted: bool
) -> Iterator[tuple[int, Suite, Case, Callable[[Stage], bool]]]:
    """Yield the cases of a launch with the stages that are due.

    Without a budget all stages of a case are due, one case after the other. With a budget, parity
    comes first: every case is verified before one is timed, and peaks of memory are not due yet.
    The number is how many cases are ahead in this round, including this one.
    """
    due: tuple[Callable[[Stage], bool], ...] = (
        (_is_done_once, _is_timed) if budgeted else (lambda _: True,)
    )
    for is_due in due:
        for number, (suite, case) in enumerate(plan):
            yield len(plan) - number, suite, case, is_due


def _is_done_once(stage: Stage) -> bool:
    return stage.kind in ONCE


def _is_timed(stage: Stage) -> bool:
    return not _is_done_once(stage) and not can_wait(stage)


def can_wait(stage: Stage) -> bool:
    """Return whether a stage may wait until all cases were verified and timed.

    Only a peak of memory of the first launch may. A compilation from cold may not: the clock's own
    programs compile from what it leaves in the cache.
    """
    return stage.launches is not None and stage.kind not in ONCE
