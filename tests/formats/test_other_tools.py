"""Readers of other languages' tools and of PyTorch's own files, names that change, and texts that are not read."""

import json
from pathlib import Path

import pytest

from ci_bench.formats import catalogue
from ci_bench.formats.importing import import_results
from ci_bench.formats.recognising import stable, with_full_names
from ci_bench.formats.series import Absent, Unreadable
from ci_bench.formats.units import direction
from ci_bench.formats.unread import appearance
from ci_bench.records.results import Better, Run, RunState

DATA = Path(__file__).parent / "data"


def load(file):
    return catalogue.read(catalogue.decode((DATA / file).read_bytes()))


def shape(reading, *, derived=False):
    return {
        one.label: (one.runs, one.unit, one.better)
        for one in reading.series
        if one.derived is derived
    }


def test_jmh() -> None:
    reading = load("jmh-form.json")
    assert shape(reading) == {
        "org.example.Queue.offer[thrpt, size=64, threads=4]": (
            ((1500.0, 1520.0), (1510.0, 1512.0)),
            "ops/ms",
            Better.HIGHER,
        ),
        "org.example.Queue.offer[thrpt, size=64, threads=4] gc.alloc.rate.norm": (
            ((48.0, 48.0), (48.0, 48.0)),
            "B/op",
            Better.LOWER,
        ),
        "org.example.Queue.poll[avgt]": (((2.4, 2.6),), "us/op", Better.LOWER),
    }
    rows = json.loads((DATA / "jmh-form.json").read_text())
    rows[0]["secondaryMetrics"]["gc.alloc.rate.norm"]["scoreUnit"] = "MB/sec"
    assert [*shape(catalogue.read(json.dumps(rows)), derived=True)] == [
        "org.example.Queue.offer[thrpt, size=64, threads=4] gc.alloc.rate.norm"
    ]
    assert reading.machine == {"jdk": "21.0.2", "vm": "OpenJDK 64-Bit Server VM"}


def test_what_jmh_could_not_measure_is_no_reason_to_refuse_the_file() -> None:
    rows = json.loads((DATA / "jmh-form.json").read_text())
    rows[0]["secondaryMetrics"]["gc.churn"] = {
        "score": "NaN",
        "scoreUnit": "MB/sec",
        "rawData": [["NaN", 1.0]],
    }
    rows[1]["primaryMetric"].update(score="NaN", rawData=[["NaN"]])
    found = catalogue.read(json.dumps(rows))
    assert [one.benchmark for one in found.failed] == ["org.example.Queue.poll[avgt]"]
    assert [one.measure for one in found.series] == ["", "gc.alloc.rate.norm"]


def test_commands_that_show_part_of_their_parameters_are_kept_apart() -> None:
    rows = [
        {"command": "build 16", "mean": 1.0, "parameters": {"jobs": jobs}} for jobs in ("1", "6")
    ]
    found = catalogue.read(json.dumps({"results": rows}))
    assert [one.benchmark for one in found.series] == ["build 16 [jobs=1]", "build 16 [jobs=6]"]


def test_criterion_divides_by_iterations() -> None:
    assert shape(load("criterion-form.json")) == {
        "decode/64": (((10.0, 11.0),), "ns", Better.LOWER)
    }


def test_vitest() -> None:
    reading = load("vitest-form.json")
    assert {name: runs for name, (runs, _, _) in shape(reading).items()} == {
        "sort.bench.ts > numbers > merge": ((1.8, 1.9, 2.3),),
        "sort.bench.ts > numbers > bubble": ((19.5,),),
    }
    assert reading.failed == (
        Absent(benchmark="sort.bench.ts > numbers > broken", reason="vitest has no time of it"),
    )


def test_userbenchmark() -> None:
    reading = load("userbenchmark-form.json")
    name = "test_train[resnet-cuda-eager]"
    assert shape(reading) == {
        f"{name}_latency": (((115.7,),), "ms", Better.LOWER),
        f"{name}_gmem": (((2.59,),), "GB", Better.LOWER),
        f"{name}_speedup": (((1.2,),), "x", Better.HIGHER),
        f"{name}_score": (((7.0,),), "", None),
    }
    assert reading.failed == (
        Absent(benchmark="test_eval[bert-cuda-eager]_latency", reason="CUDA out of memory"),
    )


