"""Rows that a reviewer reads first: all that changed, failed or is undecided, worst first. Pure.

A row is a metric, a training or a check. Owns the choice of rows, the sentence on the rest, and
what was ruled out under a regression. Renderers escape the texts.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ci_bench.records.comparison import (
    BESIDE_BASE,
    BaselineMode,
    CaseComparison,
    CommonShift,
    Comparison,
    Finding,
    Pair,
    Verdict,
    tally,
)
from ci_bench.records.config import UNANSWERED, Rule, Severity
from ci_bench.records.graph_breaks import COUNTS, first_break
from ci_bench.records.labels import FAILING_WORDS
from ci_bench.records.outputs import Sameness, format_factor
from ci_bench.records.results import Status
from ci_bench.records.units import TIMES, relative_change
from ci_bench.report import words
from ci_bench.report.columns import Column, ColumnKind, Columns, title_of
from ci_bench.report.groups import Group, covered, groups, pair_of
from ci_bench.report.once import once
from ci_bench.report.rows import labels
from ci_bench.report.text import UNKNOWN, from_to, percent
from ci_bench.report.words import Mood, fine

SHOWN = 10
RUN = "run"
"""The subject of a finding on a case as a whole."""
_SUBJECTS: Mapping[Rule, str] = {
    Rule.PARITY_BROKEN: "loss",
    Rule.PARITY_UNDECIDED: "loss",
    Rule.ACCURACY_BROKEN: "accuracy",
    Rule.LEARNING_CHANGED: "training",
    Rule.LEARNING_UNKNOWN: "training",
    Rule.START_CHANGED: "start weights",
    Rule.OUTPUTS_CHANGED: "outputs",
    Rule.OUTPUTS_UNKNOWN: "outputs",
    Rule.BELOW_FLOOR: "speedup",
    Rule.IMPLAUSIBLE: "speedup",
}
"""The subject of a finding that is not about a metric; all other rules have the case's run."""
_OPEN_WORDS = {Rule.INCONCLUSIVE: "undecided", Rule.POSSIBLE: "may be worse"}
"""Rules of a metric that was not decided, in the words of the headline."""
_ENDINGS = frozenset({Rule.CASE_FAILED, Rule.CASE_SKIPPED, Rule.CASE_NOT_RUN, Rule.CASE_REMOVED})
"""Rules of how a case ended, which base's end explains."""
_SIGNED = re.compile(r"^(\S+) (more|fewer)$")
_CHECKS = frozenset({Rule.CHECK_FAILED, Rule.CHECK_UNKNOWN, Rule.CLOCK_DISAGREES, Rule.DISTURBED})


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One row of the table of changes."""

    mood: Mood
    """How bad it is."""
    word: str
    """The verdict, or the rule of the finding."""
    case: CaseComparison | None
    """The case, or `None` for a group of cases."""
    label: str
    """The short name of the case, or the conditions of a group."""
    subject: str
    """A metric, a check, or another thing that was compared."""
    arm: str
    """The arm; empty if the case has only one."""
    base: str
    """Base's figure with its unit, or how its run ended; `UNKNOWN` without either."""
    head: str
    """Head's figure with its unit, or how its run ended; `UNKNOWN` without either."""
    change: str
    """The change in words."""
    finding: Finding | None = None
    """The finding it stands for, or `None` for a group and for an improvement."""
    pair: Pair | None = None
    """The metric, if it is about one; for a group the farthest change."""


CHANGES: Columns[Change] = (
    Column(
        title="Verdict", text=lambda row: row.word, kind=ColumnKind.WORDS, mood=lambda row: row.mood
    ),
    Column(title="Case", text=lambda row: row.label, kind=ColumnKind.ID),
    Column(
        title="Metric",
        text=lambda row: row.subject,
        kind=ColumnKind.PROSE,
        note=lambda row: row.arm,
        note_kind=ColumnKind.NAME,
    ),
    Column(title="Base", text=lambda row: row.base),
    Column(title="Head", text=lambda row: row.head),
    Column(
        title="Change",
        text=lambda row: row.change,
        kind=ColumnKind.PROSE,
        strong=lambda row: row.mood is Mood.BAD,
    ),
)


