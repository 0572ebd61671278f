"""The words for one result: change, speedup, parity and verdict, as plain text for any renderer.

Owns the wording and what counts as worse. Numbers and our own words only: nothing here needs
escaping.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from functools import lru_cache

from ci_bench.records.comparison import (
    BESIDE_BASE,
    ArmSpeedup,
    CaseComparison,
    Pair,
    Parity,
    ParityFinding,
    Summary,
    Verdict,
)
from ci_bench.records.outputs import OutputsFinding, Sameness, format_factor
from ci_bench.records.results import Check, Outcome, Unit
from ci_bench.records.units import UNITS, relative_change, worse_and_better
from ci_bench.report.text import (
    UNKNOWN,
    alike,
    count,
    from_to,
    interval,
    joined,
    percent,
    quantity,
    ratio,
)


class Mood(IntEnum):
    """Quality of a result for a reader; the worst is the smallest."""

    BAD = 0
    UNSURE = 1
    OPEN = 2
    NEW = 3
    BETTER = 4
    GOOD = 5


_MOODS = {
    Verdict.FAILED: Mood.BAD,
    Verdict.REGRESSED: Mood.BAD,
    Verdict.SUSPECTED: Mood.BAD,
    Verdict.REMOVED: Mood.UNSURE,
    Verdict.INCOMPARABLE: Mood.OPEN,
    Verdict.INCONCLUSIVE: Mood.OPEN,
    Verdict.SKIPPED: Mood.OPEN,
    Verdict.NEW: Mood.NEW,
    Verdict.IMPROVED: Mood.BETTER,
    Verdict.UNCHANGED: Mood.GOOD,
}
_PARITY_WORDS = {Parity.NON_FINITE: "not finite", Parity.INCONCLUSIVE: "undecided"}
_TENTH, _LEAST_Q = 0.1, 0.01
_STEP = re.compile(r"step \d{1,16}|epoch \d{1,9}, iteration \d{1,16}")


def mood(verdict: Verdict) -> Mood:
    """Return how good or bad a verdict is."""
    return _MOODS[verdict]


def verdict_word(verdict: Verdict) -> str:
    """Return the verdict as reports print it; an inconclusive metric is ``undecided``."""
    return "undecided" if verdict is Verdict.INCONCLUSIVE else str(verdict)


def parity_mood(finding: ParityFinding) -> Mood:
    """Return how good or bad a finding is.

    Parity that holds is still bad if the accuracy does not.
    """
    if finding.verdict.broken or (finding.accuracy is not None and not finding.accuracy.holds):
        return Mood.BAD
    return Mood.GOOD if finding.verdict.holds else Mood.UNSURE


def outputs_mood(finding: OutputsFinding) -> Mood:
    """Return how good or bad it is.

    An unknown comparison does not count as the same.
    """
    if finding.verdict is Sameness.CHANGED:
        return Mood.BAD
    return Mood.GOOD if finding.verdict.holds else Mood.UNSURE


def outputs(finding: OutputsFinding) -> str:
    """Return the verdict on outputs in words: ``within rounding``."""
    return finding.verdict.replace("_", " ")


def check_mood(check: Check) -> Mood:
    """Return how good or bad a check is; an unknown is not a pass."""
    return {Outcome.FAIL: Mood.BAD, Outcome.UNKNOWN: Mood.UNSURE, Outcome.PASS: Mood.GOOD}[
        check.outcome
    ]


def checks(arm_checks: Sequence[Check]) -> str:
    """Count an arm's checks: those that fail, else those without an answer, else all."""
    for outcome, word in ((Outcome.FAIL, "failed"), (Outcome.UNKNOWN, "without an answer")):
        if number := sum(check.outcome is outcome for check in arm_checks):
            return f"{number} of {len(arm_checks)} {word}"
    return f"{len(arm_checks)} passed" if arm_checks else UNKNOWN


def check_rank(check: Check) -> tuple[bool, Mood]:
    """Return a check's order among others: informative ones come after all that count."""
    return check.informative, check_mood(check)


def side(summary: Summary | None, pair: Pair) -> str:
    """Return the figure of one side: ``133 ms``."""
    return quantity(summary.figure if summary else None, pair.unit)


def sides(pair: Pair) -> tuple[str, str]:
    """Return the figures of base and head, in one unit if they are close."""
    if pair.base is None or pair.head is None:
        return side(pair.base, pair), side(pair.head, pair)
    return alike(pair.base.figure, pair.head.figure, pair.unit)


