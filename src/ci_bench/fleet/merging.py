"""One document pair from several of one plan: from a fleet, a CI matrix, or runs by hand.

Owns what may be merged (the same configuration, code, tool and measured identity), that nothing
counts twice, and how launches are renumbered. Values in, values out; reading the documents is the
caller's. A launch is known by its run, case and number. The result does not depend on the order of
the documents.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

from ci_bench.errors import CannotMerge
from ci_bench.judge.parity.verdict import learning_of, outputs_of, parity_findings
from ci_bench.records.forms import Fact
from ci_bench.records.outputs import Sameness
from ci_bench.records.results import (
    Block,
    Case,
    CaseResult,
    Environment,
    Failure,
    Launch,
    Loss,
    Metric,
    Origin,
    Results,
    Run,
    RunPart,
    RunState,
    SideName,
    Status,
)
from ci_bench.runner.ledger import merge_checks
from ci_bench.worker.phases import add_up

SHOWN = 5
Key = tuple[str, str, int]
"""Key of a launch in any document: run, case, and its number in that run."""

WORST_FIRST = (
    Status.CRASHED,
    Status.OUT_OF_MEMORY,
    Status.TIMEOUT,
    Status.FAILED,
    Status.SKIPPED,
    Status.OK,
    Status.NOT_RUN,
)
"""A case that failed on one device failed, even if it passed elsewhere.

One that was not started on some has the status of the rest.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPair:
    """Documents of one run: head's, and base's if it was measured too.

    `name` is for messages. `whole` is the number of complete launches of each case of an
    interrupted run; `None` for a complete run.
    """

    name: str
    head: Results
    base: Results | None
    whole: Mapping[str, int] | None = None

    @property
    def sides(self) -> tuple[Results, ...]:
        """Head's document, and base's if there is one."""
        return (self.head,) if self.base is None else (self.head, self.base)

    @property
    def parts(self) -> tuple[RunPart, ...]:
        """The run itself, or the runs that it was merged of."""
        return self.head.parts or (part_of(self.head),)


def part_of(results: Results) -> RunPart:
    """Return a run as a part of a merged document."""
    return RunPart(
        run=results.run,
        slot=slot_of(results.environment, results.run),
        condition=results.environment.condition,
        measured_s=results.measured_s,
    )


def slot_of(environment: Environment, run: Run) -> str:
    """Return the device's key: the GPU's UUID, else the machine's digest, else the run's id."""
    for name in ("gpu_uuid", "machine"):
        if isinstance(fact := environment.condition.get(name), str) and fact:
            return f"{name}:{fact}"[:200]
    return f"run:{run.id}"


def merge(runs: Iterable[RunPair], *, losses: tuple[Loss, ...] = ()) -> RunPair:
    """Merge the documents of all runs into those of one.

    A run that occurs twice counts once; a single run stays as it is.

    Cases keep the order of the first run by its start. A case's launches keep their numbers unless
    two runs share one. Then they are renumbered, first launches first, which lets early looks see
    every device.

    Raises:
        CannotMerge: the runs are of different plans, code, tools or machines, one contradicts
        another, or no run was passed.
    """
    pairs = sorted(map(_cut, runs), key=_order)
    if not pairs:
        raise CannotMerge("nothing to merge: name the folders of at least one run")
    faults = list(chain.from_iterable(map(own_faults, pairs)))
    faults += (
        []
        if faults
        else list(chain.from_iterable(differences(pairs[0], other) for other in pairs[1:]))
    )
    _refuse(faults)
    distinct = _distinct(_first_attempts(pairs))
    if len(distinct) == 1 and not losses:
        return distinct[0]
    return _joined(distinct, losses)


def _refuse(faults: Sequence[str]) -> None:
    if faults:
        more = f"\nand {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise CannotMerge("these runs cannot be merged:\n" + "\n".join(faults[:SHOWN]) + more)


def _order(pair: RunPair) -> tuple[str, str, int, str]:
    return pair.head.run.started_at, pair.head.run.id, -len(pair.parts), pair.name


def _cut(pair: RunPair) -> RunPair:
    """Keep only complete launches of an interrupted run: the last one may lack samples."""
    if pair.whole is None:
        return pair
    sides = [
        replace(
            side, cases=tuple(_cut_row(row, pair.whole.get(row.case.id, 0)) for row in side.cases)
        )
        for side in pair.sides
    ]
    return replace(pair, head=sides[0], base=sides[1] if pair.base is not None else None)


