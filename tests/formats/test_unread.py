"""Files that are not read are called by their tool, and what is wrong with them is shown."""

import gzip
import json
import time
from pathlib import Path

import pytest

from ci_bench.formats import catalogue
from ci_bench.formats.series import Unreadable
from ci_bench.formats.unread import appearance

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(("text", "words"), [
    ('{"metrics": {}, "root_group": {}}', "load test"), ('{"type":"Metric","metric":"http_reqs"}\n{"a":1}', "load test"),
    ("Running 30s test @ http://a/\n", "load test"), ('note: x\n{\n  "fio version" : "3"}', "load test"),
    ('{"a": 1, "mean_ttft_ms": 20.0}', "SAVE_TO_PYTORCH_BENCHMARK_FORMAT"), ('[{"n_prompt": 1, "avg_ts": 9.0}]', "llama-bench"),
    ("| model   | size |\n| --- | ---: |\n", "llama-bench"), ('{"traceEvents": []}', "profiler's trace"),
    ("Time (%),Total Time (ns),Name\n", "Nsight"), ("==PROF== Connected\n", "Nsight"), (":::MLLOG {}\n", "MLPerf"),
    ('{"event" : "cs", "counter-value" : "5"}\n{"a":1}', "perf"), ('{"HostEnvironmentInfo": {}}', "BenchmarkDotNet"),
    ("BenchmarkTools.Trial: 10000 samples with 1000 evaluations.\n", "BenchmarkTools.jl"),
    ("# PyTorch/Caffe2 Operator Micro-benchmarks\n", "operator benchmark"),
    ("Benchmarking Framework,Benchmark Module Name,Case Name,tag\nPyTorch,add,a,short\n", "operator benchmark"),
    ("Running train method from resnet50 on cuda in eager mode with\n", "TorchBench's run.py"),
    ('{"mean": {"point_estimate": 1.0}}', "`cargo criterion"), ("Benchmarking g/f: Warming up\n", "`cargo criterion"),
    ('{ "type": "bench", "name": "a", "median": 1 }\n{ "type": "suite" }', "libtest"), ("<Catch2TestRun/>", "Catch2"),
    ("| Command | Mean [ms] |\n", "--export-json"), ("Benchmark 1: a\n  Time (mean ± s):  1 ms\n", "--export-json"),
    ("x\nBenchmark    Time     CPU   Iterations\n", "--benchmark_out"), ('"Benchmark","Mode","Threads","Score"\n', "-rf json"),
    ("        │ old.txt │\n        │ sec/op │   sec/op   vs base │\n", "benchstat"),
    ('{"Action":"output","Package":"p"}\n{"Action":"pass","Package":"p"}', "`go test -json`"),
    ('{"a.time_x": {"param_names": []}, "version": 2}', "asv's list"), ('{"num_cpu": "8", "ram": "1"}', "asv's description"),
    ("version https://git-lfs.github.com/spec/v1\n", "git lfs pull"), ("<<<<<<< HEAD\n{}\n", "merge conflicts"),
    ('{"message": "Not Found", "documentation_url": ""}', "GitHub's answer"), ("a;b;c\n1;2;3\n", "semicolons"),
    ('compiling\n{"results": []}\n', "JSON begins in line 2"), ("// a\n[1]\n", "it is neither JSON"),
    ('{"a": 1}\n{"b": 2}', "fields: 'a', 'b'"),
])  # fmt: skip
def test_a_text_is_called_by_its_tool(text, words) -> None:
    assert words in appearance(text)
    with pytest.raises(Unreadable, match="what is read: measurements"):
        catalogue.read(text)


