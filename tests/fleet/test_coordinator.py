"""Leases are handed out until no case is open: nothing is lost, nothing counts twice, no slot has two at a time."""

import random
from itertools import pairwise

import pytest
from scripted_fleet import Ledger, Notes, ScriptedFleet, overlaps

from ci_bench.errors import CannotPlace
from ci_bench.fleet.coordinator import Coordinator, EarlierLeases, Limits
from ci_bench.fleet.packing import expectations, pack

CASES = tuple(f"s/c{number}" for number in range(12))
SECONDS = {name: 1.0 + number for number, name in enumerate(CASES)}
LOOKS = (1, 2, 3, 4)


def seconds(order):
    return sum(SECONDS[name] for name in order.lease.cases)


def stays_open(names, until):
    """These cases go on up to so many launches, all others end after the first look."""
    return lambda look: names if look < until else ()


def make(fate=None, *, slots=3, labels=None, took=seconds, **options):
    fleet = ScriptedFleet(
        names=[f"n{number}" for number in range(slots)],
        seconds=took,
        labels=labels or {},
        **({"fate": fate} if fate else {}),
    )
    ledger, notes = Ledger(fleet=fleet), Notes()
    options = {"still_open": stays_open(CASES[:4], 4), **options}
    coordinator = Coordinator(
        engine=fleet,
        looks=LOOKS,
        accept=ledger.accept,
        journal=notes,
        clock=fleet.clock,
        known_s=SECONDS,
        **options,
    )
    return coordinator, fleet, ledger, notes


def launches(ledger):
    return {key: len(orders) for key, orders in ledger.counted.items()}


WANTED = {
    (name, launch): 1
    for place, name in enumerate(CASES)
    for launch in range(4)
    if launch == 0 or place < 4
}


class TestEverythingOnce:
    def test_each_launch_of_each_open_case_counts_once(self):
        coordinator, fleet, ledger, notes = make()
        outcome = coordinator.run(CASES)
        assert launches(ledger) == WANTED
        assert (overlaps(fleet), outcome.losses, outcome.given_up) == (0, (), {})
        assert [ended.order for ended in notes.delivered_ones] == [
            ended.order for ended in outcome.delivered
        ]

    def test_launches_of_a_case_go_to_different_slots(self):
        coordinator, _, ledger, _ = make()
        coordinator.run(CASES)
        slots = [
            len({ledger.counted[name, launch][0].slot for launch in range(4)}) for name in CASES[:4]
        ]
        assert min(slots) > 1
        assert max(slots) == 3

    @pytest.mark.parametrize("seed", range(20))
    def test_a_node_that_dies_loses_nothing(self, seed):
        """At a random lease one of three nodes is gone for good; 60 leases and more are handed out."""
        rng = random.Random(seed)
        victim, at = f"n{rng.randrange(3)}", rng.randrange(8)
        coordinator, fleet, ledger, notes = make(
            lambda order, number: "dies" if order.slot == victim and number == at else "ok",
            still_open=stays_open(CASES, 4),
        )
        outcome = coordinator.run(CASES)
        assert launches(ledger) == {(name, launch): 1 for name in CASES for launch in range(4)}
        assert overlaps(fleet) == 0
        assert [(loss.slot, loss.reason) for loss in outcome.losses] == [
            (victim, f"slot {victim} is gone")
        ]
        assert notes.losses == list(outcome.losses)
        assert len(fleet.orders) > 30

    def test_what_was_lost_and_comes_in_late_counts_for_nothing(self):
        late = []

        def fate(order, number):
            if order.slot == "n1" and number == 0:
                late.append(order)
                return "late"
            return "ok"

        coordinator, fleet, ledger, _ = make(
            fate, still_open=stays_open(CASES, 4), took=lambda order: 400.0
        )
        original = fleet.finished

        def finished(timeout_s):
            if late and fleet.now > 100:
                fleet.gone.add("n1")
            return original(timeout_s)

        fleet.finished = finished
        outcome = coordinator.run(CASES)
        assert late
        assert launches(ledger) == {(name, launch): 1 for name in CASES for launch in range(4)}
        assert all(ended.order not in late for ended in outcome.delivered)

    def test_a_slow_node_gets_less_and_holds_nobody_up(self):
        slow = make(
            took=lambda order: seconds(order) * (8 if order.slot == "n0" else 1),
            still_open=stays_open(CASES, 4),
        )
        slow[0].run(CASES)
        counts = {name: len(spans) for name, spans in slow[1].taken.items()}
        assert counts["n0"] * 3 < counts["n1"]
        assert launches(slow[2]) == {(name, launch): 1 for name in CASES for launch in range(4)}


