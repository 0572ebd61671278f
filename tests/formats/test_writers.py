"""What a writer writes, its reader reads again: equal but for what docs/formats.md says is lost."""

import csv
import io
import json
from dataclasses import replace

import pytest
from records_builders import RESULTS

from ci_bench.formats import catalogue, flat_csv, pytest_benchmark
from ci_bench.formats.exporting import Export, from_reading, from_results
from ci_bench.formats.series import Absent, Series
from ci_bench.formats.units import interpret
from ci_bench.records.results import (
    Better,
    Case,
    CaseResult,
    Failure,
    Lane,
    Launch,
    Metric,
    Status,
    Unit,
)

CASE = Case(
    id="command/kernels[size=8]",
    suite="command",
    name="kernels",
    params={},
    arms=("eager", "fused"),
    reference="eager",
)


def metric(name, arm, unit, better, *launches, warmup=()):
    taken = tuple(
        Launch(launch=at, values=values, warmup=warmup) for at, values in enumerate(launches)
    )
    return Metric(name=name, arm=arm, unit=unit, better=better, lane=Lane.WALL, launches=taken)


METRICS = (
    metric(
        "step_time",
        "eager",
        Unit.SECONDS,
        Better.LOWER,
        (0.25, 0.5, 0.375),
        (0.5, 0.75, 0.625),
        warmup=(2.0,),
    ),
    metric("step_time", "fused", Unit.SECONDS, Better.LOWER, (0.125,), (0.25,)),
    metric("compile_cold", "fused", Unit.SECONDS, Better.LOWER, (12.5,)),
    metric("peak_rss", "eager", Unit.BYTES, Better.LOWER, (1048576.0,), (2097152.0,)),
    metric("graphs", "fused", Unit.COUNT, Better.LOWER, (3.0,)),
    metric("tokens", "eager", Unit.PER_SECOND, Better.HIGHER, (100.0, 200.0), (400.0,)),
)
ROW = CaseResult(case=CASE, status=Status.OK, reproduce="x", metrics=METRICS)
BROKEN = CaseResult(
    case=replace(CASE, id="command/broken", arms=("eager",)),
    status=Status.CRASHED,
    reproduce="x",
    failure=Failure(stage="time", arms=("eager",), reason="ended by SIGSEGV"),
)
SKIPPED = CaseResult(
    case=replace(CASE, id="command/large", arms=("eager",)), status=Status.SKIPPED, reproduce="x"
)
EXPORT = from_results(replace(RESULTS, cases=(ROW, BROKEN, SKIPPED)))
EAGER, FUSED = f"{CASE.id} (eager)", f"{CASE.id} (fused)"
LABELS = {
    EAGER,
    FUSED,
    f"{FUSED} compile_cold",
    f"{EAGER} peak_rss",
    f"{FUSED} graphs",
    f"{EAGER} tokens",
}


def round_trip(name, export=EXPORT):
    """What is read again, in base units, and what was left out."""
    written = catalogue.WRITERS[name](export)
    reading = catalogue.read(written.text, name)
    return (
        reading,
        {series.label: in_base_units(series) for series in reading.series},
        {*written.left_out},
    )


def in_base_units(series):
    measured = interpret(series.unit)
    runs = tuple(
        tuple(pytest.approx(value * measured.scale) for value in run) for run in series.runs
    )
    return measured.unit, series.better, runs


def test_an_export_holds_every_metric_and_how_cases_ended() -> None:
    assert {series.label for series in EXPORT.series} == LABELS
    assert EXPORT.failed == (Absent(benchmark="command/broken", reason="ended by SIGSEGV"),)
    assert EXPORT.skipped == (Absent(benchmark="command/large", reason="skipped"),)
    assert EXPORT.commit == RESULTS.source.commit