def both_sides(pair: Pair) -> str:
    """Return both figures, or the only one: ``133 → 144 ms``."""
    base, head = sides(pair)
    if pair.base and pair.head:
        return joined(base, " → ", head)
    return head if pair.head else base


def change(pair: Pair) -> str:
    """Describe the change: ``8.2 % slower``; for an unchanged metric only the sign, ``+0.3 %``."""
    if pair.unit is Unit.COUNT and pair.base and pair.head:
        return _count_change(pair.head.figure - pair.base.figure)
    share = growth(pair)
    if share is None:
        return UNKNOWN
    if not share or (not pair.verdict.moved and pair.verdict is not Verdict.INCONCLUSIVE):
        return percent(share, signed=True)
    return (
        f"{relative_change(share)}"
        f" {worse_and_better(pair.unit, pair.better)[(pair.speedup or 1.0) > 1]}"
    )


def change_interval(pair: Pair) -> str:
    """Describe the interval of the change, from that of the speedup: ``−0.4 to +1.1 %``.

    For a metric that changed it is as ``change`` words it: ``7.4 to 9.1 %`` slower or faster.
    """
    bounds = pair.interval
    if bounds is None or bounds.low <= 0 or bounds.high <= 0:
        return UNKNOWN
    ends = (
        (bounds.low, bounds.high)
        if _grows_with_speedup(pair)
        else (1 / bounds.high, 1 / bounds.low)
    )
    low, high = ends[0] - 1, ends[1] - 1
    if pair.verdict.moved and low * high > 0:
        return from_to(min(abs(low), abs(high)), max(abs(low), abs(high)), percent)
    return from_to(low, high, _signed)


def speedup(arm_speedup: ArmSpeedup) -> str:
    """Describe a speedup: ``1.62×``, and its value on base if that changed.

    The judge decides that, or else the interval.
    """
    now, before, bounds = (
        ratio(arm_speedup.speedup),
        ratio(arm_speedup.base_speedup),
        arm_speedup.interval,
    )
    if arm_speedup.base_speedup is None or before == now:
        return now
    if arm_speedup.change is not None:
        changed = arm_speedup.change.verdict.moved
    else:
        changed = bounds is None or not bounds.low <= arm_speedup.base_speedup <= bounds.high
    return f"{now}, was {before}" if changed else now


def speedup_change(arm_speedup: ArmSpeedup) -> str:
    """Describe head's change of the speedup: ``regressed, −4.4 % (−5.0 to −3.6 %)``."""
    if arm_speedup.change is None:
        return UNKNOWN
    bounds = arm_speedup.change.interval
    spread = "" if bounds is None else f" ({from_to(bounds.low - 1, bounds.high - 1, _signed)})"
    verdict = verdict_word(arm_speedup.change.verdict)
    return f"{verdict}, {_signed(arm_speedup.change.ratio - 1)}{spread}"


def noise(pair: Pair) -> str:
    """Describe the machine's noise: ``0.6 % a launch``, or `uncalibrated` if unknown."""
    if pair.noise is None:
        return "uncalibrated" if pair.calibrated is False else UNKNOWN
    return f"{fine(pair.noise)} a launch"


def fine(share: float | None) -> str:
    """Format a small share with two significant digits: ``0.57 %``."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    return f"{float(f'{share * 100:.2g}'):g} %" if abs(share) < _TENTH else percent(share)


def discovery(pair: Pair) -> str:
    """Format the false discovery rate at which a metric would count as changed."""
    if pair.q is None:
        return UNKNOWN
    return f"{pair.q:.2f}" if pair.q >= _LEAST_Q else f"< {_LEAST_Q}"


def peak(pair: Pair | None) -> str:
    """Describe a peak of memory: both sides and the change, or only head's if unchanged."""
    if pair is None:
        return UNKNOWN
    if pair.verdict.moved:
        return f"{both_sides(pair)}, {change(pair)}"
    summary = pair.head or pair.base
    return quantity(summary.figure if summary else None, pair.unit)


def parity(finding: ParityFinding) -> str:
    """Describe a parity verdict: ``bitwise``, or ``different math from step 3``."""
    if finding.verdict.holds and parity_mood(finding) is Mood.BAD:
        return "accuracy differs"
    word = _PARITY_WORDS.get(finding.verdict, finding.verdict.replace("_", " "))
    if finding.from_another_start:
        return f"{word} from another start"
    if finding.first_step is None or finding.verdict.holds:
        return word
    return f"{word} from {first_step(finding)}"


