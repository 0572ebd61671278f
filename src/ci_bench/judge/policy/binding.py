"""Compare results field by field with what the trusted side derived for itself. Pure.

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
    """The commits that a side may be of, and what they are in words (``the head of pull request 7``).

    Without any, `words` says why none is known, and every commit is refused. `doubt` is why an
    accepted one may be another.
    """

    accepted: tuple[str, ...]
    words: str
    doubt: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """The properties that results must have.

    `cases` are planned from the base branch's configuration, before filters. `foreign` is what it
    declares of cases that are not planned here. `device` is the configuration's word (``auto``,
    ``cpu``, ``cuda``, ``cuda:N``), `machine` what is declared of the measuring machine. `base` is
    `None` if the same run has no base side. `tool_version` is that of the trusted side. `filters`
    are those of a person's request, which narrow nothing: they are what was requested.
    """

    cases: tuple[Case, ...]
    foreign: tuple[Declaration, ...] = ()
    config_digest: str
    device: str
    machine: Machine = Machine()  # noqa: RUF009 - frozen, so it can be shared
    workflow: WorkflowRun
    head: Commits
    base: Commits | None = None
    tool_version: str
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One field of results that is not what it has to be: by its name, with what to do."""

    field: str
    message: str

    def __str__(self) -> str:
        """``source.commit: is 1234…, and has to be …``."""
        return f"{self.field}: {self.message}"


def differences(head: Results, base: Results | None, expected: Expected) -> tuple[Difference, ...]:
    """Every field of both sides that is not what was asked for; none if the results may be judged.

    `base` is the base side of the same run, `None` if it is looked for elsewhere, or is missing.
    """
    found = [*_of_side(head, expected, expected.head)]
    if base is not None:
        absent = Commits(accepted=(), words="no base side was asked for")
        own = [*_of_pair(head, base), *_of_side(base, expected, expected.base or absent)]
        found += [Difference(field=f"base.{one.field}", message=one.message) for one in own]
    return tuple(found)


def scope(head: Results, expected: Expected, base: Results | None = None) -> Scope:
    """Describe how the measured cases differ from the requested ones, for the policy's rules.

    `base` is what head is compared with.
    """
    return Scope(narrowed=narrowings(head, expected), undeclared=undeclared(base, expected))


def narrowings(head: Results, expected: Expected) -> tuple[str, ...]:
    """List what narrows or changes the configuration.

    There is a sentence for each flag, and one for uncommitted changes.
    """
    asked = head.run.asked
    found = []
    filters = _filters(asked)
    if filters and filters != expected.filters:
        chosen, whole = len(_chosen(expected, filters)), len(expected.cases)
        flags = " ".join(f"--filter {text}" for text in filters)
        unplanned = " of the suites that are planned here" if expected.foreign else ""
        found.append(
            f"the workflow measured only {chosen} of {whole} cases{unplanned} ({flags}); {_ALLOW}"
        )
    right = expected.base.accepted if expected.base else ()
    moved = {
        name: values
        for name, values in asked.items()
        if name != FILTER and not (name == BASE and {*values} <= {*right})
    }
    found += [moved_by(name, moved[name]) for name in sorted(moved)]
    if head.source.dirty:
        found.append(
            "head was measured with changes that no commit holds: measure a clean checkout"
        )
    return tuple(found)


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
        f"cases of `{one.owner}` are planned only by head's tree, so a missing case goes unnoticed;"
        f" declare them in the base branch's configuration, as `{one.field}`: {HOW}"
        for one in expected.foreign
        if one.cases is None
    )


def _of_pair(head: Results, base: Results) -> Iterator[Difference]:
    """Base and head are measured in one run, each in turns with the other: by head's plan, unless base's is its own."""
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
        yield Difference(field="cases", message=f"are not head's: {_apart(ids[0], ids[1])}")


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