def test_go() -> None:
    reading = load("go_bench-form.txt")
    assert shape(reading) == {
        "example.org/enc.BenchmarkEncode-8": (((1234.0, 1240.0),), "ns/op", Better.LOWER),
        "example.org/enc.BenchmarkEncode-8 MB/s": (((48.5, 48.2),), "MB/s", Better.HIGHER),
        "example.org/enc.BenchmarkEncode-8 B/op": (((64.0, 64.0),), "B/op", Better.LOWER),
        "example.org/enc.BenchmarkEncode-8 allocs/op": (((2.0, 2.0),), "allocs/op", Better.LOWER),
        "example.org/enc.BenchmarkDecode/small-8": (((5000.5,),), "ns/op", Better.LOWER),
        "example.org/enc.BenchmarkDecode/small-8 widgets": (((7.0,),), "widgets", None),
    }
    assert [one.benchmark for one in reading.failed] == ["example.org/enc.BenchmarkBroken-8"]
    assert [one.benchmark for one in reading.skipped] == ["example.org/enc.BenchmarkSlow-8"]


@pytest.mark.parametrize(
    "line", ["BenchmarkX-8 10 12", "BenchmarkX-8 10 abc ns/op", "BenchmarkX-8 10 inf ns/op"]
)
def test_a_line_of_go_that_breaks_its_form_is_named(line) -> None:
    with pytest.raises(Unreadable, match="line 2"):
        catalogue.read(f"pkg: a\n{line}\n")


@pytest.mark.parametrize(
    ("unit", "better"),
    [
        ("us", Better.LOWER), ("ns/op", Better.LOWER), ("B/op", Better.LOWER), ("TFLOPS/s", Better.HIGHER),
        ("ops/s", Better.HIGHER), ("tokens/sec", Better.HIGHER), ("MB/s", Better.HIGHER), ("GFLOPS", Better.HIGHER),
        ("1/s", Better.HIGHER), ("errors/s", None), ("count", None), ("", None),
    ],
)  # fmt: skip
def test_what_a_unit_says_of_the_direction(unit, better) -> None:
    assert direction(unit) is better


def record(metric, **more):
    return {
        "benchmark": {"name": "kernels", "mode": "fwd"},
        "model": {"name": "norm"},
        "metric": metric,
        **more,
    }


def oss(*records):
    return catalogue.read(json.dumps(records))


def latency(**more):
    return {"name": "latency", "benchmark_values": [2.0], **more}


def test_inputs_and_arguments_tell_records_apart() -> None:
    shapes = [{"x": {"dtype": "bf16", "extra_info": {"shape": f"[{n}, 8]"}}} for n in (1, 2)]
    found = oss(*(record(latency(unit="ms"), inputs=one) for one in shapes))
    assert [one.benchmark for one in found.series] == [
        "kernels norm fwd (x dtype=bf16, shape=[1, 8])", "kernels norm fwd (x dtype=bf16, shape=[2, 8])",
    ]  # fmt: skip
    rates = [
        {
            "benchmark": {"name": "serving", "extra_info": {"args": {"request_rate": rate}}},
            "metric": latency(unit="ms"),
        }
        for rate in (1, 4, "inf")
    ]
    assert len({one.benchmark for one in oss(*rates).series}) == 3
    long = [
        record(latency(unit="ms"), inputs={"x": {"extra_info": {"shape": "1, " * 300 + end}}})
        for end in "ab"
    ]
    assert len({one.benchmark for one in oss(*long).series}) == 2


def test_a_unit_beside_the_metric_is_read_and_gives_the_direction() -> None:
    found = oss(
        record(latency(unit="us")),
        record({"name": "speed", "benchmark_values": [3.0], "unit": "TFLOPS/s"}),
    )
    assert [(one.unit, one.better) for one in found.series] == [
        ("us", Better.LOWER),
        ("TFLOPS/s", Better.HIGHER),
    ]
    said = oss(record(latency(unit="us", extra_info={"better": "higher"})))
    assert said.series[0].better is Better.HIGHER


def runner(metric, values, model="resnet", **info):
    """A record as PyTorch's dynamo runner writes it, which has words in another place than numbers."""
    texts = [one for one in values if isinstance(one, str)]
    held = {"extra_info": {"benchmark_values": texts}} if texts else {"benchmark_values": values}
    settings = {"device": "cuda", "quantization": None, "batch_size": 8, **info}
    return {
        "benchmark": {
            "name": "TorchInductor",
            "mode": "training",
            "dtype": "amp",
            "extra_info": settings,
        },
        "model": {
            "name": model,
            "type": "OSS model",
            "backend": "inductor",
            "origins": ["torchbench"],
        },
        "metric": {"name": metric, **held},
    }


