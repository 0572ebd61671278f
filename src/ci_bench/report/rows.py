"""The table a reviewer reads first, as values: one row per case and arm, worst first.

Owns which metric stands for a case and what the row as a whole says. Both renderers, Markdown and
terminal, draw these rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

from ci_bench.records.comparison import (
    ArmSpeedup,
    CaseComparison,
    Comparison,
    Pair,
    Parity,
    ParityFinding,
    RunVerdict,
    Verdict,
)
from ci_bench.records.config import Rule, Severity
from ci_bench.records.labels import WORST_FIRST, worst_first
from ci_bench.records.labels import labels as labels_of
from ci_bench.records.metrics import COMPILATION, PEAKS, STEP_TIME
from ci_bench.records.outputs import Sameness
from ci_bench.records.results import Outcome, Status
from ci_bench.records.units import TIMES
from ci_bench.report.once import once
from ci_bench.report.words import Mood, base_parity_mood, mood, parity_mood, verdict_word


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One arm of one case."""

    case: CaseComparison
    """The compared case."""
    label: str
    """The case's id without what all cases of the report share."""
    arm: str | None
    """The arm; `None` for a case without measurements."""
    mood: Mood
    """How good or bad the row is."""
    word: str
    """The verdict or fault in words."""
    time: Pair | None
    """The step time, or another time that stands for it; `None` if unknown."""
    memory: Pair | None
    """The first known peak of memory; `None` if unknown."""
    speedup: ArmSpeedup | None
    """The speedup of `time` over the reference arm; `None` if unknown."""
    parity: ParityFinding | None
    """The arm's loss parity with the reference; `None` if it was not compared."""
    apart: bool = False
    """Whether its suite's times moved together and were judged relative to that shift."""
    uncalibrated: bool = False
    """Whether this time has no history, while others have one."""

    @property
    def of_reference(self) -> bool:
        """Return whether the arm is compared with base's, and is the reference of the others."""
        return self.arm == self.case.reference

    @property
    def marks(self) -> str:
        """Return marks that the word must not hide."""
        unknown = "uncalibrated" if self.uncalibrated else ""
        beyond = (
            "beyond the common shift"
            if self.apart and self.time and self.time.verdict is Verdict.UNCHANGED
            else ""
        )
        return ", ".join(mark for mark in (unknown, beyond) if mark)


@once
def is_uncalibrated(comparison: Comparison) -> bool:
    """Return whether no time of the run has a history: one line says so, and no row is marked."""
    states = {
        pair.calibrated for case in comparison.cases for pair in case.pairs if not pair.detail
    }
    return False in states and True not in states


def outcome_mood(comparison: Comparison) -> Mood:
    """Return the run's level.

    A pass with warnings is not quite good, and an undecided run does not pass.
    """
    verdict = comparison.judgement.verdict
    if verdict is not RunVerdict.PASSED:
        return Mood.BAD if verdict is RunVerdict.FAILED else Mood.OPEN
    warned = any(finding.severity is not Severity.NOTE for finding in comparison.judgement.findings)
    return Mood.UNSURE if warned else Mood.GOOD


@once
def worst_pairs(comparison: Comparison) -> tuple[tuple[CaseComparison, Pair], ...]:
    """Return all metrics of all cases, the worst first, those that fail nothing last."""
    alike: dict[tuple[bool, Verdict], list[tuple[CaseComparison, Pair]]] = {}
    for case in comparison.cases:
        for pair in case.pairs:
            alike.setdefault((pair.detail, pair.verdict), []).append((case, pair))
    order = sorted(alike, key=lambda kind: (kind[0], WORST_FIRST.index(kind[1])))
    return tuple(chain.from_iterable(sorted(alike[kind], key=_speedup_of) for kind in order))


@once
def main_rows(comparison: Comparison) -> tuple[Row, ...]:
    """Return one row per case and arm, those of a case together, worst first."""
    shifted = {shift.suite for shift in comparison.shifts if shift.verdict is not Verdict.UNCHANGED}
    shown = labels(comparison)
    failing = _failing(comparison)
    rows = [
        row
        for case in comparison.cases
        for row in _marked(
            [
                _row(case, arm, shown[case.id], is_shifted=case.suite in shifted)
                for arm in _arms(case)
            ],
            failing,
        )
    ]
    if is_uncalibrated(comparison):
        rows = [replace(row, uncalibrated=False) for row in rows]
    by_case: dict[str, list[Row]] = {}
    for row in sorted(rows, key=_row_badness):
        by_case.setdefault(row.case.id, []).append(row)
    return tuple(chain.from_iterable(by_case.values()))


def _failing(comparison: Comparison) -> dict[str, Rule]:
    """Return the cases that fail the run, each with the rule of its first finding."""
    failing = [
        finding for finding in comparison.judgement.findings if finding.severity is Severity.FAIL
    ]
    return {finding.case: finding.rule for finding in reversed(failing) if finding.case is not None}


def _marked(rows: list[Row], failing: Mapping[str, Rule]) -> list[Row]:
    """Return the rows of a case, the first red if the case fails and none of them shows why."""
    rule = failing.get(rows[0].case.id)
    if rule is None or any(row.mood is Mood.BAD for row in rows):
        return rows
    return [replace(rows[0], mood=Mood.BAD, word=rule.replace("_", " ")), *rows[1:]]


@once
def labels(comparison: Comparison) -> Mapping[str, str]:
    """Return the short name of each case by its id."""
    return labels_of(comparison.cases)


