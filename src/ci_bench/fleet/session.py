"""One run over a fleet as documents, which are read as a stranger's, merged and judged.

Owns the rule which of a lease's documents may count. Merges as for documents made by hand
(`merging`), so the verdict is the same.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ci_bench.errors import CannotResume, CiBenchError
from ci_bench.fleet.coordinator import EarlierLeases, LeaseOutcome, Refused
from ci_bench.fleet.health import Health, readings
from ci_bench.fleet.merging import RunPair, differences, merge, own_faults
from ci_bench.fleet.protocol import EndedLease, LeaseOrder
from ci_bench.judge.times.sequential import SequentialRule
from ci_bench.judge.times.stopping import still_open
from ci_bench.records.calibration import Calibration
from ci_bench.records.config import Config, Sampling
from ci_bench.records.forms import Fact
from ci_bench.records.results import (
    Case,
    CaseResult,
    Environment,
    Failure,
    Lease,
    Results,
    Run,
    RunState,
    SideName,
    Source,
    Status,
)

NOT_MEASURED = "lease"
"""The stage that a case ends in that no lease has measured."""


def launches_s(head: Results) -> dict[str, float]:
    """Return the duration of a launch of each case, both sides together (s)."""
    seconds: dict[str, float] = {}
    for row in head.cases:
        launches = max((len(metric.launches) for metric in row.metrics), default=0)
        if row.duration_s and launches:
            seconds[row.case.id] = 2 * row.duration_s / launches
    return seconds


@dataclass(kw_only=True, slots=True)
class Session:
    """A run that leases measure for."""

    run: Run
    """Run of the gate that the leases measure for."""
    config: Config
    """Configuration of the gate."""
    rule: SequentialRule
    """Sequential rule for the launches of a case."""
    rows: Sequence[CaseResult]
    """Planned cases, not measured."""
    sources: Mapping[SideName, Source]
    """Commits of the sides: measurements of other code do not count."""
    read: Callable[[Path], RunPair]
    """Reads the documents in a folder."""
    known: Callable[[Mapping[str, Fact]], Calibration | None]
    """Finds a machine's calibration by its identity; returns `None` if it is missing."""
    base_rows: Sequence[CaseResult] | None = None
    """Planned cases of base's own plan; `None` if both sides share one."""
    launch_s: dict[str, float] = field(default_factory=dict)
    """Duration of a launch by case (s), from earlier runs and this one's leases."""
    pairs: list[RunPair] = field(default_factory=list)
    """Documents of the attempts that count."""
    health: Health = field(default_factory=Health)
    """Readings of base by slot, which show deviating slots."""
    planned: Mapping[SideName, Mapping[str, Case]] = field(init=False)
    """Planned cases of each side, by id."""

    def __post_init__(self) -> None:
        """Index the plan of each side by id."""
        self.planned = {
            name: {row.case.id: row.case for row in self._rows_of(name)} for name in SideName
        }

    def _rows_of(self, name: SideName) -> Sequence[CaseResult]:
        return self.base_rows if name is SideName.BASE and self.base_rows is not None else self.rows

    def _source(self, name: SideName) -> Source:
        """Return a side's commit, with how this run chose it: leases know only the commit."""
        return replace(self.sources[name], own_plan=self.base_rows is not None)

    def accept(self, ended: EndedLease) -> None:
        """Count an attempt's documents. Raises `Refused`."""
        assert ended.folder is not None  # noqa: S101 - an attempt without is lost already
        try:
            pair = self.read(ended.folder)
        except CiBenchError as error:
            raise Refused(" ".join(str(error).split())) from error
        if fault := self._other_lease(pair, ended.order):
            raise Refused(fault, at_fault=True)
        if pair.head.run.state is not RunState.COMPLETE or pair.base is None:
            raise Refused(
                "its documents are not whole: it was ended before its time, or its disk is full"
            )
        if fault := next(self._other_work(pair, ended.order), ""):
            raise Refused(fault, at_fault=True)
        self.pairs.append(pair)
        self.launch_s.update(launches_s(pair.head))
        self.health.note(ended.order.slot, readings(pair.base))

    def take_up(self, earlier: EarlierLeases) -> EarlierLeases:
        """Count an interrupted run's documents again; unreadable ones have to be measured again.

        Raises:
            CannotResume: it measured something else.
        """
        unsound = []
        for ended in earlier.delivered:
            try:
                self.accept(ended)
            except Refused as refusal:
                if refusal.at_fault:
                    which = (
                        f"lease {ended.order.lease.number} of the interrupted run does not belong"
                        " to this run"
                    )
                    raise CannotResume(
                        f"{which}: {refusal}; omit --resume to start over"
                    ) from refusal
                unsound.append(ended)
        return earlier.without(unsound)

    def off(self, slot: str) -> str:
        """Describe the deviation of a slot from its peers; empty for a normal slot."""
        return self.health.off(slot)

    def withdraw(self, slot: str, delivered: Sequence[EndedLease]) -> None:
        """Forget a slot's measurements."""
        gone = {self._lease(ended.order) for ended in delivered}
        self.pairs = [pair for pair in self.pairs if pair.head.run.lease not in gone]
        self.health.forget(slot)

    def _lease(self, order: LeaseOrder) -> Lease:
        return Lease(run=self.run.id, number=order.lease.number, attempt=order.attempt)

    def _other_lease(self, pair: RunPair, order: LeaseOrder) -> str:
        delivered, expected = pair.head.run.lease, self._lease(order)
        if delivered != expected or pair.head.parts:
            return f"its documents are of {delivered}, not of {expected}"
        return ""

    def _other_work(self, pair: RunPair, order: LeaseOrder) -> Iterator[str]:
        if pair.head.run.config_digest != self.run.config_digest:
            yield "it measured another configuration"
        for side, name in zip(pair.sides, (SideName.HEAD, SideName.BASE), strict=True):
            plan = self.planned[name]
            leased = {
                case: plan.get(case)
                for case in order.lease.cases
                if case in plan or self.base_rows is None
            }
            if {row.case.id: row.case for row in side.cases} != leased:
                yield "it returned other cases than were leased"
            if any(
                {launch.launch for metric in row.metrics for launch in metric.launches} - {0}
                for row in side.cases
            ):
                yield "it returned other launches than were leased"
            if side.source.commit != self.sources[name].commit:
                yield f"it measured {side.source.commit} as {name}, not {self.sources[name].commit}"
        yield from own_faults(pair)
        if self.pairs:
            yield from differences(self.pairs[0], pair)

    def still_open(self, look: int) -> Collection[str]:
        """Return the cases that need more than this many launches.

        The rule decides by all measurements so far.
        """
        if not self.pairs or self.config.run.sampling is Sampling.FIXED:
            return ()
        merged = merge(self.pairs)
        assert merged.base is not None  # noqa: S101 - pairs without are refused
        calibration = self.known(merged.head.environment.identity)
        return still_open(
            merged.base,
            merged.head,
            policy=self.config.policy,
            calibration=calibration,
            launches_done=look,
            rule=self.rule,
        ).keys()

    def results(self, outcome: LeaseOutcome, finished_at: str) -> Mapping[SideName, Results]:
        """Return both documents of the run, with a row for every planned case, and the losses."""
        run = replace(self.run, state=RunState.COMPLETE, finished_at=finished_at)
        if not self.pairs:
            return {name: self._nothing(name, run, outcome) for name in self.sources}
        merged = (
            merge(self.pairs, losses=outcome.losses)
            if len(self.pairs) > 1 or outcome.losses
            else self.pairs[0]
        )
        sides = {SideName.HEAD: merged.head, SideName.BASE: merged.base or merged.head}
        return {
            name: self._complete(name, side, run, outcome.given_up) for name, side in sides.items()
        }

    def _complete(
        self, name: SideName, side: Results, run: Run, given_up: Mapping[str, str]
    ) -> Results:
        """Return the document of a side with a row for every planned case."""
        measured = {row.case.id: row for row in side.cases}
        return replace(
            side,
            run=run,
            source=self._source(name),
            cases=tuple(
                measured.get(row.case.id) or _not_measured(row, given_up)
                for row in self._rows_of(name)
            ),
        )

    def _nothing(self, name: SideName, run: Run, outcome: LeaseOutcome) -> Results:
        from ci_bench import __version__

        return Results(
            tool_version=__version__,
            run=run,
            source=self._source(name),
            environment=Environment(identity={}, condition={}),
            cases=tuple(_not_measured(row, outcome.given_up) for row in self._rows_of(name)),
            losses=outcome.losses,
        )


def _not_measured(row: CaseResult, given_up: Mapping[str, str]) -> CaseResult:
    """Return a row without measurements; one that its plan has ended stays as it is."""
    if row.status is not Status.NOT_RUN:
        return row
    reason = given_up.get(row.case.id, "no lease measured it")
    return replace(
        row, status=Status.NOT_RUN, failure=Failure(stage=NOT_MEASURED, arms=(), reason=reason)
    )
