"""The ledger of a run: exactly one row per planned case, from the first moment on.

A value with methods that return the next value; the pipeline writes it to disk. Owns the check of a
stage's output against the document's own rules, applied to one row. A plugin's mistake stays with
its case, and the rest of the results stays readable.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from ci_bench.errors import BadDocument
from ci_bench.records import documents
from ci_bench.records.first_calls import FirstCall
from ci_bench.records.forms import Fact
from ci_bench.records.outputs import ReferenceOutputs
from ci_bench.records.profiles import Profile
from ci_bench.records.results import (
    Block,
    Case,
    CaseResult,
    Check,
    Environment,
    Failure,
    Metric,
    Outcome,
    ParityEvidence,
    Results,
    Run,
    RunState,
    Source,
    Spent,
    Status,
)
from ci_bench.suites.contract import Evidence
from ci_bench.worker.phases import add_up

_SOUND = Results(
    tool_version="0",
    run=Run(
        id="row",
        started_at="2000-01-01T00:00:00Z",
        state=RunState.PARTIAL,
        config_digest="0",
        device="cpu",
    ),
    source=Source(),
    environment=Environment(identity={}, condition={}),
    cases=(),
)
SHOWN = 5


def refuse_row(row: CaseResult) -> str:
    """Return why a results document with this row could not be read again; empty if it could."""
    try:
        raw = documents.to_json(replace(_SOUND, cases=(row,)))
        faults = [str(fault) for fault in documents.validate(raw, documents.Kind.RESULTS)]
    except BadDocument as error:
        faults = [str(error)]
    if not faults:
        return ""
    more = f"\nand {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "the suite sent what no results document can hold:\n" + "\n".join(faults[:SHOWN]) + more


WAITING = Failure(stage="plan", arms=(), reason="the run ended before this case was finished")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Rows by case id, in the order of the plan.

    `launches` holds the number of complete launches of a case, if any. `spent` is time outside
    cases, `measured_s` how long the device was locked.
    """

    rows: Mapping[str, CaseResult]
    launches: Mapping[str, int] = field(default_factory=dict)
    spent: tuple[Spent, ...] = ()
    measured_s: float = 0.0

    @classmethod
    def of(cls, rows: Iterable[CaseResult]) -> "Ledger":
        """Return these rows; unmeasured ones have that status."""
        waiting = (
            replace(row, failure=WAITING) if row.status is Status.NOT_RUN else row for row in rows
        )
        return cls(rows={row.case.id: row for row in waiting})

    @classmethod
    def open(cls, cases: Iterable[Case], *, reproduce: Mapping[str, str]) -> "Ledger":
        """Return a row for every planned case, all `not_run`."""
        return cls.of(
            CaseResult(case=case, status=Status.NOT_RUN, reproduce=reproduce[case.id])
            for case in cases
        )

    def with_launch(self, case: Case, launch: int) -> "Ledger":
        """Record that the case has everything of launch `launch`, counted from 0.

        The measurements of a complete launch are a result, even if an interrupt, the budget or a
        kill prevents further launches.
        """
        if case.id not in self.rows:
            return self
        counted = replace(self, launches={**self.launches, case.id: launch + 1})
        return counted.with_success(case) if self.is_open(case) else counted

    def resumed(self, earlier: "Ledger") -> "Ledger":
        """Return this plan with an interrupted run's results.

        These are ended cases, and complete launches of the others.
        """
        rows = {
            name: _resumed(row, earlier.rows[name], earlier.launches.get(name, 0))
            for name, row in self.rows.items()
        }
        return replace(earlier, rows=rows)

    def with_evidence(
        self, case: Case, evidence: Evidence, *, duration_s: float, blocks: tuple[Block, ...] = ()
    ) -> "Ledger":
        """Add a stage's evidence, the machine's condition meanwhile, and the time."""
        row = self.rows[case.id]
        return self._with(
            replace(
                row,
                duration_s=_longer(row, duration_s),
                metrics=merge_metrics((*row.metrics, *evidence.metrics)),
                checks=merge_checks((*row.checks, *evidence.checks)),
                parity=merge_parity(row.parity, evidence.parity),
                facts={**row.facts, **evidence.facts},
                blocks=(*row.blocks, *blocks),
                outputs=evidence.outputs or row.outputs,
                spent=add_up((*row.spent, *evidence.spent)),
            )
        )

    def with_spent(self, *spent: Spent) -> "Ledger":
        """Add time outside cases."""
        return replace(self, spent=add_up((*self.spent, *spent)))

    def with_profile(
        self,
        case: Case,
        profile: Profile,
        *,
        spent: tuple[Spent, ...] = (),
        facts: Mapping[str, Fact] | None = None,
    ) -> "Ledger":
        """Store what an arm's step consists of, one profile per arm.

        The case's status and evidence stay as they are.
        """
        row = self.rows[case.id]
        others = (existing for existing in row.profiles if existing.arm != profile.arm)
        return self._with(
            replace(
                row,
                profiles=(*others, profile),
                spent=add_up((*row.spent, *spent)),
                facts={**row.facts, **(facts or {})},
            )
        )

    def with_outputs(self, case: Case, outputs: ReferenceOutputs) -> "Ledger":
        """Store the outputs of the case's reference arm."""
        return self._with(replace(self.rows[case.id], outputs=outputs))

    def with_failure(
        self,
        case: Case,
        status: Status,
        failure: Failure,
        *,
        duration_s: float = 0.0,
        spent: tuple[Spent, ...] = (),
    ) -> "Ledger":
        """End a case with a failure; its earlier measurements are kept."""
        row = self.rows[case.id]
        ended = replace(row, status=status, failure=failure, duration_s=_longer(row, duration_s))
        return self._with(replace(ended, spent=add_up((*row.spent, *spent))))

    def with_success(self, case: Case) -> "Ledger":
        """End a case successfully."""
        return self._with(replace(self.rows[case.id], status=Status.OK, failure=None))

    def is_open(self, case: Case) -> bool:
        """Return whether the side has the case, and it has not failed so far."""
        row = self.rows.get(case.id)
        return row is not None and row.status in {Status.NOT_RUN, Status.OK}

    def _with(self, row: CaseResult) -> "Ledger":
        return replace(self, rows={**self.rows, row.case.id: row})


