"""A slot that is off from its peers is set aside within five leases, and what it measured is measured again; honest ones stay."""

import math
import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from paired_builders import simulate
from scripted_fleet import Ledger, Notes, ScriptedFleet

from ci_bench.fleet.coordinator import Coordinator, EarlierLeases
from ci_bench.fleet.health import Health, SlotReading, readings
from ci_bench.fleet.journal import FileJournal
from ci_bench.fleet.merging import RunPair
from ci_bench.fleet.protocol import EndedLease, LeaseOrder
from ci_bench.fleet.protocol import FleetLease as Leased
from ci_bench.fleet.session import Session
from ci_bench.judge.times.sequential import SequentialRule
from ci_bench.records.config import Config, RunOptions
from ci_bench.records.results import Lease, Loss, SideName, Source, Status

CODE = Source(commit="0" * 40, dirty=False)

CASES = tuple(f"s/c{number}" for number in range(12))
SERIES = ("step_time", "eager")


@dataclass
class Slots:
    """How slots measure: `speed` and `noise` are factors by slot, `quirks` by slot and case.

    Times scatter by `scatter`.
    """

    speed: dict = field(default_factory=dict)
    noise: dict = field(default_factory=dict)
    quirks: dict = field(default_factory=dict)
    scatter: float = 0.005
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    def lease(self, slot, cases):
        return {case: {SERIES: self.reading(slot, case)} for case in cases}

    def reading(self, slot, case):
        time = math.log(
            0.01 * (1 + len(case)) * self.speed.get(slot, 1.0) * self.quirks.get((slot, case), 1.0)
        )
        spread = math.log(0.004 * self.noise.get(slot, 1.0)) + self.rng.gauss(0, 0.15)
        return SlotReading(time=time + self.rng.gauss(0, self.scatter), spread=spread)


def filled(slots, names=("a", "b", "c"), *, cases=CASES, leases=1):
    """Every slot measures every case, in so many leases."""
    health = Health()
    for name in names:
        for part in range(leases):
            health.note(name, slots.lease(name, cases[part::leases]))
    return health


def off(health, names=("a", "b", "c")):
    return {name: said for name in names if (said := health.off(name))}


class TestWhoIsOff:
    @pytest.mark.parametrize(
        ("factor", "word"), [(1.05, "slower"), (1.2, "slower"), (0.93, "faster"), (2.0, "slower")]
    )
    def test_a_slot_whose_times_are_apart(self, factor, word):
        said = off(filled(Slots(speed={"b": factor})))
        assert said.keys() == {"b"}
        assert said["b"].endswith(
            f"% {word} than its peers (base, over 12 cases and 2 other slots)"
        )

    def test_a_slot_that_is_twice_as_noisy(self):
        said = off(filled(Slots(noise={"c": 2.0})))
        assert said.keys() == {"c"}
        assert "times as noisy as its peers" in said["c"]

    def test_a_slot_that_is_quieter_is_no_fault(self):
        assert off(filled(Slots(noise={"c": 0.3}))) == {}

    def test_one_of_thirty_is_seen(self):
        names = [f"n{number}" for number in range(30)]
        assert off(filled(Slots(speed={"n7": 0.9}), names), names).keys() == {"n7"}


class TestWhoIsNot:
    @pytest.mark.parametrize("seed", range(30))
    def test_identical_devices_that_differ_by_two_per_cent_stay(self, seed):
        """Two of them by 2 % one way, one the other way, cases that scatter by 1 %."""
        slots = Slots(
            speed={"a": 1.01, "b": 0.99, "c": 1.01}, scatter=0.01, rng=random.Random(seed)
        )
        assert off(filled(slots)) == {}

    @pytest.mark.parametrize("seed", range(30))
    def test_a_machine_that_is_noisy_everywhere_has_no_slot_that_is_off(self, seed):
        assert off(filled(Slots(scatter=0.05, rng=random.Random(seed)))) == {}

    def test_a_slow_case_on_one_slot_is_no_slow_slot(self):
        assert off(filled(Slots(quirks={("a", CASES[0]): 3.0, ("a", CASES[1]): 1.3}))) == {}

    def test_the_neighbours_of_a_slow_slot_are_not_fast(self):
        """`b` shared most of its cases with the slow slot alone, and a few with an honest one."""
        slots, health = Slots(speed={"a": 1.08}), Health()
        health.note("a", slots.lease("a", CASES))
        health.note("b", slots.lease("b", CASES))
        health.note("c", slots.lease("c", CASES[:3]))
        assert health.off("b") == ""
        assert off(filled(slots)).keys() == {"a"}

    @pytest.mark.parametrize("seed", range(60))
    def test_nor_are_they_where_cases_scatter_by_three_per_cent(self, seed):
        """By its figures alone `b` would be called fast for some seeds, 45 among them."""
        slots = Slots(
            speed={"a": 1.08, "b": 0.985, "c": 1.0}, scatter=0.03, rng=random.Random(seed)
        )
        assert {*off(filled(slots))} <= {"a"}

    def test_of_two_slots_nobody_can_say_which_one_is_off(self):
        assert off(filled(Slots(speed={"a": 1.5}), ("a", "b"))) == {}

    def test_four_cases_say_nothing(self):
        assert off(filled(Slots(speed={"a": 1.5}), cases=CASES[:4])) == {}
        assert off(filled(Slots(speed={"a": 1.5}), cases=CASES[:5])).keys() == {"a"}

    def test_what_is_forgotten_is_nobodys_peer(self):
        health = filled(Slots(speed={"a": 1.5}))
        health.forget("a")
        assert off(health) == {}
        assert health.off("b") == "", "two are left"


