"""Compiled arms of each case side by side, over the cases of a suite, with the fastest marked.

Owns the table's cases and arms and the notes on them, but not its appearance. All speedups of a row
have one denominator, the case's reference arm. The geometric mean of an arm is over the cases in
which every arm of the table has a speedup and passes: all means are over the same cases.
"""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ci_bench.records.comparison import ArmSpeedup, CaseComparison, Comparison
from ci_bench.records.results import Outcome
from ci_bench.report.averages import passes
from ci_bench.report.rows import labels, main_rows

LEAST_ARMS = 2
LEAST_CASES = 2
COMPILED = "compiled"
"""The check of an arm under `torch.compile`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModeRow:
    """One row: a case, or the mean over several cases."""

    label: str
    """The case's short name, or the name of the mean."""
    case: CaseComparison | None = None
    """The case; `None` for the row of means."""
    speedups: Mapping[str, ArmSpeedup] = field(default_factory=dict)
    """The speedup of each arm over the reference; empty for the row of means."""
    fastest: str | None = None
    """The arm that is certainly faster than the reference and all others, or `None`."""
    wrong: frozenset[str] = frozenset()
    """The arms that failed a check or parity."""
    means: Mapping[str, float] = field(default_factory=dict)
    """The geometric mean of each arm's speedups; empty for a case."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Modes:
    """One table: the cases of a suite that have several compiled arms; `arms` are the columns."""

    suite: str
    arms: tuple[str, ...]
    rows: tuple[ModeRow, ...]


def modes(comparison: Comparison) -> tuple[Modes, ...]:
    """Return a table for each suite that has a case with two compiled arms or more.

    They are in the order of the cases.
    """
    several = [
        (case, arms) for case in comparison.cases if len(arms := _compiled_arms(case)) >= LEAST_ARMS
    ]
    if not several:
        return ()
    shown, all_speedups = labels(comparison), _times(comparison)
    by_suite: dict[str, list[ModeRow]] = {}
    for case, arms in several:
        speedups = {
            arm: all_speedups[case.id, arm] for arm in arms if (case.id, arm) in all_speedups
        }
        by_suite.setdefault(case.suite, []).append(_row(case, shown[case.id], speedups))
    return tuple(
        _table(suite, rows) for suite, rows in by_suite.items() if any(row.speedups for row in rows)
    )


def _times(comparison: Comparison) -> dict[tuple[str, str], ArmSpeedup]:
    """Return the speedup that the main table shows, by case and arm."""
    return {
        (row.case.id, row.arm): row.speedup
        for row in main_rows(comparison)
        if row.arm is not None and row.speedup is not None
    }


def _compiled_arms(case: CaseComparison) -> tuple[str, ...]:
    checked = {check.arm for check in case.checks if check.name == COMPILED}
    return tuple(arm for arm in case.arms if arm != case.reference and arm in checked)


def _row(case: CaseComparison, label: str, speedups: Mapping[str, ArmSpeedup]) -> ModeRow:
    wrong = frozenset(_wrong(case))
    return ModeRow(
        label=label, case=case, speedups=speedups, fastest=_fastest(speedups, wrong), wrong=wrong
    )


def _wrong(case: CaseComparison) -> Iterator[str]:
    yield from (
        check.arm
        for check in case.checks
        if check.outcome is Outcome.FAIL and not check.informative
    )
    yield from (finding.arm for finding in case.parity if not finding.verdict.holds)


def _fastest(speedups: Mapping[str, ArmSpeedup], wrong: frozenset[str]) -> str | None:
    """Return the right arm whose interval is above those of all other right arms, and above 1.

    Intervals that do not touch distinguish two arms whatever their launches have in common: the
    standard error of a difference is at most the sum of both. An arm without an interval leaves it
    open.
    """
    right = {arm: speedup.interval for arm, speedup in speedups.items() if arm not in wrong}
    for arm, bounds in right.items():
        others = [interval for other, interval in right.items() if other != arm]
        if (
            bounds is not None
            and bounds.low > 1
            and all(other is not None and bounds.low > other.high for other in others)
        ):
            return arm
    return None


def _table(suite: str, rows: list[ModeRow]) -> Modes:
    arms = tuple(dict.fromkeys(arm for row in rows for arm in row.speedups))
    complete_rows = [
        row
        for row in rows
        if row.case is not None and passes(row.case) and row.speedups.keys() >= set(arms)
    ]
    mean: tuple[ModeRow, ...] = ()
    if len(complete_rows) >= LEAST_CASES:
        means = {
            arm: statistics.geometric_mean(row.speedups[arm].speedup for row in complete_rows)
            for arm in arms
        }
        mean = (ModeRow(label=f"geometric mean of {len(complete_rows):,} cases", means=means),)
    return Modes(suite=suite, arms=arms, rows=(*rows, *mean))
