"""Exports in the forms that TorchBench, the dynamo runner and PyTorch's benchmark database have."""

import csv
import io
import json
from dataclasses import replace

import pytest

from ci_bench.formats import catalogue, dynamo_csv, oss_benchmark, userbenchmark
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Unreadable
from ci_bench.records.results import (
    Better,
    CaseResult,
    Check,
    Environment,
    Failure,
    Lane,
    Launch,
    Metric,
    Outcome,
    Results,
    Run,
    RunState,
    Source,
    Status,
    Unit,
)
from ci_bench.suites.torchbench.plan import SUITE
from ci_bench.suites.torchbench.status import Word


def metric(name, arm, *launches, unit=Unit.SECONDS, items=None):
    taken = tuple(Launch(launch=number, values=values) for number, values in enumerate(launches))
    return Metric(name=name, arm=arm, unit=unit, better=Better.LOWER, lane=Lane.WALL, launches=taken, items=items)


MEASURED = (
    metric("step_time", "eager", (0.002, 0.004), (0.004, 0.005), items=32),
    metric("step_time", "inductor", (0.001, 0.002), (0.002, 0.003), items=32),
    metric("compile_cold", "inductor", (7.5,)),
    metric("peak_rss", "eager", (3e9,), unit=Unit.BYTES),
    metric("peak_rss", "inductor", (2e9,), unit=Unit.BYTES),
    metric("graphs", "inductor", (1.0,), unit=Unit.COUNT),
    metric("graph_breaks", "inductor", (0.0,), unit=Unit.COUNT),
)


def row(model, status=Status.OK, *, reason="", detail="pass: 9 tensors", metrics=MEASURED, mode="training", **entry):
    (case,) = SUITE.plan({"models": [model], "mode": mode, **entry})
    failure = Failure(stage="verify", arms=case.arms, reason=reason) if status is not Status.OK else None
    checks = (Check(name="accuracy", arm="inductor", outcome=Outcome.PASS, detail=detail),) if detail else ()
    return CaseResult(case=case, status=status, reproduce="x", failure=failure, metrics=metrics, checks=checks)


def results(*rows):
    return Results(
        tool_version="0",
        run=Run(id="r", started_at="2000-01-01T00:00:00Z", state=RunState.COMPLETE, config_digest="0", device="cpu"),
        source=Source(),
        environment=Environment(identity={"device": "cpu", "torch": "2.13.0"}, condition={}),
        cases=rows,
    )


PERFORMANCE, ACCURACY = (f"inductor_zoo_fp32_training_cpu_{kind}.csv" for kind in ("performance", "accuracy"))


def texts(files):
    return {name: written.text for name, written in files.items()}


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_performance_file_by_hand():
    """Medians over all samples: eager 4 ms, inductor 2 ms; peaks 3 and 2 GB."""
    files = texts(dynamo_csv.write(results(row("mlp"))))
    assert sorted(files) == sorted([PERFORMANCE, ACCURACY])
    (found,) = table(files[PERFORMANCE])
    assert found == {
        "dev": "cpu", "name": "mlp", "batch_size": "32", "speedup": "2.000000", "abs_latency": "2.000000",
        "compilation_latency": "7.500000", "compression_ratio": "1.500000", "eager_peak_mem": "3.000000", "dynamo_peak_mem": "2.000000",
        "calls_captured": "", "unique_graphs": "1", "graph_breaks": "0", "unique_graph_breaks": "", "fallbacks_to_eager": "",
        "cudagraph_skips": "",
    }  # fmt: skip


COVERED = {"graphs": 2.0, "graph_calls": 6.0, "ops_in_graphs": 30.0, "ops_run": 40.0, "coverage_ops": 0.75, "coverage_time": 0.9}