def test_records_of_the_dynamo_runner_are_read_as_its_tables() -> None:
    records = [
        runner("speedup", [1.5]),
        runner("abs_latency", [20.0]),
        runner("dynamo_peak_mem", [float("nan")]),
    ]
    found = catalogue.read("\n".join(map(json.dumps, [*records, runner("graph_breaks", [3])])))
    name = "TorchInductor resnet inductor training amp cuda"
    assert shape(found) == {
        name: (((20.0,),), "ms", Better.LOWER), f"{name} graph_breaks": (((3.0,),), "count", Better.LOWER),
    }  # fmt: skip
    assert [*shape(found, derived=True)] == [f"{name} speedup"]


@pytest.mark.parametrize(("words", "failed", "skipped"), [
    (["pass"], 0, 0), (["fail_accuracy"], 1, 0), (["pass_due_to_skip"], 1, 0), (["eager_1st_run_OOM"], 0, 1),
    (["fail_to_run", "pass"], 0, 0), (["pass", "OOM"], 1, 0),
])  # fmt: skip
def test_words_of_accuracy_in_records_are_judged_and_the_last_counts(
    words, failed, skipped
) -> None:
    found = oss(
        *(
            runner("accuracy", [word], batch_size=size)
            for word, size in zip(words, (0, 4), strict=False)
        )
    )
    assert (len(found.failed), len(found.skipped), len(found.series)) == (
        failed,
        skipped,
        1 - failed - skipped,
    )


def test_a_model_without_a_latency_failed_and_settings_tell_models_apart() -> None:
    found = oss(
        runner("speedup", [0.0]),
        runner("abs_latency", [0.0]),
        runner("abs_latency", [5.0], model="bert"),
    )
    assert [one.benchmark for one in found.failed] == [
        "TorchInductor resnet inductor training amp cuda"
    ]
    settings = oss(*(runner("abs_latency", [5.0], quantization=one) for one in ("int8", "int4")))
    assert [one.benchmark.partition("cuda ")[2] for one in settings.series] == [
        "(quantization=int8)",
        "(quantization=int4)",
    ]


def test_texts_of_other_records_are_named_and_the_numbers_read() -> None:
    text = record({"name": "status", "extra_info": {"benchmark_values": ["ok"]}})
    found = oss(record(latency(unit="ms")), text)
    assert ([one.measure for one in found.series], found.notes) == (
        ["latency"],
        ("texts are not compared: 'status'",),
    )


def test_records_of_texts_only_are_no_benchmarks() -> None:
    with pytest.raises(
        Unreadable, match="it contains no benchmark; texts are not compared: 'status'"
    ):
        oss(record({"name": "status", "extra_info": {"benchmark_values": ["ok"]}}))


@pytest.mark.parametrize("columns", [{}, {"result_columns": ["result"]}])
def test_an_old_file_of_asv_is_named_with_what_to_do(columns) -> None:
    old = {
        "commit_hash": "a",
        "params": {},
        "results": {"suite.time_a": 1.0},
        "version": 1,
        **columns,
    }
    with pytest.raises(
        Unreadable, match="not of version 2 of asv's results, but of version 1; run `asv update`"
    ):
        catalogue.read(json.dumps(old))


@pytest.mark.parametrize(
    ("name", "unit", "better"),
    [
        ("avg_inference_latency(ms)", "ms", Better.LOWER), ("memory_bandwidth(GB/s)", "GB/s", Better.HIGHER),
        ("token_per_sec", "token/s", Better.HIGHER), ("peak_mem (mb)", "mb", Better.LOWER), ("errors_per_sec", "errors/s", None),
        ("compile_time_instruction_count", "", Better.LOWER), ("accuracy(top1)", "top1", None), ("latency", "", None),
        ("mean_ttft_ms", "ms", Better.LOWER), ("latency_s", "s", Better.LOWER), ("request_throughput", "1/s", Better.HIGHER),
        ("speedup", "", Better.HIGHER), ("tokens per sec", "tokens/s", Better.HIGHER), ("ops-per-sec", "ops/s", Better.HIGHER),
        ("samples_per_ms", "samples/ms", Better.HIGHER), ("all tokens / sec", "tokens/s", Better.HIGHER), ("ns_per_day", "ns/day", Better.HIGHER),
        ("tokens_per_sec_per_gpu", "tokens/s", Better.HIGHER), ("unused_mem_gb", "", None), ("peak_mem_gb", "gb", Better.LOWER), ("free_mem_gb", "", None), ("items", "", None),
        ("gemm-tflops", "tflops", Better.HIGHER), ("triton_tflops", "tflops", Better.HIGHER), ("num_s", "", None),
    ],
)  # fmt: skip
def test_a_unit_in_a_metrics_name_is_read(name, unit, better) -> None:
    (found,) = oss(record({"name": name, "benchmark_values": [2.0]})).series
    assert (found.unit, found.better) == (unit, better)


