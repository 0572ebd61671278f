"""Small files in the form of each tool: one benchmark that may be slowed down, and two neighbours that never are."""

import json
import random
from collections.abc import Callable

SLOWED = "tests/test_speed.py::test_html[readme]"
NEIGHBOURS = ("tests/test_speed.py::test_sum", "tests/test_speed.py::test_max")
SECONDS = {SLOWED: 0.010, NEIGHBOURS[0]: 0.020, NEIGHBOURS[1]: 0.030}
ROUNDS = 20

Times = dict[str, list[float]]


def times(factor: float, seed: int) -> Times:
    """Seconds of each benchmark, with one per cent of noise."""
    rng = random.Random(seed)
    return {
        name: [
            seconds * (factor if name == SLOWED else 1.0) * rng.gauss(1.0, 0.01)
            for _ in range(ROUNDS)
        ]
        for name, seconds in SECONDS.items()
    }


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _measurements(found: Times) -> object:
    series = [
        {"name": name, "unit": "s", "better": "lower", "values": values}
        for name, values in found.items()
    ]
    return {"kind": "measurements", "schema_version": 1, "series": series}


def _codspeed(found: Times) -> object:
    return {
        "creator": {"name": "pytest-codspeed", "version": "4.5.0", "pid": 1},
        "python": {"sysconfig": {"py_version": "3.12.8"}, "dependencies": {}},
        "instrument": {"type": "walltime", "clock_info": {}},
        "benchmarks": [
            {
                "name": name.rpartition("::")[2],
                "uri": name,
                "config": {},
                "stats": {"median_ns": middle(values) * 1e9},
            }
            for name, values in found.items()
        ],
    }


def _pytest_benchmark(found: Times) -> object:
    return {
        "machine_info": {
            "cpu": {"brand_raw": "a processor", "count": 8},
            "python_version": "3.12.8",
        },
        "benchmarks": [
            {
                "name": name.rpartition("::")[2],
                "fullname": name,
                "stats": {"median": middle(values), "data": values},
            }
            for name, values in found.items()
        ],
        "version": "5.3.1",
    }


def _google_benchmark(found: Times) -> object:
    rows = [
        {
            "name": name,
            "run_name": name,
            "run_type": "iteration",
            "real_time": value * 1e9,
            "cpu_time": value * 1e9,
            "time_unit": "ns",
        }
        for name, values in found.items()
        for value in values
    ]
    return {"context": {"num_cpus": 8, "library_version": "1.9.5"}, "benchmarks": rows}


def _pyperf(found: Times) -> object:
    return {
        "version": "1.0",
        "metadata": {"cpu_model_name": "a processor"},
        "benchmarks": [
            {
                "metadata": {"name": name, "unit": "second"},
                "runs": [{"values": values[at : at + 4]} for at in range(0, ROUNDS, 4)],
            }
            for name, values in found.items()
        ],
    }


def _hyperfine(found: Times) -> object:
    rows = [
        {"command": name, "mean": middle(values), "median": middle(values), "times": values}
        for name, values in found.items()
    ]
    return {"results": rows}


def _asv(found: Times) -> object:
    names = {name: f"benchmarks.time_{name.rpartition('::')[2]}" for name in found}
    return {
        "commit_hash": "f2f20f8e391edd64575c45fb2896095fef6de216",
        "env_name": "existing-py",
        "params": {"machine": "host", "python": "3.12"},
        "python": "3.12",
        "result_columns": ["result", "params", "samples"],
        "results": {
            names[name]: [[middle(values)], [], [values]] for name, values in found.items()
        },
        "version": 2,
    }


def _nvbench(found: Times) -> object:
    states = [
        {
            "name": name,
            "summaries": [
                {
                    "tag": "nv/cold/time/gpu/median",
                    "data": [{"name": "value", "type": "float64", "value": str(middle(values))}],
                }
            ],
        }
        for name, values in found.items()
    ]
    return {
        "devices": [{"id": 0, "name": "Example GPU"}],
        "benchmarks": [{"name": "speed", "states": states}],
    }


