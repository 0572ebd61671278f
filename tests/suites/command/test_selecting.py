"""Which series become metrics: rules, directions, units, and what cannot be compared."""

import pytest

from ci_bench.formats.importing import MOST_VALUES
from ci_bench.formats.series import Absent, Reading, Series
from ci_bench.records.results import Better, Lane, Unit
from ci_bench.suites.command.options import SelectionRule
from ci_bench.suites.command.selecting import BadOutput, select

LOWER, HIGHER = Better.LOWER, Better.HIGHER


def series(benchmark, *values, measure="", unit="s", better=LOWER, derived=False):
    return Series(
        benchmark=benchmark,
        measure=measure,
        runs=(values,),
        unit=unit,
        better=better,
        derived=derived,
    )


READING = Reading(
    series=(
        series("sort", 1.5, 2.5, unit="ms"),
        series("sort", 4.0, measure="memory", unit="KiB"),
        series("sort", 7.0, measure="rate", unit="it/s", better=HIGHER, derived=True),
        series("score", 0.5, unit="", better=None),
        series("test[1]", 3.0, unit="count"),
    ),
    failed=(Absent(benchmark="broken", reason="no such device"),),
    skipped=(Absent(benchmark="large", reason="needs 80 GB"),),
    tool="sorter 1",
)


def chosen(*rules, reading=READING):
    return select(reading, rules, arm="eager", launch=3)


def names(selection):
    return [metric.name for metric in selection.metrics]


def test_without_rules_what_says_its_direction_and_is_not_derived_is_used() -> None:
    selection = chosen()
    assert names(selection) == ["sort", "sort__memory", "test_1_amhor2"]
    sort, memory, count = selection.metrics
    assert (sort.unit, sort.better, sort.lane, sort.arm) == (
        Unit.SECONDS,
        LOWER,
        Lane.WALL,
        "eager",
    )
    assert [(launch.launch, launch.values) for launch in sort.launches] == [(3, (0.0015, 0.0025))]
    assert (memory.unit, memory.lane, memory.launches[0].values) == (
        Unit.BYTES,
        Lane.COUNTERS,
        (4096.0,),
    )
    assert (count.unit, count.launches[0].values) == (Unit.COUNT, (3.0,))
    assert selection.undirected == ("score",)
    assert selection.names["sort__memory"] == "sort memory"
    assert (selection.failed, selection.skipped, selection.tool) == (
        READING.failed,
        READING.skipped,
        "sorter 1",
    )


def test_a_rule_gives_name_unit_and_direction() -> None:
    selection = chosen(
        SelectionRule(match="score", name="quality", better=HIGHER),
        SelectionRule(match="sort rate"),
    )
    quality = next(metric for metric in selection.metrics if metric.name == "quality")
    assert (quality.better, quality.unit, quality.launches[0].values) == (
        HIGHER,
        Unit.COUNT,
        (0.5,),
    )
    assert "sort__rate" in names(selection), "a rule that fits asks for a derived series"
    assert selection.undirected == ()


def test_a_rule_can_turn_a_direction_round_and_read_another_unit() -> None:
    (metric,) = chosen(
        SelectionRule(match="sort", unit="us", better=HIGHER), SelectionRule(match="*", use=False)
    ).metrics
    assert (metric.better, metric.launches[0].values) == (HIGHER, pytest.approx((1.5e-6, 2.5e-6)))


def test_the_first_rule_that_fits_counts() -> None:
    assert names(
        chosen(SelectionRule(match="sort memory"), SelectionRule(match="*", use=False))
    ) == ["sort__memory"]


def test_brackets_are_themselves_and_stars_and_question_marks_are_not() -> None:
    assert (
        len(
            names(
                chosen(
                    SelectionRule(match="test[1]", name="one"), SelectionRule(match="*", use=False)
                )
            )
        )
        == 1
    )
    assert (
        len(
            names(
                chosen(
                    SelectionRule(match="test[?]", name="one"), SelectionRule(match="*", use=False)
                )
            )
        )
        == 1
    )
    with pytest.raises(BadOutput, match="matches nothing"):
        chosen(SelectionRule(match="test1"))


def test_a_benchmark_that_failed_or_was_skipped_can_be_left_out_too() -> None:
    selection = chosen(
        SelectionRule(match="broken", use=False), SelectionRule(match="large", use=False)
    )
    assert (selection.failed, selection.skipped) == ((), ())


WRONG = [
    (
        [SelectionRule(match="typo*")],
        READING,
        "metrics[0].match: 'typo*' matches nothing; the output has 'sort', 'sort memory', 'sort rate'",
    ),
    (
        [SelectionRule(match="score")],
        READING,
        "metrics[0]: the tool does not say which way 'score' is better; add `better`",
    ),
    (
        [SelectionRule(match="sort*", name="x")],
        READING,
        "'sort memory' and 'sort' would both be called x",
    ),
    (
        [SelectionRule(match="*", use=False)],
        Reading(series=READING.series),
        "nothing of the output is used; it has 'sort'",
    ),
    (
        [],
        Reading(series=(series("a", 1.0, better=None),)),
        "`metrics: [{match: 'a', better: lower}]`",
    ),
    ([], Reading(series=(series("a", 0.0),)), "'a' is 0 s, which cannot be compared"),
    (
        [],
        Reading(series=(series("a", 1.0, -2.0, unit="J"),)),
        "'a' is -2 J, which cannot be compared",
    ),
    ([], Reading(series=(series("a"),)), "'a' has no number, which cannot be compared"),
    (
        [],
        Reading(series=(series("a", 1.0, derived=True),)),
        "nothing of the output is used; it has 'a'",
    ),
]


@pytest.mark.parametrize(
    ("rules", "reading", "complaint"), WRONG, ids=[complaint for *_, complaint in WRONG]
)
def test_what_cannot_be_used_is_named(rules, reading, complaint) -> None:
    with pytest.raises(BadOutput) as error:
        chosen(*rules, reading=reading)
    assert complaint in str(error.value)


def test_a_count_may_be_zero() -> None:
    (metric,) = chosen(reading=Reading(series=(series("breaks", 0.0, unit="count"),))).metrics
    assert metric.launches[0].values == (0.0,)


def test_a_score_may_be_signed() -> None:
    (metric,) = chosen(reading=Reading(series=(series("a", -2.0, 1.0, unit="score"),))).metrics
    assert metric.launches[0].values == (-2.0, 1.0)


def test_where_every_benchmark_failed_there_is_no_metric_but_the_failures() -> None:
    selection = chosen(reading=Reading(series=(), failed=READING.failed))
    assert (selection.metrics, selection.failed) == ((), READING.failed)


def test_many_samples_are_thinned_evenly() -> None:
    many = tuple(float(value) for value in range(1, 100_001))
    (metric,) = chosen(reading=Reading(series=(series("a", *many),))).metrics
    values = metric.launches[0].values
    assert len(values) == MOST_VALUES
    assert (values[0], values[-1]) == (1.0, 99_901.0)
    assert sum(values) / len(values) == pytest.approx(50_000, rel=0.01)
