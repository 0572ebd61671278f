"""Conversion of a configuration to a plan and a run. Needs neither torch nor numpy."""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from ci_bench.errors import BadConfig, BadInput
from ci_bench.records.config import (
    Config,
    Plugin,
    Policy,
    Rule,
    RunOptions,
    Setup,
    Severity,
    fits_filters,
)
from ci_bench.records.declarations import Declaration
from ci_bench.records.documents import case_faults
from ci_bench.records.faults import capped, show
from ci_bench.records.results import (
    Case,
    CaseResult,
    Lease,
    Results,
    Run,
    RunState,
    Status,
    WorkflowRun,
)
from ci_bench.suites.contract import ONCE, Suite
from ci_bench.suites.registry import BUILT_IN, find_suite

Plan = tuple[tuple[Suite, Case], ...]


def plan(
    config: Config,
    filters: Sequence[str],
    find: Callable[[str], Suite] = find_suite,
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """Return all cases of the configuration that one of `filters` fits, each id once.

    Without filters all of them fit. A filter that is the id of a case fits only that case, any
    other text each case whose id contains it. `find` finds a suite by its name; `tell` is given a
    line for each filter, on how many cases it fits.

    Raises:
        BadConfig: two entries make the same case, others than they declare, or one that no
            document holds.
        BadInput: no case passes the filters.
    """
    planned = plan_declared(config, find)
    every = [pair for _, cases in planned for pair in cases]
    ids = Counter(case.id for _, case in every)
    twice = [name for name, times in ids.items() if times > 1]
    if twice:
        message = f"two entries make the same case {twice[0]}; give one of them another `name`"
        raise BadConfig(message)
    faults = [
        fault
        for declared, cases in planned
        if (fault := declared.fault([case.id for _, case in cases]))
    ]
    unheld = ((case, fault) for _, case in every for fault in case_faults(case))
    faults += [
        f"{case.suite} plans what no document holds, {show(case.id)}: {fault}"
        for case, fault in unheld
    ]
    if faults:
        raise BadConfig(capped(faults, indent=""))
    chosen = tuple(
        (suite, with_stages(suite, case))
        for suite, case in every
        if fits_filters(case.id, filters, ids)
    )
    if every and not chosen:
        message = (
            f"--filter {' '.join(filters)}: no case id contains this; `ci-bench list` prints all"
            f" {len(every)} ids"
        )
        raise BadInput(message)
    if tell is not None:
        for text in filters:
            fitting = sum(fits_filters(name, (text,), ids) for name in ids)
            tell(
                f"--filter {text}: {fitting:,} of {len(ids):,}"
                f" {'case' if len(ids) == 1 else 'cases'}"
            )
    return chosen


MOST_CASES = 10_000
"""Most cases of one document (schemas/results.json)."""


def require_room(plan: Plan) -> Plan:
    """Return the plan, if its results fit into a document.

    Raises `BadInput` otherwise: results of days would be unreadable.
    """
    if len(plan) > MOST_CASES:
        remedy = "split it into several gates, by configurations with fewer suites or by --filter"
        raise BadInput(
            f"the plan has {len(plan):,} cases, but a document holds at most {MOST_CASES:,}:"
            f" {remedy}"
        )
    return plan


def with_stages(suite: Suite, case: Case) -> Case:
    """Return the case with its suite's worker stages, in words."""
    stages = (_stage_words(stage.kind, stage.arms, case) for stage in suite.stages(case))
    return replace(case, stages=tuple(dict.fromkeys(stages)))


def _stage_words(kind: str, arms: tuple[str, ...], case: Case) -> str:
    return kind if {*arms} == {*case.arms} else f"{kind} {','.join(arms)}".rstrip()


def plan_declared(
    config: Config, find: Callable[[str], Suite] = find_suite
) -> tuple[tuple[Declaration, Plan], ...]:
    """Return all cases of the configuration, by their declarations, which are not checked here.

    Raises `BadConfig`.
    """
    planned: dict[Declaration, list[tuple[Suite, Case]]] = {}
    for entry, declared in zip(config.entries, declarations(config), strict=True):
        suite = find(entry.suite)
        planned.setdefault(declared, []).extend((suite, case) for case in suite.plan(entry.options))
    return tuple((declared, tuple(cases)) for declared, cases in planned.items())


def declarations(config: Config) -> tuple[Declaration, ...]:
    """Return the declarations of each entry's cases, in the entries' order.

    Those of a plugin share one.
    """
    places: Counter[str] = Counter()
    declared = []
    for entry in config.entries:
        suite, place = entry.suite, places[entry.suite]
        places[suite] += 1
        if suite in BUILT_IN:
            declared.append(
                Declaration(suite=suite, field=f"suites.{suite}[{place}].cases", cases=entry.cases)
            )
        else:
            cases = config.plugins.get(suite, Plugin()).cases
            declared.append(Declaration(suite=suite, field=f"plugins.{suite}.cases", cases=cases))
    return tuple(declared)


def rank(
    plan: Plan, policy: Policy, earlier: Results | None, undecided: frozenset[str]
) -> dict[str, int]:
    """Return each case's place, by id, for budgets that do not cover all cases.

    Cases that can fail the run come first. Among them come those missing from an earlier run, then
    those it left `undecided`, then the rest; shorter ones come first in each group, to decide as
    many cases as the budget allows. Without earlier results, that is the plan's order.
    """
    rows = {row.case.id: row for row in earlier.cases} if earlier else {}

    def place(case: Case) -> tuple[bool, int, float]:
        row = rows.get(case.id)
        gates = policy.severity(Rule.REGRESSED, suite=case.suite) is Severity.FAIL
        measured = row is not None and row.status is Status.OK
        urgency = 0 if not measured else 1 if case.id in undecided else 2
        return not gates, urgency, (row.duration_s or 0.0) if row else 0.0

    ordered = sorted((case for _, case in plan), key=place)
    return {case.id: number for number, case in enumerate(ordered)}


def usual_seconds(earlier: Results | None) -> dict[str, tuple[float, float]]:
    """Return the seconds of each passed case's first launch in an earlier run, by its id.

    The first figure is one-off work, the second is all. The rest is the average over launches. A
    first launch takes a little more, so no case that would fit is left out.
    """
    measured = [
        row for row in (earlier.cases if earlier else ()) if row.status is Status.OK and row.spent
    ]
    once = {
        row.case.id: sum(spent.seconds for spent in row.spent if spent.stage in ONCE)
        for row in measured
    }
    return {
        row.case.id: (round(once[row.case.id], 3), round(sum(_first_launch(row)), 3))
        for row in measured
    }


def coverage(
    plan: Plan,
    places: Mapping[str, int],
    usual_s: Mapping[str, tuple[float, float]],
    budget_s: float,
) -> str:
    """Return one line on how many cases a budget covers.

    All are verified first, then timed in the order of their `places`.
    """
    names = sorted((case.id for _, case in plan), key=lambda name: places.get(name, 0))
    cases = f"{len(names):,} {'case' if len(names) == 1 else 'cases'}"
    if not usual_s.keys() & {*names}:
        return (
            f"budget of {budget_s:g} s for {cases}: no earlier run shows how many it covers; parity"
            " comes first"
        )
    durations_s = [usual_s[name] for name in names if name in usual_s]
    left_s, covered = budget_s - sum(once_s for once_s, _ in durations_s), 0
    for once_s, whole_s in durations_s:
        if left_s >= whole_s - once_s:
            left_s, covered = left_s - (whole_s - once_s), covered + 1
    return (
        f"budget of {budget_s:g} s: enough to time {covered:,} of {cases}, by the previous run's"
        " times; parity comes first"
    )


def _first_launch(row: CaseResult) -> Iterator[float]:
    launches = max((len(metric.launches) for metric in row.metrics), default=1) or 1
    for spent in row.spent:
        yield spent.seconds if spent.stage in ONCE else spent.seconds / launches


def start(
    config: Config,
    *,
    workflow: WorkflowRun | None = None,
    flags: Mapping[str, tuple[str, ...]] | None = None,
    lease: Lease | None = None,
) -> Run:
    """Return a new run of a configuration, beginning now.

    `flags` narrow or move it.
    """
    return Run(
        id=uuid.uuid4().hex,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        state=RunState.PARTIAL,
        config_digest=digest(config),
        device=config.run.device,
        workflow=workflow,
        asked=flags or {},
        lease=lease,
    )


def digest(config: Config) -> str:
    """Return the SHA-256 of a configuration's measured part.

    That excludes flags, its policy and its machines.

    An option with its default value counts as left out, so options that a later version adds change
    no digest.
    """
    run, setup = config.written or config.run, config.setup
    measured = {
        "suites": [[entry.suite, entry.options] for entry in config.entries],
        "plugins": {name: plugin.target for name, plugin in config.plugins.items()},
        "baseline": config.baseline,
        "base": config.base,
        "run": _set_apart(run, RunOptions()),
        "setup": _set_apart(setup, Setup()),
    }
    return hashlib.sha256(
        json.dumps(msgspec.to_builtins(measured), sort_keys=True).encode()
    ).hexdigest()


def _set_apart(options: RunOptions | Setup, default: RunOptions | Setup) -> dict[str, Any]:
    """Return the options that differ from their default, by name."""
    return {
        field.name: value
        for field in fields(options)
        if (value := getattr(options, field.name)) != getattr(default, field.name)
    }
