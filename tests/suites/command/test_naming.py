"""Names of metrics are allowed, stable, and differ where the tool's names differ."""

import json
import random
import re
from importlib.resources import files

import pytest

from ci_bench.formats.importing import metric_name

ALLOWED = json.loads(files("ci_bench").joinpath("schemas", "results.json").read_text())["$defs"][
    "metric_name"
]["pattern"]


@pytest.mark.parametrize(
    ("benchmark", "measure", "name"),
    [
        ("matmul", "", "matmul"),
        ("matmul", "memory", "matmul__memory"),
        ("BM_Sum/64", "", "bm_sum_64_ptncwm"),
        ("BM_Sum/64", "cpu_time", "bm_sum_64__cpu_time_dyqzqy"),
        ("tests/test_sort.py::test_sort[10]", "", "tests_test_sort_py_test_sort_10_wdueft"),
        ("行列", "", "f267jd"),
    ],
)
def test_names_are_those_that_they_were(benchmark, measure, name) -> None:
    """A name that changed would lose its history: this table may grow, but never change."""
    assert metric_name(benchmark, measure) == name


def test_names_that_read_alike_stay_different() -> None:
    alike = ["a b", "a-b", "a_b", "A b", "a  b", " a_b", "a_b_", "a__b", "a.b", "a:b", "ä_b"]
    named = [metric_name(name, "") for name in alike] + [
        metric_name("a", "b"),
        metric_name("a b", ""),
        metric_name("", "a_b"),
    ]
    assert len({*named}) == len({*alike}) + 1, "only 'a b' and 'a_b' come twice"


def test_where_a_benchmark_ends_and_a_measure_begins_makes_a_difference() -> None:
    names = {
        metric_name("fib", "user_time"),
        metric_name("fib_user", "time"),
        metric_name("fib_user_time", ""),
    }
    assert names == {"fib__user_time", "fib_user__time", "fib_user_time"}


def test_any_names_are_allowed_and_differ() -> None:
    random.seed(0)
    letters = "ab_-./ :[]é行\n\ud800"
    pairs = {
        (
            "".join(random.choices(letters, k=random.randint(1, 90))),
            random.choice(["", "time", "a b"]),
        )
        for _ in range(5000)
    }
    names = {pair: metric_name(*pair) for pair in pairs}
    assert all(re.fullmatch(ALLOWED, name) for name in names.values())
    assert len({*names.values()}) == len(pairs)


def test_a_long_name_keeps_its_end() -> None:
    name = metric_name(
        "tests/a/very/long/path/to/some/file/test_kernels.py::TestAttention::test_forward[fp16-causal]",
        "",
    )
    assert name == "est_kernels_py_testattention_test_forward_fp16_causal_4luvjb"
    assert len(name) <= 60
