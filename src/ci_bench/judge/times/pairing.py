"""Pairing of two documents: which case, arm and metric are compared, and reasons if none can be.

Owns the matching of cases and metrics, the answer for one line and for several, the word for a case
as a whole with the order of verdicts, and which metrics can fail a run. Nothing is compared here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from statistics import median
from typing import NamedTuple

from ci_bench.judge import wording
from ci_bench.judge.owed import changed_parameters, have_other_inputs
from ci_bench.judge.times.ratios import Known, Series, describe
from ci_bench.judge.times.suspicion import Suspicion
from ci_bench.judge.wording import change_size, count_of, place
from ci_bench.records.comparison import CommonShift, Interval, Pair, Pairing, SpeedupChange, Verdict
from ci_bench.records.config import PROCESS_PEAKS, MetricPolicy, Policy
from ci_bench.records.labels import DOING
from ci_bench.records.metrics import (
    COMPILE_COLD,
    ENGINE,
    IMPORTED,
    LEAST_BYTES,
    REPLACED,
    STEP_TIME,
    MetricKind,
)
from ci_bench.records.open_cases import SeriesName
from ci_bench.records.results import (
    GRAPHED,
    LARGEST_BATCH,
    Better,
    CaseResult,
    Lane,
    Metric,
    Outcome,
    Results,
    Status,
    Unit,
    has_samples,
)
from ci_bench.records.units import TIMES

LEAST_TIME_S = 0.005
"""Shorter times are hyperfine's own error, as it says itself; it takes off what a shell needs, and
prints 0 for less.
"""
OTHER_BODY = "the benchmark's own code changed, as its tool says, so it measures something else"
NOTHING = (
    "has values of 0 next to others, which have no ratio: let each run do more work, such as"
    " several rounds"
)
_EXACT = frozenset({Unit.COUNT, Unit.BYTES})
_FIELDS = ("unit", "better", "lane")

Keyed = dict[SeriesName, tuple[Metric, ...]]
Rules = Callable[[Metric], MetricPolicy]


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseGround:
    """Context shared by all lines of one case."""

    missing: Verdict = Verdict.REMOVED
    """Verdict on a metric that only base has."""
    missing_reason: str = "was measured in the baseline and is missing now"
    """Reason of that verdict."""
    saved: bool = False
    """True if base was measured in a separate run, maybe by an earlier version."""
    new_reason: str = "not in the baseline"
    """Reason why a metric that only head has is new."""
    barrier: str | None = None
    """Reason why nothing can be compared; `None` without one."""
    ended: bool = False
    """True if no launch follows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One metric of one arm, on both sides.

    A side has it at most once, or more often by a fault of the document; at least one side has it.
    """

    case: str
    """Id of the case."""
    suite: str
    """Suite of the case, whose policy applies."""
    reference: str
    """Reference arm of the case."""
    metric: Metric
    """Head's metric, or base's if head has none."""
    base: tuple[Metric, ...]
    """Metrics of that name and arm on base; empty if base has none."""
    head: tuple[Metric, ...]
    """The same on head; empty if head has none."""
    threshold: float
    """Smallest relative change that counts."""
    ground: CaseGround
    """Context of the case."""
    detail: bool
    """True if the metric fails nothing."""
    title: str = ""
    """Name of the metric for people."""
    least: float = LEAST_BYTES
    """Smallest difference of memory that counts, in bytes."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return case, metric and arm."""
        return self.case, self.metric.name, self.metric.arm

    @property
    def timed(self) -> bool:
        """Return whether it is a time or a rate, and so never exact."""
        return self.metric.unit in TIMES


def keyed(metrics: Iterable[Metric]) -> Keyed:
    """Group metrics by name and arm.

    A metric without any sample counts as absent: emptying a series must not hide its loss.
    """
    groups: Keyed = {}
    for metric in metrics:
        if has_samples(metric.launches):
            key = _series(metric.name, metric.arm)
            groups[key] = (*groups.get(key, ()), metric)
    return groups


