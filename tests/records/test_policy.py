"""Which threshold, severity and floor applies: the suite's word, the general one, what is built in."""

import pytest

from ci_bench.configuration.config import load_config
from ci_bench.errors import BadConfig
from ci_bench.records.config import DEFAULT_THRESHOLD, Floor, Policy, Rule, Severity, SuitePolicy
from ci_bench.records.results import Unit


def threshold(
    policy: Policy, metric: str = "step_time", unit: Unit = Unit.SECONDS, *, suite: str = "s"
) -> float:
    return policy.threshold(suite=suite, metric=metric, unit=unit)


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("step_time", Unit.SECONDS),
        ("forward_time", Unit.SECONDS),
        ("own_time", Unit.SECONDS),
        ("compile_own", Unit.SECONDS),
        ("rate", Unit.PER_SECOND),
        ("energy_per_step", Unit.JOULES),
        ("bytes_of_an_operation", Unit.BYTES),
    ],
)
def test_one_default_for_all_others(metric, unit):
    assert DEFAULT_THRESHOLD == 0.02
    assert threshold(Policy(), metric, unit) == DEFAULT_THRESHOLD


@pytest.mark.parametrize(
    ("metric", "unit", "expected"),
    [
        ("compile_cold", Unit.SECONDS, 0.2),
        ("compile_warm", Unit.SECONDS, 0.2),
        ("peak_allocated", Unit.BYTES, 0.005),
        ("peak_rss", Unit.BYTES, 0.05),
        ("graph_breaks", Unit.COUNT, 0.0),
    ],
)
def test_declared_thresholds_stay(metric, unit, expected):
    assert threshold(Policy(), metric, unit) == expected
    assert threshold(Policy(default_threshold=0.3), metric, unit) == expected


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("score", Unit.COUNT),
        ("max_rss", Unit.BYTES),
        ("memory__measure", Unit.BYTES),
        ("memory", Unit.BYTES),
    ],
)
def test_metrics_without_statistics_are_coarser(metric, unit):
    """From 0.44 to 0.45 is the last of two digits, and processes of one commit differ by as much in memory."""
    assert threshold(Policy(), metric, unit) == 0.05
    assert threshold(Policy(default_threshold=0.01), metric, unit) == 0.01
    assert threshold(Policy(thresholds={metric: 0.03}), metric, unit) == 0.03


def test_the_users_thresholds_win():
    suites = {"s": SuitePolicy(thresholds={"step_time": 0.03})}
    policy = Policy(thresholds={"step_time": 0.04}, suites=suites)

    assert threshold(policy) == 0.03
    assert threshold(policy, suite="other") == 0.04


def test_a_default_of_the_users_is_for_what_nothing_else_names():
    policy = Policy(default_threshold=0.3)

    assert threshold(policy, "own_time") == threshold(policy) == 0.3


def test_floors_are_the_suites_before_the_general_ones():
    policy = Policy(
        floors={Floor.SPEEDUP: 1.0}, suites={"s": SuitePolicy(floors={Floor.SPEEDUP: 1.2})}
    )

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
    policy = load(
        tmp_path, "{floors: {speedup: 1.1}, suites: {training_loss: {floors: {compression: 0.9}}}}"
    )

    assert policy.floors == {Floor.SPEEDUP: 1.1}
    assert policy.floor(Floor.COMPRESSION, suite="training_loss") == 0.9
    assert policy.default_threshold is None
    assert load(tmp_path, "{default_threshold: 3%}").default_threshold == 0.03
    assert load(tmp_path, "{default_threshold: null}").default_threshold is None


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            "{floors: {speed: 1.1}}",
            r"policy\.floors\.speed: unknown field; did you mean 'speedup'\?",
        ),
        ("{floors: {speedup: 0}}", r"policy\.floors\.speedup: 0 is not more than 0"),
        ("{floors: {speedup: 10%}}", r"policy\.floors\.speedup: '10%' is not a number"),
        ("{severities: {below_flor: note}}", "did you mean 'below_floor'"),
    ],
)
def test_a_wrong_floor_is_named(tmp_path, policy, words):
    with pytest.raises(BadConfig, match=words):
        load(tmp_path, policy)
