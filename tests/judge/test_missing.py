"""What a case that ended ok did not bring: every gap is a named finding that fails by default, with and without a baseline."""

from dataclasses import replace

import pytest
from judge_builders import (
    check,
    count,
    evidence,
    judged,
    metric,
    numeric,
    peak,
    perturbed,
    result,
    results,
    sampled,
    trace,
)

from ci_bench.records.comparison import BaselineMode, Parity, Verdict
from ci_bench.records.config import Rule, Severity
from ci_bench.records.results import Check, Due, Lane, Outcome, Role, Status

ARMS = ("eager", "inductor")
TIMES = tuple(metric(sampled(1.0), arm=arm) for arm in ARMS)
COMPILED = Check(name="compiled", arm="inductor", outcome=Outcome.PASS, detail="1 graphs")
ID = "training_loss/reviews"
DUE = Due(checks=("compiled",), times=("step_time",), parity=True)


def learning():
    return numeric(trace(Role.CANDIDATE))


def whole(*more, **fields):
    """A case of training_loss that lacks nothing."""
    return result(
        *TIMES,
        *more,
        **{
            "id": ID,
            "due": DUE,
            "arms": ARMS,
            "checks": (COMPILED,),
            "parity": learning(),
            **fields,
        },
    )


def failures(head, base=None):
    """Failing rules of one case, with the messages, beside a case that is in order on both sides."""
    fine = result(
        metric(sampled(1.0)),
        id="s/fine",
        checks=(Check(name="finite", arm="eager", outcome=Outcome.PASS, detail=""),),
    )
    mode = BaselineMode.FILE if base else BaselineMode.NONE
    judgement = judged(results(fine, head), base and results(fine, base), mode=mode).judgement
    assert judgement.met is not any(
        finding.severity is Severity.FAIL for finding in judgement.findings
    )
    return [
        (finding.rule, finding.message)
        for finding in judgement.findings
        if finding.severity is Severity.FAIL
    ]


def findings(head, base):
    """Rules of one case that fail or warn, with the messages."""
    found = judged(results(head), results(base), mode=BaselineMode.FILE).judgement.findings
    return [
        (finding.rule, finding.message)
        for finding in found
        if finding.severity is not Severity.NOTE
    ]


@pytest.mark.parametrize("base", [None, whole()], ids=["alone", "with_base"])
def test_a_whole_case_passes(base):
    assert failures(whole(), base) == []


def test_no_evidence_on_parity_is_not_a_pass():
    assert failures(whole(parity=None)) == [
        (
            Rule.PARITY_UNDECIDED,
            "inductor: insufficient data: no evidence on loss parity was gathered",
        )
    ]


def test_a_suite_of_which_nothing_is_known_owes_the_parity_that_its_baseline_has():
    head, base = (result(*TIMES, arms=ARMS, parity=parity) for parity in (None, learning()))
    assert failures(head) == []
    assert [rule for rule, _ in failures(head, base)] == [Rule.PARITY_UNDECIDED]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_case_that_did_not_end_well_owes_nothing_more(status):
    head = result(id=ID, due=DUE, arms=ARMS, status=status)
    (case,) = judged(results(head), results(whole())).cases
    assert (case.checks, case.parity) == ((), ())
    assert {pair.verdict for pair in case.pairs} <= {Verdict.FAILED, Verdict.SKIPPED}
    assert len(failures(head, whole())) <= 1


def test_a_case_that_ended_ok_without_a_metric_has_failed():
    assert failures(result()) == [(Rule.METRIC_MISSING, "it ended ok, but nothing was measured")]
    (case,) = judged(results(result()), results(result())).cases
    assert (case.verdict, case.head_status) == (Verdict.FAILED, Status.OK)


def test_a_case_of_training_loss_without_a_metric_names_every_arm():
    assert failures(replace(whole(), metrics=())) == [
        (Rule.METRIC_MISSING, f"{arm} step time: not measured, and every arm owes it")
        for arm in ARMS
    ]


@pytest.mark.parametrize("lost", ARMS)
def test_an_arm_without_its_step_time_is_seen_without_a_baseline(lost):
    kept = tuple(one for one in TIMES if one.arm != lost)
    assert failures(replace(whole(), metrics=kept)) == [
        (Rule.METRIC_MISSING, f"{lost} step time: not measured, and every arm owes it")
    ]


def test_what_the_reference_has_a_candidate_owes():
    head = result(*TIMES, peak(5, 5), arms=ARMS)
    (case,) = judged(results(head), mode=BaselineMode.NONE).cases
    assert (case.verdict, case.reason) == (
        Verdict.FAILED,
        "inductor peak allocated memory: not measured, though eager was",
    )
    assert failures(head) == [
        (Rule.METRIC_MISSING, "inductor peak allocated memory: not measured, though eager was")
    ]


