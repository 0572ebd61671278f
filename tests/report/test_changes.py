"""Rows of one cause: graph breaks bring other counts with them, and a reader gets one row with the line to fix."""

from dataclasses import replace

import pytest
from endings import BUILDERS, compared, ending, judged

from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Policy, Rule, Severity
from ci_bench.records.graph_breaks import COUNTS
from ci_bench.report.changes import changes
from ci_bench.report.next_step import next_step
from ci_bench.report.words import Mood


def subjects(comparison):
    return [(row.label, row.subject) for row in changes(comparison)]


def test_one_graph_break_is_one_row():
    assert subjects(compared("graph_breaks")) == [
        ("decoder", "graph breaks"),
        ("encoder", "graph breaks"),
    ]
    (row, group) = changes(compared("graph_breaks"))
    with_it = " (also frames left to eager 0 → 3, recompilations 0 → 1, captured graphs 1 → 11)"
    assert row.change == f"4 more, first at attend.py:566{with_it}"
    assert group.change.startswith(
        "4 more in each of the 3 cases, first at attend.py:566 (also frames left to eager +3,"
    )


def test_all_findings_stay_in_the_document():
    findings = compared("graph_breaks").judgement.findings
    assert sum(
        one.rule is Rule.REGRESSED and one.case == "torchbench/decoder" for one in findings
    ) == len(COUNTS)


def test_the_line_is_where_to_look_next():
    assert next_step(compared("graph_breaks")).text.startswith("Look at attend.py:566,")


def test_counts_that_improve_are_one_row():
    value = compared("graph_breaks")
    decoder = next(case for case in value.cases if case.id == "torchbench/decoder")
    better = [
        replace(pair, verdict=Verdict.IMPROVED) if pair.metric in COUNTS else pair
        for pair in decoder.pairs
    ]
    case = replace(decoder, verdict=Verdict.IMPROVED, pairs=tuple(better))
    fixed = replace(value, cases=(case,), judgement=replace(value.judgement, findings=()))
    assert [(row.word, row.subject) for row in changes(fixed)] == [("improved", "graph breaks")]


def test_other_metrics_keep_their_rows():
    assert len(subjects(compared("regressed"))) == 6


def fails(row, comparison):
    """Whether the finding of a row, or one on a case of its group, makes the gate fail."""
    if row.finding is not None:
        return row.finding.severity is Severity.FAIL
    return row.word == "regressed" and any(
        one.severity is Severity.FAIL for one in comparison.judgement.findings
    )


@pytest.mark.parametrize("severity", [None, Severity.WARN, Severity.NOTE])
@pytest.mark.parametrize("name", BUILDERS)
def test_a_cross_is_on_what_fails_the_gate_and_on_nothing_else(name, severity):
    documents = ending(name)
    comparison = documents.comparison
    if severity is not None and documents.base is not None:
        comparison = judged(
            documents.head, documents.base, policy=Policy(severities=dict.fromkeys(Rule, severity))
        ).comparison
    for row in changes(comparison):
        assert (row.mood is Mood.BAD) == fails(row, comparison), row


def test_a_group_that_warns_is_shown_as_a_warning():
    documents = ending("grouped")
    comparison = judged(
        documents.head, documents.base, policy=Policy(severities={Rule.REGRESSED: Severity.WARN})
    ).comparison
    rows = changes(comparison)
    assert len(rows) == 3
    assert {row.mood for row in rows} == {Mood.UNSURE}
    assert any(row.case is None for row in rows)