@lru_cache(maxsize=10_000)
def _series(name: str, arm: str) -> SeriesName:
    """Return the same object for all cases: there are few names and many metrics."""
    return name, arm


def lines_of(
    before: Keyed,
    after: Keyed,
    head: CaseResult,
    *,
    planned: CaseResult | None,
    ground: CaseGround,
    rules: Rules,
) -> Iterator[Line]:
    """Yield the lines of a case: head's metrics (`after`), then those that only `before` has.

    `planned` is base's row of the case, also where nothing of it can be compared. A metric fails
    nothing that the case names as a detail, that is shown only, or that was read from the device's
    clock; but head cannot take one out of the gate that was in it, nor one that either side owes.
    """
    case = head.case
    cases = [case, planned.case] if planned else [case]
    owed = {arm: times_owed(head, planned, arm) for arm in {arm for _, arm in (*before, *after)}}
    details = set.intersection(*({*side.details} for side in cases))
    requested = min((side.threshold for side in cases if side.threshold is not None), default=None)
    for key in after if after.keys() == before.keys() else dict.fromkeys([*after, *before]):
        base_side, head_side = before.get(key, ()), after.get(key, ())
        successor = _successor(key, before, after) if ground.saved else None
        metric = (head_side or base_side)[0]
        rule = rules(metric)
        threshold = _threshold(rule, metric, requested)
        yield Line(
            case=case.id,
            suite=case.suite,
            reference=case.reference,
            metric=metric,
            base=base_side,
            head=head_side,
            threshold=threshold,
            ground=(
                ground
                if successor is None
                else replace(ground, missing_reason=f"{successor.title} took its place")
            ),
            detail=successor is not None
            or (ground.ended and _compiled_once(base_side, head_side, threshold))
            or (
                key[0] not in owed[key[1]]
                and (
                    key[0] in details or not rule.gates or _by_device(metric, base_side, head_side)
                )
            ),
            title=_title(rule, metric),
            least=_least(rule, metric, (*base_side, *head_side)),
        )


def _least(rule: MetricPolicy, metric: Metric, sides: Sequence[Metric]) -> float:
    """Return the policy's least difference, or 0 for peaks that are too small for a process.

    Peaks of an operator or an allocator repeat exactly.
    """
    if (
        metric.unit is not Unit.BYTES
        or metric.name in ENGINE
        or not PROCESS_PEAKS.search(metric.name)
    ):
        return rule.least
    smallest = min(
        (value for side in sides for launch in side.launches for value in launch.values),
        default=LEAST_BYTES,
    )
    return rule.least if smallest >= LEAST_BYTES else 0.0


def _compiled_once(base: tuple[Metric, ...], head: tuple[Metric, ...], threshold: float) -> bool:
    """Return whether each side compiled from cold once, and head not slower beyond the threshold.

    One compilation decides nothing: where the budget allows no second one, it is shown only, unless
    it looks slower.
    """
    if not base or not head or head[0].name != COMPILE_COLD.name:
        return False
    times = [
        [value for metric in side for launch in metric.launches for value in launch.values]
        for side in (base, head)
    ]
    return all(len(values) == 1 for values in times) and times[1][0] <= times[0][0] * (
        1 + threshold
    )


def _threshold(rule: MetricPolicy, metric: Metric, requested: float | None) -> float:
    """Return the policy's threshold, or for times the `requested` one if that is less.

    It comes from the cases of both sides, so head cannot loosen base's.
    """
    return (
        rule.threshold
        if requested is None or metric.unit not in TIMES
        else min(rule.threshold, requested)
    )


def times_owed(head: CaseResult, base: CaseResult | None, arm: str) -> tuple[str, ...]:
    """Return the times that an arm owes by either side's case: head cannot owe less than base.

    A step that head replayed from a CUDA graph has no parts, so a case that owes parts owes the
    entire step instead.
    """
    owed = tuple(
        dict.fromkeys(
            name for side in (head, base) if side is not None for name in side.case.due.times
        )
    )
    replayed = any(
        (check.name, check.arm, check.outcome) == (GRAPHED, arm, Outcome.PASS)
        for check in head.checks
    )
    return (STEP_TIME.name,) if owed and replayed else owed