def test_what_only_a_candidate_has_the_reference_does_not_owe():
    assert failures(whole(count(1))) == []


def test_a_gap_that_both_sides_have_is_still_a_gap():
    both = replace(whole(), metrics=TIMES[:1])
    assert [rule for rule, _ in failures(both, both)] == [Rule.METRIC_MISSING]


def test_a_metric_that_the_baseline_has_is_removed_and_not_missing_as_well():
    assert [rule for rule, _ in failures(replace(whole(), metrics=TIMES[:1]), whole())] == [
        Rule.METRIC_REMOVED
    ]


def test_a_candidate_without_the_check_that_it_compiled_fails_it():
    assert failures(whole(checks=())) == [
        (
            Rule.CHECK_FAILED,
            "compiled (inductor): the answer is missing, and every candidate arm owes one",
        )
    ]
    assert (
        failures(whole(checks=(replace(COMPILED, outcome=Outcome.FAIL),)))[0][0]
        is Rule.CHECK_FAILED
    )


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.FAIL])
def test_a_check_that_the_baseline_has_and_head_does_not_has_failed(outcome):
    base = result(*TIMES, arms=ARMS, checks=(check(outcome),))
    assert failures(result(*TIMES, arms=ARMS), base) == [
        (
            Rule.CHECK_FAILED,
            "really compiled (inductor): the answer is missing, and the baseline's run has one",
        )
    ]


@pytest.mark.parametrize("informative", [False, True])
@pytest.mark.parametrize(
    "name", ["device_clock", "undisturbed", "side_by_side", "direction", "a plugin's doubt"]
)
def test_a_doubt_of_the_baselines_is_not_owed_by_head(name, informative):
    doubt = Check(
        name=name,
        arm="inductor",
        outcome=Outcome.UNKNOWN,
        detail="in doubt",
        informative=informative,
    )
    assert failures(whole(), whole(checks=(COMPILED, doubt))) == []


def test_a_check_that_the_case_owes_is_owed_though_the_baseline_could_not_answer_it():
    unanswered = replace(COMPILED, outcome=Outcome.UNKNOWN)
    assert failures(whole(checks=()), whole(checks=(unanswered,))) == [
        (
            Rule.CHECK_FAILED,
            "compiled (inductor): the answer is missing, and every candidate arm owes one",
        )
    ]


def test_a_case_that_was_measured_and_is_skipped_now_is_gone():
    head = result(id=ID, due=DUE, arms=ARMS, status=Status.SKIPPED)
    assert failures(head, whole()) == [
        (
            Rule.CASE_REMOVED,
            "measured in the baseline, and skipped in stage train (inductor): it broke",
        )
    ]
    assert failures(head) == []


def test_accuracy_that_was_to_be_evaluated_and_is_missing_is_not_a_pass():
    runs = (trace(Role.REFERENCE, accuracy=0.6), perturbed(), trace(Role.CANDIDATE))
    (case,) = judged(results(whole(parity=evidence(*runs, rows=100)))).cases
    assert case.parity[0].verdict is Parity.INSUFFICIENT_DATA
    assert "accuracy is missing" in case.parity[0].detail


def test_missing_accuracy_does_not_soften_what_is_broken():
    runs = (trace(Role.REFERENCE), perturbed(), trace(Role.CANDIDATE, scale=1.1))
    (case,) = judged(results(whole(parity=evidence(*runs, rows=100)))).cases
    assert case.parity[0].verdict is Parity.DIFFERENT_MATH


def test_a_candidate_cannot_be_its_own_reference():
    runs = (trace(Role.REFERENCE, arm="inductor"), trace(Role.CANDIDATE))
    assert failures(whole(parity=evidence(*runs))) == [
        (Rule.PARITY_UNDECIDED, "inductor: insufficient data: no reference run has seed 0")
    ]


def test_perturbations_larger_than_any_rounding_are_no_envelope():
    wide = evidence(trace(Role.REFERENCE), perturbed(0.5), trace(Role.CANDIDATE, scale=1.1))
    assert [message.partition(", so")[0] for _, message in failures(whole(parity=wide))] == [
        "inductor: insufficient sensitivity: a learning rate 1 % off would have scored 0.0245 (limit 10)"
    ]
    assert [rule for rule, _ in failures(whole(parity=replace(wide, epsilon=0.5)))] == [
        Rule.PARITY_UNDECIDED
    ]