def test_the_experiment_coverage_has_a_file_of_its_own_by_hand():
    """The runner's shares are between 0 and 1, whatever `pct` promises."""
    covered = tuple(metric(name, "coverage", (value,), unit=Unit.COUNT) for name, value in COVERED.items())
    rows = [
        row("mlp", backend="coverage", metrics=(metric("step_time", "coverage", (0.002,), items=32), *covered)),
        row("cnn", backend="coverage", metrics=covered, status=Status.FAILED, reason="fail_to_run: no"),
        row("mlp"),
    ]
    files = texts(dynamo_csv.write(results(*rows)))
    assert [name for name in files if name.endswith("_coverage.csv")] == ["coverage_zoo_fp32_training_cpu_coverage.csv"]
    (found,) = table(files["coverage_zoo_fp32_training_cpu_coverage.csv"])
    assert found == {
        "dev": "cpu", "name": "mlp", "batch_size": "32", "graphs": "2", "graph_calls": "6", "captured_ops": "30",
        "total_ops": "40", "pct_ops": "0.750000", "pct_time": "0.900000",
    }  # fmt: skip


def test_there_is_a_file_for_each_configuration():
    rows = [
        row("mlp"),
        row("cnn"),
        row("mlp", mode="inference"),
        row("mlp", precision="bf16"),
        row("mlp", backend="my.module:make"),
    ]
    files = texts(dynamo_csv.write(results(*rows)))
    assert len(files) == 8
    assert [found["name"] for found in table(files[PERFORMANCE])] == ["mlp", "cnn"]
    assert "my.module.make_zoo_fp32_training_cpu_accuracy.csv" in files


TUNED = "inductor+max-autotune-no-cudagraphs"
SEVERAL = {"arms": ["default", "max-autotune-no-cudagraphs", "aot_eager"], "detail": ""}
SEVERAL_TIMES = (
    *(metric("step_time", arm, (seconds,), items=32) for arm, seconds in (("eager", 0.004), ("inductor", 0.002), (TUNED, 0.001))),
    metric("step_time", "aot_eager", (0.008,), items=32),
)


def several(*checks):
    """A case with three compiled arms, and how accuracy ended in some of them."""
    found = row("mlp", metrics=SEVERAL_TIMES, **SEVERAL)
    told = (Check(name="accuracy", arm=arm, outcome=outcome, detail=detail) for arm, outcome, detail in checks)
    return replace(found, checks=tuple(told))


def test_each_compiled_arm_of_a_case_is_a_configuration_over_one_reference():
    files = texts(dynamo_csv.write(results(several())))
    found = {name: table(text)[0]["speedup"] for name, text in files.items() if name.endswith("performance.csv")}
    assert found == {
        "inductor_zoo_fp32_training_cpu_performance.csv": "2.000000",
        f"{TUNED}_zoo_fp32_training_cpu_performance.csv": "4.000000",
        "aot_eager_zoo_fp32_training_cpu_performance.csv": "0.500000",
    }
    records = json.loads(oss_benchmark.write(results(several()))[""].text)
    speedups = {
        one["model"]["backend"]: one["metric"]["benchmark_values"] for one in records if one["metric"]["name"] == "speedup"
    }
    assert speedups == {"inductor": [2.0], TUNED: [4.0], "aot_eager": [0.5]}


def test_an_arm_that_is_wrong_does_not_speak_for_the_others():
    given = several((TUNED, Outcome.FAIL, "fail_accuracy: off by 3"), ("inductor", Outcome.PASS, "pass: 9 tensors"))
    words = {name.split("_zoo")[0]: table(text)[0]["accuracy"] for name, text in texts(dynamo_csv.write(results(given))).items()
             if name.endswith("accuracy.csv")}  # fmt: skip
    assert words == {"inductor": "pass", TUNED: "fail_accuracy", "aot_eager": "infra_error"}
    records = json.loads(oss_benchmark.write(results(given))[""].text)
    passed = {one["model"]["backend"]: one["metric"]["benchmark_values"] for one in records if one["metric"]["name"] == "passed"}
    assert passed == {"inductor": [1.0], TUNED: [0.0], "aot_eager": [1.0]}


