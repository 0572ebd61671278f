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
    """Context shared by all lines of one case.

    `missing` and `missing_reason` describe a metric that only base has, `new_reason` one that only
    head has. `barrier` is the reason why nothing can be compared, if any. `saved`: base was
    measured in a separate run, maybe by an earlier version. `ended`: no launch follows.
    """

    missing: Verdict = Verdict.REMOVED
    missing_reason: str = "was measured in the baseline and is missing now"
    saved: bool = False
    new_reason: str = "not in the baseline"
    barrier: str | None = None
    ended: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One metric of one arm: every metric of that name and arm that each side holds.

    There is at most one per side, or several through a fault of the document; at least one side
    holds one. `metric` is head's, or base's if head has none. `threshold` is relative; `least` is
    the smallest difference of memory that counts, in bytes. A `detail` fails nothing. `title` is
    what people call the metric.
    """

    case: str
    suite: str
    reference: str
    metric: Metric
    base: tuple[Metric, ...]
    head: tuple[Metric, ...]
    threshold: float
    ground: CaseGround
    detail: bool
    title: str = ""
    least: float = LEAST_BYTES

    @property
    def key(self) -> tuple[str, str, str]:
        """Case, metric and arm."""
        return self.case, self.metric.name, self.metric.arm

    @property
    def timed(self) -> bool:
        """Return whether it is a time or a rate, and so never exact."""
        return self.metric.unit in TIMES


def keyed(metrics: Iterable[Metric]) -> Keyed:
    """Metrics by name and arm.

    One without any sample counts as absent: emptying a series must not hide its loss.
    """
    groups: Keyed = {}
    for metric in metrics:
        if has_samples(metric.launches):
            key = _series(metric.name, metric.arm)
            groups[key] = (*groups.get(key, ()), metric)
    return groups


@lru_cache(maxsize=10_000)
def _series(name: str, arm: str) -> SeriesName:
    """One and the same name for all cases: there are few of them and many metrics."""
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
    """The lines of a case: head's metrics (`after`) in their order, then what only base has (`before`).

    `planned` is base's row of the case, also where nothing of it can be compared. A metric fails
    nothing that the case names as a detail, that is shown only, or that was read from the device's
    clock; but head cannot take one out of the gate that was in it, nor one that either side owes.
    """
    case = head.case
    cases = [case, planned.case] if planned else [case]
    owed = {arm: times_owed(head, planned, arm) for arm in {arm for _, arm in (*before, *after)}}
    details = set.intersection(*({*one.details} for one in cases))
    asked = min((one.threshold for one in cases if one.threshold is not None), default=None)
    for key in after if after.keys() == before.keys() else dict.fromkeys([*after, *before]):
        base_side, head_side = before.get(key, ()), after.get(key, ())
        successor = _successor(key, before, after) if ground.saved else None
        metric = (head_side or base_side)[0]
        rule = rules(metric)
        threshold = _threshold(rule, metric, asked)
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
    """The policy's, or none for peaks that no process can have: those of an operator or an allocator repeat exactly."""
    if (
        metric.unit is not Unit.BYTES
        or metric.name in ENGINE
        or not PROCESS_PEAKS.search(metric.name)
    ):
        return rule.least
    smallest = min(
        (value for one in sides for launch in one.launches for value in launch.values),
        default=LEAST_BYTES,
    )
    return rule.least if smallest >= LEAST_BYTES else 0.0


def _compiled_once(base: tuple[Metric, ...], head: tuple[Metric, ...], threshold: float) -> bool:
    """Return whether each side compiled from cold once, and head was not slower beyond the threshold.

    One compilation decides nothing: where the budget allows no second one, it is shown only, unless
    it looks slower.
    """
    if not base or not head or head[0].name != COMPILE_COLD.name:
        return False
    taken = [
        [value for one in side for launch in one.launches for value in launch.values]
        for side in (base, head)
    ]
    return all(len(values) == 1 for values in taken) and taken[1][0] <= taken[0][0] * (
        1 + threshold
    )


def _threshold(rule: MetricPolicy, metric: Metric, asked: float | None) -> float:
    """The policy's, or for times less where a side's case has `asked` for less: head cannot loosen what base's holds it to."""
    return (
        rule.threshold if asked is None or metric.unit not in TIMES else min(rule.threshold, asked)
    )


