"""Samples against the parent's own time: worker clocks that lie are told by name, honest turns of any kind are not."""

import random
from dataclasses import replace

import pytest
from fake_suite import QUICK, FakeRun, fake_environ

from ci_bench.records.results import Better, Lane, Launch, Metric, Outcome, SideName, Status, Unit
from ci_bench.runner.witness import (
    LEAST_TURNS,
    Account,
    Sighting,
    TurnTimes,
    Witness,
    chance_of,
    joined,
    quantile,
)
from ci_bench.suites.contract import Evidence

CALLS, BLOCKS = 4, 10


def honest_gap(coin):
    """An order, its answer, seeding: a third of a millisecond, more or less."""
    return coin.uniform(2e-4, 5e-4)


def stalled_gap(coin):
    """Now and then the machine stops for a third of a second."""
    return honest_gap(coin) + (0.3 if coin.random() < 0.12 else 0.0)


def crowded_gap(coin):
    """A core that five processes share, as measured."""
    return coin.choice([0.0015, 0.002, 0.003, 0.005, 0.009, 0.012, 0.028])


def slow_fence_gap(coin):
    return honest_gap(coin) + 8e-4


def turns(
    sample_s,
    gap=honest_gap,
    *,
    lie=lambda sample_s: sample_s,
    seed=0,
    blocks=BLOCKS,
    calls=CALLS,
    twice=1,
    extra=0.0,
):
    """One arm's turns, and what the worker says of its samples (s per call)."""
    coin, seen, said = random.Random(seed), [], []
    for block in range(blocks):
        for samples in coin.choice([(2,), (1, 1)]):
            lengths = [sample_s * coin.uniform(0.98, 1.1) for _ in range(samples)]
            elapsed = (
                sum(lengths) * twice + sum(gap(coin) for _ in range(samples)) + extra * samples
            )
            seen.append(Sighting(seat=0, block=block, samples=samples, elapsed_s=elapsed))
            said += [lie(length) / calls for length in lengths]
    return seen, said


def evidence_of(seen, said, *, name="step_time", parts=False):
    blocks = tuple(turn.block for turn in seen for _ in range(turn.samples))
    series = {name: said, **({"forward_time": said} if parts else {})}
    return Evidence(
        metrics=tuple(
            Metric(
                name=of,
                arm="plain",
                unit=Unit.SECONDS,
                better=Better.LOWER,
                lane=Lane.WALL if of == "step_time" else Lane.DEVICE,
                launches=(Launch(launch=0, values=tuple(values), blocks=blocks),),
            )
            for of, values in series.items()
        )
    )


def account(seen, said, *, flushed=False, calls=CALLS, load=0.0, **kind):
    times = TurnTimes(arms=("plain",), sightings=seen, calls=(calls,), flushed=flushed, load=load)
    return times.accounts(evidence_of(seen, said, **kind))


def judged(head, base=None, *, flushed=False):
    (check,) = Witness(flushed=flushed, base=base or {}).checks(head)
    return check


def slow(share):
    return lambda sample_s: sample_s * share


def less(seconds):
    return lambda sample_s: max(sample_s - seconds, 1e-6)


@pytest.mark.parametrize("beside_base", [False, True], ids=["alone", "beside base"])
@pytest.mark.parametrize(
    "gap", [honest_gap, stalled_gap, crowded_gap, slow_fence_gap], ids=lambda gap: gap.__name__
)
@pytest.mark.parametrize("sample_s", [0.02, 0.1, 2.0])
def test_an_honest_clock_agrees_on_any_machine(sample_s, gap, beside_base):
    for seed in range(50):
        base = account(*turns(sample_s * 0.7, gap, seed=1000 + seed)) if beside_base else None
        check = judged(account(*turns(sample_s, gap, seed=seed)), base)
        assert check.outcome is not Outcome.FAIL, (seed, check.detail)
        assert check.informative


