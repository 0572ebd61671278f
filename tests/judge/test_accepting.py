"""Accepted changes in a comparison: as far as the bound of an entry, for its kind, metric, direction and cases alone."""

from dataclasses import replace

import pytest
from judge_builders import (
    check,
    computed,
    count,
    judged,
    launches,
    metric,
    off,
    peak,
    result,
    results,
    sampled,
)
from test_starts import BASE, side
from test_verdict import learnt

from ci_bench.judge.policy.accepting import settle_learning, suggested
from ci_bench.records.acceptance import Acceptance, Accepted, AcceptedChange, Direction
from ci_bench.records.comparison import Parity, RunVerdict
from ci_bench.records.config import Policy, Rule, Severity
from ci_bench.records.results import Better, Outcome, Status, Unit
from ci_bench.report.changes import changes
from ci_bench.report.markdown import render_comment

TIME = metric(sampled(1.0))


def entry(
    kind=Accepted.METRIC,
    *,
    bound="25%",
    case="s/a",
    name="step_time",
    direction=Direction.HIGHER,
    expired=False,
):
    of_metric = {"metric": name, "direction": direction} if kind is Accepted.METRIC else {}
    change = AcceptedChange(
        kind=kind,
        case=case,
        bound=bound,
        reason="a feature",
        author="ann",
        pull_request=7,
        expires="2030-01-01",
        **of_metric,
    )
    return Acceptance(change=change, granted="ann, on main", expired=expired)


def against(head, *accepted, base=TIME):
    """The comparison of one case of this metric, or of these fields."""
    cases = [result(**one) if isinstance(one, dict) else result(one) for one in (head, base)]
    return judged(
        results(cases[0]), results(cases[1]), policy=Policy(drift=0.01), accepted=accepted
    )


def rules(comparison):
    return [finding.rule for finding in comparison.judgement.findings]


def slower(share):
    return metric(sampled(1.0 + share))


@pytest.mark.parametrize(
    ("share", "passes"), [(0.10, True), (0.20, True), (0.2501, False), (0.30, False), (3.0, False)]
)
def test_a_time_passes_up_to_its_bound(share, passes):
    comparison = against(slower(share), entry())
    assert comparison.judgement.met is passes
    assert rules(comparison) == (
        [Rule.ACCEPTED] if passes else [Rule.REGRESSED, Rule.ACCEPTANCE_UNUSED]
    )


OTHERS = {
    "another metric": entry(name="peak_allocated"),
    "a metric that only begins alike": entry(name="step_time_p99"),
    "the other direction": entry(direction=Direction.LOWER),
    "another case": entry(case="s/b"),
    "a part of the case's name": entry(case="s"),
    "outputs": entry(Accepted.OUTPUTS, bound="any"),
    "learning": entry(Accepted.LEARNING, bound=1e9),
    "an expired one": entry(expired=True),
    "the word of another kind": entry(bound="any"),
    "a value that is exceeded": entry(bound=1.19),
    "nothing": entry(bound="0%"),
}


@pytest.mark.parametrize("one", OTHERS.values(), ids=OTHERS)
def test_another_entry_accepts_nothing(one):
    comparison = against(slower(0.2), one)
    assert not comparison.judgement.met
    assert Rule.ACCEPTED not in rules(comparison)


def test_a_pattern_covers_cases():
    assert against(slower(0.2), entry(case="s/*")).judgement.met


def test_one_entry_does_not_cover_another_metric():
    head, base = result(slower(0.2), peak(2**30, 2**30)), result(TIME, peak(2**29, 2**29))
    both = judged(results(head), results(base), policy=Policy(drift=0.01), accepted=(entry(),))
    assert not both.judgement.met
    assert {*rules(both)} == {Rule.ACCEPTED, Rule.REGRESSED}


def test_every_arm_must_be_within_the_bound():
    def arms(second):
        return result(slower(0.2), metric(sampled(second), arm="other"), arms=("eager", "other"))

    base = result(TIME, metric(sampled(1.0), arm="other"), arms=("eager", "other"))
    policy = Policy(drift=0.01)
    assert judged(
        results(arms(1.2)), results(base), policy=policy, accepted=(entry(),)
    ).judgement.met
    assert not judged(
        results(arms(1.4)), results(base), policy=policy, accepted=(entry(),)
    ).judgement.met


def test_counts_have_a_value_as_bound():
    def breaks(number, *accepted):
        heads = result(TIME, count(number, arm="eager"))
        return judged(
            results(heads), results(result(TIME, count(0, arm="eager"))), accepted=accepted
        ).judgement.met

    of_count = entry(name="graph_breaks", bound=4)
    assert (breaks(4), breaks(4, of_count), breaks(5, of_count)) == (False, True, False)
    assert not breaks(4, entry(name="graph_breaks", bound="400%")), "nothing is a share of zero"