def _cut_row(row: CaseResult, launches: int) -> CaseResult:
    if row.status not in {Status.NOT_RUN, Status.OK}:
        return row
    cut = (
        replace(
            metric, launches=tuple(launch for launch in metric.launches if launch.launch < launches)
        )
        for metric in row.metrics
    )
    return replace(
        row,
        metrics=tuple(metric for metric in cut if metric.launches),
        blocks=tuple(block for block in row.blocks if block.launch < launches),
        status=Status.OK if launches else Status.NOT_RUN,
        failure=(
            None
            if launches
            else (
                row.failure or Failure(stage="plan", arms=(), reason="its run was cut off before")
            )
        ),
    )


def own_faults(pair: RunPair) -> Iterator[str]:
    """Yield contradictions between the two documents of one run."""
    head, base = pair.head, pair.base
    if base is None:
        return
    if head.run.id != base.run.id or head.parts != base.parts:
        yield f"{pair.name}: base and head are of different runs ({base.run.id}, {head.run.id})"
    elif not base.source.own_plan and [row.case for row in head.cases] != [
        row.case for row in base.cases
    ]:
        yield f"{pair.name}: base and head have other cases"
    elif changed := _describe_differences(head.environment.identity, base.environment.identity):
        yield f"{pair.name}: base and head were measured on different machines: {changed}"


def differences(first: RunPair, other: RunPair) -> Iterator[str]:
    """Explain why a run differs from the first in plan, code or kind of machine."""
    where = f"{other.name} and {first.name}"
    if (first.base is None) != (other.base is None):
        yield f"{where}: one has base's results, the other has none"
        return
    if first.head.tool_version != other.head.tool_version:
        yield (
            f"{where}: measured by ci-bench {other.head.tool_version} and {first.head.tool_version}"
        )
    if _settings(first.head.run) != _settings(other.head.run):
        yield f"{where}: measured by different configurations or flags"
    for name, side, other_side in zip(
        (SideName.HEAD, SideName.BASE), first.sides, other.sides, strict=False
    ):
        yield from (f"{where}: {reason}" for reason in _other_code(name, side, other_side))
    if not first.head.environment.identity or not other.head.environment.identity:
        yield f"{where}: one run measured nothing, so its machine is unknown; leave that run out"
    elif changed := _describe_differences(
        first.head.environment.identity, other.head.environment.identity
    ):
        yield f"{where}: the machines are not identical: {changed}"
    yield from (f"{where}: {reason}" for reason in _other_plan(first.head, other.head))
    if (
        first.base is not None
        and other.base is not None
        and (first.base.source.own_plan or other.base.source.own_plan)
    ):
        yield from (f"{where}: of base, {reason}" for reason in _other_plan(first.base, other.base))


def _settings(run: Run) -> tuple[str, Mapping[str, tuple[str, ...]]]:
    """Return a run's settings, except for the device's number and the flag that chooses cases."""
    return run.config_digest, {
        name: values for name, values in run.asked.items() if name not in {"filter", "device"}
    }


def _describe_differences(first: Mapping[str, object], other: Mapping[str, object]) -> str:
    names = [
        name
        for name in sorted({*first, *other})
        if name not in first or name not in other or first[name] != other[name]
    ]
    return ", ".join(
        f"{name} is {other.get(name)!r:.80}, not {first.get(name)!r:.80}" for name in names[:SHOWN]
    )


def _other_code(name: SideName, first: Results, other: Results) -> Iterator[str]:
    if first.source.commit is None or other.source.commit is None:
        yield f"without a git checkout, it is unknown whether {name} is the same code"
    elif first.source.commit != other.source.commit:
        yield f"{name} is commit {other.source.commit[:10]}, not {first.source.commit[:10]}"
    elif first.source.dirty is not False or other.source.dirty is not False:
        yield f"{name} has or may have uncommitted changes, which cannot be compared"


def _other_plan(first: Results, other: Results) -> Iterator[str]:
    """Explain why two runs have different plans.

    Runs with the same filter have the same cases, and a case is the same in every run that has it.
    """
    cases: tuple[dict[str, Case], dict[str, Case]] = tuple(
        {row.case.id: row.case for row in of.cases} for of in (first, other)
    )  # type: ignore[assignment]
    if (
        first.run.asked.get("filter") == other.run.asked.get("filter")
        and cases[0].keys() != cases[1].keys()
    ):
        lacking = sorted(cases[0].keys() ^ cases[1].keys())
        yield f"{len(lacking)} case(s) are planned in only one of the two, {lacking[0]} first"
    changed = [
        name for name in cases[0].keys() & cases[1].keys() if cases[0][name] != cases[1][name]
    ]
    if changed:
        yield f"{len(changed)} case(s) are planned with other options, {min(changed)} first"


