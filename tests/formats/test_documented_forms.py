"""Formats whose tools need a GPU or are no programs, from files written after their documentation (see data/README.md)."""

import json
from pathlib import Path

import pytest

from ci_bench.formats import catalogue
from ci_bench.formats.github_action_benchmark import read_action_history
from ci_bench.formats.series import Absent, Unreadable
from ci_bench.formats.units import interpret
from ci_bench.records.results import Better, Unit

DATA = Path(__file__).parent / "data"


def load(name, form="auto"):
    return catalogue.read((DATA / name).read_text(), form)


def shape(reading, *, derived=False):
    return {
        one.label: (one.values, one.unit, one.better and one.better.value)
        for one in reading.series
        if one.derived is derived
    }


def test_nvbench_takes_the_gpu_time_and_says_what_was_skipped() -> None:
    reading = load("nvbench-form-1.0.0.json")
    assert shape(reading) == {
        "copy[Device=0 Elements=2^20]": ((pytest.approx(1.2375e-05),), "s", "lower"),
        "copy[Device=0 Elements=2^24]": ((pytest.approx(1.98e-04),), "s", "lower"),
    }
    assert shape(reading, derived=True)["copy[Device=0 Elements=2^24] bytes_per_second"] == (
        (1.5e12,),
        "B/s",
        "higher",
    )
    assert shape(reading, derived=True)["copy[Device=0 Elements=2^24] example/gflops"] == (
        (812.5,),
        "",
        None,
    )
    assert reading.skipped == (
        Absent(benchmark="copy[Device=0 Elements=2^40]", reason="Not enough memory."),
    )
    assert reading.tool == "nvbench 0.1.0"


def test_nvbench_without_a_median_takes_the_mean() -> None:
    raw = json.loads((DATA / "nvbench-form-1.0.0.json").read_text())
    for state in raw["benchmarks"][0]["states"][:2]:
        state["summaries"] = [
            one for one in state["summaries"] if not one["tag"].endswith("/median")
        ]
    assert catalogue.read(json.dumps(raw)).series[0].values == (1.25e-05,)


def test_a_rate_of_no_time_is_no_reason_to_refuse_nvbenchs_file() -> None:
    text = (DATA / "nvbench-form-1.0.0.json").read_text().replace('"1500000000000.0"', '"inf"')
    assert '"inf"' in text
    labels = [one.label for one in catalogue.read(text).series]
    assert "copy[Device=0 Elements=2^24]" in labels
    assert "copy[Device=0 Elements=2^24] bytes_per_second" not in labels


def test_optimum_benchmark_takes_every_latency_and_the_peaks_of_the_process() -> None:
    series = shape(load("optimum_benchmark-form.json"))
    assert series["bert_forward forward"] == ((0.0101, 0.0099, 0.0103), "s", "lower")
    assert series["bert_forward load_model max_process_vram"] == ((8000.0,), "MB", "lower")
    assert interpret("MB").scale == 1e6
    assert "bert_forward forward max_process_vram" not in series, "null there"
    assert not [label for label in series if "global" in label], (
        "what other processes use is no figure of this one"
    )


def test_the_report_of_optimum_benchmark_alone_is_known_too() -> None:
    report = json.loads((DATA / "optimum_benchmark-form.json").read_text())["report"]
    assert shape(catalogue.read(json.dumps(report)))["forward"] == (
        (0.0101, 0.0099, 0.0103),
        "s",
        "lower",
    )


def test_the_performance_table_of_the_dynamo_runner() -> None:
    reading = load("dynamo-form-performance.csv")
    series = shape(reading)
    assert series["resnet18 cuda batch=32"] == ((5.5,), "ms", "lower")
    assert series["resnet18 cuda batch=32 compilation_latency"] == ((9.75,), "s", "lower")
    assert series["resnet18 cuda batch=32 dynamo_peak_mem"] == ((1.25,), "GB", "lower")
    assert shape(reading, derived=True)["resnet18 cuda batch=32 speedup"] == ((1.1,), "x", "higher")
    assert reading.failed == (
        Absent(benchmark="broken_model cuda", reason="the runner has no latency of it"),
    )


def test_the_accuracy_table_of_the_dynamo_runner() -> None:
    reading = load("dynamo-form-accuracy.csv")
    assert {*reading.failed} == {
        Absent(benchmark="resnet18 cuda batch=4", reason="fail_accuracy"),
        Absent(benchmark="big_model cuda batch=4", reason="pass_due_to_skip"),
    }
    assert shape(reading)["BertForMaskedLM cuda batch=16 accuracy"] == ((1.0,), "", "higher")
    assert reading.skipped == (
        Absent(benchmark="odd_model cuda batch=4", reason="eager_two_runs_differ"),
    )
    assert shape(reading)["BertForMaskedLM cuda batch=16 graph_breaks"] == (
        (0.0,),
        "count",
        "lower",
    )


@pytest.mark.parametrize(
    ("form", "better"),
    [
        ("customBiggerIsBetter", Better.HIGHER),
        ("customSmallerIsBetter", Better.LOWER),
        ("auto", None),
    ],
)
def test_the_direction_of_a_custom_file_is_that_of_the_named_tool(form, better) -> None:
    reading = load("github_action_benchmark-form-custom.json", form)
    assert {series.better for series in reading.series} == {better}
    assert [series.values for series in reading.series] == [(70.0,), (150.5,)], (
        "a number in quotation marks is one"
    )


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_record_without_a_number_failed(missing) -> None:
    records = [
        {"name": "a", "unit": "ms", "value": missing},
        {"name": "b", "unit": "ms", "value": 1},
    ]
    found = catalogue.read(json.dumps(records), "customSmallerIsBetter")
    assert [one.benchmark for one in found.failed] == ["a"]
    assert [one.benchmark for one in found.series] == ["b"]
    entry = {"commit": {"id": "f2f20f8e"}, "date": 1795263400000, "tool": "go", "benches": records}
    store = json.dumps({"lastUpdate": 1, "repoUrl": "", "entries": {"s": [entry]}})
    assert [one.benchmark for one in catalogue.read(store).failed] == ["s/a"]
    history, left_out = read_action_history(store, tool_version="1", fingerprint=lambda _: "0" * 16)
    assert (len(history.series), len(left_out)) == (1, 1)


