"""A second clock: check that a worker's samples fit the time of its turns in the parent. Pure.

The parent runs no benchmarked code, so the times that `turns` noted there are true. The part of a
turn that no sample explains (the order and its answer, seeding, the fence's ends, the marks of
parts) is small and does not grow with the sample. A clock that runs slowly, or takes something off
each sample, leaves a larger gap in most turns. A busy machine leaves large gaps in some turns of
both sides.

Head's code cannot reach base's clock. If there is a base, the gaps of both sides are two samples of
one distribution as long as head's clock is correct. Smirnov's one-sided test compares them over all
turns of all launches, after a margin was taken off head's. So it accounts for the spread of base's
gaps: on a busy machine the answer is unknown, and no side is accused.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ci_bench.processes.protocol import TOUCH_FROM_CALLS
from ci_bench.records.metrics import DEVICE_TIME, STEP_TIME
from ci_bench.records.results import Check, Lane, Metric, Outcome, SideName
from ci_bench.suites.contract import Evidence

WITNESSED = "witnessed"
WHOLE = {STEP_TIME.name: "wall", DEVICE_TIME.name: "device"}
"""The series that fill a turn, with their clocks."""
LEAST_TURNS = 6
"""The least number of turns for a conclusion.

Six gaps of head all exceed six of base by chance once in 924.
"""
ROUNDING_S = 1e-4
"""The largest excess of a turn's samples over the turn."""
LUCK = 1e-5
"""The false positive rate for a correct clock: once in 100,000 comparisons.

Takes 12 turns of each side at least.
"""
LUCK_OF_CLEAR = 1e-2
"""The same for gaps of one size that exceed base's by the limit without a base (`BY_ITSELF_S`)."""
BESIDE_BASE_S, SHARE_BESIDE_BASE = 0.001, 0.02
"""The allowance of head's gaps over base's: seconds, and a share of a sample."""
BY_ITSELF_S, SHARE_BY_ITSELF = 0.005, 0.1
"""The same without a base.

It exceeds what was seen on a core that five processes shared (docs/internals/measurements.md).
"""
TURNS_ALONE = 12
"""Without a base nine gaps of ten decide.

A busy machine leaves small ones as well, so it causes no accusation.
"""
MOST_LOAD_ALONE = 5.0
"""The largest load per core at which gaps are known to keep that allowance."""
MOST_LOAD_QUIET = 1.0
"""The load per core above which base's gaps may be waiting if head's are as large: the load is a
mean of a minute.
"""
MARKS_S = 0.01
"""The allowance per sample for reading the 2,048 events of a GPU's parts."""
TELLING = 0.3
"""The largest share of a sample that may hide in the allowance.

Above it, the samples are too short to decide.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """One turn as the parent saw it."""

    seat: int
    """Place of the turn's arm among all arms."""
    block: int
    """Number of the block."""
    samples: int
    """Number of samples in the turn."""
    elapsed_s: float
    """Time from the order to its answer (s)."""
    touched: bool = False
    """True if a call that is not timed may have come first."""
    refereed: bool = False
    """True if looks came first, which take arbitrarily long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """The gaps of one arm's turns in one launch, by one clock.

    A gap is the part of the parent's time that no sample explains.
    """

    arm: str
    """Name of the arm."""
    clock: str
    """Name of the worker's clock: ``wall`` or ``device``."""
    gaps_s: tuple[float, ...] = ()
    """Ascending gaps of the turns that count (s per sample)."""
    sample_s: float = 0.0
    """Median sample (s)."""
    reported_s: float = 0.0
    """Sum of the worker's times over the turns that count (s)."""
    elapsed_s: float = 0.0
    """Sum of the parent's times over the same turns (s)."""
    marked: bool = False
    """True if a GPU's parts were marked, which takes time between samples."""
    load: float = 0.0
    """Load of the machine, in runnable processes per core."""
    fault: str = ""
    """Reason that makes the series impossible, whatever the gaps are; empty without one."""

    def joined(self, later: "Account") -> "Account":
        """Return this account and that of a later launch as one; a fault stays."""
        turns = len(self.gaps_s) + len(later.gaps_s)
        weighted_s = self.sample_s * len(self.gaps_s) + later.sample_s * len(later.gaps_s)
        return replace(
            later,
            gaps_s=tuple(sorted((*self.gaps_s, *later.gaps_s))),
            sample_s=weighted_s / turns if turns else 0.0,
            reported_s=self.reported_s + later.reported_s,
            elapsed_s=self.elapsed_s + later.elapsed_s,
            load=max(self.load, later.load),
            fault=self.fault or later.fault,
        )


