"""What head's plan owes less than base's: each difference that matters is a finding by name, and none that does not."""

from collections.abc import Mapping
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import computed, judged, launches, metric, result, results, sampled

from ci_bench.judge.owed import other_work, reductions, successor
from ci_bench.records.comparison import BaselineMode, RunVerdict
from ci_bench.records.config import Policy, Rule, Severity
from ci_bench.records.results import (
    Case,
    Check,
    Due,
    Outcome,
    ParityEvidence,
    Role,
    Status,
    Trace,
    Unit,
)
from ci_bench.report.summary import summary

ARMS = ("eager", "kernel", "jit")
names = st.sampled_from(["accuracy", "agrees", "compiled", "finite"])
times = st.sampled_from(["step_time", "forward_time", "decode_time"])
thresholds = st.none() | st.floats(0.01, 0.5)


@st.composite
def plans(draw):
    """A case with its row as base planned it."""
    arms = ARMS[: draw(st.integers(1, 3))]
    row = result(*(metric(sampled(1.0), arm=arm) for arm in arms), arms=arms, id="functions/a[n=1]")
    due = Due(
        checks=tuple(draw(st.sets(names))), times=tuple(draw(st.sets(times))), parity=draw(st.booleans())
    )  # fmt: skip
    case = replace(
        row.case,
        suite="functions",
        params={"file": "b.py", "function": "a", "point": "n=1", "n": draw(st.integers(0, 3))},
        due=due,
        details=tuple(draw(st.sets(st.sampled_from(["backward_time", "tokens"])))),
        title=draw(st.sampled_from(["", "A"])),
        threshold=draw(thresholds),
        stages=("verify", *(f"alone {arm}" for arm in arms), "time"),
    )
    return replace(row, case=case)


LOSSES = {
    "arm": lambda case: replace(case, arms=case.arms[:-1]) if len(case.arms) > 1 else None,
    "reference": lambda case: (
        replace(case, reference=case.arms[-1]) if len(case.arms) > 1 else None
    ),
    "parameters": lambda case: replace(case, params={**case.params, "n": 9}),
    "another parameters": lambda case: replace(case, params={**case.params, "backward": True}),
    "step_time": lambda case: replace(case, details=(*case.details, "step_time")),
    "check": lambda case: (
        replace(case, due=replace(case.due, checks=case.due.checks[1:]))
        if case.due.checks
        else None
    ),
    "time": lambda case: (
        replace(case, due=replace(case.due, times=case.due.times[1:])) if case.due.times else None
    ),
    "parity": lambda case: (
        replace(case, due=replace(case.due, parity=False)) if case.due.parity else None
    ),
    "threshold": lambda case: replace(case, threshold=None) if case.threshold else None,
    "a looser threshold": lambda case: (
        replace(case, threshold=case.threshold * 1.5) if case.threshold else None
    ),
    "stage": lambda case: replace(case, stages=case.stages[1:]),
    "one arm's stage": lambda case: replace(case, stages=(case.stages[0], *case.stages[2:])),
}
GAINS = {
    "nothing": lambda case: case,
    "title": lambda case: replace(case, title="Another title"),
    "name": lambda case: replace(case, name="another"),
    "arms": lambda case: replace(
        case, arms=(*case.arms, "new"), stages=(*case.stages, "alone new")
    ),
    "order of arms": lambda case: replace(case, arms=case.arms[::-1]),
    "checks": lambda case: replace(
        case, due=replace(case.due, checks=(*case.due.checks, "further"))
    ),
    "times": lambda case: replace(case, due=replace(case.due, times=(*case.due.times, "further"))),
    "parity": lambda case: replace(case, due=replace(case.due, parity=True)),
    "threshold": lambda case: replace(case, threshold=(case.threshold or 1.0) / 2),
    "fewer details": lambda case: replace(case, details=()),
    "a new detail": lambda case: replace(case, details=(*case.details, "new_metric")),
    "stages": lambda case: replace(case, stages=(*case.stages, "seeds")),
    "another file": lambda case: replace(case, params={**case.params, "file": "moved/b.py"}),
}


