"""The false alarms that the rule would have given on past runs, counted and bounded."""

from dataclasses import replace

import pytest
from paired_builders import calibrated, simulate

from ci_bench.judge.times import calibration as calibrating
from ci_bench.judge.times.audit import audit, binomial_interval
from ci_bench.judge.times.sequential import SequentialRule, fixed
from ci_bench.records.config import Policy, SuitePolicy


def with_run(known, slower, *, number=50, seed=77):
    """One more run, in which something really was slower."""
    run = {"id": f"odd-{number}", "started_at": f"2026-02-{number % 28 + 1:02}T00:00:00Z"}
    base, head = simulate(seed, cases=3, launches=4, slower=slower, run=run)
    return calibrating.merge(known, calibrating.collect(base, head, tool_version="1"))


@pytest.fixture(scope="module")
def known():
    return calibrated(runs=12, cases=3, launches=4)


def test_clean_runs_give_no_alarm(known):
    found = audit(known, policy=Policy())

    assert (found.runs, found.alarms, found.share) == (12, (), 0.0)
    assert found.interval.low == 0.0
    assert found.interval.high == pytest.approx(1 - 0.025 ** (1 / 12))
    assert found.holds
    assert found.promised == 0.01


def test_a_run_that_was_slower_is_an_alarm_and_named(known):
    found = audit(with_run(known, {(1, "step_time", "eager"): 1.08}), policy=Policy())

    assert [(alarm.run, alarm.names) for alarm in found.alarms] == [
        ("odd-50", (("s/c1", "step_time", "eager"),))
    ]
    assert found.share == pytest.approx(1 / 13)
    assert found.improved == 0


def test_a_run_that_was_faster_is_counted_apart(known):
    found = audit(with_run(known, {(1, "step_time", "eager"): 0.92}), policy=Policy())

    assert (found.alarms, found.improved) == ((), 1)


def test_many_alarms_break_the_promise(known):
    bad = known
    for number in range(50, 52):
        bad = with_run(bad, {(number % 3, "step_time", None): 1.1}, number=number, seed=number)
    found = audit(bad, policy=Policy())

    assert len(found.alarms) == 2
    assert not found.holds


def test_thresholds_are_the_policys(known):
    slower = with_run(known, {(1, "step_time", "eager"): 1.08})

    assert audit(slower, policy=Policy(thresholds={"step_time": 0.2})).alarms == ()
    assert (
        audit(
            slower, policy=Policy(suites={"s": SuitePolicy(thresholds={"step_time": 0.2})})
        ).alarms
        == ()
    )
    assert audit(
        slower, policy=Policy(suites={"other": SuitePolicy(thresholds={"step_time": 0.2})})
    ).alarms


def test_a_promise_of_no_alarm_holds_where_there_was_none(known):
    found = audit(known, policy=Policy(), rule=SequentialRule(alpha=0.0))

    assert (found.alarms, found.promised, found.holds) == ((), 0.0, True)


def test_the_rule_can_be_that_of_a_fixed_number_of_launches(known):
    assert audit(
        with_run(known, {(1, "step_time", "eager"): 1.04}), policy=Policy(), rule=fixed(4)
    ).alarms


def test_nothing_can_be_said_of_nothing(known):
    found = audit(replace(known, series=(), runs=()), policy=Policy())

    assert (found.runs, found.share) == (0, None)
    assert (found.interval.low, found.interval.high) == (0.0, 1.0)


def test_runs_of_which_nothing_is_left_are_not_counted(known):
    assert audit(replace(known, series=known.series[:0]), policy=Policy()).runs == 0


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 2000, 0, 0.001843), (3, 2000, 0.000309, 0.004377), (5, 5, 0.478, 1), (0, 0, 0, 1)],
)
def test_the_interval_is_exact(successes, trials, low, high):
    assert binomial_interval(successes, trials) == pytest.approx((low, high), rel=2e-3)
