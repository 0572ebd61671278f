"""Cases that were not measured through no fault of the code: a spent budget, and a side that could not be set up."""

from dataclasses import replace

import pytest
from judge_builders import (
    computed,
    control,
    judged,
    metric,
    numeric,
    off,
    perturbed,
    result,
    results,
    sampled,
    trace,
)

from ci_bench.errors import ExitCode
from ci_bench.records.comparison import BaselineMode, RunVerdict
from ci_bench.records.config import Policy, Rule, Severity
from ci_bench.records.results import SETUP, WITHIN_BUDGET, Check, Failure, Outcome, Role, Status
from ci_bench.report.markdown import render_report
from ci_bench.report.next_step import next_step

SPENT = "the budget of 100 s was spent before this stage; raise run.budget_s"
PAIRED = {"mode": BaselineMode.PAIRED}


def cut(row, stage="time"):
    """The row as the budget leaves it: what was gathered stays."""
    check = Check(name=WITHIN_BUDGET, arm="eager", outcome=Outcome.UNKNOWN, detail=SPENT)
    failure = Failure(stage=stage, arms=("eager",), reason=SPENT)
    return replace(row, status=Status.NOT_RUN, failure=failure, checks=(*row.checks, check))


def unready(
    *rows,
    side="head",
    reason="set-up command 1 of 1 (`pip install .`) ended with exit code 1: needs cmake",
):
    """Both sides' rows, of which one could not be set up."""
    failed = Failure(stage=SETUP, arms=(), reason=reason, log_tail="more\nneeds cmake")
    other = replace(failed, reason=f"{side} could not be set up: {reason}")
    ended = [replace(row, status=Status.FAILED, failure=failed) for row in rows]
    spared = [replace(row, status=Status.NOT_RUN, failure=other) for row in rows]
    return (ended, spared) if side == "head" else (spared, ended)


def rules(judgement, severity):
    return [finding.rule for finding in judgement.findings if finding.severity is severity]


@pytest.mark.parametrize("base", ["paired", None])
@pytest.mark.parametrize("stage", ["verify", "time", "run"])
def test_a_spent_budget_is_undecided_by_name(stage, base):
    head = results(*(cut(result(id=f"s/{name}"), stage) for name in "ab"))
    mode = BaselineMode.PAIRED if base else BaselineMode.NONE
    judgement = judged(head, head if base else None, mode=mode).judgement
    assert (judgement.verdict, judgement.exit_code) == (RunVerdict.UNDECIDED, ExitCode.OK)
    assert rules(judgement, Severity.FAIL) == []
    named = [finding.case for finding in judgement.findings if finding.rule is Rule.UNDECIDED]
    assert named == ["s/a", "s/b"]
    assert "could be measured" not in judgement.headline
    assert (
        judgement.headline
        == "Not decided: a: not measured within the budget; 1 more case without an answer."
    )


def test_undecided_may_fail():
    policy = Policy(severities={Rule.UNDECIDED: Severity.FAIL})
    head = results(cut(result()))
    assert (
        judged(head, head, policy=policy, **PAIRED).judgement.exit_code == ExitCode.POLICY_NOT_MET
    )


def test_a_noted_budget_does_not_pass():
    policy = Policy(severities={Rule.UNDECIDED: Severity.NOTE})
    head = results(cut(result()))
    assert judged(head, head, policy=policy, **PAIRED).judgement.verdict is RunVerdict.UNDECIDED


def test_a_case_without_the_mark_fails():
    """An interrupted run has such rows, too, and no budget is their reason."""
    judgement = judged(
        results(replace(cut(result()), checks=())), results(result(metric(sampled(1.0))))
    ).judgement
    assert judgement.verdict is RunVerdict.FAILED


def test_what_was_measured_still_fails():
    slower = result(metric(sampled(2.0, count=6)), id="s/b")
    before = result(metric(sampled(1.0, count=6)), id="s/b")
    judgement = judged(
        results(cut(result()), slower), results(cut(result()), before), **PAIRED
    ).judgement
    assert judgement.exit_code == ExitCode.POLICY_NOT_MET
    assert judgement.headline.startswith("Failed: b: step time")


