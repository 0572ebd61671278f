"""Who has the machine when: blocks over all sides and arms, blocks taken again, sides that drop out."""

import random
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from fake_suite import SUITE

from ci_bench.host import headroom
from ci_bench.host.energy import EnergyCount
from ci_bench.processes.protocol import MOST_FLUSHES, Answer, Done, OrderKind, WorkerFault
from ci_bench.processes.resident import Ended
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Phase, SideName, Spent
from ci_bench.runner import stages
from ci_bench.runner.outlook import Outlook
from ci_bench.runner.turns import Checking, Round, Turns, plan_block
from ci_bench.suites.contract import Evidence, Stage, StageKind

BASE, HEAD = SideName.BASE, SideName.HEAD
OPTIONS = RunOptions(blocks=6, redo=2)


class FakeWorker:
    """Does what it is told and writes it down in a log that all sides share; leaves after `patience` orders."""

    def __init__(
        self, name, log, *, calls=1, patience=10_000, block_s=0.0, flushes=0, one_core=False
    ):
        self.name, self.log, self.patience = name, log, patience
        self.calls = calls if isinstance(calls, tuple) else (calls,) * 8
        self.warm = Done(block_s=block_s, flushes=flushes, one_core=one_core)

    @contextmanager
    def open(self):
        self.log.append((self.name, "open"))
        yield self
        self.log.append((self.name, "close"))

    def tell(self, order):
        self.log.append((self.name, order))
        self.told = order

    told, looks = None, 0

    def answers_within(self, seconds):
        self.looks += 1
        return self.looks % 4 == 0

    def ask(self, order):
        self.patience -= 1
        if order is None and self.told is not None:
            self.log.append((self.name, "obeyed"))
            order, self.told = self.told, None
            if order.kind is OrderKind.KEEP_BUSY:
                return None if self.patience < 0 else Answer(done=Done(made=40))
            return Answer(done=self.warm)
        if order is not None:
            self.log.append((self.name, order))
        if self.patience < 0:
            return None
        if order is not None and order.kind is OrderKind.FINISH:
            return Answer(fault=WorkerFault(kind="failed", message="stands for evidence"))
        if order is not None and order.kind is OrderKind.WARM:
            return Answer(done=self.warm)
        return Answer(done=Done(calls=self.calls if order is None else ()))

    def end(self):
        return Ended(code=0, timed_out=False, answers=())


class ScriptedWatch:
    """Gives the taints it was told to, block by block, then none."""

    def __init__(self, *taints):
        self.taints, self.settled, self.log, self.glances = list(taints), [], [], []

    def vacate(self):
        self.settled.append("vacate")

    def settle(self):
        self.settled.append("settle")

    def glance(self):
        self.glances.append(len(self.glances))
        return self.glances[-1]

    def uneven(self, glances):
        self.seats = {seat: len(taken) for seat, taken in glances.items()}
        return self.unevenness.pop(0) if self.unevenness else None

    unevenness = ()

    def read(self):
        self.log.append("read")
        return len(self.log)

    def taint(self, before, after):
        assert before < after
        return self.taints.pop(0) if self.taints else None

    def facts(self, reading):
        return {"sm_mhz": reading, "gpu_temperature_c": 60 + reading}

    def count(self):
        return EnergyCount(at_s=0.0, joules=1.0)


def play(*workers, arms=2, options=OPTIONS, watch=None, seed=0):
    told = []
    more = {"watch": watch} if watch else {}
    turns = Turns(
        arms=arms,
        launch=3,
        options=options,
        coin=random.Random(seed),
        tell=lambda *now: told.append(now),
        **more,
    )
    return turns.play({worker.name: worker.open for worker in workers}), told


def turns_of(log):
    orders = [
        (name, order) for name, order in log if getattr(order, "kind", None) is OrderKind.TURN
    ]
    return [(name, order.seat, order.block) for name, order in orders for _ in range(order.samples)]


@pytest.mark.parametrize("seats", [1, 2, 3, 4, 6])
def test_each_block_is_a_palindrome_in_which_each_seat_has_two_turns_around_the_same_time(seats):
    coin = random.Random(0)
    for _ in range(20):
        order = plan_block(seats, coin)
        assert order == order[::-1]
        assert sorted(order) == sorted([*range(seats)] * 2)


