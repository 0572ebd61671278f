"""What the policy makes of a comparison: every rule reached, every failing rule seen in the exit code, and the headline."""

from dataclasses import replace

import pytest
from judge_builders import (
    check,
    computed,
    count,
    evidence,
    judged,
    launches,
    metric,
    numeric,
    off,
    peak,
    perturbed,
    result,
    results,
    sampled,
    shaken,
    trace,
)
from test_starts import BASE, side

from ci_bench.errors import ExitCode
from ci_bench.judge.policy.headline import judge
from ci_bench.judge.policy.rules import Compared, Scope
from ci_bench.records.acceptance import Acceptance, Accepted, AcceptedChange, Direction
from ci_bench.records.comparison import BaselineMode, RunVerdict
from ci_bench.records.config import (
    DEFAULT_SEVERITIES,
    UNANSWERED,
    CasePolicy,
    Floor,
    Policy,
    Rule,
    Severity,
    SuitePolicy,
)
from ci_bench.records.results import Better, Check, Due, Outcome, Role, RunState, Status

TIME = metric(sampled(1.0))
FINE = result(TIME)
ALSO = result(TIME, id="s/also")
SUITE = [result(metric(sampled(1 + i / 100)), id=f"s/{i}") for i in range(6)]
SLOWER = [result(metric(sampled(1.5 + i / 60)), id=f"s/{i}") for i in range(6)]
FLOORED = Policy(suites={"floored": SuitePolicy(floors={Floor.SPEEDUP: 2.0})})
QUICK_ARM = result(TIME, metric(sampled(1.0 / 40), arm="inductor"), arms=("eager", "inductor"))
SLOW_ARM = result(
    TIME, metric(sampled(1.0), arm="inductor"), id="floored/a", arms=("eager", "inductor")
)
BOTH = result(TIME, metric(sampled(1.0), arm="other"), arms=("eager", "other"))
FEWER = result(TIME)
UNCOMPARED = {Rule.INCOMPARABLE, Rule.BASELINE_MISSING, Rule.EMPTY_RUN}
"""Rules of runs that compare nothing: no severity makes a pass of them."""
NOISY = metric(launches(*([x * jump for x in (0.9, 1.0, 1.1)] for jump in (0.7, 1.0, 1.4))))


def training(**fields):
    return numeric(trace(Role.CANDIDATE, **fields))


def learnt(**fields):
    """A training whose candidate does exactly what its reference does."""
    reference = trace(Role.REFERENCE, **fields)
    return evidence(reference, shaken(reference), trace(Role.CANDIDATE, **fields))


def evaluated(lost):
    runs = [
        trace(Role.REFERENCE, accuracy=0.6),
        perturbed(),
        trace(Role.CANDIDATE, accuracy=0.5, disagreements=(lost, 0)),
    ]
    return evidence(*runs, rows=1000)


