"""Descriptions of files that no reader knows: their tool, and output of it that is read."""

import json
import re
from collections.abc import Mapping
from itertools import islice

from ci_bench.records.faults import show

PACKED: Mapping[bytes, str] = {
    b"PK\x03\x04": "it is a zip archive; unpack it first",
    b"\x28\xb5\x2f\xfd": "it is packed by zstd; unpack it first",
    b"BZh": "it is packed by bzip2; unpack it first",
    b"\xfd7zXZ\x00": "it is packed by xz; unpack it first",
    b"SQLite format 3\x00": "it is an SQLite database, which is not read; have the tool write JSON",
}
"""Descriptions of packed and binary files, by their first bytes."""

_OUTPUTS = (
    (
        "mitata or `deno bench`",
        r'"runtime"\s*:\s*"(bun|node|[Dd]eno)\b|\(min … max\)|time/iter \(avg\)',
    ),
    ("PHPBench", r"<phpbench\b"),
    ("benchmark-ips", r'"ips"\s*:|\d i/100ms$| i/s -'),
    ("R's bench or microbenchmark", r'\bitr/sec\b|\A"expr","time"'),
    ("Swift's package-benchmark", r"^╒═|^Host '.*' with \d+ '"),
    (
        "Haskell's criterion or tasty-bench",
        r'\AName,Mean,MeanLB|\AName,Mean \(ps\)|\[\s*"criterion"',
    ),
    ("Benchee", r'"run_time_data"\s*:'),
    ("core_bench", r"│ Time/Run │"),
    ("androidx.benchmark", r'"thermalThrottleSleepSeconds"\s*:|"totalRunTimeNs"\s*:'),
    ("Perfherder or Chromium's histograms", r'"lowerIsBetter"\s*:|_(smaller|bigger)IsBetter"'),
    ("onnxruntime_perf_test", r"^Average inference time cost"),
    (
        "OpenVINO's benchmark_app",
        r'Dumping statistics report|\ACommand line parameters$|"execution_results"\s*:',
    ),
    (
        "TensorFlow's benchmarks",
        r'Inference timings in us:|"wallTime"\s*:|wall_time: |"exps_per_second"',
    ),
    ("STREAM or BabelStream", r"Best Rate MB/s|\ABabelStream|max_mbytes_per_sec"),
    ("gpu-burn", r"Gflop/s\) +errors:"),
    ("the OSU micro-benchmarks", r"^# OSU \S+"),
    ("HPL", r"^HPLinpack "),
    ("rocblas-bench or hipblaslt-bench", r"\b(rocblas|hipblaslt)-Gflops\b"),
    ("CUTLASS's profiler", r",Disposition,Status,|^ +Disposition: "),
    ("FlashAttention's benchmarks", r" fwd: [\d.]+ TFLOPs/s, bwd: "),
    ("nvbandwidth or bandwidthTest", r"\bnvbandwidth\b|CUDA Bandwidth Test"),
    ("TritonBench", r"\Ax_val;|^ *\([\w, ]+\) .*-(tflops|speedup|gbps|latency)\b"),
    (
        "Triton's perf_report",
        r"\A[^\n]*(,Triton\b|,[\w ]+ \((GB/s|TFLOPS)\))|^\S*-performance:$",
    ),
    ("torch.utils.benchmark", r"<torch\.utils\.benchmark|^Times are in \w+ \(\w+\)"),
)
"""Names and patterns of outputs that are not read."""
_LOOKS = (
    (
        "the text that `cargo bench` prints; `cargo criterion --message-format=json` is read",
        r"^test .+ bench:|\Agroup {2,}\w.*\n-----",
    ),
    (
        "PyTorch's operator benchmark; its records for the dashboard are read",
        r"Operator Micro-benchmarks|\ABenchmarking Framework,",
    ),
    (
        "the text that criterion prints; `cargo criterion --message-format=json` is read",
        r"time:\s+\[[^\]\n]+\]|^Benchmarking .+: \w",
    ),
    (
        "a file of criterion; `cargo criterion --message-format=json` is read",
        r'"point_estimate"\s*:|"sampling_mode"\s*:|"directory_name"\s*:|\Agroup,function,value,',
    ),
    ("the text of divan, which is not read", r"fastest\s+│ slowest\s+│"),
    (
        "the JSON of libtest; `cargo criterion --message-format=json` is read",
        r'"type"\s*:\s*"bench"',
    ),
    (
        "the output of Catch2; neither its text nor its XML is read",
        r"(?i)benchmark name\s+samples\s+iterations|<(Catch2TestRun|BenchmarkResults)\b",
    ),
    (
        "the output of iai or gungraun, which is not read",
        r'^[ \t]+Instructions:\s|"kind"\s*:\s*"LibraryBenchmark"',
    ),
    ("the text that Benchmark.js prints, which is not read", r" x [\d,.]+ ops/sec "),
    (
        "the output of tinybench; `vitest bench --outputJson FILE` is read",
        r'│ Task [Nn]ame|"Task [Nn]ame"\s*:|"hz"\s*:',
    ),
    ("test results; `vitest bench --outputJson FILE` is read", r'"numTotalTestSuites"\s*:'),
    (
        "the text of pytest-benchmark; `pytest --benchmark-json=FILE` is read",
        r"^-+ benchmark.*: \d+ tests? -+$|\Aname,min,max,mean|\A(group,)?name,fullname,",
    ),
    (
        "what hyperfine prints, or its CSV or Markdown; `--export-json FILE` is read",
        (
            r"\Acommand,mean,stddev,median,user,system,min,max|^\| Command\s+\|\s+Mean \["
            r"|Time \(mean ± .\):"
        ),
    ),
    (
        (
            "PyTorch's table of expected instruction counts, which is not read; its tables of"
            " expected accuracies are"
        ),
        r"\A\s*[\w.-]+,[\w ]*instruction[ _]count,\d+",
    ),
    (
        (
            "PyTorch's table of expected speedups, which is not read; the runner's own tables of"
            " performance are"
        ),
        r"\A#?name,.*,perf_speedup_target",
    ),
    (
        "TorchBench's run.py; its userbenchmarks' JSON is read",
        r"\ARunning \w+ method from \S+ on \w+ in \w+ mode",
    ),
    (
        (
            "the text or CSV of Google Benchmark; `--benchmark_out=FILE"
            " --benchmark_out_format=json` is read"
        ),
        r"^name,iterations,real_time,cpu_time|^Benchmark\s+Time\s+CPU\s+Iterations",
    ),
    (
        "the table or CSV of nvbench; `--json FILE` is read",
        r"\A# Devices\s|\ABenchmark,Device,Device Name,",
    ),
    (
        "the text or CSV of JMH; `-rf json -rff FILE` is read",
        r'^"?Benchmark"?[,\s].{0,200}\bMode\b.{0,200}\bScore\b',
    ),
    (
        "the table of benchstat; its input, the text of `go test -bench`, is read",
        r"^name[\s,]+(old )?time/op|│\s+vs base|^[ \t]+│.*\.txt[ \t]+│|^,\S+/op,CI",
    ),
    (
        "the JSON of `go test -json`; the text of `go test -bench` is read",
        r'"Action"\s*:\s*"\w+"\s*,\s*"Package"',
    ),
    (
        "a comparison by asv; the file of a commit in results/MACHINE is read",
        r"\| Benchmark \(Parameter\)|^[ \t]+before +after +ratio",
    ),
    (
        "what pyperf prints; `-o FILE` is read",
        r"Mean \+- std dev: |^\| Benchmark +\|.*\n\+=",
    ),
    (
        "what timeit prints; `python -m pyperf timeit -o FILE` is read",
        r"per loop \(mean ± |^\d+ loops?, best of \d+:",
    ),
    (
        "what `time` or poop prints; `hyperfine --export-json FILE` is read",
        r"Maximum resident set size|^real\s+\d+m|^Benchmark \d+ \(\d+ runs\)",
    ),
    (
        "what pytest prints; `pytest --benchmark-json=FILE` is read",
        r"^=+ slowest .*durations =+$",
    ),
    ("results of tests in XML, which have no benchmarks", r"<testsuites?\b"),
    (
        "asv's list of benchmarks; the file of a commit in results/MACHINE is read",
        r'"param_names"\s*:',
    ),
    (
        "asv's description of a machine; the file of a commit, next to it, is read",
        r'\A\s*\{(?=[^{]*"num_cpu")(?=[^{]*"ram")',
    ),
    ("a file of BenchmarkTools.jl, which is not read", r'"BenchmarkTools|\ABenchmarkTools\.'),
    (
        "a file of BenchmarkDotNet, which is not read",
        r'"HostEnvironmentInfo"|\bBenchmarkDotNet[= ]|\AMethod[;,]Job[;,]',
    ),
    (
        "the output of nanobench, which is not read",
        r'"medianAbsolutePercentError|\| +err% \||"elapsed";"error %"',
    ),
    (
        "the output of Celero, which is not read",
        r"\AGroup,Experiment,Problem Space,|\| +Prob\. Space +\|",
    ),
    (
        (
            "a serving benchmark's results, which are not read; vLLM also writes records that are,"
            " with SAVE_TO_PYTORCH_BENCHMARK_FORMAT=1"
        ),
        (
            r'"mean_ttft_ms"|"avg_latency"\s*:|"total_num_tokens"\s*:|"time_to_first_token"\s*:'
            r'|"prefill_latency"\s*:|^=+ Serving Benchmark Result =+|^= PERFORMANCE OVERVIEW'
            r"|\Aengine_dir,|\AConcurrency,Inferences/Second,"
        ),
    ),
    (
        "a file of llama-bench, which is not read",
        r'"avg_ts"\s*:|\A\s*build_commit,|^\| model +\||build_commit +TEXT',
    ),
    (
        "the output of trtexec, which is not read",
        r'"latencyMs"\s*:|"averageMs"\s*:|TensorRT\.trtexec',
    ),
    (
        "a profiler's trace, which has no benchmarks",
        (
            r'"traceEvents"\s*:|^[ \t]*Name\s+Self CPU %|DeepSpeed Flops Profiler|NVPROF'
            r'|"TotalDurationNs"'
        ),
    ),
    (
        "a profile of Nsight, which has no benchmarks",
        r'^ *Time ?\(%\),? *Total Time|^==PROF==|^"ID","Process ID"',
    ),
    (
        "the scores of lm-evaluation-harness or lighteval, which are not read",
        r'"n-shot"\s*:|"acc_stderr(,none)?"\s*:',
    ),
    ("a log of MLPerf, which is not read here", r"^:::MLLOG |^MLPerf Results Summary"),
    (
        "counters of perf, which are not read",
        (
            r'"counter-value"\s*:|Performance counter stats for'
            r"|^([\d.]+|<not \w+>)[,;]\w*[,;][\w-]+(:\w+)?[,;]\d+[,;][\d.]+[,;]"
        ),
    ),
    (
        "the output of nccl-tests or rccl-tests, which is not read",
        r'^# nThread \d+ nGpus|"bus_?bw"\s*:',
    ),
    (
        "a load test's results, which are not read",
        (
            r'"root_group"\s*:|"http_reqs"|"fio'
            r' version"|"intermediate"\s*:\s*\[|\AType,Name,Request Count,'
            r"|^Running \d+\w+ test @ |^sysbench \d|ApacheBench|^tps = |http_req_duration\.+:"
            r"|^fio-\d|\A\d;fio-|\Aresponse-time,DNS"
            r'|"(testRunDurationMs|requestsPerSec|num_reqs_per_sec|bits_per_second|ALL STATS)"\s*:'
            r'|"99th"\s*:|"2xx"\s*:|"test","rps"'
        ),
    ),
    (
        "the summary of a W&B run; its event files are read as the losses of a training",
        r'"_wandb"\s*:|"_runtime"\s*:',
    ),
    (
        (
            "a summary of Hugging Face's Trainer; its trainer_state.json is read as the losses of a"
            " training"
        ),
        r'"train_samples_per_second"\s*:',
    ),
    ("a table of dynamo's graph breaks, which has no benchmarks", r"\Amodel,reason,user_stack"),
    (
        "dynamo's summary of speedups; the tables with a row for each model are read",
        r"\ACompiler,(torchbench|huggingface|timm)",
    ),
    (
        "a log of GPUs, which has no benchmarks",
        r"\Atimestamp, (name|index|uuid|pci|utilization)|\A#Entity\s",
    ),
    *((f"the output of {name}, which is not read", pattern) for name, pattern in _OUTPUTS),
    ("GitHub's answer to a request that failed", r'"documentation_url"\s*:|\A404: Not Found'),
    ("a pointer of Git LFS; fetch the file with `git lfs pull`", r"\Aversion https://git-lfs"),
    ("a file with merge conflicts", r"\A<<<<<<< "),
    ("HTML", r"(?i)\A\s*<(!doctype html|html)"),
    ("XML", r"\A\s*<\?xml"),
)
"""Descriptions of texts and JSON, with their patterns."""
_TABLES = (
    ("a table in Markdown", r"\A\|.*\|\s*\n\|[-: |]+\|"),
    ("YAML", r"\A---\s|\A[\w-]+:\s*\n[ -]"),
)
_SEPARATED = {",": "a table in CSV", ";": "a table with semicolons", "\t": "a table with tabs"}
_ROWS = 3
"""Number of first rows with equally many columns in a table."""
_BRACKETED = re.compile(r"\s*\[[^\[\]\n{]*\]\s*[^\s,\]]")
"""A word in brackets, which begins many logs and titles of tables."""
_MOST_LOOKED_AT = 100_000
_SHOWN, _TRIED = 5, 20


