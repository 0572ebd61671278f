"""The reasons of a paired run's verdicts: effect, interval, launches, and what it would take to tell more. Owns no decision."""

from dataclasses import dataclass

from ci_bench.judge.wording import change, count_of, interval_text, percent
from ci_bench.records.case import Better, Unit
from ci_bench.records.comparison import Interval, Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """What the rule says of one time; `None` where it cannot say. `resolvable`, `threshold` and `margin` are relative.

    `needed` is how many launches in all would tell a change of `margin`; `None` where no number would.
    """

    verdict: Verdict
    speedup: float | None
    interval: Interval | None
    launches: int
    resolvable: float | None
    needed: float | None
    threshold: float
    margin: float
    calibrated: bool


def reason(answer: Answer, unit: Unit, better: Better, cold_launches: int) -> str:
    """Why this verdict, in one line. Without a history, it takes `cold_launches` launches to decide."""
    if answer.speedup is None:
        return "base and head have no launch in common: measure again"
    launches = count_of(answer.launches, "launch")
    if answer.interval is None:
        return f"{change(answer.speedup, unit, better)} in {launches}; {_too_few(cold_launches)}"
    figures = f"speedup {answer.speedup:.3f}, {interval_text(answer.interval)}, {launches}"
    return f"{change(answer.speedup, unit, better)} ({figures}){_conclusion(answer)}"


def _conclusion(answer: Answer) -> str:
    match answer.verdict:
        case Verdict.REGRESSED | Verdict.IMPROVED:
            return f", beyond the threshold of {percent(answer.threshold)}"
        case Verdict.UNCHANGED:
            return f", certainly less than {percent(answer.margin)}"
        case _:
            return f"; {_what_would_tell(answer)}"


def _too_few(cold_launches: int) -> str:
    """Without a history, the first launches only show how noisy the machine is."""
    return (
        f"without a calibration of this machine a verdict takes {count_of(cold_launches, 'launch')}: "
        "measure more of them, or run ci-bench calibrate once"
    )


def _what_would_tell(answer: Answer) -> str:
    if answer.resolvable is None:
        return "how noisy it is cannot be told: measure more launches"
    told = f"only changes of about {percent(answer.resolvable)} or more can be told here"
    if answer.needed is None:
        return f"{told}; no number of launches would tell {percent(answer.margin)}"
    if answer.needed > answer.launches:
        return f"{told}; about {answer.needed:.0f} launches would tell {percent(answer.margin)}"
    return f"{told}, and it lies too close to the threshold of {percent(answer.threshold)}, or its launches disagree"
