"""Exports in the forms that TorchBench, the dynamo runner and PyTorch's benchmark database have."""

import csv
import io
import json
from dataclasses import replace

import pytest

from ci_bench.formats import catalogue, dynamo_csv, oss_benchmark, userbenchmark
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Unreadable
from ci_bench.records.profiles import GraphBreak, Profile
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
    return Metric(
        name=name,
        arm=arm,
        unit=unit,
        better=Better.LOWER,
        lane=Lane.WALL,
        launches=taken,
        items=items,
    )


MEASURED = (
    metric("step_time", "eager", (0.002, 0.004), (0.004, 0.005), items=32),
    metric("step_time", "inductor", (0.001, 0.002), (0.002, 0.003), items=32),
    metric("compile_cold", "inductor", (7.5,)),
    metric("peak_rss", "eager", (3e9,), unit=Unit.BYTES),
    metric("peak_rss", "inductor", (2e9,), unit=Unit.BYTES),
    metric("graphs", "inductor", (1.0,), unit=Unit.COUNT),
    metric("graph_breaks", "inductor", (0.0,), unit=Unit.COUNT),
)


def row(
    model,
    status=Status.OK,
    *,
    reason="",
    detail="pass: 9 tensors",
    metrics=MEASURED,
    mode="training",
    **entry,
):
    (case,) = SUITE.plan({"models": [model], "mode": mode, **entry})
    failure = (
        Failure(stage="verify", arms=case.arms, reason=reason) if status is not Status.OK else None
    )
    checks = (
        (Check(name="accuracy", arm="inductor", outcome=Outcome.PASS, detail=detail),)
        if detail
        else ()
    )
    return CaseResult(
        case=case, status=status, reproduce="x", failure=failure, metrics=metrics, checks=checks
    )


def results(*rows):
    return Results(
        tool_version="0",
        run=Run(
            id="r",
            started_at="2000-01-01T00:00:00Z",
            state=RunState.COMPLETE,
            config_digest="0",
            device="cpu",
        ),
        source=Source(),
        environment=Environment(identity={"device": "cpu", "torch": "2.13.0"}, condition={}),
        cases=rows,
    )


PERFORMANCE, ACCURACY = (
    f"inductor_zoo_fp32_training_cpu_{kind}.csv" for kind in ("performance", "accuracy")
)


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


COVERED = {
    "graphs": 2.0,
    "graph_calls": 6.0,
    "ops_in_graphs": 30.0,
    "ops_run": 40.0,
    "coverage_ops": 0.75,
    "coverage_time": 0.9,
}


def test_the_experiment_coverage_has_a_file_of_its_own_by_hand():
    """The runner's shares are between 0 and 1, whatever `pct` promises."""
    covered = tuple(
        metric(name, "coverage", (value,), unit=Unit.COUNT) for name, value in COVERED.items()
    )
    rows = [
        row(
            "mlp",
            backend="coverage",
            metrics=(metric("step_time", "coverage", (0.002,), items=32), *covered),
        ),
        row(
            "cnn",
            backend="coverage",
            metrics=covered,
            status=Status.FAILED,
            reason="fail_to_run: no",
        ),
        row("mlp"),
    ]
    files = texts(dynamo_csv.write(results(*rows)))
    assert [name for name in files if name.endswith("_coverage.csv")] == [
        "coverage_zoo_fp32_training_cpu_coverage.csv"
    ]
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
    *(
        metric("step_time", arm, (seconds,), items=32)
        for arm, seconds in (("eager", 0.004), ("inductor", 0.002), (TUNED, 0.001))
    ),
    metric("step_time", "aot_eager", (0.008,), items=32),
)


def several(*checks):
    """A case with three compiled arms, and how accuracy ended in some of them."""
    found = row("mlp", metrics=SEVERAL_TIMES, **SEVERAL)
    told = (
        Check(name="accuracy", arm=arm, outcome=outcome, detail=detail)
        for arm, outcome, detail in checks
    )
    return replace(found, checks=tuple(told))


