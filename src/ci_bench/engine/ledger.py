"""The ledger of a run: exactly one row per planned case, from the first moment on.

A value with methods that return the next value; writing it to disk is the pipeline's business.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from ci_bench.records.case import Block, Case, CaseResult, Check, Failure, Metric, Outcome, Status
from ci_bench.suites.base import Evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Rows by case id, in the order of the plan."""

    rows: Mapping[str, CaseResult]

    @classmethod
    def open(cls, cases: Iterable[Case], *, reproduce: Mapping[str, str]) -> "Ledger":
        """A row for every planned case, all `not_run`."""
        waiting = Failure(stage="plan", arms=(), reason="the run ended before this case was finished")
        return cls(
            rows={
                case.id: CaseResult(case=case, status=Status.NOT_RUN, reproduce=reproduce[case.id], failure=waiting)
                for case in cases
            }
        )

    def with_evidence(self, case: Case, evidence: Evidence, *, duration_s: float, blocks: tuple[Block, ...] = ()) -> "Ledger":
        """Add what a stage found out, and what the machine was like meanwhile."""
        row = self.rows[case.id]
        return self._with(
            replace(
                row,
                duration_s=_longer(row, duration_s),
                metrics=merge_metrics((*row.metrics, *evidence.metrics)),
                checks=merge_checks((*row.checks, *evidence.checks)),
                parity=evidence.parity or row.parity,
                facts={**row.facts, **evidence.facts},
                blocks=(*row.blocks, *blocks),
            )
        )

    def with_failure(self, case: Case, status: Status, failure: Failure, *, duration_s: float = 0.0) -> "Ledger":
        """End a case otherwise than well; what it measured before is kept."""
        row = self.rows[case.id]
        return self._with(replace(row, status=status, failure=failure, duration_s=_longer(row, duration_s)))

    def with_success(self, case: Case) -> "Ledger":
        """End a case well."""
        return self._with(replace(self.rows[case.id], status=Status.OK, failure=None))

    def is_open(self, case: Case) -> bool:
        """Whether the case has not failed so far."""
        return self.rows[case.id].status in {Status.NOT_RUN, Status.OK}

    def _with(self, row: CaseResult) -> "Ledger":
        return Ledger(rows={**self.rows, row.case.id: row})


def _longer(row: CaseResult, duration_s: float) -> float | None:
    """`None` as long as nothing of the case has run: zero would be a guess."""
    return round((row.duration_s or 0.0) + duration_s, 6) or None


def merge_checks(checks: Iterable[Check]) -> tuple[Check, ...]:
    """One check per name and arm: the worst answer of any stage or launch, since a later pass does not undo a failure."""
    order = (Outcome.PASS, Outcome.UNKNOWN, Outcome.FAIL)
    worst: dict[tuple[str, str], Check] = {}
    for check in checks:
        key = (check.name, check.arm)
        if key not in worst or order.index(check.outcome) > order.index(worst[key].outcome):
            worst[key] = check
    return tuple(worst.values())


def merge_metrics(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """One metric per name and arm, its launches joined in the order given."""

    def key(metric: Metric) -> tuple[str, str]:
        return metric.name, metric.arm

    groups = (tuple(group) for _, group in groupby(sorted(metrics, key=key), key=key))
    return tuple(replace(group[0], launches=tuple(x for metric in group for x in metric.launches)) for group in groups)
