"""Head against base, case by case: pairs, arm speedups, parity and checks, each with a reason.

Owns which case and metric stands against which, and when nothing can be compared. The word for one pair comes from `pairs`;
what the policy makes of it all from `verdict`.
"""

from dataclasses import dataclass, replace

from ci_bench.judge.findings import Compared
from ci_bench.judge.missing import missing_checks, missing_metrics, missing_parity
from ci_bench.judge.pairs import Ground, Keyed, compare_metric, keyed, oriented, speedup_of
from ci_bench.judge.parity import parity_findings
from ci_bench.judge.stats import ratio_of_medians
from ci_bench.judge.verdict import judge
from ci_bench.judge.wording import change_size, count_of, place
from ci_bench.records.case import CaseResult, Check, Metric, Outcome, Role, Status, Unit
from ci_bench.records.comparison import (
    ArmSpeedup,
    BaselineMode,
    CaseComparison,
    Comparison,
    Mismatch,
    Pair,
    ParityFinding,
    Side,
    Verdict,
)
from ci_bench.records.policy import Policy
from ci_bench.records.results import Environment, Results

WORST_FIRST = (
    Verdict.FAILED,
    Verdict.REGRESSED,
    Verdict.REMOVED,
    Verdict.INCOMPARABLE,
    Verdict.INCONCLUSIVE,
    Verdict.IMPROVED,
    Verdict.UNCHANGED,
    Verdict.NEW,
    Verdict.SKIPPED,
)
"""A case takes the first of these that one of its pairs has.

What was measured to be worse comes before what is gone, and that before what could not be decided, so that no better pair
hides it. Improved comes before unchanged because one changed metric is the news; new comes last because a metric added to a
case says nothing about the rest.
"""

NOT_RECORDED = "not recorded"


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What is the same for all cases of a comparison.

    `barrier` names the fields in which the machines differ, `drift` is how far times move between the sides' moments.
    """

    policy: Policy
    has_base: bool
    barrier: str | None
    drift: float


def compare(
    *,
    base: Results | None,
    head: Results,
    policy: Policy,
    mode: BaselineMode,
    absence: str | None,
    tool_version: str,
) -> Comparison:
    """Compares two runs, or judges head alone where there is no base (`absence` then says why), under `policy`."""
    mismatches = find_mismatches(base.environment, head.environment) if base else ()
    drift = policy.drift_of(head.environment.identity.get("device")) if mode is BaselineMode.FILE else 0.0
    context = Context(policy=policy, has_base=base is not None, barrier=_barrier(mismatches), drift=drift)
    compared = Compared(
        mode=mode,
        head=_side(head),
        base=_side(base) if base else None,
        absence=None if base else (absence or "no baseline was given"),
        mismatches=mismatches,
        cases=_cases(base.cases if base else (), head.cases, context),
    )
    return Comparison(
        tool_version=tool_version,
        mode=compared.mode,
        head=compared.head,
        base=compared.base,
        absence=compared.absence,
        mismatches=compared.mismatches,
        cases=compared.cases,
        judgement=judge(compared, policy),
    )


def find_mismatches(base: Environment, head: Environment) -> tuple[Mismatch, ...]:
    """Every field of either identity that differs, or that only one side recorded, by name.

    Two machines of which nothing is known are not the same machine.
    """
    sides = (base.identity, head.identity)
    if not sides[0] and not sides[1]:
        return (Mismatch(field="identity", base=NOT_RECORDED, head=NOT_RECORDED),)
    facts = {field: [side.get(field, NOT_RECORDED) for side in sides] for field in sorted({*sides[0], *sides[1]})}
    return tuple(Mismatch(field=field, base=one, head=two) for field, (one, two) in facts.items() if one != two)


def _barrier(mismatches: tuple[Mismatch, ...]) -> str | None:
    return f"the runs differ in {', '.join(one.field for one in mismatches)}" if mismatches else None


def _side(results: Results) -> Side:
    return Side(run=results.run, source=results.source, environment=results.environment, tool_version=results.tool_version)


def _cases(base: tuple[CaseResult, ...], head: tuple[CaseResult, ...], context: Context) -> tuple[CaseComparison, ...]:
    """Head's ledger in its order, then what only base has."""
    before = {result.case.id: result for result in base}
    planned = {result.case.id for result in head}
    rows = [_case(before.get(result.case.id), result, context) for result in head]
    return (*rows, *(_removed(result, context) for result in base if result.case.id not in planned))