def test_rates_get_worse_downwards():
    rate = {"unit": Unit.PER_SECOND, "better": Better.HIGHER, "name": "tokens_per_s"}
    base, head = metric(sampled(100.0), **rate), metric(sampled(80.0), **rate)
    down = entry(name="tokens_per_s", direction=Direction.LOWER, bound="25%")
    assert against(head, down, base=base).judgement.met
    assert not against(
        head, replace(down, change=replace(down.change, bound="15%")), base=base
    ).judgement.met
    assert not against(
        head, replace(down, change=replace(down.change, direction=Direction.HIGHER)), base=base
    ).judgement.met
    assert against(
        head, replace(down, change=replace(down.change, bound=79)), base=base
    ).judgement.met
    assert not against(
        head, replace(down, change=replace(down.change, bound=81)), base=base
    ).judgement.met


def test_a_suspected_change_can_be_accepted():
    base = metric(launches([1.0]))
    assert Rule.SUSPECTED in rules(against(metric(launches([5.0])), base=base))
    assert not against(metric(launches([5.0])), entry(), base=base).judgement.met
    assert against(metric(launches([5.0])), entry(bound="450%"), base=base).judgement.met


def of_outputs(head, *accepted):
    sides = (result(TIME, outputs=head), result(TIME, outputs=computed("base")))
    return judged(results(sides[0]), results(sides[1]), accepted=accepted)


@pytest.mark.parametrize(
    ("bound", "passes"), [(500_000, True), (500_001, True), (400_000, False), ("any", True)]
)
def test_outputs_pass_up_to_their_bound(bound, passes):
    comparison = of_outputs(off("other", (0.5, 1e-6)), entry(Accepted.OUTPUTS, bound=bound))
    assert comparison.judgement.met is passes


def test_any_tensor_beyond_the_bound_fails():
    comparison = of_outputs(
        off("other", (1e-5, 1e-6), (0.5, 1e-6)), entry(Accepted.OUTPUTS, bound=20)
    )
    assert not comparison.judgement.met


def test_outputs_without_a_size_need_the_word():
    head = off("other", (None, None))
    assert not of_outputs(head, entry(Accepted.OUTPUTS, bound=1e300)).judgement.met
    assert of_outputs(head, entry(Accepted.OUTPUTS, bound="any")).judgement.met


def of_learning(head, *accepted):
    sides = (result(TIME, parity=head), result(TIME, parity=learnt()))
    return judged(results(sides[0]), results(sides[1]), accepted=accepted)


def test_learning_passes_up_to_its_bound():
    other = learnt(scale=1.1)
    score = max(
        of_learning(other).cases[0].learning.loss_score,
        of_learning(other).cases[0].learning.grad_norm_score,
    )
    assert not of_learning(other).judgement.met
    assert of_learning(other, entry(Accepted.LEARNING, bound=score)).judgement.met
    assert not of_learning(other, entry(Accepted.LEARNING, bound=0.9 * score)).judgement.met
    assert not of_learning(other, entry(Accepted.LEARNING, bound="50%")).judgement.met, (
        "its scores are no shares"
    )
    assert not of_learning(other, entry(Accepted.OUTPUTS, bound="any")).judgement.met


def test_learning_over_seeds_has_a_share_as_bound():
    heads = results(side("head", (0.05, 0.054, 0.047)))
    assert not judged(
        heads, results(BASE), accepted=(entry(Accepted.LEARNING, bound="4%"),)
    ).judgement.met
    accepted = judged(
        heads, results(BASE), accepted=(entry(Accepted.LEARNING, bound="6%", case="*"),)
    )
    assert Rule.ACCEPTED in rules(accepted)
    assert Rule.LEARNING_CHANGED not in rules(accepted)


def test_a_finite_distance_of_a_run_that_is_not_finite_is_never_accepted():
    """Its score may be of the steps before."""
    (case,) = of_learning(learnt(scale=1.1)).cases
    everything = (entry(Accepted.LEARNING, bound=1e300),)
    assert settle_learning(everything, case, Rule.LEARNING_CHANGED, "m")[0] is Rule.ACCEPTED
    broken = replace(case, learning=replace(case.learning, verdict=Parity.NON_FINITE))
    assert settle_learning(everything, broken, Rule.LEARNING_CHANGED, "m") == (
        Rule.LEARNING_CHANGED,
        "m",
    )


def test_a_run_that_is_not_finite_is_never_accepted():
    broken = learnt(loss=[1.0] * 30 + [float("inf")] * 30)
    comparison = of_learning(broken, entry(Accepted.LEARNING, bound=1e300))
    assert Rule.ACCEPTED not in rules(comparison)
    assert not comparison.judgement.met