def _successor(key: SeriesName, before: Keyed, after: Keyed) -> MetricKind | None:
    """Return head's successor of a metric that only base has, as measured by this version."""
    name, arm = key
    kind = REPLACED.get(name)
    if kind is None or key in after or (kind.name, arm) in before or (kind.name, arm) not in after:
        return None
    return kind


def _title(rule: MetricPolicy, metric: Metric) -> str:
    """Return the declared title, or the measuring tool's name for an undeclared metric."""
    return metric.title if metric.title and rule.title == metric.name else rule.title


def _by_device(metric: Metric, base: tuple[Metric, ...], head: tuple[Metric, ...]) -> bool:
    """Return whether a metric was read from the device's clock on every side that has it.

    Only the host's gates.
    """
    return metric.lane is Lane.DEVICE and all(other.lane is Lane.DEVICE for other in (*base, *head))


def known_of(lines: Iterable[Line]) -> Known:
    """Collect the facts of all series of the lines."""
    return describe(
        metric.launches for line in lines for side in (line.base, line.head) for metric in side
    )


def lines_of_both(
    base: Results, head: Results, rules: Callable[[str, Metric], MetricPolicy]
) -> list[Line]:
    """Return all comparable metrics that both sides have, for any outcome of their cases.

    `rules` returns the settings of a metric of a suite.
    """
    before = {result.case.id: result for result in base.cases}
    lines: list[Line] = []
    for head_row in head.cases:
        if base_row := before.get(head_row.case.id):
            sides = keyed(base_row.metrics), keyed(head_row.metrics)
            of = partial(rules, head_row.case.suite)
            lines += lines_of(*sides, head_row, planned=base_row, ground=CaseGround(), rules=of)
    facts = known_of(lines)
    return [line for line in lines if settled(line, facts) is None]


def times_of_both(base: Results, head: Results) -> list[Line]:
    """Return the times among `lines_of_both`, without thresholds."""
    return [
        line
        for line in lines_of_both(base, head, lambda _, __: MetricPolicy(threshold=0.0))
        if line.timed
    ]


def settled(line: Line, facts: Known) -> tuple[Verdict, str] | None:
    """Return verdict and reason of a line with nothing to compare; `None` if there is something."""
    if line.ground.barrier:
        return Verdict.INCOMPARABLE, line.ground.barrier
    if not line.head:
        return line.ground.missing, line.ground.missing_reason
    if not line.base:
        return Verdict.NEW, line.ground.new_reason
    if len(line.base) > 1 or len(line.head) > 1:
        return Verdict.INCONCLUSIVE, "the document holds this metric twice"
    return _unusable(line.base[0], line.head[0], facts, foreign=line.suite == IMPORTED)


def _unusable(
    base: Metric, head: Metric, facts: Known, *, foreign: bool
) -> tuple[Verdict, str] | None:
    if base.unit != head.unit or base.better != head.better or base.lane != head.lane:
        differing = [field for field in _FIELDS if getattr(base, field) != getattr(head, field)]
        return Verdict.INCOMPARABLE, f"base and head differ in {', '.join(differing)}"
    if base.unscaled != head.unscaled:
        units = " and ".join(metric.unscaled or "another" for metric in (base, head))
        return Verdict.INCOMPARABLE, f"base and head differ in unit ({units}): convert one of them"
    if foreign and (verdict := _from_or_to_nothing(base, head, facts)):
        return verdict
    for side, metric in (("base", base), ("head", head)):
        series = facts[id(metric.launches)]
        if series.sound:
            continue
        exact = metric.unit in _EXACT and single(metric, facts)
        signed = metric.unit is Unit.COUNT and metric.name not in ENGINE
        if wrong := series.fault(zero_allowed=exact, signed=signed):
            none = foreign and not series.odd and series.least == 0
            return Verdict.INCONCLUSIVE, f"{side} {NOTHING if none else f'{wrong}: measure again'}"
    return None