def test_a_drift_that_is_linear_in_time_hits_all_seats_alike():
    coin, spent, now = random.Random(1), {seat: [] for seat in range(4)}, 0
    for _ in range(10):
        for seat in plan_block(4, coin):
            spent[seat].append(1.0 + 0.01 * now)
            now += 1
    means = [sum(values) / len(values) for values in spent.values()]
    assert max(means) - min(means) < 1e-12


def test_both_sides_take_turns_with_all_arms_and_are_never_at_work_together():
    log = []
    played, told = play(FakeWorker(BASE, log), FakeWorker(HEAD, log))
    for block in range(6):
        taken = [(name, seat) for name, seat, number in turns_of(log) if number == block]
        assert taken == taken[::-1]
        assert {seat: taken.count(seat) for seat in taken} == {
            (name, arm): 2 for name in (BASE, HEAD) for arm in (0, 1)
        }
    assert told[-1] == (12, 12)
    assert [block.block for block in played.blocks] == [*range(6)]
    assert {block.launch for block in played.blocks} == {3}
    kinds = [getattr(order, "kind", order) for _, order in log]
    assert kinds[:4] == ["open", "open", OrderKind.WARM, OrderKind.WARM]


def test_turns_of_one_seat_that_follow_each_other_are_given_at_once():
    """An order and its answer take time between two samples, in which the machine falls idle."""
    log = []
    play(FakeWorker(BASE, log), FakeWorker(HEAD, log), arms=1)
    samples = [order.samples for _, order in log if getattr(order, "kind", None) is OrderKind.TURN]
    assert samples == [1, 2, 1] * 6
    alone = []
    play(FakeWorker(HEAD, alone), arms=1)
    assert [
        order.samples for _, order in alone if getattr(order, "kind", None) is OrderKind.TURN
    ] == [2] * 6


@pytest.mark.parametrize("at_once", [True, False])
def test_meanwhile_is_where_sides_warm_up_and_are_heard_in_the_end_and_nowhere_else(at_once):
    log = []

    @contextmanager
    def meanwhile():
        log.append(("parent", "begin"))
        yield
        log.append(("parent", "end"))

    options = replace(OPTIONS, energy_s=0.1)
    turns = Turns(
        arms=2,
        launch=0,
        options=options,
        coin=random.Random(0),
        meanwhile=meanwhile,
        ready_at_once=at_once,
    )
    turns.play({name: FakeWorker(name, log).open for name in (BASE, HEAD)})
    inside, outside, depth = set(), set(), 0
    for name, entry in log:
        if name == "parent":
            depth += 1 if entry == "begin" else -1
        elif entry != "obeyed":
            (inside if depth else outside).add(getattr(entry, "kind", entry))
    assert inside == {OrderKind.WARM, OrderKind.FINISH}
    assert outside == {"open", OrderKind.TURN, OrderKind.KEEP_BUSY, "close"}
    assert [entry for name, entry in log if name == "parent"] == ["begin", "end"] * 2


def test_who_opens_first_is_a_matter_of_chance():
    def first(seed):
        log = []
        play(FakeWorker(BASE, log), FakeWorker(HEAD, log), seed=seed)
        return log[0][0]

    assert {first(seed) for seed in range(20)} == {BASE, HEAD}


def test_bases_number_of_calls_is_used_for_both_whoever_opened_first():
    for seed in range(6):
        log = []
        play(FakeWorker(BASE, log, calls=(8, 2)), FakeWorker(HEAD, log, calls=(64, 16)), seed=seed)
        assert {
            order.calls for _, order in log if getattr(order, "kind", None) is OrderKind.WARM
        } == {(8, 2)}


@pytest.mark.parametrize(
    ("told", "used"), [((), (1, 1)), ((8,), (8, 1)), ((8, 4, 2), (8, 4)), ((0, -3), (1, 1))]
)
def test_whatever_a_worker_tells_each_arm_has_calls(told, used):
    log = []
    play(FakeWorker(HEAD, log, calls=told))
    assert {order.calls for _, order in log if getattr(order, "kind", None) is OrderKind.WARM} == {
        used
    }


