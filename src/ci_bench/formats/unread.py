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

_LOOKS = (
    (
        "the text that `cargo bench` prints; `cargo criterion --message-format=json` is read",
        r"(?m)^test .+ bench:",
    ),
    (
        "PyTorch's operator benchmark; its records for the dashboard are read",
        r"Operator Micro-benchmarks|\ABenchmarking Framework,",
    ),
    (
        "the text that criterion prints; `cargo criterion --message-format=json` is read",
        r"(?m)time:\s+\[[^\]\n]+\]|^Benchmarking .+: \w",
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
    ("the text that iai or gungraun prints, which is not read", r"(?m)^[ \t]+Instructions:\s"),
    ("the text that Benchmark.js prints, which is not read", r" x [\d,.]+ ops/sec "),
    (
        "the table that tinybench prints; `vitest bench --outputJson FILE` is read",
        r"│ Task [Nn]ame|\"Task [Nn]ame\"\s*:",
    ),
    ("test results; `vitest bench --outputJson FILE` is read", r'"numTotalTestSuites"\s*:'),
    (
        "the text of pytest-benchmark; `pytest --benchmark-json=FILE` is read",
        r"(?m)^-+ benchmark.*: \d+ tests? -+$",
    ),
    (
        "what hyperfine prints, or its CSV or Markdown; `--export-json FILE` is read",
        r"\Acommand,mean,stddev,median,user,system,min,max|\A\| Command \| Mean|Time \(mean ± .\):",
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
        r"(?m)^name,iterations,real_time,cpu_time|^Benchmark\s+Time\s+CPU\s+Iterations",
    ),
    (
        "the table or CSV of nvbench; `--json FILE` is read",
        r"\A# Devices\s|\ABenchmark,Device,Device Name,",
    ),
    (
        "the text or CSV of JMH; `-rf json -rff FILE` is read",
        r'(?m)^"?Benchmark"?[,\s].{0,200}\bMode\b.{0,200}\bScore\b',
    ),
    (
        "the table of benchstat; its input, the text of `go test -bench`, is read",
        r"(?m)^name\s+(old )?time/op|│\s+vs base|^[ \t]+│.*\.txt[ \t]+│",
    ),
    (
        "the JSON of `go test -json`; the text of `go test -bench` is read",
        r'"Action"\s*:\s*"\w+"\s*,\s*"Package"',
    ),
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
        r'"HostEnvironmentInfo"|\bBenchmarkDotNet=|\AMethod;Job;',
    ),
    ("the JSON of nanobench, which is not read", r'"medianAbsolutePercentError'),
    ("the CSV of Celero, which is not read", r"\AGroup,Experiment,Problem Space,"),
    (
        (
            "a serving benchmark's JSON; vLLM writes records that are read, with"
            " SAVE_TO_PYTORCH_BENCHMARK_FORMAT=1"
        ),
        r'"mean_ttft_ms"|"avg_latency"\s*:|"total_num_tokens"\s*:|"time_to_first_token"\s*:',
    ),
    (
        "a file of llama-bench, which is not read",
        r'"avg_ts"\s*:|\A\s*build_commit,|\A\| model +\||build_commit +TEXT',
    ),
    ("a file of trtexec, which is not read", r'"latencyMs"\s*:|"averageMs"\s*:'),
    (
        "a profiler's trace, which has no benchmarks",
        r'(?m)"traceEvents"\s*:|^[ \t]*Name\s+Self CPU %|DeepSpeed Flops Profiler',
    ),
    (
        "a profile of Nsight, which has no benchmarks",
        r'(?m)^Time \(%\),Total Time|^==PROF==|^"ID","Process ID"',
    ),
    ("the scores of lm-evaluation-harness, which are not read", r'"n-shot"\s*:|"acc_stderr,none"'),
    ("a log of MLPerf, which is not read here", r"(?m)^:::MLLOG |^MLPerf Results Summary"),
    (
        "counters of perf, which are not read",
        r'(?m)"counter-value"\s*:|Performance counter stats for|^[\d.]+,\w*,task-clock,',
    ),
    ("the text of nccl-tests, which is not read", r"(?m)^# nThread \d+ nGpus"),
    (
        "a load test's results, which are not read",
        (
            r'(?m)"root_group"\s*:|"http_reqs"|"fio'
            r' version"|"intermediate"\s*:\s*\[|\AType,Name,Request Count,'
            r"|^Running \d+\w+ test @ |^sysbench \d|ApacheBench|^tps = "
        ),
    ),
    ("GitHub's answer to a request that failed", r'"documentation_url"\s*:|\A404: Not Found'),
    ("a pointer of Git LFS; fetch the file with `git lfs pull`", r"\Aversion https://git-lfs"),
    ("a file with merge conflicts", r"\A<<<<<<< "),
    ("HTML", r"(?i)\A\s*<(!doctype html|html)"),
    ("XML", r"\A\s*<\?xml"),
)
"""Descriptions of texts and JSON, with their patterns."""
_TABLES = (
    ("a table in CSV", r"\A[^\n,]+(,[^\n,]*){2,}\n"),
    ("a table with semicolons", r"\A[^\n;]+(;[^\n;]*){2,}\n"),
    ("a table with tabs", r"\A[^\n\t]+(\t[^\n\t]*){2,}\n"),
    ("a table in Markdown", r"\A\|.*\|\s*\n\|[-: |]+\|"),
    ("YAML", r"\A---\s|\A[\w-]+:\s*\n[ -]"),
)
_MOST_LOOKED_AT = 100_000
_SHOWN, _TRIED = 5, 20


def appearance(text: str) -> str:
    """Describe the looks of an unknown text: a tool's output, or how it begins."""
    begin = text.lstrip("\ufeff")[:_MOST_LOOKED_AT]
    is_json = begin.lstrip().startswith(("{", "["))
    for words, pattern in _LOOKS if is_json else (*_LOOKS, *_TABLES):
        if re.search(pattern, begin):
            return f"it looks like {words}"
    if is_json or _is_value(begin):
        return _json_appearance(begin)
    if line := _line_of_json(begin):
        return (
            f"JSON begins in line {line}, after other text; have the tool write the JSON into a"
            " separate file"
        )
    return f"it is neither JSON nor a text that is read; it begins with {_first_line(begin)}"


def _json_appearance(begin: str) -> str:
    if begin.lstrip().startswith("["):
        return "it is JSON, but of no known form: a list"
    if not begin.lstrip().startswith("{"):
        return "it is JSON, but of no known form: a single value"
    names = re.findall(r'"((?:[^"\\]|\\.){1,40})"\s*:', begin[:2000])[:_SHOWN]
    fields = ", ".join(map(show, dict.fromkeys(names)))
    return (
        f"it is JSON, but of no known form (fields: {fields})"
        if names
        else "it is JSON, but of no known form"
    )


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
