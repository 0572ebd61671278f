"""The verdict that PyTorch's training_loss.py would have given on the same two runs. For information, never for the gate.

The rule: https://github.com/pytorch/pytorch/blob/main/benchmarks/dynamo/training_loss.py (`check_loss` and the loss history of
`model_training_evaluation`), kept with its quirks: windows of 100 batches inside an epoch whose trailing part is dropped,
the last 10 windows at most, divided by 10 even when there are fewer.
"""

import math

from ci_bench.records.case import ParityEvidence, Role, Trace
from ci_bench.records.comparison import SeedRule

WINDOW = 100
TAIL = 10
ALLOWANCE = 0.1


def seed_rule(evidence: ParityEvidence, arm: str) -> SeedRule | None:
    """The rule on the first seed that reference and candidate `arm` share; `None` where they share none."""
    references = {trace.seed: trace for trace in _ordered(evidence, Role.REFERENCE)}
    candidates = {trace.seed: trace for trace in _ordered(evidence, Role.CANDIDATE) if trace.arm == arm}
    shared = sorted(references.keys() & candidates.keys())
    if not shared:
        return None
    sides = [window_means(side[shared[0]].loss, steps_per_epoch=evidence.steps_per_epoch) for side in (references, candidates)]
    return _decide(sides[0], sides[1])


def window_means(losses: tuple[float | None, ...], *, steps_per_epoch: int) -> tuple[float, ...]:
    """The mean of every full window of `WINDOW` batches inside an epoch; nan where a loss is missing."""
    epoch = max(1, steps_per_epoch)
    starts = (begin + offset for begin in range(0, len(losses), epoch) for offset in range(0, epoch - WINDOW + 1, WINDOW))
    windows = (losses[start : start + WINDOW] for start in starts)
    return tuple(sum(math.nan if x is None else x for x in one) / WINDOW for one in windows if len(one) == WINDOW)


def _ordered(evidence: ParityEvidence, role: Role) -> list[Trace]:
    """The traces of a role, the first index of a seed last, so that it stays in a mapping by seed."""
    return sorted((trace for trace in evidence.traces if trace.role is role), key=lambda trace: (trace.seed, -trace.index))


def _decide(reference: tuple[float, ...], candidate: tuple[float, ...]) -> SeedRule:
    if len(reference) != len(candidate):
        return SeedRule(passed=False, detail=f"{len(reference)} windows in the reference, {len(candidate)} in the candidate")
    if not reference:
        return SeedRule(
            passed=None,
            detail="no window of 100 batches in an epoch: the rule has nothing to compare (it would have passed)",
        )
    expected, actual = (sum(side[-TAIL:]) / TAIL for side in (reference, candidate))
    passed = actual <= expected + ALLOWANCE
    return SeedRule(
        passed=passed,
        detail=f"tail {actual:.4f} against {expected:.4f} + {ALLOWANCE}, from {min(TAIL, len(reference))} of {TAIL} windows",
    )
