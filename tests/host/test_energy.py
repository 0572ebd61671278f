"""Joules per step by a counter that moves in steps of its own: what it can tell, what it can't, and what nobody can have done."""

import math
import random
from dataclasses import replace

import pytest
from judge_builders import judged, launches, metric, result, results, sampled

from ci_bench.host.energy import EnergyCount, Stretch, Uncountable, energy, mean_power_w
from ci_bench.host.monitor import Host, Monitor
from ci_bench.records.comparison import BaselineMode, Verdict
from ci_bench.records.metrics import ENERGY_PER_STEP, ENGINE
from ci_bench.records.results import Lane, Outcome
from ci_bench.report.markdown import render_comment
from ci_bench.report.text import NO_BREAK_SPACE

STEP_S = 0.01


def counted(watts, *, seconds=2.0, step_s=0.1, look_s=0.005, seed=0, begins_j=0.0, idle_w=80.0):
    """Looks at a counter that is brought up to date every `step_s`; before the stretch the device was idle."""
    dice = random.Random(seed)
    phase, begins_s = dice.random() * step_s, 1000.0 + dice.random()

    def drawn(at_s):
        return idle_w * min(at_s, 0.0) + (watts(at_s) if at_s > 0 else 0.0)

    counts, at_s = [], 0.0
    while at_s < seconds:
        moved_s = math.floor((at_s - phase) / step_s) * step_s + phase if step_s else at_s
        counts.append(EnergyCount(at_s=begins_s + at_s, joules=begins_j + 1000.0 + drawn(moved_s)))
        at_s += look_s * dice.uniform(0.8, 1.6)
    return tuple(counts)


def steady(watts):
    return lambda at_s: watts * at_s


def ramp(watts):
    """For a quarter of a second the clocks rise; then power drifts up by two per cent a second."""
    return lambda at_s: watts * (0.5 * min(at_s, 0.25) + max(0.0, at_s - 0.25) * (1 + 0.01 * at_s))


@pytest.mark.parametrize("step_s", [0.0, 0.001, 0.02, 0.1])
@pytest.mark.parametrize("watts", [35.0, 690.0])
def test_power_is_known_to_a_per_cent_whatever_the_counters_steps(step_s, watts):
    errors = [
        mean_power_w(counted(steady(watts), step_s=step_s, seed=seed)) / watts - 1
        for seed in range(200)
    ]
    assert max(map(abs, errors)) < 0.01
    assert abs(sum(errors) / len(errors)) < 0.0005


def test_what_was_drawn_before_the_clocks_rose_is_not_in_it():
    errors = [mean_power_w(counted(ramp(400.0), seed=seed)) / 400.0 - 1.02 for seed in range(50)]
    assert max(map(abs, errors)) < 0.015


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ((), "this machine has no energy counter"),
        (
            tuple(EnergyCount(at_s=at / 100, joules=None) for at in range(200)),
            "this machine has no energy counter",
        ),
        (
            (*counted(steady(400.0))[:-1], EnergyCount(at_s=1003.0, joules=None)),
            "this machine has no energy counter",
        ),
        (counted(steady(400.0), seconds=0.5), "moved 3 times in 0.49 s: raise run.energy_s"),
        (counted(steady(0.0)), "moved 0 times"),
        (
            (*counted(steady(400.0))[:200], *counted(steady(400.0), begins_j=-900.0)[200:]),
            "restarted",
        ),
    ],
)
def test_what_a_counter_cannot_tell_is_unknown_with_the_reason(counts, why):
    with pytest.raises(Uncountable, match=why):
        mean_power_w(counts)
    metrics, check = energy([stretch(counts)], arm="eager", launch=1, reported=told())
    assert metrics == ()
    assert (check.name, check.outcome, check.informative) == (
        "energy_counted",
        Outcome.UNKNOWN,
        True,
    )
    assert why.split(":")[0] in check.detail


def stretch(counts=None, *, calls=200, **rest):
    return Stretch(
        calls=calls,
        elapsed_s=2.0,
        counts=counted(steady(400.0)) if counts is None else counts,
        **rest,
    )


def told(step_s=STEP_S, items=None):
    return [
        replace(metric(sampled(step_s)), items=items, launches=launches([step_s] * 4)),
        metric(sampled(5.0), arm="jit"),
    ]


def test_energy_per_step_is_power_times_the_time_of_a_step():
    (per_step,), check = energy(
        [stretch(), stretch(calls=100)], arm="eager", launch=3, reported=told()
    )
    assert (per_step.name, per_step.arm, per_step.lane) == ("energy_per_step", "eager", Lane.DEVICE)
    assert per_step.launches[0].launch == 3
    assert per_step.launches[0].values == (
        pytest.approx(4.0, rel=0.01),
        pytest.approx(8.0, rel=0.01),
    )
    assert check.outcome is Outcome.PASS
    assert " W over 4 s of steps" in check.detail


def test_energy_per_item_where_a_step_has_items():
    per_step, per_item = energy(
        [stretch(temperature_c=61.2)], arm="eager", launch=0, reported=told(items=32)
    )[0]
    assert per_item.name == "energy_per_item"
    assert per_item.launches[0].values[0] == per_step.launches[0].values[0] / 32


def test_the_temperature_is_kept():
    assert (
        "at 62 °C"
        in energy(
            [stretch(temperature_c=55), stretch(temperature_c=62)],
            arm="eager",
            launch=0,
            reported=told(),
        )[1].detail
    )