Accounts = Mapping[tuple[str, str], Account]
"""One side's accounts, by arm and metric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnTimes:
    """The parent's record of one side's turns of one case in one launch."""

    arms: Sequence[str]
    """Names of all arms."""
    sightings: Sequence[Sighting]
    """Turns of the side whose samples count."""
    calls: Sequence[int]
    """Calls of each arm that make a sample."""
    flushed: bool = False
    """True if each call was timed twice, each time behind a flush, which takes time."""
    load: float = 0.0
    """Number of runnable processes per core."""

    def accounts(self, evidence: Evidence) -> Accounts:
        """Return the account of each arm and clock that the evidence has a series of."""
        series = {
            (metric.arm, metric.name): metric
            for metric in evidence.metrics
            if metric.name in WHOLE and metric.launches
        }
        seats = {
            arm: [sighting for sighting in self.sightings if sighting.seat == seat]
            for seat, arm in enumerate(self.arms)
        }
        calls = dict(zip(self.arms, self.calls, strict=True))
        of_parts = {
            metric.arm
            for metric in evidence.metrics
            if metric.lane is Lane.DEVICE and metric.name not in WHOLE
        }
        return {
            (arm, name): self._account(metric, seats[arm], calls=calls[arm], marked=arm in of_parts)
            for (arm, name), metric in series.items()
            if arm in seats and not (self.flushed and name != STEP_TIME.name)
        }

    def _account(
        self, metric: Metric, turns: Sequence[Sighting], *, calls: int, marked: bool
    ) -> Account:
        clock, launch = WHOLE[metric.name], metric.launches[0]
        ordered = tuple(turn.block for turn in turns for _ in range(turn.samples))
        if len(launch.values) != len(ordered) or launch.blocks != ordered:
            fault = (
                f"{len(launch.values)} samples were returned instead of {len(ordered)}, or of other"
                " blocks"
            )
            return Account(arm=metric.arm, clock=clock, fault=fault)
        lengths_s = [value * calls for value in launch.values]
        rest = iter(lengths_s)
        spans = [(turn, sum(next(rest) for _ in range(turn.samples))) for turn in turns]
        fault = next(
            filter(None, (_overfull(turn, reported_s, clock) for turn, reported_s in spans)), ""
        )
        counted = [
            (turn, reported_s * (2 if self.flushed else 1))
            for turn, reported_s in spans
            if not turn.refereed
        ]
        return Account(
            arm=metric.arm,
            clock=clock,
            gaps_s=tuple(sorted(_gap_s(turn, reported_s, calls) for turn, reported_s in counted)),
            sample_s=statistics.median(lengths_s) if lengths_s else 0.0,
            reported_s=sum(reported_s for _, reported_s in counted),
            elapsed_s=sum(turn.elapsed_s for turn, _ in counted),
            marked=marked,
            load=self.load,
            fault=fault,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """Judges one side's accounts; `base` has those of base if head's are compared with them.

    `head` has those of head if base's are judged: on a busy machine both leave gaps.
    """

    flushed: bool = False
    base: Accounts = field(default_factory=dict)
    head: Accounts = field(default_factory=dict)

    def checks(self, accounts: Accounts) -> tuple[Check, ...]:
        """Return one check for each arm: the worst of its clocks."""
        order = (Outcome.PASS, Outcome.UNKNOWN, Outcome.FAIL)
        worst: dict[str, Check] = {}
        for key, account in accounts.items():
            check = self._check(account, self.base.get(key), self.head.get(key))
            if account.arm not in worst or order.index(check.outcome) > order.index(
                worst[account.arm].outcome
            ):
                worst[account.arm] = check
        return tuple(worst.values())

    def over_launches(
        self, launches: Sequence[Mapping[SideName, Accounts]], name: SideName
    ) -> tuple[Check, ...]:
        """Return checks of one side by its newest launch, and by all that had the same sides.

        Head's are compared with base's, if there is one.
        """
        beside_base = name is not SideName.BASE and SideName.BASE in launches[-1]
        alike = [
            accounts
            for accounts in launches
            if name in accounts and (SideName.BASE in accounts or not beside_base)
        ]
        spans = [alike[-1:], alike] if len(alike) > 1 else [alike]
        checks: list[Check] = []
        for some in spans:
            base = joined(accounts[SideName.BASE] for accounts in some if beside_base)
            head = joined(
                accounts[SideName.HEAD]
                for accounts in some
                if name is SideName.BASE and SideName.HEAD in accounts
            )
            checks += replace(self, base=base, head=head).checks(
                joined(accounts[name] for accounts in some)
            )
        return tuple(checks)

    def _check(self, account: Account, base: Account | None, head: Account | None) -> Check:
        """Return a check in which only a disagreement counts.

        Unknown results and agreement are informative.
        """
        outcome, detail = self._judged(
            account, base if base is not None and not base.fault and base.gaps_s else None
        )
        if (
            outcome is Outcome.FAIL
            and not account.fault
            and head is not None
            and _is_waiting(account, head)
        ):
            outcome, detail = (
                Outcome.UNKNOWN,
                f"{detail}; head's clock leaves as much, and other processes run",
            )
        return Check(
            name=WITNESSED,
            arm=account.arm,
            outcome=outcome,
            detail=detail,
            informative=outcome is not Outcome.FAIL,
        )

    def _judged(self, account: Account, base: Account | None) -> tuple[Outcome, str]:
        if account.fault:
            return Outcome.FAIL, account.fault
        turns = len(account.gaps_s)
        if turns < LEAST_TURNS:
            return (
                Outcome.UNKNOWN,
                f"{turns} turns are too few to compare the worker's clock with the parent's",
            )
        sums = (
            f"the worker's {account.clock} clock counted {account.reported_s:.3g} s where"
            f" {account.elapsed_s:.3g} s went by"
        )
        if base is None and self.flushed:
            return (
                Outcome.UNKNOWN,
                f"{sums}: cache flushes are included, and without base their time is unknown",
            )
        if base is None and account.load > MOST_LOAD_ALONE:
            return (
                Outcome.UNKNOWN,
                f"{sums}: with {account.load:.0f} processes a core a gap may be waiting",
            )
        if _disagrees(account, base):
            return Outcome.FAIL, f"{sums}: {_unexplained(account, base)}"
        return _bounded(account, base, sums)


def _disagrees(account: Account, base: Account | None) -> bool:
    """Return whether no correct clock leaves such gaps, on this machine as it was."""
    if base is None:
        return len(account.gaps_s) >= TURNS_ALONE and quantile(account.gaps_s, 0.1) > _by_itself_s(
            account
        )
    margin_s = BESIDE_BASE_S + SHARE_BESIDE_BASE * account.sample_s + _half_spread_s(base.gaps_s)
    if chance_of(base.gaps_s, account.gaps_s, margin_s=margin_s) < LUCK:
        return True
    usual_s = _by_itself_s(account)
    likely = chance_of(base.gaps_s, account.gaps_s, margin_s=usual_s) < LUCK_OF_CLEAR
    return likely and _clear_of(account.gaps_s, usual_s + quantile(base.gaps_s, 0.25))


def _is_waiting(base: Account, head: Account) -> bool:
    """Return whether base's gaps may be the busy machine's, since head's are as large."""
    if not head.gaps_s or base.load <= MOST_LOAD_QUIET:
        return False
    margin_s = BESIDE_BASE_S + SHARE_BESIDE_BASE * base.sample_s + _half_spread_s(head.gaps_s)
    return chance_of(head.gaps_s, base.gaps_s, margin_s=margin_s) >= LUCK


