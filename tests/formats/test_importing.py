"""Readings of other tools' files become results: ids that stay, titles that people know, a launch for each process."""

import json
import math
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from ci_bench.formats import catalogue, is_imported
from ci_bench.formats.importing import (
    MOST_VALUES,
    case_id,
    import_results,
    known_facts,
    require_same_units,
)
from ci_bench.formats.series import Absent, Reading, Series, Unreadable
from ci_bench.records import documents
from ci_bench.records.results import Better, Run, RunState, Status, Unit

DATA = Path(__file__).parent / "data"
IDS = json.loads(files("ci_bench").joinpath("schemas", "results.json").read_text())["$defs"][
    "case_id"
]
RUN = Run(
    id="imported/1",
    started_at="2030-01-01T00:00:00+00:00",
    state=RunState.COMPLETE,
    config_digest="imported",
    device="unknown",
)


def series(name, *runs, unit="ms", **fields):
    return Series(benchmark=name, runs=runs, unit=unit, **{"better": Better.LOWER, **fields})


def reading(*found, **fields):
    return Reading(series=found, tool="sorter 1", **{"form": "sorter", **fields})


def imported(*readings):
    return import_results(
        {f"{number}.json": one for number, one in enumerate(readings)}, run=RUN, tool_version="1"
    )


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("sort", "imported/benchmark[name=sort]"),
        ("BM_Sum/64", "imported/benchmark[name=BM_Sum/64]"),
        (
            "tests/test_x.py::test_sort[10]",
            "imported/benchmark[name=tests/test_x.py::test_sort_10_,digest=lplzah]",
        ),
        ("a=1,b=2", "imported/benchmark[name=a=1,b=2,digest=a27o7y]"),
    ],
)
def test_ids_are_those_that_they_were(name, id_) -> None:
    """An id that changed would be another case: this table may grow, but never change."""
    assert case_id(name) == id_


def test_ids_are_allowed_and_differ_where_names_do() -> None:
    names = [
        "a b",
        "a_b",
        "a[b",
        "行列",
        "行",
        "x" * 2000,
        "x" * 1999,
        "a,b",
        "a=b",
        "a\N{NO-BREAK SPACE}b",
    ]
    ids = [case_id(name) for name in names]
    assert len({*ids}) == len(names)
    assert all(re.fullmatch(IDS["pattern"], id_) and len(id_) <= IDS["maxLength"] for id_ in ids)


def test_a_benchmark_is_a_case_under_the_tools_name_and_each_file_a_launch(tmp_path) -> None:
    found = imported(
        *(
            reading(
                series("test[a b]", (1.0, 2.0)),
                series("test[a b]", (5.0,), measure="memory", unit="KiB"),
            )
            for _ in range(3)
        )
    )
    documents.write(found.results, tmp_path / "results.json")
    assert documents.read_results(tmp_path / "results.json") == found.results
    (row,) = found.results.cases
    assert (row.case.title, row.status, found.launches) == ("test[a b]", Status.OK, 3)
    time, memory = row.metrics
    assert (time.name, time.unit, memory.name, memory.unit) == (
        "time",
        Unit.SECONDS,
        "memory",
        Unit.BYTES,
    )
    assert [(launch.launch, launch.values) for launch in time.launches] == [
        (at, (0.001, 0.002)) for at in range(3)
    ]
    assert memory.launches[2].values == (5120.0,)
    assert is_imported(found.results)


def test_what_is_derived_or_has_no_direction_is_no_metric() -> None:
    found = imported(
        reading(
            series("a", (1.0,)),
            series("a", (1.0,), measure="rate", derived=True),
            series("score", (1.0,), better=None),
        )
    )
    assert [metric.name for row in found.results.cases for metric in row.metrics] == ["time"]
    assert found.undirected == ("score",)


def test_a_measure_called_as_the_main_series_stays_apart_from_it() -> None:
    (row,) = imported(
        reading(series("a", (1.0,), unit="B"), series("a", (2.0,), measure="bytes", unit="B"))
    ).results.cases
    assert [(metric.name, metric.title) for metric in row.metrics] == [
        ("bytes", ""),
        ("bytes__measure", "bytes"),
    ]


def test_a_peak_of_a_processs_memory_has_a_name_of_its_own() -> None:
    (row,) = imported(
        reading(
            series("a", (1.0,), unit="B", peak=True), series("a", (1.0,), measure="peak", unit="B")
        )
    ).results.cases
    assert [metric.name for metric in row.metrics] == ["memory", "peak"]


def test_what_went_wrong_in_any_file_fails_and_what_was_skipped_is_skipped() -> None:
    wrong = Absent(benchmark="a", reason="no such device")
    found = imported(
        reading(series("a", (1.0,)), series("z", (1e308,), unit="h")),
        reading(
            series("z", (1.0,), unit="h"),
            failed=(wrong,),
            skipped=(Absent(benchmark="s", reason="slow"),),
        ),
    )
    rows = {row.case.title: row for row in found.results.cases}
    assert {name: row.status for name, row in rows.items()} == {
        "a": Status.FAILED,
        "z": Status.FAILED,
        "s": Status.SKIPPED,
    }
    assert [row.failure.reason for row in rows.values() if row.failure] == [
        "no such device", "'z' is 1e+308 h, which no computer can measure", "slow",
    ]  # fmt: skip
    assert found.gaps == ("s (1 of 2 files)",)


def test_very_many_samples_and_launches_are_thinned() -> None:
    found = imported(
        reading(series("a", tuple(float(value + 1) for value in range(5000)))),
        reading(series("a", (1.0,))),
    )
    assert len(found.results.cases[0].metrics[0].launches[0].values) == MOST_VALUES
    several = imported(reading(series("a", *((1.0,) for _ in range(5000)))))
    assert len(several.results.cases[0].metrics[0].launches) == MOST_VALUES


