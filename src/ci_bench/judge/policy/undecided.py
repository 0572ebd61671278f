"""Open metrics of a comparison, and the launches and time that would decide them.

Only metrics that can fail a run count. A pair says how many launches in all would decide it
(`Pair.needed`); a launch lasts as long as those of this run did, checks included, so times are
upper bounds.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from ci_bench.judge.wording import count_of, duration, percent
from ci_bench.records.comparison import BaselineMode, CaseComparison, Pair, Verdict, tally
from ci_bench.records.labels import labels
from ci_bench.records.results import Status

_MOST_NAMED = 3
_MOST_ADVISED = 1.0
"""Largest detectable change that is named: a doubling."""
_IN_TURNS = "too noisy between runs at different moments"


def open_pairs(case: CaseComparison) -> list[Pair]:
    """Return the open metrics of a case; none if the case is incomplete."""
    return [pair for pair in case.pairs if is_open(pair)] if case.head_status is Status.OK else []


def undecided(cases: Sequence[CaseComparison], mode: BaselineMode) -> str:
    """Describe the open metrics and the launches that would decide them; empty without any.

    ``3 of 12 metrics (mlp, lstm): about 6 more launches would decide them, at most 4 minutes``
    """
    open_cases = [(case, pairs) for case in cases if (pairs := open_pairs(case))]
    if not open_cases:
        return ""
    number = sum(len(pairs) for _, pairs in open_cases)
    names = labels(cases)
    counted = (
        f"{number:,} of {count_of(tally(cases).all, 'metric')}"
        f" ({few((names[case.id] for case, _ in open_cases), 'case')})"
    )
    return f"{counted}: {what_it_takes(cases, mode)}"


def what_it_takes(cases: Iterable[CaseComparison], mode: BaselineMode) -> str:
    """Return ``about 6 more launches would decide them``, of the open metrics."""
    open_cases = [(case, pairs) for case in cases if (pairs := open_pairs(case))]
    number = sum(len(pairs) for _, pairs in open_cases)
    return (
        "; ".join(_what_it_takes(open_cases, number)) if mode is BaselineMode.PAIRED else _IN_TURNS
    )


def short(case: CaseComparison) -> str:
    """Return the title, or the id without its parameters, which the table below a headline has."""
    return case.title or case.id.partition("[")[0]


def few(names: Iterable[str], noun: str) -> str:
    """Join the first names, and the number of others."""
    every = list(dict.fromkeys(names))
    more = [count_of(len(every) - _MOST_NAMED, f"more {noun}")] if len(every) > _MOST_NAMED else []
    return ", ".join([*every[:_MOST_NAMED], *more])


def is_open(pair: Pair) -> bool:
    """Return whether a metric that gates could not be decided."""
    return pair.verdict is Verdict.INCONCLUSIVE and not pair.detail


def _what_it_takes(
    open_cases: Sequence[tuple[CaseComparison, list[Pair]]], number: int
) -> Iterator[str]:
    """Describe the launches that would decide `number` metrics, and the time that they take.

    Then count the metrics that they leave open.
    """
    every = "it" if number == 1 else "them"
    counted = [(case, more) for case, pairs in open_cases if (more := _more_launches(pairs))]
    if counted:
        times = [more * case.launch_s for case, more in counted if case.launch_s is not None]
        at_most = f", at most {duration(sum(times))}" if len(times) == len(counted) else ""
        most = max(more for _, more in counted)
        helped = sum(pair.needed is not None for _, pairs in open_cases for pair in pairs)
        them = every if helped == number else f"{helped:,} of them"
        yield f"about {count_of(most, 'more launch')} would decide {them}{at_most}"
    hopeless = [pair for _, pairs in open_cases for pair in pairs if pair.needed is None]
    if hopeless:
        yield f"{f'{len(hopeless):,} of them: ' if counted else ''}{_why_hopeless(hopeless)}"


def _why_hopeless(hopeless: Sequence[Pair]) -> str:
    """Explain why no launches decide these metrics.

    ``too noisy to see 2 % here, only changes above 11 % would show``
    """
    resolvable = [pair.resolvable for pair in hopeless if pair.resolvable is not None]
    thresholds = {pair.threshold for pair in hopeless}
    if len(resolvable) < len(hopeless):
        return "too noisy, or too close to the threshold, for any number of launches"
    if max(resolvable) <= min(thresholds):
        return "too close to the threshold for any number of launches"
    target = f" to see {percent(max(thresholds))}" if len(thresholds) == 1 else ""
    shown = (
        ""
        if max(resolvable) > _MOST_ADVISED
        else f", only changes above {percent(max(resolvable))} would show"
    )
    return f"too noisy{target} here{shown}"


def _more_launches(pairs: Iterable[Pair]) -> int:
    """Return the additional launches that decide a case's open pairs, if any number does."""
    additional = [pair.needed - _launches(pair) for pair in pairs if pair.needed is not None]
    return max(0, math.ceil(max(additional, default=0)))


def _launches(pair: Pair) -> int:
    return min((side.launches for side in (pair.base, pair.head) if side), default=0)