@pytest.mark.parametrize(
    ("doubt", "says"),
    [
        (
            {"parity": numeric(trace(Role.CANDIDATE, scale=1.1))},
            "inductor: loss parity different math",
        ),
        (
            {"parity": numeric(trace(Role.CANDIDATE, start="x"))},
            "inductor: loss parity insufficient data",
        ),
        (
            {"checks": (replace(COMPILED, outcome=Outcome.FAIL, detail="0 graphs"),)},
            "compiled (inductor) failed: 0 graphs",
        ),
    ],
)
def test_a_baseline_that_was_broken_itself_is_said(doubt, says):
    comparison = judged(results(whole()), results(whole(**doubt)))
    (finding,) = comparison.judgement.findings
    assert (finding.rule, finding.severity) == (Rule.BASELINE_FAILED, Severity.WARN)
    assert finding.message.startswith(f"the baseline's own run is in doubt: {says}")
    assert comparison.cases[0].base_faults


def test_head_cannot_owe_less_than_its_baseline():
    silent = whole(due=Due(), parity=None, checks=())
    assert {rule for rule, _ in failures(silent, whole())} == {
        Rule.CHECK_FAILED,
        Rule.PARITY_UNDECIDED,
        Rule.CASE_REDUCED,
    }


def test_a_detail_that_got_worse_fails_nothing_unless_it_counted_in_the_baseline():
    slow, fast = (metric(sampled(value), name="forward_time") for value in (2.0, 1.0))
    head, base = (
        result(metric(sampled(1.0)), one, details=("forward_time",)) for one in (slow, fast)
    )
    assert failures(head, base) == []
    assert judged(results(head), results(base)).cases[0].verdict is Verdict.UNCHANGED
    assert [
        rule for rule, _ in failures(head, replace(base, case=replace(base.case, details=())))
    ] == [
        Rule.REGRESSED,
        Rule.CASE_REDUCED,
    ]


def test_an_informative_check_that_failed_fails_nothing_unless_it_is_owed_or_counted_in_the_baseline():
    told = Check(
        name="compiled", arm="inductor", outcome=Outcome.FAIL, detail="0 graphs", informative=True
    )
    times = {"arms": ARMS, "checks": (told,)}
    assert failures(result(*TIMES, **times)) == []
    assert [
        rule for rule, _ in failures(result(*TIMES, due=Due(checks=("compiled",)), **times))
    ] == [Rule.CHECK_FAILED]
    base = result(*TIMES, arms=ARMS, checks=(COMPILED,))
    assert [rule for rule, _ in failures(result(*TIMES, **times), base)] == [Rule.CHECK_FAILED]


def changed(name, detail="threads 1 -> 4", outcome=Outcome.FAIL):
    return Check(name=name, arm="eager", outcome=outcome, detail=detail)


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.UNKNOWN])
def test_a_change_of_both_sides_counts_for_neither(outcome):
    same, another = (
        changed("surroundings", outcome=outcome),
        changed("surroundings", "oneDNN True -> False", outcome),
    )
    assert findings(whole(checks=(COMPILED, same)), whole(checks=(COMPILED, same))) == []
    of_head = findings(whole(checks=(COMPILED, another)), whole(checks=(COMPILED, same)))
    assert "surroundings (eager): oneDNN True -> False" in [message for _, message in of_head]
    assert findings(whole(checks=(COMPILED, same)), whole()) != []


def test_changed_engine_code_of_both_sides_counts():
    same = whole(checks=(COMPILED, changed("untouched")))
    assert (Rule.CHECK_FAILED, "untouched (eager): threads 1 -> 4") in failures(same, same)


@pytest.mark.parametrize("name", ["surroundings", "untouched"])
def test_head_may_stop_what_base_changed(name):
    assert failures(whole(), whole(checks=(COMPILED, changed(name)))) == []


def test_nobody_owes_the_devices_clock_or_a_detail():
    device = metric(sampled(1.0), name="device_time", lane=Lane.DEVICE)
    part = metric(sampled(1.0), name="forward_time")
    assert failures(whole(device, part, details=("forward_time",))) == []
    assert [message for _, message in failures(whole(part))] == [
        "inductor forward pass: not measured, though eager was"
    ], "the same without the word for it"


PARTS_DUE = Due(times=("forward_time", "backward_time"))


def graphed(arm, outcome=Outcome.PASS):
    return Check(name="graphed", arm=arm, outcome=outcome, detail="")


def test_a_step_that_was_replayed_from_a_graph_owes_the_whole_in_place_of_its_parts():
    replayed = result(*TIMES, arms=ARMS, due=PARTS_DUE, checks=tuple(map(graphed, ARMS)))
    assert failures(replayed) == failures(replayed, replayed) == []
    assert failures(replace(replayed, metrics=TIMES[:1])) == [
        (Rule.METRIC_MISSING, "inductor step time: not measured, and every arm owes it")
    ]


