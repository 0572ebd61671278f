"""Rows of one cause: graph breaks bring other counts with them, and a reader gets one row with the line to fix."""

from dataclasses import replace

from endings import compared

from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Rule
from ci_bench.records.graph_breaks import COUNTS
from ci_bench.report.changes import changes
from ci_bench.report.next_step import next_step


def subjects(comparison):
    return [(row.label, row.subject) for row in changes(comparison)]


def test_one_graph_break_is_one_row():
    assert subjects(compared("graph_breaks")) == [("decoder", "graph breaks"), ("encoder", "graph breaks")]
    (row, group) = changes(compared("graph_breaks"))
    with_it = " (also frames left to eager 0 → 3, recompilations 0 → 1, captured graphs 1 → 11)"
    assert row.change == f"4 more, first at attend.py:566{with_it}"
    assert group.change.startswith("4 more in all 3 cases, first at attend.py:566 (also frames left to eager +3,")


def test_all_findings_stay_in_the_document():
    findings = compared("graph_breaks").judgement.findings
    assert sum(one.rule is Rule.REGRESSED and one.case == "torchbench/decoder" for one in findings) == len(COUNTS)


def test_the_line_is_where_to_look_next():
    assert next_step(compared("graph_breaks")).text.startswith("Look at attend.py:566,")


def test_counts_that_improve_are_one_row():
    value = compared("graph_breaks")
    decoder = next(case for case in value.cases if case.id == "torchbench/decoder")
    better = [replace(pair, verdict=Verdict.IMPROVED) if pair.metric in COUNTS else pair for pair in decoder.pairs]
    case = replace(decoder, verdict=Verdict.IMPROVED, pairs=tuple(better))
    fixed = replace(value, cases=(case,), judgement=replace(value.judgement, findings=()))
    assert [(row.word, row.subject) for row in changes(fixed)] == [("improved", "graph breaks")]


def test_other_metrics_keep_their_rows():
    assert len(subjects(compared("regressed"))) == 6