def test_each_compiled_arm_of_a_case_is_a_configuration_over_one_reference():
    files = texts(dynamo_csv.write(results(several())))
    found = {
        name: table(text)[0]["speedup"]
        for name, text in files.items()
        if name.endswith("performance.csv")
    }
    assert found == {
        "inductor_zoo_fp32_training_cpu_performance.csv": "2.000000",
        f"{TUNED}_zoo_fp32_training_cpu_performance.csv": "4.000000",
        "aot_eager_zoo_fp32_training_cpu_performance.csv": "0.500000",
    }
    records = json.loads(oss_benchmark.write(results(several()))[""].text)
    speedups = {
        one["model"]["backend"]: one["metric"]["benchmark_values"]
        for one in records
        if one["metric"]["name"] == "speedup"
    }
    assert speedups == {"inductor": [2.0], TUNED: [4.0], "aot_eager": [0.5]}


def test_an_arm_that_is_wrong_does_not_speak_for_the_others():
    given = several(
        (TUNED, Outcome.FAIL, "fail_accuracy: off by 3"),
        ("inductor", Outcome.PASS, "pass: 9 tensors"),
    )
    words = {name.split("_zoo")[0]: table(text)[0]["accuracy"] for name, text in texts(dynamo_csv.write(results(given))).items()
             if name.endswith("accuracy.csv")}  # fmt: skip
    assert words == {"inductor": "pass", TUNED: "fail_accuracy", "aot_eager": "infra_error"}
    records = json.loads(oss_benchmark.write(results(given))[""].text)
    passed = {
        one["model"]["backend"]: one["metric"]["benchmark_values"]
        for one in records
        if one["metric"]["name"] == "passed"
    }
    assert passed == {"inductor": [1.0], TUNED: [0.0], "aot_eager": [1.0]}


def test_a_failed_case_keeps_its_row_and_a_skipped_one_has_none():
    rows = (
        row("mlp", Status.CRASHED, reason="killed by SIGSEGV", detail="", metrics=()),
        row("cnn", Status.SKIPPED, reason="a table skips it", detail="", metrics=()),
    )
    files = texts(dynamo_csv.write(results(*rows)))
    assert [(one["name"], one["accuracy"]) for one in table(files[ACCURACY])] == [
        ("mlp", "fail_to_run")
    ]
    (found,) = table(files[PERFORMANCE])
    assert (found["name"], found["speedup"], found["abs_latency"]) == (
        "mlp",
        "0.000000",
        "0.000000",
    )


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
    assert "speedup" not in [
        record["metric"]["name"]
        for record in json.loads(oss_benchmark.write(results(half))[""].text)
    ]


def test_another_reader_of_these_files_finds_the_same():
    files = texts(
        dynamo_csv.write(
            results(row("mlp"), row("cnn", Status.FAILED, reason="x", detail="", metrics=()))
        )
    )
    reading = dynamo_csv.read(files[PERFORMANCE])
    found = {one.measure: one.values for one in reading.series}
    assert (found[""], found["speedup"], found["graph_breaks"]) == ((2.0,), (2.0,), (0.0,))
    assert [one.benchmark.split()[0] for one in reading.failed] == ["cnn"]
    records = oss_benchmark.read(
        Node(json.loads(oss_benchmark.write(results(row("mlp")))[""].text), "$")
    )
    times = [one for one in records.series if one.measure == "step_time"]
    assert [one.values for one in times] == [
        (0.002, 0.004, 0.004, 0.005),
        (0.001, 0.002, 0.002, 0.003),
    ]
    assert {one.unit for one in times} == {"s"}


