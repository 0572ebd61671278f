"""The word for a case as a whole, and how a case that did not end well ended. Owns the order of verdicts; it compares nothing."""

from collections.abc import Sequence

from ci_bench.judge.wording import change_size, count_of, place
from ci_bench.records.case import CaseResult, Status
from ci_bench.records.comparison import Pair, Verdict

WORST_FIRST = (
    Verdict.FAILED,
    Verdict.REGRESSED,
    Verdict.REMOVED,
    Verdict.INCOMPARABLE,
    Verdict.INCONCLUSIVE,
    Verdict.IMPROVED,
    Verdict.UNCHANGED,
    Verdict.NEW,
    Verdict.SKIPPED,
)
"""A case takes the first of these that one of its pairs has.

What was measured to be worse comes before what is gone, and that before what could not be decided, so that no better pair
hides it. Improved comes before unchanged because one changed metric is the news; new comes last because a metric added to a
case says nothing about the rest.
"""


def case_verdict(base: CaseResult | None, head: CaseResult, pairs: Sequence[Pair], new_reason: str) -> tuple[Verdict, str]:
    """A status other than ok speaks first, then what was never measured, then the lack of a base, then the worst pair.

    `new_reason` says why there is nothing to compare with, where that is so.
    """
    if head.status is not Status.OK:
        never_began = head.status in {Status.SKIPPED, Status.NOT_RUN}
        return Verdict.SKIPPED if never_began else Verdict.FAILED, ending(head)
    if not pairs and head.parity is None:
        return Verdict.FAILED, "it ended ok, but nothing was measured"
    if gaps := [pair for pair in pairs if pair.verdict is Verdict.FAILED and not pair.detail]:
        return Verdict.FAILED, _worst_reason(gaps)
    if base is None or base.status is not Status.OK:
        return Verdict.NEW, new_reason
    if not pairs:
        return Verdict.INCONCLUSIVE, "no metric on either side"
    judged = [pair for pair in pairs if not pair.detail] or pairs
    worst = min((pair.verdict for pair in judged), key=WORST_FIRST.index)
    return worst, _worst_reason([pair for pair in judged if pair.verdict is worst])


def ending(result: CaseResult) -> str:
    """How a case ended, in words: ``timeout in train (inductor): no answer for 1800 s``."""
    word = result.status.value.replace("_", " ")
    if result.failure is None:
        return word
    arms = f" ({', '.join(result.failure.arms)})" if result.failure.arms else ""
    return f"{word} in {result.failure.stage}{arms}: {result.failure.reason}"


def _worst_reason(pairs: Sequence[Pair]) -> str:
    largest = max(pairs, key=change_size)
    others = f"; {count_of(len(pairs) - 1, 'metric')} more {largest.verdict.value}" if len(pairs) > 1 else ""
    return f"{place(largest)}: {largest.reason}{others}"