class TestSlotsThatAreSetAside:
    @pytest.mark.parametrize("story", ["liar", "other"])
    def test_one_that_lies_or_is_of_another_kind_gets_no_further_lease(self, story):
        coordinator, fleet, ledger, _ = make(lambda order, _: story if order.slot == "n2" else "ok")
        outcome = coordinator.run(CASES)
        assert launches(ledger) == WANTED
        assert len(fleet.taken["n2"]) == 1
        assert coordinator.aside.keys() == {"n2"}
        assert outcome.losses[0].reason == coordinator.aside["n2"]

    def test_a_full_disk_is_begun_again_and_said(self):
        coordinator, fleet, ledger, notes = make(
            lambda order, number: "full" if order.slot == "n0" and number == 0 else "ok"
        )
        outcome = coordinator.run(CASES)
        assert launches(ledger) == WANTED
        assert [loss.reason for loss in outcome.losses] == ["No space left on device"]
        assert notes.lost_s == sum(seconds(order) for order in fleet.orders) - sum(
            seconds(each.order) for each in outcome.delivered
        )

    def test_one_that_loses_all_that_it_is_given_takes_no_lease_down_with_it(self):
        """A full disk fails a lease at once, so that its slot is the first that is free again."""
        coordinator, _, ledger, _ = make(
            lambda order, _: "full" if order.slot == "n1" else "ok",
            took=lambda order: 0.001 if order.slot == "n1" else seconds(order),
            still_open=stays_open(CASES, 4),
        )
        outcome = coordinator.run(CASES)
        assert launches(ledger) == {(name, launch): 1 for name in CASES for launch in range(4)}
        assert outcome.given_up == {}
        assert outcome.aside == {
            "n1": "lost 3 leases one after the other, at last: No space left on device"
        }
        lost = [loss.lease for loss in outcome.losses]
        assert len(lost) == len({*lost}) == 3, "what it lost once, it is not given again"

    def test_one_that_loses_a_lease_now_and_then_measures_on(self):
        coordinator, _, ledger, _ = make(
            lambda order, number: "lost" if order.slot == "n1" and number % 3 else "ok",
            still_open=stays_open(CASES, 4),
        )
        outcome = coordinator.run(CASES)
        assert len(outcome.losses) > 3
        assert outcome.aside == {}
        assert launches(ledger) == {(name, launch): 1 for name in CASES for launch in range(4)}

    @pytest.mark.parametrize("limits", [Limits(), Limits(device_s=1e6)])
    def test_what_was_lost_is_begun_again_elsewhere_where_there_is_another_slot(self, limits):
        for slots in (1, 2):
            coordinator, fleet, ledger, _ = make(
                lambda order, number: "lost" if order.slot == "n0" and number == 0 else "ok",
                slots=slots,
                limits=limits,
            )
            outcome = coordinator.run(CASES)
            assert launches(ledger) == WANTED
            (loss,) = outcome.losses
            tried = [order.slot for order in fleet.orders if order.lease.number == loss.lease]
            assert tried == ["n0", f"n{slots - 1}"]