def test_one_metric_without_a_number_does_not_refuse_the_file() -> None:
    nothing = [
        record({"name": "gap", "benchmark_values": values})
        for values in ([], [None], [float("nan")])
    ]
    found = oss(record(latency(unit="ms")), *nothing)
    assert [one.measure for one in found.series] == ["latency"]
    assert found.notes == ("metrics without a number are not compared: 'gap'",)
    partly = oss(record({"name": "latency(ms)", "benchmark_values": [None, 2.0]}))
    assert partly.series[0].runs == ((2.0,),)
    metrics = {"a_latency": 1.0, "b_latency": None, "c_latency": float("nan")}
    found = catalogue.read(json.dumps({"name": "x", "environ": {}, "metrics": metrics}))
    assert [one.benchmark for one in found.series] == ["a_latency"]
    assert [one.benchmark for one in found.failed] == ["b_latency", "c_latency"]


def test_an_empty_list_beside_a_word_of_accuracy_is_none() -> None:
    word = runner("accuracy", ["fail_accuracy"])
    word["metric"]["benchmark_values"] = []
    assert [one.reason for one in oss(word).failed] == ["fail_accuracy"]


def test_runners_of_records_are_their_machine() -> None:
    cards = [{"runners": [{"name": "cuda", "type": gpu}]} for gpu in ("H100", "A100")]
    (one, other) = (record(latency(unit="ms"), **card) for card in cards)
    assert oss(one, one | {"metric": latency(unit="ms", name="p99")}).machine == {"runner": "H100"}
    assert oss(one, other | {"model": {"name": "b"}}).machine == {}


@pytest.mark.parametrize("join", ["\n", "\n\n", " "])
def test_records_in_a_row_are_read(join) -> None:
    rows = [record(latency(unit="ms", name=name)) for name in ("p50", "p99")]
    assert len(catalogue.read(join.join(json.dumps(row, indent=1) for row in rows)).series) == 2
    assert len(catalogue.read(join.join(json.dumps([row]) for row in rows)).series) == 2


def test_files_in_a_row_are_named() -> None:
    text = (DATA / "google_benchmark-1.9.5.json").read_text()
    for twice in (text + text, json.dumps(json.loads(text)) + "\n" + json.dumps(json.loads(text))):
        with pytest.raises(Unreadable, match="several files of google-benchmark in a row"):
            catalogue.read(twice)


def hyperfine(*results):
    return catalogue.read(json.dumps({"results": results}))


def test_parameters_that_a_command_does_not_show_are_part_of_its_name() -> None:
    step = {"command": "train step", "mean": 1.0, "times": [1.0]}
    found = hyperfine(*({**step, "parameters": {"batch": str(n)}} for n in (8, 16)))
    assert [one.benchmark for one in found.series if not one.derived] == [
        "train step [batch=8]",
        "train step [batch=16]",
    ]
    shown = hyperfine({**step, "command": "sleep 0.8", "parameters": {"time": "0.8"}})
    assert shown.series[0].benchmark == "sleep 0.8"


HEADER = "dev,name,batch_size,speedup,abs_latency"


def dynamo(*rows):
    return catalogue.read("\n".join((HEADER, *rows)))