class TestReadings:
    def test_they_are_of_base_times_with_enough_samples(self):
        base = simulate(1, cases=2, launches=1)[0]
        found = readings(base)
        assert {name for series in found.values() for name, _ in series} == {"step_time"}
        assert {arm for series in found.values() for _, arm in series} == {"eager", "inductor"}
        values = base.cases[0].metrics[0].launches[0].values
        reading = found[base.cases[0].case.id]["step_time", base.cases[0].metrics[0].arm]
        assert math.exp(reading.time) == pytest.approx(sorted(values)[len(values) // 2], rel=0.05)

    def test_a_case_that_failed_and_a_clock_that_stands_still_say_nothing(self):
        base = simulate(1, cases=1, launches=1)[0]
        (row,) = base.cases
        assert readings(replace(base, cases=(replace(row, status=Status.CRASHED),))) == {}
        launch = replace(row.metrics[0].launches[0], values=(0.5,) * 8)
        still = replace(
            base, cases=(replace(row, metrics=(replace(row.metrics[0], launches=(launch,)),)),)
        )
        ((reading,),) = (series.values() for series in readings(still).values())
        assert reading == SlotReading(time=math.log(0.5), spread=None)


@dataclass
class Watching:
    """What a session does: note what counts, say who is off, forget what was withdrawn."""

    ledger: Ledger
    slots: Slots
    health: Health = field(default_factory=Health)
    withdrawn: list = field(default_factory=list)

    def accept(self, ended):
        self.ledger.accept(ended)
        self.health.note(
            ended.order.slot, self.slots.lease(ended.order.slot, ended.order.lease.cases)
        )

    def off(self, slot):
        return self.health.off(slot)

    def withdraw(self, slot, delivered):
        self.withdrawn += delivered
        self.health.forget(slot)
        for ended in delivered:
            for name in ended.order.lease.cases:
                self.ledger.counted[name, ended.order.lease.first].remove(ended.order)


def run(
    slots,
    *,
    count=4,
    cases=CASES,
    fate=None,
    launches=6,
    watching=Watching,
    fleets=None,
    earlier=None,
):
    names = [f"n{number}" for number in range(count)]
    fleet = ScriptedFleet(
        names=names,
        seconds=lambda order: float(len(order.lease.cases)),
        **({"fate": fate} if fate else {}),
    )
    (fleets if fleets is not None else []).append(fleet)
    watch = watching(ledger=Ledger(fleet=fleet), slots=slots)
    for ended in earlier.delivered if earlier else ():
        watch.accept(ended)
    coordinator = Coordinator(
        engine=fleet,
        looks=(2, launches),
        still_open=lambda look: cases if look < launches else (),
        accept=watch.accept,
        journal=(notes := Notes()),
        clock=fleet.clock,
        watch=watch,
    )
    return coordinator.run(cases, earlier=earlier), fleet, watch, notes


class TestARun:
    @pytest.mark.parametrize(
        "slots", [Slots(speed={"n2": 1.06}), Slots(noise={"n2": 3.0}), Slots(speed={"n2": 0.8})]
    )
    def test_a_slot_that_is_off_is_set_aside_and_what_it_measured_is_measured_again(self, slots):
        outcome, fleet, watch, notes = run(slots)
        assert outcome.aside.keys() == {"n2"}
        assert len(fleet.taken["n2"]) == len(watch.withdrawn) > 0
        assert {key: len(orders) for key, orders in watch.ledger.counted.items()} == {
            (name, launch): 1 for name in CASES for launch in range(6)
        }
        assert all(
            order.slot != "n2" for orders in watch.ledger.counted.values() for order in orders
        )
        assert {loss.slot for loss in outcome.losses} == {"n2"}
        assert outcome.losses[0].reason == outcome.aside["n2"]
        assert list(outcome.losses) == notes.losses
        assert notes.lost_s == sum(ends - begins for begins, ends in fleet.taken["n2"])
        assert outcome.given_up == {}
        assert len(
            {(ended.order.lease.number, ended.order.attempt) for ended in outcome.delivered}
        ) == len(outcome.delivered)

    @pytest.mark.parametrize("factor", [1.06, 1.3])
    def test_it_is_within_five_leases_that_can_be_compared(self, factor):
        """Its peers have measured all cases before it delivers: five leases of a case each are enough."""
        slots = Slots(speed={"slow": factor})
        health = filled(slots, ("a", "b", "c"))
        taken = 0
        while not health.off("slow"):
            health.note("slow", slots.lease("slow", [CASES[taken]]))
            taken += 1
        assert taken == 5

    def test_honest_slots_keep_what_they_measured(self):
        outcome, *_ = run(Slots(speed={"n0": 1.01, "n1": 0.99}, quirks={("n2", CASES[0]): 2.0}))
        assert (outcome.aside, outcome.losses) == ({}, ())

    def test_the_last_slot_that_is_left_measures_on(self):
        """Its peers died, and a figure that is off is better than none."""

        def fate(order, number):
            return "dies" if order.slot != "n2" and number == 2 else "ok"

        class Late(Watching):
            def off(self, slot):
                return "slower than its peers" if slot == "n2" and len(fleets[0].gone) == 2 else ""

        fleets = []
        outcome, _, watch, _ = run(Slots(), fate=fate, count=3, watching=Late, fleets=fleets)
        assert fleets[0].gone == {"n0", "n1"}
        assert (outcome.aside, outcome.given_up, watch.withdrawn) == ({}, {}, [])


def test_documents_of_a_slot_that_is_off_are_forgotten_by_the_session():
    """Five slots, 20 cases; one slot takes 8 % more for base and head alike."""
    ids = tuple(f"s/c{number}" for number in range(20))

    def document(number, slot):
        rows = simulate(number, cases=20, launches=1, noise=0.3)
        by = 1.08 if slot == "GPU-b" else 1.0
        slowed = {
            name: replace(
                side,
                run=replace(
                    side.run,
                    id=f"lease-{number}",
                    config_digest="c",
                    lease=Lease(run="whole", number=number, attempt=1),
                ),
                source=CODE,
                cases=tuple(slower(row, by) for row in side.cases),
                environment=replace(side.environment, condition={"gpu_uuid": slot}),
            )
            for name, side in zip(("base", "head"), rows, strict=True)
        }
        return RunPair(name=f"lease {number}", **slowed)

    slots = ["GPU-a", "GPU-b", "GPU-c"]
    documents = {f"{number}": document(number, slot) for number, slot in enumerate(slots)}
    session = Session(
        run=replace(documents["0"].head.run, id="whole", lease=None),
        config=Config(entries=(), run=RunOptions(device="cpu")),
        rule=SequentialRule(),
        rows=documents["0"].head.cases,
        sources=dict.fromkeys(SideName, CODE),
        read=lambda folder: documents[folder.name],
        known=lambda _: None,
    )
    delivered = []
    for number, slot in enumerate(slots):
        leased = Leased(number=number, cases=ids, first=number, launches=1, expected_s=1.0)
        ended = EndedLease(
            order=LeaseOrder(lease=leased, attempt=1, slot=slot),
            began_s=0.0,
            ended_s=1.0,
            folder=Path(str(number)),
        )
        session.accept(ended)
        delivered.append(ended)
    assert [bool(session.off(slot)) for slot in slots] == [False, True, False]
    session.withdraw("GPU-b", delivered[1:2])
    assert [pair.name for pair in session.pairs] == ["lease 0", "lease 2"]
    assert not any(map(session.off, slots))


def slower(row, by):
    metrics = [
        replace(
            metric,
            launches=tuple(
                replace(launch, values=tuple(value * by for value in launch.values))
                for launch in metric.launches
            ),
        )
        for metric in row.metrics
    ]
    return replace(row, metrics=tuple(metrics))


def test_what_was_withdrawn_is_out_of_the_journal_when_a_run_is_resumed(tmp_path):
    journal = FileJournal(file=tmp_path / "journal.jsonl", leases=tmp_path)
    journal.start("whole", "2026-02-01T00:00:00Z")
    attempts = []
    for number in range(2):
        leased = Leased(number=number, cases=CASES, first=number, launches=1, expected_s=1.0)
        attempts.append(
            EndedLease(
                order=LeaseOrder(lease=leased, attempt=1, slot=f"n{number}"),
                began_s=0.0,
                ended_s=1.0,
                folder=Path("x"),
            )
        )
        journal.begun(attempts[-1].order)
        journal.delivered(attempts[-1])
    journal.lost(
        Loss(lease=0, attempt=1, slot="n0", reason="set aside: 8 % slower than its peers"), 1.0
    )
    _, _, earlier = journal.read()
    assert [ended.order for ended in earlier.delivered] == [attempts[1].order]
    assert [loss.slot for loss in earlier.losses] == ["n0"]
    assert earlier.lost_s == 1.0


def test_a_delivery_of_before_a_kill_is_withdrawn_and_tried_under_a_new_number():
    first = run(Slots(), launches=2)
    slots = Slots()
    earlier = EarlierLeases(delivered=first[0].delivered, losses=(), out=(), next_number=100)
    names = []

    class Resumed(Watching):
        def off(self, slot):
            names.append(slot)
            return "slower" if slot == "n1" else ""

    outcome, *_ = run(slots, launches=2, watching=Resumed, earlier=earlier)
    again = [ended.order for ended in outcome.delivered if ended.order.attempt == 2]
    assert {order.lease.number for order in again} == {loss.lease for loss in outcome.losses}
    assert {loss.attempt for loss in outcome.losses} == {1}
    assert "n1" not in {ended.order.slot for ended in outcome.delivered}
