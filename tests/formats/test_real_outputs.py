"""Files that the tools themselves wrote (see data/README.md) are imported with the right numbers."""

import json
from pathlib import Path
from statistics import fmean

import pytest

from ci_bench.formats import catalogue
from ci_bench.formats.series import Absent, Unreadable
from ci_bench.formats.units import interpret
from ci_bench.records.results import Better, Unit

DATA = Path(__file__).parent / "data"


def load(name, form="auto"):
    return catalogue.read(catalogue.decode((DATA / name).read_bytes()), form)


def by_label(reading):
    return {series.label: series for series in reading.series}


def base_units(series):
    measured = interpret(series.unit)
    return measured.unit, [value * measured.scale for value in series.values]


def test_pytest_benchmark() -> None:
    reading = load("pytest_benchmark-5.3.1.json")
    raw = json.loads((DATA / "pytest_benchmark-5.3.1.json").read_text())
    assert reading.tool == "pytest-benchmark 5.3.1"
    assert [series.label for series in reading.series] == [
        "test_sample.py::test_sort[10]", "test_sample.py::test_sort[1000]", "test_sample.py::test_join",
    ]  # fmt: skip
    for series, benchmark in zip(reading.series, raw["benchmarks"], strict=True):
        unit, seconds = base_units(series)
        assert (unit, series.better, len(seconds)) == (
            Unit.SECONDS,
            Better.LOWER,
            benchmark["stats"]["rounds"],
        )
        assert fmean(seconds) == pytest.approx(benchmark["stats"]["mean"]), (
            "seconds per call, as the tool's own mean says"
        )
        assert 1 / fmean(seconds) == pytest.approx(benchmark["stats"]["ops"])


def test_pytest_benchmark_without_the_rounds_gives_the_median() -> None:
    raw = json.loads((DATA / "pytest_benchmark-5.3.1.json").read_text())
    for benchmark in raw["benchmarks"]:
        del benchmark["stats"]["data"]
    reading = catalogue.read(json.dumps(raw))
    assert [series.values for series in reading.series] == [
        (one["stats"]["median"],) for one in raw["benchmarks"]
    ]


def test_an_old_pytest_benchmark_calls_its_processor_a_brand() -> None:
    raw = json.loads((DATA / "pytest_benchmark-5.3.1.json").read_text())
    raw["machine_info"]["cpu"] = {"brand": "CPU X", "count": 8}
    assert catalogue.read(json.dumps(raw)).machine["cpu"] == "CPU X"


def test_pyperf_keeps_runs_and_warmups_apart_and_leaves_calibration_out() -> None:
    sort, join = load("pyperf-2.10.0.json").series
    assert (sort.label, join.label) == ("sort", "join [1000]")
    assert (sort.unit, sort.better, [len(run) for run in sort.runs]) == (
        "s",
        Better.LOWER,
        [4, 4, 4],
    )
    assert sort.runs[0][0] == 4.5201281739792876e-07
    assert sort.warmups[0] == (4.908488769328478e-07,)


def test_pyperf_in_bytes_whose_metadata_are_all_at_the_top() -> None:
    (series,) = load("pyperf-2.10.0-memory.json").series
    raw = json.loads((DATA / "pyperf-2.10.0-memory.json").read_text())
    assert series.label == "true command"
    assert base_units(series) == (
        Unit.BYTES,
        [value for run in raw["benchmarks"][0]["runs"] for value in run.get("values", [])],
    )
    assert all(value > 1e6 for value in series.values)


def test_google_benchmark_gives_each_repetition_and_no_aggregate() -> None:
    reading = load("google_benchmark-1.7.1.json")
    series = by_label(reading)
    unit, seconds = base_units(series["BM_Sum/64"])
    assert (unit, series["BM_Sum/64"].better, series["BM_Sum/64"].derived) == (
        Unit.SECONDS,
        Better.LOWER,
        False,
    )
    assert seconds == pytest.approx(
        [21.532672899350565e-9, 25.241123274733809e-9, 23.453065067218049e-9]
    )
    assert base_units(series["BM_Copy"])[1][0] < 1e-5, "written in microseconds"
    rate = series["BM_Sum/64 bytes_per_second"]
    assert (rate.better, rate.derived, interpret(rate.unit).unit) == (
        Better.HIGHER,
        True,
        Unit.PER_SECOND,
    )
    assert (series["BM_Sum/64 hits"].better, series["BM_Sum/64 hits"].values) == (
        None,
        (3.0, 3.0, 3.0),
    ), "a counter of the user's"
    assert reading.failed == (Absent(benchmark="BM_Broken", reason="no such device"),)
    assert not any("mean" in label or "_cv" in label for label in series)


def test_google_benchmark_of_a_newer_version() -> None:
    reading = load("google_benchmark-1.9.5.json")
    assert reading.tool == "Google Benchmark 1.9.5"
    assert base_units(by_label(reading)["sort/100"])[1][0] == pytest.approx(941.4708107761129e-9)
    assert base_units(by_label(reading)["join"])[1][0] == pytest.approx(9.2e-6, rel=0.1), (
        "written in milliseconds"
    )
    assert reading.failed == (Absent(benchmark="broken", reason="no such device"),)