def test_own_json_loses_nothing() -> None:
    reading, series, left_out = round_trip("measurements")
    assert left_out == set()
    assert series == {one.label: in_base_units(one) for one in EXPORT.series}
    assert [one.warmups for one in reading.series] == [
        one.warmups if any(one.warmups) else () for one in EXPORT.series
    ]
    assert (reading.failed, reading.skipped) == (EXPORT.failed, EXPORT.skipped)


def test_pyperf_keeps_launches_and_warmups_and_leaves_rates_out() -> None:
    reading, series, left_out = round_trip("pyperf")
    assert left_out == {f"{EAGER} tokens"}
    assert series == {
        one.label: in_base_units(one) for one in EXPORT.series if one.label in LABELS - left_out
    }
    assert reading.series[0].warmups == ((2.0,), (2.0,))


def test_pyperf_leaves_zero_out_which_it_cannot_hold() -> None:
    zero = Series(benchmark="breaks", runs=((0.0,),), unit="count", better=Better.LOWER)
    assert catalogue.WRITERS["pyperf"](replace(EXPORT, series=(zero,))).left_out == ("breaks",)


TIMES = {EAGER, FUSED, f"{FUSED} compile_cold"}


@pytest.mark.parametrize("name", ["pytest-benchmark", "hyperfine"])
def test_these_keep_all_samples_of_times_but_not_their_launches(name) -> None:
    _, series, left_out = round_trip(name)
    assert left_out == LABELS - TIMES
    samples = (0.25, 0.5, 0.375, 0.5, 0.75, 0.625)
    runs = tuple((value,) for value in samples) if name == "hyperfine" else (samples,)
    assert series[EAGER] == (Unit.SECONDS, Better.LOWER, runs)
    assert series[f"{FUSED} compile_cold"] == (Unit.SECONDS, Better.LOWER, ((12.5,),))


def test_google_benchmark_keeps_a_number_for_each_launch_and_what_failed() -> None:
    reading, series, left_out = round_trip("google-benchmark")
    assert left_out == LABELS - TIMES
    assert series[EAGER] == (Unit.SECONDS, Better.LOWER, ((0.375, 0.625),))
    assert reading.failed == EXPORT.failed


def test_bencher_keeps_one_number_and_unit_and_direction_of_latency_alone() -> None:
    written = catalogue.WRITERS["bmf"](EXPORT)
    raw = json.loads(written.text)
    assert written.left_out == ()
    assert raw[EAGER]["latency"] == {
        "value": 0.5e9,
        "lower_value": 0.375e9,
        "upper_value": 0.625e9,
    }, "nanoseconds, as Bencher's are"
    assert raw[FUSED]["compile-cold"]["value"] == 12.5
    assert raw[EAGER]["peak-rss"]["value"] == 1572864.0
    series = {
        one.label: (one.values, one.better) for one in catalogue.read(written.text, "bmf").series
    }
    assert series[f"{EAGER} latency"] == ((0.5e9,), Better.LOWER)
    assert series[f"{EAGER} tokens"] == ((275.0,), None)


def test_custom_files_hold_one_direction_each_and_together_all_series() -> None:
    smaller, bigger = (
        round_trip(name) for name in ("customSmallerIsBetter", "customBiggerIsBetter")
    )
    assert {*smaller[1]} == LABELS - {f"{EAGER} tokens"} == bigger[2]
    assert {*bigger[1]} == {f"{EAGER} tokens"}
    assert smaller[1][EAGER] == (Unit.SECONDS, Better.LOWER, ((0.5,),)), (
        "the median of the launches' medians"
    )
    assert bigger[1][f"{EAGER} tokens"] == (Unit.PER_SECOND, Better.HIGHER, ((275.0,),))


