"""Google Benchmark's files of old versions, with equal names, and files that only resemble them."""

import json

from ci_bench.formats import catalogue


def read(*rows):
    times = {"real_time": 1.0, "cpu_time": 1.0, "time_unit": "ns"}
    document = {"context": {}, "benchmarks": [{**times, **row} for row in rows]}
    return catalogue.read(json.dumps(document))


def test_old_aggregates_are_no_benchmarks() -> None:
    names = ("BM_a", "BM_a", "BM_a_mean", "BM_a_median", "BM_a_stddev", "BM_of_mean")
    found = read(*({"name": name, "real_time": place} for place, name in enumerate(names, 1)))
    times = {one.benchmark: one.values for one in found.series if not one.measure}
    assert times == {"BM_a": (1.0, 2.0), "BM_of_mean": (6.0,)}


def test_old_aggregates_alone_give_the_median() -> None:
    names = ("BM_a_mean", "BM_a_median", "BM_a_stddev")
    found = read(*({"name": name, "real_time": place} for place, name in enumerate(names, 1)))
    assert [(one.benchmark, one.values) for one in found.series if not one.measure] == [
        ("BM_a", (2.0,))
    ]


def test_two_benchmarks_of_one_name_are_kept_apart() -> None:
    rows = [
        {"name": "BM_a/8", "run_type": "iteration", "family_index": family, "real_time": time}
        for family, time in ((0, 1.0), (1, 100.0), (0, 2.0))
    ]
    found = read(*rows)
    assert {one.benchmark: one.values for one in found.series if not one.measure} == {
        "BM_a/8": (1.0, 2.0),
        "BM_a/8 #2": (100.0,),
    }
