"""From a configuration to what will be measured: the plan, and the run that begins. Needs neither torch nor numpy."""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from ci_bench.errors import BadConfig, BadInput
from ci_bench.records.case import Case, Status
from ci_bench.records.config import Config
from ci_bench.records.policy import Policy, Rule, Severity
from ci_bench.records.results import Results, Run, RunState
from ci_bench.suites.base import Suite, find_suite

Plan = tuple[tuple[Suite, Case], ...]


def plan(config: Config, filters: Sequence[str], find: Callable[[str], Suite] = find_suite) -> Plan:
    """All cases of the configuration whose id contains one of `filters` (all without filters), each id once.

    `find` finds a suite by its name.

    Raises:
        BadConfig: two entries make the same case.
        BadInput: no case passes the filters.
    """
    every = [(suite, case) for entry in config.entries for suite in (find(entry.suite),) for case in suite.plan(entry.options)]
    ids = Counter(case.id for _, case in every)
    twice = [name for name, times in ids.items() if times > 1]
    if twice:
        message = f"two entries make the same case {twice[0]}; give one of them another `name`"
        raise BadConfig(message)
    chosen = tuple((suite, case) for suite, case in every if not filters or any(text in case.id for text in filters))
    if every and not chosen:
        message = f"--filter {' '.join(filters)}: no case id contains this; `ci-bench list` prints all {len(every)} ids"
        raise BadInput(message)
    return chosen


def rank(plan: Plan, policy: Policy, known: Results | None, undecided: frozenset[str]) -> dict[str, int]:
    """The place of each case, by id, where a budget may not be enough for all: what tells most for its time comes first.

    What can fail the run comes before what cannot. First what an earlier run did not measure, then what it left `undecided`, then
    the rest; of each, what took less time before what took more, so that a budget decides as many cases as it can. Without
    anything known, that is the plan's order.
    """
    rows = {row.case.id: row for row in known.cases} if known else {}

    def place(case: Case) -> tuple[bool, int, float]:
        row = rows.get(case.id)
        gates = policy.severity(Rule.REGRESSED, suite=case.suite) is Severity.FAIL
        measured = row is not None and row.status is Status.OK
        urgency = 0 if not measured else 1 if case.id in undecided else 2
        return not gates, urgency, (row.duration_s or 0.0) if row else 0.0

    ordered = sorted((case for _, case in plan), key=place)
    return {case.id: number for number, case in enumerate(ordered)}


def start(config: Config) -> Run:
    """A new run of a configuration, beginning now."""
    canonical = json.dumps(msgspec.to_builtins(config), sort_keys=True)
    return Run(
        id=uuid.uuid4().hex,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        state=RunState.PARTIAL,
        config_digest=hashlib.sha256(canonical.encode()).hexdigest(),
        device=config.run.device,
    )