def test_more_steps_than_the_samples_leave_time_for_are_a_failure():
    metrics, check = energy([stretch(), stretch(calls=301)], arm="eager", launch=0, reported=told())
    assert metrics == ()
    assert (check.outcome, check.informative) == (Outcome.FAIL, False)
    assert "301 steps in 2 s: not possible when the fastest timed step took 0.01 s" in check.detail


@pytest.mark.parametrize(
    ("calls", "outcome"), [(219, Outcome.PASS), (221, Outcome.UNKNOWN), (299, Outcome.UNKNOWN)]
)
def test_steps_faster_than_as_sampled_tell_nothing_and_fail_nothing(calls, outcome):
    """A machine that was busy during the samples, or a cooler GPU: no figure, and no accusation either."""
    metrics, check = energy([stretch(calls=calls)], arm="eager", launch=0, reported=told())
    assert (check.outcome, check.informative, bool(metrics)) == (
        outcome,
        True,
        outcome is Outcome.PASS,
    )
    assert (
        outcome is Outcome.PASS
        or f"{calls} steps in 2 s: faster than the timed steps, whose median is 0.01 s"
        in check.detail
    )


def test_a_median_that_a_busy_machine_doubled_accuses_nobody():
    slow = replace(metric(sampled(STEP_S)), launches=launches([STEP_S, 2 * STEP_S, 2 * STEP_S]))
    assert (
        energy([stretch(calls=200)], arm="eager", launch=0, reported=[slow])[1].outcome
        is Outcome.UNKNOWN
    )


def test_a_disturbed_stretch_tells_nothing():
    metrics, check = energy(
        [stretch(), stretch(doubt="the GPU was slowed down")],
        arm="eager",
        launch=0,
        reported=told(),
    )
    assert (metrics, check.outcome, check.detail) == (
        (),
        Outcome.UNKNOWN,
        "the GPU was slowed down",
    )


@pytest.mark.parametrize("unmet", ["", "the flushes would be in it"])
def test_without_a_stretch_there_is_a_reason(unmet):
    metrics, check = energy([], arm="eager", launch=0, reported=told(), unmet=unmet)
    assert (metrics, check.outcome) == ((), Outcome.UNKNOWN)
    assert check.detail == (unmet or "the worker did not get through the steps for it")


def test_without_samples_of_a_step_the_calls_are_believed():
    assert energy([stretch()], arm="eager", launch=0, reported=[])[1].outcome is Outcome.PASS


def drawing(joules):
    series = launches(*([value, value * 1.001] for value in joules))
    drawn = ENERGY_PER_STEP.of("eager", series[0], lane=Lane.DEVICE)
    return result(metric(sampled(1.0, count=len(joules))), replace(drawn, launches=series))


def test_energy_that_grew_is_shown_in_its_unit_and_fails():
    base, head = (
        drawing([4.0, 4.01, 3.99, 4.0, 4.0, 4.0]),
        drawing([5.2, 5.21, 5.19, 5.2, 5.2, 5.2]),
    )
    comparison = judged(results(head), base=results(base), mode=BaselineMode.FILE)
    (pair,) = [pair for pair in comparison.cases[0].pairs if pair.metric == "energy_per_step"]
    assert pair.verdict is Verdict.REGRESSED
    comment = render_comment(comparison, marker="m").replace(NO_BREAK_SPACE, " ")
    assert "energy per step" in comment
    assert "5.20 J" in comment


def test_energy_that_stayed_fails_nothing_and_none_is_owed():
    row = drawing([4.0, 4.01, 3.99, 4.0, 4.0, 4.0])
    plain = result(metric(sampled(1.0, count=6)))
    for head, base in ((row, row), (plain, row), (row, plain)):
        assert judged(results(head), base=results(base), mode=BaselineMode.FILE).judgement.met


def test_what_is_counted_is_declared():
    assert ENGINE["energy_per_step"].gates
    assert not ENGINE["energy_per_item"].gates


@pytest.mark.parametrize(
    ("zones", "joules"),
    [
        ({"intel-rapl:0": ("package-0", "1500000"), "intel-rapl:1": ("package-1", "2500000")}, 4.0),
        (
            {
                "intel-rapl:0": ("package-0", "1500000"),
                "intel-rapl:0:0": ("core", "900000"),
                "intel-rapl:1": ("psys", "7"),
            },
            1.5,
        ),
        ({"intel-rapl:0": ("package-0", "")}, None),
        ({"intel-rapl:0": ("package-0", "1500000"), "intel-rapl:1": ("package-1", "?")}, None),
        ({}, None),
    ],
)
def test_the_cpus_energy_is_that_of_its_packages(tmp_path, zones, joules):
    for zone, (name, count) in zones.items():
        folder = tmp_path / "sys/class/powercap" / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{count}\n")
    assert Host(tmp_path).energy_j() == joules
    assert Monitor(None, Host(tmp_path), clock=lambda: 7.0).count() == EnergyCount(
        at_s=7.0, joules=joules
    )


def test_the_gpus_counter_is_read_where_there_is_one(tmp_path):
    class Gpu:
        def energy_j(self):
            return 12.5

    assert Monitor(Gpu(), Host(tmp_path), clock=lambda: 7.0).count() == EnergyCount(
        at_s=7.0, joules=12.5
    )