class TestDraining:
    @pytest.mark.parametrize("drained", ["n1", "*"])
    def test_what_is_out_goes_to_its_end_and_nothing_more_begins_there(self, drained):
        coordinator, fleet, ledger, notes = make(still_open=stays_open(CASES, 4))
        coordinator.drained = lambda: [drained] if len(notes.delivered_ones) >= 4 else []
        outcome = coordinator.run(CASES)
        late = fleet.orders[4 + 3 :]
        assert outcome.losses == ()
        if drained == "*":
            assert late == []
            assert {*outcome.given_up.values()} == {"the fleet was drained; continue with --resume"}
            assert len(ledger.counted) == sum(len(order.lease.cases) for order in fleet.orders)
        else:
            assert {order.slot for order in late} == {"n0", "n2"}
            assert launches(ledger) == {(name, launch): 1 for name in CASES for launch in range(4)}

    def test_a_node_is_drained_with_all_its_slots(self):
        fleet = ScriptedFleet(names=["a/0", "a/1", "b/0"], seconds=seconds)
        ledger = Ledger(fleet=fleet)
        coordinator = Coordinator(
            engine=fleet,
            looks=(1,),
            still_open=lambda _: (),
            accept=ledger.accept,
            journal=Notes(),
            clock=fleet.clock,
            drained=lambda: ["a"],
        )
        coordinator.run(CASES)
        assert {order.slot for order in fleet.orders} == {"b/0"}


class TestWhatCannotBeMeasured:
    def test_a_label_that_no_slot_has_is_refused_at_once(self):
        coordinator, fleet, _, _ = make(
            labels={"n0": {"gpu": "A100"}}, limits=Limits(needs={"gpu": "H100"})
        )
        with pytest.raises(
            CannotPlace, match=r"no slot with gpu=H100; it has n0 \(gpu=A100\); n1 \(no labels\)"
        ):
            coordinator.run(CASES)
        assert fleet.orders == []

    def test_only_slots_with_the_labels_measure(self):
        coordinator, fleet, ledger, _ = make(
            labels={"n1": {"gpu": "H100"}}, limits=Limits(needs={"gpu": "H100"})
        )
        coordinator.run(CASES)
        assert {order.slot for order in fleet.orders} == {"n1"}
        assert launches(ledger) == WANTED

    def test_a_lease_is_given_up_after_its_last_attempt(self):
        """One case kills whatever measures it; the others of its lease go down with it, and no other case does."""
        coordinator, fleet, _, _ = make(
            lambda order, _: "lost" if CASES[3] in order.lease.cases else "ok"
        )
        outcome = coordinator.run(CASES)
        lost = [order for order in fleet.orders if CASES[3] in order.lease.cases]
        assert len(lost) == 3
        assert outcome.given_up.keys() == {*lost[0].lease.cases}
        assert "lost 3 time(s)" in outcome.given_up[CASES[3]]

    def test_when_no_slot_is_left_what_is_open_is_given_up(self):
        coordinator, _, _, _ = make(lambda _order, _number: "dies")
        outcome = coordinator.run(CASES)
        assert outcome.given_up.keys() == {*CASES}
        assert set(outcome.given_up.values()) == {"no slot is left that can take it"}


