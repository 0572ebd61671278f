"""Accepted changes of a comparison, each up to the bound of its entry.

The measured size of a change must not exceed the bound. An interval that reaches beyond it does not
matter: the bound is for the estimate that the report prints. Owns which rules an entry can settle;
a failed check, a removed case or a run that is not finite is never accepted.
"""

import math
from collections.abc import Iterator, Sequence

from ci_bench.judge.wording import change_size, percent
from ci_bench.records.acceptance import ANY, Acceptance, Accepted, Direction
from ci_bench.records.comparison import CaseComparison, Pair, Parity, ParityFinding, Verdict
from ci_bench.records.config import Rule, fits
from ci_bench.records.outputs import OutputsFinding, Sameness, format_factor
from ci_bench.records.results import Better, Status, Unit

_WORSE = frozenset({Rule.REGRESSED, Rule.SUSPECTED})
_SETTLED = frozenset({Verdict.UNCHANGED, Verdict.IMPROVED})
_ROUNDING = 1e-9
"""A change of exactly the bound is within it, whatever the last bit of a ratio says."""


def settle_metric(
    accepted: Sequence[Acceptance], case: CaseComparison, pair: Pair, rule: Rule, message: str
) -> tuple[Rule, str]:
    """Return the rule and message of a worse metric, after the entries that count for it."""
    if rule not in _WORSE:
        return rule, message
    entries = _of_case(accepted, case, Accepted.METRIC)
    return _settled(
        [entry for entry in entries if _is_for(entry, pair) and _covers_pair(entry, pair)],
        rule,
        message,
    )


def settle_outputs(
    accepted: Sequence[Acceptance], case: CaseComparison, rule: Rule, message: str
) -> tuple[Rule, str]:
    """Return the rule and message of changed outputs, after the entries that count for them."""
    if rule is not Rule.OUTPUTS_CHANGED or case.outputs is None:
        return rule, message
    entries, finding = _of_case(accepted, case, Accepted.OUTPUTS), case.outputs
    return _settled([entry for entry in entries if _covers_outputs(entry, finding)], rule, message)


def settle_learning(
    accepted: Sequence[Acceptance], case: CaseComparison, rule: Rule, message: str
) -> tuple[Rule, str]:
    """Return the rule and message of a changed training, after the entries that count for it."""
    if rule is not Rule.LEARNING_CHANGED or case.learning is None:
        return rule, message
    entries, finding = _of_case(accepted, case, Accepted.LEARNING), case.learning
    return _settled([entry for entry in entries if _covers_learning(entry, finding)], rule, message)


def unused(accepted: Sequence[Acceptance], cases: Sequence[CaseComparison]) -> Iterator[str]:
    """Yield a sentence for each entry that expired, is not needed, or is exceeded by a change."""
    for entry in accepted:
        change, fitting = entry.change, [case for case in cases if fits(entry.change.case, case.id)]
        if entry.expired:
            yield (
                f"{change.subject}: accepted until {change.expires}, which has passed; remove the"
                " entry, or renew it"
            )
        elif not fitting:
            yield (
                f"{change.subject}: accepted, but this run has no such case; correct the entry, or"
                " remove it"
            )
        elif not any(_needs(entry, case) for case in fitting):
            yield f"{change.subject}: accepted, but nothing got worse; remove the entry"
        elif any(_exceeds(entry, case) for case in fitting):
            yield (
                f"{change.subject}: accepted up to {_bound(entry)}, and the change is larger or has"
                " another measure"
            )


def _settled(covering: Sequence[Acceptance], rule: Rule, message: str) -> tuple[Rule, str]:
    entry = next(iter(covering), None)
    if entry is None:
        return rule, message
    return (
        Rule.ACCEPTED,
        f"accepted up to {_bound(entry)} by {entry.granted} ({entry.change.reason}); {message}",
    )


def _of_case(
    accepted: Sequence[Acceptance], case: CaseComparison, kind: Accepted
) -> list[Acceptance]:
    return [
        entry
        for entry in accepted
        if entry.change.kind is kind and not entry.expired and fits(entry.change.case, case.id)
    ]


def _is_for(entry: Acceptance, pair: Pair) -> bool:
    worse = Direction.LOWER if pair.better is Better.HIGHER else Direction.HIGHER
    return entry.change.metric == pair.metric and entry.change.direction is worse


def _covers_pair(entry: Acceptance, pair: Pair) -> bool:
    share, number = entry.change.share, entry.change.number
    if number is not None and pair.head is not None:
        within = (
            pair.head.figure - number if pair.better is Better.LOWER else number - pair.head.figure
        )
        return within <= _ROUNDING * abs(number)
    if share is None or pair.speedup is None:
        return False
    return _relative(pair.speedup, pair.better) <= share + _ROUNDING