SCENES = {
    Rule.REGRESSED: (results(result(metric(sampled(1.2)))), results(FINE)),
    Rule.SUSPECTED: (
        results(result(metric(launches([5.0])))),
        results(result(metric(launches([1.0])))),
    ),
    Rule.POSSIBLE: (
        results(result(metric(launches([1.4])))),
        results(result(metric(launches([1.0])))),
    ),
    Rule.COMMON_SHIFT: (results(*SLOWER), results(*SUITE)),
    Rule.BELOW_FLOOR: (results(SLOW_ARM), results(SLOW_ARM)),
    Rule.IMPLAUSIBLE: (results(QUICK_ARM), results(QUICK_ARM)),
    Rule.PARITY_BROKEN: (results(result(TIME, parity=training(scale=1.1))), results(FINE)),
    Rule.PARITY_UNDECIDED: (results(result(TIME, parity=training(start="x"))), results(FINE)),
    Rule.ACCURACY_BROKEN: (results(result(TIME, parity=evaluated(100))), results(FINE)),
    Rule.LEARNING_CHANGED: (
        results(result(TIME, parity=learnt(scale=1.1))),
        results(result(TIME, parity=learnt())),
    ),
    Rule.LEARNING_UNKNOWN: (
        results(result(TIME, parity=learnt(data="x"))),
        results(result(TIME, parity=learnt())),
    ),
    Rule.START_CHANGED: (results(side("head", (-0.05, -0.054, -0.047))), results(BASE)),
    Rule.OUTPUTS_CHANGED: (
        results(result(TIME, outputs=off("other", (0.5, 1e-6)))),
        results(result(TIME, outputs=computed("base"))),
    ),
    Rule.OUTPUTS_UNKNOWN: (
        results(result(TIME, outputs=computed("other", start="x"))),
        results(result(TIME, outputs=computed("base"))),
    ),
    Rule.CLOCK_DISAGREES: (
        results(result(TIME, checks=(replace(check(), name="witnessed"),))),
        results(FINE),
    ),
    Rule.CHECK_FAILED: (results(result(TIME, checks=(check(),))), results(FINE)),
    Rule.CHECK_UNKNOWN: (results(result(TIME, checks=(check(Outcome.UNKNOWN),))), results(FINE)),
    Rule.DISTURBED: (
        results(result(TIME, checks=(replace(check(Outcome.UNKNOWN), name="steady"),))),
        results(FINE),
    ),
    Rule.CASE_FAILED: (results(ALSO, result(status=Status.CRASHED)), results(ALSO, FINE)),
    Rule.CASE_SKIPPED: (results(ALSO, result(status=Status.SKIPPED)), results(ALSO)),
    Rule.CASE_NOT_RUN: (results(ALSO, result(status=Status.NOT_RUN)), results(ALSO, FINE)),
    Rule.CASE_REMOVED: (results(ALSO), results(ALSO, FINE)),
    Rule.CASE_REDUCED: (results(FEWER), results(BOTH)),
    Rule.METRIC_REMOVED: (results(FINE), results(result(TIME, peak(1, 1)))),
    Rule.METRIC_REPLACED: (
        results(result(TIME, peak(1, 1, name="peak_anonymous"))),
        results(result(TIME, peak(1, 1, name="peak_rss"))),
    ),
    Rule.METRIC_MISSING: (results(result(TIME, arms=("eager", "jit"))), results(FINE)),
    Rule.CASE_NEW: (results(ALSO, FINE), results(ALSO)),
    Rule.UNDECIDED: (results(result(NOISY)), results(FINE)),
    Rule.INCONCLUSIVE: (results(result(NOISY)), results(FINE)),
    Rule.INCOMPARABLE: (
        results(FINE, identity={"gpu": "A", "driver": 1}),
        results(FINE, identity={"gpu": "B", "driver": 2}),
    ),
    Rule.BASELINE_MISSING: (results(FINE), None),
    Rule.BASELINE_FAILED: (results(ALSO, FINE), results(ALSO, result(status=Status.TIMEOUT))),
    Rule.BASELINE_CRASHED: (results(ALSO, FINE), results(ALSO, result(status=Status.CRASHED))),
    Rule.ACCEPTED: (results(result(metric(sampled(1.2)))), results(FINE)),
    Rule.ACCEPTANCE_UNUSED: (results(FINE), results(FINE)),
    Rule.NARROWED: (results(FINE), results(FINE)),
    Rule.CASES_UNDECLARED: (results(FINE), results(FINE)),
    Rule.EMPTY_RUN: (results(result(status=Status.SKIPPED)), results(FINE)),
    Rule.PARTIAL_RUN: (results(FINE, state=RunState.PARTIAL), results(FINE)),
}


SCOPES = {
    Rule.NARROWED: Scope(narrowed=("only 1 of 2 cases (--filter a)",)),
    Rule.CASES_UNDECLARED: Scope(
        undeclared=("cases of the suite own are planned only by head's tree",)
    ),
}


ENTRY = Acceptance(
    change=AcceptedChange(
        kind=Accepted.METRIC,
        case="s/*",
        metric="step_time",
        direction=Direction.HIGHER,
        bound="25%",
        reason="a feature",
        author="ann",
        pull_request=7,
        expires="2030-01-01",
    ),
    granted="ann, on main",
)