def _clear_of(gaps_s: Sequence[float], allowed_s: float) -> bool:
    """Return whether three gaps of four exceed the allowance by as much as the lower half spreads.

    A clock that runs slowly leaves gaps of one size; a busy machine leaves small ones and large
    ones.
    """
    return quantile(gaps_s, 0.25) - _half_spread_s(gaps_s) > allowed_s


def chance_of(ours: Sequence[float], theirs: Sequence[float], *, margin_s: float) -> float:
    """Return the probability that `theirs`, less a margin, exceed `ours` by chance as they do.

    Both ascend. Smirnov's one-sided test of two samples. For two samples of one size the chance is
    C(2n, n + nD) / C(2n, n) (Gnedenko and Korolyuk 1951); else the smaller size is taken for both,
    which makes it larger.
    """
    if not ours or not theirs:
        return 1.0
    distance = max(
        bisect_left(ours, gap - margin_s) / len(ours) - place / len(theirs)
        for place, gap in enumerate(theirs)
    )
    size = min(len(ours), len(theirs))
    return math.comb(2 * size, size + math.floor(size * max(0.0, distance) + 1e-9)) / math.comb(
        2 * size, size
    )


def _half_spread_s(gaps_s: Sequence[float]) -> float:
    return quantile(gaps_s, 0.5) - quantile(gaps_s, 0.25)