def trained(loss=1.0, arms=("eager", "inductor"), scale=1.0):
    reference = trace(Role.REFERENCE, scale=loss)
    traces = (
        reference,
        perturbed(loss * (1 + 1e-6) - 1),
        trace(Role.CANDIDATE, scale=loss * scale),
        control(reference),
    )
    return result(arms=arms, parity=replace(numeric(traces[2]), traces=traces))


def test_parity_compared_by_then_is_judged():
    base = cut(trained())
    same = judged(results(cut(trained())), results(base), **PAIRED)
    assert same.cases[0].learning.verdict.holds
    assert same.judgement.verdict is RunVerdict.UNDECIDED
    other = judged(results(cut(trained(loss=1.2))), results(base), **PAIRED)
    assert Rule.LEARNING_CHANGED in rules(other.judgement, Severity.FAIL)
    assert other.judgement.exit_code == ExitCode.POLICY_NOT_MET


@pytest.mark.parametrize("stage", ["verify", "seeds", "rounding"])
def test_unfinished_verification_accuses_nobody(stage):
    """More trainings might have widened the envelope."""
    comparison = judged(
        results(cut(trained(loss=1.2, scale=1.2), stage)), results(cut(trained(), stage)), **PAIRED
    )
    assert rules(comparison.judgement, Severity.FAIL) == []


def test_arms_not_verified_yet_are_open():
    lacking = cut(trained(arms=("eager", "inductor", "later")))
    assert (
        rules(judged(results(lacking), results(lacking), **PAIRED).judgement, Severity.FAIL) == []
    )


@pytest.mark.parametrize("gone", ["base", "head"])
def test_a_budget_may_end_in_one_half(gone):
    whole, bare = cut(trained(), "verify"), cut(result(arms=("eager", "inductor")), "verify")
    head, base = (bare, whole) if gone == "head" else (whole, bare)
    judgement = judged(results(head), results(base), **PAIRED).judgement
    assert (judgement.verdict, judgement.exit_code) == (RunVerdict.UNDECIDED, ExitCode.OK)


def test_outputs_compared_by_then_are_judged():
    base = cut(result(outputs=computed("base")))
    wrong = cut(result(outputs=off("head", (1.0, 1e-6))))
    right = cut(result(outputs=off("head", (1e-7, 1e-6))))
    assert rules(judged(results(right), results(base), **PAIRED).judgement, Severity.FAIL) == []
    assert rules(judged(results(wrong), results(base), **PAIRED).judgement, Severity.FAIL) == [
        Rule.OUTPUTS_CHANGED
    ]


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_failed_set_up_is_the_only_finding(side):
    head, base = unready(result(id="s/a"), result(id="s/b"), side=side)
    seen = results(*head, identity={} if side == "head" else None), results(*base, identity={})
    comparison = judged(*seen, **PAIRED)
    judgement = comparison.judgement
    assert judgement.exit_code == ExitCode.MEASURING_FAILED
    assert [(finding.rule, finding.case) for finding in judgement.findings] == [
        (Rule.CASE_FAILED, None)
    ]
    command = "set-up command 1 of 1 (`pip install .`)"
    assert (
        judgement.headline
        == f"Failed: {side} could not be set up: {command} ended with exit code 1: needs cmake."
    )
    assert comparison.mismatches == ()
    text = render_report(comparison)
    assert "needs cmake" in text
    assert "same machine" not in text
    assert "setup.commands" in next_step(comparison).text


@pytest.mark.parametrize("same", [True, False])
def test_both_sides_may_fail_to_be_set_up(same):
    head, _ = unready(result())
    _, base = unready(result(), side="base", **({} if same else {"reason": "another reason"}))
    headline = judged(
        results(*head, identity={}), results(*base, identity={}), **PAIRED
    ).judgement.headline
    assert headline.startswith("Failed: neither base nor head could be set up: ") is same
    assert ("base could not be set up: another reason; head could" in headline) is not same