def test_a_turn_after_another_process_touches_first_and_one_after_the_same_process_does_not():
    log = []
    play(FakeWorker(BASE, log), FakeWorker(HEAD, log))
    orders = [
        (name, order) for name, order in log if getattr(order, "kind", None) is OrderKind.TURN
    ]
    following = list(pairwise(orders))
    same = {
        order.touch
        for (before, one), (name, order) in following
        if before is name and one.block == order.block
    }
    other = {order.touch for (before, _), (name, order) in following if before is not name}
    assert (same, other) == ({False}, {True})


def test_one_side_alone_never_touches():
    log = []
    play(FakeWorker(HEAD, log))
    assert {order.touch for _, order in log if getattr(order, "kind", None) is OrderKind.TURN} == {
        False
    }


@pytest.mark.parametrize("patience", [0, 1, 2, 7, 13])
def test_a_side_that_leaves_is_out_and_the_other_goes_on(patience):
    log = []
    played, _ = play(FakeWorker(BASE, log, patience=patience), FakeWorker(HEAD, log))
    assert {*played.ended} == {BASE, HEAD}
    taken = [number for name, _, number in turns_of(log) if name is HEAD]
    assert {block: taken.count(block) for block in range(6)} == dict.fromkeys(range(6), 4)
    asked = [order for name, order in log if name is BASE and not isinstance(order, str)]
    assert len(asked) <= patience  # the opening counts, and nothing is asked of it after it left


def test_a_tainted_block_is_thrown_away_and_taken_again():
    log, watch = [], ScriptedWatch(None, "too hot", None)
    played, _ = play(FakeWorker(BASE, log), FakeWorker(HEAD, log), watch=watch)
    assert [(block.redone, block.doubt) for block in played.blocks[:3]] == [
        ((), None),
        (("too hot",), None),
        ((), None),
    ]
    assert len([1 for *_, number in turns_of(log) if number == 1]) == 16
    discarded = [
        (name, order.block)
        for name, order in log
        if getattr(order, "kind", None) is OrderKind.DISCARD
    ]
    assert sorted(discarded) == [(BASE, 1), (HEAD, 1)]
    assert watch.settled == ["vacate", "settle"]
    assert {*watch.seats} == {(name, arm) for name in (BASE, HEAD) for arm in (0, 1)}
    assert sorted(watch.seats.values()) == [1, 2, 2, 2]  # one look for the two turns in the middle


def test_the_looks_after_the_turns_that_count_are_kept_by_seat_and_block():
    log, watch = [], ScriptedWatch(None, "too hot", None)
    played, _ = play(FakeWorker(BASE, log), FakeWorker(HEAD, log), watch=watch)
    kept = [
        look for blocks in played.glances.values() for taken in blocks.values() for look in taken
    ]
    assert {*played.glances} == {(name, arm) for name in (BASE, HEAD) for arm in (0, 1)}
    assert all([*blocks] == [*range(6)] for blocks in played.glances.values())
    assert len(watch.glances) - len(kept) == 7  # the block that was taken again had as many looks


def test_a_block_whose_sides_had_other_clocks_counts_and_says_so():
    """Head may have them because it draws more power: throwing its samples away would hide what it costs."""
    log, watch = [], ScriptedWatch()
    apart = "the SM clock of arm 0 was 1800 MHz under base, 1500 MHz under head"
    watch.unevenness = [None, apart]
    played, _ = play(FakeWorker(BASE, log), FakeWorker(HEAD, log), watch=watch)
    assert [(block.redone, block.doubt) for block in played.blocks] == [((), None)] * 6
    assert [block.facts.get("gpu_clocks_apart") for block in played.blocks] == [
        None,
        apart,
        *[None] * 4,
    ]


@pytest.mark.parametrize(
    ("redo", "blocks", "redone"), [(2, 6, 3), (3, 20, 10), (5, 6, 5), (2, 2, 2)]
)
def test_a_machine_that_is_always_disturbed_is_asked_again_for_half_of_a_launch_at_most(
    redo, blocks, redone
):
    options = replace(OPTIONS, redo=redo, blocks=blocks)
    played, _ = play(FakeWorker(HEAD, []), options=options, watch=ScriptedWatch(*["hot"] * 200))
    assert sum(len(block.redone) for block in played.blocks) == redone
    assert {block.doubt for block in played.blocks} == {"hot"}