@once
def changes(comparison: Comparison) -> tuple[Change, ...]:
    """Return all rows, each kind by the size of its effect.

    First come failures, then warnings and accepted changes, undecided metrics, and improvements.
    """
    alike = groups(comparison)
    grouped_findings = covered(comparison, alike)
    short = labels(comparison)
    cases = {case.id: case for case in comparison.cases}
    loud = [
        finding
        for finding in comparison.judgement.findings
        if finding.case in cases and finding not in grouped_findings
    ]
    shown = [
        finding
        for finding in loud
        if finding.severity is not Severity.NOTE or finding.rule is Rule.ACCEPTED
    ]
    shifts = [
        _of_shift(finding, shift)
        for finding in comparison.judgement.findings
        if (shift := _shift(finding, comparison))
    ]
    rows = [*shifts, *(_of_finding(finding, cases[finding.case or ""], short) for finding in shown)]
    worse, warned_together = _worse_groups(comparison, cases, short)
    better = [
        _of_group(group, cases, short, mood=Mood.BETTER) for group in alike if not group.worse
    ]
    in_group = {(case, pair.metric, pair.arm) for group in alike for case, pair in group.pairs}
    undecided = [
        _of_finding(finding, cases[finding.case or ""], short)
        for finding in loud
        if finding.severity is Severity.NOTE and finding.rule in {Rule.INCONCLUSIVE, Rule.POSSIBLE}
    ]
    better_pairs = [
        (case, pair)
        for case in comparison.cases
        for pair in case.pairs
        if pair.verdict is Verdict.IMPROVED
        and not pair.detail
        and (case.id, pair.metric, pair.arm) not in in_group
    ]
    better_pairs.sort(key=lambda item: item[1].speedup or math.inf, reverse=True)
    improved = [
        _of_pair(pair, case, short[case.id], mood=Mood.BETTER, word=str(pair.verdict))
        for case, pair in better_pairs
    ]
    failing = [((row.finding,) if row.finding else (), row) for row in rows if row.mood is Mood.BAD]
    warned = [*warned_together, *_alike([row for row in rows if row.mood is not Mood.BAD])]
    bad = _in_order(comparison.judgement.findings, [*worse, *failing])
    return tuple(_of_one_cause((*bad, *warned, *undecided, *better, *improved)))


def _in_order(
    findings: Sequence[Finding], rows: Sequence[tuple[Collection[Finding], Change]]
) -> list[Change]:
    """Order rows by the first of their findings: the headline's case comes first."""
    place = {finding: at for at, finding in reversed([*enumerate(findings)])}
    last = len(place)
    ranked = sorted(
        rows, key=lambda row: min((place.get(finding, last) for finding in row[0]), default=last)
    )
    return [row for _, row in ranked]


def _worse_groups(
    comparison: Comparison, cases: Mapping[str, CaseComparison], short: Mapping[str, str]
) -> tuple[list[tuple[Collection[Finding], Change]], list[Change]]:
    """Return the groups that got worse.

    Those that fail the gate come with the findings on their cases; the others warn.
    """
    failing: list[tuple[Collection[Finding], Change]] = []
    warned = []
    for group in groups(comparison):
        within = {case for case, _ in group.pairs if group.worse}
        findings = [finding for finding in comparison.judgement.findings if finding.case in within]
        severities = {
            finding.severity
            for finding in findings
            if finding.rule in {Rule.REGRESSED, Rule.SUSPECTED}
        }
        if Severity.FAIL in severities:
            failing.append((findings, _of_group(group, cases, short, mood=Mood.BAD)))
        elif Severity.WARN in severities:
            warned.append(_of_group(group, cases, short, mood=Mood.UNSURE))
    return failing, warned


def _of_one_cause(rows: Sequence[Change]) -> Iterator[Change]:
    """Yield one row for graph breaks and what they bring with them, instead of up to four."""
    kinds: dict[object, list[Change]] = {}
    for row in rows:
        together = row.pair is not None and row.pair.metric in COUNTS
        kinds.setdefault(
            (row.label, row.arm, row.word, row.mood) if together else id(row), []
        ).append(row)
    for members in kinds.values():
        yield members[0] if len(members) == 1 else _merged(members)