def _first_attempts(pairs: Sequence[RunPair]) -> list[RunPair]:
    """Select one run for each lease: the earliest complete attempt.

    Lost attempts that arrive late are ignored.
    """
    chosen: dict[tuple[str, int], tuple[bool, int, str]] = {}
    for run in (part.run for pair in pairs for part in pair.parts):
        if run.lease is not None:
            key, rank = (
                (run.lease.run, run.lease.number),
                (
                    run.state is not RunState.COMPLETE,
                    run.lease.attempt,
                    run.id,
                ),
            )
            earlier = chosen.setdefault(key, rank)
            if earlier[1] == rank[1] and earlier[2] != rank[2]:
                reason = f"two runs, {earlier[2]} and {rank[2]}, are both attempt {rank[1]}"
                raise CannotMerge(f"lease {key[1]} of run {key[0]}: {reason}")
            chosen[key] = min(earlier, rank)
    run_ids = {rank[2] for rank in chosen.values()}
    return [
        pair
        for pair in pairs
        if all(part.run.lease is None or part.run.id in run_ids for part in pair.parts)
    ]


def _distinct(pairs: Sequence[RunPair]) -> list[RunPair]:
    """Return pairs with each launch once, without pairs whose launches another one has, too.

    Raises:
        CannotMerge: two hold one launch with other samples, or share some launches and differ
        in the rest.
    """
    digests_by_pair = [_digests(pair) for pair in pairs]
    owners: dict[Key, int] = {}
    for place, digests in enumerate(digests_by_pair):
        for key, digest in digests.items():
            owner = owners.setdefault(key, place)
            if digests_by_pair[owner][key] != digest:
                run, case, number = key
                where = f"{pairs[owner].name} and {pairs[place].name}"
                raise CannotMerge(
                    f"{where} contradict each other: launch {number} of {case} in run {run} has"
                    " other samples"
                )
    runs = [{part.run.id for part in pair.parts} for pair in pairs]
    distinct: list[int] = []
    for place in sorted(
        range(len(pairs)),
        key=lambda at: (-len(runs[at]), -len(digests_by_pair[at]), _is_cut(pairs[at]), at),
    ):
        covering = next(
            (
                at
                for at in distinct
                if runs[place] <= runs[at]
                and digests_by_pair[place].keys() <= digests_by_pair[at].keys()
            ),
            None,
        )
        if covering is not None:
            _require_same(pairs[place], pairs[covering])
            continue
        if sharing := [pairs[at].name for at in distinct if runs[place] & runs[at]]:
            where = f"{pairs[place].name} and {sharing[0]}"
            raise CannotMerge(
                f"{where} are partial merges of one run; merge the run's original folders"
            )
        distinct.append(place)
    return [pairs[place] for place in sorted(distinct)]


def _is_cut(pair: RunPair) -> bool:
    return pair.head.run.state is not RunState.COMPLETE


def _require_same(first: RunPair, other: RunPair) -> None:
    """Check that two documents of one complete run are equal. Raises `CannotMerge`."""
    comparable = not _is_cut(first) and not _is_cut(other) and len(first.parts) == len(other.parts)
    if comparable and (first.head, first.base) != (other.head, other.base):
        raise CannotMerge(
            f"{first.name} and {other.name} are of the same run, {first.head.run.id}, and differ"
        )


def _digests(pair: RunPair) -> dict[Key, str]:
    """Return digests of each launch of a pair, over both sides."""
    by_launch: dict[Key, list[str]] = defaultdict(list)
    for side, results in enumerate(pair.sides):
        for row in results.cases:
            origins = {origin.launch: origin for origin in row.origins}
            for metric, launch in (
                (series, launch) for series in row.metrics for launch in series.launches
            ):
                origin = origins.get(launch.launch)
                run = pair.parts[origin.part].run.id if origin else results.run.id
                key = run, row.case.id, origin.number if origin else launch.launch
                by_launch[key].append(
                    f"{side} {metric.name} {metric.arm} {launch.values} {launch.warmup}"
                    f" {launch.blocks}"
                )
    return {
        key: hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
        for key, lines in by_launch.items()
    }