def test_a_block_that_stays_tainted_is_kept_and_doubted_after_the_last_attempt():
    log, watch = [], ScriptedWatch("hot", "hotter", "hottest", None)
    played, _ = play(FakeWorker(HEAD, log), watch=watch)
    assert (played.blocks[0].redone, played.blocks[0].doubt) == (("hot", "hotter"), "hottest")
    assert played.blocks[1].doubt is None
    assert played.blocks[0].facts["sm_mhz"] == 6


def test_no_redo_keeps_the_first_attempt():
    log = []
    played, _ = play(
        FakeWorker(HEAD, log), options=replace(OPTIONS, redo=0), watch=ScriptedWatch("hot")
    )
    assert (played.blocks[0].redone, played.blocks[0].doubt) == ((), "hot")
    assert not [order for _, order in log if getattr(order, "kind", None) is OrderKind.DISCARD]


def refereed_of(log):
    return [
        (name, order.seat, order.block)
        for name, order in log
        if getattr(order, "referee", None) is not None
    ]


@pytest.mark.parametrize("calls", [1, 8])
def test_each_arm_of_each_side_is_refereed_in_one_turn_of_the_first_launch(calls):
    log = []
    workers = FakeWorker(BASE, log, calls=calls), FakeWorker(HEAD, log, calls=calls)
    turns = Turns(arms=3, launch=0, options=OPTIONS, coin=random.Random(0))
    turns.play({worker.name: worker.open for worker in workers})
    assert sorted((name, seat) for name, seat, _ in refereed_of(log)) == [
        (side, arm) for side in (BASE, HEAD) for arm in range(3)
    ]


def test_later_launches_referee_long_steps_and_the_reference_less_often_and_short_steps_always():
    def share(calls, arm):
        log = []
        for _ in range(60):
            worker = FakeWorker(HEAD, log, calls=calls)
            Turns(arms=2, launch=1, options=OPTIONS, coin=random.Random(0)).play(
                {HEAD: worker.open}
            )
        return sum(seat == arm for _, seat, _ in refereed_of(log)) / 60

    assert share(8, 1) == 1.0
    assert 0.1 < share(1, 1) < 0.6
    assert 0.1 < share(8, 0) < 0.6


def test_where_looks_took_more_than_their_share_candidates_have_one_and_the_reference_seldom_any():
    def orders(*, launch, sparing):
        log = []
        for _ in range(60):
            worker = FakeWorker(HEAD, log, calls=8)
            turns = Turns(
                arms=2, launch=launch, options=OPTIONS, coin=random.Random(0), sparing=sparing
            )
            turns.play({HEAD: worker.open})
        return [order for _, order in log if getattr(order, "referee", None) is not None]

    spared = orders(launch=1, sparing=True)
    assert sum(order.seat == 1 for order in spared) == 60
    assert 0 < sum(order.seat == 0 for order in spared) < 18
    assert {order.once for order in spared} == {True}
    assert {order.once for order in orders(launch=1, sparing=False)} == {False}


def checked(*seconds, phase=Phase.CHECKS):
    """A launch in which each side's checks took so long (s)."""
    spent = [(Spent(stage="time", phase=phase, arm="", seconds=one),) for one in seconds]
    answers = [(Answer(evidence=Evidence(spent=one)),) for one in spent]
    ended = [Ended(code=0, timed_out=False, answers=one) for one in answers]
    return Round(ended=dict(zip((HEAD, BASE), ended, strict=False)), blocks=())


@pytest.mark.parametrize(
    ("launches", "over"),
    [
        ([], False),
        ([checked(0.09)], False),
        ([checked(0.11)], True),
        ([checked(0.06, 0.0)], True),
        ([checked(0.04, 0.04)], False),
        ([checked(0.18), checked(0.0)], False),
        ([checked(9.0, phase=Phase.SAMPLES)], False),
        ([checked(0.11), checked(-9.0)], False),
        ([checked(0.21), checked(-9.0)], True),
    ],
    ids=["none yet", "one side", "one side, more", "as if both took the longest", "both", "over all launches", "other phases",
         "less than nothing is nothing", "and is not taken off"],
)  # fmt: skip
def test_checks_may_take_a_hundredth_of_a_cases_launches(launches, over):
    checking = Checking()
    for played in launches:
        checking.note("a", played, 10.0)
    checking.note("b", checked(9.0), 1.0)
    assert checking.is_over_its_share("a") is over


