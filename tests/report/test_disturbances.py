"""Warnings of a disturbed machine are one row: they are no case's own."""

from report_builders import HALF, REVIEWS, case, comparison

from ci_bench.records.comparison import Finding
from ci_bench.records.config import Rule, Severity
from ci_bench.records.results import Check, Outcome
from ci_bench.report.changes import changes, rest
from ci_bench.report.markdown import render_comment

UNSTEADY = "steady ({}): not steady after 1.2 s of warm-up (load 1.6 on 2 cores); stop other work on this machine"


def disturbed(*where, rule=Rule.DISTURBED, severity=Severity.WARN):
    found = tuple(
        Finding(rule=rule, severity=severity, message=UNSTEADY.format(arm), case=name)
        for name, arm in where
    )
    cases = (
        case(name, checks=tuple(map(unsteady, ("eager", "inductor")))) for name in (REVIEWS, HALF)
    )
    return comparison(*cases, headline="Passed: 2 cases.", findings=found)


def unsteady(arm):
    return Check(
        name="steady", arm=arm, outcome=Outcome.UNKNOWN, detail=UNSTEADY.partition(": ")[2]
    )


def test_several_arms_are_one_row_with_how_many_they_are():
    of = disturbed((REVIEWS, "eager"), (REVIEWS, "inductor"), (HALF, "eager"))
    (row,) = changes(of)
    assert (row.case, row.label, row.subject) == (None, "2 cases", "steady")
    assert row.change.startswith("3 arms of 2 cases, such as: not steady after 1.2 s")
    assert "2 cases unchanged" in rest(of)


def test_the_fold_still_has_each_of_them():
    text = render_comment(disturbed((REVIEWS, "eager"), (HALF, "eager")))
    table, _, folds = text.partition("<details>")
    assert table.count("not steady") == 1
    assert folds.count("**disturbed**") == 2


def test_one_alone_keeps_its_case():
    (row,) = changes(disturbed((REVIEWS, "eager")))
    assert (row.case.id, row.subject) == (REVIEWS, "steady")
    assert row.change.startswith("not steady after")


def test_what_fails_keeps_a_row_each():
    rows = changes(disturbed((REVIEWS, "eager"), (HALF, "eager"), severity=Severity.FAIL))
    assert [row.case.id for row in rows] == [REVIEWS, HALF]


def test_other_warnings_keep_a_row_each():
    rows = changes(disturbed((REVIEWS, "eager"), (HALF, "eager"), rule=Rule.CHECK_UNKNOWN))
    assert [row.case.id for row in rows] == [REVIEWS, HALF]