def _case(base: CaseResult | None, head: CaseResult, context: Context) -> CaseComparison:
    usable_base = base if base and base.status is Status.OK else None
    details = _details(base, head)
    found = (
        *_pairs(usable_base, head, _ground(base, head, context), context),
        *missing_metrics(usable_base, head, lambda metric: context.policy.threshold(suite=head.case.suite, metric=metric)),
    )
    pairs = tuple(replace(pair, detail=pair.metric in details) for pair in found)
    verdict, reason = _case_verdict(base, head, pairs, context)
    return CaseComparison(
        id=head.case.id,
        suite=head.case.suite,
        verdict=verdict,
        reason=reason,
        base_status=base.status if base else None,
        head_status=head.status,
        reproduce=head.reproduce,
        log_tail=head.failure.log_tail if head.failure else "",
        pairs=pairs,
        speedups=_arm_speedups(usable_base if context.barrier is None else None, head),
        checks=(*(_counted(check, base, head) for check in head.checks), *missing_checks(usable_base, head)),
        parity=(*_parity(head), *missing_parity(usable_base, head)),
        base_faults=_own_faults(usable_base) if usable_base else (),
        facts=head.facts,
    )


def _details(base: CaseResult | None, head: CaseResult) -> frozenset[str]:
    """The metrics that fail nothing. Head cannot take one out of the gate that was in it."""
    named = frozenset(head.case.details) - frozenset(head.case.due.times)
    return named & frozenset(base.case.details) if base else named


def _counted(check: Check, base: CaseResult | None, head: CaseResult) -> Check:
    """A check that the case owes, or that counts in the baseline, counts, whatever head's run says of it."""
    before = {(one.name, one.arm) for one in base.checks if not one.informative} if base else set()
    owed = check.name in head.case.due.checks or (check.name, check.arm) in before
    return replace(check, informative=False) if owed and check.informative else check


def _removed(base: CaseResult, context: Context) -> CaseComparison:
    ground = Ground(missing_reason="the case is not in this run")
    groups = keyed(base.metrics).values()
    return CaseComparison(
        id=base.case.id,
        suite=base.case.suite,
        verdict=Verdict.REMOVED,
        reason="in the baseline, but not in this run",
        base_status=base.status,
        head_status=None,
        reproduce=base.reproduce,
        pairs=tuple(compare_metric(one, (), threshold=_threshold(one, base, context), ground=ground) for one in groups),
    )


def _pairs(base: CaseResult | None, head: CaseResult, ground: Ground, context: Context) -> tuple[Pair, ...]:
    before, after = keyed(base.metrics if base else ()), keyed(head.metrics)
    sides = [(before.get(key, ()), after.get(key, ())) for key in dict.fromkeys([*after, *before])]
    return tuple(compare_metric(one, two, threshold=_threshold(two or one, head, context), ground=ground) for one, two in sides)


def _threshold(metrics: tuple[Metric, ...], result: CaseResult, context: Context) -> float:
    return context.policy.threshold(suite=result.case.suite, metric=metrics[0].name)


def _ground(base: CaseResult | None, head: CaseResult, context: Context) -> Ground:
    barrier = (context.barrier or _other_options(base, head)) if base and base.status is Status.OK else None
    new_reason = _new_reason(base, context)
    match head.status:
        case Status.OK:
            return Ground(barrier=barrier, new_reason=new_reason, drift=context.drift)
        case Status.SKIPPED | Status.NOT_RUN:
            return Ground(barrier=barrier, new_reason=new_reason, missing=Verdict.SKIPPED, missing_reason=_ending(head))
        case _:
            return Ground(barrier=barrier, new_reason=new_reason, missing=Verdict.FAILED, missing_reason=_ending(head))


def _other_options(base: CaseResult, head: CaseResult) -> str | None:
    """Two cases of one id that were given other options are not the same measurement."""
    fields = sorted({*base.case.params, *head.case.params})
    differing = [field for field in fields if base.case.params.get(field) != head.case.params.get(field)]
    return f"the case's options differ: {', '.join(differing)}" if differing else None


def _new_reason(base: CaseResult | None, context: Context) -> str:
    if not context.has_base:
        return "no baseline"
    if base is None or base.status is Status.OK:
        return "not in the baseline"
    return f"the baseline's run of it ended {_ending(base)}"