def _resumed(planned: CaseResult, earlier: CaseResult, launches: int) -> CaseResult:
    """Drop everything of an interrupted launch: its samples would be there twice."""
    if earlier.status not in {Status.NOT_RUN, Status.OK}:
        return earlier
    if not launches:
        return planned
    cut = (
        replace(
            metric,
            launches=tuple(series for series in metric.launches if series.launch < launches),
        )
        for metric in earlier.metrics
    )
    return replace(
        earlier,
        status=Status.OK,
        failure=None,
        metrics=tuple(metric for metric in cut if metric.launches),
        blocks=tuple(block for block in earlier.blocks if block.launch < launches),
    )


def _longer(row: CaseResult, duration_s: float) -> float | None:
    """Add a duration. `None` as long as nothing of the case has run: zero would be a guess."""
    return round((row.duration_s or 0.0) + duration_s, 6) or None


def merge_checks(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return one check per name and arm: the worst of any stage or launch.

    A later pass does not undo a failure.
    """
    order = (Outcome.PASS, Outcome.UNKNOWN, Outcome.FAIL)
    worst: dict[tuple[str, str], Check] = {}
    for check in checks:
        key = (check.name, check.arm)
        if key not in worst or order.index(check.outcome) > order.index(worst[key].outcome):
            worst[key] = check
    return tuple(worst.values())


def merge_parity(
    earlier: ParityEvidence | None, later: ParityEvidence | None
) -> ParityEvidence | None:
    """Replace earlier evidence by later; further trainings, of no candidate, are added to it."""
    if earlier is None or later is None or later.masks:
        return later or earlier
    traces = {
        (trace.role, trace.arm, trace.seed, trace.index): trace
        for trace in (*later.traces, *earlier.traces)
    }
    return replace(
        earlier, traces=tuple(traces.values()), twin=merge_parity(earlier.twin, later.twin)
    )


def merge_metrics(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Return one metric per name and arm, its launches joined in the order given."""

    def key(metric: Metric) -> tuple[str, str]:
        return metric.name, metric.arm

    groups = (tuple(group) for _, group in groupby(sorted(metrics, key=key), key=key))
    return tuple(
        replace(group[0], launches=tuple(series for metric in group for series in metric.launches))
        for group in groups
    )


AS_VERIFIED = "as_verified"
"""The name of the check, which is present only if it fails."""


def as_verified(
    verified: Mapping[str, FirstCall], timed: Mapping[str, FirstCall]
) -> Iterator[Check]:
    """Fail each arm whose first timed call differs from its first verified one.

    Inputs, weights and outputs are compared.
    """
    for arm, begun in timed.items():
        others = list(verified.get(arm, FirstCall()).differing(begun))
        if others:
            detail = (
                f"what is timed is not what was verified: {'; '.join(others)}; build the same in"
                " every process"
            )
            yield Check(name=AS_VERIFIED, arm=arm, outcome=Outcome.FAIL, detail=detail[:1000])
