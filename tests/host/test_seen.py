"""What looks at the GPU after each turn come to as metrics of an arm, from the sensor to the comment."""

import pytest
from judge_builders import judged, metric, result, results, sampled

from ci_bench.host.gpus.protocol import ClockCause, Reason
from ci_bench.host.health import HealthReading
from ci_bench.host.monitor import SEEN, Host, Monitor
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.metrics import ENGINE, SM_CLOCK
from ci_bench.records.results import Lane, Launch
from ci_bench.report.markdown import render_comment
from ci_bench.report.text import NO_BREAK_SPACE

IDLE, CAPPED = (
    (Reason(cause=ClockCause.IDLE, word="idle"),),
    (Reason(cause=ClockCause.POWER_CAP, word="cap"),),
)


def look(mhz, reasons=()):
    return HealthReading(at_s=0.0, sm_mhz=mhz, reasons=reasons)


def seen(glances):
    return Monitor(None, Host()).metrics(glances, arm="eager", launch=2)


def test_each_block_has_the_mean_of_its_looks_in_hertz():
    (clock,) = seen({0: [look(1700), look(1800)], 1: [look(1600, CAPPED)]})
    assert (clock.name, clock.arm, clock.lane) == ("sm_clock", "eager", Lane.DEVICE)
    assert clock.launches == (Launch(launch=2, values=(1.75e9, 1.6e9), blocks=(0, 1)),)


@pytest.mark.parametrize(
    "glances", [{}, {0: []}, {0: [look(None)]}, {0: [look(210, IDLE)]}, {0: [look(1700, None)]}]
)
def test_what_was_not_seen_at_work_is_no_metric(glances):
    assert seen(glances) == ()


def test_a_look_at_an_idle_gpu_says_nothing_of_the_turn_before():
    (clock,) = seen({0: [look(1700), look(210, IDLE)], 1: [look(210, IDLE)]})
    assert clock.launches[0].values == (1.7e9,)
    assert clock.launches[0].blocks == (0,)


def test_what_is_seen_is_declared_and_fails_nothing():
    assert all(ENGINE[kind.name] is kind and not kind.gates for kind in SEEN)


def clocked(hz):
    series = Launch(launch=0, values=(hz,) * 4, blocks=(0, 1, 2, 3))
    return result(metric(sampled(1.0)), SM_CLOCK.of("eager", series, lane=Lane.DEVICE))


def test_a_clock_that_fell_is_shown_and_fails_nothing():
    comparison = judged(
        results(clocked(1.2e9)), base=results(clocked(1.8e9)), mode=BaselineMode.FILE
    )
    comment = render_comment(comparison, marker="m").replace(NO_BREAK_SPACE, " ")
    assert comparison.judgement.met
    assert "| GPU clock (`eager`) | 1.80 GHz | 1.20 GHz |" in comment


@pytest.mark.parametrize("without", ["base", "head"])
def test_a_side_whose_clock_was_not_seen_misses_nothing(without):
    plain, whole = results(result(metric(sampled(1.0)))), results(clocked(1.8e9))
    head, base = (plain, whole) if without == "head" else (whole, plain)
    assert judged(head, base=base, mode=BaselineMode.FILE).judgement.met


def test_a_candidate_whose_clock_was_not_seen_owes_none():
    row = clocked(1.8e9)
    arms = ("eager", "jit")
    both = result(*row.metrics, metric(sampled(1.0), arm="jit"), arms=arms)
    assert judged(results(both), base=results(both), mode=BaselineMode.FILE).judgement.met
