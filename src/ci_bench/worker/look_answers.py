"""Answers of looks, and their faults that need no rule of numbers. Imports torch."""

from dataclasses import dataclass

from ci_bench.records.results import Outcome
from ci_bench.suites.shared.worker.numerics import Agreement
from ci_bench.worker.looks import Delay, Look

SLOWER_WHEN_FRESH = 2.0
"""The largest ratio of calls' times on fresh and known inputs, relative to the reference's."""
PUT_OFF = 0.25
"""The least share of the reference's call that a pause must add to a call, to show that it was put
off.
"""
ORDER = (Outcome.PASS, Outcome.UNKNOWN, Outcome.FAIL)
"""Outcomes from the best to the worst."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LookAnswer:
    """The referee's answer for an arm, or for one look at it."""

    outcome: Outcome
    detail: str

    @staticmethod
    def cannot(reason: str) -> "LookAnswer":
        """Return an inconclusive answer."""
        return LookAnswer(outcome=Outcome.UNKNOWN, detail=reason)

    @staticmethod
    def fails(reason: str) -> "LookAnswer":
        """Return a failing answer."""
        return LookAnswer(outcome=Outcome.FAIL, detail=reason)


def badness(agreement: Agreement) -> tuple[int, float]:
    """Return a key that sorts the worst agreement last."""
    return ORDER.index(agreement.outcome), agreement.score


def puts_off(delay: Delay, reference_delay: Delay) -> bool:
    """Return whether a pause adds too much to a call.

    It is compared with the call's own time and with the reference's.
    """
    usual = (
        1.0 + max(0.0, reference_delay.least_s) / reference_delay.call_s
        if reference_delay.call_s
        else 1.0
    )
    return (
        delay.call_s > 0
        and 1.0 + delay.least_s / delay.call_s > SLOWER_WHEN_FRESH * usual
        and delay.least_s > PUT_OFF * reference_delay.call_s
    )


def fault_of(look: Look, reference_look: Look) -> str:
    """Return a look's fault that does not depend on its numbers. The reference's was taken."""
    if look.raised:
        return f"raised {look.raised}, and the reference computes from them"
    if look.unsettled:
        return f"left {look.unsettled}, which changed afterwards though nobody called"
    if (
        not look.row.whole
        and look.inputs
        and reference_look.inputs
        and any(sums != reference_look.inputs[0] for sums in look.inputs)
    ):
        return (
            "left other values in its inputs than the reference leaves there: one of the two writes"
            " them, and the other does not"
        )
    if strange := sorted(look.kinds - reference_look.kinds):
        return (
            f"left {', '.join(strange)} in place of tensors, which may compute when they are read"
        )
    return ""