@pytest.mark.parametrize(
    "gap", [honest_gap, stalled_gap, slow_fence_gap], ids=lambda gap: gap.__name__
)
@pytest.mark.parametrize("sample_s", [0.04, 0.2, 2.0])
def test_a_clock_at_half_speed_is_told_with_and_without_a_base(sample_s, gap):
    base = account(*turns(sample_s, gap, seed=7))
    head = account(*turns(sample_s, gap, lie=slow(0.5)))
    for check in (judged(head), judged(head, base)):
        assert (check.name, check.arm, check.outcome, check.informative) == (
            "witnessed",
            "plain",
            Outcome.FAIL,
            False,
        )
        assert "the worker's wall clock counted" in check.detail
        assert "unaccounted for" in check.detail


def test_without_a_base_nobody_is_accused_on_a_crowded_machine():
    """Ten processes a core left gaps like these in nearly every turn of an honest clock."""
    said = turns(0.04, lambda coin: coin.uniform(0.006, 0.06), seed=5)
    crowded, quiet = judged(account(*said, load=10.0)), judged(account(*said))
    assert (crowded.outcome, quiet.outcome) == (Outcome.UNKNOWN, Outcome.FAIL)
    assert "10 processes a core" in crowded.detail

    lie = turns(0.04, lie=slow(0.5), seed=5)
    base = account(*turns(0.04, seed=7), load=10.0)
    assert judged(account(*lie, load=10.0), base).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("load", "gap", "outcome"),
    [(3.0, "same", Outcome.UNKNOWN), (3.0, "none", Outcome.FAIL), (0.5, "same", Outcome.FAIL)],
    ids=["busy", "head leaves none", "quiet"],
)
def test_base_is_not_accused_if_head_waits_as_long(load, gap, outcome):
    """The load is a mean of a minute: it lags behind what has just begun."""

    def crowded(coin):
        return coin.uniform(0.012, 0.06)

    base = account(*turns(0.04, crowded, seed=5), load=load)
    head = account(*turns(0.04, crowded if gap == "same" else honest_gap, seed=6), load=load)
    witness = Witness()
    (check,) = witness.over_launches([{SideName.BASE: base, SideName.HEAD: head}], SideName.BASE)
    assert check.outcome is outcome, check.detail
    (check,) = witness.over_launches([{SideName.BASE: base, SideName.HEAD: head}], SideName.HEAD)
    assert check.outcome is not Outcome.FAIL, check.detail


@pytest.mark.parametrize(
    ("lie", "sample_s"),
    [
        (slow(0.9), 0.02),
        (slow(0.93), 0.1),
        (slow(0.96), 1.0),
        (less(0.003), 0.02),
        (less(0.005), 0.1),
    ],
)
def test_beside_base_smaller_lies_are_told(lie, sample_s):
    base = account(*turns(sample_s, seed=7))
    for seed in range(20):
        assert judged(account(*turns(sample_s, lie=lie, seed=seed)), base).outcome is Outcome.FAIL


def test_a_lie_in_three_turns_of_five_is_told_where_it_is_large():
    coin = random.Random(3)
    said = turns(0.1, lie=lambda length: length * (0.5 if coin.random() < 0.65 else 1.0), blocks=40)
    assert judged(account(*said), account(*turns(0.1, seed=7, blocks=40))).outcome is Outcome.FAIL


def test_samples_that_do_not_fit_into_their_turn_are_told_in_any_turn():
    seen, said = turns(0.05)
    said[5] *= 3
    assert judged(account(seen, said)).outcome is Outcome.FAIL
    seen = [replace(turn, refereed=True) for turn in seen]
    assert judged(account(seen, said)).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    "change", [lambda said: said[:-2], lambda said: [*said, said[0]]], ids=["fewer", "more"]
)
def test_other_samples_than_were_ordered_are_told(change):
    seen, said = turns(0.05)
    metrics = evidence_of(seen, said).metrics
    (metric,) = metrics
    changed = replace(metric, launches=(replace(metric.launches[0], values=tuple(change(said))),))
    (check,) = Witness().checks(
        TurnTimes(arms=("plain",), sightings=seen, calls=(CALLS,)).accounts(
            Evidence(metrics=(changed,))
        )
    )
    assert (check.outcome, "were returned instead of" in check.detail) == (Outcome.FAIL, True)


def test_the_times_of_a_device_fill_the_turn_as_the_hosts_do():
    assert judged(account(*turns(0.1), name="device_time")).outcome is Outcome.PASS
    check = judged(account(*turns(0.1, lie=slow(0.5)), name="device_time"))
    assert (check.outcome, "the worker's device clock counted" in check.detail) == (
        Outcome.FAIL,
        True,
    )