def test_what_checks_took_of_a_launch_decides_on_the_looks_of_the_next(monkeypatch):
    seen = []

    def turns(*, sparing, **_):
        seen.append(sparing)
        return SimpleNamespace(play=lambda _: replace(checked(60.0), calls=(1,)))

    monkeypatch.setattr(stages, "Turns", turns)
    ours = stages.Stages(
        options=OPTIONS, observe=lambda _: None, runs=(), seed="", outlook=Outlook(sides=2)
    )
    (case,) = SUITE.plan({"name": "one", "arms": ["plain"]})
    job = stages.Job(
        suite=SUITE, case=case, stage=Stage(kind=StageKind.TIME, arms=("plain",)), launch=0
    )
    for _ in range(2):
        ours.in_turns(job, (), {})
    assert seen == [False, True]


def test_which_turn_is_refereed_is_a_secret_that_no_seed_of_the_run_tells():
    def drawn():
        log = []
        play(FakeWorker(HEAD, log, calls=8), options=replace(OPTIONS, blocks=10))
        seeds = {order.referee for _, order in log if getattr(order, "referee", None) is not None}
        return next(block for _, seat, block in refereed_of(log) if seat == 1), seeds

    every = [drawn() for _ in range(40)]
    assert len({block for block, _ in every}) > 3
    assert len(set.union(*(seeds for _, seeds in every))) == sum(len(seeds) for _, seeds in every)


def test_nobody_is_refereed_where_that_is_switched_off():
    log = []
    play(FakeWorker(HEAD, log, calls=8), options=replace(OPTIONS, referee=False))
    assert not refereed_of(log)


def test_every_turn_is_timed_from_its_order_to_its_answer_and_those_thrown_away_are_forgotten():
    class Slow(FakeWorker):
        def ask(self, order):
            now[0] += 0.5 if order is not None and order.kind is OrderKind.TURN else 100.0
            return super().ask(order)

    now, log = [0.0], []
    turns = Turns(
        arms=2,
        launch=0,
        options=OPTIONS,
        coin=random.Random(0),
        watch=ScriptedWatch("hot"),
        clock=lambda: now[0],
    )
    base, head = Slow(BASE, log, calls=8), Slow(HEAD, log)
    played = turns.play({BASE: base.open, HEAD: head.open})
    assert played.calls == (8, 8)
    for name in (BASE, HEAD):
        seen = played.sightings[name]
        ordered = [
            order
            for side, order in log
            if side is name and getattr(order, "kind", None) is OrderKind.TURN
        ]
        kept = ordered[-len(seen) :]
        assert len(ordered) > len(seen), "a block was taken again"
        assert {turn.elapsed_s for turn in seen} == {0.5}
        assert [(turn.seat, turn.block, turn.samples) for turn in seen] == [
            (one.seat, one.block, one.samples) for one in kept
        ]
        assert [turn.refereed for turn in seen] == [one.referee is not None for one in kept]
        assert sum(turn.samples for turn in seen) == 2 * 2 * OPTIONS.blocks