def _joined(pairs: Sequence[RunPair], losses: tuple[Loss, ...]) -> RunPair:
    parts = tuple(chain.from_iterable(pair.parts for pair in pairs))
    rows = {name: _joined_rows(holders) for name, holders in _holders(pairs).items()}
    gone = {
        row.case.id: row
        for pair in pairs
        if pair.base is not None
        for row in pair.base.cases
        if row.case.id not in rows
    }
    run = _run_of(pairs, parts)
    sides = []
    for side in range(len(pairs[0].sides)):
        documents = [pair.sides[side] for pair in pairs]
        measured_s = [results.measured_s for results in documents if results.measured_s is not None]
        sides.append(
            replace(
                documents[0],
                run=run,
                environment=replace(
                    documents[0].environment,
                    condition=_common([results.environment.condition for results in documents]),
                ),
                cases=(
                    *(both[side] for both in rows.values() if side < len(both)),
                    *(gone.values() if side else ()),
                ),
                measured_s=round(sum(measured_s), 3) or None,
                spent=add_up(tuple(chain.from_iterable(results.spent for results in documents))),
                parts=parts,
                losses=tuple(
                    dict.fromkeys(chain(*(results.losses for results in documents), losses))
                ),
            )
        )
    return RunPair(name="merged", head=sides[0], base=sides[1] if len(sides) > 1 else None)


def _holders(pairs: Sequence[RunPair]) -> "dict[str, list[_Holder]]":
    """Return the pairs that have each case of head's, by id.

    Cases are in the order of the first pair that has them.
    """
    holders: dict[str, list[_Holder]] = {}
    offset = 0
    for place, pair in enumerate(pairs):
        parts = pair.parts
        base = {row.case.id: row for row in pair.base.cases} if pair.base is not None else {}
        for row in pair.head.cases:
            rows = (row, base[row.case.id]) if row.case.id in base else (row,)
            holders.setdefault(row.case.id, []).append(
                _Holder(place=place, offset=offset, rows=rows, parts=parts)
            )
        offset += len(parts)
    return holders


def _run_of(pairs: Sequence[RunPair], parts: Sequence[RunPart]) -> Run:
    """Return a run for all parts: from the first to the last moment, complete if all of them are.

    Its id follows from theirs.
    """
    ends = [part.run.finished_at for part in parts]
    digest = hashlib.sha256("\n".join(sorted(part.run.id for part in parts)).encode()).hexdigest()
    filters = [part.run.asked.get("filter", ()) for part in parts]
    flags = {name: values for name, values in pairs[0].head.run.asked.items() if name != "filter"}
    workflows = {part.run.workflow and replace(part.run.workflow, attempt=1) for part in parts}
    attempts = [part.run.workflow.attempt for part in parts if part.run.workflow]
    workflow = parts[0].run.workflow if len(workflows) == 1 else None
    return replace(
        parts[0].run,
        id=f"merged-{digest[:32]}",
        started_at=min(part.run.started_at for part in parts),
        finished_at=max(filter(None, ends)) if all(ends) else None,
        state=(
            RunState.COMPLETE
            if all(part.run.state is RunState.COMPLETE for part in parts)
            else RunState.PARTIAL
        ),
        workflow=workflow and replace(workflow, attempt=max(attempts)),
        asked=flags
        | ({"filter": tuple(dict.fromkeys(chain.from_iterable(filters)))} if all(filters) else {}),
        lease=None,
    )


def _common(facts: Sequence[Mapping[str, Fact]]) -> dict[str, Fact]:
    """Return the facts on which all agree; each part keeps its own."""
    return {
        name: fact
        for name, fact in facts[0].items()
        if all(name in other and other[name] == fact for other in facts)
    }


def _joined_rows(holders: "Sequence[_Holder]") -> list[CaseResult]:
    """Return the row of a case on each side that has it, head's first."""
    sides = min(len(holder.rows) for holder in holders)
    numbers = _numbers(holders)
    telling = next((holder for holder in holders if not _holds(holder.rows)), holders[0])
    return [_joined_row(side, holders, numbers, telling) for side in range(sides)]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Holder:
    """The rows of a case in one pair, head's first, and base's if base has it.

    `offset` is the place of the pair's first part among all parts. `parts` are the pair's own runs.
    """

    place: int
    offset: int
    rows: Sequence[CaseResult]
    parts: Sequence[RunPart]

    @property
    def slot(self) -> str | None:
        """The device of a pair that was not merged before."""
        return self.parts[0].slot if len(self.parts) == 1 else None

    @property
    def known(self) -> Mapping[int, Origin]:
        """The origins that a merged pair lists for its launches."""
        return {origin.launch: origin for origin in self.rows[0].origins}

    def launches(self) -> set[int]:
        """Return the launches of which either side has a metric or a block."""
        of_metrics = {
            launch.launch
            for row in self.rows
            for metric in row.metrics
            for launch in metric.launches
        }
        return of_metrics | {block.launch for row in self.rows for block in row.blocks}

    def origin(self, launch: int) -> Origin:
        """Return a launch's origin, also after merges; `part` is a place in this pair's parts."""
        return self.known.get(launch) or Origin(launch=launch, part=0, number=launch)