@pytest.mark.parametrize("field", sorted(LOSSES))
@given(base=plans())
@settings(deadline=None)
def test_less_is_a_finding_by_name(field, base):
    if (case := LOSSES[field](base.case)) is None:
        return
    clauses = reductions(base, case)
    word = field.split()[-1].removesuffix("s") if field != "step_time" else field
    assert any(word in clause for clause in clauses), clauses
    head = replace(base, case=case)
    judgement = judged(results(head), results(base), mode=BaselineMode.PAIRED).judgement
    failing = [one for one in judgement.findings if one.rule is Rule.CASE_REDUCED]
    assert [one.severity for one in failing] == [Severity.FAIL] * len(clauses)
    assert judgement.exit_code == 1


@pytest.mark.parametrize("field", sorted(GAINS))
@given(base=plans())
@settings(deadline=None)
def test_more_is_no_finding(field, base):
    assert reductions(base, GAINS[field](base.case)) == ()


def less_of(value):
    """Each smallest way to take something out of a field's value, or to change what is in it."""
    if isinstance(value, tuple):
        return [value[:place] + value[place + 1 :] for place in range(len(value))]
    if isinstance(value, Mapping):
        changed = [{**value, name: "other"} for name in value]
        return [
            *changed,
            *({key: value[key] for key in value if key != name} for name in value),
            {**value, "more": 1},
        ]
    if isinstance(value, bool):
        return [False] if value else []
    return [None, value * 1.001] if isinstance(value, float) else [f"{value}x"]


def more_of(value):
    """Each smallest way to add to a field's value."""
    if isinstance(value, tuple):
        return [(*value, "more"), value[::-1]]
    return [True] if value is False else [value * 0.999] if isinstance(value, float) else []


MORE_IS_LESS = {"details"}
"""Of these, naming a metric that gates is a loss."""
NAMES_THE_CASE = {"id"}
"""Another case: base's is gone."""
REFUSED_BEFORE = {"suite"}
"""Plugins are held to theirs when they plan, and documents to that of a case's id."""
SAYS_NOTHING = {"title", "name", "body"}
"""For people, or judged with outputs (`test_other_code_without_outputs_fails`)."""
OWED = Due(checks=("accuracy", "finite"), times=("step_time", "forward_time"), parity=True)


def full_row():
    """A case that has something in each field of its plan, and owes nothing that it lacks."""
    brought = (
        metric(sampled(1.0), name=name, arm=arm)
        for name in OWED.times
        for arm in ("eager", "kernel")
    )
    row = result(*brought, arms=("eager", "kernel"), id="functions/a[n=1]", **trained())
    checks = tuple(
        Check(name=name, arm=arm, outcome=Outcome.PASS, detail="")
        for name in OWED.checks
        for arm in row.case.arms
    )
    stages = ("verify", "alone eager", "alone kernel", "time")
    params = {"function": "a", "n": 1, "backward": True}
    texts = {"suite": "functions", "title": "A", "body": "aa"}
    case = replace(
        row.case,
        due=OWED,
        params=params,
        details=("tokens",),
        threshold=0.02,
        stages=stages,
        **texts,
    )
    return replace(row, case=case, checks=checks)


def one_apart(case, change):
    """All cases that differ from one in one field, by what `change` makes of its value; with the field's name."""
    for one in fields(Case):
        if one.name != "due":
            yield from (
                (one.name, replace(case, **{one.name: value}))
                for value in change(getattr(case, one.name))
            )
    for one in fields(Due):
        for value in change(getattr(case.due, one.name)):
            yield f"due.{one.name}", replace(case, due=replace(case.due, **{one.name: value}))


def test_each_field_of_a_plan_is_tried():
    row = full_row()
    tried = {name for name, _ in one_apart(row.case, less_of)}
    assert tried == {one.name for one in fields(Case) if one.name != "due"} | {
        f"due.{one.name}" for one in fields(Due)
    }


def failing_rules(base, head):
    findings = judged(results(head), results(base), mode=BaselineMode.PAIRED).judgement.findings
    return {one.rule for one in findings if one.severity is Severity.FAIL}


