"""Head's outputs beside base's: the same bytes, within rounding, changed, or unknown with its reason."""

from dataclasses import replace

import pytest
from judge_builders import computed, judged, metric, off, result, results, sampled

from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Policy, Rule, Severity
from ci_bench.records.outputs import Sameness, TensorError
from ci_bench.records.results import Status

TIME = metric(sampled(1.0))
BASE = computed("base")
MISSING = TensorError(
    name="outputs of step 1: 1", error=None, allowed=None, fault="head does not compute it"
)


def compared(head, base=BASE, **more):
    comparison = judged(
        results(result(TIME, outputs=head)), results(result(TIME, outputs=base)), **more
    )
    (case,) = comparison.cases
    found = [
        (finding.rule, finding.severity)
        for finding in comparison.judgement.findings
        if finding.rule.startswith("outputs")
    ]
    return case.outputs, found, comparison.judgement


@pytest.mark.parametrize(
    "more", [{}, {"names": "renamed"}, {"start": "other", "inputs": "other"}], ids=str
)
def test_the_same_bytes_are_the_same_computation_whatever_they_began_with(more) -> None:
    found, rules, judgement = compared(computed("base", **more))
    assert (found.verdict, rules, judgement.met) == (Sameness.BITWISE, [], True)
    assert found.detail == "3 tensors equal base bit for bit"


def test_what_rounding_explains_is_no_change() -> None:
    found, rules, _ = compared(off("reordered", (1e-7, 1e-6), (0.0, 0.0)))
    assert (found.verdict, rules) == (Sameness.WITHIN_ROUNDING, [])
    assert "off by 1e-07, rounding explains 1e-06" in found.detail


@pytest.mark.parametrize(
    "errors",
    [((0.5, 1e-6),), ((1e-7, 1e-6), (2e-6, 1e-6)), ((None, 1e-6),)],
    ids=["far off", "one of two", "not a number"],
)
def test_what_rounding_does_not_explain_fails_and_is_named_in_the_headline(errors) -> None:
    found, rules, judgement = compared(off("other", *errors))
    assert (found.verdict, rules) == (Sameness.CHANGED, [(Rule.OUTPUTS_CHANGED, Severity.FAIL)])
    assert (judgement.met, judgement.exit_code) == (False, 1)
    assert "outputs differ from base" in judgement.headline


def test_a_tensor_that_head_no_longer_computes_is_a_change() -> None:
    head = off("other", (0.0, 0.0))
    head = replace(head, beside=replace(head.beside, worst=(MISSING,)))
    found, rules, _ = compared(head)
    assert (found.verdict, rules) == (Sameness.CHANGED, [(Rule.OUTPUTS_CHANGED, Severity.FAIL)])
    assert "outputs of step 1: 1: head does not compute it" in found.detail


FAR = (0.5, 1e-6)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (off("other", FAR, start="x"), "the start weights differ"),
        (off("other", FAR, inputs="x"), "the inputs differ"),
        (off("other", FAR, start="x", inputs="x"), "the start weights and the inputs differ"),
        (
            off("other", unknown="none of the 3 outputs is larger than its own rounding"),
            "larger than its own rounding",
        ),
        (
            computed(
                "other", file=None, remark="3 tensors of 2,000,000,000 bytes are more than is kept"
            ),
            "more than is kept",
        ),
        (off("other", FAR, base="another base"), "base's tensors were not at hand"),
        (None, "nothing that head's computed was kept"),
        (computed("other", arm="jit"), "base kept what eager computes"),
    ],
    ids=[
        "start",
        "inputs",
        "both",
        "blind",
        "too large",
        "held against another base",
        "not kept",
        "another arm",
    ],
)
def test_what_cannot_be_told_says_why_and_warns(head, said) -> None:
    found, rules, judgement = compared(head)
    assert (found.verdict, rules) == (Sameness.UNKNOWN, [(Rule.OUTPUTS_UNKNOWN, Severity.WARN)])
    assert said in found.detail
    assert judgement.met


def test_renamed_weights_in_their_order_are_the_same_start_and_swapped_ones_are_not() -> None:
    renamed = off("other", (0.0, 1e-6), names="renamed")
    assert compared(renamed)[0].verdict is Sameness.WITHIN_ROUNDING
    swapped = replace(BASE.start, named="f" * 64)
    assert compared(replace(off("other", FAR), start=swapped))[0].verdict is Sameness.UNKNOWN