@pytest.mark.parametrize(("text", "words"), [
    ("```\n\nBenchmarkDotNet v0.13.12, Ubuntu\n```\n| Method | Mean |\n|--- |---:|\n", "BenchmarkDotNet"),
    ("Method,Job,Mean\nMd5,DefaultJob,1.8 us\n", "BenchmarkDotNet"),
    ("|   ns/op |  op/s |    err% |  total | benchmark\n|---:|---:|---:|---:|:---\n", "nanobench"),
    ('"title";"name";"elapsed";"error %"\n"b";"fib";5e-9;0.1\n', "nanobench"),
    ("Celero\n|  Group  |  Experiment  |  Prob. Space  |\n", "Celero"),
    ('[cols="<,>,>,>,>"]\n|===\n| Command \n| Mean [ms] \n', "hyperfine"), ("| Command  |  Mean [ms] |  Min [ms] |\n|--+--|\n", "hyperfine"),
    ("group      base      new\n-----      ----      ---\nfib  1.00  26.1±0.31µs\n", "cargo bench"),
    ('{"version":"6","kind":"LibraryBenchmark","function_name":"fib"}', "gungraun"),
    ('[{"name":"fib","result":{"aborted":false,"hz":1234.5}}]', "tinybench"), ("name,min,max,mean,stddev\nt,1,2,1.5,0\n", "pytest-benchmark"),
    ("telco: Mean +- std dev: [a] 10.0 ms +- 0.1 ms -> [b] 13.0 ms +- 0.1 ms: 1.30x slower\n", "`-o FILE`"),
    ("+---+---+\n| Benchmark | base   | head |\n+===+===+\n", "`-o FILE`"),
    ("goos: linux\npkg: p\ncpu: X\n,old.txt,,new.txt\n,sec/op,CI,sec/op,CI,vs base,P\nEncode-8,1.7e-06,1%,1.4e-06,1%,-17%,p=0\n", "benchstat"),
    ("name,old time/op (ns/op),±,new time/op (ns/op)\nA,1,1%,2\n", "benchstat"),
    ("clk: ~3 GHz\ncpu: Apple M2\nruntime: node 22.0.0\n\nbenchmark  avg (min … max) p75\nfib  321 ns/iter\n", "mitata"),
    ('{"version":1,"runtime":"Deno/1.41.0 x86_64","cpu":"X","benches":[]}', "mitata"),
    ('{"context":{"build":{}},"benchmarks":[{"name":"a","className":"B","totalRunTimeNs":1,"metrics":{}}]}', "androidx"),
    ("Benchmark 1 (100 runs): ./a\n  measurement   mean\n  wall_time  12.3ms ± 0.12ms\n", "hyperfine"),
    ("| Change   | Before [a]    | Ratio | Benchmark (Parameter)   |\n|---|---|---|---|\n", "asv"),
    ("200000 loops, best of 5: 1.23 usec per loop\n", "pyperf timeit"), ("\nreal\t0m1.234s\n", "hyperfine"),
    ("=========== slowest durations ===========\n1.23s call t.py::a\n", "--benchmark-json"),
    ('<?xml version="1.0"?><testsuite tests="1"><testcase/></testsuite>', "results of tests"),
    ("============ Serving Benchmark Result ============\nSuccessful requests: 1\n", "serving benchmark"),
    ("&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec\n", "trtexec"), ("ggml_cuda_init: 1\n| model   | size |\n", "llama-bench"),
    ('{"results":{"hellaswag":{"acc":0.57,"acc_stderr":0.005}}}', "lm-evaluation-harness"),
    (" ** CUDA GPU Kernel Summary:\n\n Time (%)  Total Time (ns)  Name\n", "Nsight"), ("# started on x\n\n1.5,msec,task-clock:u,123,100.00,0.99,CPUs\n", "perf"),
    ("Session creation time cost: 0.1 s\nAverage inference time cost: 12.1 ms\n", "onnxruntime"),
    ("[Step 11/11] Dumping statistics report\n[ INFO ] Count: 1000 iterations\n", "OpenVINO"),
    ("[--------- Batched dot ---------]\n   |  mul/sum  |\nTimes are in microseconds (us).\n", "torch.utils.benchmark"),
    ("[0]:transA,transB,hipblaslt-Gflops,us\nN,N,4123.1,333\n", "hipblaslt"), ("[CUDA Bandwidth Test] - Starting...\nRunning on\n", "bandwidthTest"),
    ("Problem,Provider,Operation,Disposition,Status,Runtime\n1,CUTLASS,g,passed,success,0.5\n", "CUTLASS"),
    ("### causal=False, headdim=64 ###\nFlash2 fwd: 312.12 TFLOPs/s, bwd: 212.11 TFLOPs/s\n", "FlashAttention"),
    ("M,N,Triton (GB/s),Torch (GB/s)\n1,2,3,4\n", "Triton"), ("x_val;triton-tflops\n(1, 2);3\n", "TritonBench"),
    ("Function    Best Rate MB/s  Avg time\nCopy:  12345.6  0.01\n", "STREAM"), ("# OSU MPI-CUDA Latency Test v7.3\n0  0.61\n", "OSU"),
    ('{"_wandb":{"runtime":1},"train/loss":0.1}', "W&B"), ('{"epoch":3.0,"train_samples_per_second":24.3}', "trainer_state.json"),
    ('[{"name":"a","ips":1.5,"stddev":1}]', "benchmark-ips"), ("expression,min,median,itr/sec\na,1us,1us,7\n", "R's bench"),
    ("size,Triton\n4096.0,712.1\n", "Triton"), ("Compiler,Time (ms)\ngcc,12.1\n", "a table in CSV"),
    ("name,time_ms\nmatmul,12.1\n", "a table in CSV"), ('[{"name":"a","time_ms":1.5}]', "a list (fields: 'name', 'time_ms')"),
    ("benchmarks 10 20 of them\nran\n", "it is neither JSON"),
    ("Hello, world\nthis, then, is prose\n", "it is neither JSON"), ("[INFO] warming up\nready\n", "it is neither JSON"),
])  # fmt: skip
def test_another_form_of_a_tool_is_called_by_it(text, words) -> None:
    assert words in appearance(text)
    with pytest.raises(Unreadable, match="what is read: measurements") as error:
        catalogue.read(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "part",
    [
        "\n",
        " ",
        "x\n[\n",
        'x\n{"',
        "Benchmark Mode ",
        '"Action":"x",',
        "-- benchmark: 1 tests ",
        "│ ",
        "[- ",
        "1,,a,",
        "(a, b) ",
        "=",
        "| Benchmark |",
        '"a",',
        " before ",
    ],
)
def test_a_hostile_text_is_described_at_once(part) -> None:
    text = "a" + part * (100_000 // len(part))
    started = time.process_time()
    appearance(text)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(("content", "words"), [
    (b"PK\x03\x04abc", "zip archive"), (b"\x28\xb5\x2f\xfdabc", "zstd"), (b"BZh91AY", "bzip2"), (b"\xfd7zXZ\x00ab", "xz"),
    (b"SQLite format 3\x00ab", "SQLite"), (b"a\x00\x01b", "binary"),
    (gzip.compress(b"dev,name,batch_size,abs_latency\ncuda,a,1,2\n", mtime=0)[:-9], "cut short"),
])  # fmt: skip
def test_what_is_no_text_is_called_by_its_kind(content, words) -> None:
    with pytest.raises(Unreadable, match=words):
        catalogue.decode(content)


def test_several_packed_texts_in_a_row_are_one() -> None:
    assert catalogue.decode(gzip.compress(b"[1,", mtime=0) + gzip.compress(b" 2]")) == "[1, 2]"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_read(encoding) -> None:
    text = (DATA / "jmh-form.json").read_text()
    assert catalogue.decode(text.encode(encoding)) == text


@pytest.mark.parametrize(("text", "words"), [
    ('{"a": [1,],}', "Expecting value at '],}'"), ("{'a': 1}", "at \"'a': 1}\""), ('{"a": None}', "at 'None}'"),
    ('{"a": 1,5}', "at '5}'; if it is a decimal comma, run the tool with LC_ALL=C"), ('{"a": 1', "the text is cut short"),
])  # fmt: skip
def test_a_fault_of_json_is_shown(text, words) -> None:
    with pytest.raises(Unreadable) as error:
        catalogue.read(text)
    assert words in str(error.value)


def test_one_message_of_criterion_is_read() -> None:
    line = (DATA / "criterion-form.json").read_text().splitlines()[0]
    assert json.loads(line)["reason"] == "benchmark-complete"
    assert len(catalogue.read(line).series) == 1


def test_output_within_a_line_of_go_is_no_loss() -> None:
    found = catalogue.read(
        "pkg: p\nBenchmarkA-8   \t2026/01/01 a log line\nmore\n 100\t 12.5 ns/op\nBenchmarkB-8 10 5 ns/op\nPASS\n"
    )
    assert {one.label: one.runs for one in found.series} == {
        "p.BenchmarkA-8": ((12.5,),),
        "p.BenchmarkB-8": ((5.0,),),
    }
    quiet = catalogue.read(
        "=== RUN   BenchmarkA\nBenchmarkA\nBenchmarkA-8  100  12.5 ns/op\n--- FAIL: BenchmarkC-8\n"
    )
    assert [one.benchmark for one in quiet.failed] == ["BenchmarkC-8"]


def test_a_panic_and_a_package_that_fails_are_failures() -> None:
    text = "pkg: p\nBenchmarkA-8 10 5 ns/op\nBenchmarkB-8   \tpanic: boom\nexit status 2\nFAIL\tp\t0.1s\nFAIL\n"
    assert [one.benchmark for one in catalogue.read(text).failed] == ["p", "p.BenchmarkB-8"]
    assert [
        one.benchmark for one in catalogue.read("# p\n./a.go:1: x\nFAIL\tp [build failed]\n").failed
    ] == ["p"]


def test_shards_of_the_dynamo_runner_may_have_other_columns() -> None:
    first = "name,dev,batch_size,abs_latency\na,cuda,1,5.0\n"
    found = catalogue.read(f"{first}dev,name,batch_size,speedup,abs_latency\ncuda,b,1,1.2,7.0\n")
    assert [(one.benchmark, one.runs) for one in found.series if not one.derived] == [
        ("a cuda batch=1", ((5.0,),)), ("b cuda batch=1", ((7.0,),)),
    ]  # fmt: skip


def test_a_result_of_go_without_a_number_fails_its_benchmark() -> None:
    found = catalogue.read("pkg: p\nBenchmarkA-8 10 NaN ns/op\nBenchmarkB-8 10 5 ns/op\n")
    assert [(one.benchmark, one.reason) for one in found.failed] == [
        ("p.BenchmarkA-8", "a result of it is NaN ns/op")
    ]
    assert [one.benchmark for one in found.series] == ["p.BenchmarkB-8"]


def test_a_command_that_a_signal_ended_is_named() -> None:
    row = {"command": "a", "mean": 1.0, "times": [1.0, 1.0], "exit_codes": [0, None]}
    assert (
        catalogue.read(json.dumps({"results": [row]}))
        .failed[0]
        .reason.startswith("1 of 2 runs ended with a signal; ")
    )


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_time_that_is_missing_fails_its_benchmark_alone(missing) -> None:
    raw = json.loads((DATA / "google_benchmark-1.9.5.json").read_text())
    whole = catalogue.read(json.dumps(raw))
    raw["benchmarks"][0]["real_time"] = missing
    broken = catalogue.read(json.dumps(raw))
    assert len(broken.failed) == len(whole.failed) + 1
    assert broken.series
    raw["benchmarks"][0].update(real_time=1.0, cpu_time=missing)
    assert catalogue.read(json.dumps(raw)).failed == whole.failed
    of_bencher = {"a": {"latency": {"value": missing}}, "b": {"latency": {"value": 1.0}}}
    found = catalogue.read(json.dumps(of_bencher))
    assert [(one.benchmark, one.reason) for one in found.failed] == [
        ("a", "it has no number of latency")
    ]
    assert [one.benchmark for one in found.series] == ["b"]