class TestBudgets:
    @pytest.mark.parametrize(
        ("limits", "words"),
        [
            (Limits(wall_s=20.0), "the budget of 20 s"),
            (Limits(device_s=40.0), "40 device-seconds"),
        ],
    )
    def test_they_hold_for_the_whole(self, limits, words):
        coordinator, _, ledger, _ = make(limits=limits, still_open=stays_open(CASES, 4))
        outcome = coordinator.run(CASES)
        assert len(ledger.counted) < len(CASES) * 4
        assert all(words in reason for reason in outcome.given_up.values())
        assert outcome.device_s < 140.0

    def test_no_lease_begins_that_is_expected_to_exceed_them_and_shorter_ones_do(self):
        """A launch of all cases takes 78 s; three slots are busy at once."""
        coordinator, fleet, _, _ = make(
            limits=Limits(device_s=99.5), still_open=stays_open(CASES, 4)
        )
        outcome = coordinator.run(CASES)
        assert 90.0 < outcome.device_s < 99.5
        assert sum(seconds(order) for order in fleet.orders) == outcome.device_s
        assert {reason.partition(" of the budget")[0] for reason in outcome.given_up.values()} == {
            "what is left"
        }

    def test_what_nobody_has_seen_is_begun(self):
        coordinator, _, _, _ = make(limits=Limits(device_s=100.0), still_open=stays_open(CASES, 4))
        coordinator.known_s = {}
        assert coordinator.run(CASES).device_s > 100.0

    def test_what_was_lost_before_a_kill_is_spent_all_the_same(self):
        coordinator, fleet, _, _ = make(limits=Limits(device_s=100.0))
        outcome = coordinator.run(
            CASES,
            earlier=EarlierLeases(delivered=(), losses=(), out=(), next_number=0, lost_s=100.0),
        )
        assert fleet.orders == []
        assert outcome.given_up == dict.fromkeys(
            CASES, "the budget of 100 device-seconds has been spent"
        )

    def test_a_budget_that_holds_everything_changes_nothing(self):
        coordinator, _, ledger, _ = make(limits=Limits(device_s=1e6))
        outcome = coordinator.run(CASES)
        assert (launches(ledger), outcome.given_up) == (WANTED, {})


class TestResuming:
    @pytest.mark.parametrize("after", [1, 5, 11])
    def test_a_coordinator_that_was_killed_is_resumed(self, after):
        coordinator, fleet, ledger, notes = make(still_open=stays_open(CASES, 4))
        original = fleet.finished

        def killed(timeout_s):
            if len(notes.delivered_ones) >= after:
                raise KeyboardInterrupt
            return original(timeout_s)

        fleet.finished = killed
        with pytest.raises(KeyboardInterrupt):
            coordinator.run(CASES)
        gone = {ended.order for ended in notes.delivered_ones}
        out = [order for order in notes.begun_orders if order not in gone]
        earlier = EarlierLeases(
            delivered=notes.delivered_ones, losses=notes.losses, out=out, next_number=100
        )
        again, fleet, second, _ = make(still_open=stays_open(CASES, 4))
        outcome = again.run(CASES, earlier=earlier)
        counts = launches(ledger)
        for key, count in launches(second).items():
            counts[key] = counts.get(key, 0) + count
        assert counts == {(name, launch): 1 for name in CASES for launch in range(4)}
        assert [loss.reason for loss in outcome.losses] == [
            "the coordinator ended before it came back"
        ] * len(out)
        assert len({ended.order for ended in outcome.delivered}) == len(outcome.delivered)
        assert gone <= {ended.order for ended in outcome.delivered}