def tool_of(text: str) -> str:
    """Return the tool that writes such texts; empty if it is unknown."""
    begin = text.lstrip("\ufeff")[:_MOST_LOOKED_AT]
    return next((words for words, pattern in _LOOKS if re.search(pattern, begin, re.MULTILINE)), "")


def is_bracketed(text: str) -> bool:
    """Return whether a text begins with a word in brackets instead of a list of JSON."""
    return _BRACKETED.match(text) is not None


def appearance(text: str) -> str:
    """Describe the looks of an unknown text: a tool's output, or how it begins."""
    begin = text.lstrip("\ufeff")[:_MOST_LOOKED_AT]
    is_json = begin.lstrip().startswith(("{", "[")) and not is_bracketed(begin)
    if words := tool_of(begin) or ("" if is_json else _table(begin)):
        return f"it looks like {words}"
    if is_json or _is_value(begin):
        return _json_appearance(begin)
    if line := _line_of_json(begin):
        return (
            f"JSON begins in line {line}, after other text; have the tool write the JSON into a"
            " separate file"
        )
    return f"it is neither JSON nor a text that is read; it begins with {_first_line(begin)}"


def _table(begin: str) -> str:
    lines = (line for line in islice(begin.splitlines(), _TRIED) if line.strip())
    rows = [re.sub(r'"[^"]*"', "", line) for line in islice(lines, _ROWS)]
    for separator, words in _SEPARATED.items():
        counts = {row.count(separator) for row in rows}
        if len(rows) > 1 and len(counts) == 1 and counts != {0}:
            return words
    return next((words for words, pattern in _TABLES if re.search(pattern, begin)), "")


def _json_appearance(begin: str) -> str:
    if not begin.lstrip().startswith(("{", "[")):
        return "it is JSON, but of no known form: a single value"
    kind = ": a list" if begin.lstrip().startswith("[") else ""
    names = re.findall(r'"((?:[^"\\]|\\.){1,40})"\s*:', begin[:2000])[:_SHOWN]
    fields = f" (fields: {', '.join(map(show, dict.fromkeys(names)))})" if names else ""
    return f"it is JSON, but of no known form{kind}{fields}"


def _is_value(begin: str) -> bool:
    try:
        json.loads(begin)
    except (ValueError, RecursionError):
        return False
    return True


def _line_of_json(begin: str) -> int | None:
    """Return the line in which an object or a list begins, after lines of other text."""
    for match in islice(re.finditer(r"(?m)^[{\[]\s*[\"{\n]", begin), _TRIED):
        try:
            json.JSONDecoder().raw_decode(begin, match.start())
        except (ValueError, RecursionError):
            continue
        return begin.count("\n", 0, match.start()) + 1
    return None


def _first_line(begin: str) -> str:
    return show(next((line.strip() for line in begin.splitlines() if line.strip()), "")[:60])