def _merged(rows: Sequence[Change]) -> Change:
    """Return the row of the count that stands for the others, which are named in it."""
    first, *others = sorted(rows, key=lambda row: COUNTS.index(row.pair.metric) if row.pair else 0)
    changed = (f"{row.subject} {_values(row)}" for row in others)
    return replace(first, change=f"{first.change} (also {', '.join(changed)})")


def _alike(rows: Sequence[Change]) -> list[Change]:
    """Merge the rows that warn of one disturbance: it belongs to the machine, not to a case."""
    kinds: dict[object, list[Change]] = {}
    for row in rows:
        disturbed = row.finding is not None and row.finding.rule is Rule.DISTURBED
        kinds.setdefault((row.subject, row.word) if disturbed else id(row), []).append(row)
    return [
        members[0] if len(members) == 1 else _of_disturbed(members) for members in kinds.values()
    ]


def _of_disturbed(rows: Sequence[Change]) -> Change:
    cases = len({row.case.id for row in rows if row.case is not None})
    where = "1 case" if cases == 1 else f"{cases:,} cases"
    return replace(
        rows[0],
        case=None,
        label=where,
        arm="",
        change=f"{len(rows):,} arms of {where}, such as: {rows[0].change}",
        finding=None,
    )


def _values(row: Change) -> str:
    """Describe both figures: ``0 → 3``; for a group ``+3``."""
    if row.pair is not None and UNKNOWN in {row.base, row.head}:
        return _SIGNED.sub(
            lambda match: f"{'+' if match[2] == 'more' else '−'}{match[1]}", words.change(row.pair)
        )
    return f"{row.base} → {row.head}"


def of_run(comparison: Comparison) -> list[Finding]:
    """Return the findings on the run as a whole that the headline does not contain."""
    return [
        finding
        for finding in comparison.judgement.findings
        if finding.case is None
        and finding.severity is not Severity.NOTE
        and finding.rule not in {Rule.BASELINE_MISSING, Rule.UNDECIDED}
        and not (finding.rule is Rule.INCOMPARABLE and comparison.mismatches)
        and finding.message not in comparison.judgement.headline
    ]


def rest(comparison: Comparison) -> str:
    """Describe everything without a row; empty if there is nothing.

    An example is ``12 other cases unchanged; outputs match base.``
    """
    if comparison.base is None:
        return ""
    others, unchanged = _without_a_row(comparison)
    parts = []
    if unchanged:
        word = "other case" if len(others) < len(comparison.cases) else "case"
        shifted = any(
            row.finding and row.finding.rule is Rule.COMMON_SHIFT for row in changes(comparison)
        )
        beyond = " apart from this change of all timings" if shifted else ""
        parts.append(f"{unchanged:,} {word}{'' if unchanged == 1 else 's'} unchanged{beyond}")
    parts += _outputs(comparison)
    text = f"{'; '.join(parts)}." if parts else ""
    if names_detectable(comparison):
        text += (
            f" Slowdowns below about {fine(tally(comparison.cases).resolution)} may go unnoticed."
        )
    return f"{text[0].upper()}{text[1:]}" if text else ""


def names_detectable(comparison: Comparison) -> bool:
    """Return whether `rest` names the detectable change.

    It does so for unchanged cases, if every metric is decided.
    """
    counted = tally(comparison.cases)
    unchanged = comparison.base is not None and _without_a_row(comparison)[1] > 0
    return unchanged and is_telling(counted.resolution) and not counted.undecided


def is_telling(resolution: float | None) -> bool:
    """Return whether a detectable change is worth naming: at most a doubling."""
    return resolution is not None and resolution <= 1


def _without_a_row(comparison: Comparison) -> tuple[list[CaseComparison], int]:
    """Return the cases that no row is about, and how many of them are unchanged."""
    shown = {row.case.id for row in changes(comparison) if row.case is not None}
    shown |= {case for group in groups(comparison) for case, _ in group.pairs}
    others = [case for case in comparison.cases if case.id not in shown]
    return others, sum(case.verdict is Verdict.UNCHANGED for case in others)


