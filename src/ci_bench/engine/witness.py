"""A second witness of the clock: whether the samples that a worker reports fit the time that its turns took in the parent. Pure.

The parent runs no benched code, so what `turns` noted there is true. What of a turn no sample accounts for (the order and its
answer, seeding, the fence's ends, the marks of parts) is small and does not grow with the sample. A clock that runs slowly, or
takes something off each sample, leaves a gap in *every* turn; a machine that stalls, in some. So the lower quartile of the gaps
decides, against base's gaps where there are any: base is what head's code cannot reach. Beside base the median decides as well,
where it is beyond base's largest gap: a clock that lies in most turns. What is left is a bound: samples cannot be shorter than
they should be by more than the part of the parent's time that they leave empty.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ci_bench.engine.process.protocol import TOUCH_FROM_CALLS
from ci_bench.records.metrics import DEVICE_TIME, STEP_TIME
from ci_bench.records.results import Check, Lane, Metric, Outcome
from ci_bench.suites.base import Evidence

WITNESSED = "witnessed"
WHOLE = {STEP_TIME.name: "wall", DEVICE_TIME.name: "device"}
"""The series that fill a turn, and whose clock they are by."""
LEAST_TURNS = 5
"""Fewer tell nothing: each of them may have been stalled."""
ROUNDING_S = 1e-4
"""By how much a turn's samples may be longer than the turn."""
BESIDE_BASE_S, SHARE_BESIDE_BASE = 0.001, 0.02
"""What head's gaps may have beyond base's: seconds, and a share of a sample."""
BY_ITSELF_S, SHARE_BY_ITSELF = 0.005, 0.1
"""The same where there is no base: more than was seen on a core that five processes shared (docs/measurements.md)."""
MARKS_S = 0.01
"""What reading the 2,048 events of a GPU's parts may take per sample."""
TELLING = 0.3
"""Where more than this share of a sample could hide in what is allowed, the samples are too short to tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """One turn as the parent saw it: which, of how many samples, and the seconds from its order to its answer.

    `touched` says that a call that is not timed may have come first; `refereed`, that looks did, which take as long as they take.
    """

    seat: int
    block: int
    samples: int
    elapsed_s: float
    touched: bool = False
    refereed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """The gaps (s per sample) of one arm's turns in one launch, by one clock: what of the parent's time no sample explains.

    `sample_s` is the median sample, `reported_s` and `elapsed_s` the sums over the turns that count. `fault` is what makes the
    series impossible, whatever the gaps are.
    """

    arm: str
    clock: str
    gaps_s: tuple[float, ...] = ()
    sample_s: float = 0.0
    reported_s: float = 0.0
    elapsed_s: float = 0.0
    marked: bool = False
    fault: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnTimes:
    """What the parent knows of one side's turns of one case in one launch. `calls` of each arm make a sample.

    `flushed` says that each call was timed twice, behind a flush of the cache each time, which takes time of its own.
    """

    arms: Sequence[str]
    sightings: Sequence[Sighting]
    calls: Sequence[int]
    flushed: bool = False

    def accounts(self, evidence: Evidence) -> Mapping[tuple[str, str], Account]:
        """The account of each arm and clock that the evidence has a series of."""
        series = {(metric.arm, metric.name): metric for metric in evidence.metrics if metric.name in WHOLE and metric.launches}
        seats = {arm: [one for one in self.sightings if one.seat == seat] for seat, arm in enumerate(self.arms)}
        calls = dict(zip(self.arms, self.calls, strict=True))
        of_parts = {metric.arm for metric in evidence.metrics if metric.lane is Lane.DEVICE and metric.name not in WHOLE}
        return {
            (arm, name): self._account(metric, seats[arm], calls=calls[arm], marked=arm in of_parts)
            for (arm, name), metric in series.items()
            if arm in seats and not (self.flushed and name != STEP_TIME.name)
        }

    def _account(self, metric: Metric, turns: Sequence[Sighting], *, calls: int, marked: bool) -> Account:
        clock, taken = WHOLE[metric.name], metric.launches[0]
        ordered = tuple(turn.block for turn in turns for _ in range(turn.samples))
        if len(taken.values) != len(ordered) or taken.blocks != ordered:
            fault = f"{len(taken.values)} samples came back where {len(ordered)} were ordered, or of other blocks"
            return Account(arm=metric.arm, clock=clock, fault=fault)
        lengths_s = [value * calls for value in taken.values]
        rest = iter(lengths_s)
        spans = [(turn, sum(next(rest) for _ in range(turn.samples))) for turn in turns]
        fault = next(filter(None, (_overfull(turn, reported_s, clock) for turn, reported_s in spans)), "")
        counted = [(turn, reported_s * (2 if self.flushed else 1)) for turn, reported_s in spans if not turn.refereed]
        return Account(
            arm=metric.arm,
            clock=clock,
            gaps_s=tuple(sorted(_gap_s(turn, reported_s, calls) for turn, reported_s in counted)),
            sample_s=statistics.median(lengths_s) if lengths_s else 0.0,
            reported_s=sum(reported_s for _, reported_s in counted),
            elapsed_s=sum(turn.elapsed_s for turn, _ in counted),
            marked=marked,
            fault=fault,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """Judges one side's accounts; `base` are those of base, where head is to be held against them."""

    flushed: bool = False
    base: Mapping[tuple[str, str], Account] = field(default_factory=dict)

    def checks(self, accounts: Mapping[tuple[str, str], Account]) -> tuple[Check, ...]:
        """One check for each arm: the worst of its clocks."""
        order = (Outcome.PASS, Outcome.UNKNOWN, Outcome.FAIL)
        worst: dict[str, Check] = {}
        for key, account in accounts.items():
            check = self._check(account, self.base.get(key))
            if account.arm not in worst or order.index(check.outcome) > order.index(worst[account.arm].outcome):
                worst[account.arm] = check
        return tuple(worst.values())

    def _check(self, account: Account, base: Account | None) -> Check:
        """Only a disagreement counts: what cannot be known, or agrees, is for the reader."""
        outcome, detail = self._judged(account, base if base is not None and not base.fault and base.gaps_s else None)
        return Check(name=WITNESSED, arm=account.arm, outcome=outcome, detail=detail, informative=outcome is not Outcome.FAIL)

    def _judged(self, account: Account, base: Account | None) -> tuple[Outcome, str]:
        if account.fault:
            return Outcome.FAIL, account.fault
        if len(account.gaps_s) < LEAST_TURNS:
            return Outcome.UNKNOWN, f"{len(account.gaps_s)} turns are too few to hold the worker's clock against the parent's"
        low_s, middle_s = quantile(account.gaps_s, 0.25), quantile(account.gaps_s, 0.5)
        sums = f"{account.reported_s:.4g} s of samples by the worker's {account.clock} clock in {account.elapsed_s:.4g} s by ours"
        missing = max(0.0, middle_s) / (account.sample_s + max(0.0, middle_s)) if account.sample_s else 1.0
        if base is None and self.flushed:
            return Outcome.UNKNOWN, f"{sums}: flushes come in between, and there is no base to know their time from"
        allowed_s = _allowed_s(account, base)
        if low_s > allowed_s or (base is not None and middle_s > base.gaps_s[-1] + allowed_s):
            beside = f", where base's leave {1e3 * quantile(base.gaps_s, 0.5):.3g} ms" if base else ""
            gap = f"{1e3 * low_s:.3g} ms or more beside each sample in three turns of four, {1e3 * middle_s:.3g} ms in half"
            return Outcome.FAIL, f"{sums} leave {gap}{beside}: {1e3 * allowed_s:.3g} ms are allowed"
        bound = f"samples cannot be short by more than {100 * missing:.2g} %"
        hidden_s = allowed_s - (quantile(base.gaps_s, 0.25) if base else 0.0)
        if hidden_s > TELLING * (account.sample_s + hidden_s):
            return Outcome.UNKNOWN, f"{sums}: samples of {1e3 * account.sample_s:.3g} ms are too short to tell; {bound}"
        return Outcome.PASS, f"{sums}: {bound}"


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values, which ascend, does not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _allowed_s(account: Account, base: Account | None) -> float:
    """Beside base what its own gaps reach, by its median at least; a machine that stalls base allows no more than without one."""
    by_itself_s = BY_ITSELF_S + SHARE_BY_ITSELF * account.sample_s + (MARKS_S if account.marked else 0.0)
    if base is None:
        return by_itself_s
    margin_s = BESIDE_BASE_S + SHARE_BESIDE_BASE * account.sample_s
    return min(quantile(base.gaps_s, 0.75) + margin_s, max(quantile(base.gaps_s, 0.5) + margin_s, by_itself_s))


def _gap_s(turn: Sighting, reported_s: float, calls: int) -> float:
    """Per sample (s). A call that was not timed is taken to be as long as those that were."""
    touched = turn.touched and calls >= TOUCH_FROM_CALLS
    touch_s = reported_s / turn.samples / calls if touched else 0.0
    return (turn.elapsed_s - reported_s - touch_s) / turn.samples


def _overfull(turn: Sighting, reported_s: float, clock: str) -> str:
    """What is wrong where the samples of a turn took longer than the turn; empty where they did not."""
    if reported_s <= turn.elapsed_s + ROUNDING_S:
        return ""
    return f"{reported_s:.4g} s of samples by the worker's {clock} clock in a turn of {turn.elapsed_s:.4g} s by ours"