PHASES = {"dynamo": 1.25, "aot": 0.5, "inductor": 3.1415926535, "kernels": 2.0, "autotune": 0.125}
EXPERIMENT = (
    metric("step_time", "eager", (0.004,), items=32),
    metric("step_time", "aot-inductor", (0.0012345678901,), items=32),
    metric("compile_cold", "aot-inductor", (7.123456789,)),
    metric("compile_warm", "aot-inductor", (0.987654321,)),
    *(
        metric(f"compile_cold_{phase}", "aot-inductor", (seconds,))
        for phase, seconds in PHASES.items()
    ),
    metric("package_size", "aot-inductor", (1_234_567.0,), unit=Unit.BYTES),
    metric("peak_anonymous", "eager", (3e9 + 1,), unit=Unit.BYTES),
    metric("peak_anonymous", "aot-inductor", (2e9 + 1,), unit=Unit.BYTES),
    metric("memory_growth", "eager", (0.0,), unit=Unit.BYTES),
    metric("memory_growth", "aot-inductor", (4097.0,), unit=Unit.BYTES),
    metric("graph_breaks", "aot-inductor", (2.0,), unit=Unit.COUNT),
    metric("recompiles", "aot-inductor", (3.0,), unit=Unit.COUNT),
)
READ_BACK = {
    "": ("step_time", 1e-3),
    "compilation_latency": ("compile_cold", 1),
    "warm_compilation_latency": ("compile_warm", 1),
    "package_size": ("package_size", 1),
    "dynamo_peak_mem": ("peak_anonymous", 1e9),
    "dynamo_memory_growth": ("memory_growth", 1e9),
    "graph_breaks": ("graph_breaks", 1),
    "recompiles": ("recompiles", 1),
    **{f"{phase}_latency": (f"compile_cold_{phase}", 1) for phase in PHASES},
}
"""What a column holds: the metric of the arm, and how many of its unit one of the column's is."""


def test_what_experiments_measure_has_columns_and_is_read_back_without_loss():
    quantized = {"quantization_error": 0.012345}
    given = replace(row("mlp", backend="aot-inductor", metrics=EXPERIMENT), facts=quantized)
    files = texts(dynamo_csv.write(results(given)))
    assert sorted(name.rpartition("cpu_")[2] for name in files) == [
        "accuracy.csv",
        "compilation_metrics.csv",
        "performance.csv",
    ]
    found = {
        one.measure: one
        for text in files.values()
        for one in catalogue.read(text, "dynamo-csv").series
    }
    written = {
        one.name: one.launches[0].values[0] for one in EXPERIMENT if one.arm == "aot-inductor"
    }
    assert {metric for metric, _ in READ_BACK.values()} == {*written}
    for measure, (name, scale) in READ_BACK.items():
        assert found[measure].values[0] * scale == pytest.approx(written[name], rel=1e-15), measure
    assert (found["eager_peak_mem"].values, found["eager_memory_growth"].values) == (
        (3.000000001,),
        (0.0,),
    )
    assert found["quantization_error"].values == (0.012345,)
    assert all(one.better for one in found.values()), "each column has its direction"
    assert [
        one.measure for one in found.values() if not one.derived and "latency" in one.measure
    ] == [
        "compilation_latency",
        "warm_compilation_latency",
    ]


def test_shares_of_coverage_have_a_direction_when_they_are_read():
    covered = tuple(
        metric(name, "coverage", (value,), unit=Unit.COUNT) for name, value in COVERED.items()
    )
    (text,) = [
        text
        for name, text in texts(
            dynamo_csv.write(results(row("mlp", backend="coverage", metrics=covered)))
        ).items()
        if name.endswith("_coverage.csv")
    ]
    found = {
        one.measure: (one.values, one.better, one.derived) for one in dynamo_csv.read(text).series
    }
    assert found["pct_ops"] == ((0.75,), Better.HIGHER, False)
    assert found["pct_time"] == ((0.9,), Better.HIGHER, True)
    assert found["graph_calls"] == ((6.0,), None, True)