def test_a_failed_case_keeps_its_row_and_a_skipped_one_has_none():
    rows = (
        row("mlp", Status.CRASHED, reason="killed by SIGSEGV", detail="", metrics=()),
        row("cnn", Status.SKIPPED, reason="a table skips it", detail="", metrics=()),
    )
    files = texts(dynamo_csv.write(results(*rows)))
    assert [(one["name"], one["accuracy"]) for one in table(files[ACCURACY])] == [("mlp", "fail_to_run")]
    (found,) = table(files[PERFORMANCE])
    assert (found["name"], found["speedup"], found["abs_latency"]) == ("mlp", "0.000000", "0.000000")


@pytest.mark.parametrize(("given", "word"), [
    (row("mlp"), "pass"),
    (row("mlp", detail="fail_accuracy: outputs: off by 3"), "fail_accuracy"),
    (row("mlp", detail="eager_two_runs_differ: outputs"), "eager_two_runs_differ"),
    (row("mlp", detail="pass_due_to_skip: too large"), "pass_due_to_skip"),
    (row("mlp", Status.FAILED, reason="ModelFailed: model_fail_to_load: ImportError: no module", detail=""), "model_fail_to_load"),
    (row("mlp", Status.FAILED, reason="ModelFailed: fail_to_run: BackendCompilerFailed: x", detail=""), "fail_to_run"),
    (row("mlp", Status.FAILED, reason="LookupError: backend: no such", detail=""), "fail_to_run"),
    (row("mlp", Status.OUT_OF_MEMORY, reason="OutOfMemoryError: eager_1st_run_OOM: CUDA", detail=""), "eager_1st_run_OOM"),
    (row("mlp", Status.OUT_OF_MEMORY, reason="killed: out of memory", detail=""), "OOM"),
    (row("mlp", Status.TIMEOUT, reason="no end after 60 s", detail=""), "timeout"),
    (row("mlp", Status.CRASHED, reason="killed by SIGSEGV", detail=""), "fail_to_run"),
    (row("mlp", Status.NOT_RUN, reason="budget", detail=""), "infra_error"),
    (row("mlp", detail=""), None),
    (row("mlp", Status.FAILED, reason="ModelFailed: fail_batch_invariance_at_4: x", detail=""), "fail_batch_invariance_at_4"),
])  # fmt: skip
def test_every_ending_has_a_word_of_the_runners(given, word):
    assert dynamo_csv.accuracy_word(given) == word


def test_the_vocabulary_is_the_suites():
    assert {*dynamo_csv.WORDS} == {*Word}


def test_what_was_not_measured_is_no_number():
    half = row("mlp", metrics=(MEASURED[0],))
    assert dynamo_csv.speedup_of(half, "inductor") is None
    (found,) = table(texts(dynamo_csv.write(results(half)))[PERFORMANCE])
    assert found["speedup"] == ""
    assert "nan" not in json.dumps(found)
    assert "speedup" not in [record["metric"]["name"] for record in json.loads(oss_benchmark.write(results(half))[""].text)]


def test_another_reader_of_these_files_finds_the_same():
    files = texts(dynamo_csv.write(results(row("mlp"), row("cnn", Status.FAILED, reason="x", detail="", metrics=()))))
    reading = dynamo_csv.read(files[PERFORMANCE])
    found = {one.measure: one.values for one in reading.series}
    assert (found[""], found["speedup"], found["graph_breaks"]) == ((2.0,), (2.0,), (0.0,))
    assert [one.benchmark.split()[0] for one in reading.failed] == ["cnn"]
    records = oss_benchmark.read(Node(json.loads(oss_benchmark.write(results(row("mlp")))[""].text), "$"))
    times = [one for one in records.series if one.measure == "step_time"]
    assert [one.values for one in times] == [(0.002, 0.004, 0.004, 0.005), (0.001, 0.002, 0.002, 0.003)]
    assert {one.unit for one in times} == {"s"}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", ""])
