"""Comparison of results, field by field, with the expectations of the trusted side. Pure.

The trusted side plans the base branch's configuration, asks GitHub for commits and runs, and puts
it all into one `Expected`. Results of another commit, case, machine, configuration, run or attempt
are refused, and each difference names its field. Settings that a workflow may change, and facts
known only to the measured tree, are not differences: the policy has rules for them, and `scope`
words them.

Not here: how `Expected` is derived (`commands.trusted.expecting`), and whether what was measured is
any good (`compare`).
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from ci_bench.judge.policy.rules import Scope
from ci_bench.records.config import Machine, fits_filters
from ci_bench.records.declarations import HOW, Declaration, names, without
from ci_bench.records.faults import show
from ci_bench.records.results import Case, Due, Results, Status, WorkflowRun

FILTER, DEVICE, BASE = "filter", "device", "base"
MOST_DIFFERENCES = 30
_RE_RUN = "re-run all jobs of the workflow"
_AUTO = "auto"
_ALLOW = (
    "allow it by `policy.severities.narrowed` in the base branch's configuration, or take the flag"
    " out of the workflow"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Commits:
    """Commits that a side may be of. Without any, every commit is refused."""

    accepted: tuple[str, ...]
    """Hashes."""
    words: str
    """Description, such as ``the head of pull request 7``, or why no commit is accepted."""
    doubt: str | None = None
    """Reason why an accepted commit may be another; `None` without one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """Properties that results must have."""

    cases: tuple[Case, ...]
    """Cases that the base branch's configuration plans, before filters."""
    foreign: tuple[Declaration, ...] = ()
    """Declarations of that configuration about cases that are not planned here."""
    config_digest: str
    """Digest of the base branch's configuration."""
    device: str
    """Device of the configuration: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    machine: Machine = Machine()  # noqa: RUF009 - frozen, so it can be shared
    """Declared properties of the measuring machine; empty if nothing is declared."""
    workflow: WorkflowRun
    """Workflow run, with its attempt, that has to have measured the results."""
    head: Commits
    """Commits that head may be of."""
    base: Commits | None = None
    """Commits that base may be of; `None` if the same run has no base side."""
    tool_version: str
    """Version of ci-bench on the trusted side."""
    filters: tuple[str, ...] = ()
    """Filters of a person's request, which do not count as narrowing; empty without a request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Field of results with a wrong value: its name, and what to do."""

    field: str
    message: str

    def __str__(self) -> str:
        """Return ``source.commit: is 1234…, and has to be …``."""
        return f"{self.field}: {self.message}"


def differences(head: Results, base: Results | None, expected: Expected) -> tuple[Difference, ...]:
    """List the fields of both sides with a wrong value; none if the results may be judged.

    `base` is the base side of the same run, `None` if it is looked for elsewhere, or is missing.
    """
    mismatches = [*_of_side(head, expected, expected.head)]
    if base is not None:
        absent = Commits(accepted=(), words="no base side was asked for")
        of_base = [*_of_pair(head, base), *_of_side(base, expected, expected.base or absent)]
        mismatches += [
            Difference(field=f"base.{difference.field}", message=difference.message)
            for difference in of_base
        ]
    return tuple(mismatches)


def scope(head: Results, expected: Expected, base: Results | None = None) -> Scope:
    """Describe how the measured cases differ from the requested ones, for the policy's rules.

    `base` is what head is compared with.
    """
    return Scope(narrowed=narrowings(head, expected), undeclared=undeclared(base, expected))


def narrowings(head: Results, expected: Expected) -> tuple[str, ...]:
    """List what narrows or changes the configuration.

    There is a sentence for each flag, and one for uncommitted changes.
    """
    options = head.run.asked
    sentences = []
    filters = _filters(options)
    if filters and filters != expected.filters:
        chosen, total = len(_chosen(expected, filters)), len(expected.cases)
        flags = " ".join(f"--filter {text}" for text in filters)
        unplanned = " of the suites that are planned here" if expected.foreign else ""
        sentences.append(
            f"the workflow measured only {chosen} of {total} cases{unplanned} ({flags}); {_ALLOW}"
        )
    right = expected.base.accepted if expected.base else ()
    moved = {
        name: values
        for name, values in options.items()
        if name != FILTER and not (name == BASE and {*values} <= {*right})
    }
    sentences += [moved_by(name, moved[name]) for name in sorted(moved)]
    if head.source.dirty:
        sentences.append(
            "head was measured with changes that no commit holds: measure a clean checkout"
        )
    return tuple(sentences)


def moved_by(name: str, values: Sequence[str]) -> str:
    """Describe the difference of a flag from the configuration, in a sentence."""
    flag = name.removesuffix("_s").replace("_", "-")
    return (
        f"the workflow set --{flag} {' '.join(values)}, which the configuration does not say;"
        f" {_ALLOW}"
    )