def test_each_loss_in_one_field_fails():
    row = full_row()
    same = failing_rules(row, row)
    for name, case in one_apart(row.case, less_of):
        found = failing_rules(row, replace(row, case=case)) - same
        free = name in SAYS_NOTHING | MORE_IS_LESS | REFUSED_BEFORE
        rule = Rule.CASE_REMOVED if name in NAMES_THE_CASE else Rule.CASE_REDUCED
        assert (rule in found) is not free, (name, case, found)


def test_each_gain_in_one_field_passes():
    row = full_row()
    for name, case in one_apart(row.case, more_of):
        assert reductions(row, case) == (), (name, case)
    for detail in (*OWED.times, *(one.name for one in row.metrics)):
        assert reductions(row, replace(row.case, details=(*row.case.details, detail))) != ()


def test_a_plan_is_compared_across_versions_only_in_one_run():
    base = result(metric(sampled(1.0)), due=Due(checks=("compiled",)))
    head = replace(base, case=replace(base.case, due=Due()))
    older = replace(results(base), tool_version="0")
    for mode, found in ((BaselineMode.PAIRED, True), (BaselineMode.ARTIFACT, False)):
        rules = {one.rule for one in judged(results(head), older, mode=mode).judgement.findings}
        assert (Rule.CASE_REDUCED in rules) is found


def case_of(name, suite="functions", **params):
    made = result(id=f"{suite}/{name}").case
    return replace(
        made, suite=suite, name=name, params={"file": "b.py", "function": name, **params}
    )


@pytest.mark.parametrize(
    ("added", "renamed"),
    [
        ([case_of("zwei", shape=[32])], "zwei"),
        ([case_of("other", shape=[8]), case_of("zwei", shape=[32])], "zwei"),
        ([case_of("drei", shape=[32]), case_of("twofold", shape=[32])], "twofold"),
        ([case_of("two_", shape=[64])], "two_"),
        ([case_of("unlike_it", shape=[64])], None),
        ([case_of("two_", suite="command", shape=[32])], None),
        ([], None),
    ],
)
def test_a_rename_is_recognised(added, renamed):
    found = successor(case_of("two", shape=[32]), added)
    assert (found.name if found else None) == renamed


def test_a_removed_case_offers_its_new_name():
    one, two, three = (
        replace(
            result(metric(sampled(1.0)), id=f"functions/{name}"), case=case_of(name, shape=[32])
        )
        for name in ("one", "two", "zwei")
    )
    gone = replace(two, status=Status.SKIPPED, metrics=())
    judgement = judged(results(one, three), results(one, gone), mode=BaselineMode.PAIRED).judgement
    failing = [one.message for one in judgement.findings if one.severity is Severity.FAIL]
    assert failing == ["two is gone: base has it, and head does not; renamed to zwei?"]
    assert "renamed to zwei?" in judgement.headline


def test_a_rename_of_all_benchmarks_leads_the_headline():
    two, three = (
        replace(
            result(metric(sampled(1.0)), id=f"functions/{name}"), case=case_of(name, shape=[32])
        )
        for name in ("two", "zwei")
    )
    gone = replace(two, status=Status.SKIPPED, metrics=())
    judgement = judged(results(three), results(gone), mode=BaselineMode.PAIRED).judgement
    assert (
        judgement.headline
        == "Failed: two is gone: base has it, and head does not; renamed to zwei?"
    )
    assert {one.rule for one in judgement.findings} >= {Rule.CASE_REMOVED, Rule.BASELINE_MISSING}


def test_all_benchmarks_are_new():
    judgement = judged(
        results(result(metric(sampled(1.0)))), results(), mode=BaselineMode.PAIRED
    ).judgement
    assert (judgement.verdict, judgement.exit_code, judgement.met) == (
        RunVerdict.UNDECIDED,
        1,
        False,
    )
    assert judgement.headline == "Nothing to compare with yet: 1 new benchmark (s/a)."


def test_new_benchmarks_are_one_note():
    fine, *new = (result(metric(sampled(1.0)), id=f"s/{name}") for name in "abc")
    judgement = judged(results(fine, *new), results(fine), mode=BaselineMode.PAIRED).judgement
    assert [(one.severity, one.message) for one in judgement.findings] == [
        (Severity.NOTE, "2 new benchmarks: nothing to compare with yet (s/b, s/c)")
    ]
    assert (judgement.verdict, judgement.exit_code) == (RunVerdict.PASSED, 0)
    assert "2 new benchmarks: nothing to compare with yet" in judgement.headline


