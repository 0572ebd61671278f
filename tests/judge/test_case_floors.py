"""Floors of single cases: the nearest word counts, patterns are no regular expressions, and one that holds nothing is told."""

import pytest
from judge_builders import judged, metric, result, results, sampled

from ci_bench.configuration.config import load_config
from ci_bench.errors import BadConfig
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import CasePolicy, Floor, Policy, Rule, Severity, SuitePolicy, fits
from ci_bench.records.results import Status

ARMS = ("eager", "inductor")


def row(name, inductor, **fields):
    return result(
        metric(sampled(1.0)),
        metric(sampled(inductor), arm="inductor"),
        id=f"torchbench/{name}",
        arms=ARMS,
        **fields,
    )


def found(policy, *rows, rule=Rule.BELOW_FLOOR):
    judgement = judged(results(*rows), mode=BaselineMode.NONE, policy=policy).judgement
    return [finding for finding in judgement.findings if finding.rule is rule]


@pytest.mark.parametrize(
    ("pattern", "case", "fitting"),
    [
        ("torchbench/mlp[mode=training]", "torchbench/mlp[mode=training]", True),
        ("torchbench/mlp[mode=training]", "torchbench/mlpm", False),
        ("torchbench/mlp", "torchbench/mlp[mode=training]", False),
        ("torchbench/mlp*", "torchbench/mlp[mode=training]", True),
        ("*[*mode=training*]", "torchbench/mlp[a=1,mode=training,b=2]", True),
        ("*[*mode=training*]", "torchbench/mlp[a=1,mode=inference,b=2]", False),
        ("*", "anything", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("ab*b", "ab", False),
        ("a?c", "abc", False),
        ("**mlp**", "torchbench/mlp", True),
        ("*x*y", "y x", False),
    ],
)
def test_a_star_is_any_text_and_all_else_is_itself(pattern, case, fitting):
    assert fits(pattern, case) is fitting


def test_a_long_pattern_takes_no_long_time():
    assert not fits("*a" * 150 + "b", "a" * 300)


def test_the_cases_word_wins_over_the_suites_and_the_last_pattern_over_those_before():
    policy = Policy(
        floors={Floor.SPEEDUP: 1.0, Floor.COMPRESSION: 0.5},
        suites={"s": SuitePolicy(floors={Floor.SPEEDUP: 1.1})},
        cases={
            "s/*": CasePolicy(floors={Floor.SPEEDUP: 1.2, Floor.COMPRESSION: 0.8}),
            "s/mlp*": CasePolicy(floors={Floor.SPEEDUP: 1.4}),
        },
    )
    asked = {
        case: policy.floor(Floor.SPEEDUP, suite="s", case=case)
        for case in ("s/mlp[1]", "s/cnn", "t/mlp")
    }
    assert asked == {"s/mlp[1]": 1.4, "s/cnn": 1.2, "t/mlp": 1.1}
    assert policy.floor(Floor.COMPRESSION, suite="s", case="s/mlp[1]") == 0.8
    assert policy.floor(Floor.SPEEDUP, suite="t", case="t/mlp") == 1.0


def test_one_model_may_owe_more_than_the_others():
    policy = Policy(cases={"torchbench/bert*": CasePolicy(floors={Floor.SPEEDUP: 1.4})})
    rows = row("bert[a]", 1 / 1.2), row("mlp[a]", 1 / 1.2)
    (finding,) = found(policy, *rows)
    assert (finding.case, finding.severity) == ("torchbench/bert[a]", Severity.FAIL)
    assert "below the floor of 1.4" in finding.message
    assert found(policy, row("bert[a]", 1 / 1.6)) == []


@pytest.mark.parametrize("rows", [(row("mlp[a]", 0.5),), ()])
def test_a_pattern_that_no_case_fits_is_told(rows):
    policy = Policy(cases={"torchbench/brt*": CasePolicy(floors={Floor.SPEEDUP: 1.4})})
    (finding,) = found(policy, *rows, rule=Rule.CHECK_UNKNOWN)
    assert "no case of this run fits 'torchbench/brt*'" in finding.message
    assert finding.severity is Severity.WARN


def test_a_case_that_failed_still_fits():
    policy = Policy(cases={"torchbench/mlp*": CasePolicy(floors={Floor.SPEEDUP: 1.4})})
    assert found(policy, row("mlp[a]", 0.5, status=Status.CRASHED), rule=Rule.CHECK_UNKNOWN) == []


def load(tmp_path, policy):
    path = tmp_path / "ci-bench.yml"
    path.write_text(f"schema_version: 1\nsuites: {{torchbench: [{{}}]}}\npolicy:\n  {policy}\n")
    return load_config(path).policy


def test_they_are_read_from_the_configuration(tmp_path):
    policy = load(
        tmp_path, 'cases: {"torchbench/resnet[*": {floors: {speedup: 1.3, compression: 1}}}'
    )
    assert policy.cases == {
        "torchbench/resnet[*": CasePolicy(floors={Floor.SPEEDUP: 1.3, Floor.COMPRESSION: 1.0})
    }


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            "cases: {a: {floor: {speedup: 1}}}",
            "policy.cases.a.floor: unknown field; did you mean 'floors'",
        ),
        ("cases: {a: {floors: {speedup: 0}}}", "policy.cases.a.floors.speedup: 0"),
        ("cases: {a: {floors: {speed: 1}}}", "did you mean 'speedup'"),
        ("cases: {a: {}}", "policy.cases.a"),
        ("case: {}", "did you mean 'cases'"),
    ],
)
def test_faults_name_their_field(tmp_path, policy, words):
    with pytest.raises(BadConfig) as told:
        load(tmp_path, policy)
    assert words in str(told.value)