def first_step(finding: ParityFinding) -> str:
    """Name the first different step, as in the log: ``step 340``; empty without one."""
    if _STEP.fullmatch(finding.step):
        return finding.step
    return "" if finding.first_step is None else f"step {finding.first_step:,}"


def extent(finding: ParityFinding) -> str:
    """Describe how many steps were compared: ``50 steps``, or ``50 of 866 steps``."""
    of = (
        f" of {finding.recorded:,}"
        if finding.recorded is not None and finding.recorded > finding.steps
        else ""
    )
    return f"{finding.steps:,}{of} steps"


def trainings(case: CaseComparison) -> tuple[ParityFinding, ...]:
    """Return the trainings to show for loss parity.

    Head compared with base comes first, then each candidate arm with its reference.
    """
    return (
        case.parity
        if case.learning is None
        else (replace(case.learning, arm=BESIDE_BASE), *case.parity)
    )


def base_parity(case: CaseComparison) -> str:
    """Describe the worse of head's training and outputs, compared with base's.

    An example is ``different math from step 0 (0.01 % off)``.
    """
    if case.outputs is not None and (
        case.learning is None or outputs_mood(case.outputs) < parity_mood(case.learning)
    ):
        return outputs(case.outputs)
    if case.learning is not None:
        off = case.learning.apart_first
        return parity(case.learning) + ("" if off is None else f" ({fine(abs(off))} off)")
    return UNKNOWN


def base_parity_mood(case: CaseComparison) -> Mood | None:
    """Return how good or bad that is; `None` if neither was compared."""
    moods = [parity_mood(case.learning)] if case.learning else []
    return min([*moods, *([outputs_mood(case.outputs)] if case.outputs else [])], default=None)


def distance(finding: ParityFinding) -> str:
    """Describe the distance of the two trainings, and its limit."""
    limit = UNKNOWN if finding.limit is None else f"{finding.limit:.3g}"
    if finding.difference is not None:
        spread = "" if finding.interval is None else f" ({interval(finding.interval, _signed)})"
        return f"{_signed(finding.difference)}{spread}, margin {percent(finding.limit)}"
    scores = (("loss", finding.loss_score), ("gradient norm", finding.grad_norm_score))
    parts = [f"{name} {score:.3g}" for name, score in scores if score is not None]
    return f"{', '.join(parts)}, limit {limit}" if parts else UNKNOWN


def training(finding: ParityFinding) -> str:
    """Describe a training in a clause.

    An example is ``learns differently from step 7, 834 times what rounding explains``.
    """
    scores = [score for score in (finding.loss_score, finding.grad_norm_score) if score is not None]
    is_scored = (
        finding.difference is None
        and not finding.from_another_start
        and finding.signal != "evaluation_loss"
    )
    if not is_scored or not scores or finding.limit is None or not math.isfinite(max(scores)):
        deviation = distance(finding)
        end = "" if deviation == UNKNOWN else f"; {deviation}"
        return f"{parity(finding)} over {extent(finding)}{end}"
    size = (
        f"{format_factor(max(scores))} times what rounding explains ({finding.limit:g} is allowed)"
    )
    match finding.verdict:
        case Parity.BITWISE:
            return f"identical in every bit over {extent(finding)}"
        case Parity.DIFFERENT_MATH:
            return f"learns differently from {first_step(finding) or 'the start'}, {size}"
        case Parity.INSUFFICIENT_DATA:
            return f"{parity(finding)} over {extent(finding)}"
        case _:
            return f"{parity(finding)} over {extent(finding)}, {size}"


def samples(pair: Pair) -> str:
    """Describe samples and launches of base and head."""
    sides = [_count_samples(side.samples, side.launches) for side in (pair.base, pair.head) if side]
    return " → ".join(dict.fromkeys(sides)) or UNKNOWN


@lru_cache(maxsize=1000)
def _count_samples(samples: int, launches: int) -> str:
    return f"{count(samples)} in {count(launches)}"


def _signed(share: float) -> str:
    return percent(share, signed=True)


def _count_change(difference: float) -> str:
    if difference == 0:
        return "same"
    facts = UNITS[Unit.COUNT]
    return f"{count(abs(difference))} {facts.grown if difference > 0 else facts.shrunk}"


def _grows_with_speedup(pair: Pair) -> bool:
    return pair.better == "higher"


def growth(pair: Pair) -> float | None:
    """Return head over base, less one, from the speedup.

    The speedup was judged, not the quotient of the medians.
    """
    if pair.speedup is None or pair.speedup <= 0:
        return None
    return (pair.speedup if _grows_with_speedup(pair) else 1 / pair.speedup) - 1