def unclear_cases(comparison: Comparison) -> list[CaseComparison]:
    """Return the cases without a clear answer or without figures on both sides, worst first."""
    return worst_first(
        case
        for case in comparison.cases
        if not (case.verdict.moved or case.verdict is Verdict.UNCHANGED)
    )


def _row(case: CaseComparison, arm: str | None, label: str, *, is_shifted: bool) -> Row:
    pairs = [pair for pair in case.pairs if pair.arm == arm]
    time = _time(pairs)
    parity = next((finding for finding in case.parity if finding.arm == arm), None)
    how, word = _verdict(case, arm, pairs, parity)
    speedups = [
        speedup
        for speedup in case.speedups
        if speedup.arm == arm and time and speedup.metric == time.metric
    ]
    return Row(
        case=case,
        label=label,
        arm=arm,
        mood=how,
        word=word,
        time=time,
        memory=_memory(pairs),
        speedup=next(iter(speedups), None),
        parity=parity,
        apart=is_shifted,
        uncalibrated=time is not None and time.calibrated is False,
    )


def _arms(case: CaseComparison) -> list[str | None]:
    """Return all arms, the reference first."""
    arms = dict.fromkeys(
        [*(pair.arm for pair in case.pairs), *(finding.arm for finding in case.parity)]
    )
    return sorted(arms, key=lambda arm: arm != case.reference) or [None]


def _time(pairs: list[Pair]) -> Pair | None:
    """Return the step time; without one, the worst other duration or rate.

    Compilation does not count.
    """
    steps = [pair for pair in pairs if pair.metric == STEP_TIME.name]
    if not steps:
        main_pairs = [pair for pair in pairs if not pair.detail] or pairs
        steps = [
            pair
            for pair in main_pairs
            if pair.unit in TIMES and not pair.metric.startswith(COMPILATION)
        ]
    return min(steps, key=_badness, default=None)


def _memory(pairs: list[Pair]) -> Pair | None:
    """Return the first known peak."""
    by_metric = {pair.metric: pair for pair in pairs}
    return next((by_metric[peak.name] for peak in PEAKS if peak.name in by_metric), None)


def _verdict(
    case: CaseComparison, arm: str | None, pairs: list[Pair], parity: ParityFinding | None
) -> tuple[Mood, str]:
    """Return the worst about this arm: the case's verdict, then its training, then its checks."""
    verdict = _arm_verdict(case, pairs)
    if verdict is Verdict.FAILED and case.head_status not in {None, Status.OK, Status.FAILED}:
        return Mood.BAD, str(case.head_status).replace("_", " ")
    if mood(verdict) is Mood.BAD:
        return Mood.BAD, verdict_word(verdict)
    if wrong := _wrong(case, arm, parity):
        return Mood.BAD, wrong
    if mood(verdict) in {Mood.UNSURE, Mood.OPEN}:
        return mood(verdict), verdict_word(verdict)
    unclear = _unclear(case, arm, parity)
    return (Mood.UNSURE, unclear) if unclear else (mood(verdict), verdict_word(verdict))


def _wrong(case: CaseComparison, arm: str | None, parity: ParityFinding | None) -> str:
    """Describe faults besides figures; empty without any.

    Differences from base are the reference arm's.
    """
    if parity is not None and parity_mood(parity) is Mood.BAD:
        return "parity broken" if not parity.verdict.holds else "accuracy broken"
    if arm == case.reference and case.learning is not None and case.learning.verdict.broken:
        return "learns differently"
    if (
        arm == case.reference
        and case.outputs is not None
        and case.outputs.verdict is Sameness.CHANGED
    ):
        return "outputs changed"
    failed = any(
        check.outcome is Outcome.FAIL and check.arm == arm and not check.informative
        for check in case.checks
    )
    return "check failed" if failed else ""


def _unclear(case: CaseComparison, arm: str | None, parity: ParityFinding | None) -> str:
    """Describe open questions of parity; empty without any."""
    if parity is not None and parity_mood(parity) is Mood.UNSURE:
        words = {
            Parity.INSUFFICIENT_DATA: "too few steps",
            Parity.INSUFFICIENT_SENSITIVITY: "parity insensitive",
        }
        return words.get(parity.verdict, "parity unclear")
    if arm == case.reference and base_parity_mood(case) is Mood.UNSURE:
        return "parity with base unclear"
    return ""


def _arm_verdict(case: CaseComparison, pairs: list[Pair]) -> Verdict:
    """Return the case's verdict.

    If the case has several arms and its verdict is about another one, it is the worst of this arm's
    verdicts.
    """
    about_figures = case.verdict.moved or case.verdict in {Verdict.INCONCLUSIVE, Verdict.UNCHANGED}
    verdicts = [pair.verdict for pair in pairs if not pair.detail]
    if not verdicts or case.verdict in verdicts or not about_figures:
        return case.verdict
    return min(verdicts, key=WORST_FIRST.index)


def _badness(pair: Pair) -> tuple[int, float]:
    return WORST_FIRST.index(pair.verdict), 1.0 if pair.speedup is None else pair.speedup


def _speedup_of(item: tuple[CaseComparison, Pair]) -> float:
    speedup = item[1].speedup
    return 1.0 if speedup is None else speedup


def _row_badness(row: Row) -> tuple[int, int, float]:
    time = 1.0 if row.time is None or row.time.speedup is None else row.time.speedup
    return row.mood, WORST_FIRST.index(row.case.verdict), time
