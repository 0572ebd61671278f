"""Which cases of a paired run need more launches: the one question that measuring asks of judging.

Owns when to ask and what is asked about. The answer is the rule's own (`sequential`), so that what is judged in the end is what
was decided on the way.
"""

from datetime import datetime

import numpy as np

from ci_bench.judge.calibration import describe, learned
from ci_bench.judge.cases.lines import times_of_both
from ci_bench.judge.metrics.disturbance import in_turns
from ci_bench.judge.metrics.paired import turns_of
from ci_bench.judge.statistics.ruling import Rule
from ci_bench.records.calibration import Calibration
from ci_bench.records.policy import Policy
from ci_bench.records.results import Results


def next_look(launches_done: int, rule: Rule) -> int:
    """How many launches to have in all before it is worth asking `still_open` again; 0 where no more are needed."""
    return next((look for look in rule.looks if look > launches_done), 0)


def still_open(
    base: Results,
    head: Results,
    *,
    policy: Policy,
    calibration: Calibration | None,
    launches_done: int,
    rule: Rule,
    now: datetime | str | None = None,
) -> frozenset[str]:
    """The ids of the cases that need more launches, after `launches_done` of them.

    A case is open while one of its times that can fail the run, and that was sampled in turns, is undecided and worth another
    look. Metrics of one value per launch (latencies of compilation) take what launches there are, and keep nothing open.

    Before the first look every case is open; between two looks the answer is that of the look before. No case stays open for
    ever: after the last look all are closed, and so is one without a usable launch since the look before (it failed, or its
    sides have no launch in common). Cases that the engine gave up may be in the answer, and cases without any time of both
    sides never are after a look. Where the two sides are not of one machine nothing is open: no number of launches makes them
    comparable.

    `now` is the moment against which past runs are old; without it, head's own start.
    """
    if not next_look(launches_done, rule) or dict(base.environment.identity) != dict(head.environment.identity):
        return frozenset()
    looks = [look for look in rule.looks if look <= launches_done]
    if not looks:
        return frozenset(result.case.id for result in head.cases)
    lines = times_of_both(*in_turns(base, head), lambda suite, metric: policy.threshold(suite=suite, metric=metric, paired=True))
    usable, _ = describe(calibration, head.environment.identity)
    history = learned(usable, [line.key for line in lines], now=now or head.run.started_at)
    turns = turns_of(lines, history, rule)
    turns.figures.d[:, looks[-1] :] = np.nan
    asked = turns.gating & turns.figures.in_turns
    undecided = asked & (turns.ruling().next_look > launches_done)
    return frozenset(lines[row].case for row in np.flatnonzero(undecided).tolist())