def _oss(found: Times) -> object:
    return [
        {
            "benchmark": {"name": "speed"},
            "model": {"name": name},
            "metric": {
                "name": "latency",
                "benchmark_values": values,
                "extra_info": {"unit": "s", "better": "lower"},
            },
        }
        for name, values in found.items()
    ]


def _dynamo(found: Times) -> str:
    rows = [f"cpu,{name},1,{middle(values) * 1e3}" for name, values in found.items()]
    return "\n".join(["dev,name,batch_size,abs_latency", *rows, ""])


def _custom(found: Times) -> object:
    return [
        {"name": name, "unit": "ms", "value": middle(values) * 1e3}
        for name, values in found.items()
    ]


def _bigger(found: Times) -> object:
    return [
        {"name": name, "unit": "iter/sec", "value": 1 / middle(values)}
        for name, values in found.items()
    ]


def _store(found: Times) -> str:
    entry = {
        "commit": {"id": "f2f20f8e"},
        "date": 1795263400000,
        "tool": "pytest",
        "benches": _bigger(found),
    }
    text = json.dumps({"lastUpdate": 1795263400000, "repoUrl": "", "entries": {"speed": [entry]}})
    return f"window.BENCHMARK_DATA = {text}"


def _bmf(found: Times) -> object:
    return {name: {"latency": {"value": middle(values) * 1e9}} for name, values in found.items()}


def _optimum(found: Times) -> object:
    report = {
        name.rpartition("::")[2]: {"latency": {"unit": "s", "values": values}}
        for name, values in found.items()
    }
    return {"config": {"name": "speed"}, "report": report}


def _jmh(found: Times) -> object:
    return [
        {
            "benchmark": name,
            "mode": "avgt",
            "primaryMetric": {"score": middle(values), "scoreUnit": "s/op", "rawData": [values]},
        }
        for name, values in found.items()
    ]


def _criterion(found: Times) -> str:
    rows = [
        {
            "reason": "benchmark-complete",
            "id": name,
            "iteration_count": [10] * len(values),
            "measured_values": [10 * value for value in values],
            "unit": "s",
            "typical": {"estimate": middle(values), "unit": "s"},
        }
        for name, values in found.items()
    ]
    return "\n".join(map(json.dumps, rows))


def _vitest(found: Times) -> object:
    rows = [
        {"name": name, "mean": middle(values) * 1e3, "samples": []}
        for name, values in found.items()
    ]
    return {
        "files": [{"filepath": "speed.ts", "groups": [{"fullName": "speed", "benchmarks": rows}]}]
    }


def _userbenchmark(found: Times) -> object:
    metrics = {f"{name}_latency": middle(values) * 1e3 for name, values in found.items()}
    return {"name": "speed", "environ": {"pytorch_version": "2.13.0"}, "metrics": metrics}


def _go(found: Times) -> str:
    rows = [
        f"Benchmark/{name}-8 \t 100 \t {value * 1e9} ns/op"
        for name, values in found.items()
        for value in values
    ]
    return "\n".join(["goos: linux", *rows, "PASS", ""])


FORMS: dict[str, Callable[[Times], object]] = {
    "measurements": _measurements,
    "pytest-codspeed": _codspeed,
    "pytest-benchmark": _pytest_benchmark,
    "google-benchmark": _google_benchmark,
    "pyperf": _pyperf,
    "hyperfine": _hyperfine,
    "asv": _asv,
    "nvbench": _nvbench,
    "optimum-benchmark": _optimum,
    "oss-benchmark": _oss,
    "dynamo-csv": _dynamo,
    "github-action-benchmark": _store,
    "customSmallerIsBetter": _custom,
    "customBiggerIsBetter": _bigger,
    "jmh": _jmh,
    "criterion": _criterion,
    "vitest": _vitest,
    "userbenchmark": _userbenchmark,
    "go-bench": _go,
    "bmf": _bmf,
}
"""What each tool would write, by the name of its format."""


def written(form: str, factor: float, seed: int) -> str:
    """A file's text."""
    content = FORMS[form](times(factor, seed))
    return content if isinstance(content, str) else json.dumps(content)