def _by_itself_s(account: Account) -> float:
    return BY_ITSELF_S + SHARE_BY_ITSELF * account.sample_s + (MARKS_S if account.marked else 0.0)


def _unexplained(account: Account, base: Account | None) -> str:
    middle_ms, turns = 1e3 * quantile(account.gaps_s, 0.5), len(account.gaps_s)
    gap = f"{middle_ms:.3g} ms are unaccounted for with each sample (median of {turns} turns)"
    if base is None:
        return f"{gap}, and {1e3 * _by_itself_s(account):.3g} ms are usual at most"
    return (
        f"{gap}, and base's clock leaves {1e3 * quantile(base.gaps_s, 0.5):.3g} ms"
        f" ({len(base.gaps_s)} turns)"
    )


def _bounded(account: Account, base: Account | None, sums: str) -> tuple[Outcome, str]:
    """Return how much could still hide in such gaps.

    Unknown if that is a large part of a sample.
    """
    middle_s = max(0.0, quantile(account.gaps_s, 0.5))
    missing = middle_s / (account.sample_s + middle_s) if account.sample_s else 1.0
    bound = f"samples cannot be short by more than {100 * missing:.2g} %"
    hidden_s = _allowed_s(account, base) - (quantile(base.gaps_s, 0.25) if base else 0.0)
    if hidden_s > TELLING * (account.sample_s + hidden_s):
        return (
            Outcome.UNKNOWN,
            f"{sums}: samples of {1e3 * account.sample_s:.3g} ms are too short to tell; {bound}",
        )
    return Outcome.PASS, f"{sums}: {bound}"


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed.

    The values ascend.
    """
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _allowed_s(account: Account, base: Account | None) -> float:
    """Return the largest undetectable gap.

    Without a base it is the allowance, else the margin above base's upper quartile.
    """
    if base is None:
        return _by_itself_s(account)
    margin_s = BESIDE_BASE_S + SHARE_BESIDE_BASE * account.sample_s + _half_spread_s(base.gaps_s)
    return quantile(base.gaps_s, 0.75) + margin_s


def _gap_s(turn: Sighting, reported_s: float, calls: int) -> float:
    """Return the gaps per sample (s). An untimed call is assumed to take as long as timed ones."""
    touched = turn.touched and calls >= TOUCH_FROM_CALLS
    touch_s = reported_s / turn.samples / calls if touched else 0.0
    return (turn.elapsed_s - reported_s - touch_s) / turn.samples


def _overfull(turn: Sighting, reported_s: float, clock: str) -> str:
    """Describe the fault if a turn's samples took longer than the turn; empty if they did not."""
    if reported_s <= turn.elapsed_s + ROUNDING_S:
        return ""
    return (
        f"{reported_s:.4g} s of samples by the worker's {clock} clock in a turn of"
        f" {turn.elapsed_s:.4g} s by ours"
    )


def joined(launches: Iterable[Accounts]) -> Accounts:
    """Return the accounts of several launches as those of one, by arm and clock."""
    merged: dict[tuple[str, str], Account] = {}
    for accounts in launches:
        merged |= {
            key: merged[key].joined(account) if key in merged else account
            for key, account in accounts.items()
        }
    return merged