class TestBlocksOfALaunch:
    """Getting ready takes six seconds here, and a block as long as the workers say."""

    def blocks(self, *block_s, most_blocks=40, patience=10_000, **more):
        log, seconds, told = [], iter(range(0, 10**6, 6)), []
        workers = [
            FakeWorker(name, log, block_s=one, patience=patience)
            for name, one in zip((BASE, HEAD), block_s, strict=False)
        ]
        turns = Turns(
            arms=1,
            launch=0,
            options=OPTIONS,
            coin=random.Random(0),
            clock=lambda: next(seconds),
            most_blocks=most_blocks,
            tell=lambda *now: told.append(now),
            **more,
        )
        played = turns.play({worker.name: worker.open for worker in workers})
        assert told[-1] == (2 * len(played.blocks), 2 * len(played.blocks))
        return len(played.blocks)

    def test_samples_take_twice_as_long_as_getting_ready_for_them(self):
        assert self.blocks(0.45, 0.35) == 15

    @pytest.mark.parametrize(
        ("room_s", "blocks"), [(60.0, 15), (14.0, 10), (7.0, OPTIONS.blocks), (0.0, OPTIONS.blocks)]
    )
    def test_more_than_were_asked_for_are_taken_within_what_the_budget_leaves(self, room_s, blocks):
        """Of 14 s, six are gone with getting ready: eight are left, for blocks of 0.8 s."""
        assert self.blocks(0.45, 0.35, room_s=room_s) == blocks

    def test_there_is_a_limit_to_what_is_cheap(self):
        assert self.blocks(0.001, 0.001) == 40

    @pytest.mark.parametrize(
        "block_s",
        [(2.0, 2.0), (120.0, 120.0), (0.0, 0.0)],
        ids=["few", "less than one", "nobody knows"],
    )
    def test_never_fewer_than_asked_for(self, block_s):
        assert self.blocks(*block_s) == OPTIONS.blocks

    def test_fixed_sampling_takes_what_was_asked_for(self):
        assert self.blocks(0.1, 0.1, most_blocks=None) == OPTIONS.blocks

    def test_where_less_is_allowed_than_asked_for_what_was_asked_for_is_taken(self):
        assert self.blocks(0.1, 0.1, most_blocks=2) == OPTIONS.blocks

    def test_a_look_at_a_timed_call_may_come_in_any_of_them(self):
        places = set()
        for seed in range(60):
            log = []
            turns = Turns(
                arms=2,
                launch=0,
                options=OPTIONS,
                coin=random.Random(seed),
                most_blocks=24,
                clock=lambda: 0.0,
            )
            turns.clock = iter(range(0, 10**6, 6)).__next__
            turns.secret = random.Random(seed)
            turns.play({BASE: FakeWorker(BASE, log, block_s=0.5, calls=2).open})
            places |= {
                order.block for _, order in log if getattr(order, "referee", None) is not None
            }
        assert max(places) >= OPTIONS.blocks
        assert min(places) < OPTIONS.blocks


def test_sides_that_get_ready_at_once_all_work_before_one_is_waited_for():
    log = []
    workers = [FakeWorker(name, log) for name in (BASE, HEAD)]
    turns = Turns(arms=1, launch=1, options=OPTIONS, coin=random.Random(0), ready_at_once=True)
    played = turns.play({worker.name: worker.open for worker in workers})

    assert [entry for _, entry in log[:2]] == ["open", "open"]
    assert [getattr(entry, "kind", entry) for _, entry in log[2:6]] == [
        OrderKind.WARM,
        OrderKind.WARM,
        "obeyed",
        "obeyed",
    ]
    assert len(played.blocks) == OPTIONS.blocks


def test_a_side_that_dies_while_both_get_ready_is_out_and_the_other_goes_on():
    log = []
    workers = [FakeWorker(BASE, log, patience=0), FakeWorker(HEAD, log)]
    turns = Turns(arms=1, launch=1, options=OPTIONS, coin=random.Random(0), ready_at_once=True)
    turns.play({worker.name: worker.open for worker in workers})

    assert {name for name, seat, block in turns_of(log)} == {HEAD}
    assert (BASE, OrderKind.WARM) not in [
        (name, getattr(entry, "kind", entry)) for name, entry in log
    ]