def scene(rule, **options):
    """What is said of the scene in which a rule is reached."""
    if rule is Rule.BASELINE_CRASHED:
        options = {"mode": BaselineMode.PAIRED, **options}
    if rule in {Rule.ACCEPTED, Rule.ACCEPTANCE_UNUSED}:
        options = {"accepted": (ENTRY,), **options}
    return verdict(*SCENES[rule], scope=SCOPES.get(rule, Scope()), **options)


def verdict(head, base=None, *, policy=None, **options):
    """Judged by a policy that also has a floor for one suite, and lets moments drift."""
    whole = replace(policy or Policy(), suites={**FLOORED.suites, **(policy or Policy()).suites})
    return judged(
        head,
        base,
        policy=replace(whole, drift=0.05 if whole.drift is None else whole.drift),
        **options,
    ).judgement


def rules(judgement, severity=None):
    return {finding.rule for finding in judgement.findings if severity in {None, finding.severity}}


def every(severity):
    return Policy(severities=dict.fromkeys(Rule, severity))


@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_is_reached(rule):
    assert rule in rules(scene(rule))


@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_that_fails_shows_in_the_exit_code(rule):
    policy = Policy(severities={**dict.fromkeys(Rule, Severity.NOTE), rule: Severity.FAIL})
    judgement = scene(rule, policy=policy)
    assert not judgement.met
    assert judgement.exit_code == (
        ExitCode.INCOMPARABLE if rule is Rule.INCOMPARABLE else ExitCode.POLICY_NOT_MET
    )
    of_the_baseline = rule in {Rule.INCOMPARABLE, Rule.BASELINE_MISSING}
    assert judgement.headline.startswith("Not compared: " if of_the_baseline else "Failed: ")
    assert rules(judgement, Severity.FAIL) == {rule}


@pytest.mark.parametrize("severity", [Severity.WARN, Severity.NOTE])
@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_that_does_not_fail_passes(rule, severity):
    judgement = scene(rule, policy=every(severity))
    assert judgement.met
    assert judgement.exit_code == 0
    assert rules(judgement) == rules(judgement, severity)
    is_open = rule in UNCOMPARED or (
        severity is Severity.WARN and not UNANSWERED.isdisjoint(rules(judgement))
    )
    assert judgement.verdict is (RunVerdict.UNDECIDED if is_open else RunVerdict.PASSED)
    assert judgement.headline.startswith("Not decided: " if is_open else "Passed: ")


@pytest.mark.parametrize("rule", sorted(UNANSWERED))
def test_what_gates_and_has_no_answer_is_no_pass_unless_the_policy_says_so(rule):
    warned = Policy(severities={**dict.fromkeys(Rule, Severity.NOTE), rule: Severity.WARN})
    judgement = scene(rule, policy=warned)
    assert (judgement.verdict, judgement.exit_code) == (RunVerdict.UNDECIDED, 0)
    noted = RunVerdict.UNDECIDED if rule in UNCOMPARED else RunVerdict.PASSED
    assert scene(rule, policy=every(Severity.NOTE)).verdict is noted


@pytest.mark.parametrize("rule", sorted({*Rule} - UNANSWERED))
def test_a_warning_of_what_has_an_answer_leaves_a_pass(rule):
    warned = Policy(severities={**dict.fromkeys(Rule, Severity.NOTE), rule: Severity.WARN})
    assert scene(rule, policy=warned).verdict is RunVerdict.PASSED


@pytest.mark.parametrize("rule", [Rule.POSSIBLE, Rule.SUSPECTED])
def test_what_looks_worse_is_undecided_too_and_never_milder_than_that(rule):
    strict = Policy(
        severities={
            Rule.INCONCLUSIVE: Severity.FAIL,
            Rule.POSSIBLE: Severity.NOTE,
            Rule.SUSPECTED: Severity.NOTE,
        }
    )
    assert rule in rules(scene(rule, policy=strict), Severity.FAIL)
    assert not scene(rule, policy=Policy(severities={Rule.INCONCLUSIVE: Severity.FAIL})).met


