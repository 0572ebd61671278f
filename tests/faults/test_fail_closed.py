"""Every way in which a gate could compare nothing has a name, and is by default not a pass."""

from dataclasses import dataclass

import pytest
from judge_builders import judged, launches, metric, result, results, sampled

from ci_bench.configuration.config import load_config
from ci_bench.errors import BadConfig, BadInput, ExitCode
from ci_bench.records.comparison import BaselineMode, Comparison
from ci_bench.records.config import Policy, Rule, Severity
from ci_bench.records.results import RunState, Status
from ci_bench.runner.planning import plan

FINE = result(metric(sampled(1.0)), id="s/fine")
BARE = result(id="s/fine")


def ended(status):
    return result(id="s/fine", status=status)


@dataclass(frozen=True)
class Outcome:
    """What is judged, the rule that names it, and the exit code."""

    comparison: Comparison
    rule: Rule
    code: ExitCode = ExitCode.POLICY_NOT_MET


OUTCOMES = {
    "empty plan": Outcome(judged(results(), None, mode=BaselineMode.NONE), Rule.EMPTY_RUN),
    "empty plan on both sides": Outcome(judged(results(), results()), Rule.EMPTY_RUN),
    "empty results": Outcome(judged(results(), results(FINE)), Rule.EMPTY_RUN),
    "all skipped": Outcome(judged(results(ended(Status.SKIPPED)), results(FINE)), Rule.EMPTY_RUN),
    "all skipped, nothing to compare with": Outcome(
        judged(results(ended(Status.SKIPPED)), None, mode=BaselineMode.NONE), Rule.EMPTY_RUN
    ),
    "all failed": Outcome(
        judged(results(ended(Status.FAILED)), results(FINE)),
        Rule.CASE_FAILED,
        ExitCode.MEASURING_FAILED,
    ),
    "all timed out": Outcome(
        judged(results(ended(Status.TIMEOUT)), results(FINE)),
        Rule.CASE_FAILED,
        ExitCode.MEASURING_FAILED,
    ),
    "all out of memory": Outcome(
        judged(results(ended(Status.OUT_OF_MEMORY)), results(FINE)),
        Rule.CASE_FAILED,
        ExitCode.MEASURING_FAILED,
    ),
    "all crashed": Outcome(
        judged(results(ended(Status.CRASHED)), results(FINE)),
        Rule.CASE_FAILED,
        ExitCode.MEASURING_FAILED,
    ),
    "none run": Outcome(
        judged(results(ended(Status.NOT_RUN)), results(FINE)),
        Rule.CASE_NOT_RUN,
        ExitCode.MEASURING_FAILED,
    ),
    "partial run": Outcome(
        judged(results(FINE, state=RunState.PARTIAL), results(FINE)), Rule.PARTIAL_RUN
    ),
    "baseline missing": Outcome(judged(results(FINE), None), Rule.BASELINE_MISSING),
    "baseline empty": Outcome(judged(results(FINE), results()), Rule.BASELINE_MISSING),
    "baseline all failed": Outcome(
        judged(results(FINE), results(ended(Status.FAILED))), Rule.BASELINE_MISSING
    ),
    "baseline all skipped": Outcome(
        judged(results(FINE), results(ended(Status.SKIPPED))), Rule.BASELINE_MISSING
    ),
    "no case in common": Outcome(
        judged(results(FINE), results(result(metric(sampled(1.0)), id="s/other"))),
        Rule.BASELINE_MISSING,
    ),
    "no metric in common": Outcome(
        judged(results(result(metric(sampled(1.0), name="x"), id="s/fine")), results(FINE)),
        Rule.BASELINE_MISSING,
    ),
    "no metric at all": Outcome(
        judged(results(BARE), results(BARE)), Rule.METRIC_MISSING, ExitCode.MEASURING_FAILED
    ),
    "everything incomparable": Outcome(
        judged(results(FINE), results(FINE, identity={"gpu": "A"})),
        Rule.INCOMPARABLE,
        ExitCode.INCOMPARABLE,
    ),
    "machines unknown": Outcome(
        judged(results(FINE, identity={}), results(FINE, identity={})),
        Rule.INCOMPARABLE,
        ExitCode.INCOMPARABLE,
    ),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_it_has_a_name_and_is_not_a_pass(name):
    outcome = OUTCOMES[name]
    judgement = outcome.comparison.judgement
    assert not judgement.met
    assert judgement.exit_code == outcome.code
    assert (outcome.rule, Severity.FAIL) in {
        (finding.rule, finding.severity) for finding in judgement.findings
    }
    assert judgement.headline


@pytest.mark.parametrize("name", OUTCOMES)
def test_it_passes_only_where_the_policy_says_so_in_words(name):
    """Of every rule that names such an outcome, the built-in severity is `fail`."""
    assert Policy().severity(OUTCOMES[name].rule) is Severity.FAIL


def test_something_compared_is_a_pass():
    """The control: the very same documents, with something to compare."""
    assert judged(results(FINE), results(FINE)).judgement.met


def test_what_cannot_be_decided_says_what_could_have_been_seen():
    """Inconclusive passes by default, as noise must not block every pull request; it never reads as unchanged."""
    one = result(metric(launches([1.0])), id="s/fine")
    judgement = judged(results(one), results(one)).judgement
    assert {finding.rule for finding in judgement.findings} == {Rule.INCONCLUSIVE, Rule.UNDECIDED}
    strict = Policy(severities={Rule.INCONCLUSIVE: Severity.FAIL})
    assert not judged(results(one), results(one), policy=strict).judgement.met


CONFIG = """schema_version: 1
suites:
  command:
    - {{name: a, command: "true"}}
policy:
  {policy}
"""
IDLE = {
    "suites: {fastrnns: {thresholds: {step_time: 1%}}}": "policy.suites.fastrnns: no case of this suite is measured",
    "suites: {transformers: {thresholds: {first_token_tim: 1%}}}": "no suite has a metric of this name",
    "suites: {comand: {thresholds: {step_time: 1%}}}": "did you mean 'command'",
    "severities: {regresed: fail}": "did you mean 'regressed'",
}


@pytest.mark.parametrize("policy", IDLE)
def test_a_policy_that_matches_nothing_is_refused_before_measuring(tmp_path, policy):
    path = tmp_path / "ci-bench.yml"
    path.write_text(CONFIG.format(policy=policy))
    with pytest.raises(BadConfig) as caught:
        load_config(path)
    assert IDLE[policy] in str(caught.value)


def test_a_policy_that_matches_something_is_taken(tmp_path):
    path = tmp_path / "ci-bench.yml"
    path.write_text(CONFIG.format(policy="suites: {command: {thresholds: {anything: 1%}}}"))
    assert load_config(path).policy.threshold(suite="command", metric="anything") == 0.01


@pytest.mark.parametrize("suites", ["{}", "{command: []}"])
def test_a_configuration_without_a_case_is_refused(tmp_path, suites):
    path = tmp_path / "ci-bench.yml"
    path.write_text(f"schema_version: 1\nsuites: {suites}\n")
    with pytest.raises(BadConfig):
        load_config(path)


def test_a_filter_that_leaves_no_case_is_refused(tmp_path):
    path = tmp_path / "ci-bench.yml"
    path.write_text(CONFIG.format(policy="default_threshold: 1%"))
    with pytest.raises(BadInput, match="no case id contains this"):
        plan(load_config(path), ["b"])