def _of_workflow(found: WorkflowRun | None, expected: WorkflowRun) -> Iterator[Difference]:
    if found is None:
        message = (
            "is not recorded: these results were not measured in a workflow, or by a ci-bench that"
            " did not say in which"
        )
        yield Difference(field="run.workflow", message=message)
        return
    for name in ("repository", "run", "attempt"):
        is_, wanted = getattr(found, name), getattr(expected, name)
        same = is_.casefold() == wanted.casefold() if isinstance(is_, str) else is_ == wanted
        if not same:
            hint = (
                f"; the artifact of another attempt is not this one's: {_RE_RUN}"
                if name == "attempt"
                else ""
            )
            yield Difference(
                field=f"run.workflow.{name}",
                message=f"is {show(is_)}, and has to be {wanted}{hint}",
            )


def _of_device(results: Results, expected: Expected) -> Iterator[Difference]:
    """Check the kind of device used for measuring. If no case completed, nothing was measured."""
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
    """Exactly the planned cases, each as it was planned; of suites that are not planned here what is declared."""
    rows = {row.case.id: row.case for row in results.cases}
    filters, ids = _filters(results.run.asked), _ids(expected)
    planned = {case.id: case for case in _chosen(expected, filters)}
    missing = [name for name in planned if name not in rows]
    if missing:
        yield Difference(
            field="cases",
            message=f"{_count(missing)} that the configuration plans: {names(missing)} missing",
        )
    suites = {one.suite for one in expected.foreign}
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
        own = [name for name, case in rows.items() if case.suite == suite and name not in planned]
        declared = [one for one in expected.foreign if one.suite == suite]
        yield from _of_declared(suite, declared, own, filters, ids)


def _of_case(path: str, case: Case, planned: Case) -> Iterator[Difference]:
    for one in fields(Case):
        found, wanted = getattr(case, one.name), getattr(planned, one.name)
        if one.name == "body" or (
            one.name == "stages" and not found
        ):  # of the tree; of an earlier version, which wrote none
            continue
        if _text(found) != _text(wanted):
            message = (
                f"of {show(case.id)} is {show(_text(found))}, and the configuration plans"
                f" {show(_text(wanted))}"
            )
            yield Difference(field=f"{path}.{one.name}", message=message)


def _of_declared(
    suite: str,
    declared: Sequence[Declaration],
    own: list[str],
    filters: tuple[str, ...],
    ids: Container[str],
) -> Iterator[Difference]:
    """Compare the ids of one suite with the declared ids and numbers.

    More are allowed if an entry declares nothing.
    """
    named = [name for one in declared if isinstance(one.cases, tuple) for name in one.cases]
    wanted = [name for name in named if fits_filters(name, filters, ids)]
    number = sum(one.cases for one in declared if isinstance(one.cases, int))
    naming, counting = (
        [one.field for one in declared if isinstance(one.cases, kind)] for kind in (tuple, int)
    )
    is_open = any(one.cases is None for one in declared)
    others = without(own, wanted)
    found = without(own, others) if counting or is_open else own
    if sorted(found) != sorted(wanted):
        message = f"of the suite {suite} are not those of {_where(naming)}: {_apart(found, wanted)}"
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


def _filters(asked: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the filters of a run; an empty list chooses nothing, as no list does."""
    return (*asked.get(FILTER, ()),)


def _chosen(expected: Expected, filters: tuple[str, ...]) -> list[Case]:
    ids = _ids(expected)
    return [case for case in expected.cases if fits_filters(case.id, filters, ids)]


def _ids(expected: Expected) -> frozenset[str]:
    """Return all ids that the base branch's configuration plans or declares."""
    declared = (
        name for one in expected.foreign if isinstance(one.cases, tuple) for name in one.cases
    )
    return frozenset((*(case.id for case in expected.cases), *declared))


def _apart(found: Sequence[str], wanted: Sequence[str]) -> str:
    """Describe the missing and the surplus names."""
    parts = (("missing", without(wanted, found)), ("too many", without(found, wanted)))
    return (
        "; ".join(f"{names(ids)} {word}" for word, ids in parts if ids) or "one of them comes twice"
    )


def _count(ids: Sequence[str]) -> str:
    return f"{len(ids)} {'case' if len(ids) == 1 else 'cases'}"


def _text(value: object) -> str:
    """Convert a field to its form in the document: JSON has lists instead of tuples."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: object) -> object:
    if isinstance(value, Due):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(Due)}
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value