def test_the_whole_of_a_replayed_step_gates_though_beside_its_parts_it_is_a_detail():
    fast, slow = (tuple(metric(sampled(value), arm=arm) for arm in ARMS) for value in (1.0, 2.0))
    both = [
        result(
            *times,
            arms=ARMS,
            due=PARTS_DUE,
            details=("step_time",),
            checks=tuple(map(graphed, ARMS)),
        )
        for times in (slow, fast)
    ]
    assert {rule for rule, _ in failures(*both)} == {Rule.REGRESSED}
    parts = [metric(sampled(1.0), name=name, arm=arm) for name in PARTS_DUE.times for arm in ARMS]
    plain = [replace(row, metrics=(*row.metrics, *parts), checks=()) for row in both]
    assert failures(*plain) == []


def test_a_step_that_was_called_plainly_owes_its_parts():
    checks = (graphed("eager"), graphed("inductor", Outcome.UNKNOWN))
    assert failures(result(*TIMES, arms=ARMS, due=PARTS_DUE, checks=checks)) == [
        (Rule.METRIC_MISSING, f"inductor {part} pass: not measured, and every arm owes it")
        for part in ("forward", "backward")
    ]


def test_losing_the_devices_clock_fails_nothing():
    device = [metric(sampled(1.0), name="device_time", lane=Lane.DEVICE, arm=arm) for arm in ARMS]
    assert failures(whole(), whole(*device)) == []
    assert [
        rule
        for rule, _ in failures(whole(), whole(*(replace(one, lane=Lane.WALL) for one in device)))
    ] == [Rule.METRIC_REMOVED] * 2


def test_a_clock_that_head_calls_the_devices_is_another_metric():
    wall = [metric(sampled(1.0), name="query_time", arm=arm) for arm in ARMS]
    turned = [replace(one, lane=Lane.DEVICE) for one in wall]
    assert {rule for rule, _ in failures(whole(*turned), whole(*wall))} == {Rule.INCOMPARABLE}


OLD, NEW = (
    tuple(peak(3e8, 3e8, name=name, arm=arm) for arm in ARMS)
    for name in ("peak_rss", "peak_anonymous")
)


def replaced(head, base, mode=BaselineMode.FILE):
    """What is said under the rule, and which rules fail."""
    comparison = judged(results(head), results(base), mode=mode)
    findings = comparison.judgement.findings
    said = [finding.message for finding in findings if finding.rule is Rule.METRIC_REPLACED]
    return (
        comparison,
        said,
        {finding.rule for finding in findings if finding.severity is Severity.FAIL},
    )


def test_a_baseline_from_before_a_metric_was_replaced_is_said_once_and_fails_nothing():
    comparison, said, failing = replaced(whole(*NEW), whole(*OLD))
    then = "the baseline has the peak resident memory of 1 case, from before peak memory was measured in its place"
    assert said == [f"{then}; save a new baseline to compare it"]
    assert failing == set()
    assert comparison.cases[0].verdict is Verdict.UNCHANGED
    gone = [pair for pair in comparison.cases[0].pairs if pair.metric == "peak_rss"]
    assert [(pair.verdict, pair.detail, pair.reason) for pair in gone] == [
        (Verdict.REMOVED, True, "peak memory took its place")
    ] * 2


@pytest.mark.parametrize(
    ("head", "base", "mode"),
    [
        (whole(), whole(*OLD), BaselineMode.FILE),
        (whole(NEW[0]), whole(*OLD), BaselineMode.FILE),
        (whole(*NEW), whole(*OLD, *NEW), BaselineMode.FILE),
        (whole(*NEW), whole(*OLD), BaselineMode.PAIRED),
    ],
    ids=["nothing took its place", "of one arm only", "base had both", "measured by one version"],
)
def test_what_is_gone_without_having_been_replaced_still_fails(head, base, mode):
    assert Rule.METRIC_REMOVED in replaced(head, base, mode)[2]


@pytest.mark.parametrize(
    ("refereed", "lacking"), [(Outcome.PASS, 0), (Outcome.UNKNOWN, 1), (None, 1)]
)
def test_a_second_arm_replaces_the_lone_check(refereed, lacking):
    fresh = Check(name="fresh", arm="eager", outcome=Outcome.PASS, detail="")
    found = (
        ()
        if refereed is None
        else (replace(fresh, name="refereed", outcome=refereed, informative=True),)
    )
    base = result(TIMES[0], arms=("eager",), checks=(fresh,))
    missing = [rule for rule, _ in failures(result(*TIMES, arms=ARMS, checks=found), base)]
    assert missing == [Rule.CHECK_FAILED] * lacking
    assert [
        rule for rule, _ in failures(result(TIMES[0], arms=("eager",), checks=found), base)
    ] == [Rule.CHECK_FAILED]