def _ending(result: CaseResult) -> str:
    """How a case ended, in words: ``timeout in train (inductor): no answer for 1800 s``."""
    word = result.status.value.replace("_", " ")
    if result.failure is None:
        return word
    arms = f" ({', '.join(result.failure.arms)})" if result.failure.arms else ""
    return f"{word} in {result.failure.stage}{arms}: {result.failure.reason}"


def _case_verdict(base: CaseResult | None, head: CaseResult, pairs: tuple[Pair, ...], context: Context) -> tuple[Verdict, str]:
    """A status other than ok speaks first, then what was never measured, then the lack of a base, then the worst pair."""
    if head.status is not Status.OK:
        never_began = head.status in {Status.SKIPPED, Status.NOT_RUN}
        return Verdict.SKIPPED if never_began else Verdict.FAILED, _ending(head)
    if not pairs and head.parity is None:
        return Verdict.FAILED, "it ended ok, but nothing was measured"
    if gaps := [pair for pair in pairs if pair.verdict is Verdict.FAILED and not pair.detail]:
        return Verdict.FAILED, _worst_reason(gaps)
    if base is None or base.status is not Status.OK:
        return Verdict.NEW, _new_reason(base, context)
    if not pairs:
        return Verdict.INCONCLUSIVE, "no metric on either side"
    judged = [pair for pair in pairs if not pair.detail] or pairs
    worst = min((pair.verdict for pair in judged), key=WORST_FIRST.index)
    return worst, _worst_reason([pair for pair in judged if pair.verdict is worst])


def _worst_reason(pairs: list[Pair]) -> str:
    largest = max(pairs, key=change_size)
    others = f"; {count_of(len(pairs) - 1, 'metric')} more {pairs[0].verdict.value}" if len(pairs) > 1 else ""
    return f"{place(largest)}: {largest.reason}{others}"


def _parity(result: CaseResult) -> tuple[ParityFinding, ...]:
    """Loss parity of every candidate arm. What passes for a reference run, but is of another arm, is no evidence."""
    if result.parity is None:
        return ()
    reference = result.case.reference
    traces = tuple(trace for trace in result.parity.traces if trace.role is Role.CANDIDATE or trace.arm == reference)
    candidates = tuple(arm for arm in result.case.arms if arm != reference)
    return parity_findings(replace(result.parity, traces=traces), arms=candidates)


def _own_faults(base: CaseResult) -> tuple[str, ...]:
    """What is wrong with the baseline's own run: its figures may be those of another computation."""
    failed = (check for check in base.checks if check.outcome is Outcome.FAIL and not check.informative)
    apart = (found for found in _parity(base) if not found.verdict.holds)
    return (
        *(f"{check.name} ({check.arm}) failed: {check.detail}" for check in failed),
        *(f"{found.arm}: loss parity {found.verdict.value.replace('_', ' ')}: {found.detail}" for found in apart),
    )


def _arm_speedups(base: CaseResult | None, head: CaseResult) -> tuple[ArmSpeedup, ...]:
    """Every time, rate and peak that a candidate arm shares with the reference arm of head's own run."""
    before, after = keyed(base.metrics if base else ()), keyed(head.metrics)
    found = (_arm_speedup(name, arm, head.case.reference, before, after) for name, arm in after)
    return tuple(speedup for speedup in found if speedup)


def _arm_speedup(name: str, arm: str, reference: str, before: Keyed, after: Keyed) -> ArmSpeedup | None:
    arms = _two_arms(after, name, arm, reference)
    ratio = speedup_of(*arms, paired=True) if arms else None
    if ratio is None or ratio.value is None:
        return None
    earlier = _two_arms(before, name, arm, reference)
    return ArmSpeedup(
        metric=name,
        arm=arm,
        reference=reference,
        speedup=ratio.value,
        interval=ratio.interval,
        base_speedup=ratio_of_medians(*oriented(*earlier)) if earlier else None,
    )


def _two_arms(metrics: Keyed, name: str, arm: str, reference: str) -> tuple[Metric, Metric] | None:
    """The metric of the reference arm and of another, where both have it once and it means the same; counts have no speedup."""
    one, two = metrics.get((name, reference), ()), metrics.get((name, arm), ())
    if arm == reference or len(one) != 1 or len(two) != 1 or one[0].unit is Unit.COUNT:
        return None
    alike = (one[0].unit, one[0].better, one[0].lane) == (two[0].unit, two[0].better, two[0].lane)
    return (one[0], two[0]) if alike else None