def test_shards_in_one_file_and_rows_that_were_run_again() -> None:
    found = dynamo(
        "cuda,a,8,1.1,10.0",
        HEADER,
        "cuda,b,8,0.0,0.0",
        "cuda,b,8,1.2,20.0",
        "cuda,c,8,nan,nan",
        "cuda,d,8,,",
    )
    assert {one.benchmark: one.runs for one in found.series if not one.derived} == {
        "a cuda batch=8": ((10.0,),), "b cuda batch=8": ((20.0,),),
    }  # fmt: skip
    assert [one.benchmark for one in found.failed] == ["c cuda batch=8", "d cuda batch=8"]
    with pytest.raises(Unreadable, match="line 2, column abs_latency: 'fast'"):
        dynamo("cuda,a,8,1.1,fast")


@pytest.mark.parametrize("word", ["pass_due_to_skip", "fail_accuracy", "PASS", "passed", ""])
def test_only_pass_is_a_pass(word) -> None:
    found = catalogue.read(f"dev,name,batch_size,accuracy\ncuda,a,1,pass\ncuda,b,1,{word}\n")
    assert [one.label for one in found.series] == ["a cuda batch=1 accuracy"]
    assert [one.benchmark for one in found.failed] == ["b cuda batch=1"]


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("f(<function inner at 0x7f11aa22bb00>)", "f(<function inner at 0x…>)"),
        ("load[/tmp/pytest-of-me/pytest-12/test_x0/a.bin]", "load[/tmp/…/test_x0/a.bin]"),
        ("load[/tmp/tmpab12cd34/a]", "load[/tmp/…/a]"),
        ("load[/tmp/tmp.Ab12Cd34Ef/a]", "load[/tmp/…/a]"),
        ("run 0b9c1f7e-7a51-4f0e-9c1b-1f2e3d4c5b6a", "run …"),
        ("Foo@1b6d3586 hash", "Foo@… hash"),
        ("users@100000", "users@100000"),
        ("job[pid=1234]", "job[pid=…]"),
        ("rapid 1234", "rapid 1234"),
        ("mask_0xff", "mask_0xff"),
        ("mask 0xff", "mask 0xff"),
        ("tmp/tmpx", "tmp/tmpx"),
    ],
)
def test_what_changes_from_run_to_run_is_taken_out_of_names(name, left) -> None:
    assert stable(name) == left


def test_names_that_differ_in_an_address_alone_are_numbered() -> None:
    named = [
        {"name": f"call <f at 0x7f0000000{n}>", "unit": "ms", "better": "lower", "value": 1.0}
        for n in range(3)
    ]
    found = catalogue.read(
        json.dumps({"kind": "measurements", "schema_version": 1, "series": named})
    )
    assert [one.benchmark for one in found.series] == [
        "call <f at 0x…>",
        "call <f at 0x…> #2",
        "call <f at 0x…> #3",
    ]
    assert "3 benchmarks are not compared: call <f at 0x…>" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("test sort ... bench:   1,000 ns/iter (+/- 3)\n", "`cargo bench`"),
        ("sort   time:   [1.0 us 1.1 us 1.2 us]\n", "criterion"),
        ("command,mean,stddev,median,user,system,min,max\nls,1,1,1,1,1,1,1\n", "hyperfine"),
        (
            "add_loop,compile_time_instruction_count,3066000000,0.015\n\n\n",
            "expected instruction counts",
        ),
        ("a,instruction count,11000000000,0.1\n", "expected instruction counts"),
        (
            "#name,data_type,shape,wrapper,perf_speedup_target_c7i\nvgg16,amp,static,default,1.2\n",
            "expected speedups",
        ),
        ("<!DOCTYPE html><p>", "HTML"),
        ("<?xml version='1.0'?><a/>", "XML"),
        ("a,b,c\n1,2,3\n", "CSV"),
        ("hello world", "begins with 'hello world'"),
        ('{"foo": {"bar": 1}}', "fields: 'foo', 'bar'"),
    ],
)
def test_what_is_not_read_is_called_what_it_looks_like(text, word) -> None:
    assert word in appearance(text)
    with pytest.raises(Unreadable, match=r"what is read: measurements, .*--from"):
        catalogue.read(text)


def test_utf_16_is_read_and_other_encodings_are_named() -> None:
    text = (DATA / "jmh-form.json").read_text()
    for encoding in ("utf-16", "utf-8-sig"):
        assert catalogue.read(catalogue.decode(text.encode(encoding))) == load("jmh-form.json")
    assert catalogue.read(catalogue.decode(b"\xfe\xff" + text.encode("utf-16-be"))) == load(
        "jmh-form.json"
    )
    with pytest.raises(Unreadable, match="save it as UTF-8"):
        catalogue.decode("café".encode("latin-1"))
    with pytest.raises(Unreadable, match="zip archive; unpack it"):
        catalogue.decode(b"PK\x03\x04\xff\xff")


