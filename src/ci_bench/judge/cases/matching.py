"""Which case of head stands against which of base, and on what ground: what can be compared, and what to say where nothing can.

Owns the matching of cases; that of metrics is in `lines`, and the words for both come from elsewhere.
"""

from dataclasses import dataclass, field
from functools import partial

from ci_bench.judge.cases.case_verdict import ending
from ci_bench.judge.cases.lines import TIMES, Ground, Keyed, Line, keyed, lines_of
from ci_bench.records.case import CaseResult, Metric, Status
from ci_bench.records.comparison import Verdict
from ci_bench.records.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A case of head's ledger with base's row of it; `usable` is that row if it can be compared with.

    `before` and `after` are the metrics of `usable` and of head.
    """

    base: CaseResult | None
    head: CaseResult
    usable: CaseResult | None
    new_reason: str
    before: Keyed
    after: Keyed
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Matching:
    """Puts the cases of both sides together.

    `barrier` names the fields in which the machines differ. `paired` says that times were measured in turns, and asks for finer
    thresholds; `thresholds` remembers them, for there are few of them and many metrics.
    """

    policy: Policy
    paired: bool
    has_base: bool
    barrier: str | None
    thresholds: dict[tuple[str, str, bool], float] = field(default_factory=dict)

    def matches(self, base: tuple[CaseResult, ...], head: tuple[CaseResult, ...]) -> list[Match]:
        """Head's ledger in its order."""
        before = {result.case.id: result for result in base}
        return [self._match(before.get(result.case.id), result) for result in head]

    def removed(self, base: tuple[CaseResult, ...], head: tuple[CaseResult, ...]) -> list[tuple[CaseResult, tuple[Line, ...]]]:
        """What only base has, with the lines that say so."""
        planned = {result.case.id for result in head}
        return [(result, self._lost(result)) for result in base if result.case.id not in planned]

    def _match(self, base: CaseResult | None, head: CaseResult) -> Match:
        usable = base if base and base.status is Status.OK else None
        new_reason = self._new_reason(base)
        ground = self._ground(usable, head, new_reason)
        before, after = keyed(usable.metrics if usable else ()), keyed(head.metrics)
        threshold = partial(self._threshold, head.case.suite)
        lines = tuple(lines_of(before, after, head, planned=base, ground=ground, threshold=threshold))
        return Match(base=base, head=head, usable=usable, new_reason=new_reason, before=before, after=after, lines=lines)

    def _lost(self, base: CaseResult) -> tuple[Line, ...]:
        ground = Ground(missing_reason="the case is not in this run")
        threshold = partial(self._threshold, base.case.suite)
        return tuple(lines_of(keyed(base.metrics), {}, base, planned=base, ground=ground, threshold=threshold))

    def _threshold(self, suite: str, metric: Metric) -> float:
        key = suite, metric.name, self.paired and metric.unit in TIMES
        if key not in self.thresholds:
            self.thresholds[key] = self.policy.threshold(suite=suite, metric=metric.name, paired=key[2])
        return self.thresholds[key]

    def _ground(self, usable: CaseResult | None, head: CaseResult, new_reason: str) -> Ground:
        barrier = (self.barrier or _other_options(usable, head)) if usable else None
        if head.status is Status.OK:
            return Ground(barrier=barrier, new_reason=new_reason)
        never_began = head.status in {Status.SKIPPED, Status.NOT_RUN}
        missing = Verdict.SKIPPED if never_began else Verdict.FAILED
        return Ground(barrier=barrier, new_reason=new_reason, missing=missing, missing_reason=ending(head))

    def _new_reason(self, base: CaseResult | None) -> str:
        if not self.has_base:
            return "no baseline"
        if base is None or base.status is Status.OK:
            return "not in the baseline"
        return f"the baseline's run of it ended {ending(base)}"


def _other_options(base: CaseResult, head: CaseResult) -> str | None:
    """Two cases of one id that were given other options are not the same measurement."""
    fields = sorted({*base.case.params, *head.case.params})
    differing = [field for field in fields if base.case.params.get(field) != head.case.params.get(field)]
    return f"the case's options differ: {', '.join(differing)}" if differing else None
