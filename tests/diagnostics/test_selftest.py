"""The self-test asks the right questions, and a gate that stays green where it should go red is found out."""

import pytest
from judge_builders import metric, numeric, peak, result, results, sampled, trace

from ci_bench.diagnostics.selftest import CHANGED, POLICY, UNCHANGED, examine, selftest_config
from ci_bench.judge.compare import compare
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Policy, Rule, Severity
from ci_bench.records.results import Role


def run(*, slow=1.0, leak=0, drift=1.0, unchanged=1.0):
    """A side: faults are those of the case that changed, `unchanged` is the step time of the other one."""

    def row(name, seconds, leak, drift):
        return result(
            metric(sampled(seconds), arm="inductor"),
            peak(4e8 + leak, 4e8 + leak, name="peak_anonymous", arm="inductor"),
            id=f"{name}x",
            parity=numeric(trace(Role.CANDIDATE, scale=drift)),
        )

    return results(row(CHANGED, slow, leak, drift), row(UNCHANGED, unchanged, 0, 1.0))


def ask(head):
    return {answer.question: answer for answer in examine(run(), head)}


def test_every_plant_is_asked_about_and_caught():
    answers = ask(run(slow=2.0, leak=2e8, drift=1.01))

    assert len(answers) == 5
    assert [question for question, answer in answers.items() if not answer.right] == []


@pytest.mark.parametrize(
    ("planted", "missed"),
    [
        ({"leak": 2e8, "drift": 1.01}, "an injected slowdown is caught"),
        ({"slow": 2.0, "drift": 1.01}, "an injected memory leak is caught"),
        ({"slow": 2.0, "leak": 2e8}, "an injected loss defect is caught"),
    ],
)
def test_a_plant_that_leaves_no_trace_is_a_wrong_answer(planted, missed):
    answers = ask(run(**planted))

    assert [question for question, answer in answers.items() if not answer.right] == [missed]


def test_an_unchanged_case_that_fails_is_a_wrong_answer():
    answers = ask(run(slow=2.0, leak=2e8, drift=1.01, unchanged=3.0))

    assert [question for question, answer in answers.items() if not answer.right] == [
        "a case that did not change passes"
    ]


def test_a_gate_that_lets_everything_pass_is_found_out(monkeypatch):
    deaf = Policy(severities=dict.fromkeys(Rule, Severity.NOTE))
    monkeypatch.setattr(
        "ci_bench.diagnostics.selftest._compare",
        lambda base, head: compare(
            base=base,
            head=head,
            policy=deaf,
            mode=BaselineMode.PAIRED,
            absence=None,
            tool_version="1",
        ),
    )
    answers = ask(run(slow=2.0, leak=2e8, drift=1.01))

    assert sum(not answer.right for answer in answers.values()) == 4


def test_the_configuration_plans_two_cases():
    from ci_bench.runner import planning

    cases = [case.id for _, case in planning.plan(selftest_config("cpu"), ())]
    assert [case.partition("/")[0] + "/" for case in cases] == [CHANGED, UNCHANGED]
    assert POLICY.severity(Rule.REGRESSED) is Severity.FAIL