def _numbers(holders: Sequence[_Holder]) -> dict[tuple[int, int], int]:
    """Return the new number of each launch, by holder and old number."""
    launches: list[tuple[int, str, str, int, int]] = []
    for holder in holders:
        for launch in holder.launches():
            origin = holder.origin(launch)
            run = holder.parts[origin.part].run
            launches.append((origin.number, run.started_at, run.id, holder.place, launch))
    keep = len({number for number, *_ in launches}) == len(launches)
    return {
        (place, launch): number if keep else rank
        for rank, (number, _, _, place, launch) in enumerate(sorted(launches))
    }


def _holds(rows: Sequence[CaseResult]) -> bool:
    """Return whether a pair's parity and outputs hold.

    If one of several devices computes something else, it counts.
    """
    head, base = rows[0], rows[1] if len(rows) > 1 else None
    findings = [
        finding for row in rows if row.parity is not None for finding in parity_findings(row.parity)
    ]
    learning, outputs = learning_of(base, head), outputs_of(base, head)
    learned_alike = learning is None or learning.verdict.holds
    computed_alike = outputs is None or outputs.verdict.holds or outputs.verdict is Sameness.UNKNOWN
    return learned_alike and computed_alike and all(finding.verdict.holds for finding in findings)


def _joined_row(
    side: int, holders: Sequence[_Holder], numbers: Mapping[tuple[int, int], int], telling: _Holder
) -> CaseResult:
    rows = [holder.rows[side] for holder in holders]
    worst = min(holders, key=lambda holder: WORST_FIRST.index(holder.rows[side].status))
    failure = worst.rows[side].failure
    if failure is not None and worst.slot is not None:
        failure = replace(failure, reason=f"on {worst.slot}: {failure.reason}"[:1000])
    metrics = [
        _renumbered(metric, numbers, holder.place)
        for holder in holders
        for metric in holder.rows[side].metrics
    ]
    blocks = [
        replace(block, launch=numbers[holder.place, block.launch])
        for holder in holders
        for block in holder.rows[side].blocks
    ]
    seconds = [row.duration_s for row in rows if row.duration_s is not None]
    facts = reduce(
        lambda later, earlier: {**later, **earlier}, (row.facts for row in reversed(rows))
    )
    return replace(
        telling.rows[side],
        status=worst.rows[side].status,
        failure=failure,
        reproduce=rows[0].reproduce,
        duration_s=round(sum(seconds), 6) or None,
        metrics=tuple(_one_each(metrics)),
        checks=merge_checks(chain.from_iterable(row.checks for row in rows)),
        facts=facts,
        blocks=tuple(sorted(blocks, key=_launch_of)),
        spent=add_up(tuple(chain.from_iterable(row.spent for row in rows))),
        origins=tuple(sorted(_origins(holders, numbers), key=_launch_of)),
    )


def _origins(
    holders: Sequence[_Holder], numbers: Mapping[tuple[int, int], int]
) -> Iterator[Origin]:
    for holder in holders:
        for launch in holder.launches():
            origin = holder.origin(launch)
            yield replace(
                origin, launch=numbers[holder.place, launch], part=holder.offset + origin.part
            )


def _one_each(metrics: Sequence[Metric]) -> Iterator[Metric]:
    """Yield one metric for each name and arm, in the order of their first appearance.

    Its launches are ordered by number.

    Raises:
        CannotMerge: two runs mean other things by one name.
    """
    kinds: dict[tuple[str, str], list[Metric]] = {}
    for metric in metrics:
        kinds.setdefault((metric.name, metric.arm), []).append(metric)
    for (name, arm), same in kinds.items():
        if len({(metric.unit, metric.better, metric.lane, metric.items) for metric in same}) > 1:
            raise CannotMerge(
                f"{name} of {arm} has another unit, direction, clock or number of items in some of"
                " the runs"
            )
        launches = chain.from_iterable(metric.launches for metric in same)
        yield replace(same[0], launches=tuple(sorted(launches, key=_launch_of)))


def _renumbered(metric: Metric, numbers: Mapping[tuple[int, int], int], place: int) -> Metric:
    return replace(
        metric,
        launches=tuple(
            replace(launch, launch=numbers[place, launch.launch]) for launch in metric.launches
        ),
    )


def _launch_of(item: Launch | Block | Origin) -> int:
    return item.launch