def test_looks_of_a_referee_take_the_time_they_take():
    seen, said = turns(0.05)
    seen = [
        replace(turn, elapsed_s=turn.elapsed_s + 5.0, refereed=True) if index % 3 == 0 else turn
        for index, turn in enumerate(seen)
    ]
    assert judged(account(seen, said), account(*turns(0.05, seed=7))).outcome is Outcome.PASS


def test_a_call_that_was_not_timed_is_no_gap_but_only_where_there_was_one():
    seen, said = turns(0.1, calls=64)
    touched = [replace(turn, elapsed_s=turn.elapsed_s + 0.1 / 64, touched=True) for turn in seen]
    plain, called = account(seen, said, calls=64), account(touched, said, calls=64)
    (before,), (after,) = (tuple(one.values()) for one in (plain, called))
    assert quantile(after.gaps_s, 0.5) == pytest.approx(quantile(before.gaps_s, 0.5), abs=2e-4)
    seen, said = turns(0.1, lie=slow(0.5), calls=2)
    lied = [replace(turn, touched=True) for turn in seen]
    assert judged(account(lied, said, calls=2)).outcome is Outcome.FAIL, (
        "no call comes before samples of two"
    )


def test_flushes_are_known_from_base_alone():
    """Each call is made twice, behind a flush that takes time of its own."""
    honest, base = (
        account(*turns(0.05, twice=2, extra=0.03, seed=seed), flushed=True) for seed in (0, 7)
    )
    assert judged(honest, flushed=True).outcome is Outcome.UNKNOWN
    assert judged(honest, base, flushed=True).outcome is Outcome.PASS
    lied = account(*turns(0.05, twice=2, extra=0.03, lie=slow(0.7)), flushed=True)
    assert judged(lied, base, flushed=True).outcome is Outcome.FAIL


def test_reading_the_events_of_parts_takes_time():
    head = account(*turns(0.03, extra=0.009), parts=True)
    assert judged(head).outcome is not Outcome.FAIL
    assert judged(account(*turns(0.03, extra=0.009))).outcome is Outcome.FAIL


@pytest.mark.parametrize("sample_s", [1e-4, 1e-3, 5e-3])
def test_short_samples_tell_nothing_and_the_check_says_so(sample_s):
    for seed in range(20):
        check = judged(account(*turns(sample_s, seed=seed)))
        assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)
        assert "too short to tell" in check.detail
        assert "cannot be short by more than" in check.detail


def test_reporting_short_samples_is_no_place_to_hide():
    """What counts is what of the parent's time is left over, not how long the samples are said to be."""
    assert judged(account(*turns(0.05, lie=slow(0.01)))).outcome is Outcome.FAIL


@pytest.mark.parametrize("blocks", [2, 3])
def test_few_turns_tell_nothing(blocks):
    seen, said = turns(0.05, lie=slow(0.5), blocks=blocks)
    base = account(*turns(0.05, seed=3, blocks=blocks))
    assert len(seen) < LEAST_TURNS
    assert judged(account(seen, said)).outcome is Outcome.UNKNOWN
    assert judged(account(seen, said), base).outcome is Outcome.UNKNOWN


def test_turns_of_several_launches_are_one_sample():
    """Ten per cent of 20 ms in four blocks show in no launch, and in three of them together."""
    launches = [
        (
            account(*turns(0.02, lie=slow(0.9), seed=n, blocks=4)),
            account(*turns(0.02, seed=50 + n, blocks=4)),
        )
        for n in range(3)
    ]
    assert {judged(*one).outcome for one in launches} == {Outcome.PASS}
    head, base = (joined(one) for one in zip(*launches, strict=True))
    assert judged(head, base).outcome is Outcome.FAIL


def loaded_gap(coin):
    """As measured beside four busy loops on two cores (docs/internals/measurements.md)."""
    return coin.choice(LOADED_MS) / 1e3


LOADED_MS = (
    (0.1,) * 14
    + (0.2,) * 6
    + (0.3, 0.3, 0.4, 0.5, 1.1, 1.7, 1.9, 2.4, 3.1, 3.8, 3.9, 4.5, 5.3, 7.6, 10.7, 13.6)
)