@pytest.mark.parametrize(
    ("drawn", "drawn_by_base", "verdict"),
    [
        ("two masks", "one mask", Sameness.UNKNOWN),
        (None, "one mask", Sameness.UNKNOWN),
        ("one mask", None, Sameness.CHANGED),
        ("one mask", "one mask", Sameness.CHANGED),
    ],
)
def test_other_random_numbers_excuse_a_difference_only_where_base_draws_some(
    drawn, drawn_by_base, verdict
) -> None:
    found, _, _ = compared(off("other", FAR, drawn=drawn), computed("base", drawn=drawn_by_base))
    assert found.verdict is verdict


def test_other_random_numbers_do_not_matter_where_the_outputs_agree() -> None:
    found, _, _ = compared(
        off("other", (1e-7, 1e-6), drawn="two masks"), computed("base", drawn="one mask")
    )
    assert found.verdict is Sameness.WITHIN_ROUNDING


def test_a_suite_that_keeps_nothing_has_no_finding() -> None:
    found, rules, _ = compared(None, None)
    assert (found, rules) == (None, [])


@pytest.mark.parametrize("failing", ["base", "head"])
def test_a_side_that_failed_has_no_finding_of_its_outputs(failing) -> None:
    head, base = (result(TIME, outputs=one, status=Status.FAILED if name == failing else Status.OK)
                  for name, one in (("head", off("other", FAR)), ("base", BASE)))  # fmt: skip
    assert judged(results(head), results(base)).cases[0].outputs is None


def test_two_machines_are_not_compared() -> None:
    head, base = (
        results(result(TIME, outputs=off("other", FAR))),
        results(result(TIME, outputs=BASE), identity={"gpu": "L4"}),
    )
    assert judged(head, base, mode=BaselineMode.FILE).cases[0].outputs is None


def test_the_policy_may_let_a_repository_change_what_it_computes() -> None:
    policy = Policy(severities={Rule.OUTPUTS_CHANGED: Severity.NOTE})
    _, rules, judgement = compared(off("other", FAR), policy=policy)
    assert (rules, judgement.met) == ([(Rule.OUTPUTS_CHANGED, Severity.NOTE)], True)


def test_the_furthest_off_comes_first_and_what_has_no_figure_before_it() -> None:
    errors = {"a little": (2e-6, 1e-6), "no number": (None, 1e-6), "a lot": (0.5, 1e-6)}
    heads = [
        result(TIME, id=f"s/{name}", outputs=off(name, error)) for name, error in errors.items()
    ]
    bases = [result(TIME, id=f"s/{name}", outputs=BASE) for name in errors]
    found = [
        one.case
        for one in judged(results(*heads), results(*bases)).judgement.findings
        if one.rule is Rule.OUTPUTS_CHANGED
    ]
    assert found == ["s/no number", "s/a lot", "s/a little"]


def test_the_output_that_is_farthest_beyond_its_rounding_comes_first() -> None:
    rows = {
        "loose": off("loose", (2.0, 1.0)),
        "tight": off("tight", (0.5, 0.1)),
        "gone": off("gone", (None, 0.1)),
    }
    head = results(*(result(TIME, id=f"s/{name}", outputs=one) for name, one in rows.items()))
    base = results(*(result(TIME, id=f"s/{name}", outputs=BASE) for name in rows))
    findings = judged(head, base).judgement.findings
    assert [one.case for one in findings if one.rule is Rule.OUTPUTS_CHANGED] == [
        "s/gone",
        "s/tight",
        "s/loose",
    ]


@pytest.mark.parametrize(("number", "said"), [(3, ""), (4, " and 1 more"), (5, " and 2 more")])
def test_three_tensors_are_named_and_the_others_are_counted(number, said) -> None:
    found, _, _ = compared(off("other", *[FAR] * number))
    assert found.detail.count("is off by") == 3
    assert found.detail.endswith("times what rounding explains" + said)


def test_what_one_side_kept_is_counted_though_nothing_can_be_compared() -> None:
    for head, base, lacking in ((None, BASE, "head"), (BASE, None, "base")):
        found, _, _ = compared(head, base)
        assert (found.verdict, found.tensors) == (Sameness.UNKNOWN, BASE.tensors)
        assert f"nothing that {lacking}'s computed was kept" in found.detail
