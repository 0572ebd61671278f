"""Which threshold, severity and floor applies: the suite's word, the general one, what is built in."""

import pytest

from ci_bench.configuration.config import load_config
from ci_bench.errors import BadConfig
from ci_bench.records.config import Floor, Policy, Rule, Severity, SuitePolicy
from ci_bench.records.metrics import STEP_TIME


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
    assert threshold(policy) == STEP_TIME.threshold
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


CONFIG = """
schema_version: 1
suites: {{training_loss: [{{name: x}}]}}
policy:
  {policy}
"""


def load(tmp_path, policy):
    path = tmp_path / "ci-bench.yml"
    path.write_text(CONFIG.format(policy=policy))
    return load_config(path).policy


def test_floors_and_defaults_come_from_the_file(tmp_path):
    policy = load(tmp_path, "{floors: {speedup: 1.1}, suites: {training_loss: {floors: {compression: 0.9}}}}")

    assert policy.floors == {Floor.SPEEDUP: 1.1}
    assert policy.floor(Floor.COMPRESSION, suite="training_loss") == 0.9
    assert policy.default_threshold is None
    assert load(tmp_path, "{default_threshold: 3%}").default_threshold == 0.03
    assert load(tmp_path, "{default_threshold: null}").default_threshold is None


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("{floors: {speed: 1.1}}", r"policy\.floors\.speed: unknown field; did you mean 'speedup'\?"),
        ("{floors: {speedup: 0}}", r"policy\.floors\.speedup: 0 is not more than 0"),
        ("{floors: {speedup: 10%}}", r"policy\.floors\.speedup: '10%' is not a number"),
        ("{severities: {below_flor: note}}", "did you mean 'below_floor'"),
    ],
)
def test_a_wrong_floor_is_named(tmp_path, policy, words):
    with pytest.raises(BadConfig, match=words):
        load(tmp_path, policy)