@pytest.mark.parametrize("sample_s", [0.002, 0.02, 0.1])
def test_beside_load_nobody_is_accused(sample_s):
    for seed in range(100):
        base = account(*turns(sample_s, loaded_gap, seed=seed, blocks=5))
        head = account(*turns(3 * sample_s, loaded_gap, seed=1000 + seed, blocks=5))
        assert judged(head, base).outcome is not Outcome.FAIL
        assert judged(head).outcome is not Outcome.FAIL


@pytest.mark.parametrize(
    ("gap", "blocks", "sample_s"), [(honest_gap, 10, 0.02), (loaded_gap, 30, 0.1)]
)
def test_lies_of_ten_percent_are_found(gap, blocks, sample_s):
    found = 0
    for seed in range(100):
        base = account(*turns(sample_s, gap, seed=seed, blocks=blocks))
        head = account(*turns(sample_s, gap, lie=slow(0.9), seed=1000 + seed, blocks=blocks))
        found += judged(head, base).outcome is Outcome.FAIL
    assert found >= 95, found


def test_the_chance_of_two_samples_is_exact():
    """By hand: of 252 orders of five and five one has all of theirs above."""
    low, high = (1.0, 2.0, 3.0, 4.0, 5.0), (6.0, 7.0, 8.0, 9.0, 10.0)
    assert chance_of(low, high, margin_s=0.0) == pytest.approx(1 / 252)
    assert chance_of(high, low, margin_s=0.0) == 1.0
    assert chance_of(low, high, margin_s=10.0) == 1.0
    assert chance_of(low, (), margin_s=0.0) == 1.0
    coin, runs, least = random.Random(5), 4000, 0.05
    samples = [
        (sorted(coin.random() for _ in range(9)), sorted(coin.random() for _ in range(12)))
        for _ in range(runs)
    ]
    assert sum(chance_of(*pair, margin_s=0.0) <= least for pair in samples) <= 1.2 * least * runs


def test_a_base_whose_own_samples_are_impossible_vouches_for_nothing():
    base = {("plain", "step_time"): Account(arm="plain", clock="wall", fault="impossible")}
    assert judged(account(*turns(0.05)), base).outcome is Outcome.PASS


def test_quantiles_are_values_that_were_seen():
    values = (1.0, 2.0, 3.0, 4.0)
    assert [quantile(values, share) for share in (0.0, 0.25, 0.26, 0.5, 0.75, 1.0)] == [
        1.0,
        1.0,
        2.0,
        2.0,
        3.0,
        4.0,
    ]
    assert quantile((5.0,), 0.75) == 5.0


LIES = replace(QUICK, blocks=14, sample_s=0.02)


@pytest.mark.parametrize(
    ("fault", "outcome"), [("halve_reported_times", Outcome.FAIL), ("chdir", None)]
)
def test_engine_detects_halved_times(tmp_path, fault, outcome):
    """No clock was touched: the class that takes samples was.

    An honest one is never told, however busy the machine.
    """
    run = FakeRun(tmp_path, LIES, fake_environ(FAKE_STEP_S="0.04"))
    row = run.measure({"name": "lies", "fault": fault, "at": "workload"})["lies"]
    (check,) = (check for check in row.checks if check.name == "witnessed")
    assert check.outcome is outcome if outcome else check.outcome is not Outcome.FAIL, check.detail
    assert row.status is Status.OK, "what was measured is kept, and judged"


def test_through_the_engine_head_is_held_against_base(tmp_path):
    """Base tells the truth, and its gaps say what an honest turn leaves."""
    rows = FakeRun(tmp_path, LIES, fake_environ(FAKE_STEP_S="0.06", FAKE_LIES="0.75")).measure_both(
        {"name": "one"}, base={"FAKE_LIES": "1"}
    )
    checks = {
        side: [check for check in row["one"].checks if check.name == "witnessed"]
        for side, row in rows.items()
    }
    assert [check.outcome for check in checks[SideName.HEAD]] == [Outcome.FAIL], checks
    assert "and base's clock leaves" in checks[SideName.HEAD][0].detail
    assert [check.outcome is Outcome.FAIL for check in checks[SideName.BASE]] == [False], checks
