"""Hand out leases until no case is open: assign them, retry lost ones, and decide when to stop.

Owns rounds (the launches up to the next look of the sequential rule; only the judge decides which
cases continue), attempts and their limit, the budget, and the slots set aside. The engine starts
the work. The caller's `accept` reads a lease's documents and decides if they may count; the
caller's `watch` decides if a slot deviates from its peers.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ci_bench.errors import CannotPlace
from ci_bench.fleet.packing import expectations, pack
from ci_bench.fleet.protocol import EVERY, EndedLease, Engine, FleetLease, LeaseOrder, Slot
from ci_bench.records.results import Loss

WINDOW = 32
"""The number of leases that are searched for one whose cases are new to a free slot."""
STRIKES = 3
"""The number of leases that a slot may lose in a row: a full disk loses each immediately."""
POLL_S = 1.0
MAX_REASON = 1000


class Refused(Exception):  # noqa: N818 - it is the answer of `accept`, and no error of the run
    """The returned documents are not what was leased.

    `at_fault` means that its slot gets no further lease.
    """

    def __init__(self, reason: str, *, at_fault: bool = False) -> None:
        """Store the reason."""
        super().__init__(reason)
        self.at_fault = at_fault


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of a run."""

    attempts: int = 3
    """Attempts at a lease before its cases are given up."""
    wall_s: float | None = None
    """Wall-clock budget of the run (s); `None` means unlimited."""
    device_s: float | None = None
    """Budget of all slots' time together (s); `None` means unlimited."""
    lease_s: float = 14_400.0
    """Longest time of an attempt (s); a longer one is lost, and its slot set aside."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Labels and their values that a slot must have."""

    @property
    def bounds_slots(self) -> bool:
        """Return whether the time of slots is limited."""
        return self.device_s is not None

    def spent(self, *, wall_s: float, device_s: float, planned_s: float = 0.0) -> str:
        """Describe the limit that is reached, or would be exceeded; empty within all limits.

        `planned_s` are further seconds of slots.
        """
        if self.wall_s is not None and wall_s >= self.wall_s:
            return f"the budget of {self.wall_s:g} s has been spent"
        if self.device_s is not None and device_s >= self.device_s:
            return f"the budget of {self.device_s:g} device-seconds has been spent"
        if self.device_s is not None and device_s + planned_s > self.device_s:
            return (
                f"what is left of the budget of {self.device_s:g} device-seconds is less than it is"
                " expected to take"
            )
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The progress of a run for a display."""

    slots: int
    """Usable slots, free or not."""
    waiting: int
    """Leases that are not handed out."""
    out: int
    """Leases in progress."""
    done: int
    """Attempts that count."""
    lost: int
    """Lost attempts."""
    open_cases: int
    """Cases of this round."""
    left_s: float
    """Expected time until the end of this round (s)."""


class Journal(Protocol):
    """A log of events, written before anything follows from them, so a run can be resumed."""

    def begun(self, order: LeaseOrder) -> None:
        """Record that an attempt was handed out."""

    def delivered(self, ended: EndedLease) -> None:
        """Record that an attempt's documents count."""

    def lost(self, loss: Loss, took_s: float) -> None:
        """Record a lost attempt, with the seconds of its slot."""


class LeaseWatch(Protocol):
    """Detects slots whose measurements deviate from their peers'."""

    def off(self, slot: str) -> str:
        """Return the reason to set a slot aside; empty if it is normal."""

    def withdraw(self, slot: str, delivered: Sequence[EndedLease]) -> None:
        """Discard all results of a slot."""