def test_a_column_of_experiments_is_there_where_an_arm_has_it():
    more = (*MEASURED, metric("recompiles", "inductor", (0.0,), unit=Unit.COUNT))
    alone, both = (
        texts(dynamo_csv.write(results(*rows)))[PERFORMANCE]
        for rows in ([row("mlp")], [row("mlp"), row("cnn", metrics=more)])
    )
    assert alone.splitlines()[0].endswith(",fallbacks_to_eager,cudagraph_skips")
    assert [one["recompiles"] for one in table(both)] == ["", "0"]
    assert [
        one.benchmark.split()[0]
        for one in dynamo_csv.read(both).series
        if one.measure == "recompiles"
    ] == ["cnn"]


def test_reasons_of_graph_breaks_have_a_file_where_they_were_looked_at():
    breaks = (
        GraphBreak(reason='call to "print", which writes', place="model.py:42", times=3),
        GraphBreak(reason="a jump"),
    )
    explained = (
        Profile(arm="eager", step_s=None),
        Profile(arm="inductor", step_s=None, breaks=breaks),
    )
    files = texts(dynamo_csv.write(results(replace(row("mlp"), profiles=explained), row("cnn"))))
    assert table(files["inductor_zoo_fp32_training_cpu_graph_breaks.csv"]) == [
        {
            "model": "mlp",
            "reason": 'call to "print", which writes',
            "user_stack": "model.py:42",
            "times": "3",
        },
        {"model": "mlp", "reason": "a jump", "user_stack": "", "times": "1"},
    ]
    assert len(files) == 3


def test_what_quantising_lost_is_of_no_arm_where_there_are_several():
    given = replace(
        several((TUNED, Outcome.PASS, "pass: 9 tensors")), facts={"quantization_error": 0.5}
    )
    assert not any(
        "quantization_error" in text for text in texts(dynamo_csv.write(results(given))).values()
    )


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", ""])
def test_a_speedup_that_is_no_number_is_refused_where_such_a_file_is_a_baseline(value):
    """The runner's own checkers compare it, and NaN is below no threshold."""
    text = texts(dynamo_csv.write(results(row("mlp"))))[PERFORMANCE].replace(
        "2.000000,2.000000", f"{value},2.000000", 1
    )
    if value:
        with pytest.raises(
            Unreadable, match=f"line 2, column speedup: {value} is not a finite number"
        ):
            catalogue.read(text)
    else:
        assert "speedup" not in {one.measure for one in catalogue.read(text).series}
    with pytest.raises(Unreadable, match="it contains no benchmark"):
        catalogue.read(text.splitlines()[0])


def test_userbenchmark_metrics_are_flat_and_in_its_units():
    text = userbenchmark.write(
        results(
            row("mlp"),
            row("mlp", mode="inference", precision="bf16"),
            row("cnn", Status.FAILED, reason="x"),
        )
    )[""].text
    assert json.loads(text)["environ"]["pytorch_version"] == "2.13.0"
    found = {
        one.benchmark: (one.typical, one.unit)
        for one in catalogue.read(text, "userbenchmark").series
    }
    assert found["test_train[mlp-cpu-inductor]_latency"] == (pytest.approx(2.0), "ms")
    assert found["test_eval[mlp-cpu-eager-bf16]_latency"] == (pytest.approx(4.0), "ms")
    assert found["test_train[mlp-cpu-eager]_cmem"] == (pytest.approx(3.0), "GB")
    assert found["test_train[mlp-cpu-inductor]_compile_time"] == (pytest.approx(7.5), "s")
    assert not [name for name in found if "cnn" in name]


@pytest.mark.parametrize(("text", "words"), [
    ("[]", "is not a mapping"),
    ('{"metrics": {"a": true}}', "metrics.a: true is not a finite number"),
    ('{"metrics": {"a": [1]}}', "is not a finite number"),
])  # fmt: skip
def test_a_userbenchmark_with_impossible_numbers_is_refused(text, words):
    with pytest.raises(Unreadable, match=words):
        catalogue.read(text, "userbenchmark")