def test_a_suspicion_is_no_stricter_than_a_regression_unless_the_policy_says_so():
    lenient = Policy(severities={Rule.REGRESSED: Severity.WARN})
    assert rules(verdict(*SCENES[Rule.SUSPECTED], policy=lenient), Severity.WARN) == {
        Rule.SUSPECTED
    }
    own = Policy(suites={"s": SuitePolicy(severities={Rule.REGRESSED: Severity.NOTE})})
    assert verdict(*SCENES[Rule.SUSPECTED], policy=own).met
    said = Policy(severities={Rule.REGRESSED: Severity.WARN, Rule.SUSPECTED: Severity.FAIL})
    assert not verdict(*SCENES[Rule.SUSPECTED], policy=said).met


@pytest.mark.parametrize("rule", list(Rule))
def test_built_in_severities_decide_where_the_policy_is_silent(rule):
    failing = any(DEFAULT_SEVERITIES[one] is Severity.FAIL for one in rules(scene(rule)))
    assert scene(rule).met is not failing


def test_nothing_to_report_is_a_pass_without_findings():
    judgement = verdict(results(FINE), results(FINE))
    assert (judgement.met, judgement.exit_code, judgement.findings) == (True, 0, ())
    assert judgement.headline == "Passed: 1 case, nothing regressed."


def test_improvements_never_fail():
    head = result(metric(sampled(0.5)), count(0), peak(10**8, 10**8))
    base = result(TIME, count(4), peak(10**9, 10**9))
    judgement = verdict(results(head), results(base), policy=every(Severity.FAIL))
    assert judgement.met
    assert judgement.headline == "Passed: 1 case, nothing regressed, 3 metrics improved."


@pytest.mark.parametrize(
    ("cases", "code"),
    [
        ((result(status=Status.FAILED), result(status=Status.SKIPPED)), ExitCode.MEASURING_FAILED),
        ((result(status=Status.NOT_RUN),), ExitCode.MEASURING_FAILED),
        ((result(),), ExitCode.MEASURING_FAILED),
        ((result(metric(launches([float("nan")] * 3))),), ExitCode.MEASURING_FAILED),
        ((result(status=Status.SKIPPED),), ExitCode.POLICY_NOT_MET),
        ((), ExitCode.POLICY_NOT_MET),
        ((result(due=Due(parity=True), arms=("eager", "inductor")),), ExitCode.MEASURING_FAILED),
        ((result(parity=training()),), ExitCode.OK),
        ((result(TIME, status=Status.FAILED),), ExitCode.POLICY_NOT_MET),
        ((FINE,), ExitCode.OK),
        ((result(TIME, checks=(check(Outcome.PASS),)),), ExitCode.OK),
    ],
)
def test_measuring_failed_when_nothing_was_measured(cases, code):
    assert verdict(results(*cases), mode=BaselineMode.NONE).exit_code == code


def test_no_policy_allows_measuring_nothing():
    judgement = verdict(results(result(status=Status.FAILED)), policy=every(Severity.NOTE))
    assert not judgement.met
    assert judgement.exit_code == ExitCode.MEASURING_FAILED
    assert judgement.headline == "Failed: none of 1 planned case could be measured."


def test_incomparable_is_its_own_code_only_alone():
    head, base = SCENES[Rule.INCOMPARABLE]
    alone = verdict(head, base)
    assert alone.exit_code == ExitCode.INCOMPARABLE
    assert alone.headline == "Not compared: base and head differ in driver, gpu."
    broken = replace(head, cases=(result(TIME, checks=(check(),)),))
    assert verdict(broken, base).exit_code == ExitCode.POLICY_NOT_MET


def test_mismatch_is_one_finding_per_suite():
    cases = [result(TIME, id=f"{suite}/{i}") for suite in ("s", "t") for i in range(3)]
    pair = [results(*cases, identity={"gpu": gpu}) for gpu in "AB"]
    lenient = Policy(suites={"t": SuitePolicy(severities={Rule.INCOMPARABLE: Severity.NOTE})})
    judgement = verdict(*pair, policy=lenient)
    assert [(f.severity, f.message) for f in judgement.findings] == [
        (Severity.FAIL, "3 cases of s cannot be compared: the runs differ in gpu"),
        (Severity.NOTE, "3 cases of t cannot be compared: the runs differ in gpu"),
    ]