def _from_or_to_nothing(base: Metric, head: Metric, facts: Known) -> tuple[Verdict, str] | None:
    """Return the verdict if another tool measured zero on a side.

    A ratio does not exist then, and a value that appears or vanishes is a change.

    Counts are compared directly. The engine's metrics have their own rules: a time of its clock
    cannot be zero.
    """
    sides = [facts[id(metric.launches)] for metric in (base, head)]
    if head.unit is Unit.COUNT or all(side.sound for side in sides):
        return None
    if any(side.odd or side.least < 0 or not any(side.sizes) for side in sides):
        return None
    values = [
        [value for launch in metric.launches for value in launch.values] for metric in (base, head)
    ]
    before, after = (any(side) for side in values)
    if not before and not after:
        nothing = Verdict.UNCHANGED if head.unit is Unit.BYTES else Verdict.INCONCLUSIVE
        return nothing, (
            "0 on both sides"
            if head.unit is Unit.BYTES
            else "0 on both sides: less than the tool can show"
        )
    return _of_nothing(values, head) if before != after and all(values[after]) else None


def _of_nothing(values: Sequence[Sequence[float]], head: Metric) -> tuple[Verdict, str]:
    """Return verdict and reason if only one side's values are all zero."""
    reason = " to ".join(wording.quantity(median(side), head.unit) for side in values)
    if head.unit is Unit.SECONDS and max(map(median, values)) < LEAST_TIME_S:
        return (
            Verdict.INCONCLUSIVE,
            f"{reason}: no more than what tools take off for starting a program",
        )
    appeared = any(values[1])
    return (
        Verdict.REGRESSED if appeared == (head.better is Better.LOWER) else Verdict.IMPROVED
    ), reason


def is_exact(line: Line, facts: Known) -> bool:
    """Return whether a line with both sides is compared exactly.

    That is a count, or peaks of one value per launch.
    """
    if line.metric.unit is Unit.COUNT:
        return True
    return line.metric.unit is Unit.BYTES and all(
        single(side[0], facts) for side in (line.base, line.head)
    )


def single(metric: Metric, facts: Known) -> bool:
    """Return whether a metric has one value per launch, or is a count, which is exact."""
    return metric.unit is Unit.COUNT or facts[id(metric.launches)].single


def oriented(base: Metric, head: Metric) -> tuple[Series, Series]:
    """Return numerator and denominator of the speedup of head over base."""
    if head.better is Better.LOWER:
        return base.launches, head.launches
    return head.launches, base.launches


class MetricVerdict(NamedTuple):
    """Verdict on one metric of one arm and its reason; the figures and `possible` are in `Pair`.

    A tuple takes half the time of a dataclass, and one is created for each metric.
    """

    verdict: Verdict
    reason: str
    speedup: float | None = None
    interval: Interval | None = None
    calibrated: bool | None = None
    noise: float | None = None
    resolvable: float | None = None
    q: float | None = None
    possible: bool = False
    needed: float | None = None
    estimates: tuple[float, float] | None = None