def test_a_speedup_that_is_no_number_is_refused_where_such_a_file_is_a_baseline(value):
    """The runner's own checkers compare it, and NaN is below no threshold."""
    text = texts(dynamo_csv.write(results(row("mlp"))))[PERFORMANCE].replace("2.000000,2.000000", f"{value},2.000000", 1)
    if value:
        with pytest.raises(Unreadable, match=f"line 2, column speedup: {value} is not a finite number"):
            catalogue.read(text)
    else:
        assert "speedup" not in {one.measure for one in catalogue.read(text).series}
    with pytest.raises(Unreadable, match="there is no benchmark in it"):
        catalogue.read(text.splitlines()[0])


def test_userbenchmark_metrics_are_flat_and_in_its_units():
    text = userbenchmark.write(
        results(row("mlp"), row("mlp", mode="inference", precision="bf16"), row("cnn", Status.FAILED, reason="x"))
    )[""].text
    found = userbenchmark.read(text)
    assert found.environ["pytorch_version"] == "2.13.0"
    assert found.metrics["test_train[mlp-cpu-inductor]_latency"] == pytest.approx(2.0)
    assert found.metrics["test_eval[mlp-cpu-eager-bf16]_latency"] == pytest.approx(4.0)
    assert found.metrics["test_train[mlp-cpu-eager]_cmem"] == pytest.approx(3.0)
    assert found.metrics["test_train[mlp-cpu-inductor]_compile_time"] == pytest.approx(7.5)
    assert not [name for name in found.metrics if "cnn" in name]


@pytest.mark.parametrize(("text", "words"), [
    ("[]", "not a userbenchmark file"),
    ('{"metrics": {"a": "RuntimeError"}}', "metrics.a: 'RuntimeError' is no finite number"),
    ('{"metrics": {"a": NaN}}', "metrics.a: 'nan' is no finite number"),
    ('{"metrics": {"a": true}}', "metrics.a: 'True' is no finite number"),
])  # fmt: skip
def test_a_userbenchmark_file_with_errors_for_numbers_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        userbenchmark.read(text)


def test_records_have_numbers_only_and_no_paths():
    given = row("mlp")
    given = replace(
        given, case=replace(given.case, params={**given.case.params, "path": "/home/someone/benchmark"}), reproduce="/bin/x"
    )
    text = oss_benchmark.write(results(given, row("cnn", Status.FAILED, reason="at /home/someone", detail="", metrics=())))[
        ""
    ].text
    records = json.loads(text)
    assert "/home" not in text
    assert "/bin" not in text
    assert all(isinstance(value, int | float) for record in records for value in record["metric"]["benchmark_values"])
    passed = {
        (one["model"]["name"], one["metric"]["benchmark_values"][0]) for one in records if one["metric"]["name"] == "passed"
    }
    assert passed == {("mlp", 1.0), ("cnn", 0.0)}
    (speedup,) = [one for one in records if one["metric"]["name"] == "speedup"]
    assert (speedup["metric"]["benchmark_values"], speedup["model"]["backend"], speedup["benchmark"]["dtype"]) == (
        [2.0],
        "inductor",
        "fp32",
    )


def test_an_informative_check_does_not_make_a_case_fail():
    told = Check(name="runner_rule", arm="inductor", outcome=Outcome.FAIL, detail="x", informative=True)
    for informative, passed in ((True, 1.0), (False, 0.0)):
        given = replace(row("mlp"), checks=(replace(told, informative=informative),))
        records = json.loads(oss_benchmark.write(results(given))[""].text)
        assert [one["metric"]["benchmark_values"] for one in records if one["metric"]["name"] == "passed"] == [[passed]]