@pytest.mark.parametrize("mode", [BaselineMode.PAIRED, BaselineMode.ARTIFACT])
@pytest.mark.parametrize("status", [one for one in Status if one is not Status.OK])
def test_base_that_crashed_fails_a_paired_run(status, mode):
    fine, slow = (result(metric(sampled(1.0)), id=f"s/{name}") for name in "ab")
    judgement = judged(
        results(fine, slow), results(fine, result(id="s/b", status=status)), mode=mode
    ).judgement
    crashed = mode is BaselineMode.PAIRED and status in {Status.CRASHED, Status.TIMEOUT}
    assert judgement.exit_code == int(crashed)
    assert judgement.verdict is (RunVerdict.FAILED if crashed else RunVerdict.UNDECIDED)
    (finding,) = (one for one in judgement.findings if one.severity is not Severity.NOTE)
    assert "it broke" in finding.message


def test_other_code_without_outputs_fails():
    row = result(metric(sampled(1.0)))
    row = replace(row, case=replace(row.case, suite="functions"))
    base, head = (replace(row, case=replace(row.case, body=body)) for body in ("aa", "bb"))
    judgement = judged(results(head), results(base), mode=BaselineMode.PAIRED).judgement
    assert [(one.rule, one.severity) for one in judgement.findings] == [
        (Rule.CASE_REDUCED, Severity.FAIL),
        (Rule.OUTPUTS_UNKNOWN, Severity.WARN),
    ]
    assert judgement.exit_code == 1
    same = {"outputs": computed("same")}
    for before, after in (
        (replace(base, **same), replace(head, **same)),
        (base, base),
        (base, row),
        (row, head),
    ):
        assert (
            judged(results(after), results(before), mode=BaselineMode.PAIRED).judgement.findings
            == ()
        )


@pytest.mark.parametrize(
    ("bodies", "edited"),
    [(("aa", "bb"), True), (("aa", "aa"), False), (("", "bb"), False), (("aa", ""), False)],
)
@pytest.mark.parametrize("suite", ["command", "mine"])
def test_an_edited_command_is_named_and_judged(suite, bodies, edited):
    row = result(metric(sampled(1.0)))
    base, head = (replace(row, case=replace(row.case, suite=suite, body=body)) for body in bodies)
    comparison = judged(results(head), results(base), mode=BaselineMode.PAIRED)
    assert (comparison.judgement.findings, comparison.cases[0].edited) == ((), edited)
    assert any("The benchmark itself changed: " in line for line in summary(comparison)) is edited


def trained(steps=40, data="d", start="s", seed=0, arm="eager"):
    trace = Trace(
        role=Role.REFERENCE,
        arm=arm,
        seed=seed,
        start=start,
        data=data,
        loss=(1.0,) * steps,
        grad_norm=(1.0,) * steps,
    )
    counts = {"epsilon": 6e-8, "steps_per_epoch": 10, "evaluation_rows": 0}
    return {"parity": ParityEvidence(precision="fp32", masks=(), traces=(trace,), **counts)}


def computing(digest, **more):
    return {"outputs": computed(digest, **more)}


@pytest.mark.parametrize(
    ("base", "head", "clauses"),
    [
        (computing("a"), computing("a"), ()),
        (computing("a"), computing("b"), ()),
        (computing("a"), computing("a", start="x"), ()),
        (computing("a"), computing("b", names="renamed"), ()),
        (computing("a"), computing("b", start="x"), ("its start weights differ",)),
        (computing("a"), computing("b", inputs="x"), ("its inputs differ",)),
        (
            computing("a"),
            computing("b", start="x", inputs="x"),
            ("its start weights and inputs differ",),
        ),
        (computing("a"), computing("b", file=None), ()),
        (computing("a"), {}, ("nothing that it computes can be compared any longer",)),
        ({}, computing("a"), ()),
        (computing("a"), {"status": Status.FAILED}, ()),
        (trained(), trained(), ()),
        (trained(), trained(steps=50), ()),
        (trained(), trained(start="x"), ()),
        (trained(), trained(seed=1, data="x"), ()),
        (trained(), trained(data="x"), ("the data of its training differ",)),
        (trained(), trained(steps=15), ("its training ends after 15 steps, and base's after 40",)),
        (trained() | computing("a"), trained() | computing("b", start="x"), ()),
    ],
    ids=str,
)
def test_other_work_is_named(base, head, clauses):
    one, two = (replace(result(metric(sampled(1.0))), **side) for side in (base, head))
    assert other_work(one, two) == clauses