EVERYTHING = (
    entry(case="*", bound=1e300),
    entry(Accepted.OUTPUTS, case="*", bound="any"),
    entry(Accepted.LEARNING, case="*", bound=1e300),
)
NEVER = {
    "a failed check": (result(TIME, checks=(check(),)), result(TIME)),
    "a clock that disagrees": (
        result(TIME, checks=(replace(check(), name="witnessed"),)),
        result(TIME),
    ),
    "a case that failed": (result(status=Status.FAILED), result(TIME)),
    "a metric that is gone": (result(TIME), result(TIME, peak(1, 1))),
    "a case that owes less": (
        result(TIME),
        result(TIME, metric(sampled(1.0), arm="b"), arms=("eager", "b")),
    ),
}


@pytest.mark.parametrize(("head", "base"), NEVER.values(), ids=NEVER)
def test_nothing_else_can_be_accepted(head, base):
    also = result(TIME, id="s/also")
    assert not judged(results(head, also), results(base, also), accepted=EVERYTHING).judgement.met


def test_a_removed_case_cannot_be_accepted():
    also = result(TIME, id="s/also")
    assert not judged(results(also), results(also, result(TIME)), accepted=EVERYTHING).judgement.met


def messages(comparison, rule=Rule.ACCEPTANCE_UNUSED):
    return [finding.message for finding in comparison.judgement.findings if finding.rule is rule]


def test_an_entry_that_nothing_needs_is_reported():
    assert messages(against(TIME, entry())) == [
        "step_time of s/a: accepted, but nothing got worse; remove the entry"
    ]
    assert "no such case" in messages(against(TIME, entry(case="s/z*")))[0]
    assert (
        "until 2030-01-01, which has passed"
        in messages(against(slower(0.2), entry(expired=True)))[0]
    )
    assert against(TIME, entry()).judgement.verdict is RunVerdict.PASSED


def test_an_undecided_metric_may_need_its_entry():
    noisy = metric(launches(*([x * jump for x in (0.9, 1.0, 1.1)] for jump in (0.7, 1.0, 1.4))))
    assert messages(against(noisy, entry())) == []
    assert messages(against({"status": Status.CRASHED}, entry())) == []


def test_an_exceeded_bound_is_named():
    assert messages(against(slower(0.3), entry())) == [
        "step_time of s/a: accepted up to 25 %, and the change is larger or has another measure"
    ]


def test_the_policy_can_forbid_it():
    strict = Policy(drift=0.01, severities={Rule.ACCEPTED: Severity.FAIL})
    head, base = results(result(slower(0.2))), results(result(TIME))
    assert not judged(head, base, policy=strict, accepted=(entry(),)).judgement.met


def test_the_report_names_who_and_why():
    comparison = against(slower(0.2), entry())
    assert comparison.judgement.headline == "Passed: 1 case, 1 metric worse; 1 change accepted."
    (row,) = changes(comparison)
    assert (row.word, row.subject, row.head) == ("accepted", "step time", "1.20 s")
    text = render_comment(comparison)
    assert "accepted up to 25 % by ann, on main (a feature)" in text
    assert text.index("accepted up to 25 %") < text.index("<details>")


def test_cases_that_are_accepted_are_in_no_group():
    heads = results(*(result(slower(0.2), id=f"s/k[n={n}]") for n in range(4)))
    bases = results(*(result(TIME, id=f"s/k[n={n}]") for n in range(4)))
    comparison = judged(heads, bases, policy=Policy(drift=0.01), accepted=(entry(case="s/*"),))
    assert {row.word for row in changes(comparison)} == {"accepted"}


SUGGESTED = {
    "a time": (against(slower(0.2)), Rule.REGRESSED, ("--metric", "step_time", "--bound", "25%")),
    "outputs": (
        of_outputs(off("o", (0.5, 1e-6))),
        Rule.OUTPUTS_CHANGED,
        ("--outputs", "--bound", "630000"),
    ),
    "outputs without a size": (
        of_outputs(off("o", (None, None))),
        Rule.OUTPUTS_CHANGED,
        ("--outputs", "--bound", "any"),
    ),
    "a check": (against({"checks": (check(Outcome.FAIL),)}), Rule.CHECK_FAILED, ()),
}


@pytest.mark.parametrize(("comparison", "rule", "words"), SUGGESTED.values(), ids=SUGGESTED)
def test_an_entry_is_suggested(comparison, rule, words):
    assert suggested(rule, comparison.cases[0]) == words


def test_a_suggested_entry_accepts_the_change():
    heads = {"25%": slower(0.2), "630000": off("o", (0.5, 1e-6)), "any": off("o", (None, None))}
    for _, _, words in SUGGESTED.values():
        if "--metric" in words:
            assert against(heads[words[-1]], entry(bound=words[-1])).judgement.met
        elif words:
            bound = words[-1] if words[-1] == "any" else float(words[-1])
            assert of_outputs(heads[words[-1]], entry(Accepted.OUTPUTS, bound=bound)).judgement.met
