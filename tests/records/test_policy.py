"""Which threshold, severity and floor applies: the suite's word, the general one, what is built in."""

import pytest

from ci_bench.records.policy import DEFAULT_THRESHOLDS, Floor, Policy, Rule, Severity, SuitePolicy


def threshold(policy: Policy, metric: str = "step_time", *, paired: bool = False, suite: str = "s") -> float:
    return policy.threshold(suite=suite, metric=metric, paired=paired)


@pytest.mark.parametrize(
    ("metric", "file", "paired"),
    [("step_time", 0.05, 0.01), ("own_time", 0.05, 0.01), ("compile_warm", 0.2, 0.2), ("compile_cold", 0.2, 0.2)],
)
def test_what_is_built_in_is_finer_for_times_of_a_paired_run(metric, file, paired):
    assert threshold(Policy(), metric) == file
    assert threshold(Policy(), metric, paired=True) == paired


@pytest.mark.parametrize("paired", [False, True])
def test_what_the_user_sets_wins_in_either_mode(paired):
    suites = {"s": SuitePolicy(thresholds={"step_time": 0.03})}
    policy = Policy(thresholds={"step_time": 0.04}, suites=suites)

    assert threshold(policy, paired=paired) == 0.03
    assert threshold(policy, paired=paired, suite="other") == 0.04


def test_a_default_of_the_users_is_for_what_nothing_else_names():
    policy = Policy(default_threshold=0.3)

    assert threshold(policy, "own_time") == threshold(policy, "own_time", paired=True) == 0.3
    assert threshold(policy) == DEFAULT_THRESHOLDS["step_time"]
    assert threshold(policy, paired=True) == 0.3


def test_floors_are_the_suites_before_the_general_ones():
    policy = Policy(floors={Floor.SPEEDUP: 1.0}, suites={"s": SuitePolicy(floors={Floor.SPEEDUP: 1.2})})

    assert policy.floor(Floor.SPEEDUP, suite="s") == 1.2
    assert policy.floor(Floor.SPEEDUP, suite="t") == 1.0
    assert policy.floor(Floor.COMPRESSION, suite="s") is None


@pytest.mark.parametrize("rule", [Rule.BELOW_FLOOR, Rule.COMMON_SHIFT])
def test_the_new_rules_fail_unless_the_policy_says_otherwise(rule):
    assert Policy().severity(rule) is Severity.FAIL
    assert Policy(severities={rule: Severity.NOTE}).severity(rule, suite="s") is Severity.NOTE