StillOpen = Callable[[int], Collection[str]]
"""The judge's decision on the cases that continue, after this many launches of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseOutcome:
    """The result of a run."""

    delivered: tuple[EndedLease, ...]
    """Attempts that count."""
    losses: tuple[Loss, ...]
    """Lost attempts."""
    given_up: Mapping[str, str]
    """Reasons why cases were given up, by id."""
    device_s: float
    """Time of all slots together (s)."""
    aside: Mapping[str, str] = field(default_factory=dict)
    """Reasons why slots were set aside, by name."""


@dataclass(kw_only=True, slots=True)
class Coordinator:
    """One run over a fleet."""

    engine: Engine
    """Fleet that runs the leases."""
    looks: Sequence[int]
    """Numbers of launches of each open case after which the judge decides."""
    still_open: StillOpen
    """Judge's decision on the cases that continue."""
    accept: Callable[[EndedLease], None]
    """Reads the documents of an attempt; raises `Refused` if they may not count."""
    journal: Journal
    """Log of events, from which a run is resumed."""
    clock: Callable[[], float]
    """Returns the current time (s)."""
    limits: Limits = field(default_factory=Limits)
    """Limits of the run."""
    known_s: Mapping[str, float] = field(default_factory=dict)
    """Known duration of a launch, by case (s); read for each round, so `accept` can add to it."""
    start_s: float = 0.0
    """Overhead of a lease, besides its cases (s)."""
    watch: LeaseWatch | None = None
    """Detects slots whose cases are measured again; `None` accepts all slots."""
    observe: Callable[[Standing], None] = lambda _: None
    """Called with the progress after each poll of the engine."""
    drained: Callable[[], Collection[str]] = frozenset
    """Returns slots, or nodes, that get no further lease, by request."""
    delivered: list[EndedLease] = field(default_factory=list)
    """Attempts that count."""
    losses: list[Loss] = field(default_factory=list)
    """Lost attempts."""
    given_up: dict[str, str] = field(default_factory=dict)
    """Reasons why cases were given up, by id."""
    aside: dict[str, str] = field(default_factory=dict)
    """Reasons why slots were set aside, by name."""
    device_s: float = 0.0
    """Time of all slots so far (s)."""
    _began_s: float = 0.0
    """Start of the run, by the clock (s)."""
    _next: int = 0
    """Number of the next lease."""
    _waiting: deque[FleetLease] = field(default_factory=deque)
    """Leases to hand out."""
    _out: dict[int, LeaseOrder] = field(default_factory=dict)
    """Attempts in progress, by lease number."""
    _since_s: dict[int, float] = field(default_factory=dict)
    """Start of the last attempt, by lease number (s)."""
    _busy: dict[str, int] = field(default_factory=dict)
    """Number of the lease in progress, by slot."""
    _attempts: dict[int, int] = field(default_factory=dict)
    """Attempts so far, by lease number."""
    _seen: dict[str, set[str]] = field(default_factory=dict)
    """Cases that a slot measured, by slot."""
    _lost_on: dict[int, set[str]] = field(default_factory=dict)
    """Slots that lost a lease, by lease number."""
    _strikes: dict[str, int] = field(default_factory=dict)
    """Leases that a slot lost in a row, by slot."""
    _left: Collection[str] = frozenset()
    """Drained slots and nodes at the last poll."""
    _open: int = 0
    """Cases of this round."""

    def run(self, cases: Sequence[str], *, earlier: "EarlierLeases | None" = None) -> LeaseOutcome:
        """Measure all cases, look by look, until none is open or a limit is reached.

        Raises:
            CannotPlace: no slot has what the leases need.
        """
        self._began_s = self.clock()
        self._require_places()
        if earlier is not None:
            self._take_up(earlier)
        open_cases, done = list(cases), 0
        for look in self.looks:
            measured = self._measured(done, look)
            missing = {
                launch: [name for name in open_cases if name not in measured[launch]]
                for launch in measured
            }
            self._round(missing, expectations(cases, self.known_s))
            done = look
            undecided = set(self.still_open(look)) - self.given_up.keys()
            open_cases = [name for name in open_cases if name in undecided]
            if not open_cases or self._over_budget() or EVERY in self._left:
                break
        return LeaseOutcome(
            delivered=tuple(self.delivered),
            losses=tuple(self.losses),
            given_up=dict(self.given_up),
            device_s=self.device_s,
            aside=dict(self.aside),
        )

    def _require_places(self) -> None:
        every = [slot for slot in self.engine.slots() if slot.name not in self.aside]
        if not any(self._fits(slot) for slot in every):
            needs = ", ".join(
                f"{name}={value}" for name, value in sorted(self.limits.needs.items())
            )
            there = "; ".join(sorted({_labels(slot) for slot in every})) or "none at all"
            requirement = f"no slot with {needs}" if needs else "no slot"
            raise CannotPlace(f"the fleet has {requirement}; it has {there}")

    def _fits(self, slot: Slot) -> bool:
        return all(slot.labels.get(name) == value for name, value in self.limits.needs.items())

    def _take_up(self, earlier: "EarlierLeases") -> None:
        """Restore an interrupted run; attempts that were still out are lost, and retried."""
        self.losses.extend(earlier.losses)
        for order in earlier.out:
            self._note(order, "the coordinator ended before it came back")
        self.device_s += earlier.lost_s
        for ended in earlier.delivered:
            self.delivered.append(ended)
            self.device_s += ended.ended_s - ended.began_s
            self._attempts[ended.order.lease.number] = ended.order.attempt
            self._remember(ended)
        self._next = earlier.next_number

    def _measured(self, done: int, look: int) -> dict[int, set[str]]:
        """Return the cases that have each launch of this round already, by launch."""
        by_launch: dict[int, set[str]] = {launch: set() for launch in range(done, look)}
        for ended in self.delivered:
            lease = ended.order.lease
            for launch in range(lease.first, lease.first + lease.launches):
                if launch in by_launch:
                    by_launch[launch].update(lease.cases)
        return by_launch

    def _round(self, missing: Mapping[int, Sequence[str]], expected_s: Mapping[str, float]) -> None:
        """Run all launches up to a look, wherever a slot is free."""
        self._open = max(map(len, missing.values()), default=0)
        groups: dict[tuple[str, ...], list[int]] = {}
        for launch, names in missing.items():
            groups.setdefault(
                tuple(name for name in names if name not in self.given_up), []
            ).append(launch)
        for names, launches in groups.items():
            if names:
                slots = max(1, sum(self._usable(slot) for slot in self.engine.slots()))
                parts = (
                    [launches]
                    if launches == list(range(launches[0], launches[-1] + 1))
                    else [[launch] for launch in launches]
                )
                for part in parts:
                    leases = pack(
                        names,
                        first=part[0],
                        launches=len(part),
                        slots=slots,
                        expected_s=expected_s,
                        number=self._next,
                        start_s=self.start_s,
                    )
                    self._next += len(leases)
                    self._waiting.extend(leases)
        while self._work():
            for slot in sorted({ended.order.slot for ended in self.delivered}):
                self._examine(slot)
            if not self._waiting:
                break

    def _work(self) -> bool:
        """Work until no lease waits or is in progress.

        Return whether all waiting ones were handed out.
        """
        while self._waiting or self._out:
            self._left = self.drained()
            self._hand_out()
            if not self._out:
                self._give_up_all()
                return False
            for ended in self.engine.finished(POLL_S):
                self._take(ended)
            self._look_for_lost_slots()
            self.observe(self._standing())
        return True

    def _usable(self, slot: Slot) -> bool:
        drained = self._left and (
            EVERY in self._left
            or slot.name in self._left
            or slot.name.partition("/")[0] in self._left
        )
        return slot.name not in self.aside and self._fits(slot) and not drained

    def _over_budget(self, *, planned_s: float = 0.0) -> str:
        return self.limits.spent(
            wall_s=self.clock() - self._began_s, device_s=self.device_s, planned_s=planned_s
        )

    def _expected_s(self, lease: FleetLease) -> float:
        """Return the known duration of a lease, if the time of slots is limited.

        Unmeasured cases are expected to take no time, as in any budget.
        """
        return (
            sum(self.known_s.get(name, 0.0) for name in lease.cases)
            if self.limits.bounds_slots
            else 0.0
        )

    def _hand_out(self) -> None:
        if not self._waiting or self._over_budget():
            return
        planned_s = sum(self._expected_s(order.lease) for order in self._out.values())
        for slot in self.engine.slots():
            if slot.name not in self._busy and self._usable(slot) and self._waiting:
                lease = self._choose(slot.name, planned_s)
                if lease is None and not self._lost_on:
                    return  # the budget holds none, for any slot
                if lease is None:
                    continue
                planned_s += self._expected_s(lease)
                attempt = self._attempts.get(lease.number, 0) + 1
                order = LeaseOrder(lease=lease, attempt=attempt, slot=slot.name)
                self._attempts[lease.number] = attempt
                self._out[lease.number], self._busy[slot.name] = order, lease.number
                self._since_s[lease.number] = self.clock()
                self.journal.begun(order)
                self.engine.submit(order)

    def _choose(self, slot: str, planned_s: float) -> FleetLease | None:
        """Return the next affordable lease with the fewest cases that this slot measured before.

        The longest of those; `None` if the budget holds none, in addition to the `planned_s`
        seconds of leases in progress, or if all were lost on this slot and another one is to try.
        """
        measured, least, chosen = self._seen.get(slot, set()), float("inf"), -1
        for place, lease in zip(range(WINDOW), self._waiting, strict=False):
            if slot in (lost_on := self._lost_on.get(lease.number, set())) and self._others(
                lost_on
            ):
                continue
            if self.limits.bounds_slots and self._over_budget(
                planned_s=planned_s + self._expected_s(lease)
            ):
                continue
            share = len(measured.intersection(lease.cases)) / len(lease.cases)
            if share < least:
                least, chosen = share, place
            if not share:
                break
        if chosen < 0:
            return None
        lease = self._waiting[chosen]
        del self._waiting[chosen]
        return lease

    def _others(self, names: Collection[str]) -> bool:
        """Return whether a usable slot exists besides these."""
        return any(self._usable(slot) for slot in self.engine.slots() if slot.name not in names)

    def _take(self, ended: EndedLease) -> None:
        """Count or lose an ended attempt; one that is not in progress any more is ignored."""
        order = self._out.get(ended.order.lease.number)
        if order is None or (order.attempt, order.slot) != (ended.order.attempt, ended.order.slot):
            return
        took_s = max(0.0, ended.ended_s - ended.began_s)
        self.device_s += took_s
        self._free(order)
        if ended.folder is None:
            self._lose(order, ended.reason or "nothing came back", took_s)
            return
        try:
            self.accept(ended)
        except Refused as refusal:
            if refusal.at_fault:
                self.aside[order.slot] = str(refusal)
            self._lose(order, str(refusal), took_s)
            return
        self.journal.delivered(ended)
        self.delivered.append(ended)
        self._strikes.pop(order.slot, None)
        self._remember(ended)
        self._examine(order.slot)

    def _examine(self, slot: str) -> None:
        """Set a deviating slot aside, and have its cases measured again, even by a last attempt.

        The last remaining slot continues to measure: an unmeasured case fails the run.
        """
        if self.watch is None or slot in self.aside or not (reason := self.watch.off(slot)):
            return
        if not self._others([slot]):
            return
        self.aside[slot] = f"set aside: {reason}"
        withdrawn = [ended for ended in self.delivered if ended.order.slot == slot]
        self.delivered = [ended for ended in self.delivered if ended.order.slot != slot]
        self.watch.withdraw(slot, withdrawn)
        for ended in withdrawn:
            self._note(ended.order, self.aside[slot], ended.ended_s - ended.began_s)
            self._waiting.append(ended.order.lease)

    def _remember(self, ended: EndedLease) -> None:
        self._seen.setdefault(ended.order.slot, set()).update(ended.order.lease.cases)

    def _free(self, order: LeaseOrder) -> None:
        del self._out[order.lease.number]
        self._busy.pop(order.slot, None)

    def _look_for_lost_slots(self) -> None:
        """Mark leases on slots that are gone as lost, whether or not the engine noticed."""
        there = {slot.name for slot in self.engine.slots()}
        for order in [order for order in self._out.values() if order.slot not in there]:
            self._free(order)
            self._lose(order, f"slot {order.slot} is gone")
        late = self.clock() - self.limits.lease_s
        for order in [
            order for order in self._out.values() if self._since_s[order.lease.number] < late
        ]:
            self._free(order)
            self.aside[order.slot] = f"no answer for {self.limits.lease_s:g} s"
            self._lose(order, self.aside[order.slot])

    def _lose(self, order: LeaseOrder, reason: str, took_s: float = 0.0) -> None:
        """Record the loss, and retry elsewhere unless it was the last attempt.

        A slot that loses every lease is set aside.
        """
        self._note(order, reason, took_s)
        self._lost_on.setdefault(order.lease.number, set()).add(order.slot)
        self._strikes[order.slot] = self._strikes.get(order.slot, 0) + 1
        if (
            self._strikes[order.slot] >= STRIKES
            and order.slot not in self.aside
            and self._others([order.slot])
        ):
            self.aside[order.slot] = (
                f"lost {STRIKES} leases one after the other, at last: {reason}"[:MAX_REASON]
            )
        if order.attempt < self.limits.attempts:
            self._waiting.appendleft(order.lease)
            return
        words = f"lost {order.attempt} time(s), at last on {order.slot}: {reason}"
        self.given_up.update(dict.fromkeys(order.lease.cases, words[:MAX_REASON]))

    def _note(self, order: LeaseOrder, reason: str, took_s: float = 0.0) -> None:
        loss = Loss(
            lease=order.lease.number,
            attempt=order.attempt,
            slot=order.slot,
            reason=reason[:MAX_REASON],
        )
        self.journal.lost(loss, took_s)
        self.losses.append(loss)

    def _give_up_all(self) -> None:
        """Give up all waiting leases: the budget is spent, or no slot is left."""
        for lease in self._waiting:
            why = self._over_budget(planned_s=self._expected_s(lease)) or (
                "the fleet was drained; continue with --resume"
                if EVERY in self._left
                else "no slot is left that can take it"
            )
            self.given_up.update(dict.fromkeys(lease.cases, why))
        self._waiting.clear()

    def _standing(self) -> Standing:
        slots = sum(self._usable(slot) for slot in self.engine.slots())
        left_s = (
            sum(lease.expected_s for lease in self._waiting)
            + sum(order.lease.expected_s for order in self._out.values()) / 2
        )
        return Standing(
            slots=slots,
            waiting=len(self._waiting),
            out=len(self._out),
            done=len(self.delivered),
            lost=len(self.losses),
            open_cases=self._open,
            left_s=left_s / max(1, slots),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierLeases:
    """A journal's record of an interrupted run."""

    delivered: Sequence[EndedLease]
    """Attempts that count."""
    losses: Sequence[Loss]
    """Lost attempts."""
    out: Sequence[LeaseOrder]
    """Attempts that were in progress."""
    next_number: int
    """Number of the next lease."""
    lost_s: float = 0.0
    """Slots' time for attempts that do not count (s)."""

    def without(self, unsound: Iterable[EndedLease]) -> "EarlierLeases":
        """Return the record without unreadable deliveries, which are in progress again."""
        gone = {ended.order for ended in unsound}
        sound = [ended for ended in self.delivered if ended.order not in gone]
        return replace(self, delivered=sound, out=[*self.out, *gone])


def _labels(slot: Slot) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in sorted(slot.labels.items()))
    return f"{slot.name} ({labels or 'no labels'})"