def test_the_store_gives_the_newest_entry_of_each_suite_with_its_tools_direction() -> None:
    assert shape(load("github_action_benchmark-form-data.js")) == {
        "Rust/fib": ((110.0,), "ns/iter", "lower"),
        "Throughput/tokens": ((812.5,), "tokens/s", "higher"),
    }
    assert interpret("ns/iter").unit is Unit.SECONDS


def test_bencher_says_unit_and_direction_of_its_own_measures_only() -> None:
    reading = load("bencher-form.json")
    assert shape(reading) == {
        "fast path latency": ((88.0,), "ns", "lower"),
        "fast path throughput": ((5.5,), "ops/s", "higher"),
        "library file-size": ((42.0,), "bytes", "lower"),
        "library score": ((0.5,), "", None),
    }
    assert shape(reading, derived=True) == {"flaky latency": ((9.0,), "ns", "lower")}, (
        "its alerts are to be ignored"
    )


@pytest.mark.parametrize("file", ["oss_benchmark-form.json", "oss_benchmark-form-lines.json"])
def test_records_of_pytorchs_database_in_a_list_and_line_by_line(file) -> None:
    common = "PyTorch operator benchmark addmm inductor inference bfloat16 cuda"
    series = shape(load(file))
    assert series[f"{common} latency"] == ((1.5, 1.25, 1.75), "ms", "lower")
    assert series[f"{common.replace('addmm', 'bmm')} latency"] == ((2.5,), "", None)


PLANTED = [
    ("nvbench-form-1.0.0.json", '"1.9e-05"', '"soon"', "value: 'soon' is not a number"),
    ("nvbench-form-1.0.0.json", '"1.9e-05"', '"nan"', "nan is not a finite number"),
    ("nvbench-form-1.0.0.json", '"1.9e-05"', "9" * 400, "is not a number"),
    (
        "optimum_benchmark-form.json",
        "0.0099",
        "null",
        "latency.values[1]: null is not a finite number",
    ),
    (
        "dynamo-form-performance.csv",
        "9.75",
        "fast",
        "line 3, column compilation_latency: 'fast' is not a finite number",
    ),
    ("dynamo-form-performance.csv", "9.75,", "", "line 3: 12 cells, but the header has 13"),
    (
        "github_action_benchmark-form-data.js",
        "cargo",
        "fargo",
        "'fargo' is not a tool of github-action-benchmark",
    ),
    (
        "github_action_benchmark-form-custom.json",
        "150.5",
        "many",
        "$[1].value: 'many' is not a finite number",
    ),
    (
        "bencher-form.json",
        "88.0",
        '"88"',
        "$['fast path'].latency.value: '88' is not a finite number",
    ),
    ("oss_benchmark-form.json", "1.25", "1e999", "benchmark_values[1]: inf is not a finite number"),
    ("oss_benchmark-form-lines.json", "[600.0]", "[600.0", "line 2: "),
    ("asv-0.6.6.json", '"version": 2', '"version": 1', "not of version 2"),
    (
        "google_benchmark-1.9.5.json",
        '"real_time"',
        '"reel_time"',
        "the field 'real_time' is missing",
    ),
    ("pyperf-2.10.0.json", '"second"', '"fortnight"', "'fortnight' is not a unit of pyperf"),
    (
        "pytest_benchmark-5.3.1.json",
        '"fullname"',
        '"name_"',
        "$.benchmarks[0]: the field 'fullname' is missing",
    ),
    ("hyperfine-1.15.0.json", "0.000902277", "Infinity", "inf is not a finite number"),
]


@pytest.mark.parametrize(
    ("file", "before", "after", "complaint"),
    PLANTED,
    ids=[f"{row[0]}-{row[2][:20]}" for row in PLANTED],
)
def test_what_is_planted_is_found_and_its_place_is_named(file, before, after, complaint) -> None:
    text = (DATA / file).read_text()
    assert before in text
    with pytest.raises(Unreadable) as error:
        catalogue.read(text.replace(before, after))
    assert complaint in str(error.value)


def test_benchers_latencies_are_not_taken_for_those_of_optimum_benchmark() -> None:
    assert catalogue.read('{"sum": {"latency": {"value": 88.0}}}').form == "bmf"


@pytest.mark.parametrize(
    ("tool", "unit", "better"),
    [
        ("jmh", "ops/s", "higher"),
        ("jmh", "us/op", "lower"),
        ("go", "MB/s", "higher"),
        ("go", "B/op", "lower"),
        ("benchmarkjs", "ms", "lower"),
        ("customSmallerIsBetter", "errors/s", "lower"),
        ("customBiggerIsBetter", "Megabytes", "higher"),
    ],
)
def test_a_rate_has_its_own_direction(tool, unit, better) -> None:
    bench = {"name": "a", "unit": unit, "value": 1.0}
    entry = {"commit": {"id": "f2f20f8e"}, "date": 1795263400000, "tool": tool, "benches": [bench]}
    store = json.dumps({"lastUpdate": 1, "repoUrl": "", "entries": {"s": [entry]}})
    assert catalogue.read(store).series[0].better == better
    history, _ = read_action_history(store, tool_version="1", fingerprint=lambda _: "0" * 16)
    assert [one.better for one in history.series] == [better]
