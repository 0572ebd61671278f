"""What is drawn, as values: where samples stand, which units, which intervals, which steps."""

import math
from dataclasses import replace

import pytest
from report_builders import ENDINGS, case, comparison, pair, paired_run, regressed
from report_documents import DIVERGES, STEPS, paired

from ci_bench.commands.judging import Baseline, judge, material, page
from ci_bench.records.comparison import BaselineMode, Interval, Verdict
from ci_bench.records.config import Policy
from ci_bench.records.results import Launch, Role, Unit
from ci_bench.report.charts.overview import FULL, MOST_CHANGES, case_charts, change_chart
from ci_bench.report.charts.values import axis, density, short


def charts(number: int = 0, head=None):
    made = paired()
    return case_charts(made.comparison.cases[number], material(head or made.head, made.base))


def with_metric(**fields):
    """Head's document with its first case's step times changed."""
    head = paired().head
    row = head.cases[0]
    metrics = tuple(
        replace(one, **fields) if one.name == "step_time" else one for one in row.metrics
    )
    return replace(head, cases=(replace(row, metrics=metrics), *head.cases[1:]))


@pytest.mark.parametrize(
    ("largest", "unit", "name"),
    [
        (2.0, Unit.SECONDS, "s"),
        (0.02, Unit.SECONDS, "ms"),
        (3e-7, Unit.SECONDS, "µs"),
        (3 * 2**30, Unit.BYTES, "GiB"),
        (17, Unit.BYTES, "B"),
        (0.0, Unit.SECONDS, "s"),
        (3, Unit.COUNT, "count"),
    ],
)
def test_an_axis_has_one_unit_in_which_the_largest_is_at_least_one(
    largest: float, unit: Unit, name: str
) -> None:
    assert axis([0.0, largest], unit)[1] == name


def test_figures_are_short() -> None:
    assert (short(0.123456789), short(123456789.0)) == (0.123457, 123457000.0)


def test_samples_stand_where_they_were_taken() -> None:
    (chart,) = charts().samples
    for one in chart.series:
        where = chart.places[one.places]
        assert list(where.at) == sorted(where.at)
        assert [math.floor(at) for at in where.at[:4]] == [0, 0, 1, 1]
        assert len(where.launches) == len(where.at) == len(one.values)
    assert len(chart.places) == 1, "measured in turns"
    assert chart.starts == (4.0, 8.0, 12.0, 16.0, 20.0)


def test_samples_without_blocks_follow_one_another() -> None:
    launches = tuple(Launch(launch=number, values=(0.01, 0.02, 0.03)) for number in range(2))
    (chart,) = charts(head=with_metric(launches=launches)).samples
    head = next(one for one in chart.series if one.label.startswith("head"))
    assert chart.places[head.places].at == (0.5, 1.5, 2.5, 4.5, 5.5, 6.5)
    assert head.doubtful == ()


@pytest.mark.parametrize("size", [1e-300, 1e-20, 1.0, 1e270])
def test_samples_keep_five_digits_of_a_typical_one_however_large_they_are(size: float) -> None:
    launch = Launch(launch=0, values=tuple(size * factor for factor in (1.0, 1.00004, 1.23456789)))
    (chart,) = charts(head=with_metric(launches=(launch,))).samples
    head = next(one for one in chart.series if one.label.startswith("head"))
    assert [value / head.values[0] for value in head.values] == pytest.approx(
        [1.0, 1.0, 1.2346], rel=1e-9
    )


def test_the_interval_lies_around_the_other_sides_median() -> None:
    (chart,) = charts().samples
    series = {one.label: one for one in chart.series}
    found = next(
        one
        for one in paired().comparison.cases[0].pairs
        if (one.metric, one.arm) == ("step_time", "inductor")
    )
    expected = tuple(
        short(series["base · inductor"].median / bound)
        for bound in (found.interval.high, found.interval.low)
    )
    assert series["head · inductor"].interval == expected
    assert series["base · inductor"].interval is None


