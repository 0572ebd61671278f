"""Cases of a paired run that need more launches: the only question that measuring asks of judging.

Owns when to ask and what is asked about. The answer is the rule's own (`sequential`), so decisions
during the run and the final verdicts agree.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial

import numpy as np

from ci_bench.judge.times.calibration import describe, learned
from ci_bench.judge.times.devices import slots_of
from ci_bench.judge.times.metrics import REPEATS, by_memory, in_turns, lie_within, memory_floor
from ci_bench.judge.times.paired import JudgedTurns, suspicions_of, turns_of
from ci_bench.judge.times.pairing import Line, is_exact, known_of, lines_of_both
from ci_bench.judge.times.ratios import LEAST_LAUNCHES
from ci_bench.judge.times.sequential import Counts, Ruling, SequentialRule
from ci_bench.judge.times.suspicion import Suspicion
from ci_bench.records.calibration import Calibration
from ci_bench.records.comparison import Verdict
from ci_bench.records.config import MetricPolicy, Policy
from ci_bench.records.forms import Fact
from ci_bench.records.open_cases import OpenCase
from ci_bench.records.results import Metric, Results, Unit

PEAKS = 5
"""Launches that a larger peak of memory has to show in before measuring ends
(docs/internals/adr/0007).
"""


def next_look(launches_done: int, rule: SequentialRule) -> int:
    """Return the number of launches after which to ask `still_open` again.

    0 if no more are needed.
    """
    return next((look for look in rule.looks if look > launches_done), 0)


def still_open(
    base: Results,
    head: Results,
    *,
    policy: Policy,
    calibration: Calibration | None,
    launches_done: int,
    rule: SequentialRule,
    now: datetime | str | None = None,
) -> Mapping[str, OpenCase]:
    """Return the cases that need more launches after `launches_done`, with their open metrics.

    A metric is open while it can fail the run, is undecided and worth another look, however its
    samples came to be: in turns, from a command that measures itself, one compilation a launch. A
    peak of memory that differs between the sides is open until a second launch shows whether it
    repeats, a larger one until `PEAKS` launches confirm it, and one that no launch shows to be
    larger by what counts until `REPEATS` do; a count never is.

    Before the first look everything is open; between two looks the answer is that of the look
    before. No case stays open for ever: after the last look all are closed, and so is one without a
    usable launch since the look before (it failed, or its sides have no launch in common). Cases
    that the engine gave up may be in the answer, and cases without any metric of both sides never
    are after a look. Where the two sides are not of one machine nothing is open: no number of
    launches makes them comparable.

    `now` is the moment against which past runs are old; without it, head's own start.
    """
    if not next_look(launches_done, rule) or _are_different(
        base.environment.identity, head.environment.identity, policy
    ):
        return {}
    looks = [look for look in rule.looks if look <= launches_done]
    if not looks:
        return {
            result.case.id: OpenCase(
                metrics=frozenset((metric.name, metric.arm) for metric in result.metrics)
            )
            for result in head.cases
        }
    lines = lines_of_both(*in_turns(base, head), partial(_rules, policy))
    facts = known_of(lines)
    unrepeated = [
        line for line in lines if is_exact(line, facts) and _may_not_repeat(line, launches_done)
    ]
    sampled = [line for line in lines if not is_exact(line, facts)]
    usable, _ = describe(calibration, head.environment.identity)
    history = learned(usable, [line.key for line in sampled], now=now or head.run.started_at)
    turns = turns_of(sampled, history, rule, slots_of(head))
    turns.figures.d[:, looks[-1] :] = np.nan
    ruling = turns.ruling()
    undecided = turns.gating & (ruling.next_look > launches_done)
    worse = _launches_for_the_worse(turns, ruling, launches_done).tolist()
    return _by_case(
        [(line, 0) for line in unrepeated]
        + [(sampled[row], worse[row]) for row in np.flatnonzero(undecided)]
    )


def _are_different(base: Mapping[str, Fact], head: Mapping[str, Fact], policy: Policy) -> bool:
    """Return whether two machines differ in a field that the policy does not allow."""
    return any(
        base.get(name) != head.get(name) for name in {*base, *head} - {*policy.compare_across}
    )


def _launches_for_the_worse(turns: JudgedTurns, ruling: Ruling, launches_done: int) -> Counts:
    """Return the additional launches that each open line needs to call a change for the worse.

    0 for lines that do not look worse.

    That is the next look, or the first from `SequentialRule.cold_launches` on where past runs did
    not teach how noisy it is.
    """
    looks = np.array(turns.rule.looks)
    least = np.where(turns.measured, 1, turns.rule.cold_launches)
    deciding = looks[np.searchsorted(looks, np.maximum(ruling.next_look, least))]
    return np.where(suspicions_of(turns, ruling) >= Suspicion.POSSIBLE, deciding - launches_done, 0)


def _rules(policy: Policy, suite: str, metric: Metric) -> MetricPolicy:
    return policy.of_metric(suite=suite, metric=metric.name, unit=metric.unit)


def _may_not_repeat(line: Line, launches_done: int) -> bool:
    """Return whether it is a gating peak of memory that may not repeat.

    Its single launches differ, or `PEAKS` launches have to confirm it.

    A peak that has two values may have either by chance in all of two launches of a side. If all
    launches are within what counts as a change, `REPEATS` of them settle it.
    """
    if line.detail or line.metric.unit is not Unit.BYTES:
        return False
    launches = max(launches_done, min(len(side[0].launches) for side in (line.base, line.head)))
    verdict = by_memory(line.base[0], line.head[0], line.threshold, least=line.least).verdict
    if launches < LEAST_LAUNCHES:
        return verdict is not Verdict.UNCHANGED
    if verdict is Verdict.INCONCLUSIVE and launches < REPEATS:
        return lie_within(
            line.base[0],
            line.head[0],
            memory_floor(line.base[0], line.head[0], line.threshold, line.least),
        )
    return verdict is Verdict.REGRESSED and launches < PEAKS


def _by_case(lines: Iterable[tuple[Line, int]]) -> Mapping[str, OpenCase]:
    """Group open lines by case, with the launches that the ones that look worse take."""
    cases: dict[str, list[tuple[Line, int]]] = {}
    for line, worse in lines:
        cases.setdefault(line.case, []).append((line, worse))
    return {
        case: OpenCase(
            metrics=frozenset((line.metric.name, line.metric.arm) for line, _ in open_lines),
            worse=max(worse for _, worse in open_lines),
        )
        for case, open_lines in cases.items()
    }