def _relative(speedup: float, better: Better) -> float:
    """Return the change for the worse as a share of base."""
    return 1 / speedup - 1 if better is Better.LOWER else 1 - speedup


def _covers_outputs(entry: Acceptance, finding: OutputsFinding) -> bool:
    return entry.change.bound == ANY or outputs_score(finding) <= (entry.change.number or 0.0)


def outputs_score(finding: OutputsFinding) -> float:
    """Return the worst tensor's error as a multiple of rounding; infinite if any has no size."""
    return max(
        (_score(error.error, error.allowed, error.fault) for error in finding.worst),
        default=math.inf,
    )


def _score(error: float | None, allowed: float | None, fault: str) -> float:
    score = math.inf if fault or error is None or not allowed else error / allowed
    return score if score >= 0 else math.inf


def training_score(finding: ParityFinding) -> float:
    """Return the distance of two trainings in rounding envelopes; infinite if unknown."""
    return max(
        (score for score in (finding.loss_score, finding.grad_norm_score) if score is not None),
        default=math.inf,
    )


def _covers_learning(entry: Acceptance, finding: ParityFinding) -> bool:
    if finding.verdict is Parity.NON_FINITE:
        return False
    if finding.difference is not None:
        return (
            entry.change.share is not None
            and abs(finding.difference) <= entry.change.share + _ROUNDING
        )
    return entry.change.number is not None and training_score(finding) <= entry.change.number


def _needs(entry: Acceptance, case: CaseComparison) -> bool:
    """Return whether a case needs the entry, or whether that is unknown."""
    if case.head_status is not Status.OK:
        return True
    match entry.change.kind:
        case Accepted.METRIC:
            return any(_is_for(entry, pair) and pair.verdict not in _SETTLED for pair in case.pairs)
        case Accepted.OUTPUTS:
            return case.outputs is not None and not case.outputs.verdict.holds
        case Accepted.LEARNING:
            return case.learning is not None and not case.learning.verdict.holds


def _exceeds(entry: Acceptance, case: CaseComparison) -> bool:
    """Return whether a change of the case that the entry is for goes beyond its bound."""
    match entry.change.kind:
        case Accepted.METRIC:
            worse = (
                pair
                for pair in case.pairs
                if _is_for(entry, pair) and pair.verdict.worse and not pair.detail
            )
            return any(not _covers_pair(entry, pair) for pair in worse)
        case Accepted.OUTPUTS:
            finding = case.outputs
            return (
                finding is not None
                and finding.verdict is Sameness.CHANGED
                and not _covers_outputs(entry, finding)
            )
        case Accepted.LEARNING:
            return (
                case.learning is not None
                and case.learning.verdict.broken
                and not _covers_learning(entry, case.learning)
            )


def _bound(entry: Acceptance) -> str:
    change = entry.change
    if change.share is not None:
        return percent(change.share)
    if change.number is None:
        return "any size"
    return (
        f"{change.number:g}"
        if change.kind is Accepted.METRIC
        else f"{format_factor(change.number)} times rounding"
    )


def suggested(rule: Rule, case: CaseComparison) -> tuple[str, ...]:
    """Return the arguments of `ci-bench accept` for a finding; empty if no entry can accept it.

    The bound is a quarter above the measured change.
    """
    if rule in _WORSE:
        worse = [pair for pair in case.pairs if pair.verdict.worse and not pair.detail]
        farthest = max(worse, key=change_size, default=None)
        return () if farthest is None else _for_metric(farthest)
    if rule is Rule.OUTPUTS_CHANGED and case.outputs is not None:
        return ("--outputs", "--bound", _rounded_up(outputs_score(case.outputs)) or ANY)
    if (
        rule is Rule.LEARNING_CHANGED
        and case.learning is not None
        and case.learning.verdict is not Parity.NON_FINITE
    ):
        off = case.learning.difference
        bound = (
            _rounded_up(training_score(case.learning))
            if off is None
            else f"{_rounded_up(100 * abs(off))}%"
        )
        return ("--learning", "--bound", bound) if bound else ()
    return ()


def _for_metric(pair: Pair) -> tuple[str, ...]:
    lower = pair.better is Better.HIGHER
    options = ("--metric", pair.metric, *(("--direction", "lower") if lower else ()))
    if pair.speedup is None or pair.unit is Unit.COUNT:
        return () if pair.head is None else (*options, "--bound", f"{pair.head.figure:g}")
    return (*options, "--bound", f"{_rounded_up(100 * _relative(pair.speedup, pair.better))}%")


def _rounded_up(value: float) -> str:
    """Return a quarter more, in two digits; empty if the value is infinite."""
    if not math.isfinite(value):
        return ""
    digits = 10.0 ** (math.floor(math.log10(1.25 * value)) - 1) if value > 0 else 1.0
    return f"{math.ceil(1.25 * value / digits) * digits:.6f}".rstrip("0").rstrip(".")