def times_owed(head: CaseResult, base: CaseResult | None, arm: str) -> tuple[str, ...]:
    """The durations that an arm owes by either side's case: head cannot owe less than its base did.

    A step that head replayed from a CUDA graph has no parts, so a case that owes parts owes the
    whole instead.
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
    """Return whether a metric of these was read from the device's clock on every side that has it.

    The host's gates.
    """
    return metric.lane is Lane.DEVICE and all(one.lane is Lane.DEVICE for one in (*base, *head))


def known_of(lines: Iterable[Line]) -> Known:
    """Collect the facts of all series of the lines."""
    return describe(
        metric.launches for line in lines for side in (line.base, line.head) for metric in side
    )


def lines_of_both(
    base: Results, head: Results, rules: Callable[[str, Metric], MetricPolicy]
) -> list[Line]:
    """All metrics that both sides have and that can be compared, whatever became of their cases.

    `rules` says what holds for a metric of a suite.
    """
    before = {result.case.id: result for result in base.cases}
    lines: list[Line] = []
    for head_row in head.cases:
        if base_row := before.get(head_row.case.id):
            sides = keyed(base_row.metrics), keyed(head_row.metrics)
            of = partial(rules, head_row.case.suite)
            lines += lines_of(*sides, head_row, planned=base_row, ground=CaseGround(), rules=of)
    known = known_of(lines)
    return [line for line in lines if settled(line, known) is None]


def times_of_both(base: Results, head: Results) -> list[Line]:
    """The times among `lines_of_both`, without thresholds."""
    return [
        line
        for line in lines_of_both(base, head, lambda _, __: MetricPolicy(threshold=0.0))
        if line.timed
    ]


def settled(line: Line, known: Known) -> tuple[Verdict, str] | None:
    """The word for a line that needs no statistics, because there is nothing to compare; `None` if there is."""
    if line.ground.barrier:
        return Verdict.INCOMPARABLE, line.ground.barrier
    if not line.head:
        return line.ground.missing, line.ground.missing_reason
    if not line.base:
        return Verdict.NEW, line.ground.new_reason
    if len(line.base) > 1 or len(line.head) > 1:
        return Verdict.INCONCLUSIVE, "the document holds this metric twice"
    return _unusable(line.base[0], line.head[0], known, foreign=line.suite == IMPORTED)


def _unusable(
    base: Metric, head: Metric, known: Known, *, foreign: bool
) -> tuple[Verdict, str] | None:
    if base.unit != head.unit or base.better != head.better or base.lane != head.lane:
        differing = [field for field in _FIELDS if getattr(base, field) != getattr(head, field)]
        return Verdict.INCOMPARABLE, f"base and head differ in {', '.join(differing)}"
    if foreign and (found := _from_or_to_nothing(base, head, known)):
        return found
    for side, metric in (("base", base), ("head", head)):
        facts = known[id(metric.launches)]
        if facts.sound:
            continue
        exact = metric.unit in _EXACT and single(metric, known)
        signed = metric.unit is Unit.COUNT and metric.name not in ENGINE
        if wrong := facts.fault(zero_allowed=exact, signed=signed):
            none = foreign and not facts.odd and facts.least == 0
            return Verdict.INCONCLUSIVE, f"{side} {NOTHING if none else f'{wrong}: measure again'}"
    return None


def _from_or_to_nothing(base: Metric, head: Metric, known: Known) -> tuple[Verdict, str] | None:
    """Return the verdict if another tool measured zero on a side.

    A ratio does not exist then, and a value that appears or vanishes is a change.

    Counts are compared directly. The engine's metrics have their own rules: a time of its clock
    cannot be zero.
    """
    sides = [known[id(metric.launches)] for metric in (base, head)]
    if head.unit is Unit.COUNT or all(facts.sound for facts in sides):
        return None
    if any(facts.odd or facts.least < 0 or not any(facts.sizes) for facts in sides):
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
    """The word where base's or head's values are all zero, and the other side's are not."""
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


def is_exact(line: Line, known: Known) -> bool:
    """Return whether a line with both sides is compared exactly.

    That is a count, or peaks of one value per launch.
    """
    if line.metric.unit is Unit.COUNT:
        return True
    return line.metric.unit is Unit.BYTES and all(
        single(side[0], known) for side in (line.base, line.head)
    )


def single(metric: Metric, known: Known) -> bool:
    """Return whether a metric has one value per launch, or is a count, which is exact."""
    return metric.unit is Unit.COUNT or known[id(metric.launches)].single


def oriented(base: Metric, head: Metric) -> tuple[Series, Series]:
    """Numerator and denominator of the speedup of head over base."""
    if head.better is Better.LOWER:
        return base.launches, head.launches
    return head.launches, base.launches


class MetricVerdict(NamedTuple):
    """The word for one metric of one arm and why; the figures and `possible` are those of `Pair`.

    A tuple, for one is made and let go for each metric: that takes half of what a dataclass does.
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
    said = wording.doubt(
        suspected=suspicion is Suspicion.SUSPECTED, possible=suspicion is Suspicion.POSSIBLE
    )
    return MetricVerdict(
        verdict=Verdict.SUSPECTED if suspicion is Suspicion.SUSPECTED else Verdict.INCONCLUSIVE,
        reason=f"{change}; {said}{advice}" if suspicion else advice,
        speedup=speedup,
        possible=suspicion is Suspicion.POSSIBLE,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedTimes:
    """The outcomes of lines, in their order, to be gone through once, and what was seen over all of them.

    `changes` tells by case, then by metric and arm, whether head changed the speedup of that arm.
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
    """A status other than ok speaks first, then what was never measured, then the lack of a base, then the worst pair.

    `new_reason` says why there is nothing to compare with, where that is so.
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
    """A case of head's ledger with base's row of it; `usable` is that row if it can be compared with.

    `before` and `after` are the metrics of `usable` and of head.
    """

    base: CaseResult | None
    head: CaseResult
    usable: CaseResult | None
    new_reason: str
    before: Keyed
    after: Keyed


@dataclass(frozen=True, kw_only=True, slots=True)
class Matching:
    """Puts the cases of both sides together.

    `barrier` names the fields in which the machines differ. `paired`: both sides were measured in
    turns. `rules` caches the settings of metrics: there are few of them and many metrics.
    `same_rules` says that one version of ci-bench planned both sides, so their plans are
    comparable.
    """

    policy: Policy
    paired: bool
    has_base: bool
    barrier: str | None
    same_rules: bool = True
    rules: dict[tuple[str, str, Unit], MetricPolicy] = field(default_factory=dict)

    def matches(
        self, base: Sequence[CaseResult], head: Sequence[CaseResult]
    ) -> list[tuple[Match, tuple[Line, ...]]]:
        """Head's ledger in its order, with the lines of each case."""
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
    """Two cases of one id that were given other options, or found another batch to fit, are not the same measurement."""
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