def test_entries_of_one_model_are_apart_in_exports():
    given = results(row("mlp", name="adam"), row("mlp", name="sgd"), row("mlp"), row("cnn"))
    files = texts(dynamo_csv.write(given))
    assert files[PERFORMANCE].startswith("dev,name,batch_size,tag,speedup,")
    assert [(one["name"], one["tag"]) for one in table(files[ACCURACY])] == [
        ("mlp", "adam"), ("mlp", "sgd"), ("mlp", ""), ("cnn", ""),
    ]  # fmt: skip
    names = {
        one.benchmark
        for one in catalogue.read(files[PERFORMANCE]).series
        if one.measure == "speedup"
    }
    assert names == {
        "mlp cpu batch=32 adam",
        "mlp cpu batch=32 sgd",
        "mlp cpu batch=32",
        "cnn cpu batch=32",
    }
    metrics = json.loads(userbenchmark.write(given)[""].text)["metrics"]
    latencies = {name for name in metrics if name.endswith("-inductor]_latency")}
    assert latencies == {
        f"test_train[{name}-cpu-inductor]_latency" for name in ("adam.mlp", "sgd.mlp", "mlp", "cnn")
    }


@pytest.mark.parametrize("model", ["models:double", "path:a b/m.py,class:Net", "a.b.c:" + "x" * 80])
@pytest.mark.parametrize(
    ("entry", "tag"), [({}, ""), ({"name": "adam"}, "adam"), ({"name": "v1.2"}, "v1.2")]
)
def test_a_tag_is_the_name_of_the_entry(model, entry, tag):
    (case,) = SUITE.plan({"source": "own", "models": [model], "mode": "inference", **entry})
    assert dynamo_csv.tag_of(replace(row("mlp"), case=case)) == tag


def test_userbenchmark_text_instead_of_a_number_is_a_failure():
    found = catalogue.read('{"metrics": {"a": "RuntimeError", "b_latency": 2}}', "userbenchmark")
    assert [(one.benchmark, one.reason) for one in found.failed] == [("a", "RuntimeError")]


def test_records_have_numbers_only_and_no_paths():
    given = row("mlp")
    given = replace(
        given,
        case=replace(given.case, params={**given.case.params, "path": "/home/someone/benchmark"}),
        reproduce="/bin/x",
    )
    text = oss_benchmark.write(
        results(given, row("cnn", Status.FAILED, reason="at /home/someone", detail="", metrics=()))
    )[""].text
    records = json.loads(text)
    assert "/home" not in text
    assert "/bin" not in text
    assert all(
        isinstance(value, int | float)
        for record in records
        for value in record["metric"]["benchmark_values"]
    )
    passed = {
        (one["model"]["name"], one["metric"]["benchmark_values"][0])
        for one in records
        if one["metric"]["name"] == "passed"
    }
    assert passed == {("mlp", 1.0), ("cnn", 0.0)}
    (speedup,) = [one for one in records if one["metric"]["name"] == "speedup"]
    assert (
        speedup["metric"]["benchmark_values"],
        speedup["model"]["backend"],
        speedup["benchmark"]["dtype"],
    ) == (
        [2.0],
        "inductor",
        "fp32",
    )


def test_an_informative_check_does_not_make_a_case_fail():
    told = Check(
        name="runner_rule", arm="inductor", outcome=Outcome.FAIL, detail="x", informative=True
    )
    for informative, passed in ((True, 1.0), (False, 0.0)):
        given = replace(row("mlp"), checks=(replace(told, informative=informative),))
        records = json.loads(oss_benchmark.write(results(given))[""].text)
        assert [
            one["metric"]["benchmark_values"]
            for one in records
            if one["metric"]["name"] == "passed"
        ] == [[passed]]