@pytest.mark.parametrize(
    ("flushes", "each"),
    [
        ((0, 0), 0),
        ((1, 1), 1),
        ((8, 2), 8),
        ((2, 16), 16),
        ((1, 10**9), MOST_FLUSHES),
        ((-5, -1), 0),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_the_cache_is_flushed_on_both_sides_as_often_as_the_one_needs_that_needs_it_most(
    flushes, each, at_once
):
    log = []
    workers = [
        FakeWorker(name, log, flushes=needed)
        for name, needed in zip((BASE, HEAD), flushes, strict=True)
    ]
    turns = Turns(arms=2, launch=1, options=OPTIONS, coin=random.Random(0), ready_at_once=at_once)
    turns.play({worker.name: worker.open for worker in workers})

    taken = [
        (name, order.flushes)
        for name, order in log
        if getattr(order, "kind", None) is OrderKind.TURN
    ]
    assert {name for name, _ in taken} == {BASE, HEAD}
    assert {ordered for _, ordered in taken} == {each}


def test_a_side_that_is_out_has_no_say_in_how_often_the_cache_is_flushed():
    log = []
    workers = [FakeWorker(BASE, log, flushes=32, patience=0), FakeWorker(HEAD, log, flushes=2)]
    Turns(arms=1, launch=1, options=OPTIONS, coin=random.Random(0)).play(
        {worker.name: worker.open for worker in workers}
    )

    assert {
        order.flushes for _, order in log if getattr(order, "kind", None) is OrderKind.TURN
    } == {2}


@pytest.mark.parametrize("needed", [0, 2, 32])
def test_a_side_that_goes_alone_has_as_many_flushes_as_the_one_before_it(needed):
    log = []
    first = Turns(arms=1, launch=1, options=OPTIONS, coin=random.Random(0)).play(
        {BASE: FakeWorker(BASE, log, flushes=8).open}
    )
    turns = Turns(arms=1, launch=1, options=OPTIONS, coin=random.Random(0), flushes=first.flushes)
    assert (
        turns.play({HEAD: FakeWorker(HEAD, log, flushes=needed).open}).flushes == first.flushes == 8
    )

    taken = {
        (name, order.flushes)
        for name, order in log
        if getattr(order, "kind", None) is OrderKind.TURN
    }
    assert taken == {(BASE, 8), (HEAD, 8)}


ENERGY = replace(OPTIONS, energy_s=2.5, blocks=2, redo=0)


def test_energy_is_counted_of_all_seats_in_turns_once_the_samples_are_taken():
    log, watch = [], ScriptedWatch(None, None, "too hot")
    workers = [FakeWorker(BASE, log), FakeWorker(HEAD, log)]
    played, _ = play(*workers, options=ENERGY, watch=watch)

    busy = [
        (name, order.seat)
        for name, order in log
        if getattr(order, "kind", None) is OrderKind.KEEP_BUSY
    ]
    assert busy == busy[::-1]
    assert (
        {*busy} == {(name, seat) for name in (BASE, HEAD) for seat in (0, 1)} == {*played.stretches}
    )
    assert {
        order.seconds for _, order in log if getattr(order, "kind", None) is OrderKind.KEEP_BUSY
    } == {2.5}
    kinds = [getattr(order, "kind", None) for _, order in log]
    last_turn = max(place for place, kind in enumerate(kinds) if kind is OrderKind.TURN)
    assert last_turn < kinds.index(OrderKind.KEEP_BUSY) < kinds.index(OrderKind.FINISH)
    stretches = [one for two in played.stretches.values() for one in two]
    assert {(one.calls, len(one.counts)) for one in stretches} == {(40, 3)}
    assert sorted(one.doubt or "" for one in stretches) == [""] * 7 + ["too hot"]
    assert all(one.temperature_c > 60 for one in stretches)


@pytest.mark.parametrize(("options", "flushes"), [(OPTIONS, 0), (ENERGY, 4)])
def test_no_energy_is_counted_where_nobody_asked_or_flushes_would_be_in_it(options, flushes):
    log = []
    played, _ = play(FakeWorker(BASE, log, flushes=flushes), options=options)
    assert played.stretches == {}
    assert OrderKind.KEEP_BUSY not in {getattr(order, "kind", None) for _, order in log}


def test_a_side_that_dies_while_energy_is_counted_is_out_and_the_other_goes_on():
    log = []
    dying = FakeWorker(BASE, log, patience=2 + 2 * len(turns_of_block()))
    played, _ = play(dying, FakeWorker(HEAD, log), options=ENERGY)
    assert {name for name, _ in played.stretches} >= {HEAD}
    assert len(played.stretches[HEAD, 0]) == 2
    assert len(played.stretches.get((BASE, 0), ())) + len(played.stretches.get((BASE, 1), ())) < 4


def turns_of_block():
    log = []
    play(FakeWorker(BASE, log), FakeWorker(HEAD, log), options=replace(OPTIONS, blocks=1))
    return [
        name
        for name, order in log
        if getattr(order, "kind", None) is OrderKind.TURN and name is BASE
    ]


def kept_to(*one_core, cores=(3, 5, 7), watch=None, seed=0, **more):
    """The orders of sides that do (or don't) use one core each: what was told before the first turn, and all to keep to a core."""
    log = []
    workers = [
        FakeWorker(name, log, one_core=one)
        for name, one in zip((BASE, HEAD), one_core, strict=False)
    ]
    if more:
        workers[0].patience = more.pop("patience")
    turns = Turns(
        arms=2,
        launch=1,
        options=OPTIONS,
        coin=random.Random(seed),
        cores=cores,
        **({"watch": watch} if watch else {}),
    )
    turns.play({worker.name: worker.open for worker in workers})
    orders = [
        (name, order)
        for name, order in log
        if getattr(order, "kind", None) in {OrderKind.TURN, OrderKind.KEEP_TO}
    ]
    first = next(place for place, (_, order) in enumerate(orders) if order.kind is OrderKind.TURN)
    return orders[:first], [
        (name, order.core) for name, order in orders if order.kind is OrderKind.KEEP_TO
    ]


def test_sides_that_use_one_core_each_are_kept_to_one_together_before_the_first_turn():
    drawn = set()
    for seed in range(20):
        before, kept = kept_to(True, True, seed=seed)
        assert [name for name, _ in kept] == [BASE, HEAD]
        assert len(before) == 2
        assert len({core for _, core in kept}) == 1
        drawn |= {core for _, core in kept}
    assert drawn == {3, 5, 7}, "a core that is always the same may be a bad one"


@pytest.mark.parametrize("one_core", [(True, False), (False, True), (False, False), (True,)])
def test_no_side_is_kept_to_a_core_where_one_needs_more_or_is_alone(one_core):
    assert kept_to(*one_core)[1] == []


@pytest.mark.parametrize("cores", [(), (3,)])
def test_there_is_nothing_to_keep_to_without_several_cores(cores):
    assert kept_to(True, True, cores=cores)[1] == []


def test_a_side_that_is_out_leaves_the_other_where_the_kernel_has_it():
    assert kept_to(True, True, patience=1)[1] == []


def test_what_was_disturbed_is_taken_again_on_a_core_that_is_drawn_anew():
    _, kept = kept_to(True, True, watch=ScriptedWatch("another process"))
    assert [name for name, _ in kept] == [BASE, HEAD] * 2
    assert [kept[0][1], kept[2][1]] == [kept[1][1], kept[3][1]]
    again = {
        kept_to(True, True, watch=ScriptedWatch("another process"), seed=seed)[1][2][1]
        for seed in range(20)
    }
    assert again == {3, 5, 7}


@pytest.mark.parametrize(
    ("processes", "sides", "near", "offered"),
    [
        (1, 2, None, (3, 5)),
        (2, 2, None, ()),
        (1, 1, None, ()),
        (1, 2, {5, 7}, (5,)),
        (1, 2, {8}, (3, 5)),
        (2, 1, None, ()),
    ],
)
def test_cores_are_offered_to_two_sides_of_one_process_each_on_the_host(
    monkeypatch, processes, sides, near, offered
):
    """Ranks of a side would be slower on one core than on theirs."""
    seen = []

    def turns(*, cores, **_):
        seen.append(cores)
        return SimpleNamespace(play=lambda _: replace(checked(60.0), calls=(1,)))

    monkeypatch.setattr(stages, "Turns", turns)
    monkeypatch.setattr(headroom, "fastest_cores", lambda: (3, 5))
    runs = [
        MagicMock(**{"environment.identity": {"device": "cuda" if near else "cpu"}})
        for _ in range(sides)
    ]
    for run, name in zip(runs, (HEAD, BASE), strict=False):
        run.side.name = name
    watch = MagicMock(**{"near_cores.return_value": near})
    ours = stages.Stages(
        options=OPTIONS,
        observe=lambda _: None,
        runs=(),
        seed="",
        outlook=Outlook(sides=2),
        watch=watch,
    )
    (case,) = SUITE.plan({"name": "one", "arms": ["plain"]})
    stage = Stage(kind=StageKind.TIME, arms=("plain",), processes=processes)
    ours.in_turns(stages.Job(suite=SUITE, case=case, stage=stage, launch=0), runs, MagicMock())
    assert seen == [offered]