def test_a_metric_that_changed_its_meaning_is_a_finding_of_its_case():
    turned = result(metric(sampled(1.0), better=Better.HIGHER))
    (finding,) = verdict(results(turned), results(FINE)).findings
    assert (finding.rule, finding.case) == (Rule.INCOMPARABLE, "s/a")


@pytest.mark.parametrize(
    ("base", "says"),
    [
        (None, "there is no baseline: not found"),
        (results(), "the baseline has no cases"),
        (results(result(TIME, id="s/other")), "the baseline has no case of this run"),
        (results(result(status=Status.FAILED)), "the baseline has no metric of this run"),
        (results(result(count(1))), "the baseline has no metric of this run"),
    ],
)
def test_comparing_with_nothing_is_not_a_pass(base, says):
    judgement = verdict(results(FINE), base)
    assert judgement.exit_code == ExitCode.POLICY_NOT_MET
    assert says in next(f.message for f in judgement.findings if f.rule is Rule.BASELINE_MISSING)


def test_no_baseline_is_fine_where_none_was_asked_for():
    judgement = verdict(
        results(result(TIME, checks=(check(Outcome.PASS),))), mode=BaselineMode.NONE
    )
    assert judgement.met
    assert judgement.headline == "Passed: 1 case, no baseline to compare with."


def test_one_arm_without_a_baseline_judges_nothing():
    judgement = verdict(results(FINE), mode=BaselineMode.NONE)
    assert (judgement.verdict, judgement.exit_code) == (RunVerdict.UNDECIDED, ExitCode.OK), (
        "it saves a baseline"
    )
    assert judgement.headline.startswith("Nothing was compared: no baseline was asked for")
    assert judgement.findings == ()


def test_a_baseline_that_did_not_end_is_said():
    judgement = verdict(results(FINE), results(FINE, state=RunState.PARTIAL))
    assert [(f.rule, f.case) for f in judgement.findings] == [(Rule.BASELINE_FAILED, None)]


def test_a_removed_case_is_one_finding():
    assert [f.rule for f in verdict(*SCENES[Rule.CASE_REMOVED]).findings] == [Rule.CASE_REMOVED]


def test_a_suite_can_set_its_own_severity():
    policy = Policy(suites={"s": SuitePolicy(severities={Rule.REGRESSED: Severity.WARN})})
    slower = [result(metric(sampled(1.2)), id=id_) for id_ in ("s/a", "t/a")]
    judgement = verdict(
        results(*slower), results(*(result(TIME, id=one.case.id) for one in slower)), policy=policy
    )
    assert [(f.severity, f.case) for f in judgement.findings] == [
        (Severity.FAIL, "t/a"),
        (Severity.WARN, "s/a"),
    ]


def test_findings_are_sorted_by_severity_rule_and_size():
    ids = ("s/small", "s/large", "s/down")
    head = [
        result(metric(sampled(x)), count(1), id=id_)
        for x, id_ in zip((1.1, 1.9, 1.4), ids, strict=True)
    ]
    skipped, failed = (
        result(id="s/skip", status=Status.SKIPPED),
        result(id="s/fail", status=Status.TIMEOUT),
    )
    base = [result(TIME, count(1), id=id_) for id_ in (*ids, "s/fail")]
    judgement = verdict(results(skipped, failed, *head), results(*base))
    assert [(f.rule, f.case) for f in judgement.findings] == [
        (Rule.REGRESSED, "s/large"),
        (Rule.REGRESSED, "s/down"),
        (Rule.REGRESSED, "s/small"),
        (Rule.CASE_FAILED, "s/fail"),
        (Rule.CASE_SKIPPED, "s/skip"),
    ]


def test_a_failed_case_is_not_blamed_for_its_missing_metrics_as_well():
    judgement = verdict(*SCENES[Rule.CASE_FAILED])
    assert [f.rule for f in judgement.findings] == [Rule.CASE_FAILED]
    both = verdict(
        results(ALSO, result(status=Status.CRASHED)), results(ALSO, result(status=Status.TIMEOUT))
    )
    assert "in the baseline it ended timeout" in both.findings[0].message