def google(**fields):
    row = {
        "name": "BM_A",
        "run_type": "iteration",
        "real_time": 1.0,
        "cpu_time": 1.0,
        "time_unit": "ns",
        **fields,
    }
    return json.dumps({"context": {"date": ""}, "benchmarks": [row]})


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "-nan"])
def test_numbers_that_c_prints_in_lower_case_are_no_syntax_error(word) -> None:
    found = catalogue.read(google(ratio=1.5).replace("1.5", word))
    assert [one.label for one in found.series if not one.derived] == ["BM_A"]
    named = catalogue.read(google(name="scan: nan, inf", ratio=1.5).replace("1.5", word))
    assert named.series[0].benchmark == "scan: nan, inf"


@pytest.mark.parametrize("skipped", [["x"], {"a": 1}, [], {}])
def test_a_skip_that_is_a_list_or_a_mapping_is_refused(skipped) -> None:
    with pytest.raises(Unreadable, match=r"skipped: a (list|mapping) is neither true nor false"):
        catalogue.read(google(skipped=skipped))


@pytest.mark.parametrize("skipped", ["why", True, 3])
def test_a_skip_of_any_kind_is_a_skip(skipped) -> None:
    assert [one.benchmark for one in catalogue.read(google(skipped=skipped)).skipped] == ["BM_A"]


def test_a_failed_row_without_a_batch_size_is_its_models() -> None:
    retried = dynamo("cuda,a,0,0.0,0.0", "cuda,a,8,1.1,10.0")
    assert ([one.label for one in retried.series if not one.derived], retried.failed) == (
        ["a cuda batch=8"],
        (),
    )
    broke = dynamo("cuda,a,8,1.1,10.0", "cuda,a,0,0.0,0.0")
    assert ([one.benchmark for one in broke.failed], broke.series) == (["a cuda batch=8"], ())
    either = dynamo("cuda,a,8,1.1,10.0", "cuda,a,16,1.1,20.0", "cuda,a,0,0.0,0.0")
    assert [one.benchmark for one in either.failed] == ["a cuda"]
    assert len([one for one in either.series if not one.derived]) == 2
    tagged = "dev,name,batch_size,tag,speedup,abs_latency\ncuda,a,0,x,0,0\ncuda,a,8,y,1.1,10.0"
    assert [one.benchmark for one in catalogue.read(tagged).failed] == ["a cuda x"]


EXPECTED = "name,accuracy,graph_breaks\n\n\n\na,pass,3\n\n\n\nb,fail_accuracy,40\n\n\n\nc,pass_due_to_skip,0\n"
"""PyTorch's own tables have three blank lines after each row."""


def test_a_table_of_expected_accuracies_is_read() -> None:
    found = catalogue.read(EXPECTED)
    assert found.form == "dynamo-csv"
    assert {one.label: one.runs for one in found.series} == {
        "a accuracy": ((1.0,),),
        "a graph_breaks": ((3.0,),),
    }
    assert [(one.benchmark, one.reason) for one in found.failed] == [
        ("b", "fail_accuracy"),
        ("c", "pass_due_to_skip"),
    ]
    assert catalogue.read("name,graph_breaks\nBERT,0\n").series[0].label == "BERT graph_breaks"
    with pytest.raises(Unreadable, match="line 3: 2 cells, but the header has 3"):
        catalogue.read("name,accuracy,graph_breaks\na,pass,1\nb,pass\n")


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (("name,accuracy\na,pass", "dev,name,batch_size,accuracy\ncuda,a,4,pass"), ["a cuda batch=4", "a cuda batch=4"]),
        (("dev,name,batch_size,accuracy\ncuda,a,0,OOM", "dev,name,batch_size,accuracy\ncuda,a,4,pass"), ["a cuda batch=4"] * 2),
        (("name,accuracy\na,pass", "dev,name,batch_size,accuracy\ncuda,a,0,OOM"), ["a cuda", "a cuda"]),
        (
            ("name,accuracy\na,pass", "dev,name,batch_size,accuracy\ncuda,a,4,pass\ncpu,a,4,pass"),
            ["a", "a cuda batch=4", "a cpu batch=4"],
        ),
        (("dev,name,batch_size,accuracy\ncuda,a,4,pass", "dev,name,batch_size,accuracy\ncuda,a,8,pass"), ["a cuda batch=4", "a cuda batch=8"]),
        (("name,accuracy\nb,pass", "dev,name,batch_size,accuracy\ncuda,a,4,pass"), ["b", "a cuda batch=4"]),
    ],
)  # fmt: skip
def test_a_model_has_its_full_name_in_all_files(texts, named) -> None:
    readings = with_full_names([catalogue.read(text) for text in texts])
    found = [[one.benchmark for one in (*reading.series, *reading.failed)] for reading in readings]
    assert [name for names in found for name in names] == named


