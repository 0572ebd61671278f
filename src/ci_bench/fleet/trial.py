"""Run one lease of one case on every slot.

This shows that each can measure, and that all are one kind of machine. The documents are read as
those of a gate are. Nothing is judged: a trial shows which slots a gate can use, before it starts.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.errors import CannotPlace, CiBenchError
from ci_bench.fleet.merging import RunPair, differences, own_faults, slot_of
from ci_bench.fleet.protocol import EndedLease, Engine, FleetLease, LeaseOrder, Slot
from ci_bench.records import results
from ci_bench.records.forms import Fact
from ci_bench.records.results import RunState, Status

POLL_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedSlot:
    """The result of a slot's lease: its duration (s), and its fault (empty if it has none)."""

    slot: Slot
    took_s: float
    trouble: str = ""
    pair: RunPair | None = None

    @property
    def identity(self) -> Mapping[str, Fact]:
        """The measured identity of the machine."""
        return self.pair.head.environment.identity if self.pair is not None else {}


def try_slots(
    engine: Engine,
    case: str,
    *,
    run: str,
    read: Callable[[Path], RunPair],
    clock: Callable[[], float],
    limit_s: float,
) -> tuple[TriedSlot, ...]:
    """Measure a case on every slot simultaneously, and wait for `limit_s` seconds at most.

    Raises:
        CannotPlace: no slot exists.
    """
    slots = {slot.name: slot for slot in engine.slots()}
    if not slots:
        raise CannotPlace("the fleet has no slot")
    orders = {
        name: LeaseOrder(
            lease=FleetLease(number=number, cases=(case,), first=0, launches=1, expected_s=0.0),
            attempt=1,
            slot=name,
        )
        for number, name in enumerate(slots)
    }
    for order in orders.values():
        engine.submit(order)
    ended = _wait(engine, orders, clock=clock, limit_s=limit_s)
    return _one_kind(
        [
            _read(slots[name], orders[name], ended.get(name), run=run, read=read, limit_s=limit_s)
            for name in slots
        ]
    )


def _wait(
    engine: Engine, orders: Mapping[str, LeaseOrder], *, clock: Callable[[], float], limit_s: float
) -> dict[str, EndedLease]:
    """Return the end of each attempt; missing ones gave no answer."""
    until, ended = clock() + limit_s, dict[str, EndedLease]()
    while len(ended) < len(orders) and clock() < until:
        ended |= {
            each.order.slot: each
            for each in engine.finished(POLL_S)
            if each.order in orders.values()
        }
        there = {slot.name for slot in engine.slots()}
        for name in orders.keys() - ended.keys() - there:
            ended[name] = EndedLease(
                order=orders[name], began_s=0.0, ended_s=0.0, reason=f"slot {name} is gone"
            )
    return ended


def _read(
    slot: Slot,
    order: LeaseOrder,
    ended: EndedLease | None,
    *,
    run: str,
    read: Callable[[Path], RunPair],
    limit_s: float,
) -> TriedSlot:
    if ended is None:
        return TriedSlot(slot=slot, took_s=limit_s, trouble=f"no answer for {limit_s:g} s")
    took_s = ended.ended_s - ended.began_s
    if ended.folder is None:
        return TriedSlot(slot=slot, took_s=took_s, trouble=ended.reason or "nothing came back")
    try:
        pair = read(ended.folder)
    except CiBenchError as error:
        return TriedSlot(slot=slot, took_s=took_s, trouble=" ".join(str(error).split()))
    return TriedSlot(slot=slot, took_s=took_s, pair=pair, trouble=_trouble(pair, order, run))


def _trouble(pair: RunPair, order: LeaseOrder, run: str) -> str:
    """Return the reason why a gate could not use these documents; empty if it could."""
    lease = results.Lease(run=run, number=order.lease.number, attempt=order.attempt)
    if (
        pair.head.run.lease != lease
        or pair.base is None
        or pair.head.run.state is not RunState.COMPLETE
    ):
        return "its documents are not those of its lease"
    if fault := next(own_faults(pair), ""):
        return fault
    rows = [row for side in pair.sides for row in side.cases]
    if {row.case.id for row in rows} != {*order.lease.cases}:
        return "it returned other cases than were leased"
    for row in rows:
        if row.status is not Status.OK:
            return (
                f"{row.case.id} ended {row.status}:"
                f" {row.failure.reason if row.failure else 'no reason'}"
            )
    return ""


def _one_kind(tried: Sequence[TriedSlot]) -> tuple[TriedSlot, ...]:
    """Mark slots of another kind than most, or that share a GPU, as faulty."""
    sound = [each for each in tried if not each.trouble]
    kinds = Counter(repr(sorted(each.identity.items())) for each in sound)
    usual = max(sound, key=lambda each: kinds[repr(sorted(each.identity.items()))], default=None)
    if usual is None or usual.pair is None:
        return tuple(tried)
    first: dict[str, str] = {}
    checked = []
    for each in tried:
        trouble = each.trouble
        if each.pair is not None and not trouble:
            device = slot_of(each.pair.head.environment, each.pair.head.run)
            other = (
                first.setdefault(device, each.slot.name)
                if device.startswith("gpu_uuid:")
                else each.slot.name
            )
            trouble = "" if other == each.slot.name else f"it measures on the GPU of {other}"
            trouble = trouble or next(differences(usual.pair, each.pair), "")
        checked.append(replace(each, trouble=trouble))
    return tuple(checked)