def undeclared(base: Results | None, expected: Expected) -> tuple[str, ...]:
    """List suites whose cases only head knows.

    Base's own plan, or base's earlier run, would say which are missing.
    """
    if base is not None and (expected.base is None or base.source.own_plan):
        return ()
    return tuple(
        f"cases of `{declaration.owner}` are planned only by head's tree, so a missing case goes"
        f" unnoticed; declare them in the base branch's configuration, as `{declaration.field}`:"
        f" {HOW}"
        for declaration in expected.foreign
        if declaration.cases is None
    )


def _of_pair(head: Results, base: Results) -> Iterator[Difference]:
    """Check that one run measured base and head, by head's plan unless base has its own."""
    if base.run.id != head.run.id:
        message = (
            f"is of another run than head's ({show(base.run.id)}, {show(head.run.id)}); both have"
            " to be measured in one"
        )
        yield Difference(field="run.id", message=message)
    for name in ("started_at", "device", "asked"):
        if getattr(base.run, name) != getattr(head.run, name):
            yield Difference(
                field=f"run.{name}",
                message="differs from head's, and both sides are measured in one run",
            )
    ids = [[row.case.id for row in side.cases] for side in (base, head)]
    if not base.source.own_plan and sorted(ids[0]) != sorted(ids[1]):
        yield Difference(
            field="cases", message=f"are not head's: {_describe_names(ids[0], ids[1])}"
        )


def _of_side(results: Results, expected: Expected, commits: Commits) -> Iterator[Difference]:
    yield from _of_commit(results.source.commit, commits)
    yield from _of_workflow(results.run.workflow, expected.workflow)
    if results.run.config_digest != expected.config_digest:
        other = results.tool_version != expected.tool_version
        versions = (
            f", or ci-bench {show(results.tool_version)} reads it otherwise than"
            f" {expected.tool_version}"
            if other
            else ""
        )
        message = "it was measured by another configuration than the base branch's"
        yield Difference(
            field="run.config_digest",
            message=f"{message}, which may have changed since{versions}; {_RE_RUN}",
        )
    yield from _of_device(results, expected)
    yield from _of_cases(results, expected)


def _of_commit(commit: str | None, commits: Commits) -> Iterator[Difference]:
    if commit is None:
        yield Difference(
            field="source.commit", message="is not recorded: ci-bench has to measure a git checkout"
        )
    elif not commits.accepted:
        yield Difference(
            field="source.commit",
            message=f"is {show(commit)}, and cannot be compared with anything: {commits.words}",
        )
    elif commit not in commits.accepted:
        message = (
            f"is {show(commit)}, and has to be {' or '.join(commits.accepted)}: {commits.words};"
            f" {_RE_RUN}"
        )
        yield Difference(field="source.commit", message=message)


def _of_workflow(workflow: WorkflowRun | None, expected: WorkflowRun) -> Iterator[Difference]:
    if workflow is None:
        message = (
            "is not recorded: these results were not measured in a workflow, or by a ci-bench that"
            " did not say in which"
        )
        yield Difference(field="run.workflow", message=message)
        return
    for name in ("repository", "run", "attempt"):
        actual, required = getattr(workflow, name), getattr(expected, name)
        same = (
            actual.casefold() == required.casefold()
            if isinstance(actual, str)
            else actual == required
        )
        if not same:
            hint = (
                f"; the artifact of another attempt is not this one's: {_RE_RUN}"
                if name == "attempt"
                else ""
            )
            yield Difference(
                field=f"run.workflow.{name}",
                message=f"is {show(actual)}, and has to be {required}{hint}",
            )


def _of_device(results: Results, expected: Expected) -> Iterator[Difference]:
    """Check the kind of device used for measuring.

    If no case completed, nothing was measured.
    """
    device = next(iter(results.run.asked.get(DEVICE, ())), expected.device)
    if results.run.device != device:
        yield Difference(
            field="run.device", message=f"is {show(results.run.device)}, and has to be {device}"
        )
    if not any(row.status is Status.OK for row in results.cases):
        return
    identity, machine = results.environment.identity, expected.machine
    kind = machine.device or (None if device == _AUTO else device.partition(":")[0])
    if kind is not None and identity.get(DEVICE) != kind:
        message = (
            f"is {show(identity.get(DEVICE))}, and has to be {kind}; look at the log of the machine"
            " that measured"
        )
        yield Difference(field="environment.identity.device", message=message)
    if (
        machine.gpu is not None
        and machine.gpu.casefold() not in str(identity.get("gpu", "")).casefold()
    ):
        message = (
            f"is {show(identity.get('gpu'))}, and `machines` says that its name contains"
            f" {machine.gpu}"
        )
        yield Difference(field="environment.identity.gpu", message=message)