class TestPacking:
    def test_a_launch_of_a_case_is_in_one_lease(self):
        leases = pack(CASES, first=4, launches=2, slots=3, expected_s=SECONDS, number=7)
        assert [lease.number for lease in leases] == list(range(7, 7 + len(leases)))
        taken = sorted((lease.first, name) for lease in leases for name in lease.cases)
        assert taken == sorted((launch, name) for launch in (4, 5) for name in CASES)

    def test_short_work_is_not_cut_smaller_than_what_starting_costs(self):
        leases = pack(
            CASES,
            first=0,
            launches=1,
            slots=100,
            expected_s=dict.fromkeys(CASES, 1.0),
            number=0,
            start_s=6.0,
        )
        assert len(leases) == 2

    def test_leases_get_shorter_towards_the_end_and_short_ones_hold_short_cases(self):
        rng = random.Random(2)
        lasts = {f"s/m{number}": rng.lognormvariate(3.4, 0.7) for number in range(1000)}
        leases = pack(
            tuple(lasts), first=0, launches=1, slots=10, expected_s=lasts, number=0, start_s=20.0
        )
        sizes = [lease.expected_s for lease in leases]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(sizes) == pytest.approx(sum(lasts.values()))
        assert len(leases) == 50
        assert sizes[0] == pytest.approx(sum(lasts.values()) / 20, rel=0.05)
        assert 5.0 < sizes[-1] < 20.0, "half of what a lease takes besides"
        falling = sizes[20:]
        steps = [earlier - later for earlier, later in pairwise(falling)]
        assert max(steps) < 4 * falling[0] / 30
        assert sum(steps[:15]) > 2 * sum(steps[15:]), "they fall slower and slower"

    def test_a_large_plan_ends_soon_after_the_ideal(self):
        """One launch of 20,000 cases on 200 slots, whose lengths are misjudged."""
        from benchmarks.fleet_scale import START_S, VirtualFleet

        rng = random.Random(13)
        lasts = {f"s/m{number}": 30.0 * rng.lognormvariate(0.0, 0.69) for number in range(20_000)}
        fleet = VirtualFleet(names=[f"n{number}" for number in range(200)], lasts_s=lasts, dying={})
        Coordinator(
            engine=fleet,
            looks=(1,),
            still_open=lambda _: (),
            accept=lambda _: None,
            journal=Notes(),
            clock=fleet.clock,
            known_s={
                name: seconds * rng.lognormvariate(0.0, 0.18) for name, seconds in lasts.items()
            },
            start_s=START_S,
        ).run(tuple(lasts))
        assert fleet.now <= 1.014 * fleet.busy_s / 200

    def test_what_a_round_shows_of_how_long_cases_take_packs_the_next_one(self):
        """Two of twelve cases take as long as the rest together, and nobody knows which: after one launch it is known."""
        lasts = {name: 60.0 if place > 9 else 1.0 for place, name in enumerate(CASES)}
        known = {}
        fleet = ScriptedFleet(
            names=["a", "b"], seconds=lambda order: sum(lasts[name] for name in order.lease.cases)
        )
        orders = []

        def accept(ended):
            orders.append(ended.order)
            known.update((name, lasts[name]) for name in ended.order.lease.cases)

        Coordinator(
            engine=fleet,
            looks=(1, 2),
            still_open=stays_open(CASES, 2),
            accept=accept,
            journal=Notes(),
            clock=fleet.clock,
            known_s=known,
            start_s=1.0,
        ).run(CASES)
        first, second = (
            [order.lease for order in orders if order.lease.first == launch] for launch in (0, 1)
        )
        assert {lease.expected_s / len(lease.cases) for lease in first} == {30.0}
        assert sum(lease.expected_s for lease in second) == sum(lasts.values())
        assert {lease.cases for lease in second} >= {CASES[10:11], CASES[11:]}

    def test_what_is_not_known_is_taken_for_usual(self):
        assert expectations(("a", "b", "c"), {"a": 2.0, "c": -1.0}) == {
            "a": 2.0,
            "b": 2.0,
            "c": 2.0,
        }

    def test_sixty_leases_of_mixed_length_end_soon_after_the_ideal(self):
        rng = random.Random(1)
        names = tuple(f"s/m{number}" for number in range(60))
        lasts = {name: rng.lognormvariate(2.0, 1.0) for name in names}
        fleet = ScriptedFleet(
            names=["a", "b", "c"],
            seconds=lambda order: sum(lasts[name] for name in order.lease.cases),
        )
        ledger = Ledger(fleet=fleet)
        Coordinator(
            engine=fleet,
            looks=(1,),
            still_open=lambda _: (),
            accept=ledger.accept,
            journal=Notes(),
            clock=fleet.clock,
            known_s=lasts,
        ).run(names)
        assert fleet.now <= 1.15 * sum(lasts.values()) / 3
