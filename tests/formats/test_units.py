"""Units as tools write them."""

import pytest

from ci_bench.formats.units import Measured, direction, interpret, is_convertible
from ci_bench.records.results import Better, Unit

TIMES = {
    "s": 1.0,
    "seconds": 1.0,
    "sec": 1.0,
    "ms": 1e-3,
    "µs": 1e-6,
    "μs": 1e-6,
    "us": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "hours": 3600.0,
}
PER_CALL = {"ns/iter": 1e-9, "ms/token": 1e-3, "s/it": 1.0, "us per call": 1e-6}
AMOUNTS = {
    "B": 1.0,
    "bytes": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "Megabytes": 1e6,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "B/op": 1.0,
}
RATES = {
    "1/s": 1.0, "ops/s": 1.0, "req/s": 1.0, "tokens/s": 1.0, "iter/sec": 1.0, "samples per second": 1.0, "operations / second": 1.0,
    "GB/s": 1e9, "GiB/s": 2.0**30, "TFLOPS": 1e12, "TFLOP/s": 1e12, "Hz": 1.0, "MHz": 1e6, "it/ms": 1e3, "tokens/min": 1 / 60,
    "Mrows/s": 1e6, "M items/s": 1e6, "tokens/day": 1 / 86400, "tok/s/GPU": 1.0, "kIOPS": 1e3, "ns/day": 1 / 86400, "us/day": 1e3 / 86400,
}  # fmt: skip
ENERGIES = {"J": 1.0, "joules": 1.0, "kWh": 3.6e6, "J/token": 1.0}
PLAIN = [
    "",
    "count",
    "score",
    "%",
    "x",
    "samples/kWh",
    "loss",
    "allocs/op",
    "m",
    "ratio",
    "/",
    "per",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [(text, Measured(Unit.SECONDS, scale)) for text, scale in {**TIMES, **PER_CALL}.items()]
    + [(text, Measured(Unit.BYTES, scale)) for text, scale in AMOUNTS.items()]
    + [(text, Measured(Unit.PER_SECOND, pytest.approx(scale))) for text, scale in RATES.items()]
    + [(text, Measured(Unit.JOULES, scale)) for text, scale in ENERGIES.items()]
    + [(text, Measured(Unit.COUNT, 1.0)) for text in PLAIN],
)
def test_a_unit_is_understood_or_a_plain_number(text, expected) -> None:
    assert interpret(text) == expected
    assert interpret(f" {text} ") == expected


@pytest.mark.parametrize(
    ("unit", "better"),
    [
        ("ns/day", Better.HIGHER), ("ps per day", Better.HIGHER), ("hours/ns", None), ("ms/s", None), ("tok/s", Better.HIGHER),
        ("M rows/s", Better.HIGHER), ("tokens per second per GPU", Better.HIGHER), ("faults/s", None), ("ms/user", Better.LOWER),
    ],
)  # fmt: skip
def test_simulated_time_per_day_is_better_higher(unit, better) -> None:
    assert direction(unit) is better


@pytest.mark.parametrize(
    ("unit", "convertible"),
    [("ms", True), ("KiB", True), ("Mrows/s", True), ("ns/day", True), ("W", False), ("", False), ("foo/s", False)],
)  # fmt: skip
def test_units_of_no_known_scale_are_not_converted(unit, convertible) -> None:
    assert is_convertible(unit) is convertible
