"""Figures over many cases, as dashboards of model zoos show them: pass rate, speedup, cost.

Owns which cases are in a mean, but not its appearance. Cases are grouped by suite, by the brackets
of their ids, and by candidate arm. A mean is over cases that both sides have, that pass on both and
have the figure on both: a model that is missing or wrong on one side cannot shift the mean of the
other. Unknown figures are left out and not counted, never a zero.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ci_bench.records.comparison import CaseComparison, Comparison
from ci_bench.records.metrics import COMPILE_COLD, PEAKS, STEP_TIME
from ci_bench.records.results import Outcome, Status
from ci_bench.report.once import once

LEAST_CASES = 2
"""Fewest cases of a mean: a single case's own rows are enough."""

Sides = tuple[float | None, float | None]
"""A figure on head, and on base."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanChange:
    """A mean over `cases` on head and, if there is a base side, on base; `None` without cases."""

    head: float | None
    base: float | None
    cases: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Averages:
    """Figures of one group: the cases of a suite with one setting, under one arm."""

    suite: str
    """Name of the suite."""
    setting: str
    """The brackets of the cases' ids, as `setting_of` returns them; may be empty."""
    arm: str
    """The candidate arm."""
    cases: int
    """Number of cases that both sides have; without a base side, that head has."""
    only_head: int
    """Number of cases that base does not have."""
    only_base: int
    """Number of cases that head does not have."""
    passing: MeanChange
    """Share of the shared cases that pass, in 0..1; skipped ones do not count."""
    speedup: MeanChange
    """Geometric mean of reference / candidate step time."""
    compile_cold_s: MeanChange
    """Arithmetic mean of the cold compilation, in seconds."""
    compression: MeanChange
    """Geometric mean of reference / candidate peak memory."""


@once
def averages(comparison: Comparison) -> tuple[Averages, ...]:
    """Return every group of two measured cases or more, in the order of the cases."""
    groups: dict[tuple[str, str, str], list[CaseComparison]] = {}
    for case in comparison.cases:
        if Status.SKIPPED not in {case.head_status, case.base_status}:
            for arm in case.arms:
                if arm != case.reference:
                    groups.setdefault((case.suite, setting_of(case.id), arm), []).append(case)
    two_sided = comparison.base is not None and not comparison.mismatches
    return tuple(
        _averages(key, group, two_sided=two_sided)
        for key, group in groups.items()
        if len(group) >= LEAST_CASES
    )


def setting_of(case_id: str) -> str:
    """Return the brackets of an id.

    For ``torchbench/mlp[backend=inductor,mode=training]`` it is ``backend=inductor,mode=training``.
    """
    return case_id.partition("[")[2].removesuffix("]")


def _averages(
    key: tuple[str, str, str], group: list[CaseComparison], *, two_sided: bool
) -> Averages:
    suite, setting, arm = key
    there = [case for case in group if case.head_status is not None]
    shared = [case for case in there if case.base_status is not None] if two_sided else there
    sound = [case for case in shared if passes(case) and (passed_before(case) or not two_sided)]

    def mean(
        figure: Callable[[CaseComparison, str], Sides], combine: Callable[[list[float]], float]
    ) -> MeanChange:
        return _mean((figure(case, arm) for case in sound), combine, two_sided=two_sided)

    share = [_share(map(rule, shared)) for rule in (passes, passed_before)]
    return Averages(
        suite=suite,
        setting=setting,
        arm=arm,
        cases=len(shared),
        only_head=len(there) - len(shared),
        only_base=len(group) - len(there) if two_sided else 0,
        passing=MeanChange(head=share[0], base=share[1] if two_sided else None, cases=len(shared)),
        speedup=mean(_speedup, statistics.geometric_mean),
        compile_cold_s=mean(_compile_cold_s, statistics.fmean),
        compression=mean(_compression, statistics.geometric_mean),
    )


def passes(case: CaseComparison) -> bool:
    """Return whether head's run ended well, no counted check failed, and its training matches."""
    failed = any(check.outcome is Outcome.FAIL and not check.informative for check in case.checks)
    return (
        case.head_status is Status.OK
        and not failed
        and all(finding.verdict.holds for finding in case.parity)
    )


def passed_before(case: CaseComparison) -> bool:
    """Return whether base's run ended well and without faults."""
    return case.base_status is Status.OK and not case.base_faults


def _mean(
    figures: Iterable[Sides], combine: Callable[[list[float]], float], *, two_sided: bool
) -> MeanChange:
    figure_pairs = [
        sides if two_sided else sides[:1]
        for sides in figures
        if all(map(_is_known, sides if two_sided else sides[:1]))
    ]
    head, *base = (
        ([value for value in side if value is not None] for side in zip(*figure_pairs, strict=True))
        if figure_pairs
        else ([],)
    )
    return MeanChange(
        head=combine(head) if head else None,
        base=combine(base[0]) if base else None,
        cases=len(figure_pairs),
    )


def _is_known(value: float | None) -> bool:
    """Check that a figure is finite and positive.

    A factor or a time of nothing, or of no number, would spoil any mean.
    """
    return value is not None and math.isfinite(value) and value > 0


def _share(answers: Iterable[bool]) -> float | None:
    flags = list(answers)
    return sum(flags) / len(flags) if flags else None


def _speedup(case: CaseComparison, arm: str) -> Sides:
    return next(_against_reference(case, arm, STEP_TIME.name), (None, None))


def _compression(case: CaseComparison, arm: str) -> Sides:
    return next(
        (sides for peak in PEAKS for sides in _against_reference(case, arm, peak.name)),
        (None, None),
    )


def _against_reference(case: CaseComparison, arm: str, metric: str) -> Iterator[Sides]:
    return (
        (speedup.speedup, speedup.base_speedup)
        for speedup in case.speedups
        if (speedup.metric, speedup.arm) == (metric, arm)
    )


def _compile_cold_s(case: CaseComparison, arm: str) -> Sides:
    compilation = next(
        (pair for pair in case.pairs if (pair.metric, pair.arm) == (COMPILE_COLD.name, arm)), None
    )
    if compilation is None:
        return None, None
    return (
        compilation.head.figure if compilation.head else None,
        compilation.base.figure if compilation.base else None,
    )