def ruled_out(comparison: Comparison, case: CaseComparison) -> str:
    """Describe what does not explain a regression: the machine, noise; empty if nothing is known.

    The benchmark is not ruled out: that both sides plan the same case does not show that its code
    is unchanged.
    """
    worse = next(
        (
            pair
            for pair in case.pairs
            if pair.verdict.worse and not pair.detail and pair.unit in TIMES
        ),
        None,
    )
    if worse is None or comparison.mismatches or comparison.mode is not BaselineMode.PAIRED:
        return ""
    parts = ["the machine (base and head took turns)"]
    if worse.noise is not None:
        parts.append(f"noise ({fine(worse.noise)} from launch to launch)")
    return f"not {', not '.join(parts)}"


def _outputs(comparison: Comparison) -> Iterator[str]:
    compared = [case.outputs.verdict for case in comparison.cases if case.outputs is not None]
    matching = [verdict for verdict in compared if verdict.holds]
    if matching:
        exact = matching.count(Sameness.BITWISE)
        where = (
            ""
            if len(matching) == len(comparison.cases)
            else f" in {len(matching):,} of {len(comparison.cases):,} cases"
        )
        how = " (bitwise)" if exact == len(matching) else f" ({exact:,} bitwise)" if exact else ""
        yield f"outputs match base{where}{how}"


def _of_finding(finding: Finding, case: CaseComparison, short: Mapping[str, str]) -> Change:
    failing = finding.severity is Severity.FAIL
    mood = Mood.BAD if failing else Mood.OPEN if finding.rule in UNANSWERED else Mood.UNSURE
    pair = pair_of(finding, case)
    if pair is not None and (pair.base or pair.head):
        word = _OPEN_WORDS.get(finding.rule, "") if not failing else ""
        return _of_pair(
            pair, case, short[case.id], mood=mood, word=word or _word(finding), finding=finding
        )
    subject, arm, text = _parted(finding, case)
    text = _numeric(finding.rule, arm or case.reference, case) or text
    signal = next(
        (
            name
            for name in ("loss", "gradient norm")
            if subject == "loss" and text.startswith(f"{name} ")
        ),
        None,
    )
    if signal is not None:
        subject, text = signal, text.removeprefix(f"{signal} ")
    return Change(
        mood=mood,
        word=_word(finding),
        case=case,
        label=short[case.id],
        subject=subject,
        arm=arm,
        base=_status(case.base_status) if finding.rule in _ENDINGS else UNKNOWN,
        head=_status(case.head_status) if finding.rule in _ENDINGS else UNKNOWN,
        change=text,
        finding=finding,
    )


def _word(finding: Finding) -> str:
    """Return the rule in words."""
    failing = FAILING_WORDS.get(finding.rule) if finding.severity is Severity.FAIL else None
    return failing or finding.rule.replace("_", " ")


def _status(status: Status | None) -> str:
    return UNKNOWN if status is None else status.replace("_", " ")


def _shift(finding: Finding, comparison: Comparison) -> CommonShift | None:
    """Return the common shift that a finding is about, if it fails the run or warns."""
    if (
        finding.case is not None
        or finding.rule is not Rule.COMMON_SHIFT
        or finding.severity is Severity.NOTE
    ):
        return None
    return next((shift for shift in comparison.shifts if shift.reason == finding.message), None)


def _of_shift(finding: Finding, shift: CommonShift) -> Change:
    """Return the row of a suite whose times moved together."""
    low, high = 1 / shift.interval.high - 1, 1 / shift.interval.low - 1
    spread = (
        from_to(min(abs(low), abs(high)), max(abs(low), abs(high)), percent)
        if low * high > 0
        else ""
    )
    relative = 1 / shift.speedup - 1
    change = f"{relative_change(relative)} {'slower' if relative > 0 else 'faster'}"
    return Change(
        mood=Mood.BAD if finding.severity is Severity.FAIL else Mood.UNSURE,
        word="slower together" if relative > 0 else "faster together",
        case=None,
        label=shift.suite,
        subject=f"all {shift.metrics:,} timings",
        arm="",
        base=UNKNOWN,
        head=UNKNOWN,
        change=f"{change} ({spread})" if spread else change,
        finding=finding,
    )