def test_google_benchmark_with_aggregates_only_gives_the_median() -> None:
    raw = json.loads((DATA / "google_benchmark-1.7.1.json").read_text())
    raw["benchmarks"] = [row for row in raw["benchmarks"] if row["run_type"] == "aggregate"]
    series = by_label(catalogue.read(json.dumps(raw)))
    (median,) = [row["real_time"] for row in raw["benchmarks"] if row["name"] == "BM_Sum/64_median"]
    assert series["BM_Sum/64"].values == (median,)


def test_hyperfine() -> None:
    series = by_label(load("hyperfine-1.15.0.json"))
    assert base_units(series["count to 10"]) == (
        Unit.SECONDS, [0.000902277, 0.0047997560000000005, 0.0009434990000000001, 0.0008429090000000001, 0.000809659],
    )  # fmt: skip
    assert {label for label, one in series.items() if not one.derived} == {
        "count to 10",
        "count to 20",
    }
    assert series["count to 20 user_time"].values == (0.0007796,)


def test_a_command_that_hyperfine_saw_failing_is_no_time() -> None:
    reading = load("hyperfine-1.15.0-failing.json")
    assert [one.benchmark for one in reading.failed] == ["false"]
    assert {series.benchmark for series in reading.series} == {"seq 10"}


def test_asv_with_parameters_a_failure_and_a_skip() -> None:
    reading = load("asv-0.6.6.json")
    series = by_label(reading)
    assert series["suite.Sorting.time_sort(10, 'list')"].values[:2] == (
        3.4850002066377784e-07,
        3.4765000691550083e-07,
    )
    assert series["suite.Sorting.time_sort(10, 'tuple')"].values[0] == 6.273500048337155e-07
    assert series["suite.Sorting.time_sort(1000, 'list')"].values[0] == 6.736549971719797e-06
    assert base_units(series["suite.peakmem_list"]) == (Unit.BYTES, [31105024.0])
    assert base_units(series["suite.mem_list"]) == (Unit.BYTES, [8056.0])
    assert series["suite.track_loss"].better is None, (
        "asv's file says neither unit nor direction of it"
    )
    assert reading.failed == (Absent(benchmark="suite.time_broken", reason="it failed"),)
    assert [one.benchmark for one in reading.skipped] == ["suite.Sorting.time_sort(1000, 'tuple')"]


def test_asv_without_recorded_samples_gives_the_result() -> None:
    raw = json.loads((DATA / "asv-0.6.6.json").read_text())
    for row in raw["results"].values():
        del row[11:]
    series = by_label(catalogue.read(json.dumps(raw)))
    assert series["suite.Sorting.time_sort(1000, 'list')"].values == (5.163124990303914e-06,)


@pytest.mark.parametrize(
    "file", sorted(path.name for path in DATA.iterdir() if path.suffix != ".md")
)
def test_no_file_tells_of_the_machine_that_it_was_made_on(file) -> None:
    text = (DATA / file).read_text()
    assert not [
        word
        for word in ("/tmp/", "/root/", "/home/", "AMD", "Intel", "Xeon", "EPYC")  # noqa: S108 - it is looked for, not used
        if word in text
    ]


CODSPEED = "pytest_codspeed-4.5.0.json"


def test_pytest_codspeed_gives_the_median_of_each_test_by_its_place_in_the_tree() -> None:
    reading = load(CODSPEED)
    stats = [one["stats"] for one in json.loads((DATA / CODSPEED).read_text())["benchmarks"]]
    assert [series.label for series in reading.series] == [
        "tests/test_speed.py::test_sort[small]", "tests/test_speed.py::test_sort[large]", "tests/test_speed.py::test_sum",
    ]  # fmt: skip
    for series, figures in zip(reading.series, stats, strict=True):
        unit, (seconds,) = base_units(series)
        assert (unit, series.better) == (Unit.SECONDS, Better.LOWER)
        assert seconds == pytest.approx(figures["median_ns"] / 1e9)
        assert figures["min_ns"] / 1e9 <= seconds <= figures["max_ns"] / 1e9
    assert (reading.tool, reading.form) == ("pytest-codspeed 4.5.0", "pytest-codspeed")
    assert reading.machine == {"python": "3.11", "platform": "x86_64-pc-linux-gnu"}


def test_pytest_codspeed_outside_of_a_repository_names_no_folder_of_the_machine() -> None:
    text = (DATA / CODSPEED).read_text().replace('"tests/', '"/home/somebody/tree/tests/')
    assert [series.label for series in catalogue.read(text).series] == [
        "test_speed.py::test_sort[small]", "test_speed.py::test_sort[large]", "test_speed.py::test_sum",
    ]  # fmt: skip


def test_pytest_codspeeds_simulation_mode_leaves_no_times() -> None:
    raw = json.loads((DATA / CODSPEED).read_text())
    with pytest.raises(Unreadable, match="codspeed-mode=walltime"):
        catalogue.read(json.dumps({**raw, "instrument": {"type": "valgrind"}}))