def _of_cases(results: Results, expected: Expected) -> Iterator[Difference]:
    """Check the cases: each as it was planned, or declared if its suite is not planned here."""
    rows = {row.case.id: row.case for row in results.cases}
    filters, ids = _filters(results.run.asked), _ids(expected)
    planned = {case.id: case for case in _chosen(expected, filters)}
    missing = [name for name in planned if name not in rows]
    if missing:
        yield Difference(
            field="cases",
            message=f"{_count(missing)} that the configuration plans: {names(missing)} missing",
        )
    suites = {declaration.suite for declaration in expected.foreign}
    surplus = [
        name for name, case in rows.items() if name not in planned and case.suite not in suites
    ]
    if surplus:
        yield Difference(
            field="cases",
            message=f"{_count(surplus)} that the configuration does not plan: {names(surplus)}",
        )
    for index, row in enumerate(results.cases):
        if row.case.id in planned:
            yield from _of_case(f"cases[{index}].case", row.case, planned[row.case.id])
        elif row.case.suite in suites and row.case.id.partition("/")[0] != row.case.suite:
            message = f"is {show(row.case.suite)}, and the case's id is {show(row.case.id)}"
            yield Difference(field=f"cases[{index}].case.suite", message=message)
    for suite in sorted(suites):
        unplanned = [
            name for name, case in rows.items() if case.suite == suite and name not in planned
        ]
        declared = [declaration for declaration in expected.foreign if declaration.suite == suite]
        yield from _of_declared(suite, declared, unplanned, filters, ids)


def _of_case(path: str, case: Case, planned: Case) -> Iterator[Difference]:
    for field in fields(Case):
        actual, required = getattr(case, field.name), getattr(planned, field.name)
        if field.name == "body" or (
            field.name == "stages" and not actual
        ):  # of the tree; of an earlier version, which wrote none
            continue
        if _text(actual) != _text(required):
            message = (
                f"of {show(case.id)} is {show(_text(actual))}, and the configuration plans"
                f" {show(_text(required))}"
            )
            yield Difference(field=f"{path}.{field.name}", message=message)


def _of_declared(
    suite: str,
    declared: Sequence[Declaration],
    unplanned: list[str],
    filters: tuple[str, ...],
    ids: Container[str],
) -> Iterator[Difference]:
    """Compare the ids of one suite with the declared ids and numbers.

    More are allowed if an entry declares nothing.
    """
    declared_ids = [
        name
        for declaration in declared
        if isinstance(declaration.cases, tuple)
        for name in declaration.cases
    ]
    required = [name for name in declared_ids if fits_filters(name, filters, ids)]
    number = sum(
        declaration.cases for declaration in declared if isinstance(declaration.cases, int)
    )
    naming, counting = (
        [declaration.field for declaration in declared if isinstance(declaration.cases, kind)]
        for kind in (tuple, int)
    )
    is_open = any(declaration.cases is None for declaration in declared)
    others = without(unplanned, required)
    actual = without(unplanned, others) if counting or is_open else unplanned
    if sorted(actual) != sorted(required):
        message = (
            f"of the suite {suite} are not those of {_where(naming)}:"
            f" {_describe_names(actual, required)}"
        )
        yield Difference(field="cases", message=message)
    too_few, too_many = len(others) < number and not filters, len(others) > number and not is_open
    if counting and (too_few or too_many):
        besides = " besides those that are named" if naming else ""
        yield Difference(
            field="cases",
            message=(
                f"{len(others)} of the suite {suite}{besides}, and {_where(counting)} says {number}"
            ),
        )


def _where(places: Iterable[str]) -> str:
    return f"{' and '.join(f'`{place}`' for place in places)} of the base branch's configuration"


def _filters(options: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the filters of a run; an empty list chooses nothing, as no list does."""
    return (*options.get(FILTER, ()),)


def _chosen(expected: Expected, filters: tuple[str, ...]) -> list[Case]:
    ids = _ids(expected)
    return [case for case in expected.cases if fits_filters(case.id, filters, ids)]


def _ids(expected: Expected) -> frozenset[str]:
    """Return all ids that the base branch's configuration plans or declares."""
    declared = (
        name
        for declaration in expected.foreign
        if isinstance(declaration.cases, tuple)
        for name in declaration.cases
    )
    return frozenset((*(case.id for case in expected.cases), *declared))


def _describe_names(actual: Sequence[str], required: Sequence[str]) -> str:
    """Describe the missing and the surplus names."""
    parts = (("missing", without(required, actual)), ("too many", without(actual, required)))
    return (
        "; ".join(f"{names(ids)} {word}" for word, ids in parts if ids) or "one of them comes twice"
    )


def _count(ids: Sequence[str]) -> str:
    return f"{len(ids)} {'case' if len(ids) == 1 else 'cases'}"


def _text(value: object) -> str:
    """Convert a field to its form in the document: JSON has lists instead of tuples."""
    return json.dumps(_to_json(value), sort_keys=True)


def _to_json(value: object) -> object:
    if isinstance(value, Due):
        return {field.name: _to_json(getattr(value, field.name)) for field in fields(Due)}
    if isinstance(value, Mapping):
        return {str(name): _to_json(inner) for name, inner in value.items()}
    return [_to_json(inner) for inner in value] if isinstance(value, tuple | list) else value