FOLLOWERS = {"graphs": 11, "recompiles": 2, "fallbacks": 3}
"""Counts that graph breaks bring with them."""
BROKEN = Check(
    name="compiled",
    arm="inductor",
    outcome=Outcome.PASS,
    detail="11 graphs of 90 operations, 4 breaks, 1 recompiles. Unsupported: print at attend.py:566 in forward (4x); x at b.py:1 in f",
)


@pytest.mark.parametrize(
    ("head", "base", "sentence"),
    [
        (
            result(
                metric(sampled(1.123)),
                id="training_loss/reviews[backend=inductor]",
                parity=training(scale=1.1),
            ),
            result(TIME, id="training_loss/reviews[backend=inductor]"),
            "Failed: reviews: step time 12 % slower (eager), loss off by 10 % from step 0 (inductor against eager).",
        ),
        (
            result(metric(sampled(2.0)), metric(sampled(1.2), arm="jit")),
            result(TIME, metric(sampled(1.0), arm="jit")),
            "Failed: a: step time 100 % slower (eager), step time 20 % slower (jit).",
        ),
        (
            result(peak(3 * 10**9, 3 * 10**9)),
            result(peak(2 * 10**9, 2 * 10**9)),
            "Failed: a: peak allocated memory 50 % more.",
        ),
        (result(count(2)), result(count(0)), "Failed: a: 2 graph breaks (inductor)."),
        (
            result(
                count(4), *(count(n, name=name) for name, n in FOLLOWERS.items()), checks=(BROKEN,)
            ),
            result(count(0), *(count(1, name=name) for name in FOLLOWERS), checks=(BROKEN,)),
            "Failed: a: 4 graph breaks, first at attend.py:566 (inductor).",
        ),
        (
            result(
                count(0), count(3, name="recompiles"), count(4, name="graphs"), checks=(BROKEN,)
            ),
            result(
                count(0), count(0, name="recompiles"), count(1, name="graphs"), checks=(BROKEN,)
            ),
            "Failed: a: recompilations from 0 to 3 (inductor).",
        ),
        (
            result(count(4), checks=(BROKEN,)),
            result(count(2), checks=(BROKEN,)),
            "Failed: a: graph breaks from 2 to 4 (inductor).",
        ),
        (
            result(peak(2**21, 2**21)),
            result(peak(0, 0)),
            "Failed: a: peak allocated memory from 0 bytes to 2 MiB.",
        ),
        (
            result(metric(sampled(1.2)), parity=training(scale=1.1), checks=(check(),)),
            FINE,
            "Failed: a: step time 20 % slower (eager), loss off by 10 % from step 0 (inductor against eager), 1 more finding.",
        ),
        (
            result(TIME, parity=training()),
            FINE,
            "Passed: 1 case, nothing regressed; losses match eager.",
        ),
        (
            result(TIME, parity=learnt()),
            result(TIME, parity=learnt()),
            "Passed: 1 case, nothing regressed; losses match eager; training matches base.",
        ),
        (
            result(NOISY, id="s/a[x=1]"),
            result(TIME, id="s/a[x=1]"),
            "Not decided: 1 of 1 metric (a): too noisy between runs at different moments.",
        ),
        (
            result(TIME, parity=learnt(data="x")),
            result(TIME, parity=learnt()),
            "Not decided: a: training not comparable with base.",
        ),
        (
            result(TIME, checks=(check(Outcome.UNKNOWN), check(Outcome.PASS))),
            FINE,
            "Not decided: a: a check has no answer.",
        ),
        (
            result(metric(sampled(1.2)), parity=training(scale=1.1), checks=(check(),)),
            result(TIME, peak(1, 1)),
            "Failed: a: step time 20 % slower (eager), loss off by 10 % from step 0 (inductor against eager), 2 more findings.",
        ),
    ],
)
def test_headlines(head, base, sentence):
    assert verdict(results(head), results(base)).headline == sentence


def test_nothing_compared_is_never_a_pass():
    judgement = verdict(
        results(FINE), results(result(status=Status.FAILED)), policy=every(Severity.NOTE)
    )
    assert judgement.verdict is RunVerdict.UNDECIDED
    assert judgement.headline.startswith("Not decided: the baseline has no metric of this run")


