"""Plan base's own tree, with base's own code and configuration.

Base's rows follow from it, whatever head's plan has.

A case that base's tree cannot know (its file, its benchmark or its suite is not there) is new in
head. An entry that base's tree has, and that cannot be planned there, leaves rows that say so:
nothing passes because a plan was missing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ci_bench.configuration.plugins import PlanningTree, functions_of, open_suite
from ci_bench.errors import BadConfig, NoSuiteInTree, NothingInTree, PlannerDied, UnknownSuite
from ci_bench.records.config import Config, Plugin, SuiteEntry, fits_filters
from ci_bench.records.documents import case_faults
from ci_bench.records.results import Case, CaseResult, Failure, Status
from ci_bench.runner.planning import Plan, with_stages
from ci_bench.suites.contract import Suite
from ci_bench.suites.registry import BUILT_IN, find_suite

FUNCTIONS = "functions"
PLAN = "plan"
"""The stage of rows that were not measured because of what is planned."""
MOST_REASON = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class BasePlan:
    """The plan of base's own tree.

    `rows` are the rows of base's document: what both sides plan, with base's case, waiting to be
    measured, and what only base plans, ended. `suites` are base's own suites, by name, where its
    tree brings some.
    """

    rows: tuple[CaseResult, ...]
    suites: Mapping[str, Suite] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class _Planned:
    """Result of planning entries: cases, and reasons why those of a suite are unknown."""

    cases: list[Case] = field(default_factory=list)
    faults: dict[str, tuple[Status, str]] = field(default_factory=dict)


def plan_base(
    tree: PlanningTree,
    config: Config,
    head: Plan,
    *,
    filters: Sequence[str] = (),
    reproduce: Callable[[Case], str],
) -> BasePlan:
    """Plan base's tree by its own configuration, and compare that with head's plan.

    `filters` selected head's cases, and select base's.
    """
    suites: dict[str, Suite] = {FUNCTIONS: functions_of(tree.folder, lambda: tree)}
    planned = _Planned()
    with chdir(tree.folder):
        for entry in config.entries:
            _plan_entry(entry, config.plugins.get(entry.suite, Plugin()), tree, suites, planned)
    ours = {case.id: case for _, case in head}
    base_cases = {case.id: case for case in _renumbered(planned.cases, ours)}
    ids = {*base_cases, *ours}
    base_cases = {
        name: case
        for name, case in base_cases.items()
        if name in ours or fits_filters(name, filters, ids)
    }
    rows = [
        row
        for _, case in head
        if (row := _row(case, base_cases.get(case.id), planned.faults, reproduce)) is not None
    ]
    rows += [_gone(case, reproduce) for name, case in base_cases.items() if name not in ours]
    return BasePlan(
        rows=tuple(rows),
        suites={name: suite for name, suite in suites.items() if name not in BUILT_IN},
    )


def _plan_entry(
    entry: SuiteEntry,
    plugin: Plugin,
    tree: PlanningTree,
    suites: dict[str, Suite],
    planned: _Planned,
) -> None:
    try:
        suite = _suite(entry.suite, plugin, tree, suites)
        cases = [with_stages(suite, case) for case in suite.plan(_there(entry, tree.folder))]
    except (NothingInTree, NoSuiteInTree):
        return
    except PlannerDied as error:
        planned.faults[entry.suite] = Status.CRASHED, str(error)
    except (BadConfig, UnknownSuite) as error:
        if not _is_absent(entry, tree.folder):
            planned.faults.setdefault(entry.suite, (Status.FAILED, str(error)))
    else:
        planned.cases += [case for case in cases if not any(case_faults(case))]
        if fault := next((fault for case in cases for fault in case_faults(case)), None):
            planned.faults.setdefault(
                entry.suite, (Status.FAILED, f"its plan does not fit into a document: {fault}")
            )


def _suite(name: str, plugin: Plugin, tree: PlanningTree, suites: dict[str, Suite]) -> Suite:
    if name not in suites:
        suites[name] = open_suite(name, plugin.target, tree) if plugin.target else find_suite(name)
    return suites[name]


def _there(entry: SuiteEntry, folder: Path) -> Mapping[str, Any]:
    """Return the entry's options with only those benchmark paths that base's tree has.

    Raises `NothingInTree` without any.
    """
    paths = entry.options.get("path")
    if entry.suite != FUNCTIONS or not isinstance(paths, list | tuple):
        return entry.options
    present = [
        path
        for path in paths
        if (folder / path).exists() or next(folder.glob(path), None) is not None
    ]
    if not present:
        raise NothingInTree(f"suites.functions: base has none of {', '.join(map(str, paths))}")
    return {**entry.options, "path": present}


def _is_absent(entry: SuiteEntry, folder: Path) -> bool:
    """Return whether base's tree has none of the files that an entry is planned from."""
    if entry.suite not in BUILT_IN:
        return False
    reads: Callable[[Mapping[str, Any]], tuple[str, ...]] | None = getattr(
        find_suite(entry.suite), "reads", None
    )
    files = reads(entry.options) if reads else ()
    return bool(files) and not any((folder / path).exists() for path in files)


def _renumbered(cases: Sequence[Case], ours: Mapping[str, Case]) -> Iterator[Case]:
    """Yield base's cases, each under head's id of the same benchmark.

    A benchmark's name is prefixed with its file if another file has a benchmark of that name, so a
    new file can change the ids of others: the same function at the same point is the same case.
    """
    ids = {case.id for case in cases}
    added = {
        _place(case): case
        for case in ours.values()
        if case.id not in ids and case.suite == FUNCTIONS
    }
    for case in cases:
        head = added.get(_place(case)) if case.id not in ours and case.suite == FUNCTIONS else None
        yield case if head is None else replace(case, id=head.id, name=head.name)


def _place(case: Case) -> tuple[str, ...]:
    """Return the file and function of a case of `functions`, and its point."""
    return tuple(str(case.params.get(name)) for name in ("file", "function", "point"))


def _row(
    head: Case,
    base_case: Case | None,
    faults: Mapping[str, tuple[Status, str]],
    reproduce: Callable[[Case], str],
) -> CaseResult | None:
    """Return base's row of a case that head plans; `None` if the case is new."""
    if base_case is not None:
        row = CaseResult(case=base_case, status=Status.NOT_RUN, reproduce=reproduce(head))
        if base_case.reference == head.reference:
            return row
        reason = (
            f"base's reference arm is {base_case.reference}, and head's is {head.reference}:"
            " nothing to compare"
        )
        return replace(
            row, status=Status.SKIPPED, failure=Failure(stage=PLAN, arms=(), reason=reason)
        )
    if head.suite in faults:
        status, reason = faults[head.suite]
        failure = Failure(
            stage=PLAN, arms=(), reason=f"base's tree cannot be planned: {reason}"[:MOST_REASON]
        )
        return CaseResult(case=head, status=status, reproduce=reproduce(head), failure=failure)
    return None


def _gone(case: Case, reproduce: Callable[[Case], str]) -> CaseResult:
    failure = Failure(stage=PLAN, arms=(), reason="only base plans it, so it was not measured")
    return CaseResult(case=case, status=Status.SKIPPED, reproduce=reproduce(case), failure=failure)
