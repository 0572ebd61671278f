"""What is too fast to be true fails until the policy explains it; what is merely fast does not."""

from dataclasses import replace

import pytest
from judge_builders import judged, metric, result, results, sampled

from ci_bench.judge.policy.plausibility import implausible
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import CasePolicy, Policy, Rule, Severity
from ci_bench.records.results import Unit

ARMS = ("eager", "inductor")
NAME = "torchbench/resnet[mode=inference]"


def row(candidate_s, facts=None):
    both = metric(sampled(1.0)), metric(sampled(candidate_s), arm="inductor")
    return replace(result(*both, id=NAME, arms=ARMS), facts=facts or {})


def found(policy, case):
    judgement = judged(results(case), mode=BaselineMode.NONE, policy=policy).judgement
    return [
        finding for finding in judgement.findings if finding.rule is Rule.IMPLAUSIBLE
    ], judgement


@pytest.mark.parametrize(
    ("speedup", "wrong"), [(33.9, True), (26.0, True), (24.0, False), (5.0, False), (0.1, False)]
)
def test_a_speedup_that_nobody_would_believe_fails(speedup, wrong):
    findings, judgement = found(Policy(), row(1 / speedup))
    assert bool(findings) is wrong
    if wrong:
        assert findings[0].severity is Severity.FAIL
        assert f"{speedup:.1f} times as fast as eager's" in findings[0].message
        assert not judgement.met
        assert f"{speedup:.1f} times as fast" in judgement.headline


def against_base(speedup, policy=None, **fields):
    base, head = (
        results(result(metric(sampled(value, spread=0.1), **fields)))
        for value in (1.0, 1 / speedup)
    )
    judgement = judged(head, base, policy=policy).judgement
    return [one for one in judgement.findings if "hard to believe" in one.message], judgement


@pytest.mark.parametrize(
    ("speedup", "hard"),
    [(10_000.0, True), (30.0, True), (20.0, False), (2.0, False), (1 / 50, False)],
)
def test_an_improvement_beyond_belief_is_said(speedup, hard):
    """As of a benchmark that says us for ms. It may be right, so it fails nothing."""
    findings, judgement = against_base(speedup)
    assert [one.severity for one in findings] == ([Severity.WARN] if hard else [])
    assert judgement.met is (speedup > 1)


def test_the_policy_explains_an_improvement():
    assert not against_base(30.0, Policy(cases={"s/*": CasePolicy(implausible_speedup=50)}))[0]
    assert against_base(10.0, Policy(implausible_speedup=5.0))[0]


@pytest.mark.parametrize(
    ("name", "unit"), [("compile_warm", Unit.SECONDS), ("peak_allocated", Unit.BYTES)]
)
def test_what_may_vanish_is_believed(name, unit):
    assert not against_base(1000.0, name=name, unit=unit)[0]


def test_the_policy_explains_a_case_and_no_other():
    explained = Policy(cases={"torchbench/resnet*": CasePolicy(implausible_speedup=40)})
    assert not found(explained, row(1 / 33.9))[0]
    assert found(
        Policy(cases={"torchbench/mlp*": CasePolicy(implausible_speedup=40)}), row(1 / 33.9)
    )[0]
    assert found(Policy(implausible_speedup=3.0), row(0.2))[0]
    assert (
        found(Policy(severities={Rule.IMPLAUSIBLE: Severity.NOTE}), row(1 / 33.9))[1]
        .findings[0]
        .severity
        is not Severity.FAIL
    )


@pytest.mark.parametrize("fact", ["peak_flops_per_s", "measured_peak_flops_per_s"])
@pytest.mark.parametrize("operations", [1e12, 6e11, 5e11, 4e11, 1e9])
def test_more_operations_than_the_device_can_do_fail(operations, fact):
    case = row(0.5, facts={"model_flops_per_step": operations, fact: 5e11})
    findings, _ = found(Policy(), case)
    assert bool(findings) is (operations > 5e11)
    assert not found(Policy(cases={"*": CasePolicy(implausible_speedup=20)}), case)[0]
    if findings:
        assert "times this device's peak" in findings[0].message


@pytest.mark.parametrize("fact", ["peak_bytes_per_s", "measured_peak_bytes_per_s"])
@pytest.mark.parametrize(
    ("read", "wrong"), [(3e12, True), (1.1e12, True), (0.9e12, False), (1e9, False)]
)
def test_more_bytes_than_the_memory_can_give_fail(read, wrong, fact):
    findings, _ = found(Policy(), row(0.5, facts={"read_bytes_per_step": read, fact: 1e12}))
    assert bool(findings) is wrong
    if wrong:
        assert f"{read:.3g} bytes to read in 0.5" in findings[0].message


def test_facts_that_are_no_numbers_say_nothing():
    for facts in (
        {"model_flops_per_step": "many", "peak_flops_per_s": None},
        {"model_flops_per_step": "many", "peak_flops_per_s": 5e11},
        {"model_flops_per_step": None, "peak_flops_per_s": 5e11},
        {"model_flops_per_step": 1e12, "peak_flops_per_s": "much"},
    ):
        assert not found(Policy(), row(0.5, facts=facts))[0]


def test_a_peak_of_nothing_is_no_peak_and_the_measured_one_counts():
    case = row(
        0.5,
        facts={
            "model_flops_per_step": 1e12,
            "peak_flops_per_s": 0.0,
            "measured_peak_flops_per_s": 5e11,
        },
    )
    findings, _ = found(Policy(), case)
    assert findings
    assert "times this device's peak of 5e+11 per second" in findings[0].message


def test_a_step_that_took_no_time_has_no_rate():
    compared = judged(
        results(row(0.5, facts={"model_flops_per_step": 1e12, "peak_flops_per_s": 5e11})),
        mode=BaselineMode.NONE,
    )
    (case,) = compared.cases
    still = tuple(replace(pair, head=replace(pair.head, median=0.0)) for pair in case.pairs)
    assert [*implausible(replace(case, pairs=still, speedups=()), Policy())] == []


def test_a_speedup_that_just_reaches_the_limit_is_believed():
    (case,) = judged(results(row(0.25)), mode=BaselineMode.NONE).cases
    (speedup,) = case.speedups
    least = speedup.interval.low if speedup.interval else speedup.speedup
    assert [*implausible(case, Policy(implausible_speedup=least))] == []
    assert [*implausible(case, Policy(implausible_speedup=0.999 * least))]


def test_what_is_farthest_beyond_its_own_limit_comes_first():
    near, far = row(1 / 30), replace(row(1 / 6), case=replace(row(1.0).case, id="fastrnns/lstm"))
    policy = Policy(cases={"fastrnns/*": CasePolicy(implausible_speedup=3)})
    findings = judged(results(near, far), mode=BaselineMode.NONE, policy=policy).judgement.findings
    assert [one.case for one in findings if one.rule is Rule.IMPLAUSIBLE] == ["fastrnns/lstm", NAME]