def _parted(finding: Finding, case: CaseComparison) -> tuple[str, str, str]:
    """Return the subject of a finding, its arm, and the rest of its message."""
    if finding.rule in _CHECKS:
        for check in case.checks:
            if finding.message == f"{check.name} ({check.arm}): {check.detail}":
                return check.name, _arm(check.arm, case), check.detail
    arm, colon, text = finding.message.partition(": ")
    if (
        finding.rule in _SUBJECTS
        and colon
        and arm in {*case.arms, BESIDE_BASE, *(training.arm for training in case.parity)}
    ):
        return (
            _SUBJECTS[finding.rule],
            "" if arm == BESIDE_BASE else _arm(arm, case),
            _SAID.sub("", text),
        )
    return _SUBJECTS.get(finding.rule, RUN), "", finding.message


_SAID = re.compile(r"^(differs from base|insufficient data): ")
"""Beginnings of a text that the verdict's word says already."""


def _numeric(rule: Rule, arm: str | None, case: CaseComparison) -> str:
    """Describe the distance of a training from its reference, and the step where it began.

    It is empty if the finding has no such figures.
    """
    every = (
        (case.learning,)
        if rule is Rule.LEARNING_CHANGED
        else case.parity
        if rule is Rule.PARITY_BROKEN
        else ()
    )
    parity = next(
        (
            training
            for training in every
            if training is not None and (training.arm == arm or rule is Rule.LEARNING_CHANGED)
        ),
        None,
    )
    if parity is None or parity.first_step is None or parity.difference is not None:
        return ""
    scores = [score for score in (parity.loss_score, parity.grad_norm_score) if score is not None]
    signal = "gradient norm" if parity.signal == "grad_norm" else "loss"
    first, last = (
        None if difference is None else words.fine(abs(difference))
        for difference in (parity.apart_first, parity.apart_last)
    )
    parts = [
        (
            f"{signal} off by {first} at {words.first_step(parity)}"
            if first
            else f"{signal} differs from {words.first_step(parity)}"
        )
    ]
    if last and last != first:
        parts.append(f"by {last} at the end")
    if scores and math.isfinite(max(scores)):
        limit = "" if parity.limit is None else f" (limit: {parity.limit:g} times)"
        parts.append(f"up to {format_factor(max(scores))} times what rounding explains{limit}")
    return ", ".join(parts)


def _arm(arm: str, case: CaseComparison) -> str:
    return arm if len({*case.arms, *(pair.arm for pair in case.pairs)}) > 1 else ""


def _of_pair(
    pair: Pair,
    case: CaseComparison,
    label: str,
    *,
    mood: Mood,
    word: str,
    finding: Finding | None = None,
) -> Change:
    base, head = words.sides(pair)
    spread = words.change_interval(pair)
    change = words.change(pair) if pair.base and pair.head else UNKNOWN
    if change == UNKNOWN:
        change = pair.reason
    elif spread != UNKNOWN:
        change = f"{change} ({spread})"
    elif pair.verdict is Verdict.INCONCLUSIVE:
        change = f"{change} so far"
    if pair.verdict.worse and (place := first_break(case, pair)):
        change = f"{change}, first at {place}"
    return Change(
        mood=mood,
        word=word,
        case=case,
        label=label,
        subject=title_of(pair),
        arm=_arm(pair.arm, case),
        base=base,
        head=head,
        change=change,
        finding=finding,
        pair=pair,
    )


def _of_group(
    group: Group, cases: Mapping[str, CaseComparison], short: Mapping[str, str], *, mood: Mood
) -> Change:
    case, pair = group.pairs[0]
    name = short[case].partition("[")[0]
    place = first_break(cases[case], pair) if group.worse else ""
    conditions = ",".join(f"{name}={value}" for name, value in group.conditions)
    return Change(
        mood=mood,
        word="regressed" if group.worse else "improved",
        case=None,
        label=f"{name}[{conditions}]" if conditions else name,
        subject=group.title,
        arm=group.arm if group.several_arms else "",
        base=UNKNOWN,
        head=UNKNOWN,
        change=f"{group.change}, first at {place}" if place else group.change,
        pair=pair,
    )


def first_regressions(rows: Sequence[Change]) -> list[CaseComparison]:
    """Return the cases of the rows that got worse or are wrong, each once, in the rows' order."""
    bad = (row.case for row in rows if row.mood is Mood.BAD and row.case is not None)
    return list({case.id: case for case in bad}.values())