@pytest.mark.parametrize("swap", [False, True])
def test_a_model_that_failed_before_its_batch_sizes_failed_in_all(swap) -> None:
    head = "dev,name,batch_size,accuracy\n"
    texts = [
        f"{head}cuda,a,0,OOM\ncuda,b,2,pass",
        f"{head}cuda,a,4,pass\ncuda,a,8,pass\ncuda,b,2,pass",
    ]
    readings = [catalogue.read(text) for text in texts]
    found = with_full_names(readings[::-1] if swap else readings)
    failed = [one.benchmark for reading in found for one in reading.failed]
    assert failed == ["a cuda batch=4", "a cuda batch=8"]


def test_a_version_follows_its_benchmarks_new_name() -> None:
    name = "suite.time_call(<function f at 0x7f11aa22bb00>)"
    results = {"suite.time_call": [[0.1], [["<function f at 0x7f11aa22bb00>"]], "abc"]}
    columns = ["result", "params", "version"]
    found = catalogue.read(
        json.dumps({"version": 2, "result_columns": columns, "results": results})
    )
    assert name not in found.versions
    assert found.versions == {"suite.time_call(<function f at 0x…>)": "abc"}


def test_only_aggregates_of_the_users_own_are_named() -> None:
    row = {"real_time": 1.0, "cpu_time": 1.0, "time_unit": "ns", "run_type": "aggregate"}
    rows = [
        {**row, "name": "BM_A_p99", "run_name": "BM_A", "aggregate_name": "p99"},
        {**row, "name": "BM_B_median", "run_name": "BM_B", "aggregate_name": "median"},
        {
            "name": "BM_A_BigO",
            "run_name": "BM_Fit",
            "aggregate_name": "BigO",
            "cpu_coefficient": 1.0,
        },
    ]
    found = catalogue.read(json.dumps({"context": {}, "benchmarks": rows}))
    assert [one.benchmark for one in found.series if not one.derived] == ["BM_B"]
    assert [one.benchmark for one in found.skipped] == ["BM_A"]
    assert "only the aggregates p99" in found.skipped[0].reason


def test_counters_that_are_left_out_are_named() -> None:
    row = {
        "name": "BM_A",
        "real_time": 1.0,
        "cpu_time": 1.0,
        "time_unit": "ns",
        "hits": 3.0,
        "misses": 2.0,
    }
    assert imported(catalogue.read(json.dumps({"context": {}, "benchmarks": [row]}))).counters == (
        "hits",
        "misses",
    )
    rows = [row, {**row, "misses": float("nan"), "late": 1.0}]
    reading = catalogue.read(json.dumps({"context": {}, "benchmarks": rows}))
    assert imported(reading).counters == ("hits",)
    assert reading.notes == (
        "counters without a number in each repetition are left out: 'late', 'misses'",
    )


def test_counters_of_pytest_benchmark_are_named() -> None:
    raw = json.loads((DATA / "pytest_benchmark-5.3.1.json").read_text())
    raw["benchmarks"][0]["extra_info"] = {
        "rows": 12,
        "accuracy": 0.5,
        "label": "x",
        "nested": {"a": 1},
        "": 1,
        "on": True,
    }
    reading = catalogue.read(json.dumps(raw))
    assert imported(reading).counters == ("rows", "accuracy")
    assert not [one for one in reading.series if not one.derived and one.measure]


def imported(reading):
    at = "2026-01-01T00:00:00+00:00"
    run = Run(
        id="x",
        started_at=at,
        finished_at=at,
        state=RunState.COMPLETE,
        config_digest="x",
        device="cpu",
    )
    return import_results({"x.json": reading}, run=run, tool_version="1")