ONE = reading(series("a", (1.0,)), machine={"cpu": "x"})


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (replace(ONE, form="timer"), "of one format"),
        (replace(ONE, machine={"cpu": "y"}), "differ in cpu"),
        (
            replace(ONE, series=(series("a", (1.0,), better=Better.HIGHER),)),
            "another unit or direction",
        ),
    ],
)
def test_files_of_one_side_belong_together(other, word) -> None:
    with pytest.raises(Unreadable, match=word):
        imported(ONE, other)


def test_nothing_that_can_be_compared_is_an_error() -> None:
    with pytest.raises(Unreadable, match="which way 'score' is better"):
        imported(reading(series("score", (1.0,), better=None)))
    with pytest.raises(
        Unreadable, match=r"\('a'\) are derived .* nothing can be compared: have the"
    ):
        imported(reading(series("a", (1.0,), derived=True)))
    custom = reading(series("a", (1.0,), unit="ms", better=None), form="github-action-benchmark")
    with pytest.raises(Unreadable, match="better: name it with --from customSmallerIsBetter"):
        imported(custom)


@pytest.mark.parametrize(
    ("unit", "other", "refused"),
    [("W", "mW", True), ("", "W", True), ("foo/s", "kfoo/s", True), ("", "count", False), ("ms", "us", False), ("W", "J", False)],
)  # fmt: skip
def test_units_of_no_known_scale_have_to_be_the_same(unit, other, refused) -> None:
    files = [
        (name, reading(series("a", (1.0,), unit=text)))
        for name, text in (("base", unit), ("head", other))
    ]
    if refused:
        with pytest.raises(Unreadable, match=r"'a' has the unit .* in head, and .* in base"):
            require_same_units(files)
    else:
        require_same_units(files)


@pytest.mark.parametrize(
    "name", sorted(path.name for path in DATA.iterdir() if path.suffix in {".json", ".csv", ".js"})
)
def test_every_file_of_the_data_becomes_a_sound_document(tmp_path, name) -> None:
    form = "customBiggerIsBetter" if name.endswith("custom.json") else "auto"
    found = imported(catalogue.read(catalogue.decode((DATA / name).read_bytes()), form))
    documents.write(found.results, tmp_path / "results.json")
    assert documents.read_results(tmp_path / "results.json") == found.results


@pytest.mark.parametrize(
    ("value", "unit", "word"), [(1e308, "h", "no computer"), (math.inf, "s", "no computer")]
)
def test_a_number_that_nothing_can_have_measured_fails_its_benchmark_alone(
    tmp_path, value, unit, word
) -> None:
    found = imported(reading(series("odd", (value,), unit=unit), series("sort", (1.0,))))
    odd, sort = found.results.cases
    assert (odd.status, sort.status) == (Status.FAILED, Status.OK)
    assert odd.failure is not None
    assert word in odd.failure.reason
    documents.write(found.results, tmp_path / "results.json")
    assert documents.read_results(tmp_path / "results.json") == found.results


@pytest.mark.parametrize(
    ("value", "unit"), [(-1.0, "s"), (-1.0, "J"), (-5.0, "1/s"), (-1.0, "bytes")]
)
def test_a_number_below_zero_is_named_and_fails_nothing(value, unit) -> None:
    found = imported(reading(series("odd", (value,), unit=unit), series("sort", (1.0,))))
    assert [row.case.title for row in found.results.cases] == ["sort"]
    assert found.incomparable == (f"'odd' is {value:g} {unit}, which cannot be compared",)
    with pytest.raises(Unreadable, match=r"nothing in it can be compared: .*'odd' is"):
        imported(reading(series("odd", (value,), unit=unit)))


@pytest.mark.parametrize("measure", ["graph_breaks", "graphs", "recompiles"])
def test_a_count_of_the_engine_is_never_below_zero(tmp_path, measure) -> None:
    broken = series("model", (-1.0,), unit="count", measure=measure)
    found = imported(reading(series("model", (1.0,)), broken, series("elo", (-1.0,), unit="nats")))
    assert found.incomparable == (f"'model {measure}' is -1 count, which cannot be compared",)
    assert [len(row.metrics) for row in found.results.cases] == [1, 1]
    documents.write(found.results, tmp_path / "results.json")
    assert documents.read_results(tmp_path / "results.json") == found.results


@pytest.mark.parametrize(
    ("value", "unit"),
    [(0.0, "s"), (5e-324, "ns"), (0.0, "bytes"), (0.0, "1/s"), (0.0, "count"), (-123.4, "nats")],
)
def test_zeros_and_signed_scores_are_figures(tmp_path, value, unit) -> None:
    found = imported(reading(series("nothing", (value,), unit=unit), series("sort", (1.0,))))
    assert [row.status for row in found.results.cases] == [Status.OK, Status.OK]
    documents.write(found.results, tmp_path / "results.json")
    assert documents.read_results(tmp_path / "results.json") == found.results


def test_what_a_file_says_of_its_machine_is_taken_as_far_as_it_says_something() -> None:
    told = {
        "cpu": "a  cpu",
        "empty": "",
        "none": None,
        "count": 8,
        "zero": 0,
        "yes": True,
        "odd": math.nan,
        "list": [],
    }
    assert known_facts(told.items()) == {"cpu": "a cpu", "count": 8}


def test_the_end_of_a_long_name_is_shown_whole() -> None:
    with pytest.raises(Unreadable, match=r"…x+ mean_ttft' is better"):
        imported(reading(series("x" * 100 + " mean_ttft", (1.0,), unit="", better=None)))
