"""What stands against what: one line for each metric of an arm of a case, with what either side has of it.

Owns the matching of metrics, what can be said before any statistics, and which metrics can fail a run. The word for a line comes
from `pairs`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from ci_bench.judge.statistics.series import Known, Series, describe, sizes
from ci_bench.records.case import Better, CaseResult, Lane, Metric, Unit
from ci_bench.records.comparison import Verdict
from ci_bench.records.policy import SHOWN_ONLY
from ci_bench.records.results import Results

TIMES = frozenset({Unit.SECONDS, Unit.PER_SECOND})

_EXACT = frozenset({Unit.COUNT, Unit.BYTES})
_FIELDS = ("unit", "better", "lane")

Key = tuple[str, str]
"""The name and the arm of a metric."""
Keyed = dict[Key, tuple[Metric, ...]]
Threshold = Callable[[Metric], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What the lines of one case stand on.

    `missing` and `missing_reason` are the word for a metric that only base has, `new_reason` for one that only head has.
    `barrier` says why nothing can be compared, where that is so.
    """

    missing: Verdict = Verdict.REMOVED
    missing_reason: str = "was measured in the baseline and is missing now"
    new_reason: str = "not in the baseline"
    barrier: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One metric of one arm: every metric of that name and arm that each side holds.

    That is none, one, or (a fault of the document) several; at least one side holds one. `metric` is head's, or base's where
    head has none. `threshold` is relative. A `detail` fails nothing.
    """

    case: str
    suite: str
    reference: str
    metric: Metric
    base: tuple[Metric, ...]
    head: tuple[Metric, ...]
    threshold: float
    ground: Ground
    detail: bool

    @property
    def key(self) -> tuple[str, str, str]:
        """Case, metric and arm."""
        return self.case, self.metric.name, self.metric.arm

    @property
    def timed(self) -> bool:
        """Whether it is a time or a rate, and so never exact."""
        return self.metric.unit in TIMES


def keyed(metrics: Iterable[Metric]) -> Keyed:
    """Metrics by name and arm. One without any sample counts as absent: emptying a series must not hide its loss."""
    groups: Keyed = {}
    for metric in metrics:
        if any(sizes(metric.launches)):
            key = (metric.name, metric.arm)
            groups[key] = (*groups.get(key, ()), metric)
    return groups


def lines_of(
    before: Keyed, after: Keyed, head: CaseResult, *, planned: CaseResult | None, ground: Ground, threshold: Threshold
) -> Iterator[Line]:
    """The lines of a case: head's metrics (`after`) in their order, then what only base has (`before`).

    `planned` is base's row of the case, also where nothing of it can be compared. A metric fails nothing that the case names as a
    detail, that is shown only, or that was read from the device's clock; but head cannot take one out of the gate that was in it,
    nor one that either side owes.
    """
    case = head.case
    cases = [case, planned.case] if planned else [case]
    owed = {name for one in cases for name in one.due.times}
    details = (set.intersection(*({*one.details} for one in cases)) | SHOWN_ONLY) - owed
    for key in after if after.keys() == before.keys() else dict.fromkeys([*after, *before]):
        base_side, head_side = before.get(key, ()), after.get(key, ())
        metric = (head_side or base_side)[0]
        yield Line(
            case=case.id,
            suite=case.suite,
            reference=case.reference,
            metric=metric,
            base=base_side,
            head=head_side,
            threshold=threshold(metric),
            ground=ground,
            detail=key[0] in details or (key[0] not in owed and _by_device((*base_side, *head_side))),
        )


def _by_device(metrics: tuple[Metric, ...]) -> bool:
    """Whether a metric was read from the device's clock, on every side that has it: the host's gates."""
    return all(metric.lane is Lane.DEVICE for metric in metrics)


def known_of(lines: Iterable[Line]) -> Known:
    """The facts of all series that lines stand on."""
    return describe(metric.launches for line in lines for side in (line.base, line.head) for metric in side)


def times_of_both(base: Results, head: Results, threshold: Callable[[str, str], float]) -> list[Line]:
    """All times that both sides have and that can be compared, whatever became of their cases.

    `threshold` gives that of a metric of a suite.
    """
    before = {result.case.id: result for result in base.cases}
    lines: list[Line] = []
    for head_row in head.cases:
        if base_row := before.get(head_row.case.id):
            sides = keyed(base_row.metrics), keyed(head_row.metrics)
            of = partial(_named, threshold, head_row.case.suite)
            lines += lines_of(*sides, head_row, planned=base_row, ground=Ground(), threshold=of)
    times = [line for line in lines if line.timed]
    known = known_of(times)
    return [line for line in times if settled(line, known) is None]


def _named(threshold: Callable[[str, str], float], suite: str, metric: Metric) -> float:
    return threshold(suite, metric.name)


def settled(line: Line, known: Known) -> tuple[Verdict, str] | None:
    """The word for a line that needs no statistics, because there is nothing to compare; `None` where there is."""
    if line.ground.barrier:
        return Verdict.INCOMPARABLE, line.ground.barrier
    if not line.head:
        return line.ground.missing, line.ground.missing_reason
    if not line.base:
        return Verdict.NEW, line.ground.new_reason
    if len(line.base) > 1 or len(line.head) > 1:
        return Verdict.INCONCLUSIVE, "the document holds this metric twice"
    return _unusable(line.base[0], line.head[0], known)


def _unusable(base: Metric, head: Metric, known: Known) -> tuple[Verdict, str] | None:
    if (base.unit, base.better, base.lane) != (head.unit, head.better, head.lane):
        differing = [field for field in _FIELDS if getattr(base, field) != getattr(head, field)]
        return Verdict.INCOMPARABLE, f"base and head differ in {', '.join(differing)}"
    for side, metric in (("base", base), ("head", head)):
        exact = metric.unit in _EXACT and single(metric, known)
        if wrong := known[id(metric.launches)].fault(zero_allowed=exact):
            return Verdict.INCONCLUSIVE, f"{side} {wrong}: measure again"
    return None


def single(metric: Metric, known: Known) -> bool:
    """Whether a metric has one value per launch, or is a count, which is exact."""
    return metric.unit is Unit.COUNT or known[id(metric.launches)].single


def oriented(base: Metric, head: Metric) -> tuple[Series, Series]:
    """Numerator and denominator of the speedup of head over base."""
    if head.better is Better.LOWER:
        return base.launches, head.launches
    return head.launches, base.launches
