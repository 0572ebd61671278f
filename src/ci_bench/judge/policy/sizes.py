"""Clauses of a headline with the size of a finding: a deviation, a score, a speedup, a crash."""

import math
import re
from collections.abc import Callable, Mapping

from ci_bench.judge.wording import percent, shortened
from ci_bench.records.comparison import CaseComparison, Finding, Parity, ParityFinding
from ci_bench.records.config import Rule
from ci_bench.records.outputs import OutputsFinding, Sameness, format_factor
from ci_bench.records.results import Outcome

_INTERVAL = re.compile(r" \((?:[\d.,]+ % interval [^()]*|no interval)\)")
_FLOOR = re.compile(r"(.+): the (.+) is (\S+), below the floor of (\S+)")
_LONGEST = 120
_LEAST_SHARE = 1e-4
"""A smaller share says less than how far it exceeds rounding."""


def sized(case: CaseComparison, finding: Finding) -> str:
    """Return a clause on the finding, with its size if it has one."""
    describe = _BY_RULE.get(finding.rule)
    text = describe(case) if describe else ""
    clause = text or _INTERVAL.sub("", finding.message.partition(": was it computed?")[0])
    if finding.rule is not Rule.BELOW_FLOOR:
        return clause
    over = f" over {case.reference}" if case.reference else ""
    return _FLOOR.sub(
        lambda match: f"{match[2]}{over} {match[3]} ({match[1]}), floor {match[4]}", clause
    )


def times_rounding(error: float | None, allowed: float | None) -> str:
    """Return a deviation as ``287 times what rounding explains``; empty if unknown."""
    if error is None or not allowed or not math.isfinite(error / allowed):
        return ""
    return f"{format_factor(error / allowed)} times what rounding explains"


def _of_parity(finding: ParityFinding) -> str:
    if finding.verdict is Parity.NON_FINITE:
        return "is not finite"
    scores = [score for score in (finding.loss_score, finding.grad_norm_score) if score is not None]
    step = finding.step or ("" if finding.first_step is None else f"step {finding.first_step:,}")
    where = f" from {step}" if step else ""
    off = finding.apart_first if finding.difference is None else finding.difference
    end = finding.apart_last if finding.difference is None and where else None
    if end is not None and off is not None and abs(end) > abs(off) and abs(end) >= _LEAST_SHARE:
        return f"off by {percent(abs(end))} at the end"
    if off is not None and abs(off) >= _LEAST_SHARE:
        return f"off by {percent(off)}{where}"
    if scores and finding.signal != "evaluation_loss" and math.isfinite(max(scores)):
        return f"differs{where}, {format_factor(max(scores))} times what rounding explains"
    return f"differs{where}"


def training_distance(finding: ParityFinding) -> float:
    """Return the distance of two trainings, to order findings; infinite if one is not finite."""
    if finding.verdict is Parity.NON_FINITE:
        return math.inf
    return max(
        finding.loss_score or 0.0, finding.grad_norm_score or 0.0, abs(finding.difference or 0.0)
    )


def _signal(finding: ParityFinding) -> str:
    return "gradient norm" if finding.signal == "grad_norm" else "loss"


def _broken_parity(case: CaseComparison) -> str:
    worst = max(
        (finding for finding in case.parity if finding.verdict.broken),
        key=training_distance,
        default=None,
    )
    return (
        ""
        if worst is None
        else (
            f"{_signal(worst)} {_of_parity(worst)} ({worst.arm} against"
            f" {case.reference or 'its reference'})"
        )
    )


def _changed_learning(case: CaseComparison) -> str:
    finding = case.learning
    if finding is None:
        return ""
    evaluated = finding.signal == "evaluation_loss"
    short = finding.steps < (finding.recorded or 0)
    what, rest = (
        ("evaluation loss", f"the {'compared steps are' if short else 'training is'} equal, ")
        if evaluated
        else (f"{_signal(finding)} of the training", "")
    )
    return f"{what} {_of_parity(finding)} ({rest}head against base)"


def _changed_outputs(case: CaseComparison) -> str:
    outputs: OutputsFinding | None = case.outputs
    if outputs is None or outputs.verdict is not Sameness.CHANGED:
        return ""
    worst = next(iter(outputs.worst), None)
    size = "" if worst is None else worst.fault or times_rounding(worst.error, worst.allowed)
    return f"outputs differ from base{f', {size}' if size else ''}"


def _broken_accuracy(case: CaseComparison) -> str:
    every = (*case.parity, *([case.learning] if case.learning else []))
    accuracy = next(
        (
            finding.accuracy
            for finding in every
            if finding.accuracy is not None and not finding.accuracy.holds
        ),
        None,
    )
    return (
        ""
        if accuracy is None
        else f"accuracy {100 * accuracy.candidate:.1f} %, {100 * accuracy.reference:.1f} % expected"
    )


def _failed_check(case: CaseComparison) -> str:
    failed = [
        check for check in case.checks if check.outcome is Outcome.FAIL and not check.informative
    ]
    names = ", ".join(dict.fromkeys(check.name for check in failed))
    if (
        len(failed) == 1
        and len(text := f"check {failed[0].name} failed: {failed[0].detail}") <= _LONGEST
    ):
        return text
    return f"check failed: {names}" if len(names) <= _LONGEST else f"{len(failed)} checks failed"


def _failed_case(case: CaseComparison) -> str:
    return shortened(case.reason, _LONGEST)


_BY_RULE: Mapping[Rule, Callable[[CaseComparison], str]] = {
    Rule.PARITY_BROKEN: _broken_parity,
    Rule.LEARNING_CHANGED: _changed_learning,
    Rule.OUTPUTS_CHANGED: _changed_outputs,
    Rule.ACCURACY_BROKEN: _broken_accuracy,
    Rule.CHECK_FAILED: _failed_check,
    Rule.CASE_FAILED: _failed_case,
}