def test_a_headline_does_not_hide_what_the_policy_lets_pass():
    head = result(metric(sampled(1.2)), parity=training(scale=1.1))
    judgement = verdict(results(head), results(FINE), policy=every(Severity.NOTE))
    assert "1 metric worse, which the policy allows" in judgement.headline
    assert "losses do not match eager, which the policy allows" in judgement.headline


def test_the_verdict_can_be_recomputed_from_the_comparison_alone():
    for scene in SCENES.values():
        comparison = judged(*scene)
        fields = ("mode", "head", "base", "absence", "mismatches", "cases")
        again = Compared(**{field: getattr(comparison, field) for field in fields})
        assert judge(again, Policy()) == comparison.judgement


def test_details_are_no_part_of_the_headline():
    slower = [
        result(TIME, metric(sampled(by), name="part_time"), details=("part_time",))
        for by in (1.0, 2.0)
    ]
    judgement = verdict(results(slower[1]), results(slower[0]))
    assert judgement.met
    assert judgement.headline == "Passed: 1 case, nothing regressed."


def test_the_regression_of_the_headline_is_one_that_fails():
    both = [
        result(
            metric(sampled(by)), metric(sampled(by**3), name="part_time"), details=("part_time",)
        )
        for by in (1.0, 1.4)
    ]
    assert (
        verdict(results(both[1]), results(both[0])).headline == "Failed: a: step time 40 % slower."
    )


def test_a_headline_names_the_worst_case_once_and_counts_the_others():
    base = results(*(result(metric(sampled(1.0)), id=f"s/{name}") for name in "abc"))
    one = results(result(metric(sampled(1.3)), id="s/a"), *base.cases[1:])
    two = results(one.cases[0], result(metric(sampled(2.0)), id="s/b"), base.cases[2])
    three = results(
        *(
            result(metric(sampled(by)), id=f"s/{name}")
            for name, by in zip("abc", (1.3, 2.0, 1.6), strict=True)
        )
    )
    lenient = Policy(severities={Rule.COMMON_SHIFT: Severity.NOTE})
    assert verdict(one, base, policy=lenient).headline == "Failed: a: step time 30 % slower."
    assert (
        verdict(two, base, policy=lenient).headline
        == "Failed: b: step time 100 % slower; 1 more case fails (regressed)."
    )
    assert (
        verdict(three, base, policy=lenient).headline
        == "Failed: b: step time 100 % slower; 2 more cases fail (regressed)."
    )


def test_an_undecided_headline_counts_what_else_has_no_answer_of_the_run():
    lenient = Policy(cases={f"s/nothing-{n}": CasePolicy(implausible_speedup=9) for n in range(5)})
    said = verdict(results(FINE), results(FINE), policy=lenient).headline
    assert said.startswith("Not decided: policy.cases: no case of this run fits 's/nothing-0'")
    assert said.endswith("; 3 more run-wide questions.")


def test_an_undecided_headline_counts_the_other_cases_without_an_answer():
    cases = [result(TIME, id=f"s/{name}", checks=(check(Outcome.UNKNOWN),)) for name in "ab"]
    said = verdict(
        results(*cases), results(*(result(TIME, id=case.case.id) for case in cases))
    ).headline
    assert said == "Not decided: a: a check has no answer; 1 more case without an answer."


@pytest.mark.parametrize(("cases", "more"), [(1, ""), (2, ", and 1 more"), (3, ", and 2 more")])
def test_the_headline_names_the_largest_possible_change_and_counts_the_others(cases, more):
    head = results(
        *(
            result(metric(launches([1.4 + number / 100])), id=f"s/c{number}")
            for number in range(cases)
        )
    )
    base = results(*(result(metric(launches([1.0])), id=f"s/c{number}") for number in range(cases)))
    quiet = {**dict.fromkeys(Rule, Severity.NOTE), Rule.POSSIBLE: Severity.WARN}
    headline = verdict(head, base, policy=Policy(severities=quiet)).headline
    assert f"c{cases - 1}: step time may be 4{cases - 1} % slower" in headline
    assert (", and" in headline) is bool(more)
    assert " metric" not in headline, "the open metrics are those that may be slower"
    assert more in headline
