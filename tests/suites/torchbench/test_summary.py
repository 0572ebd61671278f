"""Aggregates over what both sides have, by hand."""

from dataclasses import replace

import pytest

from ci_bench.records.case import Better, CaseResult, Check, Lane, Launch, Metric, Outcome, Status, Unit
from ci_bench.suites.torchbench.plan import SUITE
from ci_bench.suites.torchbench.summary import Aggregate, summarise


def metric(name, arm, value, unit=Unit.SECONDS):
    launches = (Launch(launch=0, values=(value,)),)
    return Metric(name=name, arm=arm, unit=unit, better=Better.LOWER, lane=Lane.WALL, launches=launches)


def row(model, eager=None, compiled=None, *, compile_s=2.0, outcome=Outcome.PASS, status=Status.OK):
    (case,) = SUITE.plan({"models": [model], "mode": "training"})
    times = [metric("step_time", arm, value) for arm, value in (("eager", eager), ("inductor", compiled)) if value is not None]
    memory = [metric("peak_rss", "eager", 4e9, Unit.BYTES), metric("peak_rss", "inductor", 2e9, Unit.BYTES)]
    check = Check(name="accuracy", arm="inductor", outcome=outcome, detail="x")
    metrics = (*times, *memory, metric("compile_cold", "inductor", compile_s))
    return CaseResult(case=case, status=status, reproduce="x", metrics=metrics, checks=(check,))


def test_the_figures_by_hand():
    """Speedups 2 and 8 have the geometric mean 4; compile times 1 and 3 the mean 2; memory halves."""
    (found,) = summarise([row("mlp", 2.0, 1.0, compile_s=1.0), row("cnn", 8.0, 1.0, compile_s=3.0)])
    assert found.configuration == "inductor, training, fp32"
    assert (found.pass_rate, found.compile_cold_s) == (Aggregate(value=1.0, cases=2), Aggregate(value=2.0, cases=2))
    assert found.speedup.value == pytest.approx(4.0)
    assert found.compression.value == pytest.approx(2.0)
    assert found.only_here == 0


def test_what_fails_lowers_the_rate_and_leaves_the_means():
    rows = [row("mlp", 2.0, 1.0), row("cnn", 9.0, 1.0, outcome=Outcome.FAIL), row("vit", status=Status.CRASHED)]
    (found,) = summarise(rows)
    assert found.pass_rate == Aggregate(value=pytest.approx(1 / 3), cases=3)
    assert (found.speedup.value, found.speedup.cases) == (pytest.approx(2.0), 1)


def test_means_are_over_cases_that_pass_on_both_sides():
    """On head, vit is new and cnn broken: neither may shift the mean."""
    head = [row("mlp", 2.0, 1.0), row("cnn", 9.0, 1.0, outcome=Outcome.FAIL), row("vit", 100.0, 1.0)]
    base = [row("mlp", 3.0, 1.0), row("cnn", 9.0, 1.0)]
    (now,), (then,) = summarise(head, base), summarise(base, head)
    assert (now.speedup.value, now.speedup.cases, now.only_here) == (pytest.approx(2.0), 1, 1)
    assert (then.speedup.value, then.speedup.cases, then.only_here) == (pytest.approx(3.0), 1, 0)
    assert (now.pass_rate.value, then.pass_rate.value) == (0.5, 1.0)


def test_a_figure_that_is_missing_is_not_counted_and_no_zero():
    (found,) = summarise([row("mlp", 2.0), row("cnn", 8.0, 2.0)])
    assert (found.speedup.value, found.speedup.cases) == (pytest.approx(4.0), 1)
    (none,) = summarise([row("mlp")])
    assert none.speedup == Aggregate(value=None, cases=0)
    assert summarise([]) == ()


def test_an_informative_check_does_not_count():
    given = row("mlp", 2.0, 1.0)
    told = Check(name="runner_rule", arm="inductor", outcome=Outcome.FAIL, detail="x", informative=True)
    (found,) = summarise([replace(given, checks=(*given.checks, told))])
    assert found.pass_rate.value == 1.0