def test_very_many_samples_are_thinned_and_counted_but_doubtful_ones_stay() -> None:
    number = 5 * FULL.samples
    launch = Launch(
        launch=1,
        values=(0.01,) * number,
        blocks=tuple(index * 4 // number for index in range(number)),
    )
    (chart,) = charts(head=with_metric(launches=(launch,))).samples
    head = next(one for one in chart.series if one.label.startswith("head"))
    assert len(head.values) <= 2 * FULL.samples
    assert len(head.values) + head.left_out == number
    assert len(head.doubtful) > 100


def test_curves_hold_every_step_and_the_first_divergent_one() -> None:
    found = charts()
    assert [(one.signal, one.first_step) for one in found.curves] == [
        ("loss", DIVERGES),
        ("grad_norm", None),
    ]
    assert all(one.steps == tuple(range(STEPS)) for one in found.curves)
    assert {len(curve.values) for one in found.curves for curve in one.curves} == {STEPS}
    (score, _) = found.scores
    assert max(score.curves[0].values[:DIVERGES]) < score.limit < score.curves[0].values[DIVERGES]


def test_a_long_training_is_thinned_but_keeps_its_divergence_and_its_end() -> None:
    made = paired()
    row = made.head.cases[0]
    traces = tuple(
        replace(one, loss=one.loss * 50, grad_norm=one.grad_norm * 50) for one in row.parity.traces
    )
    head = replace(made.head, cases=(replace(row, parity=replace(row.parity, traces=traces)),))
    finding = replace(made.comparison.cases[0].parity[0], first_step=1234)
    told = replace(made.comparison.cases[0], parity=(finding,))
    chart = case_charts(told, material(head, made.base)).curves[0]
    assert len(chart.steps) <= FULL.steps + 2
    assert {0, 1234, 50 * STEPS - 1} <= set(chart.steps)
    assert chart.total == 50 * STEPS


def without_norms(document, roles=frozenset(Role)):
    """The document with its trainings' losses, and no gradient norms of these roles."""
    rows = [row for row in document.cases if row.parity is not None]
    traces = {
        row.case.id: tuple(
            replace(one, grad_norm=()) if one.role in roles else one for one in row.parity.traces
        )
        for row in rows
    }
    silent = {
        row.case.id: replace(row, parity=replace(row.parity, traces=traces[row.case.id]))
        for row in rows
    }
    return replace(document, cases=tuple(silent.get(row.case.id, row) for row in document.cases))


@pytest.mark.parametrize("roles", [frozenset(Role), {Role.CANDIDATE}, {Role.REFERENCE}])
def test_only_recorded_signals_are_drawn(roles) -> None:
    made = paired()
    head, base = without_norms(made.head, roles), without_norms(made.base)
    baseline = Baseline(mode=BaselineMode.PAIRED, results=base)
    judged = judge(head, baseline, policy=Policy(), folder=None)
    assert "gradient norm 0" not in page(judged, head=head, base=base)
    scores = [one.grad_norm_score for case in judged.cases for one in case.parity]
    assert scores
    assert not any(scores)
    assert None in scores
    found = case_charts(judged.cases[0], material(head, base))
    drawn = {one.signal for one in found.curves}
    assert drawn == ({"loss"} if roles == frozenset(Role) else {"loss", "grad_norm"})
    assert {one.signal for one in found.scores} <= {"loss"}


def test_a_run_that_both_sides_have_is_one_curve() -> None:
    labels = [curve.label for curve in charts(3).curves[0].curves]
    assert labels == ["head · eager (reference)", "head · inductor"]
    assert [curve.label for curve in charts().curves[0].curves] == [*labels, "base · inductor"]


def test_the_more_cases_the_less_of_each_is_drawn() -> None:
    assert density(1) == density(50) == FULL
    assert density(200).samples < FULL.samples
    assert min(density(10**6).samples, density(10**6).steps) >= 30


def test_changes_are_signed_so_that_more_is_worse() -> None:
    chart = change_chart(paired_run())
    worst = chart.rows[0]
    assert (worst.verdict, worst.mood) == ("regressed", "bad")
    assert worst.low < worst.change < worst.high
    assert worst.change == pytest.approx(5.1, abs=0.01)
    assert worst.threshold == 1.0


def test_only_so_many_changes_are_drawn_and_the_rest_is_counted() -> None:
    many = comparison(
        case(
            pairs=tuple(pair(f"m{n}", verdict=Verdict.UNCHANGED) for n in range(MOST_CHANGES + 7))
        ),
        headline="x",
    )
    assert (len(change_chart(many).rows), change_chart(many).left_out) == (MOST_CHANGES, 7)


@pytest.mark.parametrize("extreme", [5e-324, 1e-300, 1e300, 1.7e308])
def test_no_number_that_a_document_can_hold_keeps_a_page_from_being_written(extreme: float) -> None:
    """What is infinite after a division is left out; JSON has no word for it."""
    made = paired()
    row = made.comparison.cases[0]
    bounds = Interval(low=extreme, high=extreme, level=0.95)
    pairs = tuple(replace(one, speedup=extreme, interval=bounds) for one in row.pairs)
    value = replace(made.comparison, cases=(replace(row, pairs=pairs), *made.comparison.cases[1:]))
    for values in ((extreme, 1.0), (extreme, extreme), (extreme, 1.0, 1.0), (-extreme, -extreme)):
        launches = (Launch(launch=0, values=values),)
        for head in (made.head, with_metric(launches=launches)):
            assert page(value, head=head, base=made.base)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_can_be_drawn_from_the_comparison_alone(ending: str) -> None:
    value = ENDINGS[ending]()
    for one in value.cases:
        found = case_charts(one, material(None, None))
        assert (found.id, found.samples, found.curves) == (one.id, (), ())
    assert change_chart(regressed()).rows


def test_what_all_rows_of_dots_are_of_is_said_once() -> None:
    memory, compilation = charts().dots
    assert (memory.arm, compilation.arm) == ("", "inductor")
    assert all(" · " in row.label for row in memory.rows)
    labels = [row.label for row in compilation.rows]
    assert not any("inductor" in label for label in labels)
    assert len({*labels}) == len(labels)