@pytest.mark.parametrize(("mode", "severities", "code"), [
    (BaselineMode.PAIRED, {}, 1),
    (BaselineMode.PAIRED, {Rule.CASE_REDUCED: Severity.WARN}, 0),
    (BaselineMode.ARTIFACT, {}, 0),
])  # fmt: skip
def test_other_work_fails_a_paired_run_unless_accepted(mode, severities, code):
    base, head = (
        result(metric(sampled(1.0)), outputs=computed(start, start=start)) for start in "ab"
    )
    comparison = judged(
        results(head), results(base), mode=mode, policy=Policy(severities=severities)
    )
    assert comparison.judgement.exit_code == code
    assert comparison.judgement.verdict is (RunVerdict.FAILED if code else RunVerdict.UNDECIDED)


@pytest.mark.parametrize(("suite", "code"), [("functions", 4), ("torchbench", 1)])
def test_other_inputs_of_a_function_are_incomparable(suite, code):
    row = result(metric(sampled(1.0)), id=f"{suite}/a")
    base, head = (
        replace(
            row,
            case=replace(row.case, suite=suite),
            outputs=replace(computed(inputs), inputs=inputs),
        )
        for inputs in ("aa" * 32, "bb" * 32)
    )
    judgement = judged(results(head), results(base), mode=BaselineMode.PAIRED).judgement
    assert judgement.exit_code == code
    assert "inputs differ" in " ".join(one.message for one in judgement.findings)


def program(*values, name="work", suite="command", unit=Unit.SECONDS):
    """A row of a program that reported these values in each of three runs."""
    return result(metric(launches(*[values] * 3), name=name, unit=unit), id=f"{suite}/a")


@pytest.mark.parametrize(
    ("head", "fewer"),
    [
        (program(0.001), True),  # the least of them
        (program(*[0.001] * 9), True),
        (program(*[0.001] * 10), False),
        (program(*[0.001] * 40), False),
        (program(*[0.0003] * 20), False),  # as many, and faster
        (program(*[0.003] * 7), False),  # of as long a time
        (program(*[0.001] * 9, name="other"), False),
        (program(*[1000.0] * 2, unit=Unit.COUNT), False),
        (program(*[0.001] * 9, suite="functions"), False),
    ],
)
def test_a_program_owes_as_many_values_as_base_unless_they_take_as_long(head, fewer):
    base = program(*[0.001] * 20)
    base = replace(base, case=head.case)
    clauses = other_work(base, head)
    assert bool(clauses) is fewer
    if len(head.metrics[0].launches[0].values) == 1:
        assert clauses == ("its program reports 1 value of work a run, and base's 20",)


@pytest.mark.parametrize(
    ("head", "fewer"),
    [
        ([1000.0], True),  # the highest rate of them
        ([1000.0] * 9, True),
        ([1000.0] * 10, False),
        ([3000.0] * 20, False),
        ([300.0] * 7, False),  # slower, for as long a time
        ([0.0] * 2, False),
    ],
)
def test_a_program_owes_as_many_rates_as_base(head, fewer):
    base, head = (program(*values, unit=Unit.PER_SECOND) for values in ([1000.0] * 20, head))
    assert bool(other_work(base, head)) is fewer


def test_fewer_values_fail_a_paired_run():
    base, head = results(program(*[0.001] * 20)), results(program(0.001))
    comparison = judged(head, base, mode=BaselineMode.PAIRED)
    assert comparison.judgement.exit_code == 1
    assert next(found.rule for found in comparison.judgement.findings) is Rule.CASE_REDUCED