def test_the_table_has_a_line_for_each_sample() -> None:
    written = flat_csv.write(EXPORT)
    rows = list(csv.DictReader(io.StringIO(written.text)))
    eager = [row for row in rows if row["benchmark"] == EAGER and not row["measure"]]
    assert [(row["run"], row["phase"], float(row["value"])) for row in eager] == [
        ("0", "warmup", 2.0), ("1", "warmup", 2.0),
        ("0", "sample", 0.25), ("0", "sample", 0.5), ("0", "sample", 0.375),
        ("1", "sample", 0.5), ("1", "sample", 0.75), ("1", "sample", 0.625),
    ]  # fmt: skip
    assert written.left_out == ()


def test_no_cell_of_the_table_is_a_formula() -> None:
    evil = Series(benchmark='=HYPERLINK("x")', measure="@x", runs=((1.0,),), unit="+s", better=None)
    row = next(csv.DictReader(io.StringIO(flat_csv.write(replace(EXPORT, series=(evil,))).text)))
    assert (row["benchmark"], row["measure"], row["unit"]) == ('\'=HYPERLINK("x")', "'@x", "'+s")


def test_figures_for_pytest_benchmark_are_those_that_it_computes_itself() -> None:
    """Of the samples 1, 2, 3, 4, 10: quartiles 2 and 4, one outlier beyond 4 + 1.5 x 2, and one beyond a standard deviation."""
    series = Series(
        benchmark="a", runs=((1.0, 2.0), (3.0, 4.0, 10.0)), unit="s", better=Better.LOWER
    )
    (benchmark,) = json.loads(pytest_benchmark.write(replace(EXPORT, series=(series,))).text)[
        "benchmarks"
    ]
    stats = benchmark["stats"]
    expected = {
        "min": 1.0,
        "max": 10.0,
        "mean": 4.0,
        "median": 3.0,
        "q1": 2.0,
        "q3": 4.0,
        "iqr": 2.0,
        "rounds": 5,
        "total": 20.0,
    }
    assert {name: stats[name] for name in expected} == expected
    assert stats["stddev"] == pytest.approx(12.5**0.5)
    assert (stats["outliers"], stats["ld15iqr"], stats["hd15iqr"], stats["ops"]) == (
        "1;1",
        1.0,
        4.0,
        0.25,
    )


def test_what_another_tool_wrote_can_be_written_too() -> None:
    reading = catalogue.read(
        '[{"name": "tokens", "unit": "tokens/s", "value": 5}]', "customBiggerIsBetter"
    )
    again = catalogue.read(catalogue.WRITERS["measurements"](from_reading(reading)).text)
    assert again.series[0] == replace(reading.series[0], unit="tokens/s")


def test_what_has_no_direction_is_left_out_where_one_is_needed() -> None:
    unknown = Export(series=(Series(benchmark="hits", runs=((3.0,),), unit="", better=None),))
    for name in ("measurements", "pyperf", "customSmallerIsBetter", "customBiggerIsBetter"):
        assert catalogue.WRITERS[name](unknown).left_out == ("hits",)


@pytest.mark.parametrize("name", catalogue.WRITERS)
def test_every_writer_copes_with_an_empty_document(name) -> None:
    assert catalogue.WRITERS[name](Export(series=())).left_out == ()


@pytest.mark.parametrize("name", sorted({*catalogue.WRITERS} - {"csv"}))
def test_a_planted_slowdown_survives_every_format(name) -> None:
    """A reader that mixed up units, launches or names would lose it."""
    slow = [
        replace(
            one,
            launches=tuple(
                replace(launch, values=tuple(2 * v for v in launch.values))
                for launch in one.launches
            ),
        )
        for one in METRICS
    ]
    before, after = (
        EXPORT,
        from_results(replace(RESULTS, cases=(replace(ROW, metrics=tuple(slow)), BROKEN, SKIPPED))),
    )
    base, head = (
        catalogue.read(catalogue.WRITERS[name](one).text, name).series for one in (before, after)
    )
    assert [series.label for series in base] == [series.label for series in head]
    assert [two.typical / one.typical for one, two in zip(base, head, strict=True)] == [
        pytest.approx(2.0)
    ] * len(base)