def undecided(
    suspicion: Suspicion, *, change: str, advice: str, speedup: float | None
) -> MetricVerdict:
    """Judge a line with too few launches to decide: suspected, or inconclusive.

    `advice` says what would decide it.
    """
    doubt = wording.doubt(
        suspected=suspicion is Suspicion.SUSPECTED, possible=suspicion is Suspicion.POSSIBLE
    )
    return MetricVerdict(
        verdict=Verdict.SUSPECTED if suspicion is Suspicion.SUSPECTED else Verdict.INCONCLUSIVE,
        reason=f"{change}; {doubt}{advice}" if suspicion else advice,
        speedup=speedup,
        possible=suspicion is Suspicion.POSSIBLE,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedTimes:
    """Verdicts of lines, in order, to be iterated once, and the findings over all of them.

    `changes` has by case, then by metric and arm, the change of that arm's speedup by head.
    """

    outcomes: Iterable[MetricVerdict]
    shifts: tuple[CommonShift, ...] = ()
    pairing: Pairing | None = None
    changes: Mapping[str, Mapping[SeriesName, SpeedupChange]] = field(default_factory=dict)


WORST_FIRST = (
    Verdict.FAILED,
    Verdict.REGRESSED,
    Verdict.SUSPECTED,
    Verdict.REMOVED,
    Verdict.INCOMPARABLE,
    Verdict.INCONCLUSIVE,
    Verdict.IMPROVED,
    Verdict.UNCHANGED,
    Verdict.NEW,
    Verdict.SKIPPED,
)
"""A case takes the first of these that one of its pairs has.

Measured regressions come before removed metrics, and those before undecided ones, so no better pair
hides them. Improved comes before unchanged because one changed metric is the news; new comes last
because a metric added to a case says nothing about the rest.
"""


def case_verdict(
    base: CaseResult | None, head: CaseResult, pairs: Sequence[Pair], new_reason: str
) -> tuple[Verdict, str]:
    """Return the verdict on a case and its reason.

    A status other than ok decides first, then missing metrics, then a missing base, then the worst
    pair. `new_reason` is why there is nothing to compare with.
    """
    if head.status is not Status.OK:
        never_began = head.status in {Status.SKIPPED, Status.NOT_RUN}
        return Verdict.SKIPPED if never_began else Verdict.FAILED, ending(head)
    if not pairs and head.parity is None:
        return Verdict.FAILED, "it ended ok, but nothing was measured"
    if gaps := [pair for pair in pairs if pair.verdict is Verdict.FAILED and not pair.detail]:
        return Verdict.FAILED, _worst_reason(gaps)
    if base is None or base.status is not Status.OK:
        return Verdict.NEW, new_reason
    if not pairs:
        return Verdict.INCONCLUSIVE, "no metric on either side"
    judged = [pair for pair in pairs if not pair.detail] or pairs
    worst = min((pair.verdict for pair in judged), key=WORST_FIRST.index)
    return worst, _worst_reason([pair for pair in judged if pair.verdict is worst])


def ending(result: CaseResult) -> str:
    """Describe how a case ended: ``timeout in train (inductor): no answer for 1800 s``."""
    word = result.status.value.replace("_", " ")
    if result.failure is None:
        return word
    arms = f" ({', '.join(result.failure.arms)})" if result.failure.arms else ""
    return f"{word} {_while(result.failure.stage)}{arms}: {result.failure.reason}"


def _while(stage: str) -> str:
    return f"while {DOING[stage]}" if stage in DOING else f"in stage {stage}"


def _worst_reason(pairs: Sequence[Pair]) -> str:
    largest = max(pairs, key=change_size)
    word = "undecided" if largest.verdict is Verdict.INCONCLUSIVE else largest.verdict.value
    others = f"; {count_of(len(pairs) - 1, 'metric')} more {word}" if len(pairs) > 1 else ""
    return f"{place(largest)}: {largest.reason}{others}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A case of head with base's row of it."""

    base: CaseResult | None
    """Base's row; `None` if base does not have the case."""
    head: CaseResult
    """Head's row."""
    usable: CaseResult | None
    """Base's row if head can be compared with it (ended ok, or out of budget); else `None`."""
    new_reason: str
    """Reason why there is nothing to compare with."""
    before: Keyed
    """Metrics of `usable`; empty without it."""
    after: Keyed
    """Metrics of head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Matching:
    """Matching of the cases of both sides."""

    policy: Policy
    """Settings of metrics."""
    paired: bool
    """True if both sides were measured in turns."""
    has_base: bool
    """True if there is a baseline."""
    barrier: str | None
    """Fields in which the machines differ, so nothing can be compared; `None` without any."""
    same_rules: bool = True
    """True if one version of ci-bench planned both sides, so their plans are comparable."""
    rules: dict[tuple[str, str, Unit], MetricPolicy] = field(default_factory=dict)
    """Cache of the settings by suite, metric and unit: there are few of them and many metrics."""

    def matches(
        self, base: Sequence[CaseResult], head: Sequence[CaseResult]
    ) -> list[tuple[Match, tuple[Line, ...]]]:
        """Return the cases of head in order, with the lines of each case."""
        before = {result.case.id: result for result in base}
        return [self._match(before.get(result.case.id), result) for result in head]

    def removed(
        self, base: Sequence[CaseResult], head: Sequence[CaseResult]
    ) -> list[tuple[CaseResult, tuple[Line, ...]]]:
        """List the cases that only base has, with their lines."""
        planned = {result.case.id for result in head}
        return [(result, self._lost(result)) for result in base if result.case.id not in planned]

    def _match(self, base: CaseResult | None, head: CaseResult) -> tuple[Match, tuple[Line, ...]]:
        usable = base if base and (base.status is Status.OK or base.out_of_budget) else None
        new_reason = self._new_reason(base)
        ground = self._ground(usable, head, new_reason)
        before, after = keyed(usable.metrics if usable else ()), keyed(head.metrics)
        rules = partial(self._rules, head.case.suite)
        lines = tuple(lines_of(before, after, head, planned=base, ground=ground, rules=rules))
        return (
            Match(
                base=base,
                head=head,
                usable=usable,
                new_reason=new_reason,
                before=before,
                after=after,
            ),
            lines,
        )

    def _lost(self, base: CaseResult) -> tuple[Line, ...]:
        ground = CaseGround(missing_reason="the case is not in this run")
        rules = partial(self._rules, base.case.suite)
        return tuple(
            lines_of(keyed(base.metrics), {}, base, planned=base, ground=ground, rules=rules)
        )

    def _rules(self, suite: str, metric: Metric) -> MetricPolicy:
        key = suite, metric.name, metric.unit
        if key not in self.rules:
            self.rules[key] = self.policy.of_metric(
                suite=suite, metric=metric.name, unit=metric.unit
            )
        return self.rules[key]

    def _ground(self, usable: CaseResult | None, head: CaseResult, new_reason: str) -> CaseGround:
        barrier = (self.barrier or _other_options(usable, head)) if usable else None
        if head.status is Status.OK:
            return CaseGround(
                barrier=barrier, new_reason=new_reason, saved=not self.paired, ended=True
            )
        never_began = head.status in {Status.SKIPPED, Status.NOT_RUN}
        missing = Verdict.SKIPPED if never_began else Verdict.FAILED
        return CaseGround(
            barrier=barrier,
            new_reason=new_reason,
            missing=missing,
            missing_reason=ending(head),
            ended=True,
        )

    def _new_reason(self, base: CaseResult | None) -> str:
        if not self.has_base:
            return "no baseline"
        if base is None or base.status is Status.OK:
            return "not in the baseline"
        return f"the baseline's run of it ended {ending(base)}"


def _other_options(base: CaseResult, head: CaseResult) -> str | None:
    """Return why two cases of one id are not the same measurement; `None` if they are."""
    if differing := changed_parameters(base.case, head.case):
        return f"the case's options differ: {', '.join(differing)}"
    if (
        base.case.suite == IMPORTED
        and base.case.body
        and head.case.body
        and base.case.body != head.case.body
    ):
        return OTHER_BODY
    if have_other_inputs(base, head):
        return (
            "head's inputs differ from base's, under the same id: give the benchmark another name"
        )
    rows = [side.facts.get(LARGEST_BATCH) for side in (base, head)]
    return (
        None
        if rows[0] == rows[1]
        else f"the largest batch was of {rows[0]} rows in the baseline, and is of {rows[1]} now"
    )
